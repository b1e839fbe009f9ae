"""Gappa as a program, and the graphs of schedules whose bounds it is asked to prove."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from closedform.compiler import compile_schedule
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.options import GraphOptions
from closedform.verify.certificates.errors import bound_error
from closedform.verify.certificates.values import ExactValues
from closedform.verify.terms.sympy_io import term
from tests.test_library import SCHEDULES
from tools.rocq.gappa import COMMAND

GAPPA = shutil.which(COMMAND[0])
"""The program; Debian: `apt-get install gappa libcoq-gappa`. None where it is not installed."""
STEPS = 10**6
"""The last step of a schedule without an end, as in ``closedform.certify``."""


@dataclass(frozen=True, slots=True)
class BoundedGraph:
    """A graph with the bound of its error that closedform reports.

    Attributes:
        graph: The graph of an array of steps.
        last: The last step.
        bound: The bound.
        values: The exact values.
    """

    graph: Graph
    last: int
    bound: float
    values: ExactValues

    def measured_error(self) -> tuple[float, int]:
        """Returns the largest error in the evaluator among the first steps, and its step."""
        steps = np.arange(min(self.last, 1000) + 1)
        high, low = self.values.at([int(step) for step in steps])
        computed = evaluate(self.graph, {"step": steps})["value"].astype(np.float64)
        errors = np.abs((computed - high) - low)
        worst = int(np.argmax(errors))
        return float(errors[worst]), worst


def bounded_graph(name: str, dtype: str) -> BoundedGraph:
    """Returns the graph of a schedule of the library, computed in this dtype."""
    schedule = SCHEDULES[name]()
    options = GraphOptions(dtype=dtype, scalar_dtype=dtype, step_shape=("n",))
    graph = compile_schedule(schedule, options)
    last = schedule.length if schedule.last_step is None else schedule.last_step
    end = STEPS if last is None else int(last)
    values = ExactValues(term(schedule.bound))
    return BoundedGraph(graph, end, bound_error(graph, 0, end, values.starts).absolute, values)


def run_gappa(text: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs Gappa on a file."""
    file = folder / "goal.g"
    file.write_text(text, encoding="utf-8")
    words = [*COMMAND, *options, str(file)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=600)

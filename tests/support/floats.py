"""Random formulas with exponentials, logarithms, powers and divisions, and their runs.

A formula is compiled; where its graph is proved finite it is run in onnxruntime at the first steps,
around powers of two and the changes of its conditions, at random steps and at the far end. A graph
that is refuted at a step is run there.
"""

import random
from dataclasses import dataclass, field

import numpy as np
import onnxruntime
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.errors import ClosedFormError
from closedform.exporters.onnx_model import serialize, to_model
from closedform.ir import Array, Graph
from closedform.ir.types import MAX_STEP
from closedform.language import Schedule, t
from closedform.options import GraphOptions
from closedform.verify.certificates.floats import schedule_floats


@dataclass(slots=True)
class Tally:
    """How many formulas were compiled, proved and refuted, and what was wrong."""

    compiled: int = 0
    refused: int = 0
    proved: int = 0
    refuted: int = 0
    unknown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def decided(self) -> int:
        return self.proved + self.refuted

    def __str__(self) -> str:
        share = 100 * self.decided / max(self.compiled, 1)
        lines = [
            f"{self.compiled} formulas: {self.proved} proved finite, {self.refuted} refuted, "
            f"{share:.1f} % decided; {self.refused} have no value at a step or no graph; "
            f"{len(self.wrong)} wrong"
        ]
        return "\n  ".join([*lines, *self.unknown[:20], *self.wrong[:20]])


def formula(draw: random.Random, depth: int) -> sp.Expr:
    """Returns a random formula in t."""
    if depth == 0 or draw.random() < 0.1:
        number = sp.Rational(draw.randint(1, 40), draw.choice([1, 1, 2, 3, 10, 100, 1000]))
        return draw.choice([t, t, t, number, t + number, number * t, t / 1000])
    inner = formula(draw, depth - 1)
    match draw.randrange(10):
        case 0:
            return sp.exp(draw.choice([1, -1]) * inner / draw.choice([1, 1, 10, 1000]))
        case 1:
            return sp.log(1 + inner)
        case 2:
            return inner ** draw.choice([2, 3, 5, 10, 40, -1, -2, sp.Rational(1, 2)])
        case 3:
            return inner / (draw.randint(1, 9) + formula(draw, depth - 1))
        case 4:
            return inner + formula(draw, depth - 1)
        case 5:
            return inner * formula(draw, depth - 1)
        case 6:
            return inner - formula(draw, depth - 1) / 10
        case 7:
            base = sp.Rational(draw.randint(1, 30), 10)
            return base ** draw.choice([t, t / 10, -t, inner])
        case 8:
            return sp.atan(draw.choice([1, 1, 10, 1000]) * inner)
        case _:
            mark = draw.choice([1, 5, 20, 100, 1000, 10**6])
            return sp.Piecewise((inner, t < mark), (formula(draw, depth - 1), True))


def steps_of(draw: random.Random) -> Array:
    """Returns steps at boundaries, at random, and at the far end."""
    near = {2**power + offset for power in range(51) for offset in (-1, 0, 1)}
    marks = {mark + offset for mark in (5, 20, 100, 1000, 10**6) for offset in (-1, 0, 1)}
    drawn = {draw.randrange(2 ** draw.randint(1, 50)) for _ in range(200)}
    chosen = {*range(200), *near, *marks, *drawn, *range(MAX_STEP - 5, MAX_STEP + 1)}
    return np.array(sorted(step for step in chosen if 0 <= step <= MAX_STEP), np.int64)


def run(graph: Graph, steps: Array) -> Array:
    """Returns the values of a graph in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        serialize(to_model(graph)), options, providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run(None, {"step": steps})[0])


def run_random(count: int, options: GraphOptions, *, seed: int) -> Tally:
    """Returns what became of so many random formulas."""
    tally = Tally()
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        expr = formula(draw, draw.randint(1, 4))
        try:
            schedule = Schedule(expr)
            graph = compile_schedule(schedule, options)
        except ClosedFormError:
            tally.refused += 1
            continue
        tally.compiled += 1
        found = schedule_floats(graph)
        where = f"{number}: {schedule.expr}: {found.verdict}"
        if found.verdict.unknown:
            tally.unknown.append(where)
            continue
        if found.verdict.refuted:
            tally.refuted += 1
            is_confirmed = found.check is not None and (
                found.check.value is None
                or not np.isfinite(run(graph, np.array([found.check.step]))).all()
            )
            tally.wrong += [] if is_confirmed else [where]
            continue
        tally.proved += 1
        steps = steps_of(draw)
        values = run(graph, steps)
        if not np.isfinite(values).all():
            tally.wrong.append(f"{where}: at {steps[~np.isfinite(values)][:3]}")
    return tally

"""The error of a schedule in one sentence, for the files that carry it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from closedform.compiler import compile_schedule
from closedform.ir.graph import Graph
from closedform.ir.ops import FUNCTIONS, OPS
from closedform.ir.types import LAST_STEP
from closedform.language.schedule import Schedule
from closedform.options import GraphOptions, Precision
from closedform.verify.certificates.certificate import certify
from closedform.verify.certificates.errors import bound_error
from closedform.verify.certificates.values import ExactValues
from closedform.verify.terms.sympy_io import term

_UNBOUNDED = 10**6
_COMPARED = 1000


def error_note(schedule: Schedule, options: GraphOptions, graph: Graph) -> str:
    """Returns how far the values of a graph are from the schedule, and how that is known.

    In single precision the bound is proved by error analysis, for every engine whose functions are
    as near as the op table says. Double-float arithmetic is exact where single operations are not,
    which that analysis does not see: its steps are compared with ball arithmetic, all of them where
    there are at most 1000.

    Args:
        schedule: The schedule.
        options: How it is compiled.
        graph: Its graph.
    """
    if schedule.open or options.inputs:
        return "No error is stated: it depends on hyperparameters that are inputs."
    last = int(schedule.length) if schedule.length is not None else _UNBOUNDED
    ends = [last, LAST_STEP[options.step_dtype], schedule.last_step]
    last = min(end for end in ends if end is not None)
    if options.precision is Precision.DOUBLE_FLOAT:
        count = min(last + 1, _COMPARED)
        steps = np.unique(np.linspace(0, last, count).astype(np.int64))
        of_steps = compile_schedule(schedule, replace(options, step_shape=("n",)))
        errors = certify(schedule, of_steps, steps).measured
        compared = "each step" if count == last + 1 else f"{len(steps):,} steps"
        return (
            f"Error: at most {errors.ulp.value:.4g} ulp of the value, {compared} of t = 0..{last} "
            "compared with ball arithmetic."
        )
    bound = bound_error(graph, 0, last, ExactValues(term(schedule.bound)).starts)
    if not np.isfinite(bound.absolute):
        return f"Error: no bound for t = 0..{last} is proved."
    relative = "" if bound.relative is None else f" ({bound.relative:.3g} of the value)"
    functions = [op for op in FUNCTIONS if any(node.op is op for node in graph.nodes)]
    names = " and ".join(functions)
    # The bound assumes each function within its own error, which the least of them implies.
    ulp = min((OPS[op].ulp for op in functions), default=0)
    proviso = f", provided that {names} is within {ulp:g} ulp" if functions else ""
    return (
        f"Error: at most {bound.absolute:.3g}{relative} for t = 0..{last}, proved by error "
        f"analysis{proviso}."
    )

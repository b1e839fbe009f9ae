"""The ten schedules of the feasibility study on numerics, and how they are computed in float32.

Peak 1/1000, end 1/100000; T is 10**6 where nothing else is said.
"""

from typing import Any

import numpy as np
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.ir.graph import Array, Graph
from closedform.ir.ops import Op
from closedform.language import Schedule, floor_div, t
from closedform.options import GraphOptions

T = 10**6
PEAK, END = sp.Rational(1, 1000), sp.Rational(1, 100_000)
FALL = PEAK - END
LAST = 2**31 - 1

STUDY: dict[str, Schedule] = {
    name: Schedule(expr, name=name)
    for name, expr in {
        "linear": END + FALL * sp.Max(T - t, 0) / T,
        "cosine_decay": END + FALL * (1 + sp.cos(sp.pi * sp.Min(t, T) / T)) / 2,
        "cosine_annealing": END + FALL * (1 + sp.cos(sp.pi * t / 1000)) / 2,
        "decay_096": PEAK * sp.Rational(24, 25) ** (t / sp.Integer(1000)),
        "decay_099999": PEAK * sp.Rational(99_999, 100_000) ** t,
        "inverse_sqrt": PEAK * sp.sqrt(4000) / sp.sqrt(sp.Max(t, 4000)),
        "polynomial_09": END + FALL * (1 - sp.Min(t, T) / T) ** sp.Rational(9, 10),
        "wsd_sqrt": sp.Piecewise(
            (PEAK * t / 10_000, t < 10_000),
            (PEAK, t < 810_000),
            (END + FALL * (1 - sp.sqrt((t - 810_000) / sp.Integer(190_000))), t < T),
            (END, True),
        ),
        "inverse_time": PEAK / (1 + t / sp.Integer(2000)),
        "step": PEAK * sp.Rational(1, 2) ** floor_div(t, 30_000),
    }.items()
}


def compile_double_float(schedule: Schedule, **options: Any) -> Graph:
    """The graph of float32 and integers alone that computes in pairs."""
    return compile_schedule(
        schedule,
        GraphOptions(
            step_shape=("n",), dtype="f32", scalar_dtype="f32", precision="double-float", **options
        ),
    )


def cost(graph: Graph) -> int:
    """The number of nodes that compute something."""
    return sum(1 for node in graph.nodes if node.op not in (Op.INPUT, Op.CONST))


def study_steps(last: int = LAST) -> Array:
    """The study's points up to ``last``: random ones, around 2**24, both ends, a stride."""
    rng = np.random.default_rng(0)
    points = [
        rng.integers(0, last, 20_000),
        2**24 + np.arange(-50, 50),
        last - np.arange(100),
        np.arange(1000, last, 10**6 + 7),
        np.arange(2000),
    ]
    chosen = np.unique(np.concatenate(points))
    return chosen[chosen <= last]

"""An example of each schedule: for pages, and for whoever wants to see one.

A new schedule has one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import sympy as sp

from closedform import schedules
from closedform.language import Schedule, UpdateRule


@dataclass(frozen=True, slots=True)
class Example:
    """One call of a schedule of the library.

    Attributes:
        call: As it is printed.
        make: Makes it.
        steps: The last step worth drawing.
    """

    call: str
    make: Callable[[], Schedule | UpdateRule]
    steps: int


RISE = schedules.linear(0, 1, 20)
FALL = schedules.cosine(1, 0.1, 80)

EXAMPLES: Mapping[str, Example] = {
    "constant": Example("constant(0.1)", lambda: schedules.constant(0.1), 100),
    "linear": Example("linear(1, 0, 100)", lambda: schedules.linear(1, 0, 100), 120),
    "polynomial": Example(
        "polynomial(1, 0.1, 100, power=2)",
        lambda: schedules.polynomial(1, 0.1, 100, power=2),
        120,
    ),
    "cosine": Example("cosine(1, 0.1, 100)", lambda: schedules.cosine(1, 0.1, 100), 120),
    "cosine_annealing": Example(
        "cosine_annealing(1, 0.1, 50)",
        lambda: schedules.cosine_annealing(1, 0.1, 50),
        200,
    ),
    "cosine_k_decay": Example(
        "cosine_k_decay(1, 0.1, 100, k=2, warmup=15, cooldown=10)",
        lambda: schedules.cosine_k_decay(1, 0.1, 100, k=2, warmup=15, cooldown=10),
        110,
    ),
    "cosine_with_min": Example(
        "cosine_with_min(1, 0.2, 100, cycles=2.5)",
        lambda: schedules.cosine_with_min(1, 0.2, 100, cycles=2.5),
        120,
    ),
    "cosine_hard_restarts": Example(
        "cosine_hard_restarts(1, 0, 100, cycles=4)",
        lambda: schedules.cosine_hard_restarts(1, 0, 100, cycles=4),
        120,
    ),
    "flat_cosine": Example(
        "flat_cosine(1, 0, 100, flat=70)",
        lambda: schedules.flat_cosine(1, 0, 100, flat=70),
        120,
    ),
    "warm_restarts": Example(
        "warm_restarts(1, 0.1, 20, multiplier=2, restarts=2)",
        lambda: schedules.warm_restarts(1, 0.1, 20, multiplier=2, restarts=2),
        160,
    ),
    "cyclic": Example(
        'cyclic(0.1, 1, 20, 30, mode="triangular2")',
        lambda: schedules.cyclic(0.1, 1, 20, 30, mode="triangular2"),
        200,
    ),
    "one_cycle": Example(
        "one_cycle(0.04, 1, 0, 100)",
        lambda: schedules.one_cycle(0.04, 1, 0, 100),
        110,
    ),
    "one_cycle_momentum": Example(
        "one_cycle_momentum(0.95, 0.85, 100)",
        lambda: schedules.one_cycle_momentum(0.95, 0.85, 100),
        110,
    ),
    "exponential": Example(
        "exponential(1, 0.5, 30, staircase=True)",
        lambda: schedules.exponential(1, 0.5, 30, staircase=True),
        150,
    ),
    "multiplicative": Example(
        "multiplicative(1, 0.97)",
        lambda: schedules.multiplicative(1, 0.97),
        150,
    ),
    "step_decay": Example(
        "step_decay(1, 0.5, 30)",
        lambda: schedules.step_decay(1, 0.5, 30),
        150,
    ),
    "multi_step": Example(
        "multi_step(1, 0.3, [50, 80, 90])",
        lambda: schedules.multi_step(1, 0.3, [50, 80, 90]),
        120,
    ),
    "piecewise_constant": Example(
        "piecewise_constant([0.2, 1, 0.5, 0.1], [10, 50, 80])",
        lambda: schedules.piecewise_constant([0.2, 1, 0.5, 0.1], [10, 50, 80]),
        110,
    ),
    "inverse_time": Example(
        "inverse_time(1, 1, 20)",
        lambda: schedules.inverse_time(1, 1, 20),
        200,
    ),
    "inverse_square_root": Example(
        "inverse_square_root(1, scale=5, warmup=25)",
        lambda: schedules.inverse_square_root(1, scale=5, warmup=25),
        250,
    ),
    "noam": Example("noam(512, 40)", lambda: schedules.noam(512, 40), 300),
    "power": Example("power(1, -0.7, warmup=20)", lambda: schedules.power(1, -0.7, warmup=20), 200),
    "rex": Example("rex(1, 0, 100)", lambda: schedules.rex(1, 0, 100), 120),
    "tanh_decay": Example("tanh_decay(1, 0, 100)", lambda: schedules.tanh_decay(1, 0, 100), 120),
    "hyperbolic": Example(
        "hyperbolic(1, 0, 100, bound=120)",
        lambda: schedules.hyperbolic(1, 0, 100, bound=120),
        120,
    ),
    "slanted_triangular": Example(
        "slanted_triangular(1, 100)",
        lambda: schedules.slanted_triangular(1, 100),
        120,
    ),
    "trapezoidal": Example(
        "trapezoidal(1, 0, 100, warmup=10, decay=30)",
        lambda: schedules.trapezoidal(1, 0, 100, warmup=10, decay=30),
        120,
    ),
    "wsd": Example(
        'wsd(1, 0, 100, warmup=10, decay=30, shape="sqrt")',
        lambda: schedules.wsd(1, 0, 100, warmup=10, decay=30, shape="sqrt"),
        120,
    ),
    "wsd_checkpoints": Example(
        "wsd_checkpoints(1, 0.1, 200, warmup=10, ratio=0.3, checkpoints=3)",
        lambda: schedules.wsd_checkpoints(1, 0.1, 200, warmup=10, ratio=0.3, checkpoints=3),
        220,
    ),
    "function": Example(
        "function(lambda t: 1 + sp.sin(t / 10) / (1 + t / 20))",
        lambda: schedules.function(lambda t: 1 + sp.sin(t / 10) / (1 + t / 20)),
        200,
    ),
    "table": Example(
        "table([0.1, 0.5, 1, 0.9, 0.6, 0.6, 0.3, 0.2])",
        lambda: schedules.table([0.1, 0.5, 1, 0.9, 0.6, 0.6, 0.3, 0.2]),
        12,
    ),
    "sequential": Example(
        "sequential([linear(0, 1, 20), cosine(1, 0.1, 80)])",
        lambda: schedules.sequential([RISE, FALL]),
        120,
    ),
    "chained": Example(
        "chained([cosine(1, 0.1, 80), step_decay(1, 0.7, 20)])",
        lambda: schedules.chained([FALL, schedules.step_decay(1, 0.7, 20)]),
        120,
    ),
    "repeat": Example(
        "repeat(linear(1, 0.2, 30))", lambda: schedules.linear(1, 0.2, 30).repeat(), 120
    ),
    "scale": Example("scale(linear(0, 1, 20), 0.5)", lambda: schedules.scale(RISE, 0.5), 30),
    "splice": Example(
        "splice(linear(1, 0, 100), 60, linear(1, 0, 150))",
        lambda: schedules.splice(schedules.linear(1, 0, 100), 60, schedules.linear(1, 0, 150)),
        170,
    ),
    "reduce_on_plateau": Example(
        "reduce_on_plateau(factor=0.5, patience=5, cooldown=5)",
        lambda: schedules.reduce_on_plateau(factor=0.5, patience=5, cooldown=5),
        120,
    ),
}
"""One example of each schedule, by its name: ``tests/test_library.py`` holds it complete."""

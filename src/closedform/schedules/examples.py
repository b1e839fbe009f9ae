"""An example of each schedule of the library: for the gallery, docs and tests.

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


def _example(steps: int, name: str, *args: object, **kwargs: object) -> tuple[str, Example]:
    """The row of a call with plain arguments."""
    arguments = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    call = f"{name}({', '.join(arguments)})".replace("'", '"')
    return name, Example(call, lambda: getattr(schedules, name)(*args, **kwargs), steps)


RISE = schedules.linear(0, 1, 20)
FALL = schedules.cosine(1, 0.1, 80)

EXAMPLES: Mapping[str, Example] = dict(
    (
        _example(100, "constant", 0.1),
        _example(120, "linear", 1, 0, 100),
        _example(120, "log_warmup", 0, 1, 100),
        _example(120, "quadratic_warmup", 0, 1, 100),
        _example(120, "polynomial", 1, 0.1, 100, power=2),
        _example(120, "fsl", 1, 100, beta=1.2),
        _example(120, "cosine", 1, 0.1, 100),
        _example(120, "half_cosine", 1, 0.1, 100),
        _example(120, "cosine_linear_envelope", 1, 0.1, 100),
        _example(120, "cosine_linear_tail", 1, 0.2, 100, tail=30),
        _example(120, "cosine_constant_tail", 1, 0.2, 100, tail=30),
        _example(200, "cosine_annealing", 1, 0.1, 50),
        _example(110, "cosine_k_decay", 1, 0.1, 100, k=2, warmup=15, cooldown=10),
        _example(120, "cosine_with_min", 1, 0.2, 100, cycles=2.5),
        _example(120, "cosine_hard_restarts", 1, 0, 100, cycles=4),
        _example(120, "flat_cosine", 1, 0, 100, flat=70),
        _example(160, "warm_restarts", 1, 0.1, 20, multiplier=2, restarts=2),
        (
            "jagged_restarts",
            Example(
                "jagged_restarts(cosine(1, 0.1, 80), 30, warmup=8, anneal=3)",
                lambda: schedules.jagged_restarts(FALL, 30, warmup=8, anneal=3),
                120,
            ),
        ),
        _example(200, "cyclic", 0.1, 1, 20, 30, mode="triangular2"),
        _example(110, "one_cycle", 0.04, 1, 0, 100),
        _example(110, "one_cycle_momentum", 0.95, 0.85, 100),
        _example(150, "exponential", 1, 0.5, 30, staircase=True),
        _example(150, "multiplicative", 1, 0.97),
        _example(120, "geometric", 0.01, 1, 100),
        _example(120, "range_test", 0.1, 1, 20, staircase=True),
        _example(150, "step_decay", 1, 0.5, 30),
        _example(120, "multi_step", 1, 0.3, [50, 80, 90]),
        _example(110, "piecewise_constant", [0.2, 1, 0.5, 0.1], [10, 50, 80]),
        _example(200, "inverse_time", 1, 1, 20),
        _example(250, "inverse_square_root", 1, scale=5, warmup=25),
        _example(
            220, "inverse_square_root_cooldown", 1, 200, 40, warmup=20, cooldown=40, floor=0.1
        ),
        _example(300, "noam", 512, 40),
        _example(200, "power", 1, -0.7, warmup=20),
        _example(220, "power_with_tail", 1, -0.5, 200, warmup=20, tail=40),
        _example(120, "rex", 1, 0, 100),
        _example(120, "tanh_decay", 1, 0, 100),
        _example(120, "hyperbolic", 1, 0, 100, bound=120),
        _example(120, "slanted_triangular", 1, 100),
        _example(120, "trapezoidal", 1, 0, 100, warmup=10, decay=30),
        _example(120, "tri_stage", 1, 0.05, warmup=10, hold=30, decay=60, warmup_start=0.01),
        _example(120, "wsd", 1, 0, 100, warmup=10, decay=30, shape="sqrt"),
        _example(220, "wsd_checkpoints", 1, 0.1, 200, warmup=10, ratio=0.3, checkpoints=3),
        (
            "function",
            Example(
                "function(lambda t: 1 + sp.sin(t / 10) / (1 + t / 20))",
                lambda: schedules.function(lambda t: 1 + sp.sin(t / 10) / (1 + t / 20)),
                200,
            ),
        ),
        _example(12, "table", [0.1, 0.5, 1, 0.9, 0.6, 0.6, 0.3, 0.2]),
        _example(12, "refined", [4, 2, 1, 1, 1, 1.2, 1.5, 2], smoothing=0.4),
        _example(120, "stages", 0, [(1, 15), (1, 35), (0.4, 20, "cosine"), (0, 30)]),
        (
            "sequential",
            Example(
                "sequential([linear(0, 1, 20), cosine(1, 0.1, 80)])",
                lambda: schedules.sequential([RISE, FALL]),
                120,
            ),
        ),
        (
            "chained",
            Example(
                "chained([cosine(1, 0.1, 80), step_decay(1, 0.7, 20)])",
                lambda: schedules.chained([FALL, schedules.step_decay(1, 0.7, 20)]),
                120,
            ),
        ),
        (
            "repeat",
            Example(
                "repeat(linear(1, 0.2, 30))", lambda: schedules.linear(1, 0.2, 30).repeat(), 120
            ),
        ),
        ("scale", Example("scale(linear(0, 1, 20), 0.5)", lambda: schedules.scale(RISE, 0.5), 30)),
        (
            "product",
            Example(
                "product([linear(0, 1, 20), cosine(1, 0.1, 80)])",
                lambda: schedules.product([RISE, FALL]),
                120,
            ),
        ),
        (
            "maximum",
            Example(
                "maximum([cosine(1, 0.1, 80), constant(0.4)])",
                lambda: schedules.maximum([FALL, schedules.constant(0.4)]),
                120,
            ),
        ),
        (
            "splice",
            Example(
                "splice(linear(1, 0, 100), 60, linear(1, 0, 150))",
                lambda: schedules.splice(
                    schedules.linear(1, 0, 100), 60, schedules.linear(1, 0, 150)
                ),
                170,
            ),
        ),
        _example(120, "reduce_on_plateau", factor=0.5, patience=5, cooldown=5),
    )
)
"""One example of each schedule, by its name: ``tests/test_library.py`` holds it complete."""

"""The learning rate of T5X: ``create_learning_rate_scheduler``, a product of named factors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import UnknownNameError, nearest
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals
from closedform.recipes.native import number, refuse_unless

Arguments = Mapping[str, sp.Expr]


def _warmup(given: Arguments, n: sp.Expr) -> sp.Expr:
    return sp.Min(1, n / given["warmup_steps"])


def _linear_decay(given: Arguments, n: sp.Expr) -> sp.Expr:
    fall = 1 + given["decay_factor"] * (given["warmup_steps"] - n)
    return given["base_learning_rate"] * sp.Min(n / given["warmup_steps"], fall)


def _cosine(given: Arguments, n: sp.Expr) -> sp.Expr:
    done = sp.Max(0, n - given["warmup_steps"])
    part = floor_mod(done, given["steps_per_cycle"]) / given["steps_per_cycle"]
    return (1 + sp.cos(sp.pi * part)) / 2


_FACTORS: Mapping[str, Callable[[Arguments, sp.Expr], sp.Expr]] = {
    "constant": lambda given, n: given["base_learning_rate"],
    "linear_warmup": _warmup,
    "linear_decay": _linear_decay,
    "rsqrt_decay": lambda given, n: 1 / sp.sqrt(sp.Max(n, given["warmup_steps"])),
    "rsqrt_normalized_decay": lambda given, n: (
        sp.sqrt(given["warmup_steps"]) / sp.sqrt(sp.Max(n, given["warmup_steps"]))
    ),
    "decay_every": lambda given, n: given["decay_factor"] ** floor_div(n, given["steps_per_decay"]),
    "cosine_decay": _cosine,
}


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    values = {key: number(value, key, where) for key, value in given.items() if key != "factors"}
    names = [name.strip() for name in str(given["factors"]).split("*")]
    unknown = [name for name in names if name not in _FACTORS]
    if unknown:
        raise UnknownNameError(
            f"there is no factor {unknown[0]!r}", where=where, hint=nearest(unknown[0], _FACTORS)
        )
    refuse_unless(
        values["warmup_steps"] > 0 or names == ["constant"],
        "warmup_steps is 0: the rate of update 0 is not a number",
        where,
    )
    offset = values["step_offset"]
    n = sp.Max(0, t - offset) if offset > 0 else t - offset
    rate = sp.Mul(*(_FACTORS[name](values, n) for name in names))
    return by_intervals(context.path[-1], (lambda: sp.Max(rate, values["min_learning_rate"]), None))


_PARAMETERS = parameters(
    factors="constant * linear_warmup * rsqrt_decay",
    base_learning_rate=0.5,
    warmup_steps=1000,
    decay_factor=0.5,
    steps_per_decay=20000,
    steps_per_cycle=100000,
    step_offset=0,
    min_learning_rate=1e-8,
)
NAME = "create_learning_rate_scheduler"
SCHEDULES = {
    NAME: ScheduleEntry(
        NAME,
        (),
        _PARAMETERS,
        _build,
        notes=(
            "at least min_learning_rate, 1e-8 by default, in the warmup as well",
            "a warmup of 0 updates gives a value that is not a number",
        ),
    )
}

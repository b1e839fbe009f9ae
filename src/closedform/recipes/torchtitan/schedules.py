"""The learning rate of torchtitan: warmup, stable phase, decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, t
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.intervals import UndefinedError, by_intervals, power_quotient, quotient
from closedform.recipes.native import check_name, exact, fact, group_rate, number
from closedform.schedules.blends import along_cosine, along_line

_DECAYS: Mapping[str, Callable[[sp.Expr, sp.Expr], sp.Expr]] = {
    "linear": lambda done, length: 1 - quotient(done, length),
    "sqrt": lambda done, length: 1 - power_quotient(done, length, sp.S.Half),
    "cosine": lambda done, length: along_cosine(sp.S.One, sp.S.Zero, quotient(done, length)),
}


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    check_name(context.path[-1], f"lr_scheduler-{given['decay_type']}", "decay_type", where)
    total = given["total_steps"]
    total = int(fact(context, "training_steps") if total is None else total)
    number(given["warmup_steps"], "warmup_steps", where)
    warmup = int(given["warmup_steps"])
    if warmup < 0 or total <= 0:
        raise DefinitionError(
            f"warmup_steps must be at least 0 and the run above 0, got {warmup} and {total}",
            where=where,
        )
    warmup = min(warmup, total)
    length = total - warmup
    if given["decay_ratio"] is not None:
        number(given["decay_ratio"], "decay_ratio", where)
        # Python's round goes half to even, on the product in floats.
        length = min(round(total * given["decay_ratio"]), length)
    rate = group_rate(context, fact(context, "optimizer_lr"))
    low = number(given["min_lr_factor"], "min_lr_factor", where)

    def fall() -> sp.Expr:
        if length == 0:
            raise UndefinedError("AssertionError: decay_steps is 0")
        done = t - total + length
        shape = _DECAYS[given["decay_type"]](done, exact(length))
        return rate * along_line(low, sp.S.One, shape)

    return by_intervals(
        context.path[-1],
        (lambda: rate * (t + 1) / warmup, warmup),
        (lambda: rate, total + 1 - length),
        (fall, None),
    )


_PARAMETERS = parameters(
    warmup_steps=200, decay_ratio=None, decay_type="linear", min_lr_factor=0.0, total_steps=None
)
_NOTES = (
    "the last update of the run stops one step short of the minimum",
    "a decay over 0 updates raises AssertionError in the second update after the run",
)
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES)
    for name in (f"lr_scheduler-{decay}" for decay in _DECAYS)
}

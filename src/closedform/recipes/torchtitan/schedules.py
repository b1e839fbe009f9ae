"""The learning rate of torchtitan: warmup, stable phase, decay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


VERSIONS = ("b5bcd76c6", "f7084fc78", "3b85aa31f", "0da8901b1", "e846b6946", "1ec2ece51")
"""The commits whose formulas are known: the first two, and the last two, have the same one."""

_EARLY = ("3b85aa31f", "0da8901b1")
_FIRST = ("e846b6946", "1ec2ece51")


@dataclass(frozen=True, slots=True)
class _Phases:
    """The updates of the warmup, before the decay, and of the decay."""

    warmup: int
    begin: int
    decay: int


def _phases(given: Mapping[str, Any], context: Context) -> _Phases:
    where = context.where
    total = given["total_steps"]
    total = int(fact(context, "training_steps") if total is None else total)
    number(given["warmup_steps"], "warmup_steps", where)
    warmup = int(given["warmup_steps"])
    if warmup < 0 or total <= 0:
        raise DefinitionError(
            f"warmup_steps must be at least 0 and the run above 0, got {warmup} and {total}",
            where=where,
        )
    if context.version in _FIRST:
        return _Phases(warmup, warmup, max(1, total - warmup))
    is_early = context.version in _EARLY
    warmup = warmup if is_early else min(warmup, total)
    decay = total - warmup
    if given["decay_ratio"] is not None:
        number(given["decay_ratio"], "decay_ratio", where)
        # Python's round goes half to even, on the product in floats.
        decay = min(round(total * given["decay_ratio"]), decay)
    if decay < 0:
        raise DefinitionError(
            f"the run of {total} updates must be longer than warmup_steps {warmup}", where=where
        )
    return _Phases(warmup, total - decay if is_early else total + 1 - decay, decay)


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where, kind = context.where, given["decay_type"]
    check_name(context.path[-1], f"lr_scheduler-{kind}", "decay_type", where)
    phases = _phases(given, context)
    rate = group_rate(context, fact(context, "optimizer_lr"))
    low = number(given["min_lr_factor"], "min_lr_factor", where)
    done, length, rise = _counts(phases, context.version)

    def fall() -> sp.Expr:
        if length == 0:
            raise UndefinedError("AssertionError: decay_steps is 0")
        return rate * along_line(low, sp.S.One, _DECAYS[kind](done, exact(length)))

    return by_intervals(
        context.path[-1],
        (lambda: rate * (t + 1) / rise, phases.warmup),
        (lambda: rate, phases.begin),
        (fall, None),
    )


def _counts(phases: _Phases, version: str) -> tuple[sp.Expr, int, int]:
    """The updates of the decay that are done, its divisor, and that of the warmup."""
    after = t - phases.begin
    if version in _FIRST or version == "0da8901b1":
        return after, phases.decay, phases.warmup + 1
    if version in _EARLY:
        return after + 1, phases.decay + 1, phases.warmup + 1
    return after + 1, phases.decay, phases.warmup


_PARAMETERS = parameters(
    warmup_steps=200, decay_ratio=None, decay_type="linear", min_lr_factor=0.0, total_steps=None
)
_NOTES = (
    "the last update of the run stops one step short of the minimum",
    "a decay over 0 updates raises AssertionError in the second update after the run",
    "until June 2025, the divisors of warmup and decay were one update longer, and the peak was "
    "reached only in a stable phase",
)
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES)
    for name in (f"lr_scheduler-{decay}" for decay in _DECAYS)
}

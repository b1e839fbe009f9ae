"""The schedulers of OLMo, from its sections ``optimizer`` and ``scheduler``.

The clock counts the update itself: n = t + 1 updates, or as many tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import UndefinedError, by_intervals, first_from, quotient
from closedform.recipes.native import (
    check_name,
    entry,
    exact,
    fact,
    number,
    options,
    refuse_unless,
)
from closedform.recipes.olmo_core.counting import counting
from closedform.schedules.blends import along_cosine, along_envelope, along_line

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """The numbers of a schedule, lengths in the unit of the clock.

    Attributes:
        peak: The rate of the optimizer.
        end: The last rate.
        first: The rate at the start of the warmup.
        warmup: The length of the warmup.
        total: The horizon.
        per_update: How much an update adds.
    """

    peak: sp.Expr
    end: sp.Expr
    first: sp.Expr
    warmup: sp.Expr
    total: sp.Expr
    per_update: sp.Expr

    def end_of(self, mark: sp.Expr) -> int:
        """The first update whose n is at least ``mark``."""
        return first_from(mark / self.per_update - 1)


Stage = tuple[Callable[[sp.Expr], sp.Expr], sp.Expr | None]
"""From n to the rate, and the n at which the next stage begins; None for the last."""


def _warm(plan: Plan) -> Stage:
    def rise(n: sp.Expr) -> sp.Expr:
        if not 0 <= plan.first < plan.peak:
            raise UndefinedError("AssertionError: warmup_min_lr must be in [0, learning_rate)")
        return along_line(plan.first, plan.peak, n / plan.warmup)

    return rise, plan.warmup


def _falling(plan: Plan, fall: Callable[[sp.Expr], sp.Expr]) -> tuple[Stage, ...]:
    def value(n: sp.Expr) -> sp.Expr:
        return fall(quotient(n - plan.warmup, plan.total - plan.warmup))

    return _warm(plan), (value, plan.total), (lambda n: plan.end, None)


def _cosine(plan: Plan) -> tuple[Stage, ...]:
    return _falling(plan, lambda done: along_cosine(plan.peak, plan.end, done))


def _linear(plan: Plan) -> tuple[Stage, ...]:
    return _falling(plan, lambda done: along_line(plan.peak, plan.end, done))


def _envelope(plan: Plan) -> tuple[Stage, ...]:
    return _falling(plan, lambda done: along_envelope(plan.peak, plan.end, done))


def _inverse_root(plan: Plan) -> tuple[Stage, ...]:
    def fall(n: sp.Expr) -> sp.Expr:
        return plan.peak * sp.sqrt(plan.warmup) / sp.sqrt(sp.Max(plan.warmup, n))

    return _warm(plan), (fall, None)


def _largest(plan: Plan) -> tuple[Stage, ...]:
    """The larger one of the cosine and the inverse root."""
    _, (root, _) = _inverse_root(plan)
    warm, (wave, mark), (last, _) = _cosine(plan)
    return (
        warm,
        (lambda n: sp.Max(wave(n), root(n)), mark),
        (lambda n: sp.Max(last(n), root(n)), None),
    )


def _constant(plan: Plan) -> tuple[Stage, ...]:
    return ((lambda n: plan.peak, None),)


def _constant_warmed(plan: Plan) -> tuple[Stage, ...]:
    return _warm(plan), (lambda n: plan.peak, None)


_CURVES: Mapping[str, Callable[[Plan], tuple[Stage, ...]]] = {
    "cosine_with_warmup": _cosine,
    "linear_with_warmup": _linear,
    "inverse_sqrt_with_warmup": _inverse_root,
    "max_scheduler": _largest,
    "constant": _constant,
    "cosine_linear_envelope": _envelope,
    "constant_with_warmup": _constant_warmed,
}


def _horizon(duration: object, unit: object, context: Context) -> int:
    """The length of the run in the unit of the scheduler, from an int, "…T" or "…ep"."""
    tokens: int = fact(context, "tokens_per_batch")
    if isinstance(duration, str):
        text = duration.strip()
        try:
            if text.endswith("T"):
                count = int(float(text[:-1]))
                return count if unit == "tokens" else count // tokens
            if text.endswith("ep"):
                updates: int = int(text[:-2]) * fact(context, "batches_per_epoch")
            else:
                updates = int(float(text))
        except (ValueError, OverflowError) as error:
            raise DefinitionError(
                f"max_duration must be a number, or one with T or ep, got {duration!r}",
                where=context.where,
            ) from error
    else:
        updates = int(number(duration, "max_duration", context.where))
    length: int = updates * tokens if unit == "tokens" else updates
    return length


def _plan(given: Arguments, section: Arguments, context: Context) -> Plan:
    where, unit = context.where, section["units"]
    clock = counting(unit, context)
    peak = number(entry(given["optimizer"], "learning_rate", where), "learning_rate", where)
    first, most = section["warmup_min_lr"], section["t_max"]
    return Plan(
        peak,
        peak * number(section["alpha_f"], "alpha_f", where),
        peak / 10 if first is None else number(first, "warmup_min_lr", where),
        number(section["t_warmup"], "t_warmup", where),
        exact(_horizon(given["max_duration"], unit, context))
        if most is None
        else number(most, "t_max", where),
        clock.per_update,
    )


def _build(given: Arguments, context: Context) -> Schedule:
    where, name = context.where, context.path[-1]
    section = options(given["scheduler"], where, SECTION)
    kind = section["name"]
    if name != "bolt_on_warmup":
        check_name(name, kind, "scheduler.name", where)
    refuse_unless(kind in _CURVES, f"there is no scheduler {kind!r}", where)
    plan = _plan(given, section, context)
    n = (t + 1) * plan.per_update
    stages: tuple[Stage, ...] = _CURVES[kind](plan)
    if name == "bolt_on_warmup":
        stages = _bolted(stages, context)
    return by_intervals(
        name,
        *(
            (lambda value=value: value(n), None if mark is None else plan.end_of(mark))
            for value, mark in stages
        ),
    )


def _bolted(stages: tuple[Stage, ...], context: Context) -> tuple[Stage, ...]:
    """A warmup from 0 to where the inner schedule is at its end; 0 before its start."""
    bolt = fact(context, "bolt_on_warmup")
    start, end = exact(bolt["warmup_start"]), exact(bolt["warmup_end"])
    refuse_unless(
        start <= end,
        f"warmup_end must not be before warmup_start {start}, got {end}",
        context.where,
    )
    inner = next(value for value, mark in stages if mark is None or end < mark)
    arrival = inner(end)
    rise: Stage = (lambda n: arrival * (n - start) / (end - start), end)
    return (lambda n: sp.S.Zero, start), *([rise] if start < end else []), *stages


SECTION = {
    "name": REQUIRED,
    "units": "steps",
    "t_warmup": 100,
    "t_max": None,
    "alpha_f": 0.1,
    "warmup_min_lr": None,
}
"""The keys of ``scheduler``, with their defaults."""
_PARAMETERS = parameters(optimizer=REQUIRED, scheduler=REQUIRED, max_duration=REQUIRED)
_NOTES = (
    "the warmup begins at a tenth of the rate",
    "a warmup past the end of the run rises beyond it, and the rate falls at once",
    "inverse_sqrt_with_warmup without a warmup is 0 for ever",
)
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES)
    for name in (*_CURVES, "bolt_on_warmup")
}

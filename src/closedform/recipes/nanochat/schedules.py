"""The schedules of nanochat: learning rate multiplier, momentum of Muon, weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, first_after, first_from, quotient
from closedform.recipes.native import exact, fact, number
from closedform.schedules.blends import along_cosine, along_line

_RAMP = 400
_MOMENTUM = tuple(sp.Rational(hundredths, 100) for hundredths in (85, 97, 90))


def _warmdown(given: Mapping[str, Any], context: Context) -> tuple[sp.Expr, sp.Expr]:
    """The length of the run and of its warmdown."""
    total = fact(context, "num_iterations")
    number(given["warmdown_ratio"], "warmdown_ratio", context.where)
    return exact(total), exact(round(given["warmdown_ratio"] * total))


def _multiplier(given: Mapping[str, Any], context: Context) -> Schedule:
    warmup = number(given["warmup_steps"], "warmup_steps", context.where)
    last = number(given["final_lr_frac"], "final_lr_frac", context.where)
    total, length = _warmdown(given, context)
    return by_intervals(
        "get_lr_multiplier",
        (lambda: (t + 1) / warmup, first_from(warmup)),
        (lambda: sp.S.One, first_after(total - length)),
        (lambda: along_line(last, sp.S.One, quotient(total - t, length)), None),
    )


def _momentum(given: Mapping[str, Any], context: Context) -> Schedule:
    total, length = _warmdown(given, context)
    low, high, last = _MOMENTUM
    return by_intervals(
        "get_muon_momentum",
        (lambda: along_line(low, high, t / sp.Integer(_RAMP)), _RAMP),
        (lambda: high, first_from(total - length)),
        (lambda: along_line(high, last, quotient(t - total + length, length)), None),
    )


def _weight_decay(given: Mapping[str, Any], context: Context) -> Schedule:
    total, _ = _warmdown(given, context)
    first = exact(fact(context, "weight_decay_scaled"))
    return by_intervals(
        "get_weight_decay", (lambda: along_cosine(first, sp.S.Zero, t / total), None)
    )


_PARAMETERS = parameters(warmup_steps=REQUIRED, warmdown_ratio=REQUIRED, final_lr_frac=REQUIRED)
SCHEDULES = {
    entry.name: entry
    for entry in (
        ScheduleEntry("get_lr_multiplier", (), _PARAMETERS, _multiplier),
        ScheduleEntry(
            "get_muon_momentum",
            (),
            _PARAMETERS,
            _momentum,
            notes=("a run of at most 400 updates never begins the fall of the momentum",),
        ),
        ScheduleEntry("get_weight_decay", (), _PARAMETERS, _weight_decay),
    )
}

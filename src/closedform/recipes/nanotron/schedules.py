"""The learning rate of nanotron, from its sections ``learning_rate_scheduler`` and ``tokens``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, power_quotient
from closedform.recipes.native import (
    check_name,
    count,
    entry,
    exact,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine, along_line

Decay = Callable[[sp.Expr, sp.Expr, sp.Expr, sp.Expr], sp.Expr]
"""From the first and last rate, the updates done and their number to the rate."""

_DECAYS: Mapping[str, Decay] = {
    "linear": lambda first, last, done, length: along_line(first, last, done / length),
    "cosine": lambda first, last, done, length: along_cosine(first, last, done / length),
    "1-sqrt": lambda first, last, done, length: along_line(
        first, last, power_quotient(done, length, sp.S.Half)
    ),
}
SECTION = {
    "learning_rate": REQUIRED,
    "lr_warmup_steps": 0,
    "lr_warmup_style": None,
    "lr_decay_style": "linear",
    "lr_decay_steps": None,
    "lr_decay_starting_step": None,
    "min_decay_lr": None,
}
"""The keys of ``learning_rate_scheduler``, with their defaults."""


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    section = options(given["learning_rate_scheduler"], where, SECTION)
    style, kind = section["lr_warmup_style"], section["lr_decay_style"]
    check_name(context.path[-1], kind, "lr_decay_style", where)
    refuse_unless(
        style in ("linear", "constant"),
        f"lr_warmup_style must be linear or constant, got {style!r}",
        where,
    )
    peak = number(section["learning_rate"], "learning_rate", where)
    least = section["min_decay_lr"]
    low = peak if least is None else number(least, "min_decay_lr", where)
    warmup = count(section["lr_warmup_steps"], "lr_warmup_steps", where)
    length, begin = section["lr_decay_steps"], section["lr_decay_starting_step"]
    if length is None:
        length = count(entry(given["tokens"], "train_steps", where), "train_steps", where) - warmup
    begin = warmup if begin is None else begin
    length = count(length, "lr_decay_steps", where)
    begin = count(begin, "lr_decay_starting_step", where)
    rates = context.facts.get("group_learning_rates")
    rate = peak if rates is None else exact(rates[context.facts.get("group_index", 0)])
    if warmup == 0 and length == 0:
        # The function returns the rate, where it should return a factor of it.
        return by_intervals(kind, (lambda: rate * rate, None))
    rise = peak if style == "constant" else rate * t / max(warmup, 1)
    return by_intervals(
        kind,
        (lambda: rise, warmup + 1),
        (lambda: rate, begin),
        (lambda: _DECAYS[kind](rate, low, t - begin, sp.Integer(length)), begin + length),
        (lambda: low, None),
    )


_PARAMETERS = parameters(learning_rate_scheduler=REQUIRED, tokens=REQUIRED)
_NOTES = (
    "a decay with a later start is not shortened: its end is not reached in the run",
    "without min_decay_lr there is no decay",
    "without a warmup and a decay, the rate is squared",
    "min_decay_lr, and the rate of a constant warmup, are the same for every group",
)
SCHEDULES = {name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES) for name in _DECAYS}

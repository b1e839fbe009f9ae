"""The learning rate of MaxText: linear warmup, then a cosine or a stable phase and a decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals
from closedform.recipes.native import check_name, count, fact, number, refuse_unless
from closedform.schedules.blends import along_cosine, along_line


def _cosine(peak: sp.Expr, low: sp.Expr, done: sp.Expr, length: int) -> sp.Expr:
    """The cosine whose last update has the final rate; of one update, only that."""
    return along_cosine(peak, low, done / (length - 1)) if length > 1 else low


def _line(peak: sp.Expr, low: sp.Expr, done: sp.Expr, length: int) -> sp.Expr:
    """The line whose last update has the final rate; of one update, the first rate."""
    if length <= 1:
        return peak
    return along_line(peak, low, sp.Min(1, done / (length - 1)))


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    kind, style = given["lr_schedule_type"], given["wsd_decay_style"]
    named = f"wsd-{style}" if kind == "wsd" else kind
    check_name(context.path[-1], named, "lr_schedule_type", where)
    peak = number(given["learning_rate"], "learning_rate", where)
    low = peak * number(
        given["learning_rate_final_fraction"], "learning_rate_final_fraction", where
    )
    steps = fact(context, "steps", "total_updates") if given["steps"] is None else given["steps"]
    run = count(steps, "steps", where)
    total = count(given["learning_rate_schedule_steps"], "learning_rate_schedule_steps", where)
    total = run if total == -1 else total
    part = given["warmup_steps_fraction"]
    number(part, "warmup_steps_fraction", where)
    warmup, last = int(total * part), 0
    if kind == "wsd":
        tail = given["wsd_decay_steps_fraction"]
        number(tail, "wsd_decay_steps_fraction", where)
        refuse_unless(
            part + tail <= 1,
            f"warmup_steps_fraction and wsd_decay_steps_fraction must not exceed 1 together, got "
            f"{part} and {tail}",
            where,
        )
        last = int(total * tail)
    fall = _line if named == "wsd-linear" else _cosine
    length = last if kind == "wsd" else total - warmup
    begin = total - length
    after = None if run <= total else total
    return by_intervals(
        named,
        (lambda: peak * t / warmup, warmup),
        (lambda: peak, begin if length else after),
        (lambda: fall(peak, low, t - begin, length), after),
        (lambda: sp.S.Zero, None),
    )


_PARAMETERS = parameters(
    learning_rate=3e-5,
    steps=None,
    lr_schedule_type="cosine",
    wsd_decay_style="linear",
    warmup_steps_fraction=0.1,
    wsd_decay_steps_fraction=0.1,
    learning_rate_final_fraction=0.1,
    learning_rate_schedule_steps=-1,
)
_NOTES = (
    "a run longer than the schedule goes on at rate 0",
    "a linear decay of one update leaves the rate at the peak",
)
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES)
    for name in ("cosine", "wsd-linear", "wsd-cosine")
}

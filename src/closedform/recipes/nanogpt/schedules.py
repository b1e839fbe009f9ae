"""The learning rate of nanoGPT: ``get_lr`` of ``train.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.language import Schedule, t
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, first_after, first_from, quotient
from closedform.recipes.native import number
from closedform.schedules.blends import along_cosine


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    peak, low, warmup, total = (
        number(given[name], name, where)
        for name in ("learning_rate", "min_lr", "warmup_iters", "lr_decay_iters")
    )
    if not given["decay_lr"]:
        return by_intervals("get_lr", (lambda: peak, None))
    return by_intervals(
        "get_lr",
        (lambda: peak * (t + 1) / (warmup + 1), first_from(warmup)),
        (
            lambda: along_cosine(peak, low, quotient(t - warmup, total - warmup)),
            first_after(total),
        ),
        (lambda: low, None),
    )


_PARAMETERS = parameters(
    learning_rate=6e-4,
    max_iters=600_000,
    warmup_iters=2000,
    lr_decay_iters=600_000,
    min_lr=6e-5,
    decay_lr=True,
)
SCHEDULES = {
    "get_lr": ScheduleEntry(
        "get_lr",
        (),
        _PARAMETERS,
        _build,
        notes=("a warmup as long as the decay divides by zero at the end of both",),
    )
}

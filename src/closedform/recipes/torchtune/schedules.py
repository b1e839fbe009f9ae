"""The schedule of ``torchtune.training.lr_schedulers``: the cosine of transformers' Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.native import count, number
from closedform.recipes.transformers.schedules import Run, cosine


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    base = number(context.base, "lr", where)
    warmup = count(given["num_warmup_steps"], "num_warmup_steps", where)
    total = count(given["num_training_steps"], "num_training_steps", where)
    return cosine(Run(base, base, sp.Integer(warmup), sp.Integer(total), where), given)


COSINE = "get_cosine_schedule_with_warmup"
SCHEDULES = {
    COSINE: ScheduleEntry(
        COSINE,
        (),
        parameters(num_warmup_steps=REQUIRED, num_training_steps=REQUIRED, num_cycles=0.5),
        _build,
        notes=("rises again after the run",),
    )
}

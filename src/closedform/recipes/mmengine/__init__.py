"""MMEngine: its param schedulers and configs."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.mmengine.reader import READER
from closedform.recipes.mmengine.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.recipes.mmengine.writer import WRITER

FRAMEWORK = Framework(
    "mmengine",
    SCHEDULES,
    versions=("254342938d9b",),
    upstream="mmengine/optim/scheduler/param_scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)

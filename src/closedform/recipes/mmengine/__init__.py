"""MMEngine: its param schedulers and configs."""

from __future__ import annotations

from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework
from closedform.recipes.mmengine.reader import READER
from closedform.recipes.mmengine.schedules import SCHEDULES
from closedform.recipes.mmengine.writer import WRITER

FRAMEWORK = Framework(
    "mmengine",
    SCHEDULES,
    versions=("254342938d9b",),
    upstream="mmengine/optim/scheduler/param_scheduler.py",
    clock=Clock(Unit.UPDATE),
    defects={},
    reader=READER,
    writer=WRITER,
)

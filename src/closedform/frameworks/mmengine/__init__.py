"""MMEngine: its param schedulers and configs."""

from __future__ import annotations

from closedform.frameworks.mmengine.reader import READER
from closedform.frameworks.mmengine.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.frameworks.mmengine.writer import WRITER
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "mmengine",
    SCHEDULES,
    versions=("254342938d9b",),
    repository="https://github.com/open-mmlab/mmengine",
    upstream="mmengine/optim/scheduler/param_scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)

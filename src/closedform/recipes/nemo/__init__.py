"""NeMo: the learning rate policies of its ``sched`` section."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.nemo.reader import READER
from closedform.recipes.nemo.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.recipes.nemo.writer import WRITER

FRAMEWORK = Framework(
    "nemo",
    SCHEDULES,
    versions=("8cfedd720346",),
    upstream="nemo/core/optim/lr_scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)

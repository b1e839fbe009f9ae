"""Composer and llm-foundry: schedulers with time strings."""

from __future__ import annotations

from closedform.recipes.composer.optimizers import OPTIMIZERS
from closedform.recipes.composer.reader import READER
from closedform.recipes.composer.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.recipes.composer.writer import WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework(
    "composer",
    SCHEDULES,
    OPTIMIZERS,
    versions=("6405188805a0", "8c8dd48f7216"),
    upstream="composer/optim/scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=READER,
    writer=WRITER,
)

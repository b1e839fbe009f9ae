"""llm-foundry: Composer's schedulers, by the names of its registry."""

from __future__ import annotations

from dataclasses import replace

from closedform.recipes.composer.reader import FOUNDRY_READER
from closedform.recipes.composer.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.recipes.composer.writer import FOUNDRY_WRITER
from closedform.recipes.framework import Framework

# A config has one scheduler.
_OF_LISTS = {"last-scheduler-wins": replace(DEFECTS["last-scheduler-wins"], applies=None)}
FRAMEWORK = Framework(
    "llm-foundry",
    SCHEDULES,
    {},
    versions=("8c8dd48f7216",),
    upstream="llmfoundry/optim/scheduler.py",
    clock=CLOCK,
    defects={**DEFECTS, **_OF_LISTS},
    reader=FOUNDRY_READER,
    writer=FOUNDRY_WRITER,
)

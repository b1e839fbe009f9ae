"""llm-foundry: Composer's schedulers, by the names of its registry."""

from __future__ import annotations

from closedform.recipes.composer.reader import FOUNDRY_READER
from closedform.recipes.composer.schedules import SCHEDULES
from closedform.recipes.composer.writer import FOUNDRY_WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework(
    "llm-foundry",
    SCHEDULES,
    {},
    versions=("8c8dd48f7216",),
    reader=FOUNDRY_READER,
    writer=FOUNDRY_WRITER,
)

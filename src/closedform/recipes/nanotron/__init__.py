"""nanotron: its ``learning_rate_scheduler`` section."""

from __future__ import annotations

from closedform.recipes.entries import Framework
from closedform.recipes.nanotron.reader import READER
from closedform.recipes.nanotron.schedules import SCHEDULES
from closedform.recipes.nanotron.writer import WRITER

FRAMEWORK = Framework(
    "nanotron", SCHEDULES, {}, versions=("2411b022a75f",), reader=READER, writer=WRITER
)

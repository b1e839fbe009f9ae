"""OLMo: the schedulers of its config."""

from __future__ import annotations

from closedform.recipes.entries import Framework
from closedform.recipes.olmo.reader import READER
from closedform.recipes.olmo.schedules import SCHEDULES
from closedform.recipes.olmo.writer import WRITER

FRAMEWORK = Framework(
    "olmo", SCHEDULES, {}, versions=("59a53e3f68e5",), reader=READER, writer=WRITER
)

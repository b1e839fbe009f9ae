"""MaxText: its learning rate schedule."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.maxtext.reader import READER
from closedform.recipes.maxtext.schedules import SCHEDULES
from closedform.recipes.maxtext.writer import WRITER

FRAMEWORK = Framework(
    "maxtext", SCHEDULES, {}, versions=("e591f30cbbf2",), reader=READER, writer=WRITER
)

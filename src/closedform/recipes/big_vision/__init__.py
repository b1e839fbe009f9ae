"""big_vision: the multiplier of its learning rate."""

from __future__ import annotations

from closedform.recipes.big_vision.reader import READER
from closedform.recipes.big_vision.schedules import SCHEDULES
from closedform.recipes.big_vision.writer import WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework(
    "big_vision", SCHEDULES, {}, versions=("0127fb6b337e",), reader=READER, writer=WRITER
)

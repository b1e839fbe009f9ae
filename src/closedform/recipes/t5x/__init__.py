"""T5X: the product of factors of its learning rate."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.t5x.reader import READER
from closedform.recipes.t5x.schedules import SCHEDULES
from closedform.recipes.t5x.writer import WRITER

FRAMEWORK = Framework(
    "t5x", SCHEDULES, {}, versions=("cc342d419ec3",), reader=READER, writer=WRITER
)

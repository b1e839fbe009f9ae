"""detectron2 with fvcore: the schedulers of its SOLVER section."""

from __future__ import annotations

from closedform.recipes.detectron2.reader import READER
from closedform.recipes.detectron2.schedules import SCHEDULES
from closedform.recipes.detectron2.writer import WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework(
    "detectron2", SCHEDULES, {}, versions=("02b5c4e295e9",), reader=READER, writer=WRITER
)

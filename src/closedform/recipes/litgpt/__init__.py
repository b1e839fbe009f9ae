"""litgpt: the learning rates of pretraining and finetuning."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.litgpt.reader import READER
from closedform.recipes.litgpt.schedules import SCHEDULES
from closedform.recipes.litgpt.writer import WRITER

FRAMEWORK = Framework(
    "litgpt", SCHEDULES, {}, versions=("26857050fe3f",), reader=READER, writer=WRITER
)

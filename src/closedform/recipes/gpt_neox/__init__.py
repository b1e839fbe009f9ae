"""gpt-neox: its annealed learning rate."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.gpt_neox.reader import READER
from closedform.recipes.gpt_neox.schedules import SCHEDULES
from closedform.recipes.gpt_neox.writer import WRITER

FRAMEWORK = Framework(
    "gpt-neox", SCHEDULES, {}, versions=("ea7aefd8f8e1",), reader=READER, writer=WRITER
)

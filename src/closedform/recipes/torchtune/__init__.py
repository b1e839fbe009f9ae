"""torchtune: its cosine schedule with a warmup, and the configs of its recipes."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.torchtune.reader import READER
from closedform.recipes.torchtune.schedules import SCHEDULES
from closedform.recipes.torchtune.writer import WRITER

FRAMEWORK = Framework(
    "torchtune", SCHEDULES, {}, versions=("bd2a0fc7c",), reader=READER, writer=WRITER
)

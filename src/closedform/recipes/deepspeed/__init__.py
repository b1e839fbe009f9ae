"""DeepSpeed: the schedulers of its JSON config."""

from __future__ import annotations

from closedform.recipes.deepspeed.reader import READER
from closedform.recipes.deepspeed.schedules import SCHEDULES, VERSIONS
from closedform.recipes.deepspeed.writer import WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework("deepspeed", SCHEDULES, {}, versions=VERSIONS, reader=READER, writer=WRITER)

"""torchtitan: the factor of its ``lr_scheduler`` section."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.torchtitan.reader import READER
from closedform.recipes.torchtitan.schedules import SCHEDULES, VERSIONS
from closedform.recipes.torchtitan.writer import WRITER

FRAMEWORK = Framework("torchtitan", SCHEDULES, {}, versions=VERSIONS, reader=READER, writer=WRITER)

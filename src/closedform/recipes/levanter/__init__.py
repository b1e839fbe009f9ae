"""levanter: the learning rate of its ``optimizer`` section."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.levanter.reader import READER
from closedform.recipes.levanter.schedules import SCHEDULES
from closedform.recipes.levanter.writer import WRITER

FRAMEWORK = Framework(
    "levanter", SCHEDULES, {}, versions=("9263f81e8b45",), reader=READER, writer=WRITER
)

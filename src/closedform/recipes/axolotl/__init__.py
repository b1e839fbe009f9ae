"""axolotl: the schedulers of its config, over those of transformers."""

from __future__ import annotations

from closedform.recipes.axolotl.reader import READER
from closedform.recipes.axolotl.schedules import SCHEDULES
from closedform.recipes.axolotl.writer import WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework(
    "axolotl", SCHEDULES, {}, versions=("067b021c8b87",), reader=READER, writer=WRITER
)

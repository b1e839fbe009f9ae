"""NeMo Automodel: Megatron's formulas, which count updates here."""

from __future__ import annotations

from closedform.recipes.automodel.reader import READER
from closedform.recipes.automodel.schedules import SCHEDULES
from closedform.recipes.automodel.writer import WRITER
from closedform.recipes.framework import Framework

FRAMEWORK = Framework(
    "automodel", SCHEDULES, {}, versions=("36044ad3d139",), reader=READER, writer=WRITER
)

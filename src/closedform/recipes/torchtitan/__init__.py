"""torchtitan: the factor of its ``lr_scheduler`` section."""

from __future__ import annotations

from closedform.recipes.entries import Framework
from closedform.recipes.torchtitan.schedules import SCHEDULES

FRAMEWORK = Framework("torchtitan", SCHEDULES, {}, versions=("b5bcd76c66d0",))

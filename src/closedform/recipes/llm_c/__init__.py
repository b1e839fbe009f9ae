"""llm.c: the schedulers of its command line."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.llm_c.schedules import SCHEDULES

FRAMEWORK = Framework("llm.c", SCHEDULES, {}, versions=("f1e2ace65149",))

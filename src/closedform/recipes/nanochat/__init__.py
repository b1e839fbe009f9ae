"""nanochat: the schedules of its base training."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.nanochat.schedules import SCHEDULES

FRAMEWORK = Framework("nanochat", SCHEDULES, {}, versions=("92d63d4e8bb4",))

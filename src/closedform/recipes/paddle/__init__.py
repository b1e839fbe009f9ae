"""PaddlePaddle: the classes of ``paddle.optimizer.lr``."""

from __future__ import annotations

from closedform.recipes.entries import Framework
from closedform.recipes.paddle.schedules import SCHEDULES

FRAMEWORK = Framework("paddle", SCHEDULES, {}, versions=("3.3.1",))

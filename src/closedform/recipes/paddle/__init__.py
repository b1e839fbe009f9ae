"""PaddlePaddle: the classes of ``paddle.optimizer.lr``, and the configs of PaddleClas."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.paddle.reader import BEFORE_BASE, READER
from closedform.recipes.paddle.schedules import SCHEDULES

FRAMEWORK = Framework("paddle", SCHEDULES, {}, versions=("3.3.1", BEFORE_BASE), reader=READER)
"""``paddle.optimizer.lr``, and the configs of PaddleClas."""

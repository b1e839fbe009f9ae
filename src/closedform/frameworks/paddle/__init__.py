"""PaddlePaddle: the classes of ``paddle.optimizer.lr``, and the configs of PaddleClas."""

from __future__ import annotations

from closedform.frameworks.paddle.reader import BEFORE_BASE, CLOCK, DEFECTS, NEWEST, matches, read
from closedform.frameworks.paddle.schedules import SCHEDULES
from closedform.recipes import kit

FRAMEWORK = kit.Framework(
    "paddle",
    SCHEDULES,
    versions=(NEWEST, BEFORE_BASE),
    repository="https://github.com/PaddlePaddle/Paddle",
    upstream="paddle/optimizer/lr.py, ppcls/optimizer/learning_rate.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(read, matches),
)
"""``paddle.optimizer.lr``, and the configs of PaddleClas."""

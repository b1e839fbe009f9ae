"""nanoGPT: the learning rate of ``train.py``."""

from __future__ import annotations

from closedform.recipes.framework import Framework
from closedform.recipes.nanogpt.schedules import SCHEDULES

FRAMEWORK = Framework("nanogpt", SCHEDULES, {}, versions=("3adf61e154c3",))

"""The scheduler classes of pytorch-accelerated 0.1.61."""

from closedform.recipes.framework import Framework
from closedform.recipes.pytorch_accelerated.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("pytorch_accelerated", SCHEDULES, {})

"""The scheduler classes of timm 1.0."""

from closedform.recipes.framework import Framework
from closedform.recipes.timm.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("timm", SCHEDULES, {})

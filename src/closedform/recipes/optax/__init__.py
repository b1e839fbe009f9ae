"""The scheduler classes of optax."""

from closedform.recipes.framework import Framework
from closedform.recipes.optax.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("optax", SCHEDULES, {})

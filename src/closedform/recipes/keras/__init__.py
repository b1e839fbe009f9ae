"""The scheduler classes of Keras."""

from closedform.recipes.framework import Framework
from closedform.recipes.keras.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("keras", SCHEDULES, {})

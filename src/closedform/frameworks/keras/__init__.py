"""The scheduler classes of Keras."""

from closedform.frameworks.keras.schedules import SCHEDULES
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework(
    "keras",
    SCHEDULES,
    upstream="keras/src/optimizers/schedules/learning_rate_schedule.py",
    clock=Clock(Unit.UPDATE),
    defects={},
)

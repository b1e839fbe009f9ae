"""The scheduler classes of optax."""

from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework
from closedform.recipes.optax.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework(
    "optax",
    SCHEDULES,
    upstream="optax/schedules/_schedule.py",
    clock=Clock(Unit.UPDATE),
)

"""The scheduler classes of optax."""

from closedform.frameworks.optax.schedule_free import DEFECTS, ENTRY
from closedform.frameworks.optax.schedules import SCHEDULES
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework(
    "optax",
    {**SCHEDULES, ENTRY.name: ENTRY},
    # The records of schedule_free are of this commit.
    versions=("2edbcbe2390d",),
    upstream="optax/schedules/_schedule.py, optax/contrib/_schedule_free.py",
    clock=Clock(Unit.UPDATE),
    defects=DEFECTS,
)

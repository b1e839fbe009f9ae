"""The scheduler classes of optax."""

from closedform.frameworks.optax.schedule_free import DEFECTS, ENTRY
from closedform.frameworks.optax.schedules import SCHEDULES
from closedform.recipes import kit

__all__ = ["FRAMEWORK"]

FRAMEWORK = kit.Framework(
    "optax",
    {**SCHEDULES, ENTRY.name: ENTRY},
    # The records of schedule_free are of this commit.
    versions=("2edbcbe2390d",),
    repository="https://github.com/google-deepmind/optax",
    upstream="optax/schedules/_schedule.py, optax/contrib/_schedule_free.py",
    clock=kit.Clock(kit.Unit.UPDATE),
    defects=DEFECTS,
)

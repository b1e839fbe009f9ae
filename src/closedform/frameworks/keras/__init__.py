"""The scheduler classes of Keras."""

from closedform.frameworks.keras.schedules import SCHEDULES
from closedform.recipes import kit

__all__ = ["FRAMEWORK"]

FRAMEWORK = kit.Framework(
    "keras",
    SCHEDULES,
    repository="https://github.com/keras-team/keras",
    commit="3.15.1",
    upstream="keras/src/optimizers/schedules/learning_rate_schedule.py",
    clock=kit.Clock(kit.Unit.UPDATE),
    defects={},
)

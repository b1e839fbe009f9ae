"""The scheduler classes of pytorch-accelerated 0.1.61."""

from closedform.frameworks.pytorch_accelerated.schedules import SCHEDULES, wsd_plan
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework

__all__ = ["FRAMEWORK", "wsd_plan"]

FRAMEWORK = Framework(
    "pytorch_accelerated",
    SCHEDULES,
    upstream="pytorch_accelerated/schedulers",
    clock=Clock(Unit.UPDATE),
    defects={},
)

"""The scheduler and optimizer classes of torch 2.13."""

from closedform.frameworks.torch.optimizers import OPTIMIZERS
from closedform.frameworks.torch.schedules import SCHEDULES
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework(
    "torch",
    SCHEDULES,
    OPTIMIZERS,
    upstream="torch/optim/lr_scheduler.py",
    clock=Clock(Unit.UPDATE),
    defects={},
)

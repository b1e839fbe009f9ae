"""The scheduler and optimizer classes of torch 2.13."""

from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework
from closedform.recipes.torch.optimizers import OPTIMIZERS
from closedform.recipes.torch.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework(
    "torch",
    SCHEDULES,
    OPTIMIZERS,
    upstream="torch/optim/lr_scheduler.py",
    clock=Clock(Unit.UPDATE),
    defects={},
)

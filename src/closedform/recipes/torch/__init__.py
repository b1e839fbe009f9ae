"""The scheduler and optimizer classes of torch 2.13."""

from closedform.recipes.framework import Framework
from closedform.recipes.torch.optimizers import OPTIMIZERS
from closedform.recipes.torch.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("torch", SCHEDULES, OPTIMIZERS)

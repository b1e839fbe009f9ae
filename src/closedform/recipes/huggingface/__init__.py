"""The scheduler and optimizer classes of transformers 5.23."""

from closedform.recipes.framework import Framework
from closedform.recipes.huggingface.optimizers import OPTIMIZERS
from closedform.recipes.huggingface.schedules import SCHEDULES

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("huggingface", SCHEDULES, OPTIMIZERS)

"""The scheduler and optimizer classes of cerebras.pytorch 2.10 and the configs of ModelZoo."""

from closedform.recipes.cerebras.optimizers import AS_IMPLEMENTED, OPTIMIZERS
from closedform.recipes.cerebras.reader import READER
from closedform.recipes.cerebras.schedules import SCHEDULES
from closedform.recipes.framework import Framework

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework("cerebras", SCHEDULES, OPTIMIZERS, AS_IMPLEMENTED, reader=READER)

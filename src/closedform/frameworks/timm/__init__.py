"""The schedulers of timm, and the arguments of its ``train.py``."""

from closedform.frameworks.timm.arguments import DEFECTS, matches, read
from closedform.frameworks.timm.schedules import SCHEDULES
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.framework import Framework
from closedform.recipes.reader import Reader

__all__ = ["FRAMEWORK"]

FRAMEWORK = Framework(
    "timm",
    SCHEDULES,
    versions=("1.0.31",),
    upstream="timm/scheduler/*.py, train.py",
    clock=Clock(Unit.UPDATE),
    defects=DEFECTS,
    reader=Reader(read, matches),
)

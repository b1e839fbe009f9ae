"""The schedulers of timm, and the arguments of its ``train.py``."""

from closedform.frameworks.timm.arguments import DEFECTS, matches, read
from closedform.frameworks.timm.schedules import SCHEDULES
from closedform.recipes import kit

__all__ = ["FRAMEWORK"]

FRAMEWORK = kit.Framework(
    "timm",
    SCHEDULES,
    versions=("1.0.31",),
    repository="https://github.com/huggingface/pytorch-image-models",
    upstream="timm/scheduler/*.py, train.py",
    clock=kit.Clock(kit.Unit.UPDATE),
    defects=DEFECTS,
    reader=kit.Reader(read, matches),
)

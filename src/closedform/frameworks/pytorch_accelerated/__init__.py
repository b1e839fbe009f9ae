"""The scheduler classes of pytorch-accelerated 0.1.61."""

from closedform.frameworks.pytorch_accelerated.schedules import SCHEDULES, wsd_plan
from closedform.recipes import kit

__all__ = ["FRAMEWORK", "wsd_plan"]

FRAMEWORK = kit.Framework(
    "pytorch_accelerated",
    SCHEDULES,
    repository="https://github.com/Chris-hughes10/pytorch-accelerated",
    commit="0.1.61",
    upstream="pytorch_accelerated/schedulers",
    clock=kit.Clock(kit.Unit.UPDATE),
    defects={},
)

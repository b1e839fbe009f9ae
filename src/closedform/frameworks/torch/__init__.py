"""The scheduler and optimizer classes of torch 2.13."""

from closedform.frameworks.torch.optimizers import OPTIMIZERS
from closedform.frameworks.torch.schedules import SCHEDULES
from closedform.recipes import kit

__all__ = ["FRAMEWORK"]

FRAMEWORK = kit.Framework(
    "torch",
    SCHEDULES,
    OPTIMIZERS,
    repository="https://github.com/pytorch/pytorch",
    commit="2.13.0",
    upstream="torch/optim/lr_scheduler.py",
    clock=kit.Clock(kit.Unit.UPDATE),
    defects={},
)

"""The scheduler and optimizer classes of cerebras.pytorch 2.10 and the configs of ModelZoo.

The functions of its config forms are here as well: ``configure_lr_scheduler`` and those next to it
return a class and its arguments, ``configure_param_groups`` the param groups of a model.
"""

from closedform.frameworks.cerebras.configure import (
    FUNCTIONS,
    configure_lr_scheduler,
    configure_optimizer,
    configure_optimizer_params,
    configure_scheduler,
    configure_scheduler_params,
)
from closedform.frameworks.cerebras.loss_scaling import dynamic_loss_scaling
from closedform.frameworks.cerebras.optimizers import AS_IMPLEMENTED, OPTIMIZERS
from closedform.frameworks.cerebras.param_groups import (
    configure_param_groups,
    configure_param_groups_2_2,
    layer_decay_groups,
)
from closedform.frameworks.cerebras.reader import READER
from closedform.frameworks.cerebras.schedules import CLOCK, DEFECTS, SCHEDULES
from closedform.recipes import kit

__all__ = [
    "FRAMEWORK",
    "configure_lr_scheduler",
    "configure_optimizer",
    "configure_optimizer_params",
    "configure_param_groups",
    "configure_param_groups_2_2",
    "configure_scheduler",
    "configure_scheduler_params",
    "dynamic_loss_scaling",
    "layer_decay_groups",
]

FRAMEWORK = kit.Framework(
    "cerebras",
    SCHEDULES,
    OPTIMIZERS,
    AS_IMPLEMENTED,
    repository="https://github.com/Cerebras/modelzoo",
    commit="2.10.0",
    upstream="cerebras/pytorch/optim/lr_scheduler.py@2.10",
    clock=CLOCK,
    defects=DEFECTS,
    functions=FUNCTIONS,
    reader=READER,
    has_any_key=True,
)

"""The classes of cerebras.pytorch.optim, bases for your own, and its config functions.

``CosineDecayLR(optimizer, …)``, ``ConstantWD``, ``AdamW`` and so on have their names there;
the functions ``configure_…`` create them from configs. Subclass ``Optimizer``, ``LRScheduler``,
``WeightDecayScheduler`` or ``Scheduler`` for your own.
"""

from closedform.torch.compat.cerebras import (
    OPTIMIZERS,
    SCHEDULERS,
    LRScheduler,
    Scheduler,
    WeightDecayScheduler,
    configure_lr_scheduler,
    configure_optimizer,
    configure_optimizer_params,
    configure_param_groups,
    configure_scheduler,
    configure_scheduler_params,
)
from closedform.torch.compat.cerebras_optimizer import Optimizer
from closedform.torch.compat.namespaces import class_namespace

__all__ = [
    "OPTIMIZERS",
    "SCHEDULERS",
    "LRScheduler",
    "Optimizer",
    "Scheduler",
    "WeightDecayScheduler",
    "configure_lr_scheduler",
    "configure_optimizer",
    "configure_optimizer_params",
    "configure_param_groups",
    "configure_scheduler",
    "configure_scheduler_params",
]
__getattr__, __dir__ = class_namespace(__name__, {**SCHEDULERS, **OPTIMIZERS}, __all__)

"""The classes of torch.optim.lr_scheduler, in closed form: ``OneCycleLR(optimizer, …)``."""

from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.schedulers import scheduler_classes

SCHEDULERS = scheduler_classes("torch", __name__)
"""The scheduler classes by name."""

__all__ = ["SCHEDULERS"]
__getattr__, __dir__ = class_namespace(__name__, SCHEDULERS, __all__)

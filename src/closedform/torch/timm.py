"""The schedulers of timm, with its protocol: ``step(epoch)`` and ``step_update(num_updates)``."""

from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.schedulers import scheduler_classes
from closedform.torch.compat.timm import TimmScheduler

SCHEDULERS = scheduler_classes("timm", __name__, TimmScheduler)
"""The scheduler classes by name."""

__all__ = ["SCHEDULERS", "TimmScheduler"]
__getattr__, __dir__ = class_namespace(__name__, SCHEDULERS, __all__)

"""The classes of torch.optim, each run by an update rule: ``AdamW(params, backend="compile")``."""

from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.optimizers import optimizer_classes

OPTIMIZERS = optimizer_classes("torch", __name__)
"""The optimizer classes by name."""

__all__ = ["OPTIMIZERS"]
__getattr__, __dir__ = class_namespace(__name__, OPTIMIZERS, __all__)

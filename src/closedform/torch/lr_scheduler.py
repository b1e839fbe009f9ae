"""The classes of torch.optim.lr_scheduler, in closed form: ``OneCycleLR(optimizer, …)``."""

from typing import TYPE_CHECKING

from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.schedulers import scheduler_classes
from closedform.torch.compat.torch_schedulers import base_of

SCHEDULERS = scheduler_classes("torch", __name__, base_of)
"""The scheduler classes by name."""

__all__: list[str] = ["SCHEDULERS"]
if TYPE_CHECKING:
    from closedform.torch.classes import lr_scheduler as classes
    from closedform.torch.classes.lr_scheduler import *  # noqa: F403 - the generated classes

    # Pyright takes a name that is not listed for a private one.
    __all__ += classes.__all__
else:
    __getattr__, __dir__ = class_namespace(__name__, SCHEDULERS, __all__)

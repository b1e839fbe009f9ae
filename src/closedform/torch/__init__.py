"""Drop-ins for torch: schedules as ``LRScheduler``, rules as ``torch.optim.Optimizer``.

``closedform.torch.cerebras``, ``.lr_scheduler``, ``.optim`` and ``.pytorch_accelerated`` hold the
classes of other systems under their names there, ``.checkpoints`` the states of others.

Example:
    >>> from closedform import optimizers
    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> Optimizer([weight], optimizers.lion(lr=0.5)).param_groups[0]["lr"]
    0.5
"""

import importlib
from typing import TYPE_CHECKING, Any

from closedform.errors import install_hint, unknown_attribute

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"closedform.torch needs {error.name}, which is not installed: {install_hint('torch')}",
        name=error.name,
    ) from None

from closedform.torch.optimizer import Optimizer
from closedform.torch.scheduler import ParamScheduler
from closedform.torch.watching import Watcher, lightning_callback, trainer_callback, watch

__all__ = [
    "Optimizer",
    "ParamScheduler",
    "Watcher",
    "lightning_callback",
    "trainer_callback",
    "watch",
]


_NAMESPACES = ("cerebras", "checkpoints", "lr_scheduler", "optim", "pytorch_accelerated", "timm")


if TYPE_CHECKING:
    from closedform.torch import cerebras as cerebras
    from closedform.torch import checkpoints as checkpoints
    from closedform.torch import lr_scheduler as lr_scheduler
    from closedform.torch import optim as optim
    from closedform.torch import pytorch_accelerated as pytorch_accelerated
    from closedform.torch import timm as timm
else:

    def __getattr__(name: str) -> Any:
        if name in _NAMESPACES:
            return importlib.import_module(f"{__name__}.{name}")
        raise unknown_attribute(__name__, name, (*__all__, *_NAMESPACES))


def __dir__() -> list[str]:
    return sorted((*__all__, *_NAMESPACES))

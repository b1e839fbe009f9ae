"""Drop-ins for torch: schedules as ``LRScheduler``, rules as ``torch.optim.Optimizer``.

``closedform.torch.cerebras``, ``.lr_scheduler``, ``.optim`` and ``.pytorch_accelerated`` hold the
classes of other systems under their names there.
"""

from closedform.errors import install_hint

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


def __dir__() -> list[str]:
    return sorted(__all__)

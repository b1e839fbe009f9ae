"""Drop-ins for torch: schedules as ``LRScheduler``, rules as ``torch.optim.Optimizer``.

``closedform.torch.cerebras``, ``.lr_scheduler``, ``.optim`` and ``.pytorch_accelerated`` hold the
classes of other systems under their names there.
"""

from closedform.torch.optimizer import Optimizer
from closedform.torch.scheduler import ParamScheduler

__all__ = ["Optimizer", "ParamScheduler"]


def __dir__() -> list[str]:
    return sorted(__all__)

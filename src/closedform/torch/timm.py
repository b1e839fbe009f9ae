"""The schedulers of timm, with its protocol: ``step(epoch)`` and ``step_update(num_updates)``.

With ``t_in_epochs`` the clock counts epochs and ``step_update`` does nothing; without it, the clock
counts updates and ``step(epoch)`` does nothing. ``metric`` is accepted and not used. ``step()``
without an epoch advances by one step, as in torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_classes


class TimmScheduler(NamedScheduler):
    """A scheduler with the methods that timm's training loops call."""

    t_in_epochs: bool

    def step(self, epoch: int | None = None, metric: float | Tensor | None = None) -> None:
        """Moves to an epoch, if the clock counts epochs."""
        del metric
        if epoch is None or self.t_in_epochs:
            super().step(epoch)

    def step_update(self, num_updates: int, metric: float | Tensor | None = None) -> None:
        """Moves to a number of updates, if the clock counts updates."""
        del metric
        if not self.t_in_epochs:
            super().step(num_updates)


SCHEDULERS = scheduler_classes("timm", __name__, lambda _: TimmScheduler)
"""The scheduler classes by name."""

__all__: list[str] = ["SCHEDULERS", "TimmScheduler"]
if TYPE_CHECKING:
    from closedform.torch.classes import timm as classes
    from closedform.torch.classes.timm import *  # noqa: F403 - the generated classes

    # Pyright takes a name that is not listed for a private one.
    __all__ += classes.__all__
else:
    __getattr__, __dir__ = class_namespace(__name__, SCHEDULERS, __all__)

"""The schedulers of timm, with its protocol: ``step(epoch)`` and ``step_update(num_updates)``.

With ``t_in_epochs`` the clock is the epoch and ``step_update`` does nothing, without it the other
way round; ``metric`` is taken and not read. ``step()`` alone goes one step on, as in torch.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from closedform.errors import nearest
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_class


class TimmScheduler(NamedScheduler):
    """The protocol of timm's training loops."""

    t_in_epochs: bool

    def step(self, epoch: int | None = None, metric: float | Tensor | None = None) -> None:
        """Goes to an epoch, where the clock counts epochs."""
        del metric
        if epoch is None or self.t_in_epochs:
            super().step(epoch)

    def step_update(self, num_updates: int, metric: float | Tensor | None = None) -> None:
        """Goes to a number of updates, where the clock counts updates."""
        del metric
        if not self.t_in_epochs:
            super().step(num_updates)


SCHEDULERS: dict[str, type[NamedScheduler]] = {
    name: scheduler_class("timm", entry, "lr", __name__, TimmScheduler)
    for name, entry in FRAMEWORKS["timm"].schedules.items()
}
"""The scheduler classes by name."""


def __getattr__(name: str) -> Any:
    if name in SCHEDULERS:
        return SCHEDULERS[name]
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: {nearest(name, SCHEDULERS)}"
    )


def __dir__() -> list[str]:
    return sorted([*globals(), *SCHEDULERS])

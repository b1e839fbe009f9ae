"""The classes of torch.optim.lr_scheduler, each a closed form: ``OneCycleLR(optimizer, …)``."""

from __future__ import annotations

from typing import Any

from closedform.errors import nearest
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.torch.compat.schedulers import NamedScheduler, scheduler_class

SCHEDULERS: dict[str, type[NamedScheduler]] = {
    name: scheduler_class("torch", entry, "lr", __name__)
    for name, entry in FRAMEWORKS["torch"].schedules.items()
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

"""The classes of torch.optim, each an update rule: ``AdamW(params, …)``, ``backend="compile"``."""

from __future__ import annotations

from typing import Any

from closedform.errors import nearest
from closedform.recipes.frameworks import FRAMEWORKS
from closedform.torch.compat.optimizers import NamedOptimizer, optimizer_class

OPTIMIZERS: dict[str, type[NamedOptimizer]] = {
    name: optimizer_class("torch", entry, __name__)
    for name, entry in FRAMEWORKS["torch"].optimizers.items()
}
"""The optimizer classes by name."""


def __getattr__(name: str) -> Any:
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: {nearest(name, OPTIMIZERS)}"
    )


def __dir__() -> list[str]:
    return sorted([*globals(), *OPTIMIZERS])

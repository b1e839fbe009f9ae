"""The classes of torch.optim, each run by an update rule: ``AdamW(params, backend="compile")``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from closedform.errors import ArgumentError
from closedform.torch.compat.namespaces import class_namespace
from closedform.torch.compat.optimizers import NamedOptimizer, optimizer_classes


class _TorchOptimizer(NamedOptimizer):
    """The base of all classes: a parameter has states from its first step on, as in torch."""

    def _saves_first_states(self, index: int) -> bool:
        return False

    def _check_arguments(self, values: Mapping[str, Any], where: str) -> None:
        super()._check_arguments(values, where)
        if values.get("foreach") and values.get("fused"):
            hint = "leave foreach out for the fused kernel"
            raise ArgumentError("foreach and fused cannot both be True", where=where, hint=hint)


class _WithoutStep(_TorchOptimizer):
    """The base of classes whose states torch keeps without a step."""

    _saves_no_step = True


class _WithScalars(_TorchOptimizer):
    """The base of classes whose scalar states torch keeps in its default dtype."""

    def _choices(self) -> dict[str, Any]:
        return {"scalar_states": None if torch.get_default_dtype() == torch.float64 else "f32"}


class _WithFirstRate(_TorchOptimizer):
    """The base of Rprop, whose first step makes its states, of the learning rate that is then."""

    def _choices(self) -> dict[str, Any]:
        return {"lr_at_first_step": True}


_BASES = {
    "ASGD": _WithScalars,
    "Muon": _WithoutStep,
    "NAdam": _WithScalars,
    "Rprop": _WithFirstRate,
    "SGD": _WithoutStep,
}

OPTIMIZERS = {
    **optimizer_classes("torch", __name__, _TorchOptimizer),
    **{name: optimizer_classes("torch", __name__, base)[name] for name, base in _BASES.items()},
}
"""The optimizer classes by name."""

__all__: list[str] = ["OPTIMIZERS"]
if TYPE_CHECKING:
    from closedform.torch.classes import optim as classes
    from closedform.torch.classes.optim import *  # noqa: F403 - the generated classes

    # Pyright takes a name that is not listed for a private one.
    __all__ += classes.__all__
else:
    __getattr__, __dir__ = class_namespace(__name__, OPTIMIZERS, __all__)

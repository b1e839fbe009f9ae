"""Rates and parametrizations by the shapes of a model, as groups of parameters.

Example:
    >>> from closedform import optimizers, scaling
    >>> wide, base = {"h.0.w": (512, 512)}, {"h.0.w": (64, 64)}
    >>> scaling.mup(wide, base, optimizers.adam(1e-3)).groups[0].factors
    {'lr': 1/8}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.scaling.parametrization import ParameterScale, Parametrization, mup
from closedform.scaling.rates import Pair, layerwise_decay, muon_and_adamw
from closedform.scaling.tables import Layer

__all__ = [
    "Layer",
    "Pair",
    "ParameterScale",
    "Parametrization",
    "layerwise_decay",
    "muon_and_adamw",
    "mup",
]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)

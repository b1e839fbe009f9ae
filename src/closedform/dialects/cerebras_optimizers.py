"""The optimizers of cerebras.pytorch 2.10.

Its running float32 powers of the betas (states ``beta1_power``, ``beta2_power``) are derived from
the step here, and are no states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.dialects.entries import OptimizerEntry, Parameter
from closedform.language import UpdateRule
from closedform.optimizers import adam, adamw, sgd


def _sgd(given: Mapping[str, Any]) -> UpdateRule:
    return sgd(**given, first_momentum="dampened")


def _adam(given: Mapping[str, Any]) -> UpdateRule:
    return adam(**given, eps_added="before_correction")


def _adamw(given: Mapping[str, Any]) -> UpdateRule:
    return adamw(**given, eps_added="before_correction")


_ADAM = (
    Parameter("lr", 1e-3),
    Parameter("betas", (0.9, 0.999)),
    Parameter("eps", 1e-6),
    Parameter("weight_decay", 0.0),
)
_AMSGRAD = Parameter("amsgrad", False)
_ENTRIES = (
    OptimizerEntry(
        "SGD",
        (
            Parameter("lr"),
            Parameter("momentum", 0),
            Parameter("dampening", 0),
            Parameter("weight_decay", 0),
            Parameter("nesterov", False),
            Parameter("maximize", False),
        ),
        _sgd,
    ),
    OptimizerEntry("Adam", (*_ADAM, _AMSGRAD), _adam),
    OptimizerEntry("AdamW", (*_ADAM, Parameter("correct_bias", True), _AMSGRAD), _adamw),
)
OPTIMIZERS = {entry.name: entry for entry in _ENTRIES}

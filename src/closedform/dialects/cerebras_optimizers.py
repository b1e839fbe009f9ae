"""The optimizers of cerebras.pytorch 2.10.

Its running float32 powers of the betas (states ``beta1_power``, ``beta2_power``) are derived from
the step here, and are no states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.dialects.entries import OptimizerEntry, Parameter
from closedform.language import UpdateRule
from closedform.optimizers import adagrad, adam, adamax, adamw, lion, rmsprop, sgd


def _sgd(given: Mapping[str, Any]) -> UpdateRule:
    return sgd(**given, first_momentum="dampened")


def _adam(given: Mapping[str, Any]) -> UpdateRule:
    return adam(**given, eps_added="before_correction")


def _adamw(given: Mapping[str, Any]) -> UpdateRule:
    return adamw(**given, eps_added="before_correction")


def _rmsprop(given: Mapping[str, Any]) -> UpdateRule:
    return rmsprop(**given)


def _adagrad(given: Mapping[str, Any]) -> UpdateRule:
    return adagrad(**given)


def _lion(given: Mapping[str, Any]) -> UpdateRule:
    return lion(**given)


def _adamax(given: Mapping[str, Any]) -> UpdateRule:
    return adamax(**given)


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

_WEIGHT_DECAY = Parameter("weight_decay", 0.0)
_MAXIMIZE = Parameter("maximize", False)
_MORE_ENTRIES = (
    OptimizerEntry(
        "RMSprop",
        (
            Parameter("lr", 1e-2),
            Parameter("alpha", 0.99),
            Parameter("eps", 1e-8),
            _WEIGHT_DECAY,
            Parameter("momentum", 0.0),
            Parameter("centered", False),
        ),
        _rmsprop,
    ),
    OptimizerEntry(
        "Adagrad",
        (
            Parameter("lr", 1e-2),
            Parameter("lr_decay", 0.0),
            _WEIGHT_DECAY,
            Parameter("initial_accumulator_value", 0.0),
            Parameter("eps", 1e-6),
            _MAXIMIZE,
        ),
        _adagrad,
    ),
    OptimizerEntry(
        "Lion",
        (Parameter("lr", 1e-4), Parameter("betas", (0.9, 0.99)), _WEIGHT_DECAY),
        _lion,
    ),
    OptimizerEntry("Adamax", (*_ADAM, _MAXIMIZE), _adamax),
)
MORE_OPTIMIZERS = {entry.name: entry for entry in _MORE_ENTRIES}
"""Entries that ``dialects.optimizer`` does not list yet."""

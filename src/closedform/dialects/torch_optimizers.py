"""The optimizers of torch 2.13."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.dialects import checks
from closedform.dialects.entries import OptimizerEntry, Parameter
from closedform.language import UpdateRule
from closedform.optimizers import adagrad, adam, adamax, adamw, rmsprop, sgd


def _sgd(given: Mapping[str, Any]) -> UpdateRule:
    return sgd(**_mathematics(given), first_momentum="gradient")


def _adam(given: Mapping[str, Any]) -> UpdateRule:
    arguments = _mathematics(given)
    decoupled = checks.flag(
        arguments.pop("decoupled_weight_decay"), "decoupled_weight_decay", "torch > Adam"
    )
    return (adamw if decoupled else adam)(**arguments)


def _adamw(given: Mapping[str, Any]) -> UpdateRule:
    return adamw(**_mathematics(given))


def _rmsprop(given: Mapping[str, Any]) -> UpdateRule:
    return rmsprop(**_mathematics(given))


def _adagrad(given: Mapping[str, Any]) -> UpdateRule:
    return adagrad(**_mathematics(given))


def _adamax(given: Mapping[str, Any]) -> UpdateRule:
    return adamax(**_mathematics(given))


def _mathematics(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments without those that only choose how torch runs the same step."""
    return {name: value for name, value in given.items() if name not in _EXECUTION}


_EXECUTION = ("foreach", "capturable", "differentiable", "fused")
_SWITCHES = (
    Parameter("maximize", False),
    Parameter("foreach", None, checks.flag),
    Parameter("differentiable", False, checks.flag),
    Parameter("fused", None, checks.flag),
)
_ADAM = (
    Parameter("lr", 1e-3),
    Parameter("betas", (0.9, 0.999)),
    Parameter("eps", 1e-8),
)
_ADAM_SWITCHES = (
    Parameter("amsgrad", False),
    *_SWITCHES,
    Parameter("capturable", False, checks.flag),
)
_ENTRIES = (
    OptimizerEntry(
        "SGD",
        (
            Parameter("lr", 1e-3),
            Parameter("momentum", 0),
            Parameter("dampening", 0),
            Parameter("weight_decay", 0),
            Parameter("nesterov", False),
            *_SWITCHES,
        ),
        _sgd,
    ),
    OptimizerEntry(
        "Adam",
        (
            *_ADAM,
            Parameter("weight_decay", 0),
            *_ADAM_SWITCHES,
            Parameter("decoupled_weight_decay", False),
        ),
        _adam,
    ),
    OptimizerEntry("AdamW", (*_ADAM, Parameter("weight_decay", 1e-2), *_ADAM_SWITCHES), _adamw),
)
OPTIMIZERS = {entry.name: entry for entry in _ENTRIES}

_WEIGHT_DECAY = Parameter("weight_decay", 0)
_CAPTURABLE = Parameter("capturable", False, checks.flag)
_UNFUSED = tuple(parameter for parameter in _SWITCHES if parameter.name != "fused")
_MORE_ENTRIES = (
    OptimizerEntry(
        "RMSprop",
        (
            Parameter("lr", 1e-2),
            Parameter("alpha", 0.99),
            Parameter("eps", 1e-8),
            _WEIGHT_DECAY,
            Parameter("momentum", 0),
            Parameter("centered", False),
            _CAPTURABLE,
            *_UNFUSED,
        ),
        _rmsprop,
    ),
    OptimizerEntry(
        "Adagrad",
        (
            Parameter("lr", 1e-2),
            Parameter("lr_decay", 0),
            _WEIGHT_DECAY,
            Parameter("initial_accumulator_value", 0),
            Parameter("eps", 1e-10),
            *_SWITCHES,
        ),
        _adagrad,
    ),
    OptimizerEntry(
        "Adamax",
        (
            Parameter("lr", 2e-3),
            Parameter("betas", (0.9, 0.999)),
            Parameter("eps", 1e-8),
            _WEIGHT_DECAY,
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _adamax,
    ),
)
MORE_OPTIMIZERS = {entry.name: entry for entry in _MORE_ENTRIES}
"""Entries that ``dialects.optimizer`` does not list yet."""

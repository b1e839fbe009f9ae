"""The optimizers of torch 2.13."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.language import RANK, UpdateRule
from closedform.optimizers import (
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    adamw,
    asgd,
    muon,
    nadam,
    radam,
    rmsprop,
    rprop,
    sgd,
)
from closedform.recipes import checks
from closedform.recipes.entries import OptimizerEntry, Parameter


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


def _nadam(given: Mapping[str, Any]) -> UpdateRule:
    return nadam(**_mathematics(given))


def _radam(given: Mapping[str, Any]) -> UpdateRule:
    return radam(**_mathematics(given))


def _adadelta(given: Mapping[str, Any]) -> UpdateRule:
    return adadelta(**_mathematics(given))


def _rprop(given: Mapping[str, Any]) -> UpdateRule:
    return rprop(**_mathematics(given))


def _asgd(given: Mapping[str, Any]) -> UpdateRule:
    return asgd(**_mathematics(given))


def _adafactor(given: Mapping[str, Any]) -> UpdateRule:
    arguments = _mathematics(given)
    arguments["clip_threshold"] = arguments.pop("d")
    arguments["decay_rate"] = -checks.number(
        arguments.pop("beta2_decay"), "beta2_decay", "torch > Adafactor"
    )
    return adafactor(**arguments, floor="clamped", decay="plain")


def _muon(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    scale = arguments.pop("adjust_lr_fn")
    made = muon(**arguments, scale="original" if scale is None else scale, precision="bf16_fused")
    return replace(made, requires=sp.Eq(RANK, 2))


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

_WEIGHT_DECAY = Parameter("weight_decay", 0)
_CAPTURABLE = Parameter("capturable", False, checks.flag)
_DECOUPLED = Parameter("decoupled_weight_decay", False)
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
    OptimizerEntry(
        "NAdam",
        (
            Parameter("lr", 2e-3),
            Parameter("betas", (0.9, 0.999)),
            Parameter("eps", 1e-8),
            _WEIGHT_DECAY,
            Parameter("momentum_decay", 4e-3),
            _DECOUPLED,
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _nadam,
    ),
    OptimizerEntry("RAdam", (*_ADAM, _WEIGHT_DECAY, _DECOUPLED, *_UNFUSED, _CAPTURABLE), _radam),
    OptimizerEntry(
        "Adadelta",
        (
            Parameter("lr", 1.0),
            Parameter("rho", 0.9),
            Parameter("eps", 1e-6),
            _WEIGHT_DECAY,
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _adadelta,
    ),
    OptimizerEntry(
        "Rprop",
        (
            Parameter("lr", 1e-2),
            Parameter("etas", (0.5, 1.2)),
            Parameter("step_sizes", (1e-6, 50)),
            _CAPTURABLE,
            *_UNFUSED,
        ),
        _rprop,
    ),
    OptimizerEntry(
        "ASGD",
        (
            Parameter("lr", 1e-2),
            Parameter("lambd", 1e-4),
            Parameter("alpha", 0.75),
            Parameter("t0", 1e6),
            _WEIGHT_DECAY,
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _asgd,
    ),
    OptimizerEntry(
        "Adafactor",
        (
            Parameter("lr", 1e-2),
            Parameter("beta2_decay", -0.8),
            Parameter("eps", (None, 1e-3)),
            Parameter("d", 1.0),
            Parameter("weight_decay", 0.0),
            Parameter("foreach", None, checks.flag),
            Parameter("maximize", False),
        ),
        _adafactor,
    ),
    OptimizerEntry(
        "Muon",
        (
            Parameter("lr", 1e-3),
            Parameter("weight_decay", 0.1),
            Parameter("momentum", 0.95),
            Parameter("nesterov", True),
            Parameter("ns_coefficients", (3.4445, -4.775, 2.0315)),
            Parameter("eps", 1e-7),
            Parameter("ns_steps", 5),
            Parameter("adjust_lr_fn", None),
        ),
        _muon,
    ),
)
OPTIMIZERS = {entry.name: entry for entry in (*_ENTRIES, *_MORE_ENTRIES)}
"""Entries that ``frameworks.optimizer`` does not list yet."""

"""The optimizers of torch 2.13."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from closedform.recipes.entries import (
    OptimizerEntry,
    Parameter,
    RuleOfArguments,
    parameters,
)


def _passed_to(make: Callable[..., UpdateRule], **choices: str) -> RuleOfArguments:
    """The builder that passes the arguments of the formula on to a rule of the library."""
    return lambda given: make(**_mathematics(given), **choices)


def _adam(given: Mapping[str, Any]) -> UpdateRule:
    arguments = _mathematics(given)
    decoupled = checks.flag(
        arguments.pop("decoupled_weight_decay"), "decoupled_weight_decay", "torch > Adam"
    )
    return (adamw if decoupled else adam)(**arguments)


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
_CAPTURABLE = Parameter("capturable", False, checks.flag)
_UNFUSED = (
    Parameter("maximize", False),
    Parameter("foreach", None, checks.flag),
    Parameter("differentiable", False, checks.flag),
)
_SWITCHES = (*_UNFUSED, Parameter("fused", None, checks.flag))
_ADAM_SWITCHES = (Parameter("amsgrad", False), *_SWITCHES, _CAPTURABLE)
_DECOUPLED = Parameter("decoupled_weight_decay", False)
_ADAM = parameters(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
_ENTRIES = (
    OptimizerEntry(
        "SGD",
        (
            *parameters(lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False),
            *_SWITCHES,
        ),
        _passed_to(sgd, first_momentum="gradient"),
    ),
    OptimizerEntry("Adam", (*_ADAM, *_ADAM_SWITCHES, _DECOUPLED), _adam),
    OptimizerEntry(
        "AdamW",
        (*_ADAM[:3], Parameter("weight_decay", 1e-2), *_ADAM_SWITCHES),
        _passed_to(adamw),
    ),
    OptimizerEntry(
        "RMSprop",
        (
            *parameters(lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False),
            _CAPTURABLE,
            *_UNFUSED,
        ),
        _passed_to(rmsprop),
    ),
    OptimizerEntry(
        "Adagrad",
        (
            *parameters(
                lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10
            ),
            *_SWITCHES,
        ),
        _passed_to(adagrad),
    ),
    OptimizerEntry(
        "Adamax",
        (
            *parameters(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0),
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _passed_to(adamax),
    ),
    OptimizerEntry(
        "NAdam",
        (
            *parameters(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3),
            _DECOUPLED,
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _passed_to(nadam),
    ),
    OptimizerEntry("RAdam", (*_ADAM, _DECOUPLED, *_UNFUSED, _CAPTURABLE), _passed_to(radam)),
    OptimizerEntry(
        "Adadelta",
        (*parameters(lr=1.0, rho=0.9, eps=1e-6, weight_decay=0), *_UNFUSED, _CAPTURABLE),
        _passed_to(adadelta),
    ),
    OptimizerEntry(
        "Rprop",
        (*parameters(lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50)), _CAPTURABLE, *_UNFUSED),
        _passed_to(rprop),
    ),
    OptimizerEntry(
        "ASGD",
        (
            *parameters(lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0),
            *_UNFUSED,
            _CAPTURABLE,
        ),
        _passed_to(asgd),
    ),
    OptimizerEntry(
        "Adafactor",
        (
            *parameters(lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0),
            Parameter("foreach", None, checks.flag),
            Parameter("maximize", False),
        ),
        _adafactor,
    ),
    OptimizerEntry(
        "Muon",
        parameters(
            lr=1e-3,
            weight_decay=0.1,
            momentum=0.95,
            nesterov=True,
            ns_coefficients=(3.4445, -4.775, 2.0315),
            eps=1e-7,
            ns_steps=5,
            adjust_lr_fn=None,
        ),
        _muon,
    ),
)
OPTIMIZERS = {entry.name: entry for entry in _ENTRIES}

"""The optimizers of torch 2.13."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
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
    parameters_of,
)


def _passed_to(make: Callable[..., UpdateRule]) -> RuleOfArguments:
    """The builder that passes the arguments of the formula on to a rule of the library."""
    return lambda given: make(**_mathematics(given))


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
_DECOUPLED = Parameter("decoupled_weight_decay", False)


def _entry(
    name: str,
    make: Callable[..., UpdateRule],
    *switches: Parameter,
    build: RuleOfArguments | None = None,
    group_entries: Mapping[str, Any] = MappingProxyType({}),
) -> OptimizerEntry:
    """A class whose arguments are those of the library's rule, and switches."""
    return OptimizerEntry(
        name, (*parameters_of(make), *switches), build or _passed_to(make), group_entries
    )


_ENTRIES = (
    _entry("SGD", sgd, *_SWITCHES),
    _entry("Adam", adam, *_SWITCHES, _CAPTURABLE, _DECOUPLED, build=_adam),
    _entry("AdamW", adamw, *_SWITCHES, _CAPTURABLE, group_entries={"decoupled_weight_decay": True}),
    _entry("RMSprop", rmsprop, _CAPTURABLE, *_UNFUSED),
    _entry("Adagrad", adagrad, *_SWITCHES),
    _entry("Adamax", adamax, *_UNFUSED, _CAPTURABLE),
    _entry("NAdam", nadam, *_UNFUSED, _CAPTURABLE),
    _entry("RAdam", radam, *_UNFUSED, _CAPTURABLE),
    _entry("Adadelta", adadelta, *_UNFUSED, _CAPTURABLE),
    _entry("Rprop", rprop, _CAPTURABLE, *_UNFUSED),
    _entry("ASGD", asgd, *_UNFUSED, _CAPTURABLE),
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

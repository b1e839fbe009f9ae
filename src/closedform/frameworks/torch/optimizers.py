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
from closedform.recipes import kit


def _passed_to(make: Callable[..., UpdateRule]) -> kit.RuleOfArguments:
    """The builder that passes the arguments of the formula on to a rule of the library."""
    return lambda given: make(**_mathematics(given))


def _adam(given: Mapping[str, Any]) -> UpdateRule:
    arguments = _mathematics(given)
    decoupled = kit.checks.flag(
        arguments.pop("decoupled_weight_decay"), "decoupled_weight_decay", "torch > Adam"
    )
    return (adamw if decoupled else adam)(**arguments)


def _adafactor(given: Mapping[str, Any]) -> UpdateRule:
    arguments = _mathematics(given)
    arguments["clip_threshold"] = arguments.pop("d")
    arguments["decay_rate"] = -kit.checks.number(
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
_CAPTURABLE = kit.Parameter("capturable", False, kit.checks.flag)
_UNFUSED = (
    kit.Parameter("maximize", False),
    kit.Parameter("foreach", None, kit.checks.flag),
    kit.Parameter("differentiable", False, kit.checks.flag),
)
_SWITCHES = (*_UNFUSED, kit.Parameter("fused", None, kit.checks.flag))
_DECOUPLED = kit.Parameter("decoupled_weight_decay", False)


def _entry(
    name: str,
    make: Callable[..., UpdateRule],
    *switches: kit.Parameter,
    build: kit.RuleOfArguments | None = None,
    group_entries: Mapping[str, Any] = MappingProxyType({}),
) -> kit.OptimizerEntry:
    """A class whose arguments are those of the library's rule, and switches."""
    return kit.OptimizerEntry(
        name, (*kit.parameters_of(make), *switches), build or _passed_to(make), group_entries
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
    kit.OptimizerEntry(
        "Adafactor",
        (
            *kit.parameters(lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0),
            kit.Parameter("foreach", None, kit.checks.flag),
            kit.Parameter("maximize", False),
        ),
        _adafactor,
    ),
    kit.OptimizerEntry(
        "Muon",
        kit.parameters(
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

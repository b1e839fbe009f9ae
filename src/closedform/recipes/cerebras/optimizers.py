"""The optimizers of cerebras.pytorch 2.10.

Its running float32 powers of the betas (states ``beta1_power``, ``beta2_power``) are derived from
the step here, and are no states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.errors import DefinitionError
from closedform.language import UpdateRule
from closedform.optimizers import (
    adadelta,
    adafactor,
    adagrad,
    adam,
    adamax,
    adamw,
    asgd,
    lamb,
    lion,
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


def _nadam(given: Mapping[str, Any]) -> UpdateRule:
    return nadam(**given)


def _nadam_as_implemented(given: Mapping[str, Any]) -> UpdateRule:
    return nadam(**given, doubled_factor=True)


def _radam(given: Mapping[str, Any]) -> UpdateRule:
    return radam(**given)


def _adadelta(given: Mapping[str, Any]) -> UpdateRule:
    return adadelta(**given)


def _lamb(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    is_adam = checks.flag(arguments.pop("adam"), "adam", "cerebras > Lamb")
    return lamb(**arguments, correct_bias=False, trust_ratio=not is_adam)


def _rprop(given: Mapping[str, Any]) -> UpdateRule:
    return rprop(**given)


def _asgd(given: Mapping[str, Any]) -> UpdateRule:
    return asgd(**given)


def _adafactor(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    for name in ("relative_step", "warmup_init"):
        if checks.flag(arguments.pop(name), name, "cerebras > Adafactor"):
            raise DefinitionError(
                f"Adafactor has no {name}, got True",
                where="cerebras > Adafactor",
                hint="schedule lr: the step here reads nothing else",
            )
    arguments["decay_rate"] = -checks.number(
        arguments["decay_rate"], "decay_rate", "cerebras > Adafactor"
    )
    arguments["beta1"] = 0 if arguments["beta1"] is None else arguments["beta1"]
    return adafactor(**arguments, relative_step=False)


def _muon(given: Mapping[str, Any]) -> UpdateRule:
    return muon(**given, **_MUON_FORM)


def _muon_as_implemented(given: Mapping[str, Any]) -> UpdateRule:
    return muon(**given, **_MUON_FORM, lost_buffer=True)


_MUON_FORM: Mapping[str, Any] = {
    "lookahead": "sum",
    "scale": "match_rms_adamw",
    "decay": "scaled",
    "floor": "added",
    "precision": "bf16",
}
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

_WEIGHT_DECAY = Parameter("weight_decay", 0.0)
_MAXIMIZE = Parameter("maximize", False)
_NADAM = (
    Parameter("lr", 2e-3),
    Parameter("betas", (0.9, 0.999)),
    Parameter("eps", 1e-8),
    _WEIGHT_DECAY,
    Parameter("momentum_decay", 4e-3),
)
_MUON = (
    Parameter("lr", 0.02),
    Parameter("weight_decay", 0.01),
    Parameter("momentum", 0.95),
    Parameter("nesterov", True),
    Parameter("ns_steps", 5),
)
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
    OptimizerEntry("NAdam", _NADAM, _nadam),
    OptimizerEntry("RAdam", _ADAM, _radam),
    OptimizerEntry(
        "Adadelta",
        (
            Parameter("lr", 1.0),
            Parameter("rho", 0.9),
            Parameter("eps", 1e-6),
            _WEIGHT_DECAY,
            _MAXIMIZE,
        ),
        _adadelta,
    ),
    OptimizerEntry("Lamb", (*_ADAM, Parameter("adam", False)), _lamb),
    OptimizerEntry(
        "Rprop",
        (
            Parameter("lr", 1e-3),
            Parameter("etas", (0.5, 1.2)),
            Parameter("step_sizes", (1e-6, 50.0)),
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
            _MAXIMIZE,
        ),
        _asgd,
    ),
    OptimizerEntry(
        "Adafactor",
        (
            Parameter("lr"),
            Parameter("eps", (1e-30, 1e-3)),
            Parameter("clip_threshold", 1.0),
            Parameter("decay_rate", -0.8),
            Parameter("beta1", None),
            _WEIGHT_DECAY,
            Parameter("scale_parameter", True),
            Parameter("relative_step", False),
            Parameter("warmup_init", False),
        ),
        _adafactor,
    ),
    OptimizerEntry("Muon", _MUON, _muon),
)
OPTIMIZERS = {entry.name: entry for entry in (*_ENTRIES, *_MORE_ENTRIES)}
"""Entries that ``frameworks.optimizer`` does not list yet."""

AS_IMPLEMENTED = {
    "NAdam": OptimizerEntry("NAdam", _NADAM, _nadam_as_implemented),
    "Muon": OptimizerEntry("Muon", _MUON, _muon_as_implemented),
}
"""Entries that reproduce a defect of the system, in the place of those above."""

"""The optimizers of cerebras.pytorch 2.10.

The running float32 powers of the betas that it keeps (``beta1_power``, ``beta2_power``) are not
states here: they are derived from the step.
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
from closedform.recipes.entries import REQUIRED, OptimizerEntry, parameters, passed_to


def _lamb(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    is_adam = checks.flag(arguments.pop("adam"), "adam", "cerebras > Lamb")
    return lamb(**arguments, correct_bias=False, trust_ratio=not is_adam)


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


_ADAM = parameters(lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
_NADAM = parameters(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3)
_MUON = parameters(lr=0.02, weight_decay=0.01, momentum=0.95, nesterov=True, ns_steps=5)
_MUON_FORM: Mapping[str, Any] = {
    "lookahead": "sum",
    "scale": "match_rms_adamw",
    "decay": "scaled",
    "floor": "added",
    "precision": "bf16",
}
_ENTRIES = (
    OptimizerEntry(
        "SGD",
        parameters(
            lr=REQUIRED,
            momentum=0,
            dampening=0,
            weight_decay=0,
            nesterov=False,
            maximize=False,
        ),
        passed_to(sgd, first_momentum="dampened"),
    ),
    OptimizerEntry(
        "Adam",
        (*_ADAM, *parameters(amsgrad=False)),
        passed_to(adam, eps_added="before_correction"),
    ),
    OptimizerEntry(
        "AdamW",
        (*_ADAM, *parameters(correct_bias=True, amsgrad=False)),
        passed_to(adamw, eps_added="before_correction"),
    ),
    OptimizerEntry(
        "RMSprop",
        parameters(lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False),
        passed_to(rmsprop),
    ),
    OptimizerEntry(
        "Adagrad",
        parameters(
            lr=1e-2,
            lr_decay=0.0,
            weight_decay=0.0,
            initial_accumulator_value=0.0,
            eps=1e-6,
            maximize=False,
        ),
        passed_to(adagrad),
    ),
    OptimizerEntry(
        "Lion", parameters(lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0), passed_to(lion)
    ),
    OptimizerEntry("Adamax", (*_ADAM, *parameters(maximize=False)), passed_to(adamax)),
    OptimizerEntry("NAdam", _NADAM, passed_to(nadam)),
    OptimizerEntry("RAdam", _ADAM, passed_to(radam)),
    OptimizerEntry(
        "Adadelta",
        parameters(lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False),
        passed_to(adadelta),
    ),
    OptimizerEntry("Lamb", (*_ADAM, *parameters(adam=False)), _lamb),
    OptimizerEntry(
        "Rprop", parameters(lr=1e-3, etas=(0.5, 1.2), step_sizes=(1e-6, 50.0)), passed_to(rprop)
    ),
    OptimizerEntry(
        "ASGD",
        parameters(lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0.0, maximize=False),
        passed_to(asgd),
    ),
    OptimizerEntry(
        "Adafactor",
        parameters(
            lr=REQUIRED,
            eps=(1e-30, 1e-3),
            clip_threshold=1.0,
            decay_rate=-0.8,
            beta1=None,
            weight_decay=0.0,
            scale_parameter=True,
            relative_step=False,
            warmup_init=False,
        ),
        _adafactor,
    ),
    OptimizerEntry("Muon", _MUON, passed_to(muon, **_MUON_FORM)),
)
OPTIMIZERS = {entry.name: entry for entry in _ENTRIES}

AS_IMPLEMENTED = {
    "NAdam": OptimizerEntry("NAdam", _NADAM, passed_to(nadam, doubled_factor=True)),
    "Muon": OptimizerEntry("Muon", _MUON, passed_to(muon, **_MUON_FORM, lost_buffer=True)),
}
"""The classes whose implementation differs from their documented formula, as implemented."""

"""The optimizers of cerebras.pytorch 2.10.

The running float32 powers of the betas that it keeps (``beta1_power``, ``beta2_power``) are not
states here: they are derived from the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from closedform.recipes import kit


def _lamb(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    is_adam = kit.checks.flag(arguments.pop("adam"), "adam", "cerebras > Lamb")
    return lamb(**arguments, correct_bias=False, trust_ratio=not is_adam)


def _adafactor(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    for name in ("relative_step", "warmup_init"):
        if kit.checks.flag(arguments.pop(name), name, "cerebras > Adafactor"):
            raise DefinitionError(
                f"Adafactor has no {name}, got True",
                where="cerebras > Adafactor",
                hint="schedule lr: the step here reads nothing else",
            )
    arguments["decay_rate"] = -kit.checks.number(
        arguments["decay_rate"], "decay_rate", "cerebras > Adafactor"
    )
    arguments["beta1"] = 0 if arguments["beta1"] is None else arguments["beta1"]
    return adafactor(**arguments, relative_step=False)


_MAXIMIZE = kit.Parameter("maximize", False)
_MUON = kit.parameters(lr=0.02, weight_decay=0.01, momentum=0.95, nesterov=True, ns_steps=5)
_MUON_FORM: Mapping[str, Any] = {
    "lookahead": "sum",
    "scale": "match_rms_adamw",
    "decay": "scaled",
    "floor": "added",
    "matrix_axes": "first",
    "precision": "bf16",
}
_NADAM = kit.parameters_of(nadam, "decoupled_weight_decay")
_EPS_BEFORE = {"eps_added": "before_correction"}


def _entry(
    name: str,
    make: Callable[..., UpdateRule],
    *more: kit.Parameter,
    build: kit.RuleOfArguments | None = None,
    left_out: tuple[str, ...] = (),
    **changes: object,
) -> kit.OptimizerEntry:
    """A class whose arguments are those of the library's rule, with these changes, and more."""
    parameters = (*kit.parameters_of(make, *left_out, **changes), *more)
    return kit.OptimizerEntry(name, parameters, build or kit.passed_to(make))


_ENTRIES = (
    _entry(
        "SGD", sgd, _MAXIMIZE, build=kit.passed_to(sgd, first_momentum="dampened"), lr=kit.REQUIRED
    ),
    _entry("Adam", adam, build=kit.passed_to(adam, **_EPS_BEFORE), eps=1e-6),
    _entry(
        "AdamW",
        adamw,
        *kit.parameters(correct_bias=True, amsgrad=False),
        build=kit.passed_to(adamw, **_EPS_BEFORE),
        left_out=("amsgrad",),
        eps=1e-6,
        weight_decay=0.0,
    ),
    _entry("RMSprop", rmsprop),
    _entry("Adagrad", adagrad, _MAXIMIZE, eps=1e-6),
    _entry("Lion", lion),
    _entry("Adamax", adamax, _MAXIMIZE, lr=1e-3, eps=1e-6),
    kit.OptimizerEntry("NAdam", _NADAM, kit.passed_to(nadam)),
    _entry("RAdam", radam, left_out=("decoupled_weight_decay",), eps=1e-6),
    _entry("Adadelta", adadelta, _MAXIMIZE),
    _entry("Lamb", lamb, kit.Parameter("adam", False), build=_lamb),
    _entry("Rprop", rprop, lr=1e-3),
    _entry("ASGD", asgd, _MAXIMIZE),
    _entry(
        "Adafactor",
        adafactor,
        *kit.parameters(scale_parameter=True, relative_step=False, warmup_init=False),
        build=_adafactor,
        lr=kit.REQUIRED,
        decay_rate=-0.8,
        beta1=None,
    ),
    kit.OptimizerEntry("Muon", _MUON, kit.passed_to(muon, **_MUON_FORM)),
)
OPTIMIZERS = {entry.name: entry for entry in _ENTRIES}

AS_IMPLEMENTED = {
    "NAdam": kit.OptimizerEntry("NAdam", _NADAM, kit.passed_to(nadam, doubled_factor=True)),
    "Muon": kit.OptimizerEntry("Muon", _MUON, kit.passed_to(muon, **_MUON_FORM, lost_buffer=True)),
}
"""The classes whose implementation differs from their documented formula, as implemented."""

"""The optimizers of transformers 5.23 that are its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, UpdateRule, t
from closedform.optimizers import adafactor
from closedform.recipes import checks
from closedform.recipes.entries import OptimizerEntry, parameters, parameters_of

_WHERE = "huggingface > Adafactor"


def _adafactor(given: Mapping[str, Any]) -> UpdateRule:
    arguments = dict(given)
    is_relative = checks.flag(arguments["relative_step"], "relative_step", _WHERE)
    is_warmed = checks.flag(arguments.pop("warmup_init"), "warmup_init", _WHERE)
    if is_relative and arguments["lr"] is not None:
        raise DefinitionError(
            f"with relative_step the step sets lr itself, got lr {arguments['lr']!r}",
            where=_WHERE,
            hint="leave lr out, or give relative_step=False",
        )
    if is_warmed and not is_relative:
        raise DefinitionError(
            "warmup_init needs relative_step, got False", where=_WHERE, hint="leave one of them out"
        )
    if is_relative:
        arguments["lr"] = _warmup() if is_warmed else sp.Rational(1, 100)
    arguments["decay_rate"] = -checks.number(arguments["decay_rate"], "decay_rate", _WHERE)
    arguments["beta1"] = 0 if arguments["beta1"] is None else arguments["beta1"]
    return adafactor(**arguments)


def _warmup() -> Schedule:
    """The ceiling of a relative step that begins at 1e-6 and grows by that at each step."""
    return Schedule((t + 1) / sp.Integer(10) ** 6)


_PARAMETERS = (
    *parameters_of(adafactor, lr=None, decay_rate=-0.8, beta1=None),
    *parameters(scale_parameter=True, relative_step=True, warmup_init=False),
)
OPTIMIZERS = {"Adafactor": OptimizerEntry("Adafactor", _PARAMETERS, _adafactor)}
"""Entries of ``frameworks.optimizer``."""

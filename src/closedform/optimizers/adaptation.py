"""Shared by Prodigy and D-Adaptation: Adam at a learning rate that is a state of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.language import GRAD, PARAM, hyper, shared, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameter, hyperparameters, two_betas
from closedform.optimizers.formulas import decoupled, with_penalty

SIZE = shared("d")
"""The estimate d of the distance to the solution, before the step."""


@dataclass(frozen=True, slots=True)
class AdaptedAdam:
    """The arguments that these rules have of Adam.

    Attributes:
        values: The hyperparameters, checked, by name.
        gradient: The gradient, with the penalty unless the decay is decoupled.
        rate: The learning rate δ = d η κ of the step, κ the bias corrections of Adam or 1.
        is_decoupled: Whether the decay acts on the parameter.
    """

    values: dict[str, Any]
    gradient: sp.Expr
    rate: sp.Expr
    is_decoupled: bool

    def moved(self, change: sp.Expr) -> sp.Expr:
        """Returns the parameter after a change, and its decoupled decay."""
        param = PARAM - change
        if not self.is_decoupled:
            return param
        return param - decoupled(self.values["weight_decay"], PARAM, self.rate)


def adapted_adam(
    where: str,
    lr: Hyper,
    betas: Sequence[Hyper],
    eps: Hyper,
    weight_decay: Hyper,
    decoupled_weight_decay: bool,
    use_bias_correction: bool,
) -> AdaptedAdam:
    """Returns the arguments of Adam, checked.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.
    """
    values = hyperparameters(
        where, lr=lr, **two_betas(betas, where), eps=eps, weight_decay=weight_decay
    )
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", where)
    gradient = GRAD if is_decoupled else with_penalty(GRAD, values["weight_decay"])
    rate = SIZE * hyper("lr")
    if flag(use_bias_correction, "use_bias_correction", where):
        first, second = (1 - hyper(beta) ** (t + 1) for beta in ("beta1", "beta2"))
        rate = rate * sp.sqrt(second) / first
    return AdaptedAdam(values, gradient, rate, is_decoupled)


def bounded_growth(
    estimate: sp.Expr, size: sp.Expr, growth_rate: Hyper, values: dict[str, Any], where: str
) -> sp.Expr:
    """Returns the estimate, at most ``growth_rate`` times another; any where the rate is None.

    Raises:
        DefinitionError: The rate is a number below 1.
    """
    if growth_rate is None:
        return estimate
    values["growth_rate"] = hyperparameter(growth_rate, "growth_rate", where, at_least=1)
    return sp.Min(estimate, size * hyper("growth_rate"))

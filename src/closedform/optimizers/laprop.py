"""LaProp: Adam that takes the mean of the scaled gradient, not the scaled mean."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameters, two_betas
from closedform.optimizers.formulas import decoupled, rule_of, weighted


def laprop(
    lr: Hyper = 4e-4,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-15,
    weight_decay: Hyper = 0,
) -> UpdateRule:
    r"""Returns LaProp.

    .. math::
        v' &= \beta_2 v + (1 - \beta_2) g^2 \\
        m' &= \beta_1 m + (1 - \beta_1) \frac{g}{\sqrt{v' / c_2} + \epsilon} \\
        p' &= (1 - \eta \lambda) \left(p - \eta\, m' / c_1\right), \quad c_i = 1 - \beta_i^{t + 1}

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> list(laprop().states), list(laprop().hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Ziyin et al. (2020), algorithm 1, with the decay of the authors' code, which shrinks the
    parameter after the step. ``LaProp`` of timm 1.0 keeps η m in its state: the same for a constant
    η, and another trajectory where η is scheduled.
    """
    values = hyperparameters(
        "laprop", lr=lr, **two_betas(betas, "laprop"), eps=eps, weight_decay=weight_decay
    )
    mean_square = weighted(state("exp_avg_sq"), GRAD**2, hyper("beta2"))
    size = sp.sqrt(mean_square) / sp.sqrt(1 - hyper("beta2") ** (t + 1)) + hyper("eps")
    mean = weighted(state("exp_avg"), GRAD / size, hyper("beta1"))
    param = PARAM - hyper("lr") / (1 - hyper("beta1") ** (t + 1)) * mean
    param = param - decoupled(values["weight_decay"], param)
    states = {"exp_avg": State(mean), "exp_avg_sq": State(mean_square)}
    return rule_of("laprop", param, states, values)

"""Lamb: Adam with a step proportional to the norm of the parameter."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, reduce_sum, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameters, is_zero, two_betas
from closedform.optimizers.formulas import rule_of, weighted
from closedform.optimizers.formulas import square as squared


def lamb(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    *,
    correct_bias: bool = True,
    trust_ratio: bool = True,
    largest_norm: Hyper = 10,
) -> UpdateRule:
    r"""Returns Lamb.

    .. math::
        m' &= \beta_1 m + (1 - \beta_1) g \\
        v' &= \beta_2 v + (1 - \beta_2) g^2 \\
        u &= \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon} + \lambda p,
        \quad c_i = 1 - \beta_i^{t+1} \\
        p' &= p - \eta\, r\, u, \quad r = \begin{cases}
        \min(\lVert p \rVert, \phi) / \lVert u \rVert
        & \lVert p \rVert > 0 \text{ and } \lVert u \rVert > 0 \\
        1 & \text{otherwise} \end{cases}

    The norms are over the whole parameter tensor.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a tensor with an element whose gradients
            were all 0 is not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        correct_bias: False replaces c₁ and c₂ by 1 (cerebras, and the paper's first versions).
        trust_ratio: False replaces r by 1: Adam.
        largest_norm: The bound φ >= 0 of the parameter's norm.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> lamb(correct_bias=False, trust_ratio=False).param
        -lr*(beta1*state.exp_avg + grad*(1 - beta1))/(eps + sqrt(...)) + param

    Source: You et al. (2020), version 3, algorithm 2. ``Lamb`` of cerebras.pytorch 2.10, without
    bias correction; its ``adam`` is ``trust_ratio=False``. torch has none.
    """
    values = hyperparameters(
        "lamb",
        lr=lr,
        **two_betas(betas, "lamb"),
        eps=eps,
        weight_decay=weight_decay,
        largest_norm=largest_norm,
    )
    # Not a blend: where the two terms cancel, a blend keeps the rounding of their difference.
    mean = weighted(state("exp_avg"), GRAD, hyper("beta1"))
    square = weighted(state("exp_avg_sq"), GRAD**2, hyper("beta2"))
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    if flag(correct_bias, "correct_bias", "lamb"):
        mean = mean / (1 - hyper("beta1") ** (t + 1))
        square = square / (1 - hyper("beta2") ** (t + 1))
    direction = mean / (sp.sqrt(square) + hyper("eps"))
    if not is_zero(values["weight_decay"]):
        direction = direction + hyper("weight_decay") * PARAM
    ratio = _trust_ratio(direction) if flag(trust_ratio, "trust_ratio", "lamb") else 1
    return rule_of("lamb", PARAM - hyper("lr") * ratio * direction, states, values)


def _trust_ratio(direction: sp.Expr) -> sp.Expr:
    weight = sp.Min(sp.sqrt(reduce_sum(PARAM**2)), hyper("largest_norm"))
    step = sp.sqrt(reduce_sum(squared(direction)))
    return sp.Piecewise((weight / step, sp.And(weight > 0, step > 0)), (1, True))

"""Adan: adaptive Nesterov momentum from the differences of gradients."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import choice, hyperparameters, is_zero, three_betas
from closedform.optimizers.formulas import blend, rule_of, square, weighted

DECAYS = ("proximal", "decoupled")


def adan(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.98, 0.92, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    decay: str = "proximal",
) -> UpdateRule:
    r"""Returns Adan.

    .. math::
        \delta &= g - g_{-1}, \quad 0 \text{ at the first step} \\
        m' &= m + (1 - \beta_1)(g - m) \\
        d' &= \beta_2 d + (1 - \beta_2)\, \delta \\
        n' &= \beta_3 n + (1 - \beta_3)(g + \beta_2 \delta)^2 \\
        u &= \frac{m' / c_1 + \beta_2 d' / c_2}{\sqrt{n' / c_3} + \epsilon},
        \quad c_i = 1 - \beta_i^{t + 1} \\
        p' &= \frac{p - \eta u}{1 + \eta \lambda}
        \text{ or, decoupled, } p - \eta u - \eta \lambda p

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_diff`` d,
    ``exp_avg_sq`` n, ``pre_grad``, the last gradient.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁, β₂ and β₃, numbers in [0, 1). The paper writes 1 - β for them.
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decay: ``"proximal"`` or ``"decoupled"``, see the formula.

    Raises:
        DefinitionError: A number out of its range, not three betas, or an unknown choice.

    Example:
        >>> list(adan().states)
        ['exp_avg', 'exp_avg_diff', 'exp_avg_sq', 'pre_grad']

    Source: Xie et al. (2022), algorithm 1; the authors' code and ``Adan`` of timm 1.0
    (``no_prox`` for the decoupled form), which keep -g of the last step as ``neg_pre_grad``.
    """
    values = hyperparameters(
        "adan",
        lr=lr,
        **three_betas(betas, "adan", "(0.98, 0.92, 0.99)"),
        eps=eps,
        weight_decay=weight_decay,
    )
    choice(decay, "decay", "adan", DECAYS)
    beta1, beta2, beta3 = hyper("beta1"), hyper("beta2"), hyper("beta3")
    change = sp.Piecewise((0, sp.Eq(t, 0)), (GRAD - state("pre_grad"), True))
    mean = blend(state("exp_avg"), GRAD, beta1)
    mean_change = weighted(state("exp_avg_diff"), change, beta2)
    mean_square = weighted(state("exp_avg_sq"), square(GRAD + beta2 * change), beta3)
    size = sp.sqrt(mean_square) / sp.sqrt(1 - beta3 ** (t + 1)) + hyper("eps")
    direction = mean / (1 - beta1 ** (t + 1)) + beta2 / (1 - beta2 ** (t + 1)) * mean_change
    param = PARAM - hyper("lr") * (direction / size)
    if not is_zero(values["weight_decay"]):
        rate = hyper("lr") * hyper("weight_decay")
        # As a term of its own: 1/(1 + rate), rounded to float32, would lose a decay below 6e-8.
        shrunk = rate / (1 + rate) * param if decay == "proximal" else rate * PARAM
        param = param - shrunk
    states = {
        "exp_avg": State(mean),
        "exp_avg_diff": State(mean_change),
        "exp_avg_sq": State(mean_square),
        "pre_grad": State(GRAD),
    }
    return rule_of("adan", param, states, values)

"""RAdam: Adam that waits until the variance of its denominator is known."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameters, two_betas
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled,
    rectification,
    rule_of,
    weighted,
    with_penalty,
)


def radam(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns rectified Adam.

    .. math::
        g' &= \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2 \\
        \rho_\infty &= \frac{2}{1 - \beta_2} - 1, \quad
        \rho = \rho_\infty - \frac{2 (t + 1) \beta_2^{t+1}}{1 - \beta_2^{t+1}} \\
        p' &= p - \frac{\eta}{1 - \beta_1^{t+1}}\, m' \begin{cases}
        \sqrt{\frac{(\rho - 4)(\rho - 2) \rho_\infty}
        {(\rho_\infty - 4)(\rho_\infty - 2) \rho}}
        \frac{\sqrt{1 - \beta_2^{t+1}}}{\sqrt{v'} + \epsilon} & \rho > 5 \\
        1 & \text{otherwise} \end{cases}

    The two ρ are scalars from the step; their difference cancels, so in float32 the branch may
    flip at another step: it is computed in the scalar dtype, float64 by default. With
    ``decoupled_weight_decay`` the penalty leaves the gradient, and ηλp is taken from p.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1). With β₂ <= 2/3 the
            branch ρ > 5 is never taken.
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the first rectified step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(radam().states), list(radam().hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Liu et al. (2020), whose threshold is ρ > 4, without ε; both frameworks take 5.
        ``RAdam``
    of torch 2.13 (eps 1e-8) and of cerebras.pytorch 2.10 (eps 1e-6, no ``maximize``, no decoupled
    decay; it computes ρ in float32).
    """
    values = hyperparameters(
        "radam", lr=lr, **two_betas(betas, "radam"), eps=eps, weight_decay=weight_decay
    )
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "radam")
    gradient = ascent_or_descent(maximize, "radam")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    beta2 = hyper("beta2")
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    square = weighted(state("exp_avg_sq"), gradient**2, beta2)
    correction = 1 - beta2 ** (t + 1)
    length, rectified = rectification(beta2, 5)
    adapted = rectified * sp.sqrt(correction) / (sp.sqrt(square) + hyper("eps"))
    scale = sp.Piecewise((adapted, length > 5), (1, True))
    if _is_never_rectified(values["beta2"]):
        scale = sp.Integer(1)
    param = PARAM - hyper("lr") / (1 - hyper("beta1") ** (t + 1)) * mean * scale
    if is_decoupled:
        param = param - decoupled(values["weight_decay"])
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    return rule_of("radam", param, states, values)


def _is_never_rectified(beta2: Hyper) -> bool:
    """Whether the limit of the length is 5 or less."""
    return isinstance(beta2, sp.Expr) and bool(beta2 <= sp.Rational(2, 3))

"""Adam and AdamW: adaptive moments, with the choices in which frameworks differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import choice, flag, hyperparameters, two_betas
from closedform.optimizers.formulas import ascent_or_descent, decoupled, rule_of, with_penalty

EPS_ADDED = ("after_correction", "before_correction")


def adam(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    correct_bias: bool = True,
    eps_added: str = "after_correction",
) -> UpdateRule:
    r"""Returns Adam, with weight decay as an L2 penalty in the gradient.

    .. math::
        g' &= \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2 \\
        p' &= p - \eta\, \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon},
        \quad c_i = 1 - \beta_i^{t + 1}

    With ``eps_added="before_correction"`` the quotient is √c₂/c₁ · m' / (√v' + ε), the rearranged
    form at the end of section 2 of the paper: its ε acts like ε/√c₂ above, 31.6 times as much at
    the first step for β₂ = 0.999.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v, and with
    ``amsgrad`` ``max_exp_avg_sq``, the largest v' so far, uncorrected, which takes its place in p'.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        amsgrad: Whether to divide by the largest second moment so far.
        maximize: Whether to ascend: the gradient enters with a minus.
        correct_bias: False replaces c₁ and c₂ by 1.
        eps_added: Where ε is added to the root of the second moment: ``"after_correction"`` (torch)
            or ``"before_correction"`` (cerebras).

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown choice.

    Example:
        >>> rule = adam(lr=1e-3, correct_bias=False)
        >>> rule.param
        -lr*(state.exp_avg + (1 - beta1)*(grad - state.exp_avg))/(eps + sqrt(...)) + param
        >>> list(rule.states), list(rule.hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Kingma and Ba (2015), algorithm 1; Reddi et al. (2018) for AMSGrad, which both
        frameworks
    use with bias correction; ``Adam`` of torch 2.13 (eps 1e-8) and of cerebras.pytorch 2.10
    (eps 1e-6, always corrected; its float32 running powers of β are derived from t here).
    """
    values = _checked("adam", lr, betas, eps, weight_decay)
    choice(eps_added, "eps_added", "adam", EPS_ADDED)
    ratio, states = _moments(
        with_penalty(ascent_or_descent(maximize, "adam"), values["weight_decay"]),
        amsgrad=flag(amsgrad, "amsgrad", "adam"),
        correct_bias=flag(correct_bias, "correct_bias", "adam"),
        eps_added=eps_added,
    )
    return rule_of("adam", PARAM - hyper("lr") * ratio, states, values)


def adamw(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    correct_bias: bool = True,
    eps_added: str = "after_correction",
) -> UpdateRule:
    r"""Returns Adam with decoupled weight decay.

    .. math:: p' = p - \eta \left(\frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon} + \lambda p\right)

    with m', v' and the corrections of :func:`adam` for the bare gradient. The states are those of
    :func:`adam`.

    Args:
        lr: As in :func:`adam`.
        betas: As in :func:`adam`.
        eps: As in :func:`adam`.
        weight_decay: The factor λ >= 0; the parameter shrinks by η λ of itself. The number 0 leaves
            the term out.
        amsgrad: As in :func:`adam`.
        maximize: Whether to ascend; the weight decay shrinks as before.
        correct_bias: As in :func:`adam`.
        eps_added: As in :func:`adam`.

    Raises:
        DefinitionError: As in :func:`adam`.

    Example:
        >>> rule = adamw(lr=None, weight_decay=0.1)
        >>> rule.hyperparameters
        {'lr': None, 'beta1': 9/10, 'beta2': 999/1000, 'eps': 1/100000000, 'weight_decay': 1/10}

    Source: Loshchilov and Hutter (2019); there the decay is multiplied by the schedule alone, not
    by η. ``AdamW`` of torch 2.13 (weight decay 1e-2, eps 1e-8; it multiplies p by 1 - ηλ first, the
    same mathematics) and of cerebras.pytorch 2.10 (weight decay 0, eps 1e-6).
    """
    values = _checked("adamw", lr, betas, eps, weight_decay)
    choice(eps_added, "eps_added", "adamw", EPS_ADDED)
    ratio, states = _moments(
        ascent_or_descent(maximize, "adamw"),
        amsgrad=flag(amsgrad, "amsgrad", "adamw"),
        correct_bias=flag(correct_bias, "correct_bias", "adamw"),
        eps_added=eps_added,
    )
    param = PARAM - hyper("lr") * ratio - decoupled(values["weight_decay"])
    return rule_of("adamw", param, states, values)


def _moments(
    gradient: sp.Expr, *, amsgrad: bool, correct_bias: bool, eps_added: str
) -> tuple[sp.Expr, dict[str, State]]:
    """The step for a learning rate of 1, and the states."""
    beta1, beta2, eps = hyper("beta1"), hyper("beta2"), hyper("eps")
    # The first moment is written as a blend: the weights of a blend sum to 1 in float32, too.
    mean = state("exp_avg") + (1 - beta1) * (gradient - state("exp_avg"))
    square = beta2 * state("exp_avg_sq") + (1 - beta2) * gradient**2
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    largest = square
    if amsgrad:
        largest = sp.Max(state("max_exp_avg_sq"), square)
        states["max_exp_avg_sq"] = State(largest)
    if not correct_bias:
        return mean / (sp.sqrt(largest) + eps), states
    correction1 = 1 - beta1 ** (t + 1)
    correction2 = sp.sqrt(1 - beta2 ** (t + 1))
    if eps_added == "before_correction":
        return correction2 / correction1 * mean / (sp.sqrt(largest) + eps), states
    return mean / correction1 / (sp.sqrt(largest) / correction2 + eps), states


def _checked(
    where: str, lr: Hyper, betas: Sequence[Hyper], eps: Hyper, weight_decay: Hyper
) -> dict[str, Any]:
    return hyperparameters(
        where, lr=lr, **two_betas(betas, where), eps=eps, weight_decay=weight_decay
    )

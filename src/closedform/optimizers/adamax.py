"""Adamax: Adam with the decayed largest gradient in place of the second moment."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameters, two_betas
from closedform.optimizers.formulas import ascent_or_descent, blend, rule_of, with_penalty


def adamax(
    lr: Hyper = 2e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adamax.

    .. math::
        g' &= \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        n' &= \max(\beta_2 n, |g'| + \epsilon) \\
        p' &= p - \frac{\eta}{1 - \beta_1^{t + 1}} \frac{m'}{n'}

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_inf`` n.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ of the mean and β₂ of the largest gradient, numbers in [0, 1).
        eps: The least value ε >= 0 of n'. With 0, a parameter whose gradients were all 0 is not a
            number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> adamax().states["exp_inf"].next
        Max(beta2*state.exp_inf, eps + Abs(grad))

    Source: Kingma and Ba (2015), algorithm 2, without ε. ``Adamax`` of torch 2.13 (lr 2e-3, eps
    1e-8) and of cerebras.pytorch 2.10 (lr 1e-3, eps 1e-6; its float32 running power of β₁ is
    derived from t here): one formula.
    """
    values = hyperparameters(
        "adamax", lr=lr, **two_betas(betas, "adamax"), eps=eps, weight_decay=weight_decay
    )
    gradient = with_penalty(ascent_or_descent(maximize, "adamax"), values["weight_decay"])
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    largest = sp.Max(hyper("beta2") * state("exp_inf"), sp.Abs(gradient) + hyper("eps"))
    rate = hyper("lr") / (1 - hyper("beta1") ** (t + 1))
    states = {"exp_avg": State(mean), "exp_inf": State(largest)}
    return rule_of("adamax", PARAM - rate * mean / largest, states, values)

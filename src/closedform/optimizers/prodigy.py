"""Prodigy: Adam that finds the size of its learning rate from sums over the whole model."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import (
    PARAM,
    Shared,
    State,
    UpdateRule,
    global_sum,
    hyper,
    shared,
    state,
)
from closedform.language.aliases import Hyper, Number
from closedform.optimizers.adaptation import SIZE, adapted_adam, bounded_growth
from closedform.optimizers.arguments import flag, hyperparameter, number
from closedform.optimizers.formulas import rule_of


def prodigy(
    lr: Hyper = 1.0,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    beta3: Hyper = None,
    decoupled_weight_decay: bool = True,
    use_bias_correction: bool = False,
    safeguard_warmup: bool = False,
    d0: Number = 1e-6,
    d_coef: Hyper = 1,
    growth_rate: Hyper = None,
) -> UpdateRule:
    r"""Returns Prodigy.

    .. math::
        \delta &= d\, \eta\, \kappa, \quad
        \kappa = \sqrt{1 - \beta_2^{t+1}} / (1 - \beta_1^{t+1}) \text{ or } 1 \\
        m' &= \beta_1 m + (1 - \beta_1)\, d\, g \\
        v' &= \beta_2 v + (1 - \beta_2)\, d^2 g^2 \\
        s' &= \beta_3 s + \tfrac{d}{d_0} \delta\, g \\
        r' &= \beta_3 r + \tfrac{d}{d_0} \delta \sum g\, (p_0 - p) \\
        \hat d &= c\, r' / \sum |s'| \\
        D' &= \max(D, \hat d), \quad d' = \min(D', \gamma d) \\
        p' &= p - \delta \frac{m'}{\sqrt{v'} + d' \epsilon} - \delta \lambda p

    The sums are over all elements of all parameters. While d is d₀ it may grow to d̂ at once; with
    all gradients 0 so far, d stays. Without ``decoupled_weight_decay`` the last term is gone and λp
    is added to the gradient. With ``safeguard_warmup`` d replaces δ in s'.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v, ``s``;
    ``p0``, initially the parameter. States of the model: ``d`` and ``d_max`` D, initially d₀,
    ``d_numerator`` r, initially 0.

    Args:
        lr: The factor η >= 0 of the rate that is found: 1, or a Schedule that falls from 1. As the
            other hyperparameters except d₀: a number, a Schedule, or None for an input of the
            graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        beta3: The decay rate β₃ of s and r; None for the root of β₂.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        use_bias_correction: Whether κ is the corrections of Adam.
        safeguard_warmup: Whether the learning rate stays out of the estimate.
        d0: The first estimate d₀ > 0, a number.
        d_coef: The factor c of the estimate.
        growth_rate: The most that d grows by in a step, γ >= 1; None for any.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(prodigy().states), list(prodigy().shared)
        (['exp_avg', 'exp_avg_sq', 's', 'p0'], ['d', 'd_max', 'd_numerator'])

    Source: Mishchenko and Defazio (2023), algorithm 4; ``Prodigy`` of prodigyopt 1.1, which leaves
    everything as it is while all gradients were 0, its step included.
    """
    adam = adapted_adam(
        "prodigy", lr, betas, eps, weight_decay, decoupled_weight_decay, use_bias_correction
    )
    values, gradient, rate, size = adam.values, adam.gradient, adam.rate, SIZE
    values["d0"] = number(d0, "d0", "prodigy")
    values["d_coef"] = hyperparameter(d_coef, "d_coef", "prodigy")
    beta1, beta2, slow = hyper("beta1"), hyper("beta2"), sp.sqrt(hyper("beta2"))
    if beta3 is not None:
        values["beta3"] = hyperparameter(beta3, "beta3", "prodigy", below=1)
        slow = hyper("beta3")
    growth = size / hyper("d0")
    weight = growth * (size if flag(safeguard_warmup, "safeguard_warmup", "prodigy") else rate)
    mean = beta1 * state("exp_avg") + size * (1 - beta1) * gradient
    mean_square = beta2 * state("exp_avg_sq") + size**2 * (1 - beta2) * gradient**2
    path = slow * state("s") + weight * gradient
    distance = global_sum(gradient * (state("p0") - PARAM))
    numerator = slow * shared("d_numerator") + growth * rate * distance
    denominator = global_sum(sp.Abs(path))
    estimate = hyper("d_coef") * numerator / denominator
    is_known = denominator > 0
    largest = sp.Piecewise((sp.Max(shared("d_max"), estimate), is_known), (shared("d_max"), True))
    following = largest
    if growth_rate is not None:
        jumped = sp.Piecewise((sp.Max(size, estimate), sp.Eq(size, hyper("d0"))), (size, True))
        grown = bounded_growth(largest, jumped, growth_rate, values, "prodigy")
        following = sp.Piecewise((grown, is_known), (size, True))
    return rule_of(
        "prodigy",
        adam.moved(rate * (mean / (sp.sqrt(mean_square) + following * hyper("eps")))),
        {
            "exp_avg": State(mean),
            "exp_avg_sq": State(mean_square),
            "s": State(path),
            "p0": State(state("p0"), PARAM),
        },
        values,
        shared={
            "d": Shared(following, values["d0"]),
            "d_max": Shared(largest, values["d0"]),
            "d_numerator": Shared(
                sp.Piecewise((numerator, is_known), (shared("d_numerator"), True))
            ),
        },
    )

"""D-Adaptation: learning rates found from a lower bound of the distance to the solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.language import (
    GRAD,
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
from closedform.optimizers.arguments import hyperparameter, hyperparameters, number
from closedform.optimizers.formulas import rule_of, weighted, with_penalty


def d_adapt_adam(
    lr: Hyper = 1.0,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    decoupled_weight_decay: bool = False,
    use_bias_correction: bool = False,
    d0: Number = 1e-6,
    growth_rate: Hyper = None,
) -> UpdateRule:
    r"""Returns Adam with D-Adaptation.

    .. math::
        \delta &= d\, \eta\, \kappa, \quad
        \kappa = \sqrt{1 - \beta_2^{t+1}} / (1 - \beta_1^{t+1}) \text{ or } 1 \\
        m' &= \beta_1 m + (1 - \beta_1)\, \delta\, g \\
        v' &= \beta_2 v + (1 - \beta_2)\, g^2 \\
        s' &= b s + (1 - b)\, \delta\, g, \quad b = \sqrt{\beta_2} \\
        r' &= b r + (1 - b)\, \delta \sum \frac{g s}{\sqrt{v} + \epsilon} \\
        \hat d &= \frac{r'}{(1 - b) \sum |s'|}, \quad
        d' = \max(d, \min(\hat d, \gamma d)) \\
        p' &= p - \frac{m'}{\sqrt{v'} + \epsilon} - \delta \lambda p

    The sums are over all elements of all parameters; with all gradients 0 so far, d stays. Without
    ``decoupled_weight_decay`` the last term is gone and λp is added to the gradient.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v, ``s``.
    States of the model: ``d``, initially d₀, ``numerator_weighted`` r, initially 0.

    Args:
        lr: The factor η >= 0 of the rate that is found. As the other hyperparameters except d₀: a
            number, a Schedule, or None for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        use_bias_correction: Whether κ is the corrections of Adam.
        d0: The first estimate d₀ > 0, a number.
        growth_rate: The most that d grows by in a step, γ >= 1; None for any.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(d_adapt_adam().states), list(d_adapt_adam().shared)
        (['exp_avg', 'exp_avg_sq', 's'], ['d', 'numerator_weighted'])

    Source: Defazio and Mishchenko (2023), algorithm 5; ``DAdaptAdam`` of dadaptation 3.2.
    """
    where = "d_adapt_adam"
    adam = adapted_adam(
        where, lr, betas, eps, weight_decay, decoupled_weight_decay, use_bias_correction
    )
    values, gradient, rate = adam.values, adam.gradient, adam.rate
    beta1, beta2, slow = hyper("beta1"), hyper("beta2"), sp.sqrt(hyper("beta2"))
    mean = beta1 * state("exp_avg") + (1 - beta1) * rate * gradient
    mean_square = weighted(state("exp_avg_sq"), gradient**2, beta2)
    path = slow * state("s") + (1 - slow) * rate * gradient
    before = sp.sqrt(state("exp_avg_sq")) + hyper("eps")
    agreement = rate * global_sum(gradient * state("s") / before)
    numerator = weighted(shared("numerator_weighted"), agreement, slow)
    length = global_sum(sp.Abs(path))
    size = _grown(numerator / ((1 - slow) * length), length, growth_rate, values, where)
    return rule_of(
        where,
        adam.moved(mean / (sp.sqrt(mean_square) + hyper("eps"))),
        {"exp_avg": State(mean), "exp_avg_sq": State(mean_square), "s": State(path)},
        values,
        shared={
            "d": Shared(size, number(d0, "d0", where)),
            "numerator_weighted": Shared(numerator),
        },
    )


def d_adapt_sgd(
    lr: Hyper = 1.0,
    momentum: Hyper = 0,
    weight_decay: Hyper = 0,
    *,
    d0: Number = 1e-6,
    growth_rate: Hyper = None,
) -> UpdateRule:
    r"""Returns SGD with D-Adaptation.

    .. math::
        G &= \sqrt{\sum g^2} \text{ of the first step with a gradient that is not } 0 \\
        \delta &= d\, \eta / G \\
        s' &= s + \delta\, g \\
        r' &= r + \delta \sum g s \\
        d' &= \max(d, \min(2 r' / \sqrt{\sum s'^2}, \gamma d)) \\
        p' &= \mu p + (1 - \mu)(p_0 - s')

    The sums are over all elements of all parameters; λp is added to the gradient g except in G.
    With all gradients 0 so far, δ is 0 and d stays.

    States, each of the parameter's shape: ``s``, initially 0, ``x0`` p₀, initially the parameter.
    States of the model: ``d``, initially d₀, ``numerator_weighted`` r and ``g0_norm`` G, initially
    0.

    Args:
        lr: The factor η >= 0 of the rate that is found. As the other hyperparameters except d₀: a
            number, a Schedule, or None for an input of the graph.
        momentum: The weight μ of the old parameter, in [0, 1).
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        d0: The first estimate d₀ > 0, a number.
        growth_rate: The most that d grows by in a step, γ >= 1; None for any.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(d_adapt_sgd().states), list(d_adapt_sgd().shared)
        (['s', 'x0'], ['d', 'numerator_weighted', 'g0_norm'])

    Source: Defazio and Mishchenko (2023), algorithm 4; ``DAdaptSGD`` of dadaptation 3.2, which
    divides by 0 where the first gradients are all 0.
    """
    where = "d_adapt_sgd"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        weight_decay=weight_decay,
    )
    gradient = with_penalty(GRAD, values["weight_decay"])
    first = sp.sqrt(global_sum(GRAD**2))
    norm = sp.Piecewise((first, sp.Eq(shared("g0_norm"), 0)), (shared("g0_norm"), True))
    rate = sp.Piecewise((0, sp.Eq(norm, 0)), (SIZE * hyper("lr") / norm, True))
    path = state("s") + rate * gradient
    numerator = shared("numerator_weighted") + rate * global_sum(gradient * state("s"))
    length = sp.sqrt(global_sum(path**2))
    size = _grown(2 * numerator / length, length, growth_rate, values, where)
    moved = state("x0") - path
    return rule_of(
        where,
        moved + hyper("momentum") * (PARAM - moved),
        {"s": State(path), "x0": State(state("x0"), PARAM)},
        values,
        shared={
            "d": Shared(size, number(d0, "d0", where)),
            "numerator_weighted": Shared(numerator),
            "g0_norm": Shared(norm),
        },
    )


def _grown(
    estimate: sp.Expr, length: sp.Expr, growth_rate: Hyper, values: dict[str, Any], where: str
) -> sp.Expr:
    """The next d: the estimate, if it is larger, and known."""
    bounded = bounded_growth(estimate, SIZE, growth_rate, values, where)
    return sp.Piecewise((sp.Max(SIZE, bounded), length > 0), (SIZE, True))

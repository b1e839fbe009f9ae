"""Learning rates found from sums over the whole model: D-Adaptation, Prodigy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    t,
)
from closedform.language.aliases import Hyper, Number
from closedform.language.arguments import flag, hyperparameter, hyperparameters, number
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import decoupled_decay, rule_of, weighted_mean, with_penalty

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

    def param_after(self, change: sp.Expr) -> sp.Expr:
        """Returns the parameter after a change, and its decoupled decay."""
        param = PARAM - change
        if not self.is_decoupled:
            return param
        return param - decoupled_decay(self.values["weight_decay"], PARAM, self.rate)


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
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
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


@rule_function
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
    # The rate is within the moment, not at the step: each gradient has the rate of its step.
    mean = beta1 * state("exp_avg") + (1 - beta1) * rate * gradient
    mean_square = weighted_mean(state("exp_avg_sq"), gradient**2, beta2)
    path = slow * state("s") + (1 - slow) * rate * gradient
    # The old moment: dadaptation forms the sum before it updates exp_avg_sq.
    before = sp.sqrt(state("exp_avg_sq")) + hyper("eps")
    agreement = rate * global_sum(gradient * state("s") / before)
    numerator = weighted_mean(shared("numerator_weighted"), agreement, slow)
    length = global_sum(sp.Abs(path))
    size = _next_estimate(numerator / ((1 - slow) * length), length, growth_rate, values, where)
    return rule_of(
        where,
        adam.param_after(mean / (sp.sqrt(mean_square) + hyper("eps"))),
        {"exp_avg": State(mean), "exp_avg_sq": State(mean_square), "s": State(path)},
        values,
        shared={
            "d": Shared(size, number(d0, "d0", where)),
            "numerator_weighted": Shared(numerator),
        },
    )


@rule_function
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
    # 0 stands for "no gradient so far": the first norm above 0 stays.
    norm = sp.Piecewise((first, sp.Eq(shared("g0_norm"), 0)), (shared("g0_norm"), True))
    rate = sp.Piecewise((0, sp.Eq(norm, 0)), (SIZE * hyper("lr") / norm, True))
    path = state("s") + rate * gradient
    numerator = shared("numerator_weighted") + rate * global_sum(gradient * state("s"))
    length = sp.sqrt(global_sum(path**2))
    size = _next_estimate(2 * numerator / length, length, growth_rate, values, where)
    next_param = state("x0") - path
    return rule_of(
        where,
        # Momentum as primal averaging: x' = (1 - μ) z + μ x with z = x0 - s'.
        next_param + hyper("momentum") * (PARAM - next_param),
        {"s": State(path), "x0": State(state("x0"), PARAM)},
        values,
        shared={
            "d": Shared(size, number(d0, "d0", where)),
            "numerator_weighted": Shared(numerator),
            "g0_norm": Shared(norm),
        },
    )


def _next_estimate(
    estimate: sp.Expr, length: sp.Expr, growth_rate: Hyper, values: dict[str, Any], where: str
) -> sp.Expr:
    """The next d: the estimate, if it is larger, and known."""
    bounded_size = bounded_growth(estimate, SIZE, growth_rate, values, where)
    # While all gradients were 0 the estimate is 0 / 0.
    return sp.Piecewise((sp.Max(SIZE, bounded_size), length > 0), (SIZE, True))


@rule_function
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
    r"""Returns Prodigy: Adam that finds its learning rate from sums over the whole model.

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
    # Moments in units of d and d²: gradients from before d grew weigh less.
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
        # prodigyopt: ``if d == d0: d = max(d, d_hat)``, so that the first growth is not bounded.
        first_size = sp.Piecewise((sp.Max(size, estimate), sp.Eq(size, hyper("d0"))), (size, True))
        next_size = bounded_growth(largest, first_size, growth_rate, values, "prodigy")
        following = sp.Piecewise((next_size, is_known), (size, True))
    return rule_of(
        "prodigy",
        adam.param_after(rate * (mean / (sp.sqrt(mean_square) + following * hyper("eps")))),
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

"""Adam with another first moment: AdEMAMix, Adan, MARS."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, reduce_sum, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import choice, decay_rates, hyperparameters, is_zero, whole
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    blend,
    decoupled_decay,
    rule_of,
    sign,
    square,
    weighted_mean,
)


@rule_function
def ademamix(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999, 0.9999),
    alpha: Hyper = 5,
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    alpha_steps: int | None = None,
    beta3_steps: int | None = None,
) -> UpdateRule:
    r"""Returns AdEMAMix: Adam with a second, much slower mean, its two schedules inside.

    .. math::
        m' &= m + (1 - \beta_1)(g - m) \\
        s' &= s + (1 - \beta_3^{(t)})(g - s) \\
        v' &= \beta_2 v + (1 - \beta_2) g^2 \\
        p' &= p - \eta \left(\frac{m' / c_1 + \alpha^{(t)} s'}{\sqrt{v' / c_2} + \epsilon}
        + \lambda p\right), \quad c_i = 1 - \beta_i^{t + 1} \\
        \alpha^{(t)} &= \alpha\, a, \quad a = \min(1, (t + 1) / T_\alpha) \\
        \ln \beta_3^{(t)} &= \frac{\ln \beta_1 \ln \beta_3}{(1 - b) \ln \beta_3 + b \ln \beta_1},
        \quad b = \min(1, (t + 1) / T_{\beta_3})

    The second schedule makes the half-life of s grow linearly. s is not corrected for its start.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_slow`` s,
    ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁, β₂ and β₃, numbers in [0, 1); with ``beta3_steps``, β₁ and β₃
            are numbers or Schedules above 0.
        alpha: The weight α >= 0 of the slow mean.
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        alpha_steps: The steps T_α in which α rises from 0, >= 1; None for α at once.
        beta3_steps: The steps T_β₃ in which β₃ rises from β₁, >= 1; None for β₃ at once.

    Raises:
        DefinitionError: A number out of its range, or not three betas.

    Example:
        >>> list(ademamix().states), list(ademamix().hyperparameters)[:4]
        (['exp_avg', 'exp_avg_slow', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'beta3'])

    Source: Pagliardini et al. (2024), algorithm 1; ``AdEMAMix`` of the authors (ml-ademamix) and of
    pytorch_optimizer 4.1 (one length for both schedules). ``ademamix`` of optax 0.2.8 takes any
    schedules, counted from 0: give those as Schedules.
    """
    values = hyperparameters(
        "ademamix",
        lr=lr,
        **decay_rates(betas, "ademamix", (0.9, 0.999, 0.9999)),
        alpha=alpha,
        eps=eps,
        weight_decay=weight_decay,
    )
    beta1, beta2, beta3 = hyper("beta1"), hyper("beta2"), hyper("beta3")
    slow_alpha = hyper("alpha")
    if alpha_steps is not None:
        slow_alpha = slow_alpha * _part(alpha_steps, "alpha_steps")
    if beta3_steps is not None:
        fast, slow = sp.log(beta1), sp.log(beta3)
        part = _part(beta3_steps, "beta3_steps")
        # 1 / ln β, which is proportional to the half-life, is interpolated: (1 - b) / ln β₁ + b /
        # ln β₃.
        beta3 = sp.exp(fast * slow / ((1 - part) * slow + part * fast))
    mean = blend(state("exp_avg"), GRAD, beta1)
    slow_mean = blend(state("exp_avg_slow"), GRAD, beta3)
    mean_square = weighted_mean(state("exp_avg_sq"), GRAD**2, beta2)
    size = sp.sqrt(mean_square) / sp.sqrt(1 - beta2 ** (t + 1)) + hyper("eps")
    direction = mean / (1 - beta1 ** (t + 1)) + slow_alpha * slow_mean
    param = PARAM - hyper("lr") * (direction / size) - decoupled_decay(values["weight_decay"])
    states = {
        "exp_avg": State(mean),
        "exp_avg_slow": State(slow_mean),
        "exp_avg_sq": State(mean_square),
    }
    return rule_of("ademamix", param, states, values)


def _part(steps: int, name: str) -> sp.Expr:
    """The part of a warmup that is done after this step."""
    return sp.Min(1, (t + 1) / whole(steps, name, "ademamix"))


DECAYS = ("proximal", "decoupled")


@rule_function
def adan(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.98, 0.92, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    decay: str = "proximal",
) -> UpdateRule:
    r"""Returns Adan: adaptive Nesterov momentum from the differences of gradients.

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
        **decay_rates(betas, "adan", (0.98, 0.92, 0.99)),
        eps=eps,
        weight_decay=weight_decay,
    )
    choice(decay, "decay", "adan", DECAYS)
    beta1, beta2, beta3 = hyper("beta1"), hyper("beta2"), hyper("beta3")
    change = sp.Piecewise((0, sp.Eq(t, 0)), (GRAD - state("pre_grad"), True))
    mean = blend(state("exp_avg"), GRAD, beta1)
    mean_change = weighted_mean(state("exp_avg_diff"), change, beta2)
    mean_square = weighted_mean(state("exp_avg_sq"), square(GRAD + beta2 * change), beta3)
    size = sp.sqrt(mean_square) / sp.sqrt(1 - beta3 ** (t + 1)) + hyper("eps")
    direction = mean / (1 - beta1 ** (t + 1)) + beta2 / (1 - beta2 ** (t + 1)) * mean_change
    param = PARAM - hyper("lr") * (direction / size)
    if not is_zero(values["weight_decay"]):
        rate = hyper("lr") * hyper("weight_decay")
        # As a separate term: 1/(1 + rate), rounded to float32, would lose a decay below 6e-8.
        shrunk = rate / (1 + rate) * param if decay == "proximal" else rate * PARAM
        param = param - shrunk
    states = {
        "exp_avg": State(mean),
        "exp_avg_diff": State(mean_change),
        "exp_avg_sq": State(mean_square),
        "pre_grad": State(GRAD),
    }
    return rule_of("adan", param, states, values)


FORMS = ("adamw", "lion")


@rule_function
def mars(
    lr: Hyper = 3e-3,
    betas: Sequence[Hyper] = (0.95, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    gamma: Hyper = 0.025,
    *,
    form: str = "adamw",
) -> UpdateRule:
    r"""Returns MARS, with the step of AdamW or of Lion.

    .. math::
        c &= g + \gamma \frac{\beta_1}{1 - \beta_1} (g - g_{-1}), \quad c = g
        \text{ at the first step} \\
        \tilde c &= c / \max(1, \lVert c \rVert) \\
        m' &= \beta_1 m + (1 - \beta_1) \tilde c \\
        v' &= \beta_2 v + (1 - \beta_2) \tilde c^2 \\
        p' &= p - \eta (u + \lambda p), \quad
        u = \frac{m' / (1 - \beta_1^{t+1})}{\sqrt{v' / (1 - \beta_2^{t+1})} + \epsilon}
        \text{ or } \operatorname{sign} m'

    This is the approximate form, with the gradient of the last step in place of the last
    parameters' gradient on the new batch.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v (not for
    ``"lion"``), ``last_grad``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator, for ``"adamw"``.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        gamma: The strength γ >= 0 of the correction.
        form: ``"adamw"`` or ``"lion"``: the step u.

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown form.

    Example:
        >>> list(mars().states), list(mars(form="lion").states)
        (['exp_avg', 'exp_avg_sq', 'last_grad'], ['exp_avg', 'last_grad'])

    Source: Yuan et al. (2024), algorithms 2 and 3; there the first difference is 0. ``Mars`` of
    timm 1.0 (betas 0.9 and 0.99). Both give vectors to AdamW: that is another rule for their group.
    The authors' code takes the first difference from a gradient of 0.
    """
    values = hyperparameters(
        "mars", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, gamma=gamma
    )
    choice(form, "form", "mars", FORMS)
    beta1, beta2 = hyper("beta1"), hyper("beta2")
    strength = hyper("gamma") * beta1 / (1 - beta1)
    change = sp.Piecewise((0, sp.Eq(t, 0)), (GRAD - state("last_grad"), True))
    correction = GRAD + strength * change
    clipped_gradient = correction / sp.Max(1, sp.sqrt(reduce_sum(square(correction))))
    mean = weighted_mean(state("exp_avg"), clipped_gradient, beta1)
    states = {"exp_avg": State(mean)}
    direction = sign(mean)
    if form == "adamw":
        mean_square = weighted_mean(state("exp_avg_sq"), square(clipped_gradient), beta2)
        states["exp_avg_sq"] = State(mean_square)
        size = sp.sqrt(mean_square) / sp.sqrt(1 - beta2 ** (t + 1)) + hyper("eps")
        direction = mean / (1 - beta1 ** (t + 1)) / size
    states["last_grad"] = State(GRAD)
    param = PARAM - hyper("lr") * direction - decoupled_decay(values["weight_decay"])
    return rule_of("mars", param, states, values)

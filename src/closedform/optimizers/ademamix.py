"""AdEMAMix: Adam with a second, much slower mean of the gradient."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameters, three_betas, whole
from closedform.optimizers.formulas import blend, decoupled, rule_of, weighted


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
    r"""Returns AdEMAMix, its two schedules inside.

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
        **three_betas(betas, "ademamix", "(0.9, 0.999, 0.9999)"),
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
        beta3 = sp.exp(fast * slow / ((1 - part) * slow + part * fast))
    mean = blend(state("exp_avg"), GRAD, beta1)
    slow_mean = blend(state("exp_avg_slow"), GRAD, beta3)
    mean_square = weighted(state("exp_avg_sq"), GRAD**2, beta2)
    size = sp.sqrt(mean_square) / sp.sqrt(1 - beta2 ** (t + 1)) + hyper("eps")
    direction = mean / (1 - beta1 ** (t + 1)) + slow_alpha * slow_mean
    param = PARAM - hyper("lr") * (direction / size) - decoupled(values["weight_decay"])
    states = {
        "exp_avg": State(mean),
        "exp_avg_slow": State(slow_mean),
        "exp_avg_sq": State(mean_square),
    }
    return rule_of("ademamix", param, states, values)


def _part(steps: int, name: str) -> sp.Expr:
    """The part of a warmup that is done after this step."""
    return sp.Min(1, (t + 1) / whole(steps, name, "ademamix"))

"""Schedule-Free: the average of the iterates in place of a decaying learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import GRAD, PARAM, Shared, State, UpdateRule, hyper, shared, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    decay_rates,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    whole,
)
from closedform.language.rule_functions import rule_function
from closedform.language.settled import construct
from closedform.optimizers.formulas import rectification, rule_of, weighted_mean, with_penalty


@rule_function
def schedule_free_sgd(
    lr: Hyper = 1.0,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0,
    *,
    warmup_steps: int = 0,
    weight_exponent: Hyper = 0,
    rate_exponent: Hyper = 2,
) -> UpdateRule:
    r"""Returns Schedule-Free SGD.

    .. math::
        \eta_t &= \eta \min(1, (t + 1) / w), \quad
        \hat\eta' = \max(\hat\eta, \eta_t) \\
        S' &= S + W, \quad W = (t + 1)^r \hat\eta'^q, \quad c = W / S' \\
        u &= g + \lambda y \\
        z' &= z - \eta_t u \\
        y' &= y + c (z - y) - \eta_t (1 - \beta (1 - c))\, u \\
        x &= y + (1 - 1 / \beta)(z - y)

    The parameter is y, at which gradients are taken; the model is evaluated at x, the weighted
    average of the z.

    State: ``z``, shape of the parameter, initially the parameter. States of the model:
    ``lr_max`` η̂ and ``weight_sum`` S, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here except the steps: a number, a
            Schedule, or None for an input of the graph.
        momentum: The weight β of x in y, above 0 and below 1.
        weight_decay: The factor λ >= 0 of the decay, taken at y; the number 0 leaves the term out.
        warmup_steps: The steps w >= 0 in which the learning rate rises.
        weight_exponent: The exponent r of the step in the weights of the average.
        rate_exponent: The exponent q of the largest learning rate so far in those weights.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> rule = schedule_free_sgd()
        >>> rule.evaluation
        param + (1 - 1/momentum)*(-param + state.z)

    Source: Defazio et al. (2024), algorithm 1; ``SGDScheduleFree`` of schedulefree 1.4 (its ``r``
    and ``weight_lr_power``), whose ``eval()`` makes y into x in place.
    """
    where = "schedule_free_sgd"
    values = {
        **_common(lr, weight_decay, weight_exponent, rate_exponent, where),
        "momentum": _inside(momentum, "momentum", where),
    }
    rate = hyper("lr") * _warmup(warmup_steps, where)
    direction = with_penalty(GRAD, values["weight_decay"])
    return _averaged_rule(where, rate, direction, hyper("momentum"), {}, values)


@rule_function
def schedule_free_adamw(
    lr: Hyper = 2.5e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    warmup_steps: int = 0,
    weight_exponent: Hyper = 0,
    rate_exponent: Hyper = 2,
) -> UpdateRule:
    r"""Returns Schedule-Free AdamW.

    .. math::
        v' &= \beta_2 v + (1 - \beta_2) g^2 \\
        u &= \frac{g}{\sqrt{v' / (1 - \beta_2^{t+1})} + \epsilon} + \lambda y

    in the place of u of :func:`schedule_free_sgd`, with β = β₁.

    States: ``exp_avg_sq`` v, shape of the parameter, initially 0, and the states of
    :func:`schedule_free_sgd`.

    Args:
        lr: As in :func:`schedule_free_sgd`.
        betas: The weight β₁ of x in y, above 0 and below 1, and the decay rate β₂ in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: As in :func:`schedule_free_sgd`.
        warmup_steps: As in :func:`schedule_free_sgd`.
        weight_exponent: As in :func:`schedule_free_sgd`.
        rate_exponent: As in :func:`schedule_free_sgd`.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> rule = schedule_free_adamw()
        >>> list(rule.states), list(rule.shared)
        (['exp_avg_sq', 'z'], ['lr_max', 'weight_sum'])

    Source: Defazio et al. (2024), section 4; ``AdamWScheduleFree`` of schedulefree 1.4.
    """
    where = "schedule_free_adamw"
    values = {
        **_common(lr, weight_decay, weight_exponent, rate_exponent, where),
        **_adaptive(betas, eps, where),
    }
    mean_square = weighted_mean(state("exp_avg_sq"), GRAD**2, hyper("beta2"))
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1))
    normalized_gradient = GRAD / (sp.sqrt(mean_square) / correction + hyper("eps"))
    direction = with_penalty(normalized_gradient, values["weight_decay"])
    rate = hyper("lr") * _warmup(warmup_steps, where)
    states = {"exp_avg_sq": State(mean_square)}
    return _averaged_rule(where, rate, direction, hyper("beta1"), states, values)


@rule_function
def schedule_free_radam(
    lr: Hyper = 2.5e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    weight_exponent: Hyper = 0,
    rate_exponent: Hyper = 2,
    silent_sgd_phase: bool = True,
) -> UpdateRule:
    r"""Returns Schedule-Free RAdam: rectification in place of a warmup.

    While the length ρ of :func:`radam` is at most 4, u of :func:`schedule_free_adamw` is g + λy and
    the learning rate is 0, or η without ``silent_sgd_phase``; then the rate is η times the
    rectification of :func:`radam`.

    States: as in :func:`schedule_free_adamw`.

    Args:
        lr: As in :func:`schedule_free_sgd`.
        betas: As in :func:`schedule_free_adamw`; with β₂ <= 0.6 nothing is ever rectified.
        eps: As in :func:`schedule_free_adamw`.
        weight_decay: As in :func:`schedule_free_sgd`.
        weight_exponent: As in :func:`schedule_free_sgd`.
        rate_exponent: As in :func:`schedule_free_sgd`.
        silent_sgd_phase: Whether nothing moves before rectification.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(schedule_free_radam().states)
        ['exp_avg_sq', 'z']

    Source: ``RAdamScheduleFree`` of schedulefree 1.4.
    """
    where = "schedule_free_radam"
    values = {
        **_common(lr, weight_decay, weight_exponent, rate_exponent, where),
        **_adaptive(betas, eps, where),
    }
    is_silent = flag(silent_sgd_phase, "silent_sgd_phase", where)
    beta2 = hyper("beta2")
    mean_square = weighted_mean(state("exp_avg_sq"), GRAD**2, beta2)
    normalized_gradient = GRAD / (
        sp.sqrt(mean_square) / sp.sqrt(1 - beta2 ** (t + 1)) + hyper("eps")
    )
    length, factor = rectification(beta2, 4)
    base_direction = sp.Piecewise((normalized_gradient, length > 4), (GRAD, True))
    direction = with_penalty(base_direction, values["weight_decay"])
    rate = hyper("lr") * sp.Piecewise((factor, length > 4), (0 if is_silent else 1, True))
    states = {"exp_avg_sq": State(mean_square)}
    return _averaged_rule(where, rate, direction, hyper("beta1"), states, values)


def _averaged_rule(
    name: str,
    rate: sp.Expr,
    direction: sp.Expr,
    weight: sp.Expr,
    states: dict[str, State],
    values: dict[str, Any],
) -> UpdateRule:
    """The average around a base step of this rate and direction."""
    largest = construct(sp.Max, shared("lr_max"), rate)
    share = largest ** hyper("rate_exponent")
    if not is_zero(values["weight_exponent"]):
        share = share * (t + 1) ** hyper("weight_exponent")
    total = shared("weight_sum") + share
    # The sum is 0 as long as the learning rate is.
    part = sp.Piecewise((share / total, total > 0), (0, True))
    base = state("z")
    # y' = (1 - β) z' + β x' with x' = (1 - c) x + c z', solved for y so that x needs no state.
    change = rate * (1 - weight * (1 - part))
    return rule_of(
        name,
        PARAM + part * (base - PARAM) - change * direction,
        {**states, "z": State(base - rate * direction, PARAM)},
        values,
        shared={"lr_max": Shared(largest), "weight_sum": Shared(total)},
        # x = (y - (1 - β) z) / β.
        evaluation=PARAM + (1 - 1 / weight) * (base - PARAM),
    )


def _common(lr: Hyper, decay: Hyper, exponent: Hyper, power: Hyper, where: str) -> dict[str, Any]:
    return hyperparameters(
        where, lr=lr, weight_decay=decay, weight_exponent=exponent, rate_exponent=power
    )


def _adaptive(betas: Sequence[Hyper], eps: Hyper, where: str) -> dict[str, Any]:
    rates = decay_rates(betas, where)
    _inside(rates["beta1"], "betas[0]", where)
    return {**rates, "eps": hyperparameter(eps, "eps", where)}


def _inside(value: Hyper, name: str, where: str) -> Any:
    """A weight that is not 0: the point of evaluation divides by it."""
    rate = hyperparameter(value, name, where, below=1)
    if is_zero(rate):
        raise DefinitionError(f"{name} must be above 0, got {value!r}", where=where)
    return rate


def _warmup(steps: int, where: str) -> sp.Expr:
    length = whole(steps, "warmup_steps", where, at_least=0)
    return sp.Min(1, (t + 1) / sp.Integer(length)) if length else sp.Integer(1)

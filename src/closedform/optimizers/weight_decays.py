"""Decoupled weight decay with a separate rate: of Composer, AdamC and AdamS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    PARAM,
    GlobalSum,
    Schedule,
    State,
    UpdateRule,
    global_sum,
    hyper,
    state,
    t,
)
from closedform.language.aliases import Hyper, Number
from closedform.language.arguments import (
    choice,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    number,
)
from closedform.language.rule_functions import rule_function
from closedform.optimizers.adam import EPS_ADDED, adam_moments
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled_decay,
    rule_of,
    sign,
    weighted_mean,
)
from closedform.optimizers.sgd import check_nesterov, next_momentum


@rule_function
def decoupled_adamw(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.95),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-5,
    amsgrad: bool = False,
    *,
    initial_lr: Number | None = None,
) -> UpdateRule:
    r"""Returns AdamW whose weight decay follows the schedule, and not the size of the rate.

    .. math:: p' = p - \eta \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon}
        - \frac{\eta}{\eta_0} \lambda p

    with m', v' and the corrections of :func:`adam`. The states are the same as in :func:`adam`.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0 of the parameter at the rate η₀; the number 0 leaves the
            term out.
        amsgrad: As in :func:`adam`.
        initial_lr: The rate η₀ >= 0 before the schedule; None for ``lr`` itself, which must then
            be a number. With 0 the decay is λ at every step.

    Raises:
        DefinitionError: A number out of its range, not two betas, or no ``initial_lr`` with a
            rate that is not a number.

    Example:
        >>> from closedform.schedules import linear
        >>> rule = decoupled_adamw(lr=linear(2e-4, 0, 100), initial_lr=2e-4)
        >>> rule.hyperparameters["initial_lr"]
        1/5000

    Source: Loshchilov and Hutter (2019), algorithm 2, whose η_t is η/η₀; ``DecoupledAdamW`` of
    Composer.
    """
    where = "decoupled_adamw"
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    ratio, states = adam_moments(
        GRAD,
        amsgrad=flag(amsgrad, "amsgrad", where),
        correct_bias=True,
        eps_added="after_correction",
    )
    part = relative_rate(values, initial_lr, where)
    param = PARAM - hyper("lr") * ratio - decoupled_decay(values["weight_decay"], rate=part)
    return rule_of(where, param, states, values)


@rule_function
def decoupled_sgdw(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0,
    dampening: Hyper = 0,
    weight_decay: Hyper = 0,
    nesterov: bool = False,
    *,
    initial_lr: Number | None = None,
) -> UpdateRule:
    r"""Returns SGD whose weight decay follows the schedule, and not the size of the rate.

    .. math:: p' = p - \eta\, d - \frac{\eta}{\eta_0} \lambda p

    with the momentum and the direction d of :func:`sgd` for the bare gradient.

    State, where there is a momentum: ``momentum_buffer``, as in :func:`sgd`.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: As in :func:`sgd`.
        dampening: As in :func:`sgd`.
        weight_decay: The factor λ >= 0 of the parameter at the rate η₀; the number 0 leaves the
            term out.
        nesterov: As in :func:`sgd`.
        initial_lr: As in :func:`decoupled_adamw`.

    Raises:
        DefinitionError: As in :func:`sgd` and :func:`decoupled_adamw`.

    Example:
        >>> decoupled_sgdw(lr=0.1, weight_decay=1e-4).param
        -grad*lr - param*weight_decay + param

    Source: Loshchilov and Hutter (2019), algorithm 1; ``DecoupledSGDW`` of Composer.
    """
    where = "decoupled_sgdw"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=momentum,
        dampening=hyperparameter(dampening, "dampening", where, at_least=None),
        weight_decay=weight_decay,
    )
    if flag(nesterov, "nesterov", where):
        check_nesterov(values["momentum"], values["dampening"], where)
    part = relative_rate(values, initial_lr, where)
    direction: sp.Expr = GRAD
    states = {}
    if not is_zero(values["momentum"]):
        is_dampened = not is_zero(values["dampening"])
        buffer = next_momentum(GRAD, is_dampened=is_dampened, first="gradient")
        states["momentum_buffer"] = State(buffer)
        direction = GRAD + hyper("momentum") * buffer if nesterov else buffer
    param = PARAM - hyper("lr") * direction - decoupled_decay(values["weight_decay"], rate=part)
    return rule_of(where, param, states, values)


@rule_function
def decoupled_lionw(
    lr: Hyper = 1e-4,
    betas: Sequence[Hyper] = (0.9, 0.99),
    weight_decay: Hyper = 0,
    *,
    initial_lr: Number | None = None,
) -> UpdateRule:
    r"""Returns Lion whose weight decay follows the schedule, and not the size of the rate.

    .. math::
        p' &= p - \eta \operatorname{sign}(\beta_1 m + (1 - \beta_1) g)
        - \frac{\eta}{\eta_0} \lambda p \\
        m' &= \beta_2 m + (1 - \beta_2) g

    State: ``exp_avg`` m, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ of the step and β₂ of the mean, numbers in [0, 1).
        weight_decay: The factor λ >= 0 of the parameter at the rate η₀; the number 0 leaves the
            term out.
        initial_lr: As in :func:`decoupled_adamw`.

    Raises:
        DefinitionError: As in :func:`decoupled_adamw`.

    Example:
        >>> list(decoupled_lionw(weight_decay=0.1).hyperparameters)
        ['lr', 'beta1', 'beta2', 'weight_decay']

    Source: Chen et al. (2023); ``DecoupledLionW`` of Composer and llm-foundry.
    """
    where = "decoupled_lionw"
    values = hyperparameters(where, lr=lr, betas=betas, weight_decay=weight_decay)
    part = relative_rate(values, initial_lr, where)
    direction = sign(weighted_mean(state("exp_avg"), GRAD, hyper("beta1")))
    param = PARAM - hyper("lr") * direction - decoupled_decay(values["weight_decay"], rate=part)
    mean = weighted_mean(state("exp_avg"), GRAD, hyper("beta2"))
    return rule_of(where, param, {"exp_avg": State(mean)}, values)


@rule_function
def adamc(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.1,
    amsgrad: bool = False,
    *,
    max_lr: Number | None = None,
    maximize: bool = False,
    eps_added: str = "after_correction",
) -> UpdateRule:
    r"""Returns AdamC: AdamW with the decay of layers that a normalization follows.

    .. math:: p' = p - \eta \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon}
        - \frac{\eta^2}{\eta_{max}} \lambda p

    with m', v' and the corrections of :func:`adam`. The states are as in :func:`adam`. Layers
    without a normalization, such as the last one, take :func:`adamw`: a separate group.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        amsgrad: As in :func:`adam`.
        max_lr: The largest rate of the schedule; None for ``lr`` itself, which must then be a
            number: without a schedule it is AdamW.
        maximize: Whether to ascend; the weight decay shrinks as before.
        eps_added: As in :func:`adam`.

    Raises:
        DefinitionError: A number out of its range, an unknown choice, or no ``max_lr`` with a
            rate that is not a number.

    Example:
        >>> from closedform.schedules import linear
        >>> rule = adamc(lr=linear(0.01, 0, 100), max_lr=0.01)
        >>> list(rule.hyperparameters)
        ['lr', 'beta1', 'beta2', 'eps', 'weight_decay', 'max_lr']

    Source: Defazio, Why gradients rapidly increase near the end of training (2025), algorithm 1;
    ``AdamC`` of pytorch_optimizer 4.1 with ``normalized=True``, which adds ε before the correction.
    """
    where = "adamc"
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    choice(eps_added, "eps_added", where, EPS_ADDED)
    ratio, states = adam_moments(
        ascent_or_descent(maximize, where),
        amsgrad=flag(amsgrad, "amsgrad", where),
        correct_bias=True,
        eps_added=eps_added,
    )
    part = hyper("lr") * relative_rate(values, max_lr, where, "max_lr")
    param = PARAM - hyper("lr") * ratio - decoupled_decay(values["weight_decay"], rate=part)
    return rule_of(where, param, states, values)


@rule_function
def adams(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-4,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns AdamS: Adam with stable weight decay, as strong as the mean step.

    .. math::
        p' = p - \eta \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon}
        - \frac{\eta \lambda}{\sqrt{\bar v} + \epsilon}\, p, \qquad
        \bar v = \operatorname{mean} \frac{v'}{c_2}

    with m', v' and the corrections of :func:`adam`; the mean is over all elements of all
    parameters. The states are the same as in :func:`adam`.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of both denominators.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        maximize: Whether to ascend; the weight decay shrinks as before.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> list(adams().states), list(adams().hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps', 'weight_decay'])

    Source: Xie et al., On the overlooked pitfalls of weight decay and how to mitigate them (2023),
    algorithm 3; ``AdamS`` of pytorch_optimizer 4.1.
    """
    where = "adams"
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    ratio, states = adam_moments(
        ascent_or_descent(maximize, where),
        amsgrad=False,
        correct_bias=True,
        eps_added="after_correction",
    )
    param = PARAM - hyper("lr") * ratio
    if not is_zero(values["weight_decay"]):
        mean_square = states["exp_avg_sq"].next / (1 - hyper("beta2") ** (t + 1))
        # The sum of 1 over all elements is their number.
        mean = global_sum(mean_square) / GlobalSum(1)
        rate = hyper("lr") / (sp.sqrt(mean) + hyper("eps"))
        param = param - decoupled_decay(values["weight_decay"], rate=rate)
    return rule_of(where, param, states, values)


def relative_rate(
    values: dict[str, Any], largest: Number | None, where: str, name: str = "initial_lr"
) -> sp.Expr:
    """Returns the rate as a part of that before the schedule, whose value is added to the values.

    Raises:
        DefinitionError: The rate is not a number, and no other is given.
    """
    rate = values["lr"]
    if largest is None:
        if rate is None or isinstance(rate, Schedule):
            raise DefinitionError(
                f"{name} must be given where lr is not a number",
                where=where,
                hint="it is the rate before the schedule",
            )
        return sp.Integer(1)
    first = number(largest, name, where)
    # Composer: ``decay_factor = (lr / initial_lr) if initial_lr else 1.0``.
    if first == 0:
        return sp.Integer(1)
    values[name] = first
    return hyper("lr") / hyper(name, positive=True)

"""Steps scaled by the norms of their layer: LARS, Lamb, NovoGrad."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, local, reduce_sum, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import flag, hyperparameters, is_zero
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    norm,
    rule_of,
    weighted_mean,
    with_penalty,
)
from closedform.optimizers.formulas import square as squared


@rule_function
def lars(
    lr: Hyper = 1.0,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0,
    trust_coefficient: Hyper = 1e-3,
    eps: Hyper = 1e-8,
    nesterov: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns LARS: momentum with a rate for each layer, from norms of weights and gradients.

    .. math::
        r &= \begin{cases}
        \frac{\tau \lVert p \rVert}{\lVert g \rVert + \lambda \lVert p \rVert + \epsilon}
        & \lVert p \rVert > 0 \text{ and } \lVert g \rVert > 0 \\
        1 & \text{otherwise} \end{cases} \\
        b' &= \mu b + r (g + \lambda p) \\
        p' &= p - \eta\, b' \text{ or, with Nesterov, } p - \eta (r (g + \lambda p) + \mu b')

    The norms are over the whole parameter tensor.

    State, where there is a momentum: ``momentum_buffer`` b, the parameter's shape, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ >= 0; with the number 0 there is neither momentum nor state.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        trust_coefficient: The factor τ >= 0.
        eps: The term ε >= 0 of the denominator.
        nesterov: Whether to look one step ahead.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> list(lars().states), lars(momentum=0).param
        (['momentum_buffer'], -local.change*lr + param)

    Source: You, Gitman and Ginsburg (2017), algorithm 1, with the learning rate outside of the
    momentum, as SGD of torch has it. Biases and norms usually take SGD instead.
    """
    values = hyperparameters(
        "lars",
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        trust_coefficient=trust_coefficient,
        eps=eps,
    )
    gradient = ascent_or_descent(maximize, "lars")
    weight, slope = local("weight_norm"), local("grad_norm")
    below = slope + hyper("eps")
    if not is_zero(values["weight_decay"]):
        below = below + hyper("weight_decay") * weight
    ratio = hyper("trust_coefficient") * weight / below
    definitions = {
        "weight_norm": norm(PARAM),
        "grad_norm": norm(gradient),
        "ratio": sp.Piecewise((ratio, sp.And(weight > 0, slope > 0)), (1, True)),
        "change": local("ratio") * with_penalty(gradient, values["weight_decay"]),
    }
    direction = local("change")
    states = {}
    looks_ahead = flag(nesterov, "nesterov", "lars")
    if not is_zero(values["momentum"]):
        buffer = hyper("momentum") * state("momentum_buffer") + local("change")
        states["momentum_buffer"] = State(buffer)
        direction = local("change") + hyper("momentum") * buffer if looks_ahead else buffer
    return rule_of("lars", PARAM - hyper("lr") * direction, states, values, definitions=definitions)


@rule_function
def fromage(lr: Hyper = 1e-2, *, maximize: bool = False) -> UpdateRule:
    r"""Returns Fromage: steps as large as the weights, which the norm of the weights does not grow.

    .. math::
        p' &= \frac{p - \eta\, r g}{\sqrt{1 + \eta^2}}, \qquad
        r = \begin{cases} \lVert p \rVert / \lVert g \rVert
        & \lVert p \rVert > 0 \text{ and } \lVert g \rVert > 0 \\
        1 & \text{otherwise} \end{cases}

    The norms are over the whole parameter tensor. There are no states.

    Args:
        lr: The learning rate η >= 0: a number, a Schedule, or None for an input of the graph.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> fromage().param
        (-local.change*lr + param)/sqrt(...)

    Source: Bernstein et al., On the distance between two neural networks and the stability of
    learning (2020), algorithm 1; ``Fromage`` of pytorch_optimizer 4.1.
    """
    values = hyperparameters("fromage", lr=lr)
    gradient = ascent_or_descent(maximize, "fromage")
    weight, slope = local("weight_norm"), local("grad_norm")
    definitions = {
        "weight_norm": norm(PARAM),
        "grad_norm": norm(gradient),
        "ratio": sp.Piecewise((weight / slope, sp.And(weight > 0, slope > 0)), (1, True)),
        "change": local("ratio") * gradient,
    }
    rate = hyper("lr")
    # Without the divisor the norm of the weights grows by sqrt(1 + η²) at each orthogonal step.
    param = (PARAM - rate * local("change")) / sp.sqrt(1 + rate**2)
    return rule_of("fromage", param, {}, values, definitions=definitions)


@rule_function
def lamb(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    *,
    correct_bias: bool = True,
    trust_ratio: bool = True,
    largest_norm: Hyper = 10,
) -> UpdateRule:
    r"""Returns Lamb: Adam with a step proportional to the norm of the parameter.

    .. math::
        m' &= \beta_1 m + (1 - \beta_1) g \\
        v' &= \beta_2 v + (1 - \beta_2) g^2 \\
        u &= \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon} + \lambda p,
        \quad c_i = 1 - \beta_i^{t+1} \\
        p' &= p - \eta\, r\, u, \quad r = \begin{cases}
        \min(\lVert p \rVert, \phi) / \lVert u \rVert
        & \lVert p \rVert > 0 \text{ and } \lVert u \rVert > 0 \\
        1 & \text{otherwise} \end{cases}

    The norms are over the whole parameter tensor.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a tensor with an element whose gradients
            were all 0 is not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        correct_bias: False replaces c₁ and c₂ by 1 (cerebras, and the paper's first versions).
        trust_ratio: False replaces r by 1: Adam.
        largest_norm: The bound φ >= 0 of the parameter's norm.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> lamb(correct_bias=False, trust_ratio=False).param
        -lr*(beta1*state.exp_avg + grad*(1 - beta1))/(eps + sqrt(...)) + param

    Source: You et al. (2020), version 3, algorithm 2. ``Lamb`` of cerebras.pytorch 2.10, without
    bias correction; its ``adam`` is ``trust_ratio=False``. torch has none.
    """
    values = hyperparameters(
        "lamb", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, largest_norm=largest_norm
    )
    # Not a blend: where the two terms cancel, a blend keeps the rounding of their difference.
    mean = weighted_mean(state("exp_avg"), GRAD, hyper("beta1"))
    square = weighted_mean(state("exp_avg_sq"), GRAD**2, hyper("beta2"))
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    if flag(correct_bias, "correct_bias", "lamb"):
        mean = mean / (1 - hyper("beta1") ** (t + 1))
        square = square / (1 - hyper("beta2") ** (t + 1))
    direction = mean / (sp.sqrt(square) + hyper("eps"))
    direction = with_penalty(direction, values["weight_decay"])
    ratio = _trust_ratio(direction) if flag(trust_ratio, "trust_ratio", "lamb") else 1
    return rule_of("lamb", PARAM - hyper("lr") * ratio * direction, states, values)


def _trust_ratio(direction: sp.Expr) -> sp.Expr:
    weight = sp.Min(sp.sqrt(reduce_sum(PARAM**2)), hyper("largest_norm"))
    step = sp.sqrt(reduce_sum(squared(direction)))
    # Layers that begin with zeros, and steps of 0, have the ratio 1.
    return sp.Piecewise((weight / step, sp.And(weight > 0, step > 0)), (1, True))


@rule_function
def novograd(
    lr: Hyper = 1e-2,
    betas: Sequence[Hyper] = (0.95, 0.98),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    grad_averaging: bool = False,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns NovoGrad: gradients divided by a running norm of their layer, then momentum.

    .. math::
        v' &= \begin{cases} \lVert g \rVert^2 & t = 0 \\
        \beta_2 v + (1 - \beta_2) \lVert g \rVert^2 & \text{otherwise} \end{cases} \\
        d &= \frac{g}{\sqrt{v'} + \epsilon} + \lambda p, \quad
        m' = \beta_1 m + d \text{ or, with averaging, } \beta_1 m + (1 - \beta_1) d \\
        p' &= p - \eta\, m'

    The norm is over the whole parameter tensor.

    States, initially 0: ``exp_avg`` m, the parameter's shape; ``exp_avg_sq`` v, a scalar.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a tensor whose gradients were all 0 is not
            a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        grad_averaging: Whether m is a mean and not a sum.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> [(name, spec.shape) for name, spec in novograd().states.items()]
        [('exp_avg', 'param'), ('exp_avg_sq', 'scalar')]

    Source: Ginsburg et al. (2019), algorithm 1.
    """
    values = hyperparameters("novograd", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    gradient = ascent_or_descent(maximize, "novograd")
    later = weighted_mean(state("exp_avg_sq"), local("square"), hyper("beta2"))
    definitions = {
        "square": reduce_sum(gradient**2),
        "exp_avg_sq": sp.Piecewise((local("square"), sp.Eq(t, 0)), (later, True)),
    }
    direction = gradient / (sp.sqrt(local("exp_avg_sq")) + hyper("eps"))
    direction = with_penalty(direction, values["weight_decay"])
    if flag(grad_averaging, "grad_averaging", "novograd"):
        moment = weighted_mean(state("exp_avg"), direction, hyper("beta1"))
    else:
        moment = hyper("beta1") * state("exp_avg") + direction
    states = {
        "exp_avg": State(moment),
        "exp_avg_sq": State(local("exp_avg_sq"), shape="scalar"),
    }
    return rule_of(
        "novograd", PARAM - hyper("lr") * moment, states, values, definitions=definitions
    )

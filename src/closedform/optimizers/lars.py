"""LARS: momentum with a learning rate for each layer, from the norms of weights and gradients."""

from __future__ import annotations

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, local, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameters, is_zero
from closedform.optimizers.formulas import ascent_or_descent, rule_of, with_penalty
from closedform.optimizers.tensor_formulas import norm


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
    r"""Returns LARS.

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

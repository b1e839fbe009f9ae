"""Signum and Tiger: the sign of a running mean of the gradient, at the cost of one state."""

from __future__ import annotations

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameter, hyperparameters
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled,
    rule_of,
    sign,
    weighted,
    with_penalty,
)


def signum(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = True,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Signum, sign descent with momentum.

    .. math::
        m' &= \mu m + (1 - \mu) g', \quad g' = \pm g \\
        p' &= p - \eta \operatorname{sign}(m') - \eta \lambda p

    Without ``decoupled_weight_decay`` the last term is gone and λp is added to the gradient.

    State: ``momentum_buffer`` m, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0, the size of every change. As every hyperparameter here: a
            number, a Schedule, or None for an input of the graph.
        momentum: The decay rate μ of the mean, in [0, 1); with 0 it is signSGD.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> signum().states["momentum_buffer"].next
        grad*(1 - momentum) + momentum*state.momentum_buffer

    Source: Bernstein et al. (2018), algorithm 2. ``SignSGD`` of pytorch_optimizer 4.1 (its momentum
    buffer). The sign of 0 is 0, the sign of NaN is NaN.
    """
    values = hyperparameters(
        "signum",
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", "signum", below=1),
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "signum")
    decay = values["weight_decay"]
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "signum")
    if not is_decoupled:
        gradient = with_penalty(gradient, decay)
    mean = weighted(state("momentum_buffer"), gradient, hyper("momentum"))
    param = PARAM - hyper("lr") * sign(mean) - (decoupled(decay) if is_decoupled else 0)
    return rule_of("signum", param, {"momentum_buffer": State(mean)}, values)


def tiger(lr: Hyper = 1e-3, beta: Hyper = 0.965, weight_decay: Hyper = 0.01) -> UpdateRule:
    r"""Returns Tiger, the tight-fisted optimizer: Signum under its own names.

    .. math::
        m' &= \beta m + (1 - \beta) g \\
        p' &= p - \eta \left(\operatorname{sign}(m') + \lambda p\right)

    State: ``exp_avg`` m, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        beta: The decay rate β of the mean, in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(tiger().states), list(tiger().hyperparameters)
        (['exp_avg'], ['lr', 'beta', 'weight_decay'])

    Source: Su (2023), https://kexue.fm/archives/9512; it is Lion with one β, and Signum with the
    decay of AdamW. ``Tiger`` of pytorch_optimizer 4.1. The rates by kind of layer that Su advises
    are rates of parameter groups.
    """
    values = hyperparameters(
        "tiger",
        lr=lr,
        beta=hyperparameter(beta, "beta", "tiger", below=1),
        weight_decay=weight_decay,
    )
    mean = weighted(state("exp_avg"), GRAD, hyper("beta"))
    param = PARAM - hyper("lr") * sign(mean) - decoupled(values["weight_decay"])
    return rule_of("tiger", param, {"exp_avg": State(mean)}, values)

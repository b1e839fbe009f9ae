"""RMSprop: the gradient over the root of its running mean square."""

from __future__ import annotations

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameter, hyperparameters, is_zero
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    rule_of,
    weighted,
    with_penalty,
)


def rmsprop(
    lr: Hyper = 1e-2,
    alpha: Hyper = 0.99,
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    momentum: Hyper = 0,
    centered: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns RMSprop, with momentum where it is not 0.

    .. math::
        g' &= \pm g + \lambda p \\
        q' &= \alpha q + (1 - \alpha) g'^2 \\
        a' &= a + (1 - \alpha)(g' - a) \\
        u &= \frac{g'}{\sqrt{q'} + \epsilon}
        \text{ or, centered, } \frac{g'}{\sqrt{q' - a'^2} + \epsilon} \\
        p' &= p - \eta\, u \text{ or, with momentum, }
        p - \eta\, b', \quad b' = \mu b + u

    Centered, the difference under the root is computed as written, as both frameworks do: where the
    gradient hardly changes, rounding can make it negative, and the parameter is then not a number.

    States, each of the parameter's shape and initially 0: ``square_avg`` q, with a momentum
    ``momentum_buffer`` b, centered ``grad_avg`` a.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        alpha: The decay rate α of the means, a number in [0, 1].
        eps: The term ε >= 0 beside the root. With 0, a parameter whose gradients were all 0 is not
            a number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        momentum: The factor μ >= 0; with the number 0 there is neither momentum nor state.
        centered: Whether to subtract the square of the mean gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> rule = rmsprop(lr=0.1)
        >>> rule.param
        -grad*lr/(eps + sqrt(alpha*state.square_avg + grad**2*(1 - alpha))) + param

    Source: Tieleman and Hinton (2012), lecture 6.5; Graves (2013) for the centered form, with ε
    inside the root. ``RMSprop`` of torch 2.13 and of cerebras.pytorch 2.10, which has no
    ``maximize``: one formula and one set of defaults.
    """
    values = hyperparameters(
        "rmsprop",
        lr=lr,
        alpha=hyperparameter(alpha, "alpha", "rmsprop", at_most=1),
        eps=eps,
        weight_decay=weight_decay,
        momentum=momentum,
    )
    decay = hyper("alpha")
    gradient = with_penalty(ascent_or_descent(maximize, "rmsprop"), values["weight_decay"])
    spread = square = weighted(state("square_avg"), gradient**2, decay)
    states = {"square_avg": State(square)}
    if flag(centered, "centered", "rmsprop"):
        mean = blend(state("grad_avg"), gradient, decay)
        spread = square - mean**2
        states["grad_avg"] = State(mean)
    direction = gradient / (sp.sqrt(spread) + hyper("eps"))
    if not is_zero(values["momentum"]):
        direction = hyper("momentum") * state("momentum_buffer") + direction
        states["momentum_buffer"] = State(direction)
    return rule_of("rmsprop", PARAM - hyper("lr") * direction, states, values)

"""Adadelta: a step whose size is the root of the running mean square of the steps."""

from __future__ import annotations

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameter, hyperparameters
from closedform.optimizers.formulas import (
    ascent_or_descent,
    rule_of,
    square,
    weighted,
    with_penalty,
)


def adadelta(
    lr: Hyper = 1.0,
    rho: Hyper = 0.9,
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adadelta.

    .. math::
        g' &= \pm g + \lambda p \\
        q' &= \rho q + (1 - \rho) g'^2 \\
        d &= \frac{\sqrt{a + \epsilon}}{\sqrt{q' + \epsilon}}\, g' \\
        a' &= \rho a + (1 - \rho) d^2 \\
        p' &= p - \eta\, d

    States, each of the parameter's shape and initially 0: ``square_avg`` q, ``acc_delta`` a.

    Args:
        lr: The factor η >= 0, 1 in the paper. As every hyperparameter here: a number, a Schedule,
            or None for an input of the graph.
        rho: The decay rate ρ of both means, a number in [0, 1]; with 1 they stay at 0.
        eps: The term ε >= 0 under both roots. With 0 the parameter never moves, and one whose
            gradients were all 0 is not a number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> adadelta().states["square_avg"].next
        grad**2*(1 - rho) + rho*state.square_avg

    Source: Zeiler (2012), algorithm 1. ``Adadelta`` of torch 2.13 and of cerebras.pytorch 2.10: one
    formula and one set of defaults.
    """
    values = hyperparameters(
        "adadelta",
        lr=lr,
        rho=hyperparameter(rho, "rho", "adadelta", at_most=1),
        eps=eps,
        weight_decay=weight_decay,
    )
    eps_symbol, decay = hyper("eps"), hyper("rho")
    gradient = with_penalty(ascent_or_descent(maximize, "adadelta"), values["weight_decay"])
    mean_square = weighted(state("square_avg"), gradient**2, decay)
    ratio = sp.sqrt(state("acc_delta") + eps_symbol) / sp.sqrt(mean_square + eps_symbol)
    change = ratio * gradient
    states = {
        "square_avg": State(mean_square),
        "acc_delta": State(weighted(state("acc_delta"), square(change), decay)),
    }
    return rule_of("adadelta", PARAM - hyper("lr") * change, states, values)

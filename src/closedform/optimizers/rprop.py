"""Rprop: step sizes of their own, from the signs of the gradient alone."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameter, number, two
from closedform.optimizers.formulas import ascent_or_descent, rule_of, sign


def rprop(
    lr: Hyper = 1e-2,
    etas: Sequence[Hyper] = (0.5, 1.2),
    step_sizes: Sequence[Hyper] = (1e-6, 50),
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Rprop without backtracking: after a change of sign it waits for one step.

    .. math::
        q &= g' r, \quad g' = \pm g \\
        z' &= \operatorname{clamp}(z k, z_{min}, z_{max}), \quad k = \begin{cases}
        \eta_+ & q > 0 \\ \eta_- & q < 0 \\ 1 & q = 0 \end{cases} \\
        r' &= \begin{cases} 0 & q < 0 \\ g' & \text{otherwise} \end{cases} \\
        p' &= p - \operatorname{sign}(r')\, z'

    States, each of the parameter's shape: ``prev`` r, initially 0; ``step_size`` z, initially η.

    Args:
        lr: The first step size η >= 0, a number: no step reads it.
        etas: The factors η₋ and η₊ of the step size, 0 < η₋ < 1 < η₊. As the step sizes: numbers,
            Schedules, or None for inputs of the graph.
        step_sizes: The least and the largest step size, >= 0.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two numbers, or a learning rate that is not
            a number.

    Example:
        >>> rule = rprop(lr=0.1)
        >>> rule.states["step_size"].initial
        1/10
        >>> rule.states["prev"].next
        Piecewise((0, grad*state.prev < 0), (grad, True))

    Source: Riedmiller and Braun (1993), in the variant without backtracking of Igel and Hüsken
    (2000). ``Rprop`` of torch 2.13 (lr 1e-2) and of cerebras.pytorch 2.10 (lr 1e-3, no
    ``maximize``; an infinite gradient at a change of sign leaves NaN in its ``prev``, here 0).
    """
    eta_minus, eta_plus = two(etas, "etas", "rprop", "(0.5, 1.2)")
    smallest, largest = two(step_sizes, "step_sizes", "rprop", "(1e-6, 50)")
    values = {
        "eta_minus": hyperparameter(eta_minus, "etas[0]", "rprop", below=1),
        "eta_plus": hyperparameter(eta_plus, "etas[1]", "rprop", at_least=1),
        "smallest_step": hyperparameter(smallest, "step_sizes[0]", "rprop"),
        "largest_step": hyperparameter(largest, "step_sizes[1]", "rprop"),
    }
    first = number(lr, "lr", "rprop")
    gradient = ascent_or_descent(maximize, "rprop")
    agreement = gradient * state("prev")
    # Otherwise the product is 0, or not a number, which then enters the step size.
    factor = sp.Piecewise(
        (hyper("eta_plus"), agreement > 0),
        (hyper("eta_minus"), agreement < 0),
        (1 + agreement, True),
    )
    size = sp.Min(state("step_size") * factor, hyper("largest_step"))
    size = sp.Max(size, hyper("smallest_step"))
    applied = sp.Piecewise((0, agreement < 0), (gradient, True))
    states = {"prev": State(applied), "step_size": State(size, first)}
    return rule_of("rprop", PARAM - sign(applied) * size, states, values)

"""Adagrad: the gradient over the root of the sum of its squares."""

from __future__ import annotations

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper, Number
from closedform.optimizers.arguments import hyperparameters, is_zero, number
from closedform.optimizers.formulas import ascent_or_descent, rule_of, with_penalty


def adagrad(
    lr: Hyper = 1e-2,
    lr_decay: Hyper = 0,
    weight_decay: Hyper = 0,
    initial_accumulator_value: Number = 0,
    eps: Hyper = 1e-10,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adagrad, with a learning rate that decays by itself where asked.

    .. math::
        g' &= \pm g + \lambda p \\
        S' &= S + g'^2 \\
        p' &= p - \frac{\eta}{1 + \gamma t} \frac{g'}{\sqrt{S'} + \epsilon}

    State: ``sum`` S, shape of the parameter, initially ``initial_accumulator_value``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here except the initial value: a
            number, a Schedule, or None for an input of the graph.
        lr_decay: The factor γ >= 0 by which the learning rate decays with the step; the number 0
            leaves the division out.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        initial_accumulator_value: The number >= 0 that the sum starts from.
        eps: The term ε >= 0 beside the root. With 0, a parameter whose gradients were all 0 is not
            a number after the step.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or an initial value that is not a number.

    Example:
        >>> rule = adagrad(lr=0.1, lr_decay=0.5, initial_accumulator_value=1)
        >>> rule.param
        -grad*lr/((eps + sqrt(grad**2 + state.sum))*(lr_decay*t + 1)) + param
        >>> rule.states["sum"].initial
        1

    Source: Duchi, Hazan and Singer (2011). ``Adagrad`` of torch 2.13 (eps 1e-10) and of
    cerebras.pytorch 2.10 (eps 1e-6, though its docstring says 1e-10): one formula.
    """
    values = hyperparameters(
        "adagrad", lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps
    )
    initial = number(initial_accumulator_value, "initial_accumulator_value", "adagrad")
    gradient = with_penalty(ascent_or_descent(maximize, "adagrad"), values["weight_decay"])
    total = state("sum") + gradient**2
    rate = hyper("lr")
    if not is_zero(values["lr_decay"]):
        rate = rate / (1 + hyper("lr_decay") * t)
    param = PARAM - rate * gradient / (sp.sqrt(total) + hyper("eps"))
    return rule_of("adagrad", param, {"sum": State(total, initial)}, values)

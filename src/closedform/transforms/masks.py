"""Masks: which parameters decay, which elements exist, which part of a step is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    RANK,
    Schedule,
    State,
    UpdateRule,
    hyper,
    reduce_mean,
    state,
)
from closedform.language.aliases import Number
from closedform.language.arguments import number_or_schedule
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.substitution import (
    check_rule,
    check_states,
    split_step,
    substitute_symbols,
    with_definition,
    with_gradient,
    with_states,
)


@with_checked_keywords
def mask_weight_decay(rule: UpdateRule, decays: sp.Basic | None = None) -> UpdateRule:
    """Returns a rule whose weight decay is 0 for parameters of some shapes.

    The choice is made by shape before there is a graph: a parameter that does not decay has no
    node for it. For a choice by name, give those parameters a separate rule.

    Args:
        rule: The rule, with a hyperparameter ``weight_decay``.
        decays: The condition on the shape under which a parameter decays; None for two axes or
            more; biases and the scales of norms do not.

    Raises:
        DefinitionError: The rule has no weight decay.

    Example:
        >>> from closedform import optimizers
        >>> rule = mask_weight_decay(optimizers.sgd(0.5, weight_decay=0.1))
        >>> rule.for_shape((3,)).param, rule.for_shape((3, 4)).param
        (-grad*lr + param, -lr*(grad + param*weight_decay) + param)
    """
    check_rule(rule, "mask_weight_decay")
    if "weight_decay" not in rule.hyperparameters:
        raise DefinitionError(
            f"rule {rule.name!r} has no weight decay",
            where="mask_weight_decay",
            hint="give it a weight_decay above 0",
        )
    condition = sp.Ge(RANK, 2) if decays is None else decays
    decay = hyper("weight_decay")
    return substitute_symbols(rule, {decay: sp.Piecewise((decay, condition), (0, True))})


@with_checked_keywords
def states_to_sparsify(rule: UpdateRule) -> tuple[str, ...]:
    """Returns the names of the states that are sparse where the parameter is.

    These are the states of the parameter's shape that start from 0: moments and buffers.

    Example:
        >>> from closedform import optimizers
        >>> states_to_sparsify(optimizers.nadam())
        ('exp_avg', 'exp_avg_sq')

    Source: ``state_names_to_sparsify`` of the optimizers of modelzoo 1.9.
    """
    check_rule(rule, "states_to_sparsify")
    return tuple(
        name for name, spec in rule.states.items() if spec.shape == "param" and spec.initial == 0
    )


@with_checked_keywords
def sparsify(rule: UpdateRule, states: Sequence[str] | None = None) -> UpdateRule:
    """Returns a rule for parameters of which some elements are pruned.

    Where the mask is 0, the gradient, the next parameter and the next values of the named states
    are 0, whatever their former values.

    State: ``mask``, shape of the parameter, initially 1; a step leaves it as it is. It is changed
    from outside, through the state dict.

    Args:
        rule: The rule.
        states: The states that are masked, too; None for :func:`states_to_sparsify`.

    Raises:
        DefinitionError: The rule has no such state, or a state named ``mask``.
    """
    check_rule(rule, "sparsify")
    names = states_to_sparsify(rule) if states is None else tuple(states)
    check_states(rule, names, "sparsify")
    is_there = state("mask") > 0

    def masked_out(value: sp.Expr) -> sp.Expr:
        return sp.Piecewise((value, is_there), (0, True))

    extended_rule = with_states(rule, "sparsify", mask=State(state("mask"), 1))
    masked_rule = replace(
        extended_rule,
        param=masked_out(rule.param),
        states={
            name: replace(spec, next=masked_out(spec.next)) if name in names else spec
            for name, spec in extended_rule.states.items()
        },
    )
    return with_gradient(masked_rule, masked_out(GRAD))


@with_checked_keywords
def cautious(
    rule: UpdateRule, least: Number | Schedule = 1e-3, *, maximize: bool = False
) -> UpdateRule:
    r"""Returns a rule that takes only the part of its step that the gradient agrees with.

    .. math:: u' = u \frac{\mu}{\max(\operatorname{mean} \mu, m)}, \quad
        \mu = \begin{cases} 1 & u g > 0 \\ 0 & \text{otherwise} \end{cases}

    for the step u in p' = p - u; the mean is over the elements of the tensor. What of the step
    depends on neither the gradient nor a state, the decoupled weight decay, is not a part of u.

    Args:
        rule: The rule; its next parameter is the parameter less some terms.
        least: The least mean m > 0, which bounds how much a step grows.
        maximize: Whether the rule ascends: then u and g disagree in sign where they agree.

    Raises:
        DefinitionError: The next parameter is not such a sum, or the least mean is not above 0.

    Source: Liang et al. (2024), algorithm 1; ``caution=True`` of the optimizers of timm 1.0.
    """
    check_rule(rule, "cautious")
    floor = number_or_schedule(least, "least", "cautious", 0)
    if floor == 0:
        raise DefinitionError(f"least must be above 0, got {least!r}", where="cautious")
    decayed_param, total_step = split_step(rule, "cautious")
    rule, step = with_definition(rule, "step", total_step)
    agreement = -step * GRAD if maximize else step * GRAD
    rule, mask = with_definition(rule, "mask", sp.Piecewise((1, agreement > 0), (0, True)))
    # Algorithm 1 divides by the mean of the mask, so that the step keeps its mean size.
    masked_step = step * mask / sp.Max(reduce_mean(mask), floor)
    return replace(rule, param=decayed_param - masked_step)

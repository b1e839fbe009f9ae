"""Gradient accumulation: one step of the rule for several gradients."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.language import GRAD, Shared, State, UpdateRule, counter, state
from closedform.transforms.substitution import (
    check_rule,
    counted,
    unless,
    with_gradient,
    with_states,
)


def accumulate(rule: UpdateRule, steps: int) -> UpdateRule:
    r"""Returns a rule that takes one step with the mean of k gradients.

    .. math::
        \bar g &= (a + g) / k \\
        i' &= \begin{cases} 0 & i = k - 1 \\ i + 1 & \text{otherwise} \end{cases} \quad
        a' = \begin{cases} 0 & i = k - 1 \\ a + g & \text{otherwise} \end{cases}

    The rule runs with the mean where i = k - 1; elsewhere its parameters, states and the clock
    do not change: t counts steps, not gradients.

    State: ``accumulated`` a, shape of the parameter, initially 0. State of the model:
    ``micro_step`` i, a counter.

    Args:
        rule: The rule.
        steps: The number k >= 1 of gradients to a step; 1 gives the rule back.

    Raises:
        DefinitionError: It is not such a number, or the rule accumulates already.

    Source: ``MultiSteps`` of optax 0.2.8; in torch ``loss / k`` and ``step()`` after k backward
    passes.
    """
    check_rule(rule, "accumulate")
    count = counted(steps, "steps", "accumulate")
    if count == 1:
        return rule
    place = counter("micro_step")
    is_last = sp.Eq(place, count - 1)
    total = state("accumulated") + GRAD
    following = Shared(sp.Piecewise((0, is_last), (place + 1, True)), 0, True)
    skipped = unless(rule, is_last, "accumulate", micro_step=following)
    carried = State(sp.Piecewise((0, is_last), (total, True)))
    named = with_states(skipped, "accumulate", accumulated=State(state("accumulated")))
    taken = with_gradient(named, total / count)
    return replace(taken, states={**taken.states, "accumulated": carried})

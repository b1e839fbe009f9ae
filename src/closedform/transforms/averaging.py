"""Averages of the parameters: moving averages of the weights, and Lookahead."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.language import PARAM, Schedule, State, UpdateRule, floor_div, floor_mod, state, t
from closedform.language.aliases import Number
from closedform.language.arguments import choice, number_or_schedule, step_count
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.substitution import (
    check_rule,
    with_evaluation,
    with_following_param,
    with_states,
)

FIRST = ("copy", "blend")


@with_checked_keywords
def weight_average(
    rule: UpdateRule,
    decay: Number | Schedule | None = None,
    *,
    start: int = 0,
    every: int = 1,
    first: str = "copy",
) -> UpdateRule:
    r"""Returns a rule that keeps an average of the parameters, and is evaluated there.

    .. math:: a' = a + \frac{p' - a}{n + 1} \text{ (SWA), or }
        a + (1 - \delta)(p' - a) \text{ with a decay } \delta \text{ (EMA)}

    at every k-th step from a start on, n the number of averages before; before it a' = p'.

    State: ``average`` a, shape of the parameter, initially the parameter.

    Args:
        rule: The rule.
        decay: The decay δ in [0, 1]; None for the mean of all.
        start: The first step, counted from 0, that is averaged.
        every: The number k >= 1 of steps from one average to the next.
        first: What the first average is with a decay: ``"copy"`` for p' (torch) or ``"blend"``,
            with the former a (an average that starts from the first parameters, as in timm).

    Raises:
        DefinitionError: A number out of its range, an unknown choice, or the rule is evaluated at
            a separate point.

    Source: Izmailov et al. (2018); Polyak and Juditsky (1992). ``AveragedModel`` of torch 2.13,
    with its default and with ``get_ema_multi_avg_fn``; ``ModelEmaV3`` of timm 1.0.
    """
    where = "weight_average"
    check_rule(rule, where)
    since = t - step_count(start, "start", where, 0)
    period = step_count(every, "every", where)
    choice(first, "first", where, FIRST)
    following, next_param = with_following_param(rule)
    average = state("average")
    if decay is None:
        count = since if period == 1 else floor_div(since, period)
        mean = average + (next_param - average) / (sp.Max(count, 0) + 1)
    else:
        mean = average + (1 - number_or_schedule(decay, "decay", where, 0, 1)) * (
            next_param - average
        )
        if first == "copy":
            mean = sp.Piecewise((next_param, sp.Eq(since, 0)), (mean, True))
    branches = [(mean, True)]
    if period > 1:
        branches = [(mean, sp.Eq(floor_mod(since, period), 0)), (average, True)]
    if start > 0:
        # The branch that is inserted last takes precedence: a step that is left out over one before
        # the start.
        branches = [(next_param, since < 0), *branches]
    if rule.advances != sp.true:
        branches = [(average, sp.Not(rule.advances)), *branches]
    result = with_states(following, where, average=State(sp.Piecewise(*branches), PARAM))
    return with_evaluation(result, where, average)


@with_checked_keywords
def lookahead(rule: UpdateRule, steps: int = 5, rate: Number | Schedule = 0.5) -> UpdateRule:
    r"""Returns a rule with slow parameters, which the fast ones return to.

    .. math::
        s' &= s + \alpha (p' - s), \quad p'' = s' \quad \text{ at every k-th step} \\
        s' &= s, \quad p'' = p' \quad \text{ otherwise}

    State: ``slow`` s, shape of the parameter, initially the parameter; the model is evaluated
    there. The states of the rule go on.

    Args:
        rule: The rule.
        steps: The number k >= 1 of fast steps to one slow step.
        rate: The slow step size α in [0, 1].

    Raises:
        DefinitionError: A number out of its range, or the rule is evaluated at a separate point.

    Source: Zhang et al. (2019), algorithm 1; ``lookahead`` of optax 0.2.8 with
    ``reset_state=False``, ``Lookahead`` of timm 1.0.
    """
    check_rule(rule, "lookahead")
    period = step_count(steps, "steps", "lookahead")
    size = number_or_schedule(rate, "rate", "lookahead", 0, 1)
    following, next_param = with_following_param(rule)
    slow = state("slow")
    synced_param = slow + size * (next_param - slow)
    is_due = sp.Eq(floor_mod(t + 1, period), 0) if period > 1 else sp.true
    is_due = sp.And(is_due, rule.advances)
    with_slow = with_states(
        following,
        "lookahead",
        slow=State(sp.Piecewise((synced_param, is_due), (slow, True)), PARAM),
    )
    synced_rule = replace(with_slow, param=sp.Piecewise((synced_param, is_due), (next_param, True)))
    return with_evaluation(synced_rule, "lookahead", slow)

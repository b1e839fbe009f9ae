"""Claims about schedules that are proved by induction: recurrences and sums."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import Schedule, exact_number, t
from closedform.verify.claims.core import Claim, Goal, all_defined
from closedform.verify.claims.reading import (
    Condition,
    ScheduleReading,
    claim_about,
    condition_text,
    has_value,
    read_schedule,
    value_text,
)
from closedform.verify.claims.statements import PREVIOUS
from closedform.verify.claims.sums import sum_goals
from closedform.verify.terms.build import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    add,
    equal,
    rational,
    substitute,
    subtract,
)
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import CLOCK, term
from closedform.verify.terms.tree import Term


def recurrence(
    lr: Schedule,
    first: Any,
    step: Callable[[sp.Expr, sp.Expr], Any],
    *,
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that a recurrence gives the same values: the first one, and each from the one before.

    Args:
        lr: The schedule f.
        first: f(0).
        step: From the value before and the new step t >= 1 to the value there; called once, with
            symbols.
        where: A condition on the new step.
        assume: Conditions on the hyperparameters.

    Example:
        >>> from closedform import schedules
        >>> decay = schedules.multiplicative(8, 0.5)
        >>> recurrence(decay, 8, lambda previous, t: previous / 2).verify().proved
        True
    """
    reading = read_schedule(lr, assume, where)
    start = substitute(reading.value, {CLOCK: ZERO})
    here = add(CLOCK, ONE)
    places = {CLOCK: here, term(PREVIOUS): reading.value}
    following = _expression(step(PREVIOUS, t))
    step_value = substitute(reading.read(following), places)
    after = substitute(reading.value, {CLOCK: here})
    premises = reading.given_at(here)
    first_value = reading.read(first)
    goals = [
        Goal(
            f"value at 0 = {value_text(first)}", equal(start, first_value), shown=(("it", start),)
        ),
        Goal(
            "the step gives the next value",
            equal(step_value, after),
            premises,
            shown=(("the step", step_value), ("the next value", after)),
        ),
    ]
    # The condition is already at the new step; the reading's own would ask it at the old one.
    everywhere = replace(reading, where=TRUE)
    presumes = [
        *has_value(everywhere, first_value),
        *all_defined(step_value, premises, "in the step, "),
    ]
    sentence = f"it begins at {value_text(first)} and follows the recurrence"
    claim = claim_about(
        everywhere, "recurrence", sentence, goals, presumes, first=first, step=following
    )
    if reading.where == TRUE:
        return claim
    sentence += f" where {condition_text(reading.where)}"
    return replace(claim, sentence=sentence, arguments=None)


def recurrence_of(lr: Schedule, first: Any, step: sp.Expr, **conditions: Any) -> Claim:
    """Returns ``recurrence`` of a step that is an expression in ``PREVIOUS`` and ``t``."""

    def following(previous: sp.Expr, clock: sp.Expr) -> Any:
        return step.xreplace({PREVIOUS: previous, t: clock})

    return recurrence(lr, first, following, **conditions)


def area(
    lr: Schedule, total: Any, steps: int | None = None, *, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims the sum of the values of the first steps.

    Args:
        lr: The schedule f.
        total: Without ``steps`` an expression in ``t``: the sum of f over the t steps from 0 to
            t - 1, which is proved by induction. With ``steps``, the sum over so many.
        steps: A number of steps. They are summed segment by segment, each a combination of
            powers of t, exponentials and cosines, whose sums are proved by induction; the values
            of other schedules are added up, at most 1,000.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: ``steps`` is not such a number.

    Example:
        >>> from closedform import schedules, t
        >>> area(schedules.multiplicative(1, 0.5), 2 - 2 * 0.5**t).verify().proved
        True
    """
    reading = read_schedule(lr, assume)
    if reading.where != TRUE:
        raise VerificationError(
            f"a sum is over all steps, got the condition {condition_text(reading.where)} in assume",
            where=f"schedule {lr.name!r}",
            hint="assume is for hyperparameters; write a condition on t as a branch",
        )
    total_term = reading.read(total)
    if steps is None:
        begin = substitute(total_term, {CLOCK: ZERO})
        after = substitute(total_term, {CLOCK: add(CLOCK, ONE)})
        # S(0) = 0 and S(t + 1) - S(t) = f(t) determine S: an induction without a prover for sums.
        increase = subtract(after, total_term)
        displays = (("it", increase), ("the value", reading.value))
        goals = [
            Goal("the sum over no steps is 0", equal(begin, ZERO), shown=(("it", begin),)),
            Goal(
                "a step adds the value to the sum", equal(increase, reading.value), shown=displays
            ),
        ]
        sentence = f"the values before step t add up to {value_text(total)}"
        presumes = has_value(reading, total_term, after)
        return claim_about(reading, "area", sentence, goals, presumes, total=total)
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise VerificationError(
            f"steps must be an integer of at least 0, got {steps!r}",
            where=f"schedule {lr.name!r}",
            hint="give the sum as an expression in t, which is proved by induction",
        )
    sentence = f"the values of the first {steps} steps add up to {value_text(total)}"
    last = reading.step_goals(rational(steps - 1), "the last step") if steps else ()
    presumes = (*last, *has_value(reading, total_term))
    goals_of_sum = sum_goals(reading, steps, total_term)
    goals = (
        [_added_values_goal(reading, steps, total_term, goals_of_sum)]
        if isinstance(goals_of_sum, str)
        else goals_of_sum
    )
    return claim_about(reading, "area", sentence, goals, presumes, total=total, steps=steps)


def _added_values_goal(reading: ScheduleReading, steps: int, total_term: Term, reason: str) -> Goal:
    """The goal that the values, added up, are a number; one without an answer where too many."""
    if steps > LIMITS.summed_steps:
        return Goal(reason, FALSE, is_sufficient=True)
    values = [substitute(reading.value, {CLOCK: rational(step)}) for step in range(steps)]
    sum_of_values = add(*values) if values else ZERO
    return Goal(
        "the sum is this one", equal(sum_of_values, total_term), shown=(("it", sum_of_values),)
    )


def _expression(result: Any) -> Any:
    return result if isinstance(result, sp.Basic) else exact_number(result, "what the step returns")

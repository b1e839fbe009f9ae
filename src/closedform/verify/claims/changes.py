"""Claims about the trajectory of a schedule: its changes, its extremes, its distance to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy as sp

from closedform.errors import VerificationError
from closedform.ir.types import DType
from closedform.language import Schedule
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
from closedform.verify.terms import build
from closedform.verify.terms.sympy_io import CLOCK
from closedform.verify.terms.tree import Term


def bounded_change(
    lr: Schedule,
    low: Any = None,
    high: Any = None,
    *,
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that the value changes by at least ``low`` and at most ``high`` from step to step.

    Args:
        lr: The schedule f.
        low: The least f(t + 1) - f(t), 0 or below for what may fall; None leaves it open.
        high: The largest one.
        where: The phase: a condition that both steps satisfy.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: Neither bound is given.

    Example:
        >>> from closedform import schedules
        >>> warmup = schedules.linear(0, 1, 10)
        >>> bounded_change(warmup, 0, 0.1).verify().status.value
        'PROVED'
        >>> bounded_change(warmup, 0, 0.05).verify().counterexample
        {'t': 0}
    """
    if low is None and high is None:
        raise VerificationError(
            "a bound on the change is needed, got neither low nor high",
            where=f"schedule {lr.name!r}",
            hint="give one of them",
        )
    reading = read_schedule(lr, assume, where)
    change = build.subtract(_after(reading.value), reading.value)
    # Both steps are in the domain: the step over its end does not count.
    premises = (*reading.given, *reading.given_at(build.add(CLOCK, build.ONE)))
    goals = []
    for bound, sign in ((low, ">="), (high, "<=")):
        if bound is None:
            continue
        limit = reading.read(bound)
        sides_of_bound = (limit, change) if sign == ">=" else (change, limit)
        displays = (("at t it", reading.value), ("a step later it", _after(reading.value)))
        text = f"the change is {sign} {value_text(bound)}"
        goals.append(Goal(text, build.less_equal(*sides_of_bound), premises, shown=displays))
    sides = " and ".join(goal.text.removeprefix("the change is ") for goal in goals)
    sentence = f"the value changes by {sides} a step"
    presumes = has_value(reading)
    return claim_about(reading, "bounded_change", sentence, goals, presumes, low=low, high=high)


def _after(root: Term) -> Term:
    """A term at the next step."""
    return build.substitute(root, {CLOCK: build.add(CLOCK, build.ONE)})


def argmax(
    lr: Schedule, at: Any, *, where: Condition = True, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims that the value is nowhere larger than at step ``at``.

    Args:
        lr: The schedule.
        at: The step, an integer in the domain: a number or an expression of hyperparameters.
        where: A condition on the steps that it is compared with.
        assume: Conditions on the hyperparameters.

    Example:
        >>> from closedform import schedules
        >>> lr = schedules.linear(0, 1, 10).then(schedules.cosine(1, 0, 90))
        >>> argmax(lr, 10).verify().status.value, argmax(lr, 9).verify().status.value
        ('PROVED', 'REFUTED')
    """
    return _extreme(read_schedule(lr, assume, where), "argmax", at)


def argmin(
    lr: Schedule, at: Any, *, where: Condition = True, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims that the value is nowhere smaller than at step ``at``; arguments as ``argmax``."""
    return _extreme(read_schedule(lr, assume, where), "argmin", at)


def _extreme(reading: ScheduleReading, name: str, at: Any) -> Claim:
    step = reading.read(at)
    best = build.substitute(reading.value, {CLOCK: step})
    is_largest = name == "argmax"
    sides = (reading.value, best) if is_largest else (best, reading.value)
    word = "larger" if is_largest else "smaller"
    displays = (("the value", reading.value), (f"at {value_text(at)} it", best))
    sentence = f"the value is nowhere {word} than at step {value_text(at)}"
    goal = Goal(f"it is not {word}", build.less_equal(*sides), shown=displays)
    # A largest value at half a step, or outside of the domain, does not count.
    presumes = (*reading.step_goals(step, "the step"), *has_value(reading), *all_defined(best))
    return claim_about(reading, name, sentence, [goal], presumes, at=at)


def close(
    lr: Schedule,
    other: Schedule | sp.Expr | float,
    within: Any = None,
    *,
    ulp: Any = None,
    dtype: DType | str = DType.F64,
    until: int | None = None,
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that two schedules differ by at most a number, or by some units in the last place.

    Args:
        lr: The schedule f.
        other: The schedule g, or an expression.
        within: The largest difference ``|f - g|``.
        ulp: The largest difference in units of ``eps * |g|``: eps is 2**-52 in float64, the
            largest distance of floats around 1. Give it or ``within``.
        dtype: The dtype whose eps it is.
        until: The last step that is compared; all steps if not given. A step of f at which g has
            no value refutes the claim, unless ``until`` or ``where`` excludes it.
        where: A condition on the steps.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: Both ``within`` and ``ulp`` are given, or neither is.

    Example:
        >>> from closedform import schedules
        >>> cosine, line = schedules.cosine(1, 0, 100), schedules.linear(1, 0, 100)
        >>> close(cosine, line, 0.11).verify().status.value
        'PROVED'
        >>> close(cosine, line, 0.02, until=5).verify().counterexample
        {'t': 3}
    """
    if (within is None) == (ulp is None):
        raise VerificationError(
            "the largest difference is given as a number or in ulp, "
            f"got within={within!r} and ulp={ulp!r}",
            where=f"schedule {lr.name!r}",
            hint="give one of them",
        )
    reading = read_schedule(lr, assume, where)
    second = read_other(reading, other, CLOCK)
    value, name = second.value, second.name
    if until is not None:
        limit = build.less_equal(CLOCK, reading.read(until))
        reading = replace(reading, where=build.both(reading.where, limit))
    if ulp is None:
        most, text = reading.read(within), f"at most {value_text(within)}"
    else:
        eps = sp.Rational(float(np.finfo(DType(dtype).numpy).eps))
        most = build.multiply(reading.read(ulp), reading.read(eps), build.absolute(value))
        text = f"at most {value_text(ulp)} ulp of {DType(dtype)}"
    gap = build.subtract(reading.value, value)
    displays = ((repr(lr.name), reading.value), (name, value))
    goals = [
        Goal(f"the difference is {text}", build.less_equal(side, most), shown=displays)
        # ``|d| <= m`` as d <= m and -d <= m: lines remain lines, where an absolute value is a
        # choice.
        for side in (gap, build.negative(gap))
    ]
    sentence = with_domain(f"it differs from {name} by {text}", reading)
    presumes = (*second.step_goals(reading), *has_value(reading, value, most))
    return claim_about(
        reading,
        "close",
        sentence,
        goals,
        presumes,
        other=other.bound if isinstance(other, Schedule) else other,
        within=within,
        ulp=ulp,
        dtype=None if ulp is None else str(DType(dtype)),
    )


@dataclass(frozen=True, slots=True)
class Other:
    """The schedule or expression that another one is compared with, on its clock.

    Attributes:
        name: Its name, or the expression.
        value: Its value at the step that is compared.
        facts: What its domain says of that step, and of hyperparameters.
    """

    name: str
    value: Term
    facts: tuple[Term, ...] = ()

    def step_goals(self, reading: ScheduleReading) -> tuple[Goal, ...]:
        """Returns the goals that it has a value wherever the schedule of a reading has one."""
        return tuple(
            Goal(f"{self.name} has a value where {condition_text(fact)}", fact, reading.given)
            for fact in self.facts
        )


def read_other(reading: ScheduleReading, other: Schedule | sp.Expr | float, clock: Term) -> Other:
    """Returns what a schedule is compared with.

    Args:
        reading: The schedule.
        other: Another one, or an expression.
        clock: The step of the other one that is compared.
    """
    first = build.less_equal(build.ZERO, CLOCK)
    facts: tuple[Term, ...] = ()
    if isinstance(other, Schedule):
        second = read_schedule(other)
        name, value = repr(other.name), second.value
        facts = (*second.given, *second.assume)
    else:
        name, value = value_text(other), reading.read(other)
    moved_facts = (build.substitute(fact, {CLOCK: clock}) for fact in (first, *facts))
    stated_facts = (build.TRUE, first, *reading.assume, *reading.given)
    return Other(
        name,
        build.substitute(value, {CLOCK: clock}),
        tuple(fact for fact in moved_facts if fact not in stated_facts),
    )


def with_domain(sentence: str, reading: ScheduleReading) -> str:
    """Returns a sentence that compares two schedules, with the domain of the first one."""
    if reading.steps == build.TRUE:
        return sentence
    return f"{sentence} on its domain {condition_text(reading.steps)}"

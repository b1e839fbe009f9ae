"""Claims about the trajectory of a schedule: its changes, its extremes, its distance to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp

from closedform.errors import VerificationError
from closedform.ir.types import DType
from closedform.language import Schedule
from closedform.verify.claims.core import Claim, Goal, all_defined
from closedform.verify.claims.reading import (
    CLOCK,
    Condition,
    Reading,
    claim_about,
    has_value,
    read_schedule,
    said,
)
from closedform.verify.terms import build
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
    given = (*reading.given, *map(_after, reading.given))
    goals = []
    for bound, sign in ((low, ">="), (high, "<=")):
        if bound is None:
            continue
        limit = reading.read(bound)
        ordered = (limit, change) if sign == ">=" else (change, limit)
        shown = (("at t it", reading.value), ("a step later it", _after(reading.value)))
        text = f"the change is {sign} {said(bound)}"
        goals.append(Goal(text, build.less_equal(*ordered), given, shown=shown))
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
        at: The step, a number or an expression of hyperparameters.
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


def _extreme(reading: Reading, name: str, at: Any) -> Claim:
    step = reading.read(at)
    best = build.substitute(reading.value, {CLOCK: step})
    is_largest = name == "argmax"
    ordered = (reading.value, best) if is_largest else (best, reading.value)
    word = "larger" if is_largest else "smaller"
    shown = (("the value", reading.value), (f"at {said(at)} it", best))
    sentence = f"the value is nowhere {word} than at step {said(at)}"
    goal = Goal(f"it is not {word}", build.less_equal(*ordered), shown=shown)
    whole = Goal("the step is at least 0", build.less_equal(build.ZERO, step))
    presumes = (whole, *has_value(reading), *all_defined(best))
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
        until: The last step that is compared; all steps if not given.
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
        {'t': 5}
    """
    if (within is None) == (ulp is None):
        raise VerificationError(
            "the largest difference is given as a number or in ulp, "
            f"got within={within!r} and ulp={ulp!r}",
            where=f"schedule {lr.name!r}",
            hint="give one of them",
        )
    reading, value, name = with_other(read_schedule(lr, assume, where), other)
    if until is not None:
        limit = build.less_equal(CLOCK, reading.read(until))
        reading = replace(reading, where=build.both(reading.where, limit))
    if ulp is None:
        most, text = reading.read(within), f"at most {said(within)}"
    else:
        eps = sp.Rational(float(np.finfo(DType(dtype).numpy).eps))
        most = build.multiply(reading.read(ulp), reading.read(eps), build.absolute(value))
        text = f"at most {said(ulp)} ulp of {DType(dtype)}"
    gap = build.subtract(reading.value, value)
    shown = ((repr(lr.name), reading.value), (name, value))
    goals = [
        Goal(f"the difference is {text}", build.less_equal(side, most), shown=shown)
        for side in (gap, build.negative(gap))
    ]
    sentence = f"it differs from {name} by {text}"
    presumes = has_value(reading, value, most)
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


def with_other(reading: Reading, other: Schedule | sp.Expr | float) -> tuple[Reading, Term, str]:
    """Returns the reading with the domain of another schedule, and its value and name."""
    if not isinstance(other, Schedule):
        return reading, reading.read(other), said(other)
    second = read_schedule(other)
    facts = tuple(dict.fromkeys((*reading.assume, *second.assume)))
    return replace(reading, assume=facts), second.value, repr(other.name)

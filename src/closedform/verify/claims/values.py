"""Claims about the values of a schedule: bounds, directions, ends, periods, equality."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import Schedule
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.claims.reading import (
    CLOCK,
    LATER,
    Condition,
    Reading,
    as_numbers,
    claim_about,
    has_value,
    read_schedule,
    said,
)
from closedform.verify.tactics.real_line import TIME, Cell, as_choices, real_cells
from closedform.verify.terms import build
from closedform.verify.terms.tables import is_integer
from closedform.verify.terms.tree import RELATIONS, Op, Term, fold, symbols, walk


def bounded(
    lr: Schedule,
    low: Any = None,
    high: Any = None,
    *,
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that the value is between two bounds, both included; None leaves a side open.

    Raises:
        VerificationError: Neither bound is given.

    Example:
        >>> from closedform import schedules
        >>> bounded(schedules.linear(0, 1, 10), 0, 1).verify().status.value
        'PROVED'
    """
    if low is None and high is None:
        raise VerificationError(
            "a bound is needed, got neither low nor high",
            where=f"schedule {lr.name!r}",
            hint="give one of them",
        )
    reading = read_schedule(lr, assume, where)
    value = by_parity(reading.value)
    goals, bounds = [], []
    for bound, sign in ((low, ">="), (high, "<=")):
        if bound is None:
            continue
        limit = reading.read(bound)
        bounds.append(limit)
        shown = (("the value", reading.value), ("the bound", limit))
        ordered = (limit, value) if sign == ">=" else (value, limit)
        statement = build.less_equal(*ordered)
        goals.append(Goal(f"value {sign} {said(bound)}", statement, shown=shown))
    sides = " and ".join(goal.text.removeprefix("value ") for goal in goals)
    presumes = has_value(reading, *bounds)
    sentence = f"the value is {sides}"
    return claim_about(reading, "bounded", sentence, goals, presumes, low=low, high=high)


def non_negative(
    lr: Schedule, *, where: Condition = True, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims that the value is never below 0."""
    reading = read_schedule(lr, assume, where)
    value = by_parity(reading.value)
    goal = Goal("value >= 0", build.less_equal(build.ZERO, value), shown=(("it", reading.value),))
    sentence = "the value is never below 0"
    return claim_about(reading, "non_negative", sentence, [goal], has_value(reading))


def by_parity(root: Term) -> Term:
    """Returns the same value with whole powers of negative numbers by cases, even and odd.

    What the prover knows of powers it knows of positive bases.
    """

    def make(node: Term, args: list[Term]) -> Term:
        if node.op is not Op.POWER or not build.is_rational(args[0]) or not is_integer(args[1]):
            return build.rebuild(node, tuple(args))
        base, exponent = args
        if build.is_rational(exponent) or base.value >= 0:
            return build.rebuild(node, (base, exponent))
        size = build.power(build.negative(base), exponent)
        return build.ite(
            build.equal(build.floor_modulo(exponent, build.TWO), build.ZERO),
            size,
            build.negative(size),
        )

    return fold(root, make)


_DIRECTIONS: dict[str, Callable[[Term, Term], Term]] = {
    "increasing": build.less_equal,
    "decreasing": lambda before, after: build.less_equal(after, before),
    "constant": build.equal,
}


def monotone(
    lr: Schedule, direction: str, *, where: Condition = True, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims that the value is monotone from step to step.

    Args:
        lr: The schedule.
        direction: ``increasing`` and ``decreasing`` allow steps at which nothing changes;
            ``constant`` is for no change at all.
        where: The phase: a condition that both of the steps that are compared satisfy.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: ``direction`` is none of the three.
    """
    if direction not in _DIRECTIONS:
        raise VerificationError(
            f"direction must be one of {', '.join(_DIRECTIONS)}, got {direction!r}",
            where=f"schedule {lr.name!r}",
        )
    reading = read_schedule(lr, assume, where)
    goals = _step_by_step(reading, direction)
    if goals is None:
        goals = [_of_two_steps(reading, direction)]
    sentence = f"the value is {direction}"
    return claim_about(reading, "monotone", sentence, goals, has_value(reading))


def _of_two_steps(reading: Reading, direction: str) -> Goal:
    after = reading.later(reading.value)
    return Goal(
        f"the value is {direction}",
        _DIRECTIONS[direction](reading.value, after),
        (*reading.given, *map(reading.later, reading.given), build.less(CLOCK, LATER)),
        shown=(("at t it", reading.value), ("at t' it", after)),
    )


def _step_by_step(reading: Reading, direction: str) -> list[Goal] | None:
    """The goals cell by cell, and from each cell to the next; None where there are no cells.

    Neighbours among the steps that are compared are enough: the ways of a value add up.
    """
    root = build.substitute(build.ite(reading.where, reading.value, build.UNDEFINED), {CLOCK: TIME})
    if reading.schedule.open or set(symbols(root)) - {"t"}:
        return None
    cells = [
        cell
        for cell in real_cells(as_choices(root))
        if cell.value != build.UNDEFINED and (cell.last is None or cell.first <= cell.last)
    ]
    if any(RELATIONS & {node.op for node in walk(cell.value)} for cell in cells):
        return None
    goals = [_within(cell, reading, direction) for cell in cells if TIME in walk(cell.value)]
    for one, other in itertools.pairwise(cells):
        before, after = (
            build.substitute(cell.value, {TIME: build.rational(step)})
            for cell, step in ((one, one.last), (other, other.first))
        )
        text = f"from step {one.last} to step {other.first} it is {direction}"
        shown = (("before it", before), ("after it", after))
        goals.append(Goal(text, _DIRECTIONS[direction](before, after), shown=shown))
    return goals


def _within(cell: Cell, reading: Reading, direction: str) -> Goal:
    here = build.substitute(cell.value, {TIME: CLOCK})
    goal = _of_two_steps(replace(reading, value=here, where=build.TRUE), direction)
    ends = [build.less_equal(build.rational(cell.first), CLOCK)]
    if cell.last is not None:
        ends.append(build.less_equal(LATER, build.rational(cell.last)))
    return replace(goal, given=(*goal.given, *ends))


def ends_at(lr: Schedule, value: Any, at: Any = None, *, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that the value is this one at every step from ``at`` on.

    Args:
        lr: The schedule.
        value: The value at the end.
        at: The step from which it holds; the length of the schedule if not given.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: ``at`` is not given, and the schedule has no length.
    """
    length = lr.duration if lr.length is None else lr.length
    begin = length if at is None else at
    if begin is None:
        raise VerificationError(
            "a schedule without a length has no end",
            where=f"schedule {lr.name!r}",
            hint="say from which step on with at",
        )
    reading = read_schedule(lr, assume)
    first, last = reading.read(begin), reading.read(value)
    reading = replace(reading, where=build.less_equal(first, CLOCK))
    shown = (("it", reading.value),)
    goal = Goal(f"value = {said(value)}", build.equal(reading.value, last), shown=shown)
    claim = claim_about(reading, "ends_at", goal.text, [goal], has_value(reading, last))
    sentence = f"the value is {said(value)} from step {said(begin)} on"
    return replace(claim, sentence=sentence, arguments=as_numbers(value=value, at=begin))


def periodic(lr: Schedule, period: Any, *, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that the value is the same ``period`` steps later, an integer of at least 1."""
    reading = read_schedule(lr, assume)
    steps = reading.read(period)
    after = build.substitute(reading.value, {CLOCK: build.add(CLOCK, steps)})
    whole = Goal("the period is at least one step", build.less_equal(build.ONE, steps))
    goal = Goal(
        "the value is the same a period later",
        build.equal(after, reading.value),
        shown=(("it", reading.value), ("a period later it", after)),
    )
    sentence = f"the value repeats every {said(period)} steps"
    presumes = has_value(reading, steps)
    return claim_about(reading, "periodic", sentence, [whole, goal], presumes, period=period)


def equal_to(
    lr: Schedule,
    other: Schedule | sp.Expr | float,
    *,
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that two schedules have the same value at each step that satisfies ``where``.

    Open hyperparameters of one name are one. ``other`` may be an expression, too. It is called
    ``closedform.claims.equal``.
    """
    reading = read_schedule(lr, assume, where)
    facts = reading.assume
    if isinstance(other, Schedule):
        second = read_schedule(other)
        value, name = second.value, repr(other.name)
        facts = tuple(dict.fromkeys((*facts, *second.assume)))
    else:
        value, name = reading.read(other), said(other)
    reading = replace(reading, assume=facts)
    goal = Goal(
        f"the value is that of {name}",
        build.equal(reading.value, value),
        shown=((repr(lr.name), reading.value), (name, value)),
    )
    return claim_about(
        reading, "equal", f"it is equal to {name}", [goal], has_value(reading, value)
    )

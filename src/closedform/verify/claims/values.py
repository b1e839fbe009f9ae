"""Claims about the values of a schedule: bounds, directions, ends, periods, equality."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import Schedule, exact_number, t
from closedform.verify.claims.changes import with_other
from closedform.verify.claims.core import Claim, Goal, all_defined
from closedform.verify.claims.reading import (
    CLOCK,
    LATER,
    Condition,
    Reading,
    claim_about,
    has_value,
    read_schedule,
    said,
)
from closedform.verify.claims.statements import as_texts
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
    "strictly increasing": build.less,
    "strictly decreasing": lambda before, after: build.less(after, before),
}


def monotone(
    lr: Schedule, direction: str, *, where: Condition = True, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims that the value is monotone from step to step.

    Args:
        lr: The schedule.
        direction: ``increasing`` and ``decreasing`` allow steps at which nothing changes;
            ``constant`` is for no change at all, ``strictly increasing`` and ``strictly
            decreasing`` for a change at every step.
        where: The phase: a condition that both of the steps that are compared satisfy.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: ``direction`` is none of the five.
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
    presumes = has_value(reading)
    return claim_about(reading, "monotone", sentence, goals, presumes, direction=direction)


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
    is_strict = direction.startswith("strictly")
    goals = [
        _within(cell, reading, direction)
        for cell in cells
        if TIME in walk(cell.value) or (is_strict and cell.first != cell.last)
    ]
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
    return replace(claim, sentence=sentence, arguments=as_texts(value=value, at=begin))


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
    shift: int = 0,
    scale: Any = 1,
    where: Condition = True,
    assume: Iterable[Condition] = (),
) -> Claim:
    """Claims that two schedules have the same value at each step that satisfies ``where``.

    Open hyperparameters of one name are one. ``other`` may be an expression, too. It is called
    ``closedform.claims.equal``.

    Args:
        lr: The schedule f.
        other: The schedule g, or an expression.
        shift: An integer b; f(t) is compared with g(a*t + b).
        scale: A rational number a above 0; where a*t is not an integer nothing is compared.
        where: A condition on the steps of f.
        assume: Conditions on the hyperparameters.

    Raises:
        VerificationError: ``shift`` is not an integer, or ``scale`` not a rational number above 0.

    Example:
        >>> from closedform import schedules
        >>> short, long = schedules.linear(0, 1, 10), schedules.linear(0, 1, 20)
        >>> equal_to(short, long, scale=2).verify().status.value
        'PROVED'
    """
    reading, value, name = with_other(read_schedule(lr, assume, where), other)
    own, clock = _clocks(lr, shift, scale)
    before = build.less_equal(build.ZERO, clock)
    if (own, clock) != (CLOCK, CLOCK):
        value = build.substitute(value, {CLOCK: clock})
        reading = _at(reading, own)
        name += f" at step {said(exact_number(scale) * t + shift)}"
    given = () if clock == CLOCK else (before,)
    goal = Goal(
        f"the value is that of {name}",
        build.equal(reading.value, value),
        (*reading.given, *given),
        shown=((repr(lr.name), reading.value), (name, value)),
    )
    presumes = (*has_value(reading), *all_defined(value, (*reading.given, *given)))
    return claim_about(
        reading,
        "equal",
        f"it is equal to {name}",
        [goal],
        presumes,
        other=other.bound if isinstance(other, Schedule) else other,
        shift=shift or None,
        scale=None if scale == 1 else scale,
    )


def _clocks(lr: Schedule, shift: int, scale: Any) -> tuple[Term, Term]:
    """The steps of both schedules that are compared, of all integers t >= 0."""
    ratio = exact_number(scale, "scale")
    offset = exact_number(shift, "shift")
    if not (ratio.is_Rational and ratio > 0 and offset.is_Integer):
        raise VerificationError(
            f"a clock has an integer shift and a rational scale above 0, got shift={shift!r} and "
            f"scale={scale!r}",
            where=f"schedule {lr.name!r}",
        )
    own = build.multiply(build.rational(int(ratio.q)), CLOCK)
    other = build.multiply(build.rational(int(ratio.p)), CLOCK)
    return own, build.add(other, build.rational(int(offset)))


def _at(reading: Reading, clock: Term) -> Reading:
    """A reading with another clock, in its value and its conditions."""
    return replace(
        reading,
        value=build.substitute(reading.value, {CLOCK: clock}),
        assume=tuple(build.substitute(fact, {CLOCK: clock}) for fact in reading.assume),
        where=build.substitute(reading.where, {CLOCK: clock}),
    )

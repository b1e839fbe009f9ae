"""Claims about the values of a schedule: bounds, directions, ends, periods, equality."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import VerificationError
from closedform.language import Schedule, exact_number, t
from closedform.verify.claims.changes import read_other, with_domain
from closedform.verify.claims.core import Claim, Goal
from closedform.verify.claims.reading import (
    LATER,
    Condition,
    ScheduleReading,
    claim_about,
    condition_text,
    has_value,
    read_schedule,
    value_text,
)
from closedform.verify.claims.statements import as_texts
from closedform.verify.terms import build
from closedform.verify.terms.facts import is_integer
from closedform.verify.terms.real_line import TIME, RealCell, as_choices, real_cells
from closedform.verify.terms.sympy_io import CLOCK
from closedform.verify.terms.tree import RELATIONS, Op, Sign, Term, symbols, walk


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
        displays = (("the value", reading.value), ("the bound", limit))
        sides_of_bound = (limit, value) if sign == ">=" else (value, limit)
        statement = build.less_equal(*sides_of_bound)
        goals.append(Goal(f"value {sign} {value_text(bound)}", statement, shown=displays))
    sides = " and ".join(goal.text.removeprefix("value ") for goal in goals)
    presumes = has_value(reading, *bounds)
    sentence = f"the value is {sides}"
    return claim_about(reading, "bounded", sentence, goals, presumes, low=low, high=high)


def at_most(
    lr: Schedule, bound: Any, *, where: Condition = True, assume: Iterable[Condition] = ()
) -> Claim:
    """Claims that no value is above a bound: ``bounded`` without a lower end.

    Gradient descent on a function whose gradient is L-Lipschitz descends for rates up to 1/L.

    Args:
        lr: The schedule.
        bound: The bound, included; its symbols are the schedule's hyperparameters by name, and
            others that ``assume`` is about.
        where: A condition on the steps.
        assume: Conditions on the hyperparameters and other symbols.

    Example:
        >>> from closedform import schedules
        >>> from closedform.expr import hyper
        >>> smoothness = hyper("L", positive=True)
        >>> decay = schedules.cosine(1, 0, 10).unbind()
        >>> peak, end = hyper("start"), hyper("end")
        >>> at_most(
        ...     decay, 1 / smoothness, assume=[end <= peak, peak <= 1 / smoothness]
        ... ).verify().proved
        True
    """
    return bounded(lr, high=bound, where=where, assume=assume)


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

    def change(node: Term) -> Term:
        if node.op is not Op.POWER:
            return node
        base, exponent = node.args
        # Fixed exponents have a parity, and bases >= 0 need none.
        if not build.is_rational(base) or base.value >= 0 or build.is_rational(exponent):
            return node
        if not is_integer(exponent):
            return node
        size = build.power(build.negative(base), exponent)
        return build.ite(
            build.equal(build.floor_modulo(exponent, build.TWO), build.ZERO),
            size,
            build.negative(size),
        )

    return build.rewrite(root, change)


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


def _of_two_steps(reading: ScheduleReading, direction: str) -> Goal:
    after = reading.later(reading.value)
    return Goal(
        f"the value is {direction}",
        _DIRECTIONS[direction](reading.value, after),
        (*reading.given, *reading.given_at(LATER), build.less(CLOCK, LATER)),
        shown=(("at t it", reading.value), ("at t' it", after)),
    )


def _step_by_step(reading: ScheduleReading, direction: str) -> list[Goal] | None:
    """The goals cell by cell, and from each cell to the next; None where there are no cells.

    Neighbours among the steps that are compared are enough: the ways of a value add up.
    """
    value_where = build.ite(build.both(*reading.given), reading.value, build.UNDEFINED)
    root = build.substitute(value_where, {CLOCK: TIME})
    if reading.schedule.open or set(symbols(root)) - {"t"}:
        return None
    cells = [
        cell
        for cell in real_cells(as_choices(root))
        if cell.value != build.UNDEFINED and (cell.last is None or cell.first <= cell.last)
    ]
    # A cell with conditions left is not one formula: then two arbitrary steps are compared.
    if any(RELATIONS & {node.op for node in walk(cell.value)} for cell in cells):
        return None
    is_strict = direction.startswith("strictly")
    goals = [
        _within(cell, reading, direction)
        for cell in cells
        # A constant cell is monotone, but not strictly, unless it is a single step.
        if TIME in walk(cell.value) or (is_strict and cell.first != cell.last)
    ]
    for cell_before, next_cell in itertools.pairwise(cells):
        before, after = (
            build.substitute(cell.value, {TIME: build.rational(step)})
            for cell, step in ((cell_before, cell_before.last), (next_cell, next_cell.first))
        )
        text = f"from step {cell_before.last} to step {next_cell.first} it is {direction}"
        displays = (("before it", before), ("after it", after))
        goals.append(Goal(text, _DIRECTIONS[direction](before, after), shown=displays))
    return goals


def _within(cell: RealCell, reading: ScheduleReading, direction: str) -> Goal:
    here = build.substitute(cell.value, {TIME: CLOCK})
    goal = _of_two_steps(
        replace(reading, value=here, where=build.TRUE, steps=build.TRUE), direction
    )
    ends = [build.less_equal(build.rational(cell.first), CLOCK)]
    if cell.last is not None:
        ends.append(build.less_equal(LATER, build.rational(cell.last)))
    return replace(goal, given=(*goal.given, *ends))


def ends_at(lr: Schedule, value: Any, at: Any = None, *, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that the value is this one at every step from ``at`` on.

    Args:
        lr: The schedule.
        value: The value at the end.
        at: The step from which it holds, an integer in the domain; the length of the schedule if
            not given.
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
    sentence = f"the value is {value_text(value)} from step {value_text(begin)} on"
    if reading.where != build.TRUE:
        sentence += f" where {condition_text(reading.where)}"
    steps = () if at is None else reading.step_goals(first, "the first step")
    reading = replace(reading, where=build.both(build.less_equal(first, CLOCK), reading.where))
    displays = (("it", reading.value),)
    goal = Goal(f"value = {value_text(value)}", build.equal(reading.value, last), shown=displays)
    presumes = (*steps, *has_value(reading, last))
    claim = claim_about(reading, "ends_at", goal.text, [goal], presumes)
    return replace(claim, sentence=sentence, arguments=as_texts(value=value, at=begin))


def periodic(lr: Schedule, period: Any, *, assume: Iterable[Condition] = ()) -> Claim:
    """Claims that the value is the same ``period`` steps later, an integer of at least 1.

    Two steps are compared where both are in the domain, which must hold a period.
    """
    reading = read_schedule(lr, assume)
    steps = reading.read(period)
    later = build.add(CLOCK, steps)
    after = build.substitute(reading.value, {CLOCK: later})
    whole = Goal("the period is at least one step", build.less_equal(build.ONE, steps))
    goal = Goal(
        "the value is the same a period later",
        build.equal(after, reading.value),
        (*reading.given, *reading.given_at(later)),
        shown=(("it", reading.value), ("a period later it", after)),
    )
    sentence = f"the value repeats every {value_text(period)} steps"
    presumes = (*reading.step_goals(steps, "the period"), *has_value(reading))
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
    ``closedform.claims.equal``. A step of f at which g has no value, before its first step or
    after its domain, refutes the claim unless ``where`` excludes it.

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
    reading = read_schedule(lr, assume, where)
    ratio, offset = _clock_of(lr, shift, scale)
    own_clock, clock = _clocks(ratio, offset)
    compared_reading = _at(reading, own_clock)
    second = read_other(reading, other, clock)
    name = second.name
    sentence = f"it is equal to {name}"
    if (ratio, offset) != (1, 0):
        name += f" at step {value_text(ratio * t + offset)}"
        sentence = f"it is equal to {name}"
    if ratio.q != 1:
        sentence += f", at each step that is a multiple of {ratio.q}"
    goal = Goal(
        f"the value is that of {name}",
        build.equal(compared_reading.value, second.value),
        compared_reading.given,
        shown=((repr(lr.name), compared_reading.value), (name, second.value)),
    )
    presumes = (*second.step_goals(compared_reading), *has_value(compared_reading, second.value))
    claim = claim_about(compared_reading, "equal", sentence, [goal], presumes)
    arguments: dict[str, Any] = {
        "other": other.bound if isinstance(other, Schedule) else other,
        "shift": shift or None,
        "scale": None if scale == 1 else scale,
    }
    statement = claim_about(reading, "equal", with_domain(sentence, reading), (), **arguments)
    return replace(claim, sentence=statement.sentence, arguments=statement.arguments)


def _clock_of(lr: Schedule, shift: int, scale: Any) -> tuple[sp.Rational, sp.Integer]:
    """The scale and shift of the other clock."""
    ratio = exact_number(scale, "scale")
    offset = exact_number(shift, "shift")
    if not (ratio.is_Rational and ratio > 0 and offset.is_Integer):
        raise VerificationError(
            f"a clock has an integer shift and a rational scale above 0, got shift={shift!r} and "
            f"scale={scale!r}",
            where=f"schedule {lr.name!r}",
        )
    return ratio, offset


def _clocks(ratio: sp.Rational, offset: sp.Integer) -> tuple[Term, Term]:
    """The steps of both schedules that are compared, in an integer from 0 on.

    It is the clock where every step is compared, else the number of the step that is: what a
    counterexample calls it.
    """
    index = CLOCK
    if ratio.q != 1:
        # f(q n) is compared with g(p n + b): both steps are integers, without a condition of
        # divisibility.
        index = build.own_symbol(f"t/{ratio.q}", integer=True, sign=Sign.NONNEGATIVE)
    own_clock = build.multiply(build.rational(int(ratio.q)), index)
    clock = build.add(build.multiply(build.rational(int(ratio.p)), index), build.rational(offset))
    return own_clock, clock


def _at(reading: ScheduleReading, clock: Term) -> ScheduleReading:
    """A reading with another clock, in its value and its conditions."""
    return replace(
        reading,
        value=build.substitute(reading.value, {CLOCK: clock}),
        where=build.substitute(reading.where, {CLOCK: clock}),
        steps=build.substitute(reading.steps, {CLOCK: clock}),
    )

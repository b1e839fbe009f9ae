"""The claim that a schedule does not jump, and the jumps where it does.

Continuity is a statement about the formula with the clock read as a real number: at each point the
limits from both sides and the value are one. It can fail only where a condition or a floor changes;
minima, maxima and absolute values are continuous by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flint import arb, fmpq

from closedform.errors import VerificationError
from closedform.language import Schedule
from closedform.verify.claims.core import Claim, Goal, all_defined, number_text
from closedform.verify.claims.reading import (
    Condition,
    claim_about,
    condition_text,
    has_value,
    read_schedule,
    value_text,
)
from closedform.verify.terms import build
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.facts import Direction, direction_from, is_non_negative, sign_from
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.linear import LinearForm, line
from closedform.verify.terms.real_line import TIME, RealCell, cells_of, moving
from closedform.verify.terms.tree import RELATIONS, Op, Sign, Term, fold, walk


def continuous(
    lr: Schedule,
    jumps: Iterable[Any] = (),
    *,
    assume: Iterable[Condition] = (),
    is_question: bool = False,
) -> Claim:
    """Claims that the value does not jump, but at the points of the clock that are named.

    A jump is refuted with the point as ``t``, which may lie between two steps.

    Args:
        lr: The schedule.
        jumps: Points at which it may jump: numbers, or expressions in hyperparameters.
        assume: Conditions on the hyperparameters.
        is_question: True where a jump is not a fault.
    """
    places = tuple(jumps)
    reading = read_schedule(lr, assume)
    excluded_times = [reading.read(place) for place in places]
    goals: list[Goal] = []
    for joint in _joints(cells_of(lr)):
        time = build.rational(joint.time)
        if time not in excluded_times:
            inside = reading.given_at(time)
            goals += [replace(goal, given=(*inside, *goal.given)) for goal in joint.goals()]
    elsewhere = tuple(build.negate(build.equal(TIME, place)) for place in excluded_times)
    elsewhere = (*reading.given_at(TIME), *elsewhere)
    for cell in cells_of(lr):
        goals += [_within(cell, goal, elsewhere) for goal in _crossings(cell.value)]
    names = ", ".join(value_text(place) for place in places)
    sentence = "the value does not jump" + (f" but at t = {names}" if names else "")
    presumes = has_value(reading)
    everywhere = replace(reading, where=build.TRUE, steps=build.TRUE)
    claim = claim_about(everywhere, "continuous", sentence, goals, presumes)
    return replace(claim, is_question=is_question)


Directions = Mapping[Term, int]
"""Of comparisons and floors: 1 where ``left - right``, or the argument of the floor, rises with the
clock, -1 where it falls. What is not in it does not depend on the clock."""


def limits(root: Term, directions: Directions) -> tuple[Term, Term]:
    """Returns the limits of a term from the left and from the right, as terms in the point.

    Which of two limits a comparison takes depends on which way its operands move.

    Example:
        >>> condition = build.less(TIME, build.rational(5))
        >>> limits(condition, {condition: 1})
        (t <= 5, t < 5)
    """

    def make(node: Term, args: list[tuple[Term, Term]]) -> tuple[Term, Term]:
        lefts, rights = tuple(arg[0] for arg in args), tuple(arg[1] for arg in args)
        way = directions.get(node, 0)
        if way == 0:
            return build.rebuild(node, lefts), build.rebuild(node, rights)
        # t == 5 holds at a single point: it is false just before and just after.
        if node.op is Op.EQUAL:
            return build.FALSE, build.FALSE
        if node.op is Op.FLOOR:
            if way > 0:
                return _floor_just_below(lefts[0]), build.floor(rights[0])
            return build.floor(lefts[0]), _floor_just_below(rights[0])
        # Rising: at its root the difference was below 0 just before, and is above 0 just after.
        if way > 0:
            return build.less_equal(*lefts), build.less(*rights)
        return build.less(*lefts), build.less_equal(*rights)

    return fold(root, make)


def _floor_just_below(node: Term) -> Term:
    """The floor of a value just below ``node``: ceil(node) - 1."""
    return build.add(build.negative(build.floor(build.negative(node))), build.MINUS_ONE)


def directions_of(root: Term) -> dict[Term, int | None]:
    """Returns the direction of each comparison and floor that moves with the clock.

    A floor within an operand counts as constant: it is, but where it jumps.
    """
    directions = _directions(root)
    directions_by_node: dict[Term, int | None] = {}
    for node in walk(root):
        if node.op in RELATIONS:
            difference = build.subtract(*node.args)
            way = _WAYS[_directions(difference)[difference]]
        elif node.op is Op.FLOOR:
            way = _WAYS[directions[node.args[0]]]
        else:
            continue
        if way != 0:
            directions_by_node[node] = way
    return directions_by_node


def _directions(root: Term) -> dict[Term, Direction]:
    """The direction in which each node strictly moves with the clock."""
    directions_of_nodes: dict[Term, Direction] = {}
    signs: dict[Term, Sign] = {}
    for node in walk(root):
        of_args = [signs[arg] for arg in node.args]
        signs[node] = sign_from(node, of_args)
        if node == TIME:
            directions_of_nodes[node] = Direction.INCREASING
        elif node.op in (Op.FLOOR, Op.SIGN, Op.LOOKUP):
            directions_of_nodes[node] = Direction.CONSTANT
        else:
            directions = [directions_of_nodes[arg] for arg in node.args]
            directions_of_nodes[node] = direction_from(node, directions, of_args, strictly=True)
    return directions_of_nodes


_WAYS = {
    Direction.INCREASING: 1,
    Direction.DECREASING: -1,
    Direction.CONSTANT: 0,
    Direction.UNKNOWN: None,
}


# --- between two cells --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Joint:
    """A breakpoint that is a number: limits and value there, without the clock."""

    time: fmpq
    before: Term
    there: Term
    after: Term

    def goals(self) -> list[Goal]:
        return _meeting(f"at t = {self.time}", self.before, self.there, self.after, (), ())


def _joints(cells: list[RealCell]) -> Iterator[_Joint]:
    ends = [cell for cell in cells if cell.high != cell.low]
    points = {cell.low: cell.value for cell in cells if cell.high == cell.low}
    for first, second in itertools.pairwise(ends):
        time = second.low
        owner = second.value if second.has_low else first.value
        at = {TIME: build.rational(time)}
        yield _Joint(
            time,
            build.substitute(limits(first.value, _read(first.value))[0], at),
            build.substitute(points.get(time, owner), at),
            build.substitute(limits(second.value, _read(second.value))[1], at),
        )


def _read(root: Term) -> dict[Term, int]:
    """The directions that are read; at a point that is a number the others matter not."""
    return {node: way for node, way in directions_of(root).items() if way is not None}


# --- within a cell ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Floors:
    """The value of each floor at a point, and its limits from both sides."""

    before: dict[Term, Term]
    there: dict[Term, Term]
    after: dict[Term, Term]
    facts: tuple[Term, ...]
    past: tuple[Term, ...]
    whole: tuple[Term, ...]


def _crossings(root: Term) -> list[Goal]:
    """The goals for the points of one cell at which a condition or a floor changes."""
    ways = directions_of(root)
    floors = [node for node in ways if node.op is Op.FLOOR]
    relations = [node for node in ways if node.op is not Op.FLOOR]
    unread = [node for node, way in ways.items() if way is None]
    if any(moving(node.args[0], Op.FLOOR, Op.ITE) for node in floors):
        return [_not_looked_at("a floor of what jumps itself")]
    if len(floors) > LIMITS.floors or len(unread) > LIMITS.unread_directions:
        return [_not_looked_at(f"{len(floors)} floors, {len(unread)} conditions of no direction")]
    goals: list[Goal] = []
    # Both directions are tried for a comparison of unknown direction: 2**n cases, hence the limit.
    for guess in itertools.product((1, -1), repeat=len(unread)):
        known_ways = {node: way for node, way in ways.items() if way is not None}
        known_ways |= dict(zip(unread, guess, strict=True))
        crossing_goals = _at_crossings(root, floors, relations, known_ways)
        goals += [replace(goal, is_sufficient=bool(unread)) for goal in crossing_goals]
    return goals


def _at_crossings(
    root: Term, floors: list[Term], relations: list[Term], ways: Directions
) -> Iterator[Goal]:
    of_relations = {node: ways[node] for node in relations}
    before, after = limits(root, of_relations)
    # Any subset of the floors may jump at this point, where their arguments are whole together.
    for choice in itertools.product((False, True), repeat=len(floors)):
        case = _floor_case(floors, choice, ways)
        sides = (
            build.substitute(before, case.before),
            build.substitute(root, case.there),
            build.substitute(after, case.after),
        )
        if case.whole:
            places = " and ".join(condition_text(node) for node in case.whole)
            yield from _meeting(f"where {places} is whole", *sides, case.facts, case.past)
            continue
        for first, second in dict.fromkeys(_sides_of_relation(node) for node in relations):
            crossing = build.equal(
                build.substitute(first, case.there), build.substitute(second, case.there)
            )
            text = f"at {condition_text(build.equal(first, second))}"
            yield from _meeting(text, *sides, (*case.facts, crossing), case.past)


def _floor_case(floors: list[Term], choice: tuple[bool, ...], ways: Directions) -> _Floors:
    """The case that some floors have whole arguments, where they jump, and the others have not."""
    before, there, after = {}, {}, {}
    facts: list[Term] = []
    # At t = 0 there is no limit from the left.
    past = [build.less(build.ZERO, TIME)]
    for index, (node, is_whole) in enumerate(zip(floors, choice, strict=True), 1):
        count = build.own_symbol(f"floor {index}", integer=True)
        (inner,) = node.args
        low = build.add(count, build.MINUS_ONE) if is_whole else count
        before[node], after[node] = (low, count) if ways[node] > 0 else (count, low)
        there[node] = count
        facts += (
            [build.equal(inner, count)]
            if is_whole
            else [build.less(count, inner), build.less(inner, build.add(count, build.ONE))]
        )
        if is_non_negative(inner):
            facts.append(build.less_equal(build.ZERO, count))
            if is_whole and ways[node] > 0:
                # It rose to where it is from what was not below 0.
                past.append(build.less_equal(build.ONE, count))
    whole = tuple(node.args[0] for node, is_picked in zip(floors, choice, strict=True) if is_picked)
    return _Floors(before, there, after, tuple(facts), tuple(past), whole)


def _sides_of_relation(relation: Term) -> tuple[Term, Term]:
    first, second = sorted(relation.args, key=str)
    return first, second


def _meeting(
    where: str,
    before: Term,
    there: Term,
    after: Term,
    facts: tuple[Term, ...],
    past: tuple[Term, ...],
) -> list[Goal]:
    """The goals that the limits and the value at a point are defined, and one.

    ``past`` has further facts where there is something before the point.
    """
    displays = (("before it", before), ("there it", there), ("after it", after))
    goals = []
    for limit, premises in ((before, (*facts, *past)), (after, facts)):
        if limit == there:
            continue
        goals += all_defined(limit, premises, f"{where}, ")
        goals.append(
            Goal(f"{where} it does not jump", build.equal(limit, there), premises, shown=displays)
        )
    return goals


def _within(cell: RealCell, goal: Goal, apart: tuple[Term, ...]) -> Goal:
    low = build.rational(cell.low)
    facts = [build.less_equal(low, TIME) if cell.low == 0 else build.less(low, TIME), *apart]
    if cell.high is not None:
        facts.append(build.less(TIME, build.rational(cell.high)))
    return replace(goal, given=(*facts, *goal.given))


def _not_looked_at(subject: str) -> Goal:
    return Goal(f"{subject}: not looked at", build.FALSE, is_sufficient=True)


# --- jumps, listed -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Jump:
    """A point at which a schedule jumps.

    Attributes:
        time: The point of the clock; it may lie between two steps.
        before: The limit from the left.
        there: The value at the point itself.
        after: The limit from the right.
    """

    time: fmpq
    before: fmpq | arb | Undefined
    there: fmpq | arb | Undefined
    after: fmpq | arb | Undefined

    @property
    def step(self) -> int:
        """The first step at which the value is another."""
        late = self.time.q == 1 and not _differ(self.before, self.there)
        return int(self.time.ceil()) + (1 if late else 0)

    def __str__(self) -> str:
        before, after = (
            "undefined" if isinstance(side, Undefined) else number_text(side)
            for side in (self.before, self.after)
        )
        return f"from {before} to {after} at step {self.step}"


def jumps(lr: Schedule, until: int, most: int = 1000) -> tuple[Jump, ...]:
    """Returns the jumps up to a step, in order; of more than ``most`` the first ones.

    Found are those at conditions and floors that are lines in the step with rational numbers. Two
    irrational values that agree to 30 digits count as one: only the claim ``continuous`` proves.

    Raises:
        VerificationError: A hyperparameter has no value.

    Example:
        >>> from closedform import schedules
        >>> [(jump.step, str(jump.after)) for jump in jumps(schedules.step_decay(1, 0.5, 10), 25)]
        [(10, '1/2'), (20, '1/4')]
    """
    if lr.open:
        raise VerificationError(
            f"{lr.open[0]} has no value",
            where=f"schedule {lr.name!r}",
            hint="give it one with bind()",
        )
    cells = cells_of(lr)
    joints = itertools.chain(_joints(cells), *(_floor_joints(cell, until) for cell in cells))
    sorted_jumps = sorted(
        (joint for joint in joints if joint.time <= until), key=lambda joint: joint.time
    )
    return tuple(itertools.islice(_that_jump(sorted_jumps), most))


def _that_jump(joints: Iterable[_Joint]) -> Iterator[Jump]:
    for joint in joints:
        if joint.before == joint.there == joint.after:
            continue
        sides = (value(side, {}) for side in (joint.before, joint.there, joint.after))
        jump = Jump(joint.time, *sides)
        if _differ(jump.before, jump.there) or _differ(jump.there, jump.after):
            yield jump


def _floor_joints(cell: RealCell, until: int) -> Iterator[_Joint]:
    """The points within a cell at which a floor of a line is whole."""
    last = fmpq(until) if cell.high is None else min(cell.high, fmpq(until))
    before, after = limits(cell.value, _read(cell.value))
    times: set[fmpq] = set()
    for node in moving(cell.value, Op.FLOOR):
        form = line(node.args[0], TIME)
        if form is None or form.is_constant:
            continue
        ends = sorted((form.at(TIME, cell.low), form.at(TIME, last)))
        wholes = range(int(ends[0].ceil()), int(ends[1].floor()) + 1)
        times.update((form - LinearForm(fmpq(n))).root(TIME) for n in wholes[: LIMITS.jump_times])
    for time in times:
        if cell.low < time and (cell.high is None or time < cell.high):
            at = {TIME: build.rational(time)}
            yield _Joint(
                time, *(build.substitute(side, at) for side in (before, cell.value, after))
            )


_SAME = 1e-30


def _differ(left: fmpq | arb | Undefined, right: fmpq | arb | Undefined) -> bool:
    if isinstance(left, Undefined) or isinstance(right, Undefined):
        return not (isinstance(left, Undefined) and isinstance(right, Undefined))
    if isinstance(left, fmpq) and isinstance(right, fmpq):
        return bool(left != right)
    difference = abs(arb(left) - arb(right))
    return bool(difference > _SAME * (abs(arb(left)) + abs(arb(right))))

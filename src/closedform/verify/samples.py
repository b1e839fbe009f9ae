"""Counterexamples: points at which a claim is evaluated exactly.

Points are drawn symbol by symbol. What the assumptions say of a symbol, given those drawn before
it, bounds it; the bounds themselves, their neighbours, and small numbers are drawn often. The clock
comes last: its candidates are the roots of every comparison, minimum and floor in the claim, and
the steps next to them. A point counts only if every assumption holds there, evaluated exactly.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from flint import fmpq

from closedform.effort import Effort
from closedform.verify.terms import build
from closedform.verify.terms.build import ONE, ZERO, add, both, multiply, substitute, subtract
from closedform.verify.terms.canonical import is_zero
from closedform.verify.terms.evaluate import Evaluator, Undefined, holds, value
from closedform.verify.terms.facts import sign_claims
from closedform.verify.terms.interval import Interval
from closedform.verify.terms.limits import FOREVER, LIMITS
from closedform.verify.terms.partition import partition
from closedform.verify.terms.sides import sides_of
from closedform.verify.terms.tree import RELATIONS, Op, Sign, Term, symbols, walk

Point = dict[str, fmpq]


Outcome = bool | Undefined | Literal["excluded"] | None
"""The goal at a point; "excluded" where an assumption does not hold for certain."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A point at which all assumptions hold and the goal does not.

    Args:
        point: The value of each symbol.
        reason: What is false or undefined there.
        is_undefined: Whether the goal has no truth value there.
    """

    point: Mapping[str, fmpq]
    reason: str
    is_undefined: bool = False


@dataclass(slots=True)
class Tally:
    """The number of points that were tried, and their outcomes."""

    satisfied: int = 0  # points at which the goal is true
    undecided: int = 0  # balls could not decide the goal
    counterexample: Counterexample | None = None

    @property
    def point_count(self) -> int:
        """How many points satisfy the assumptions."""
        return self.satisfied + self.undecided

    def plus(self, later: Tally) -> Tally:
        """Returns the outcomes of these points and later ones."""
        return Tally(
            self.satisfied + later.satisfied,
            self.undecided + later.undecided,
            later.counterexample,
        )


def declarations(*roots: Term) -> tuple[Term, ...]:
    """Returns the declared signs of the symbols in some terms, as assumptions."""
    variables = symbols(*roots).values()
    return tuple(
        sign_claims(node)[node.value.sign] for node in variables if node.value.sign is not Sign.ANY
    )


def examine(
    goal: Term, assumptions: Iterable[Term], point: Mapping[str, fmpq]
) -> Counterexample | None:
    """Returns the counterexample that a point is, or None.

    Every assumption must hold there for certain, and the goal must be false or undefined.
    """
    # 64 bits at most: where an assumption needs more digits, another point is as good.
    if any(holds(assumption, point, (64,)) is not True for assumption in assumptions):
        return None
    truth = holds(goal, point)
    if truth is None or truth is True:
        return None
    return Counterexample(dict(point), _reason(goal, truth, point), isinstance(truth, Undefined))


def simplify_point(
    counterexample: Counterexample, goal: Term, assumptions: tuple[Term, ...], effort: Effort
) -> Counterexample:
    """Returns a counterexample of the same kind with simpler numbers, where there is one nearby.

    Each value in turn becomes the first of 0, 1, 2, -1, 1/2, its floor, the floor of its half and,
    for an integer, a few numbers below it that keeps the counterexample one.
    """
    symbols_by_name = symbols(goal, *assumptions)
    # The step last: which steps are simple depends on the lengths.
    for name in sorted(counterexample.point, key=lambda name: (name == "t", name)):
        before = counterexample.point[name]
        is_integer = symbols_by_name[name].value.integer
        lesser = (before - step for step in range(_LESSER_STEPS, 0, -1) if before >= step)
        floors = fmpq(before.floor()), fmpq((before / 2).floor())
        for number in (*_SIMPLE, *floors, *(lesser if is_integer else ())):
            if effort.left <= 0 or (number == before and number in _SIMPLE):
                break
            if number == before or (is_integer and number.q != 1):
                continue
            simpler = examine(goal, assumptions, {**counterexample.point, name: number})
            if simpler is not None and simpler.is_undefined == counterexample.is_undefined:
                counterexample = simpler
                break
    return counterexample


_LESSER_STEPS = 16
_MANY_CHOICES = 64
_SIMPLE = tuple(fmpq(*pair) for pair in ((0, 1), (1, 1), (2, 1), (-1, 1), (1, 2)))


def _reason(goal: Term, truth: bool | Undefined, point: Mapping[str, fmpq]) -> str:
    if isinstance(truth, Undefined):
        return f"undefined there: {truth.reason}"
    parts = goal.args if goal.op is Op.AND else (goal,)
    for part in parts:
        if holds(part, point) is False and part.op in RELATIONS:
            sides = sides_of(*(value(arg, point) for arg in part.args))
            suffix = sides.suffix if sides.is_near else ""
            return f"the left side is {sides.left}, the right side is {sides.right}{suffix}"
    return "it is false there"


def is_large(term: Term) -> bool:
    """Whether a term has too many nodes to look for lines in it."""
    return next(islice(walk(term), LIMITS.bound_nodes - 1, None), None) is not None


@dataclass(frozen=True, slots=True)
class LinearConstraint:
    """``0 op slope * symbol + height``, where slope and height hold other symbols."""

    op: Op
    slope: Evaluator
    height: Evaluator
    others: frozenset[str]  # all symbols of the assumption
    linear: frozenset[str]  # those that it is linear in


def linear_bounds(
    assumptions: Iterable[Term], symbols_by_name: Mapping[str, Term]
) -> dict[str, list[LinearConstraint]]:
    """The assumptions that are linear in a symbol, by symbol."""
    bounds: dict[str, list[LinearConstraint]] = {name: [] for name in symbols_by_name}
    premises = both(*assumptions)
    for relation in premises.args if premises.op is Op.AND else (premises,):
        if relation.op not in RELATIONS:
            continue
        difference = subtract(relation.args[1], relation.args[0])
        if is_large(difference):
            continue
        names = frozenset(symbols(difference))
        lines = {}
        for name in names:
            node = symbols_by_name[name]
            height = substitute(difference, {node: ZERO})
            slope = subtract(substitute(difference, {node: ONE}), height)
            line = add(multiply(slope, node), height)
            if is_zero(subtract(difference, line)):
                lines[name] = slope, height
        for name, (slope, height) in lines.items():
            bounds[name].append(
                LinearConstraint(
                    relation.op, Evaluator(slope), Evaluator(height), names, frozenset(lines)
                )
            )
    return bounds


class Sampler:
    """Draws points that the assumptions admit, always the same ones for the same seed.

    Args:
        goal: The claim.
        assumptions: What holds; the declarations of symbols are added.
        seed: Where the draws begin.
    """

    def __init__(self, goal: Term, assumptions: Iterable[Term], seed: int) -> None:
        self.goal = goal
        premises = tuple(assumptions)
        self._symbols = symbols(goal, *premises)
        self.assumptions = (*declarations(goal, *premises), *premises)
        self._goal = Evaluator(goal)
        self._premises = tuple(Evaluator(assumption) for assumption in self.assumptions)
        self._outcomes: dict[tuple[fmpq, ...], Outcome] = {}
        self._random = random.Random(seed)
        self._next_step = 0
        self._bounds = linear_bounds(self.assumptions, self._symbols)
        self._order = self._drawing_order()
        self._roots = self._root_terms()

    def search(self, most: int, effort: Effort) -> Tally:
        """Evaluates the goal at up to ``most`` points, until a counterexample or the effort."""
        tally = Tally()
        if not self._symbols:
            return self._search([{}], tally, 1, effort)
        if len(self._order) == 1:
            tally.counterexample = self._false_segment()
            if tally.counterexample is not None:
                return tally
            portion = effort.portion(effort.left / 2)
            self._search(self._next_steps(4 * most), tally, 4 * most, portion)
            if tally.counterexample is not None:
                return tally
            most += tally.point_count
        attempts = 0
        while tally.satisfied + tally.undecided < most and attempts < 20 * most and effort.left > 0:
            attempts += 1
            self._search(self._draw(), tally, most, effort)
            if tally.counterexample is not None:
                break
        return tally

    def _search(self, points: Iterable[Point], tally: Tally, most: int, effort: Effort) -> Tally:
        for point in points:
            if tally.point_count >= most or effort.left <= 0:
                break
            truth = self._outcome(point)
            if truth == "excluded":
                continue
            if truth is None:
                tally.undecided += 1
            elif truth is True:
                tally.satisfied += 1
            else:
                reason = _reason(self.goal, truth, point)
                is_undefined = isinstance(truth, Undefined)
                tally.counterexample = Counterexample(point, reason, is_undefined)
                break
        return tally

    def _outcome(self, point: Point) -> Outcome:
        """The goal at a point; ranges of few numbers are drawn from many times."""
        numbers = tuple(point[name] for name in self._order)
        if numbers not in self._outcomes:
            is_admitted = all(premise.holds(point, (64,)) is True for premise in self._premises)
            self._outcomes[numbers] = self._goal.holds(point) if is_admitted else "excluded"
        return self._outcomes[numbers]

    def _false_segment(self) -> Counterexample | None:
        """The first step of a segment at which a goal of many choices is false, by its term."""
        (name,) = self._order
        clock, interval = self._symbols[name], self._interval(name, {})
        # A later call has the same segments.
        if self._next_step or interval is None or not clock.value.integer:
            return None
        if sum(node.op is Op.ITE for node in walk(self.goal)) < _MANY_CHOICES:
            return None
        first = int(interval.low.p) if interval.low is not None else 0
        end = FOREVER if interval.high is None else int(interval.high.p) + 1
        for part in partition(self.goal, clock, first, end) if first < end else ():
            point = {name: fmpq(part.first)}
            if holds(part.term(clock), point) is False:
                return examine(self.goal, self.assumptions, point)
        return None

    def _next_steps(self, count: int) -> Iterator[Point]:
        """The next values of the only symbol, where it is an integer: periods are short."""
        (name,) = self._order
        interval = self._interval(name, {})
        if not self._symbols[name].value.integer or interval is None:
            return
        first = (interval.low or fmpq(0)) + self._next_step
        for step in range(count):
            if interval.high is not None and first + step > interval.high:
                return
            self._next_step += 1
            yield {name: first + step}

    def _drawing_order(self) -> list[str]:
        """Symbols that an assumption is not linear in come first, the clock last."""
        curved_uses = {
            name: sum(name in bound.others and name not in bound.linear for bound in self._all())
            for name in self._symbols
        }
        clock = _clock(self._symbols)
        return sorted(self._symbols, key=lambda name: (name == clock, -curved_uses[name], name))

    def _all(self) -> Iterator[LinearConstraint]:
        for bounds in self._bounds.values():
            yield from bounds

    def _draw(self) -> Iterator[Point]:
        """One draw of the parameters, with a few values of the last symbol."""
        point: Point = {}
        *parameters, last = self._order
        is_small = self._random.random() < 0.5
        for name in parameters:
            interval = self._interval(name, point)
            if interval is None:
                return
            point[name] = self._draw_number(name, interval, point, is_small=is_small)
        interval = self._interval(last, point)
        if interval is None:
            return
        for number in self._last(last, interval, point):
            yield {**point, last: number}

    def _interval(self, name: str, point: Point) -> Interval | None:
        """The bounds of a symbol given those drawn before it; None where they are empty."""
        interval = Interval()
        for bound in self._bounds[name]:
            if all(constraint_name in point for constraint_name in bound.others - {name}):
                slope, height = bound.slope.value(point), bound.height.value(point)
                if not isinstance(slope, fmpq) or not isinstance(height, fmpq):
                    continue
                if slope == 0:
                    if not build.is_satisfied(bound.op, height):
                        return None
                    continue
                interval = interval.cut(bound.op, -height / slope, rising=slope > 0)
        if self._symbols[name].value.integer:
            interval = interval.whole()
        return None if interval.is_empty else interval

    def _draw_number(self, name: str, interval: Interval, point: Point, *, is_small: bool) -> fmpq:
        is_integer = self._symbols[name].value.integer
        draw = self._random.random()
        # Claims often fail where two symbols are equal, or at the end of a range.
        if draw < 0.12 and point:
            earlier_value = self._random.choice(list(point.values()))
            if interval.holds(earlier_value) and (not is_integer or earlier_value.q == 1):
                return earlier_value
        ends = interval.ends(is_integer)
        if draw < 0.35 and ends:
            return self._random.choice(ends)
        if is_integer:
            return self._integer(interval, is_small=is_small)
        return self._fraction(interval)

    def _integer(self, interval: Interval, *, is_small: bool) -> fmpq:
        width = 6 if is_small else self._random.choice((30, 60, 60, 1000, 20_000))
        low, high = interval.low, interval.high
        if low is None:
            low = (high - width) if high is not None else fmpq(-width)
        high = min(high, low + width) if high is not None else low + width
        return fmpq(self._random.randint(int(low.p), int(high.p)))

    def _fraction(self, interval: Interval) -> fmpq:
        low: fmpq | None = interval.low
        high: fmpq | None = interval.high
        if low is not None and high is not None:
            parts = self._random.choice((2, 3, 4, 10, 24, 1000))
            return low + (high - low) * fmpq(self._random.randint(0, parts), parts)
        step = fmpq(self._random.randint(0, 12), self._random.choice((1, 2, 4, 10, 100)))
        if low is not None:
            return low + step
        if high is not None:
            return high - step
        return step * self._random.choice((1, -1))

    def _last(self, name: str, interval: Interval, point: Point) -> list[fmpq]:
        """Values of the last symbol: near the roots of the claim, near its bounds, and others."""
        if not self._symbols[name].value.integer:
            draws = [
                self._draw_number(name, interval, point, is_small=draw) for draw in (True, False)
            ]
            return [*draws, *self._near_roots(point, interval, is_integer=False)]
        steps = set(self._near_roots(point, interval, is_integer=True))
        steps.update(end for end in interval.ends(is_integer=True))
        steps.add(self._integer(interval, is_small=True))
        steps.add(self._integer(interval, is_small=False))
        sorted_steps = sorted(steps)
        return self._random.sample(sorted_steps, min(LIMITS.draw_steps, len(sorted_steps)))

    def _near_roots(self, point: Point, interval: Interval, *, is_integer: bool) -> Iterator[fmpq]:
        """Numbers at which a term of the claim is 0 or a floor jumps, or integers around them."""
        count = min(LIMITS.draw_roots, len(self._roots))
        for at_zero, at_one, is_floor in self._random.sample(self._roots, count):
            start, end = at_zero.value(point), at_one.value(point)
            if not isinstance(start, fmpq) or not isinstance(end, fmpq) or start == end:
                continue
            # A floor jumps at every integer: one of the first is drawn.
            level = fmpq(self._random.randint(0, 3)) if is_floor else fmpq(0)
            # Exact where the term is a line in the symbol, a guess elsewhere.
            root = (level - start) / (end - start)
            if abs(root) > LIMITS.draw_size:
                continue
            floor = fmpq(root.floor())
            candidates = [floor - 1, floor, floor + 1, floor + 2] if is_integer else [root]
            yield from (number for number in candidates if interval.holds(number))

    def _root_terms(self) -> list[tuple[Evaluator, Evaluator, bool]]:
        """Terms that are 0 where the claim may change, at 0 and 1 of the last symbol."""
        if not self._symbols:
            return []
        last = self._symbols[self._order[-1]]
        root_terms = []
        for node in walk(self.goal):
            if node.op in RELATIONS or node.op in (Op.MINIMUM, Op.MAXIMUM):
                changing, is_floor = build.subtract(*node.args), False
            elif node.op in (Op.FLOOR, Op.ABSOLUTE, Op.SIGN):
                changing, is_floor = node.args[0], node.op is Op.FLOOR
            else:
                continue
            if last in walk(changing) and not is_large(changing):
                at_zero, at_one = (
                    Evaluator(build.substitute(changing, {last: end}))
                    for end in (build.ZERO, build.ONE)
                )
                root_terms.append((at_zero, at_one, is_floor))
        return root_terms


def _clock(symbols_by_name: Mapping[str, Term]) -> str | None:
    """The symbol that counts steps: ``t``, or a symbol that is an integer >= 0."""
    if "t" in symbols_by_name:
        return "t"
    counts = [
        name
        for name, node in symbols_by_name.items()
        if node.value.integer and node.value.sign is Sign.NONNEGATIVE
    ]
    return counts[-1] if counts else None

"""Which way a number goes on a run of steps, and between which bounds it lies.

By structure, from below: sums of numbers that go one way do, so do products of numbers of one
sign whose sizes go one way, powers, exp, log, floors, and cos(pi u) where u stays between two
neighbouring integers. Bounds are exact at the ends of the run: where a number is monotone its
least and greatest value are those. Whatever is found defined here is defined on the whole run:
divisors and arguments of log have one sign, strictly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from flint import arb, fmpq

from closedform.verify.terms.evaluate import value
from closedform.verify.terms.partition import FOREVER
from closedform.verify.terms.tree import TRUTHS, Op, Term, walk

Number = Any  # fmpq or arb


class Way(StrEnum):
    """Which way a number goes with the clock, weakly."""

    FLAT = "flat"
    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


_TURNED = {Way.UP: Way.DOWN, Way.DOWN: Way.UP, Way.FLAT: Way.FLAT, Way.UNKNOWN: Way.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Course:
    """What is known of a number on a run: its way, and bounds, None where there is none."""

    way: Way
    low: Number | None = None
    high: Number | None = None

    @property
    def sign(self) -> int | None:
        """1 for at least 0, -1 for at most 0, None where it is not known."""
        if self.low is not None and self.low >= 0:
            return 1
        return -1 if self.high is not None and self.high <= 0 else None

    @property
    def strict_sign(self) -> int | None:
        """1 for above 0, -1 for below 0, None where it is not known."""
        if self.low is not None and self.low > 0:
            return 1
        return -1 if self.high is not None and self.high < 0 else None


class Stuck(Exception):  # noqa: N818 - says that nothing is known
    """A number of which neither way nor definedness is known."""


def course(term: Term, clock: Term, first: int, last: int) -> Course | None:
    """Returns what is known of a number on a run; None where it may be undefined.

    Args:
        term: A number in the clock alone.
        clock: The clock.
        first: The first step of the run.
        last: The last one, or FOREVER.
    """
    courses: dict[Term, Course] = {}
    run = _Span(clock, first, last)
    try:
        for node in walk(term):
            if node.op in TRUTHS:
                return None
            courses[node] = run.bounded(node, _course(node, courses, run))
    except Stuck:
        return None
    return courses[term]


class _Span:
    def __init__(self, clock: Term, first: int, last: int) -> None:
        self.clock = clock
        self.ends = first, last

    def at(self, node: Term, step: int) -> Number:
        """The value at a step, a fraction or a ball."""
        found = value(node, {self.clock.value.name: fmpq(step)})
        if not isinstance(found, fmpq | arb):
            raise Stuck
        return found

    def bounded(self, node: Term, found: Course) -> Course:
        """A course with the bounds that its ends give."""
        first, last = self.ends
        if found.way is Way.UNKNOWN or node.op is Op.RATIONAL:
            return found
        start = self.at(node, first)
        if found.way is Way.FLAT:
            return Course(Way.FLAT, start, start)
        end = self.at(node, last) if last != FOREVER else None
        low, high = (start, end) if found.way is Way.UP else (end, start)
        return Course(
            found.way,
            found.low if low is None else low,
            found.high if high is None else high,
        )


_Courses = Mapping[Term, Course]


def _course(node: Term, courses: _Courses, run: _Span) -> Course:
    if node == run.clock:
        return Course(Way.UP)
    if node.op is Op.RATIONAL:
        return Course(Way.FLAT, node.value, node.value)
    args = [courses[arg] for arg in node.args]
    handler = _HANDLERS.get(node.op)
    if handler is None:
        raise Stuck
    return handler(node, args)


def _joined(ways: list[Way]) -> Way:
    """The way of something that goes with each of several numbers."""
    found = set(ways) - {Way.FLAT}
    if not found:
        return Way.FLAT
    return found.pop() if len(found) == 1 else Way.UNKNOWN


def _plus(left: Number | None, right: Number | None) -> Number | None:
    return None if left is None or right is None else _sum(left, right)


def _sum(left: Number, right: Number) -> Number:
    same = isinstance(left, arb) == isinstance(right, arb)
    return left + right if same else arb(left) + arb(right)


def _times(left: Number, right: Number) -> Number:
    same = isinstance(left, arb) == isinstance(right, arb)
    return left * right if same else arb(left) * arb(right)


def _add(_: Term, args: list[Course]) -> Course:
    low, high = args[0].low, args[0].high
    for arg in args[1:]:
        low, high = _plus(low, arg.low), _plus(high, arg.high)
    return Course(_joined([arg.way for arg in args]), low, high)


def _multiply(_: Term, args: list[Course]) -> Course:
    result = args[0]
    for arg in args[1:]:
        result = _product(result, arg)
    return result


def _scaled(factor: Number, end: Number | None) -> Number | None:
    return None if end is None else _times(factor, end)


def _product(left: Course, right: Course) -> Course:
    for one, other in ((left, right), (right, left)):
        if one.way is Way.FLAT and one.sign is not None:
            ends = [
                None if end is None else _times(one.low, end) for end in (other.low, other.high)
            ]
            way = other.way if one.sign > 0 else _TURNED[other.way]
            return Course(way, *(ends if one.sign > 0 else reversed(ends)))
    if left.sign is None or right.sign is None:
        return Course(Way.UNKNOWN)
    sizes = [each.way if each.sign == 1 else _TURNED[each.way] for each in (left, right)]
    way = _joined(sizes)
    if left.sign == right.sign:
        return Course(way, low=fmpq(0))
    return Course(_TURNED[way], high=fmpq(0))


def _divide(_: Term, args: list[Course]) -> Course:
    above, below = args
    if below.strict_sign is None:
        raise Stuck
    if below.way is Way.FLAT and below.low is not None:
        return _product(above, Course(Way.FLAT, 1 / below.low, 1 / below.low))
    way, zero = _TURNED[below.way], fmpq(0)
    inverse = Course(way, low=zero) if below.strict_sign > 0 else Course(way, high=zero)
    return _product(above, inverse)


def _power(node: Term, args: list[Course]) -> Course:
    base, exponent = args
    if exponent.way is Way.FLAT:
        return _constant_exponent(node, base, exponent)
    if base.way is not Way.FLAT or base.strict_sign != 1 or base.low is None:
        raise Stuck
    if base.low > 1:
        return Course(exponent.way, low=fmpq(0))
    return Course(_TURNED[exponent.way] if base.low < 1 else Way.UNKNOWN, low=fmpq(0))


def _constant_exponent(node: Term, base: Course, exponent: Course) -> Course:
    number = node.args[1]
    is_whole = number.op is Op.RATIONAL and number.value.q == 1 and number.value >= 0
    if base.sign == 1 and exponent.strict_sign == 1:
        return Course(base.way, low=fmpq(0))
    if base.strict_sign == 1:
        way = _TURNED[base.way] if exponent.strict_sign == -1 else Way.UNKNOWN
        return Course(way, low=fmpq(0))
    if not is_whole:
        raise Stuck
    if number.value.p % 2 == 0:
        way = _TURNED[base.way] if base.sign == -1 else Way.UNKNOWN
        return Course(way, low=fmpq(0))
    return Course(base.way)


def _exp(_: Term, args: list[Course]) -> Course:
    return Course(args[0].way, low=fmpq(0))


def _log(_: Term, args: list[Course]) -> Course:
    if args[0].strict_sign != 1:
        raise Stuck
    return Course(args[0].way)


def _floor(_: Term, args: list[Course]) -> Course:
    return Course(args[0].way)


def _wave(offset: fmpq) -> Callable[[Term, list[Course]], Course]:
    """``cos(pi (u - offset))``: falls where that is from an even to an odd integer, else rises."""

    def handler(_: Term, args: list[Course]) -> Course:
        turns = args[0]
        unknown = Course(Way.UNKNOWN, fmpq(-1), fmpq(1))
        if turns.way is Way.FLAT:
            return Course(Way.FLAT)
        if turns.low is None or turns.high is None or turns.way is Way.UNKNOWN:
            return unknown
        low, high = _sum(turns.low, -offset), _sum(turns.high, -offset)
        half_turn = _floor_of(low)
        if half_turn is None or not high <= half_turn + 1:
            return unknown
        falls = half_turn % 2 == 0
        return Course(_TURNED[turns.way] if falls else turns.way, fmpq(-1), fmpq(1))

    return handler


def _floor_of(number: Number) -> int | None:
    if isinstance(number, fmpq):
        return int(number.floor())
    whole = number.floor().unique_fmpz()
    return None if whole is None else int(whole)


def _extreme(node: Term, args: list[Course]) -> Course:
    return Course(_joined([arg.way for arg in args]))


def _absolute(_: Term, args: list[Course]) -> Course:
    way = {1: args[0].way, -1: _TURNED[args[0].way], None: Way.UNKNOWN}[args[0].sign]
    return Course(way, low=fmpq(0))


def _constant(_: Term, __: list[Course]) -> Course:
    return Course(Way.FLAT)


_HANDLERS: Mapping[Op, Callable[[Term, list[Course]], Course]] = {
    Op.PI: _constant,
    Op.ADD: _add,
    Op.MULTIPLY: _multiply,
    Op.DIVIDE: _divide,
    Op.POWER: _power,
    Op.EXP: _exp,
    Op.LOG: _log,
    Op.FLOOR: _floor,
    Op.SIGN: _floor,
    Op.COSPI: _wave(fmpq(0)),
    Op.SINPI: _wave(fmpq(1, 2)),
    Op.MINIMUM: _extreme,
    Op.MAXIMUM: _extreme,
    Op.ABSOLUTE: _absolute,
}

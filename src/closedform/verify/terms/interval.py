"""Intervals of exact numbers: rational ends, or balls where an end is irrational.

Nothing is rounded here, since a proof may depend on whether an end belongs to the interval. The one
other class of intervals in this package, ``certificates.error_rules.Enclosure``, holds arrays of
float64 that are rounded outward: error analysis works on thousands of intervals at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from flint import arb, fmpq

from closedform.language.balls import whole_number
from closedform.verify.terms.facts import (
    NON_NEGATIVE,
    NON_POSITIVE,
    sign_between,
    sign_of_product,
)
from closedform.verify.terms.tree import Op, Sign

Number = Any  # fmpq or arb
Choice = Callable[[Number, Number], Number]


def plus(left: Number, right: Number) -> Number:
    """Returns the sum of two numbers, a fraction where both are."""
    are_alike = isinstance(left, arb) == isinstance(right, arb)
    return left + right if are_alike else arb(left) + arb(right)


def times(left: Number, right: Number) -> Number:
    """Returns the product of two numbers, a fraction where both are."""
    are_alike = isinstance(left, arb) == isinstance(right, arb)
    return left * right if are_alike else arb(left) * arb(right)


def lesser(left: Number, right: Number) -> Number:
    """Returns the lesser of two numbers; of balls that overlap, a ball around it."""
    if isinstance(left, fmpq) and isinstance(right, fmpq):
        return min(left, right)
    return arb(left).min(arb(right))


def greater(left: Number, right: Number) -> Number:
    """Returns the greater of two numbers; of balls that overlap, a ball around it."""
    if isinstance(left, fmpq) and isinstance(right, fmpq):
        return max(left, right)
    return arb(left).max(arb(right))


def floor_of(number: Number | None) -> int | None:
    """Returns the greatest integer that is not above a number; None where a ball holds several."""
    if number is None or isinstance(number, fmpq):
        return None if number is None else int(number.floor())
    return whole_number(number.floor())


def _of_both(choose: Choice, left: Number | None, right: Number | None) -> Number | None:
    return None if left is None or right is None else choose(left, right)


def _of_either(choose: Choice, left: Number | None, right: Number | None) -> Number | None:
    if left is None or right is None:
        return right if left is None else left
    return choose(left, right)


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers between two ends.

    Attributes:
        low: The lower end; None where there is none.
        high: The upper end; None where there is none.
        low_is_open: Whether the lower end is excluded.
        high_is_open: Whether the upper end is excluded.
    """

    low: Number | None = None
    high: Number | None = None
    low_is_open: bool = False
    high_is_open: bool = False

    @property
    def sign(self) -> Sign:
        """The sign of all its numbers, ends included."""
        return sign_between(self.low, self.high)

    def __add__(self, addend: Interval) -> Interval:
        """The sums, between closed ends."""
        low, high = (
            None if end is None or other_end is None else plus(end, other_end)
            for end, other_end in ((self.low, addend.low), (self.high, addend.high))
        )
        return Interval(low, high)

    def scale(self, factor: Number) -> Interval:
        """The multiples by a number of known sign, between closed ends."""
        ends = [None if end is None else times(factor, end) for end in (self.low, self.high)]
        return Interval(*(reversed(ends) if sign_between(factor, factor) in NON_POSITIVE else ends))

    def __mul__(self, factor: Interval) -> Interval:
        """The products, between closed ends; only their sign where an end is missing."""
        ends = (self.low, self.high), (factor.low, factor.high)
        if any(end is None for pair in ends for end in pair):
            # An end at infinity times an end at 0 has no value: only the sign is certain.
            sign = sign_of_product((self.sign, factor.sign))
            return Interval(
                low=fmpq(0) if sign in NON_NEGATIVE else None,
                high=fmpq(0) if sign in NON_POSITIVE else None,
            )
        # A bilinear function has its extremes in corners.
        corners = [times(left_end, other_end) for left_end in ends[0] for other_end in ends[1]]
        return Interval(reduce(lesser, corners), reduce(greater, corners))

    def inverse(self) -> Interval:
        """One over numbers of one sign, none of which is 0, between closed ends."""
        is_positive = self.sign is Sign.POSITIVE
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        zero = fmpq(0)
        return Interval(
            zero if low is None and is_positive else low,
            zero if high is None and not is_positive else high,
        )

    def hull(self, interval: Interval) -> Interval:
        """The numbers of both and between them, between closed ends."""
        return Interval(
            _of_both(lesser, self.low, interval.low), _of_both(greater, self.high, interval.high)
        )

    def common(self, interval: Interval) -> Interval:
        """The numbers that are in both intervals, between closed ends."""
        return Interval(
            _of_either(greater, self.low, interval.low),
            _of_either(lesser, self.high, interval.high),
        )

    def minimum(self, interval: Interval) -> Interval:
        """The lesser of a number of each, between closed ends."""
        return Interval(
            # One upper end bounds the lesser of both, but a lower end needs both.
            _of_both(lesser, self.low, interval.low),
            _of_either(lesser, self.high, interval.high),
        )

    def floors(self) -> Interval:
        """The greatest integers that are not above its numbers, between closed ends."""
        low, high = (
            fmpq(end.floor()) if isinstance(end, fmpq) else end for end in (self.low, self.high)
        )
        # x - 1 < floor(x) <= x: a ball may reach over an integer.
        return Interval(plus(low, fmpq(-1)) if isinstance(low, arb) else low, high)

    def is_within(self, bounds: Interval) -> bool:
        """Whether all its numbers are between the ends of another interval."""
        is_above = bounds.low is None or (self.low is not None and bool(self.low >= bounds.low))
        is_below = bounds.high is None or (self.high is not None and bool(self.high <= bounds.high))
        return is_above and is_below

    def cut(self, op: Op, root: fmpq, *, rising: bool) -> Interval:
        """The part where a line through ``root`` is above 0, at least 0, or 0."""
        result = self
        is_open = op is Op.LESS
        if rising or op is Op.EQUAL:
            result = result.above(root, is_open=is_open)
        if not rising or op is Op.EQUAL:
            result = result.under(root, is_open=is_open)
        return result

    def above(self, root: fmpq, *, is_open: bool) -> Interval:
        """The part at or above a number."""
        if self.low is not None and (self.low > root or (self.low == root and self.low_is_open)):
            return self
        return Interval(root, self.high, is_open, self.high_is_open)

    def under(self, root: fmpq, *, is_open: bool) -> Interval:
        """The part at or below a number."""
        if self.high is not None and (
            self.high < root or (self.high == root and self.high_is_open)
        ):
            return self
        return Interval(self.low, root, self.low_is_open, is_open)

    def whole(self) -> Interval:
        """The same integers, between integers."""
        low = self.low
        if low is not None:
            low = fmpq(low.floor()) + 1 if self.low_is_open else fmpq(low.ceil())
        high = self.high
        if high is not None:
            high = fmpq(high.ceil()) - 1 if self.high_is_open else fmpq(high.floor())
        return Interval(low, high)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no number."""
        if self.low is None or self.high is None:
            return False
        is_open = self.low_is_open or self.high_is_open
        return bool(self.low > self.high or (self.low == self.high and is_open))

    def holds(self, number: fmpq) -> bool:
        """Whether it holds a number."""
        if self.low is not None and (
            number < self.low or (number == self.low and self.low_is_open)
        ):
            return False
        if self.high is None:
            return True
        return bool(number < self.high or (number == self.high and not self.high_is_open))

    def ends(self, is_integer: bool) -> list[fmpq]:
        """Numbers at its ends: themselves, or close to them where they are open; and 0 and 1."""
        # An open end has no nearest number; some number close to it.
        step = fmpq(1) if is_integer else fmpq(1, 1000)
        numbers = [fmpq(0), fmpq(1), fmpq(2)]
        if self.low is not None:
            numbers += [self.low, self.low + step]
        if self.high is not None:
            numbers += [self.high, self.high - step]
        # A hash of a fraction costs more than its comparisons with a few others.
        distinct_numbers = [
            number for place, number in enumerate(numbers) if number not in numbers[:place]
        ]
        return [number for number in distinct_numbers if self.holds(number)]

"""Closed intervals with exact ends, the facts that annotate computes.

Ends are Fractions or infinities. Rational arithmetic is exact; transcendental functions are
evaluated in float64 and widened outward, so an interval always encloses the true values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

Bound = Fraction | float
"""A Fraction, or minus or plus infinity as a float."""

INFINITY = math.inf
# Ends with more bits than this are widened to float64, to bound time and memory.
_MAX_BITS = 4096


@dataclass(frozen=True, slots=True)
class Interval:
    """All reals from ``low`` to ``high``; ``is_nonzero`` states that 0 is not among the values."""

    low: Bound
    high: Bound
    is_nonzero: bool = False

    def __post_init__(self) -> None:
        low, high = _round_bound(self.low, -INFINITY), _round_bound(self.high, INFINITY)
        if low is not self.low:
            object.__setattr__(self, "low", low)
        if high is not self.high:
            object.__setattr__(self, "high", high)
        if not self.is_nonzero and (_sign(low) > 0 or _sign(high) < 0):
            object.__setattr__(self, "is_nonzero", True)

    @property
    def is_positive(self) -> bool:
        """True if every value is above zero."""
        return self.low > 0 or (self.low >= 0 and self.is_nonzero)

    @property
    def is_nonnegative(self) -> bool:
        """True if no value is below zero."""
        return self.low >= 0

    @property
    def is_negative(self) -> bool:
        """True if every value is below zero."""
        return self.high < 0 or (self.high <= 0 and self.is_nonzero)

    @property
    def is_point(self) -> bool:
        """True if there is only one value."""
        return self.low == self.high

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, self.is_nonzero)

    def __add__(self, other: Interval) -> Interval:
        return Interval(_sum(self.low, other.low, -1), _sum(self.high, other.high, 1))

    def __mul__(self, other: Interval) -> Interval:
        corners = [_product(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners), self.is_nonzero and other.is_nonzero)

    def union(self, other: Interval) -> Interval:
        """Returns the smallest interval that holds both."""
        nonzero = self.is_nonzero and other.is_nonzero
        return Interval(min(self.low, other.low), max(self.high, other.high), nonzero)

    def reciprocal(self) -> Interval:
        """Returns the values of 1/x; everything where x may be zero."""
        if not self.is_nonzero or self.low < 0 < self.high:
            return ALL
        low = _inverse(self.high, -INFINITY if self.high <= 0 else INFINITY)
        high = _inverse(self.low, INFINITY if self.low >= 0 else -INFINITY)
        return Interval(low, high, is_nonzero=True)

    def power(self, exponent: int) -> Interval:
        """Returns the values of x**exponent for an integer exponent >= 0."""
        if exponent == 0:
            return point(Fraction(1))
        if max(_bits(self.low), _bits(self.high)) * exponent > _MAX_BITS:
            return self._large_power(exponent)
        low, high = _power(self.low, exponent), _power(self.high, exponent)
        if exponent % 2 == 1 or self.low >= 0:
            return Interval(low, high, self.is_nonzero)
        if self.high <= 0:
            return Interval(high, low, self.is_nonzero)
        return Interval(Fraction(0), max(low, high), self.is_nonzero)

    def _large_power(self, exponent: int) -> Interval:
        """A coarse enclosure of x**exponent, where the exact ends would be too long."""
        bound: Bound = Fraction(1) if -1 <= self.low and self.high <= 1 else INFINITY
        low = -bound if exponent % 2 == 1 and self.low < 0 else Fraction(0)
        return Interval(low, bound, self.is_nonzero)

    def absolute(self) -> Interval:
        """Returns the values of abs(x)."""
        if self.low >= 0:
            return self
        if self.high <= 0:
            return -self
        return Interval(Fraction(0), max(-self.low, self.high), self.is_nonzero)

    def floor(self) -> Interval:
        """Returns the values of floor(x)."""
        return Interval(_floor(self.low), _floor(self.high))

    def monotone(self, function: Callable[[float], float]) -> Interval:
        """Returns the values of an increasing float function, widened outward by four ulp."""
        return Interval(
            _outward(function, self.low, -INFINITY), _outward(function, self.high, INFINITY)
        )


def point(value: Fraction) -> Interval:
    """Returns the interval of one value."""
    return Interval(value, value)


def as_float(bound: Bound) -> float:
    """Returns a float near a bound; infinite where it is out of range."""
    try:
        return float(bound)
    except OverflowError:
        return INFINITY if bound > 0 else -INFINITY


def _round_bound(bound: Bound, direction: float) -> Bound:
    if isinstance(bound, float):
        return bound if math.isinf(bound) else Fraction(bound)
    if _bits(bound) <= _MAX_BITS:
        return bound
    value = math.nextafter(as_float(bound), direction)
    return value if math.isinf(value) else Fraction(value)


def _sign(bound: Bound) -> float:
    """A number of the bound's sign, which Python compares with 0 faster than a Fraction."""
    return bound if isinstance(bound, float) else bound.numerator


def _sum(a: Bound, b: Bound, direction: int) -> Bound:
    if isinstance(a, float) and isinstance(b, float) and a != b:
        return direction * INFINITY
    if isinstance(a, float):
        return a
    return b if isinstance(b, float) else a + b


def _product(a: Bound, b: Bound) -> Bound:
    if a == 0 or b == 0:
        return Fraction(0)
    if isinstance(a, float) or isinstance(b, float):
        # A Fraction may be too large for a float.
        return INFINITY if (a > 0) == (b > 0) else -INFINITY
    return a * b


def _inverse(bound: Bound, at_zero: float) -> Bound:
    if isinstance(bound, float):
        return Fraction(0)
    return at_zero if bound == 0 else 1 / bound


def _bits(bound: Bound) -> int:
    if isinstance(bound, float):
        return 0
    return max(bound.numerator.bit_length(), bound.denominator.bit_length())


def _power(bound: Bound, exponent: int) -> Bound:
    if isinstance(bound, float):
        return bound if exponent % 2 else INFINITY
    return bound**exponent


def _floor(bound: Bound) -> Bound:
    return bound if isinstance(bound, float) else Fraction(math.floor(bound))


def _outward(function: Callable[[float], float], bound: Bound, direction: float) -> Bound:
    try:
        value = function(math.nextafter(as_float(bound), direction))
    except OverflowError:
        value = INFINITY
    except ValueError:
        return direction
    for _ in range(4):
        value = math.nextafter(value, direction)
    return value if math.isinf(value) else Fraction(value)


ALL = Interval(-INFINITY, INFINITY)

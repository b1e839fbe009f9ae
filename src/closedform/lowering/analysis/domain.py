"""Domains: intervals with exact ends of the symbols where an expression is taken.

A domain maps each symbol to an interval. A condition narrows it: inside the branch of a Piecewise
with the condition ``t < 5`` the clock is at most 4. Ends are Fractions or infinities. Rational
arithmetic is exact, and transcendental functions are balls of python-flint, so an interval always
encloses the true values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import sympy as sp
from flint import arb, fmpq
from sympy.core.relational import Relational

from closedform.ir.types import LAST_STEP as LAST_STEP
from closedform.ir.types import MAX_STEP as MAX_STEP
from closedform.ir.types import DType
from closedform.language.balls import ball_precision, bounds
from closedform.language.exact import nearest_float
from closedform.language.symbols import t

Bound = Fraction | float
"""A Fraction, or minus or plus infinity as a float."""

INFINITY = math.inf
# Ends with more bits than this are widened to float64, to bound time and memory.
_MAX_BITS = 4096
END_BITS = 96
"""Bits of an irrational end."""


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
        # Exact ends, so sums and products need no outward rounding.
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
        # 1/x of an interval around 0 is two rays: their hull is everything.
        if not self.is_nonzero or self.low < 0 < self.high:
            return ALL
        low = _inverse(self.high, -INFINITY if self.high <= 0 else INFINITY)
        high = _inverse(self.low, INFINITY if self.low >= 0 else -INFINITY)
        return Interval(low, high, is_nonzero=True)

    def power(self, exponent: int) -> Interval:
        """Returns the values of x**exponent for an integer exponent >= 0."""
        if exponent == 0:
            return point(Fraction(1))
        # The ends would have about bits × exponent bits; checked before the power is computed.
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
        # Values up to 0 that are not 0 are below it.
        high = Fraction(-1) if self.high == 0 and self.is_nonzero else _floor(self.high)
        return Interval(_floor(self.low), high)

    def monotone(self, function: Callable[[arb], arb]) -> Interval:
        """Returns the values of an increasing function of balls, such as ``arb.exp``."""
        with ball_precision(END_BITS):
            low, high = (interval_of(function(ball_of(end))) for end in (self.low, self.high))
        return Interval(low.low, high.high)


def point(value: Fraction) -> Interval:
    """Returns the interval of one value."""
    return Interval(value, value)


def ball_of(bound: Bound) -> arb:
    """Returns a ball around a bound."""
    if isinstance(bound, float):
        return arb(bound)
    return arb(fmpq(bound.numerator, bound.denominator))


def interval_of(ball: arb) -> Interval:
    """Returns an interval that holds a ball; everything where the ball is not a number.

    Example:
        >>> interval_of(arb(3))
        Interval(low=Fraction(3, 1), high=Fraction(3, 1), is_nonzero=True)
    """
    ends = bounds(ball)
    if ends is not None:
        low, high = (Fraction(int(end.p), int(end.q)) for end in ends)
        return Interval(low, high)
    if not ball.is_finite():
        infinity = INFINITY if ball > 0 else -INFINITY
        return Interval(infinity, infinity) if ball > 0 or ball < 0 else ALL
    # Too large, or too near to 0, to be written out.
    edge, size = Fraction(2) ** (_MAX_BITS - 1), abs(ball)
    tiny = Interval(Fraction(0), 1 / edge, bool(size > 0))
    positive = Interval(edge, INFINITY) if size > 1 else tiny
    if ball > 0:
        return positive
    return -positive if ball < 0 else positive.union(-positive)


def _round_bound(bound: Bound, direction: float) -> Bound:
    if isinstance(bound, float):
        return bound if math.isinf(bound) else Fraction(bound)
    if _bits(bound) <= _MAX_BITS:
        return bound
    value = math.nextafter(nearest_float(bound), direction)
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
    # 0 times an infinite end is 0: the infinity is only a bound, and no value is infinite.
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


ALL = Interval(-INFINITY, INFINITY)


@dataclass(frozen=True)
class Domain:
    """Intervals of symbols; a symbol that is not listed may be any real number."""

    bounds: Mapping[sp.Symbol, Interval] = field(default_factory=dict)
    # Passes over one expression narrow one domain by the same conditions, and enclose its parts.
    _compute_narrow: dict[tuple[sp.Basic, bool], Domain | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _intervals: dict[sp.Expr, Interval] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(frozenset(self.bounds.items()))

    def interval(self, symbol: sp.Symbol) -> Interval:
        """Returns the interval of a symbol here."""
        return self.bounds.get(symbol, ALL)

    def with_interval(self, symbol: sp.Symbol, interval: Interval) -> Domain:
        """Returns the domain with the interval of one symbol replaced."""
        return Domain({**self.bounds, symbol: interval})


def clock_domain(
    hyper: Mapping[sp.Symbol, Interval] | None = None, *, last: int = MAX_STEP
) -> Domain:
    """Returns the domain of every step from 0 to ``last``, with the intervals of other symbols."""
    return Domain({t: Interval(Fraction(0), Fraction(last)), **(hyper or {})})


def largest_integer(domain: Domain) -> int:
    """Returns the largest integer of the clock's dtype."""
    return 2**31 - 1 if domain.interval(t).high <= LAST_STEP[DType.I32] else 2**63 - 1


def fits_difference(numerator: Interval, divisor: Interval, limit: int) -> bool:
    """Returns whether ``a - a mod b`` of integers is within -limit..limit.

    ONNX has no floor division: its files divide that difference, which is exact.
    """
    size = divisor.absolute().high - 1
    low = numerator.low - size if divisor.high > 0 else numerator.low
    high = numerator.high + size if divisor.low < 0 else numerator.high
    # A remainder of the sign of the divisor lies between 0 and the dividend of that sign.
    is_below = numerator.low < 0 and low < -limit
    is_above = numerator.high > 0 and high > limit
    return not (is_below or is_above)


def linear_in(expr: sp.Expr, symbol: sp.Symbol) -> tuple[Fraction, Fraction] | None:
    """Returns (slope, value at 0) if ``expr`` is linear in ``symbol`` with rational numbers."""
    if expr == symbol:
        return Fraction(1), Fraction(0)
    if expr.is_Rational:
        return Fraction(0), Fraction(expr)
    if isinstance(expr, sp.Mul) and len(expr.args) == 2 and expr.args[0].is_Rational:
        inner = linear_in(expr.args[1], symbol)
        factor = Fraction(expr.args[0])
        return None if inner is None else (factor * inner[0], factor * inner[1])
    if isinstance(expr, sp.Add):
        parts = [linear_in(arg, symbol) for arg in expr.args]
        slopes = [part for part in parts if part is not None]
        if len(slopes) < len(parts):
            return None
        return sum((p[0] for p in slopes), Fraction(0)), sum((p[1] for p in slopes), Fraction(0))
    return None


def linear_comparison(condition: Relational, symbol: sp.Symbol) -> tuple[Fraction, Fraction] | None:
    """Returns (slope, value at 0) of left side minus right side, if that is linear."""
    left, right = linear_in(condition.lhs, symbol), linear_in(condition.rhs, symbol)
    if left is None or right is None:
        return linear_in(condition.lhs - condition.rhs, symbol)
    return left[0] - right[0], left[1] - right[1]


def narrow(domain: Domain, condition: sp.Basic, *, holds: bool = True) -> Domain | None:
    """Returns the part of a domain where a condition holds (or does not); None if it is empty.

    The result may be larger than the true part, never smaller: conditions that are not a comparison
    of linear expressions in one symbol narrow nothing.
    """
    cache = domain._compute_narrow
    key = condition, holds
    if key not in cache:
        cache[key] = _compute_narrow(domain, condition, holds)
    return cache[key]


def _compute_narrow(domain: Domain, condition: sp.Basic, holds: bool) -> Domain | None:
    if isinstance(condition, Relational) and condition.rhs.is_Rational:
        milestone = condition.rhs
        if condition.lhs in domain.bounds:
            # SymPy takes milliseconds to negate it and to find its symbols.
            operator = condition.func if holds else _NEGATED[condition.func]
            root = Fraction(int(milestone.p), int(milestone.q))
            return _narrow_at(domain, condition.lhs, operator, root)
    if condition in (sp.true, sp.false):
        return domain if bool(condition) == holds else None
    if isinstance(condition, sp.Not):
        return narrow(domain, condition.args[0], holds=not holds)
    if isinstance(condition, sp.And | sp.Or):
        if isinstance(condition, sp.And) == holds:
            return _narrow_by_each(domain, condition.args, holds)
        return _union(narrow(domain, arg, holds=holds) for arg in condition.args)
    if isinstance(condition, Relational):
        return _narrow_by_comparison(domain, condition if holds else condition.negated)
    return domain


_NEGATED: Mapping[type[Relational], type[Relational]] = {
    sp.Lt: sp.Ge,
    sp.Le: sp.Gt,
    sp.Gt: sp.Le,
    sp.Ge: sp.Lt,
    sp.Eq: sp.Ne,
    sp.Ne: sp.Eq,
}


def _narrow_by_each(domain: Domain, conditions: tuple[sp.Basic, ...], holds: bool) -> Domain | None:
    result: Domain | None = domain
    for condition in conditions:
        if result is None:
            return None
        result = narrow(result, condition, holds=holds)
    return result


def _union(parts: Iterable[Domain | None]) -> Domain | None:
    domains = [part for part in parts if part is not None]
    if not domains:
        return None
    first, *rest = domains
    bounds = dict(first.bounds)
    for part in rest:
        for symbol, interval in part.bounds.items():
            # The hull: a domain has no holes, so an "or" of two distant conditions also holds the
            # steps between them.
            bounds[symbol] = bounds[symbol].union(interval)
    return Domain(bounds)


def _narrow_by_comparison(domain: Domain, condition: Relational) -> Domain | None:
    symbols = condition.free_symbols & set(domain.bounds)
    # Comparisons of two symbols would need polyhedra.
    if len(symbols) != 1 or condition.free_symbols != symbols:
        return domain
    (symbol,) = symbols
    linear = linear_comparison(condition, symbol)
    if linear is None or linear[0] == 0:
        return domain
    slope, offset = linear
    operator = condition.func if slope > 0 else condition.reversedsign.func
    return _narrow_at(domain, symbol, operator, -offset / slope)


def _narrow_at(
    domain: Domain, symbol: sp.Symbol, operator: type[Relational], root: Fraction
) -> Domain | None:
    """The part of a domain where ``symbol operator root`` holds."""
    interval = _cut(domain.interval(symbol), operator, root, symbol.is_integer is True)
    return None if interval is None else domain.with_interval(symbol, interval)


def _cut(
    current: Interval, operator: type[Relational], root: Fraction, is_integer: bool
) -> Interval | None:
    """The part of an interval where ``x operator root`` holds."""
    low: Bound = current.low
    high: Bound = current.high
    whole = root.denominator == 1
    if operator is sp.Eq:
        if (is_integer and not whole) or not low <= root <= high:
            return None
        low = high = root
    elif operator is sp.Lt:
        high = min(high, Fraction(math.ceil(root) - 1) if is_integer else root)
    elif operator is sp.Le:
        high = min(high, root if whole or not is_integer else Fraction(math.floor(root)))
    elif operator is sp.Gt:
        low = max(low, Fraction(math.floor(root) + 1) if is_integer else root)
    elif operator is sp.Ge:
        low = max(low, root if whole or not is_integer else Fraction(math.ceil(root)))
    elif operator is sp.Ne and is_integer:
        # x != root only moves an end of integers; a hole inside cannot be represented.
        low = root + 1 if low == root else low
        high = root - 1 if high == root else high
    if low > high:
        return None
    return Interval(low, high, current.is_nonzero or (operator is sp.Ne and root == 0))

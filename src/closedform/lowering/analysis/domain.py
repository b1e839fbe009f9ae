"""Domains: the facts known about symbols where an expression is taken.

A domain maps each symbol to an interval. A condition narrows it: inside the branch of a Piecewise
with the condition ``t < 5`` the clock is at most 4.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import sympy as sp
from sympy.core.relational import Relational

from closedform.ir.types import LAST_STEP as LAST_STEP
from closedform.ir.types import MAX_STEP as MAX_STEP
from closedform.ir.types import DType
from closedform.language.symbols import t
from closedform.lowering.analysis.interval import ALL, Bound, Interval


@dataclass(frozen=True)
class Domain:
    """Intervals of symbols; a symbol that is not listed may be any real number."""

    bounds: Mapping[sp.Symbol, Interval] = field(default_factory=dict)
    # Passes over one expression narrow one domain by the same conditions, and enclose its parts.
    _compute_narrow: dict[tuple[sp.Basic, bool], Domain | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _enclosed: dict[sp.Expr, Interval] = field(
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
            bounds[symbol] = bounds[symbol].union(interval)
    return Domain(bounds)


def _narrow_by_comparison(domain: Domain, condition: Relational) -> Domain | None:
    symbols = condition.free_symbols & set(domain.bounds)
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
        low = root + 1 if low == root else low
        high = root - 1 if high == root else high
    if low > high:
        return None
    return Interval(low, high, current.is_nonzero or (operator is sp.Ne and root == 0))

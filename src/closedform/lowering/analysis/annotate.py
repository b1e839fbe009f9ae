"""Annotate: the facts about an expression that the other steps rest on.

For an expression and a domain: an interval that encloses all its values, whether it is an integer
at every step, and whether a condition is decided. Facts are derived only from the structure; what
cannot be derived is unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import sympy as sp
from flint import arb
from sympy.core.relational import Relational

from closedform.language.balls import ball_precision, whole_number
from closedform.language.enclosures import enclose
from closedform.language.integers import FloorDiv, FloorMod
from closedform.lowering.analysis.domain import (
    ALL,
    END_BITS,
    INFINITY,
    Bound,
    Domain,
    Interval,
    ball_of,
    fits_difference,
    interval_of,
    largest_integer,
    linear_in,
    narrow,
    point,
)
from closedform.lowering.exponential import Exponential
from closedform.lowering.safe_operand import SafeOperand

EnclosureRule = Callable[[sp.Expr, Domain], Interval]

_LARGEST_POWER = 8
"""Larger powers of integers are powers of floats."""


def interval(expr: sp.Expr, domain: Domain) -> Interval:
    """Returns an interval that encloses every value of ``expr`` on a domain."""
    if expr.is_Rational:
        return point(Fraction(expr))
    if isinstance(expr, sp.Symbol):
        return domain.interval(expr)
    if expr.is_number:
        return _number(expr)
    rule = _RULES.get(expr.func)
    if rule is None:
        return ALL
    intervals = domain._intervals
    # Cached on the domain: passes ask for the same parts again and again.
    if expr not in intervals:
        intervals[expr] = rule(expr, domain)
    return intervals[expr]


def fits_quotient(numerator: sp.Expr, divisor: sp.Expr, domain: Domain) -> bool:
    """Returns whether every back end divides these integers without wrapping."""
    dividends, divisors = interval(numerator, domain), interval(divisor, domain)
    return fits_difference(dividends, divisors, largest_integer(domain))


def is_integral(expr: sp.Expr) -> bool:
    """Returns whether ``expr`` is an integer at every step, by its structure.

    Integer symbols, sums, products, small powers, minima, maxima, absolute values, floors and
    remainders of such are; quotients are not looked into.
    """
    if expr.is_Integer or (isinstance(expr, sp.Symbol) and expr.is_integer):
        return True
    if isinstance(expr, FloorDiv):
        return all(is_integral(arg) for arg in expr.args)
    if isinstance(expr, sp.Pow):
        is_small = expr.exp.is_Integer and 1 <= expr.exp <= _LARGEST_POWER
        return bool(is_small) and is_integral(expr.base)
    if isinstance(expr, SafeOperand):
        return is_integral(expr.args[0])
    if isinstance(expr, sp.Piecewise):
        return all(is_integral(value) for value, _ in expr.args)
    closed_operations = (sp.Add, sp.Mul, sp.Min, sp.Max, sp.Abs, FloorMod)
    return isinstance(expr, closed_operations) and all(is_integral(arg) for arg in expr.args)


def decide(condition: sp.Basic, domain: Domain) -> bool | None:
    """Returns whether a condition holds everywhere on a domain, nowhere, or None if undecided."""
    inside, outside = split(condition, domain)
    return False if inside is None else True if outside is None else None


def split(condition: sp.Basic, domain: Domain) -> tuple[Domain | None, Domain | None]:
    """Returns the part of a domain where a condition may hold, and where it may fail.

    A part is None if it is empty: the condition is decided.
    """
    inside, outside = narrow(domain, condition), narrow(domain, condition, holds=False)
    is_unchanged = inside is domain and outside is domain  # else both sides have a part
    if is_unchanged and isinstance(condition, Relational):
        truth = _decide_comparison(condition, domain)
        inside = None if truth is False else inside
        outside = None if truth is True else outside
    return inside, outside


def _decide_comparison(condition: Relational, domain: Domain) -> bool | None:
    # SymPy cancels equal terms of both sides, so that t + 1 > t is decided.
    difference = interval(condition.lhs - condition.rhs, domain)
    outcomes = {
        sp.Lt: (difference.is_negative, difference.is_nonnegative),
        sp.Le: (difference.high <= 0, difference.is_positive),
        sp.Gt: (difference.is_positive, difference.high <= 0),
        sp.Ge: (difference.is_nonnegative, difference.is_negative),
        sp.Eq: (difference.low == difference.high == 0, difference.is_nonzero),
        sp.Ne: (difference.is_nonzero, difference.low == difference.high == 0),
    }
    always, never = outcomes.get(condition.func, (False, False))
    return True if always else False if never else None


def _number(expr: sp.Expr) -> Interval:
    with ball_precision(END_BITS):
        return interval_of(enclose(expr, lambda part: part, END_BITS))


def _add(expr: sp.Expr, domain: Domain) -> Interval:
    total = point(Fraction(0))
    for arg in expr.args:
        total = total + interval(arg, domain)
    return total


def _mul(expr: sp.Expr, domain: Domain) -> Interval:
    product = point(Fraction(1))
    for arg in expr.args:
        product = product * interval(arg, domain)
    return product


def _pow(expr: sp.Expr, domain: Domain) -> Interval:
    base, exponent = expr.args
    values = interval(base, domain)
    if exponent.is_Integer:
        power = values.power(abs(int(exponent)))
        return power if exponent >= 0 else power.reciprocal()
    if not values.is_nonnegative:
        return ALL
    powers = interval(exponent, domain)
    if exponent.is_Rational and abs(exponent) == sp.S.Half:
        root = values.monotone(arb.sqrt)
        # The ball of an end may reach below 0.
        root = Interval(max(root.low, Fraction(0)), root.high, values.is_nonzero)
        return root if exponent > 0 else root.reciprocal()
    if not values.is_positive and powers.low <= 0:
        return ALL
    # b**e is monotone in b for fixed e, and in e for fixed b: its extremes over a box are at
    # corners.
    corners = [_corner(b, e) for b in (values.low, values.high) for e in (powers.low, powers.high)]
    low = min(corner.low for corner in corners)
    high = max(corner.high for corner in corners)
    return Interval(max(low, Fraction(0)), high, values.is_nonzero)


def _corner(base: Bound, exponent: Bound) -> Interval:
    """An enclosure of base**exponent for a base >= 0; one of the two may be infinite."""
    # 1**oo is 1 here: a value near it is the business of the other corners.
    if base == 1 or exponent == 0:
        return point(Fraction(1))
    if isinstance(base, float) or isinstance(exponent, float):
        grows = (base > 1) == (exponent > 0)
        return Interval(INFINITY, INFINITY) if grows else Interval(Fraction(0), Fraction(0))
    if base == 0:
        return point(Fraction(0)) if exponent > 0 else Interval(INFINITY, INFINITY)
    exponential = point(exponent) * point(base).monotone(arb.log)
    return exponential.monotone(arb.exp)


def _extremum(expr: sp.Expr, domain: Domain) -> Interval:
    choose = min if isinstance(expr, sp.Min) else max
    parts = [interval(arg, domain) for arg in expr.args]
    low = choose(part.low for part in parts)
    high = choose(part.high for part in parts)
    return Interval(low, high, all(part.is_nonzero for part in parts))


def _piecewise(expr: sp.Expr, domain: Domain) -> Interval:
    result: Interval | None = None
    for value, _, inside in branches(expr, domain):
        part = interval(value, inside)
        result = part if result is None else result.union(part)
    return ALL if result is None else result


def branches(expr: sp.Piecewise, domain: Domain) -> list[tuple[sp.Expr, sp.Basic, Domain]]:
    """Returns (value, condition, domain in which it is taken) of each branch that can be taken."""
    result = []
    rest: Domain | None = domain
    for value, condition in expr.args:
        if rest is None:
            break
        inside, outside = split(condition, rest)
        if inside is None:
            continue
        result.append((value, condition, inside))
        rest = outside
    return result


def _floor_div(expr: sp.Expr, domain: Domain) -> Interval:
    numerator, denominator = (interval(arg, domain) for arg in expr.args)
    return (numerator * denominator.reciprocal()).floor()


def _floor_mod(expr: sp.Expr, domain: Domain) -> Interval:
    numerator, divisor = (interval(arg, domain) for arg in expr.args)
    if divisor.is_positive:
        is_reduced = numerator.is_nonnegative and numerator.high < divisor.low
        # A remainder of integers is at most b - 1, one of reals below b.
        top = divisor.high - 1 if is_integral(expr) else divisor.high
        return numerator if is_reduced else Interval(Fraction(0), min(top, _or_inf(numerator)))
    if divisor.is_negative:
        return Interval(divisor.low + 1 if is_integral(expr) else divisor.low, Fraction(0))
    return ALL


def _or_inf(numerator: Interval) -> Bound:
    return numerator.high if numerator.is_nonnegative else INFINITY


def _log(expr: sp.Expr, domain: Domain) -> Interval:
    values = interval(expr.args[0], domain)
    if not values.is_nonnegative:
        return ALL
    low: Bound = -INFINITY if values.low == 0 else values.monotone(arb.log).low
    high: Bound = -INFINITY if values.high == 0 else values.monotone(arb.log).high
    # log(1) is 0 exactly, whatever its ball says.
    low = max(low, Fraction(0)) if values.low >= 1 else low
    high = min(high, Fraction(0)) if values.high <= 1 else high
    return Interval(low, high)


def _exp(expr: sp.Expr, domain: Domain) -> Interval:
    argument = interval(expr.args[0], domain)
    values = argument.monotone(arb.exp)
    floor = Fraction(1) if argument.is_nonnegative else Fraction(0)
    return Interval(max(values.low, floor), values.high, is_nonzero=True)


def _arctangent(expr: sp.Expr, domain: Domain) -> Interval:
    argument = interval(expr.args[0], domain)
    values = argument.monotone(arb.atan)
    # atan(0) is 0 exactly, whatever its ball says.
    low = max(values.low, Fraction(0)) if argument.low >= 0 else values.low
    high = min(values.high, Fraction(0)) if argument.high <= 0 else values.high
    return Interval(low, high, is_nonzero=argument.is_nonzero)


_UNIT = Interval(Fraction(-1), Fraction(1))


def _cosine(expr: sp.Expr, domain: Domain) -> Interval:
    return _range_of_cosine(interval(expr.args[0], domain))


def _sine(expr: sp.Expr, domain: Domain) -> Interval:
    return _range_of_cosine(interval(expr.args[0] - sp.pi / 2, domain))


def _range_of_cosine(angle: Interval) -> Interval:
    """The cosines of the angles of an interval: at its ends, and at the turning points in it."""
    if isinstance(angle.low, float) or isinstance(angle.high, float) or angle.high - angle.low >= 6:
        return _UNIT
    with ball_precision(END_BITS):
        low, high, pi = ball_of(angle.low), ball_of(angle.high), arb.pi()
        values = interval_of(low.cos()).union(interval_of(high.cos()))
        first = whole_number((low / pi).lower().floor())
        # Angles of more digits than the balls.
        if first is None:
            return _UNIT
        # Less than two half turns lie between the ends, whose balls may reach over one more.
        for turn in range(first, first + 5):
            if not (turn * pi < low or turn * pi > high):
                values = values.union(point(Fraction(1 if turn % 2 == 0 else -1)))
    return Interval(max(values.low, Fraction(-1)), min(values.high, Fraction(1)))


_RULES: Mapping[type[sp.Basic], EnclosureRule] = {
    sp.Add: _add,
    sp.Mul: _mul,
    sp.Pow: _pow,
    sp.Min: _extremum,
    sp.Max: _extremum,
    sp.Piecewise: _piecewise,
    SafeOperand: lambda expr, domain: interval(expr.piecewise, domain),
    sp.Abs: lambda expr, domain: interval(expr.args[0], domain).absolute(),
    sp.floor: lambda expr, domain: interval(expr.args[0], domain).floor(),
    FloorDiv: _floor_div,
    FloorMod: _floor_mod,
    sp.log: _log,
    sp.exp: _exp,
    Exponential: _exp,
    sp.cos: _cosine,
    sp.sin: _sine,
    sp.atan: _arctangent,
}

__all__ = ["branches", "decide", "interval", "is_integral", "linear_in", "split"]

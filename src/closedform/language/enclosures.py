"""Floors and signs of exact numbers: intervals of growing precision around them.

An irrational number is enclosed ever more narrowly until the enclosure has one floor, or one sign.
That of a number that is an integer never has: 3 is inside of each enclosure of log(8)/log(2).
Then the difference from the integer is 0 by algebra: logarithms of primes are independent, and an
algebraic number has a minimal polynomial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy as sp
from mpmath.ctx_iv import MPIntervalContext

_FIRST_BITS = 64
_ALGEBRAIC_BITS = 256
"""From this precision on a number is probably the integer that its enclosures hold."""

_LEAST_BITS, _BITS_OF_A_DIGIT = 4096, 8
"""The last precision: root bounds of algebraic numbers grow with the digits of their rationals. A
number whose enclosures still hold an integer is that integer, whether or not algebra shows it."""

_MOST_BITS = 2**20
_LARGEST_POLYNOMIAL = 40
"""Nodes of the longest number whose minimal polynomial is asked for."""

Enclosure = Any
"""An interval of mpmath."""

Resolve = Callable[[sp.Basic], sp.Expr]
"""The number or expression that a symbol, a branch or a floor is at a step."""


def floor_of(expr: sp.Expr, resolve: Resolve, value: Callable[[], sp.Expr]) -> int | None:
    """Returns the largest integer that is not above a real number; None if it is not real.

    Args:
        expr: An expression.
        resolve: The values of its symbols, branches and floors.
        value: Its value in SymPy, which algebra compares with integers.
    """
    for enclosure, bits, is_last in _enclosures(expr, resolve):
        low, high = _floors(enclosure)
        if low is None or high is None:
            return None
        # Both ends have one floor, so all numbers between them have it.
        if low == high:
            return low
        # Algebra costs more than a longer enclosure, so it is asked only if doubling the bits did
        # not help.
        is_near = bits >= _ALGEBRAIC_BITS and high == low + 1
        if is_near and (is_last or _is_zero(value() - high)):
            return high
    return None


def sign_of(expr: sp.Expr, resolve: Resolve, value: Callable[[], sp.Expr]) -> int | None:
    """Returns -1, 0 or 1, the sign of a number; None if it is not real. See ``floor_of``."""
    if expr.is_Rational:
        return int(expr.p > 0) - int(expr.p < 0)
    for enclosure, bits, is_last in _enclosures(expr, resolve):
        if enclosure.a > 0 or enclosure.b < 0:
            return 1 if enclosure.a > 0 else -1
        if is_last or (bits >= _ALGEBRAIC_BITS and _is_zero(value())):
            return 0
    return None


def _enclosures(expr: sp.Expr, resolve: Resolve) -> Iterator[tuple[Enclosure, int, bool]]:
    """Yields enclosures, their precisions, and whether one is the last; none if not real."""
    rationals = expr.atoms(sp.Rational) | {
        number for symbol in expr.free_symbols for number in resolve(symbol).atoms(sp.Rational)
    }
    digits = sum(int(q.p).bit_length() + int(q.q).bit_length() for q in rationals)
    exponents = [power.exp for power in expr.atoms(sp.Pow) if power.exp.is_Integer]
    # Separation bounds of algebraic numbers grow with the height: a power multiplies the digits.
    digits *= max([1, *(abs(int(exponent)) for exponent in exponents)])
    most = min(_LEAST_BITS + _BITS_OF_A_DIGIT * digits, _MOST_BITS)
    bits = _FIRST_BITS
    while True:
        # A separate context: the precision of mpmath.iv is global.
        context = MPIntervalContext()
        context.prec = bits
        enclosure = _enclose_number(expr, context, resolve)
        if enclosure is None:
            return
        yield enclosure, bits, bits >= most
        if bits >= most:
            return
        bits *= 2


def _floors(enclosure: Enclosure) -> tuple[int | None, int | None]:
    # Raw mpf tuples (sign, mantissa, exponent, bits): floor of mpmath rounds to the working
    # precision.
    low, high = enclosure._mpi_
    return _floor(low), _floor(high)


def _floor(end: tuple[int, int, int, int]) -> int | None:
    """The floor of a float of mpmath; None if it has too many bits, or is infinite."""
    sign, mantissa, exponent, bits = end
    if bits + exponent > _MOST_BITS or (mantissa == 0 and exponent != 0):
        return None
    number = -int(mantissa) if sign else int(mantissa)
    # >> of Python rounds towards minus infinity, as a floor does.
    return number << exponent if exponent >= 0 else number >> -exponent


def _enclose_number(expr: sp.Basic, context: Any, resolve: Resolve) -> Enclosure | None:
    """An interval around a number; None if it is not real, or its value is not known."""
    if expr.is_Rational:
        return context.mpf(int(expr.p)) / int(expr.q)
    if expr in (sp.pi, sp.E):
        return +context.pi if expr is sp.pi else +context.e
    function = _FUNCTIONS.get(expr.func)
    if function is None:
        definition = resolve(expr)
        is_final = definition == expr
        return (
            _approximate(expr, context)
            if is_final
            else _enclose_number(definition, context, resolve)
        )
    args = []
    for arg in expr.args:
        enclosure = _enclose_number(arg, context, resolve)
        if enclosure is None:
            return None
        args.append(enclosure)
    try:
        return function(context, expr.args, args)
    # mpmath.iv raises these for a divisor that holds 0 and for intervals outside of a domain.
    except (ValueError, ZeroDivisionError, NotImplementedError, TypeError):
        return None


def _approximate(number: sp.Basic, context: Any) -> Enclosure | None:
    """An interval around a number of another function: SymPy's digits, with the last ones off."""
    # log10(2) = 0.30103, rounded up; 8 bits are the safety margin, as evalf promises its digits but
    # proves no bound.
    digits = int(context.prec * 0.302) + 1
    value = number.evalf(digits, maxn=4 * digits)
    if not value.is_Float and not value.is_Integer:
        return None
    center = context.mpf(str(value))
    return center + abs(center) * context.mpf([-1, 1]) * context.mpf(2) ** (8 - context.prec)


def _total(context: Any, _: Sequence[sp.Basic], args: Sequence[Enclosure]) -> Enclosure:
    return sum(args[1:], args[0])


def _product(context: Any, _: Sequence[sp.Basic], args: Sequence[Enclosure]) -> Enclosure:
    result = args[0]
    for arg in args[1:]:
        result = result * arg
    return result


def _power(context: Any, parts: Sequence[sp.Basic], args: Sequence[Enclosure]) -> Enclosure | None:
    base, exponent = args
    low, high = exponent._mpi_
    # An integer exponent, exact: exp(n log b) would need b > 0.
    if low == high and low[2] >= 0 and _floor(low) is not None:
        whole = int(_floor(low) or 0)
        if whole < 0 and base.a <= 0 <= base.b:
            return None
        return base**whole if whole >= 0 else 1 / base**-whole
    # 0**p has no logarithm, but a value.
    if base.a == 0 == base.b and exponent.a > 0:
        return context.mpf(0)
    if not base.a > 0:
        return context.sqrt(base) if parts[1] == sp.Rational(1, 2) and base.a >= 0 else None
    return context.exp(exponent * context.log(base))


def _log(context: Any, _: Sequence[sp.Basic], args: Sequence[Enclosure]) -> Enclosure | None:
    return context.log(args[0]) if args[0].a > 0 else None


def _absolute(context: Any, _: Sequence[sp.Basic], args: Sequence[Enclosure]) -> Enclosure:
    return abs(args[0])


def _extremum(choose: Callable[..., Any]) -> Callable[..., Enclosure]:
    def enclose(context: Any, _: Sequence[sp.Basic], args: Sequence[Enclosure]) -> Enclosure:
        low, high = choose(arg.a for arg in args), choose(arg.b for arg in args)
        return context.make_mpf((low._mpi_[0], high._mpi_[1]))

    return enclose


_FUNCTIONS: Mapping[type[sp.Basic], Callable[..., Enclosure | None]] = {
    sp.Add: _total,
    sp.Mul: _product,
    sp.Pow: _power,
    sp.exp: lambda context, _, args: context.exp(args[0]),
    sp.log: _log,
    sp.cos: lambda context, _, args: context.cos(args[0]),
    sp.sin: lambda context, _, args: context.sin(args[0]),
    sp.Abs: _absolute,
    sp.Min: _extremum(min),
    sp.Max: _extremum(max),
}


def _is_zero(number: sp.Expr) -> bool:
    """Whether algebra shows that a number is 0."""
    if number.has(sp.log):
        plain = sp.expand_log(sp.expand_log(number, factor=True), force=True)
        return bool(sp.cancel(sp.together(plain)) == 0)
    size = sum(1 for _ in sp.preorder_traversal(number))
    if number.is_algebraic and size <= _LARGEST_POLYNOMIAL:
        variable = sp.Dummy("x")
        return bool(sp.minimal_polynomial(number, variable) == variable)
    return False

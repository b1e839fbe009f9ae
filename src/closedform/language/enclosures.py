"""Floors and signs of exact numbers: balls of growing precision around them.

An irrational number is enclosed ever more narrowly until the enclosure has one floor, or one sign.
That of a number that is an integer never has: 3 is inside of each enclosure of log(8)/log(2).
Then the difference from the integer is 0 by algebra: logarithms of primes are independent, and an
algebraic number has a minimal polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import reduce

import sympy as sp
from flint import arb, fmpq

from closedform.language.balls import ball_precision, whole_number
from closedform.magnitude import MOST_BITS

_FIRST_BITS = 64
_ALGEBRAIC_BITS = 256
"""From this precision on a number is probably the integer that its enclosures hold."""

_LEAST_BITS, _BITS_OF_A_DIGIT = 4096, 8
"""The last precision: root bounds of algebraic numbers grow with the digits of their rationals. A
number whose enclosures still hold an integer is that integer, whether or not algebra shows it."""

_LARGEST_POLYNOMIAL = 40
"""Nodes of the longest number whose minimal polynomial is asked for."""

Resolve = Callable[[sp.Basic], sp.Expr]
"""The number or expression that a symbol, a branch or a floor is at a step."""


def floor_of(expr: sp.Expr, resolve: Resolve, value: Callable[[], sp.Expr]) -> int | None:
    """Returns the largest integer that is not above a real number; None if it is not real.

    Args:
        expr: An expression.
        resolve: The values of its symbols, branches and floors.
        value: Its value in SymPy, which algebra compares with integers.
    """
    for ends, bits, is_last in _enclosures(expr, resolve):
        with ball_precision(bits):
            low, high = (whole_number(end.floor()) for end in ends)
        if low is None or high is None:
            # Too long to be written out, or a short number in a wide ball.
            if bits >= _LEAST_BITS:
                return None
            continue
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
    for (low, high), bits, is_last in _enclosures(expr, resolve):
        if low > 0 or high < 0:
            return 1 if low > 0 else -1
        if is_last or (bits >= _ALGEBRAIC_BITS and _is_zero(value())):
            return 0
    return None


def _enclosures(expr: sp.Expr, resolve: Resolve) -> Iterator[tuple[tuple[arb, arb], int, bool]]:
    """Yields ends around a number, the precision, and whether it is the last; none if not real."""
    rationals = expr.atoms(sp.Rational) | {
        number for symbol in expr.free_symbols for number in resolve(symbol).atoms(sp.Rational)
    }
    digits = sum(int(q.p).bit_length() + int(q.q).bit_length() for q in rationals)
    exponents = [power.exp for power in expr.atoms(sp.Pow) if power.exp.is_Integer]
    # Separation bounds of algebraic numbers grow with the height: a power multiplies the digits.
    digits *= max([1, *(abs(int(exponent)) for exponent in exponents)])
    most = min(_LEAST_BITS + _BITS_OF_A_DIGIT * digits, MOST_BITS)
    bits = _FIRST_BITS
    while True:
        with ball_precision(bits):
            ball = enclose(expr, resolve, bits)
            ends = ball.lower(), ball.upper()
        if ball.is_finite():
            yield ends, bits, bits >= most
        # A longer ball of a divisor may no longer hold 0.
        if bits >= (most if ball.is_finite() else _LEAST_BITS):
            return
        bits *= 2


def enclose(expr: sp.Basic, resolve: Resolve, bits: int) -> arb:
    """Returns a ball around a number, in the present precision of about ``bits`` bits.

    It is not a finite one if the number is not real, or its value is not known.

    Args:
        expr: The number.
        resolve: The values of its symbols, branches and floors; itself where it is their value.
        bits: The precision of a function that FLINT does not have.
    """
    if expr.is_Rational:
        return arb(fmpq(int(expr.p), int(expr.q)))
    if expr in _CONSTANTS:
        return _CONSTANTS[expr]()
    if expr.func is not sp.Pow and expr.func not in _FUNCTIONS:
        definition = resolve(expr)
        is_final = definition == expr
        return _approximate(expr, bits) if is_final else enclose(definition, resolve, bits)
    args = [enclose(arg, resolve, bits) for arg in expr.args]
    # The cosine of a number of an infinite ball has a finite one, however long it becomes.
    if not all(arg.is_finite() for arg in args):
        return arb.nan()
    return _power(expr, *args) if expr.func is sp.Pow else _FUNCTIONS[expr.func](*args)


def _power(power: sp.Pow, base: arb, exponent: arb) -> arb:
    # FLINT has no logarithm of a base that may be below 0, but small powers of it have a bound.
    if base.contains(0) and exponent > 0 and not base.is_exact():
        size = base.abs_upper() ** exponent
        if power.base.is_nonnegative or (power.exp.is_Integer and power.exp % 2 == 0):
            return size.union(0)
        return size.union(-size) if power.exp.is_Integer else arb.nan()
    return base**exponent


def _approximate(number: sp.Basic, bits: int) -> arb:
    """A ball around a number of another function: SymPy's digits, with the last ones off."""
    # log10(2) = 0.30103, rounded up; 8 bits are the safety margin, as evalf promises its digits but
    # proves no bound.
    digits = int(bits * 0.302) + 1
    value = number.evalf(digits, maxn=4 * digits)
    if not value.is_Float and not value.is_Integer:
        return arb.nan()
    center = arb(str(value))
    return center + center * arb(0, arb(2) ** (8 - bits))


_CONSTANTS: Mapping[sp.Basic, Callable[[], arb]] = {sp.pi: arb.pi, sp.E: arb.const_e}
_FUNCTIONS: Mapping[type[sp.Basic], Callable[..., arb]] = {
    sp.Add: lambda *args: sum(args[1:], args[0]),
    sp.Mul: lambda *args: math.prod(args[1:], start=args[0]),
    sp.exp: arb.exp,
    sp.log: arb.log,
    sp.cos: arb.cos,
    sp.sin: arb.sin,
    sp.atan: arb.atan,
    sp.Abs: abs,
    sp.Min: lambda *args: reduce(arb.min, args),
    sp.Max: lambda *args: reduce(arb.max, args),
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

"""Double-float arithmetic: numbers of about 48 bits as pairs of float32, using only float32 ops.

A number is ``high + low`` with ``high`` the float32 nearest to the sum. Sums and products are made
of error-free transforms, which give the rounding error of an operation as a float32:

- ``two_sum``: Knuth, The Art of Computer Programming 2, 4.2.2, theorem B (6 operations, any order
  of sizes); ``fast_two_sum``: Dekker (3 operations, the first operand the larger or zero).
- ``split`` and ``two_product``: Dekker, A floating-point technique for extending the available
  precision, Numer. Math. 18, 1971 (17 operations; no fused multiply-add is needed or wanted).

Bounds of Joldes, Muller and Popescu, Tight and rigorous error bounds for basic building blocks of
double-word arithmetic, ACM TOMS 44, 2017, with u = 2**-24: a sum is off by 3 u**2 of itself, a
product by 7 u**2, a quotient by 15 u**2. They hold while nothing overflows (below 2**115) and no
error underflows (results above 2**-77); values that may leave that range carry their power of two
separately, in ``scale``. An engine that reassociates or contracts operations breaks them: test on
the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from numpy.typing import NDArray

from closedform.ir.graph import Builder, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType

# 2**12 + 1: splits 24 bits into two halves of 12, one of which is a sign.
_SPLITTER = 4097.0
# 40 digits: twice the digits of a pair.
_DIGITS = 40
# Below every root of a float32 that is not 0, and far above the subnormal numbers.
_SMALLEST = 2.0**-120
# Integers of i32 are taken apart at this place: both parts are exact in float32.
_LOW_PART = 2**12
INFINITY = np.float32(np.inf)

Column = NDArray[np.float32]
# A number of SymPy, of mpmath, or a Fraction.
Exact = Any


@dataclass(frozen=True, slots=True)
class Number:
    """``(high + low)`` times the factors of ``scale``.

    Attributes:
        high: The float32 nearest to the sum.
        low: The rest; None if it is zero.
        scale: Powers of two, not yet multiplied in.
    """

    high: Value
    low: Value | None = None
    scale: tuple[Value, ...] = ()


class Arithmetic:
    """Adds the nodes of double-float operations to a graph."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def emit(self, op: Op, *operands: Value) -> Value:
        """Adds a node without attributes."""
        return self.builder.emit(op, *operands)

    def cast(self, value: Value, dtype: DType) -> Value:
        """Returns the value in a dtype."""
        return value if value.type.dtype is dtype else self.builder.emit(Op.CAST, value, to=dtype)

    def single(self, number: float) -> Value:
        """Adds a constant that float32 holds, or whose rounding does not matter."""
        return self.builder.const(number, DType.F32)

    def constant(self, number: Exact) -> Number:
        """Adds an exact number as a pair; it is off by 2**-49 of itself at most."""
        high, low = halves(number)
        return Number(self.single(high), self.single(low) if low else None)

    def from_integer(self, value: Value, largest: int) -> Number:
        """Returns an integer value as a pair, exact up to 2**48.

        Args:
            value: Of an integer dtype.
            largest: A bound of its size.
        """
        # float32 holds integers up to 2**24; half a unit in the last place of 2**48 is 2**24, so
        # the difference is exact, too.
        high = self.cast(value, DType.F32)
        if largest <= 2**24:
            return Number(high)
        # A value that rounds up to 2**31 does not come back to i32.
        if value.type.dtype is DType.I64 or largest <= 2**31 - 2**7:
            error = self.emit(Op.SUB, value, self.cast(high, value.type.dtype))
            return Number(high, self.cast(error, DType.F32))
        # Both parts have at most 19 and 12 bits.
        part = self.builder.const(_LOW_PART, value.type.dtype)
        remainder = self.emit(Op.FLOOR_MOD, value, part)
        whole = self.cast(self.emit(Op.SUB, value, remainder), DType.F32)
        return Number(*self.fast_two_sum(whole, self.cast(remainder, DType.F32)))

    def settle(self, number: Number) -> Number:
        """Returns the number with its powers of two multiplied in."""
        high, low = number.high, number.low
        # One factor after the other: a single float32 does not hold the whole power of two.
        for factor in number.scale:
            high = self.emit(Op.MUL, high, factor)
            low = low if low is None else self.emit(Op.MUL, low, factor)
        return Number(high, low)

    def rounded(self, number: Number, *, is_bounded: bool = False) -> Value:
        """Returns the number as one float32, rounded once.

        Args:
            number: Any number.
            is_bounded: It does not overflow. Then it is rounded once also where it is subnormal:
                there the scale rounds the high part again, and what that and the low part are off
                decides the last bit.
        """
        value = self.settle(replace(number, low=None)).high
        if number.low is None or len(number.scale) == 0 or not is_bounded:
            return value
        # Back to the scale of the pair: exact, since the factors are powers of two.
        back = value
        for factor in reversed(number.scale):
            back = self.emit(Op.DIV, back, factor)
        loss = self.emit(Op.ADD, self.emit(Op.SUB, number.high, back), number.low)
        return self.emit(Op.ADD, value, self.settle(Number(loss, None, number.scale)).high)

    def two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Returns (s, e) with s = a + b rounded and s + e == a + b."""
        total = self.emit(Op.ADD, a, b)
        second = self.emit(Op.SUB, total, a)
        first = self.emit(Op.SUB, total, second)
        error = self.emit(Op.SUB, a, first)
        return total, self.emit(Op.ADD, error, self.emit(Op.SUB, b, second))

    def fast_two_sum(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Returns the same as ``two_sum`` where a is zero or not smaller than b in size."""
        total = self.emit(Op.ADD, a, b)
        return total, self.emit(Op.SUB, b, self.emit(Op.SUB, total, a))

    def split(self, a: Value) -> tuple[Value, Value]:
        """Returns (h, l) of 12 bits each with h + l == a."""
        # Veltkamp's splitting: overflows for a above 2**115, which is why large powers stay in
        # ``scale``.
        product = self.emit(Op.MUL, a, self.single(_SPLITTER))
        high = self.emit(Op.SUB, product, self.emit(Op.SUB, product, a))
        return high, self.emit(Op.SUB, a, high)

    def two_product(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Returns (p, e) with p = a * b rounded and p + e == a * b."""
        product = self.emit(Op.MUL, a, b)
        a_high, a_low = self.split(a)
        b_high, b_low = self.split(b)
        error = self.emit(Op.SUB, self.emit(Op.MUL, a_high, b_high), product)
        error = self.emit(Op.ADD, error, self.emit(Op.MUL, a_high, b_low))
        error = self.emit(Op.ADD, error, self.emit(Op.MUL, a_low, b_high))
        return product, self.emit(Op.ADD, error, self.emit(Op.MUL, a_low, b_low))

    def add(self, x: Number, y: Number, *, is_same_sign: bool = False) -> Number:
        """Returns x + y.

        Args:
            x: A number.
            y: A number.
            is_same_sign: Neither is above zero, or neither below: then nothing cancels, and the
                low parts may be added without care.
        """
        x, y = self.settle(x), self.settle(y)
        high, error = self.two_sum(x.high, y.high)
        if x.low is None and y.low is None:
            return Number(high, error)
        # SloppyDWPlusDW of Joldes and others, algorithm 5: 3 u² only where nothing cancels.
        if x.low is None or y.low is None or is_same_sign:
            return Number(*self.fast_two_sum(high, self._sum(error, x.low, y.low)))
        # AccurateDWPlusDW, algorithm 6: 3 u² for any signs, at 20 operations instead of 11.
        low, error_of_low = self.two_sum(x.low, y.low)
        high, error = self.fast_two_sum(high, self.emit(Op.ADD, error, low))
        return Number(*self.fast_two_sum(high, self.emit(Op.ADD, error, error_of_low)))

    def add_smaller(self, x: Number, y: Number) -> Number:
        """Returns x + y where x is zero or much larger than y; the scales are none."""
        high, error = self.fast_two_sum(x.high, y.high)
        return Number(*self.fast_two_sum(high, self._sum(error, x.low, y.low)))

    def multiply(self, x: Number, y: Number) -> Number:
        """Returns x * y; the scales are joined, not multiplied in."""
        scale = (*x.scale, *y.scale)
        # A power of two needs no two_product, which takes 17 operations.
        for number, partner in ((x, y), (y, x)):
            if number.low is None and self._is_power_of_two(number.high):
                return replace(self._times(partner, number.high), scale=scale)
        high, error = self.two_product(x.high, y.high)
        if x.low is None and y.low is None:
            return Number(high, error, scale)
        cross_terms = self._sum(
            None if y.low is None else self.emit(Op.MUL, x.high, y.low),
            None if x.low is None else self.emit(Op.MUL, x.low, y.high),
        )
        high, low = self.fast_two_sum(high, self.emit(Op.ADD, error, cross_terms))
        return Number(high, low, scale)

    def divide(self, x: Number, y: Number) -> Number:
        """Returns x / y for y not zero."""
        y = self.settle(y)
        # DWDivDW2, algorithm 17: the quotient of the high parts and one correction.
        quotient = self.emit(Op.DIV, x.high, y.high)
        product, error = self.two_product(quotient, y.high)
        # Sterbenz: x.high and the product are within a few ulp, so that their difference is exact.
        remainder = self.emit(Op.SUB, self.emit(Op.SUB, x.high, product), error)
        if x.low is not None:
            remainder = self.emit(Op.ADD, remainder, x.low)
        if y.low is not None:
            remainder = self.emit(Op.SUB, remainder, self.emit(Op.MUL, quotient, y.low))
        correction = self.emit(Op.DIV, remainder, y.high)
        return Number(*self.fast_two_sum(quotient, correction), x.scale)

    def square_root(self, x: Number) -> Number:
        """Returns the square root of x >= 0: that of the high part and one step of Newton's."""
        x = self.settle(x)
        root = self.emit(Op.SQRT, x.high)
        product, error = self.two_product(root, root)
        remainder = self.emit(Op.SUB, self.emit(Op.SUB, x.high, product), error)
        if x.low is not None:
            remainder = self.emit(Op.ADD, remainder, x.low)
        # At zero the remainder is zero, too, and 0/0 would be NaN.
        twice = self.emit(Op.MAX, self.emit(Op.ADD, root, root), self.single(_SMALLEST))
        return Number(*self.fast_two_sum(root, self.emit(Op.DIV, remainder, twice)))

    def negate(self, x: Number) -> Number:
        """Returns -x."""
        low = None if x.low is None else self.emit(Op.NEG, x.low)
        return Number(self.emit(Op.NEG, x.high), low, x.scale)

    def absolute(self, x: Number) -> Number:
        """Returns the size of x."""
        x = self.settle(x)
        if x.low is None:
            return Number(self.emit(Op.ABS, x.high))
        is_negative = self.emit(Op.LT, x.high, self.single(0.0))
        return self.select(is_negative, self.negate(x), x)

    def floor(self, x: Number) -> Number:
        """Returns the largest integer that is not above x."""
        x = self.settle(x)
        high = self.emit(Op.FLOOR, x.high)
        if x.low is None:
            return Number(high)
        # Only a whole high part lets the low part decide: floor(3 - 2**-30) is 2.
        is_whole = self.emit(Op.EQ, high, x.high)
        low = self.emit(Op.WHERE, is_whole, self.emit(Op.FLOOR, x.low), self.single(0.0))
        return Number(*self.fast_two_sum(high, low))

    def select(self, condition: Value, x: Number, y: Number) -> Number:
        """Returns x where a condition holds, else y."""
        x, y = self.settle(x), self.settle(y)
        high = self.emit(Op.WHERE, condition, x.high, y.high)
        if x.low is None and y.low is None:
            return Number(high)
        zero = self.single(0.0)
        low = self.emit(Op.WHERE, condition, x.low or zero, y.low or zero)
        return Number(high, low)

    def compare(self, op: Op, x: Number, y: Number) -> Value:
        """Returns ``x op y`` for lt, le or eq: the high parts decide, at a tie the low ones."""
        x, y = self.settle(x), self.settle(y)
        if x.low is None and y.low is None:
            return self.emit(op, x.high, y.high)
        zero = self.single(0.0)
        is_tie = self.emit(Op.EQ, x.high, y.high)
        at_tie = self.emit(Op.AND, is_tie, self.emit(op, x.low or zero, y.low or zero))
        if op is Op.EQ:
            return at_tie
        return self.emit(Op.OR, self.emit(Op.LT, x.high, y.high), at_tie)

    def _times(self, x: Number, power: Value) -> Number:
        """A number times a power of two, which rounds nothing."""
        low = None if x.low is None else self.emit(Op.MUL, x.low, power)
        return Number(self.emit(Op.MUL, x.high, power), low)

    def _is_power_of_two(self, value: Value) -> bool:
        node = self.builder.node(value)
        if node.op is not Op.CONST or node.type.shape:
            return False
        mantissa, _ = np.frexp(np.abs(node.array()))
        return float(mantissa) == 0.5

    def _sum(self, *terms: Value | None) -> Value:
        """The sum of the terms that are present, from the left; there is at least one."""
        present = [term for term in terms if term is not None]
        total = present[0]
        for term in present[1:]:
            total = self.emit(Op.ADD, total, term)
        return total


def fraction_of(number: Exact) -> Fraction:
    """Returns a number as a Fraction; an irrational one of SymPy to 40 digits."""
    if isinstance(number, Fraction):
        return number
    if isinstance(number, mpmath.mpf):
        sign, mantissa, exponent, _ = number._mpf_
        size: Fraction = Fraction(int(mantissa)) * Fraction(2) ** exponent
        return -size if sign else size
    rational = number if number.is_Rational else sp.Rational(sp.N(number, _DIGITS))
    return Fraction(int(rational.p), int(rational.q))


def halves(number: Exact) -> tuple[float, float]:
    """Returns (h, l) in float32, h the one nearest to the number and l that nearest to the rest."""
    exact = fraction_of(number)
    high = _nearest(exact)
    return high, _nearest(exact - Fraction(high))


def _nearest(exact: Fraction) -> float:
    """The float32 nearest to a number; rounding by way of float64 may miss it by one."""
    # Two roundings, to 53 and to 24 bits, may end one float32 off; its neighbours are compared
    # exactly.
    about = np.float32(float(exact))
    around = (np.nextafter(about, -INFINITY), about, np.nextafter(about, INFINITY))
    return min((float(candidate) for candidate in around), key=lambda c: abs(Fraction(c) - exact))


def columns(numbers: Iterable[Exact]) -> tuple[Column, Column]:
    """Returns the high and the low parts of a table of numbers as float32 vectors."""
    high, low = zip(*(halves(number) for number in numbers), strict=True)
    return np.array(high, np.float32), np.array(low, np.float32)

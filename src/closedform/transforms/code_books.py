"""Code books: the numbers from -1 to 1 that codes of a few bits stand for, in ascending order.

A book is a few arithmetic progressions. The value of a code is then a line in each of them and the
nearest code a rounded quotient, where a table would need a lookup for each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import sympy as sp

from closedform.language.settled import construct


@dataclass(frozen=True, slots=True)
class Progression:
    """The values ``first + i * width``, for i = 0 … count - 1."""

    first: sp.Rational
    width: sp.Rational
    count: int

    @property
    def last(self) -> sp.Rational:
        """The largest value."""
        return self.first + self.width * (self.count - 1)


@dataclass(frozen=True, slots=True)
class CodeBook:
    """The values of the codes 0, 1, …, in ascending order.

    Attributes:
        sizes: The values from 0 on, in ascending progressions.
        is_signed: Whether the negative values of all but the smallest and the largest precede
            them: 0 has a single code, and -1 none.
    """

    sizes: tuple[Progression, ...]
    is_signed: bool

    @property
    def lowest(self) -> int:
        """The code of the first of ``sizes``: that of 0 in a book that has it."""
        return sum(part.count for part in self.sizes[1:-1]) if self.is_signed else 0

    @property
    def values(self) -> tuple[sp.Rational, ...]:
        """The value of each code."""
        sizes = [part.first + i * part.width for part in self.sizes for i in range(part.count)]
        negative = [-size for size in reversed(sizes[1:-1])] if self.is_signed else []
        return (*negative, *sizes)

    def dequantize(self, code: sp.Expr) -> sp.Expr:
        """Returns the value of a code."""
        if not self.is_signed:
            return _value(code, self.sizes)
        size = _value(sp.Max(code - self.lowest, self.lowest - code), self.sizes)
        return sp.Piecewise((-size, code < self.lowest), (size, True))

    def quantize(self, part: sp.Expr) -> sp.Expr:
        """Returns the code of the value that is nearest to a number from -1 to 1."""
        index = _index(part, self.sizes)
        if not self.is_signed:
            return index
        below = self.lowest - _index(-part, self.sizes[:-1])
        return sp.Piecewise((below, part < 0), (self.lowest + index, True))


def dynamic_book(decades: int, least: int, is_signed: bool) -> CodeBook:
    r"""Returns the dynamic map: 0, 1 and midpoints of equal parts of decades.

    .. math:: 10^{e - d + 1} \left(\frac{1}{10} + \frac{9}{10} \frac{2 i + 1}{2 n 2^e}\right),
        \quad e = 0 \dots d - 1, \quad i = 0 \dots n 2^e - 1

    Args:
        decades: The number of decades d below 1, each with twice as many values as the one below.
        least: The number of values n in the lowest decade.
        is_signed: Whether the book has the negative values, too.

    Source: Dettmers, 8-bit approximations for parallelism in deep learning (2015);
    ``create_dynamic_map`` of bitsandbytes and torchao.
    """
    parts = [Progression(sp.Integer(0), sp.Integer(0), 1)]
    for exponent in range(decades):
        count = least * 2**exponent
        top = sp.Integer(10) ** (exponent - decades + 1)
        width = sp.Rational(9, 10) * top / count
        parts.append(Progression(top / 10 + width / 2, width, count))
    return CodeBook((*parts, Progression(sp.Integer(1), sp.Integer(0), 1)), is_signed)


def linear_book(count: int) -> CodeBook:
    """Returns the multiples of 1 / count from 1 / count to 1: a root of them is never 0.

    Source: Li et al., Memory efficient optimizers with 4-bit states (2023), section 4.1.
    """
    width = sp.Rational(1, count)
    return CodeBook((Progression(width, width, count),), is_signed=False)


def _begins(parts: Sequence[Progression]) -> list[int]:
    """The index of the first value of each progression."""
    return [*accumulate((part.count for part in parts[:-1]), initial=0)]


def _value(index: sp.Expr, parts: Sequence[Progression]) -> sp.Expr:
    """The value at an index."""
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    for part, begin in zip(parts, _begins(parts), strict=True):
        line = part.first + part.width * (index - begin) if part.count > 1 else part.first
        branches.append((line, index < begin + part.count if part is not parts[-1] else sp.true))
    return sp.Piecewise(*branches)


def _index(size: sp.Expr, parts: Sequence[Progression]) -> sp.Expr:
    """The index of the value that is nearest to a number from 0 to 1."""
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    for place, (part, begin) in enumerate(zip(parts, _begins(parts), strict=True)):
        index: sp.Expr = sp.Integer(begin)
        if part.count > 1:
            quotient = sp.floor((size - part.first) / part.width + sp.Rational(1, 2))
            index += construct(sp.Min, construct(sp.Max, quotient, 0), part.count - 1)
        # Rounding to nearest: the border of two values is their midpoint.
        is_last = place == len(parts) - 1
        condition = sp.true if is_last else size < (part.last + parts[place + 1].first) / 2
        branches.append((index, condition))
    return sp.Piecewise(*branches)

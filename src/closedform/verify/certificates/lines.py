"""What a term is compiled to: a function of the step, and what is known of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import Any

Function = Callable[[int], Any]


class Kind(IntEnum):
    """What a compiled function returns: an int, a fraction, or a ball."""

    INTEGER = 0
    RATIONAL = 1
    BALL = 2


class UndecidedError(ValueError):
    """A ball is too wide for a comparison or a floor."""


@dataclass(frozen=True, slots=True)
class Line:
    """``(slope * t + offset) / divisor`` in integers, the divisor above zero."""

    slope: int
    offset: int
    divisor: int

    @property
    def fraction(self) -> Fraction | None:
        """The value if it is the same at every step."""
        return None if self.slope else Fraction(self.offset, self.divisor)

    def minus(self, other: Line) -> Line:
        """Returns ``self - other``."""
        return self.plus(Line(-other.slope, -other.offset, other.divisor))

    def plus(self, other: Line) -> Line:
        """Returns ``self + other``."""
        return line_of(
            self.slope * other.divisor + other.slope * self.divisor,
            self.offset * other.divisor + other.offset * self.divisor,
            self.divisor * other.divisor,
        )

    def times(self, factor: Fraction) -> Line:
        """Returns ``self * factor``."""
        return line_of(
            self.slope * factor.numerator,
            self.offset * factor.numerator,
            self.divisor * factor.denominator,
        )


def line_of(slope: int, offset: int, divisor: int) -> Line:
    """Returns a line in lowest terms."""
    common = math.gcd(slope, offset, divisor)
    return Line(slope // common, offset // common, divisor // common)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A term as a function of the step.

    Attributes:
        kind: What it returns.
        function: The function; of a truth, it returns a bool.
        line: The same as a line, where it is one.
        branch: (n, before, after) of a term that is ``before`` for t < n, else ``after``.
        threshold: Of a truth: (n, below) if it holds exactly for t < n, or exactly for t >= n.
    """

    kind: Kind
    function: Function
    line: Line | None = None
    branch: tuple[int, Compiled, Compiled] | None = None
    threshold: tuple[int, bool] | None = None

    def segments(self) -> tuple[list[int], list[Compiled]]:
        """Returns first steps and parts: what the term is from each of these steps on."""
        starts: list[int] = []
        parts: list[Compiled] = []
        pending: list[tuple[Compiled, int, float]] = [(self, 0, math.inf)]
        while pending:
            part, first, end = pending.pop()
            if part.branch is None:
                starts.append(first)
                parts.append(part)
                continue
            milestone, before, after = part.branch
            if milestone < end:
                pending.append((after, max(first, milestone), end))
            if milestone > first:
                pending.append((before, first, min(end, milestone)))
        return starts, parts

"""Intervals: a lower and an upper bound on the elements of a value, and whether one may be NaN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from closedform.ir.types import DType

Bound = int | float


@dataclass(frozen=True, slots=True)
class Interval:
    """Every element is in [low, high], or NaN where ``maybe_nan`` says so.

    Bounds of integers and bools are Python ints, of floats Python floats. The sign of a zero is not
    tracked: an interval with the bound 0.0 may hold -0.0.
    """

    low: Bound
    high: Bound
    maybe_nan: bool = False

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]" + (" or nan" if self.maybe_nan else "")

    @property
    def ends(self) -> tuple[Bound, Bound]:
        """The two bounds."""
        return self.low, self.high

    @property
    def has_infinity(self) -> bool:
        """True if an infinity is in the interval."""
        return self.low == -math.inf or self.high == math.inf

    def contains(self, number: Bound) -> bool:
        """Returns whether the number is in the interval."""
        return self.low <= number <= self.high

    def is_within(self, other: Interval) -> bool:
        """Returns whether another interval holds all of this one, NaN included."""
        is_between = other.low <= self.low and self.high <= other.high
        return is_between and (other.maybe_nan or not self.maybe_nan)


def full(dtype: DType) -> Interval:
    """Returns the interval that holds every value of a dtype."""
    if dtype is DType.BOOL:
        return Interval(0, 1)
    if dtype.is_float:
        return Interval(-math.inf, math.inf, maybe_nan=True)
    info = np.iinfo(dtype.numpy)
    return Interval(int(info.min), int(info.max))


def hull(intervals: Sequence[Interval]) -> Interval:
    """Returns the least interval that holds all of these; there is at least one."""
    return Interval(
        min(interval.low for interval in intervals),
        max(interval.high for interval in intervals),
        any(interval.maybe_nan for interval in intervals),
    )

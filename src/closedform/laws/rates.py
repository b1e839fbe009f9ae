"""The learning rates of a run, and their sums without rounding errors that grow with the run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform.errors import ArgumentError, DomainError
from closedform.ir.types import FloatArray
from closedform.language import Schedule

Counts = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The sums of the first 0, 1, … n numbers, each as a float and the float of its error."""

    high: FloatArray
    low: FloatArray

    def between(self, first: Any, end: Any) -> FloatArray:
        """Returns the sums of the numbers from positions ``first`` to ``end - 1``."""
        difference: FloatArray = (self.high[end] - self.high[first]) + (
            self.low[end] - self.low[first]
        )
        return difference


def exact_prefixes(values: FloatArray, power: int = 1) -> Prefixes:
    """Returns prefix sums of powers of floats, which are added up as integers.

    A float is a whole number of units 2**e: with the smallest e of all values, sums of powers are
    sums of integers, and have no error until they are rounded. The two floats of a prefix have 106
    bits of it, so that a difference of two close prefixes has all bits of a float.

    Args:
        values: Finite numbers of at least 0.
        power: The power.
    """
    fractions, exponents = np.frexp(values)
    # A fraction of frexp has 53 bits: the product is an integer.
    mantissas = (fractions * 2.0**53).astype(np.int64).tolist()
    lowest = int(exponents[values != 0].min(initial=0)) - 53
    shifts = np.where(values == 0, 0, exponents - 53 - lowest).tolist()
    units = ((m << shift) ** power for m, shift in zip(mantissas, shifts, strict=True))
    unit = 1 << -lowest * power if lowest < 0 else 1
    scale = 1 if lowest < 0 else 1 << lowest * power
    high, low = [], []
    for total in itertools.accumulate(units, initial=0):
        # Python divides integers with one rounding, however large they are.
        rounded = total * scale / unit
        numerator, denominator = rounded.as_integer_ratio()
        high.append(rounded)
        low.append((total * scale * denominator - numerator * unit) / (unit * denominator))
    return Prefixes(np.array(high), np.array(low))


def rounded_prefixes(values: FloatArray, power: int = 1) -> Prefixes:
    """Returns prefix sums in float64: a search evaluates a law a thousand times."""
    sums = np.concatenate([np.zeros(1), np.cumsum(values**power)])
    return Prefixes(sums, np.zeros_like(sums))


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of the updates of a run.

    Attributes:
        values: The rate of each update.
        sums: The prefix sums of the rates.
        squares: The prefix sums of their squares.
    """

    values: FloatArray
    sums: Prefixes
    squares: Prefixes

    @classmethod
    def of(cls, values: FloatArray, *, is_exact: bool = True) -> Rates:
        """Returns rates with their sums."""
        prefixes = exact_prefixes if is_exact else rounded_prefixes
        return cls(values, prefixes(values), prefixes(values, 2))


def run_length(schedule: Schedule | Sequence[float] | FloatArray, horizon: int | None) -> int:
    """Returns the number of updates of a run.

    Raises:
        ArgumentError: The horizon is not positive, is not known, or is longer than the rates.
    """
    if horizon is not None and (
        isinstance(horizon, bool) or not isinstance(horizon, int | np.integer)
    ):
        raise ArgumentError(
            f"horizon must be a number of updates, got {horizon!r}", where="horizon"
        )
    if isinstance(schedule, Schedule):
        length = schedule.length if horizon is None else horizon
        if length is None:
            raise ArgumentError(
                "the schedule has no length: how many updates has the run?",
                where=f"schedule {schedule.name!r}",
                hint="give horizon=…",
            )
    else:
        length = len(schedule) if horizon is None else horizon
        if length > len(schedule):
            raise ArgumentError(
                f"horizon must be at most the {len(schedule)} rates, got {length}", where="horizon"
            )
    if length < 1:
        raise ArgumentError(f"horizon must be at least 1 update, got {length}", where="horizon")
    return int(length)


def rate_values(schedule: Schedule | Sequence[float] | FloatArray, horizon: int) -> FloatArray:
    """Returns the rates of the first updates.

    Raises:
        DomainError: A rate is negative or not finite, or all are 0.
    """
    values = schedule(np.arange(horizon)) if isinstance(schedule, Schedule) else schedule[:horizon]
    rates = np.asarray(values, dtype=np.float64)
    where = f"schedule {schedule.name!r}" if isinstance(schedule, Schedule) else "the rates"
    unusable = np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))
    if unusable.size:
        update = int(unusable[0])
        raise DomainError(
            f"a law takes rates of at least 0, got {rates[update]} at update {update}", where=where
        )
    if not rates.any():
        raise DomainError("a law needs a rate above 0, got only 0", where=where)
    return rates

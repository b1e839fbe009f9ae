"""How far outputs are from exact values: errors in three units, and which are correctly rounded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from closedform.ir.types import DType, FloatArray

# Nearer to a tie than this part of a gap, float64 does not tell on which side a value is.
_TIE = 2.0**-40
# The error of the parts of an exact value, and the rounding of a float64 difference of them.
_SLACK = 1 + 2.0**-48

LISTED = 10
"""How many steps with incorrectly rounded outputs are listed."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """A largest error and the first step at which it happens."""

    value: float
    step: int


@dataclass(frozen=True, slots=True)
class Measured:
    """Errors of outputs that were compared with the exact values.

    Attributes:
        steps: How many steps were compared.
        ulp: Largest error in units in the last place of the exact value.
        ulp_of_scale: Largest error in units in the last place of the largest value.
        relative: Largest error as a part of the exact value.
        rounded: How many outputs are the float nearest to the exact value.
        misrounded: The first steps, at most ``LISTED``, whose outputs are not.
    """

    steps: int
    ulp: Extreme
    ulp_of_scale: Extreme
    relative: Extreme
    rounded: int
    misrounded: tuple[int, ...] = ()

    @property
    def rounded_share(self) -> float:
        """The share of outputs that are correctly rounded."""
        return self.rounded / self.steps


def measure(
    steps: NDArray[np.int64],
    outputs: NDArray[Any],
    high: FloatArray,
    low: FloatArray,
    dtype: DType,
    exact: Callable[[int], Any],
) -> Measured:
    """Returns the errors of outputs.

    Args:
        steps: The steps, at least one.
        outputs: What an engine returned there, in ``dtype``.
        high: The exact values to float64.
        low: What is missing in ``high``.
        dtype: f32 or f64.
        exact: The value at a step with many bits, asked near ties.
    """
    # A NaN is infinitely wrong.
    results = np.where(np.isnan(outputs), np.inf, outputs.astype(np.float64))
    with np.errstate(invalid="ignore", over="ignore"):
        # results - high is exact when both are near (Sterbenz), so only the small difference is
        # rounded.
        errors = np.abs((results - high) - low) * _SLACK
    units = unit_in_last_place(high, low, dtype)
    scale = float(np.abs(high).max())
    unit_of_scale = float(unit_in_last_place(np.array([scale]), np.zeros(1), dtype)[0])
    relative = np.divide(errors, np.abs(high), out=np.zeros_like(errors), where=errors > 0)
    are_rounded = _are_rounded(steps, outputs, high, low, exact)
    return Measured(
        len(steps),
        _largest(errors / units, steps),
        _largest(errors / unit_of_scale, steps),
        _largest(relative, steps),
        int(are_rounded.sum()),
        tuple(int(step) for step in steps[~are_rounded][:LISTED]),
    )


def unit_in_last_place(high: FloatArray, low: FloatArray, dtype: DType) -> FloatArray:
    """Returns the distance of neighbouring floats of a dtype at values ``high + low``."""
    info = np.finfo(dtype.numpy)
    mantissa, exponent = np.frexp(np.abs(high))
    # Below a power of two the floats are twice as near.
    exponent = exponent - ((mantissa == 0.5) & (low * high < 0))
    exponent = np.where(high == 0, info.minexp, exponent)
    unit: FloatArray = np.ldexp(
        1.0, np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant)
    )
    return unit


def _largest(errors: FloatArray, steps: NDArray[np.int64]) -> Extreme:
    place = int(np.argmax(errors))
    return Extreme(float(errors[place]), int(steps[place]))


def _are_rounded(
    steps: NDArray[np.int64],
    outputs: NDArray[Any],
    high: FloatArray,
    low: FloatArray,
    exact: Callable[[int], Any],
) -> NDArray[np.bool_]:
    kind = outputs.dtype.type
    is_number = np.isfinite(outputs)
    values = np.where(is_number, outputs, kind(0))
    with np.errstate(over="ignore"):
        above = np.nextafter(values, kind(np.inf)).astype(np.float64) - values
        below = values - np.nextafter(values, kind(-np.inf)).astype(np.float64)
    residual = (high - values.astype(np.float64)) + low
    # The gaps on both sides differ at powers of two.
    half = np.where(residual > 0, above, below) / 2
    # Next to 0 half the gap underflows, and a schedule may stay at 0 for a million steps.
    result = is_number & ((np.abs(residual) < half) | (residual == 0))
    is_near = np.abs(np.abs(residual) - half) <= half * _TIE
    near = np.flatnonzero(is_number & is_near & (residual != 0))
    for place in near:
        # Near ties: decided with the exact value, in fractions.
        gap = fmpq(*float(half[place]).as_integer_ratio())
        distance = abs(exact(int(steps[place])) - fmpq(*float(values[place]).as_integer_ratio()))
        result[place] = _is_nearest(distance, gap, values[place])
    return np.asarray(result)


def _is_nearest(distance: Any, half: Any, value: Any) -> bool:
    """Whether a float at this distance is the nearest; at a tie, the one of even mantissa is."""
    if isinstance(distance, arb):
        return bool(distance < arb(half))
    if distance != half:
        return bool(distance < half)
    bits = np.asarray(value).view(np.uint32 if value.dtype.itemsize == 4 else np.uint64)
    return int(bits) % 2 == 0

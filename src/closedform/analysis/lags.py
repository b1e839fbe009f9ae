"""Skipped updates: the schedule of a run waits, so that it lags behind the count from there on.

The loss scaler of fp16 skips an update whose gradients overflow, and the scheduler with it. A log
that counts these updates has at ``u`` the value of update ``u - lag``, with a lag that never falls:

>>> values = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0])
>>> least_lags(lambda t: t, np.arange(7.0), values, np.full(7, 1e-9)).tolist()
[0, 0, 1, 1, 1, 1, 1]
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from closedform.ir.types import FloatArray, StepArray
from closedform.language import Schedule

MOST_SKIPPED = 64
"""Updates that a run may have skipped in all; a loss scaler begins with fewer than 20."""

_BLOCK = 4096
"""Values that are compared at once."""

_VALUES_OF_A_RISE = 3
"""Each rise of the lag is a free number: so many values that depart must confirm it."""


def least_lags(
    schedule: Callable[[FloatArray], FloatArray],
    updates: FloatArray,
    values: FloatArray,
    errors: FloatArray,
) -> StepArray | None:
    """Returns the least lags with which a schedule has all values; None if none do.

    The least lag of each value, from the first on, is one of every series of lags that fits.

    Args:
        schedule: The schedule.
        updates: The updates, in order.
        values: The values.
        errors: How far the true values may be from them.
    """
    lags = np.zeros(len(updates), dtype=np.int64)
    place = lag = 0
    while place < len(updates):
        block = slice(place, place + _BLOCK)
        expected = schedule(np.maximum(updates[block] - lag, 0))
        apart = np.flatnonzero(~(np.abs(expected - values[block]) <= errors[block]))
        count = int(apart[0]) if apart.size else _BLOCK
        lags[place : place + count] = lag
        place += count
        lag += bool(apart.size)
        if lag > MOST_SKIPPED:
            return None
    is_apart = ~(np.abs(schedule(updates) - values) <= errors)
    least_count = _VALUES_OF_A_RISE * len(_rises(lags))
    return lags if 0 < least_count <= np.count_nonzero(is_apart) else None


def lags_of(
    schedule: Schedule, updates: FloatArray, values: FloatArray, errors: FloatArray
) -> StepArray | None:
    """Returns the least lags of a schedule at integers of its domain."""
    return least_lags(
        lambda times: np.asarray(schedule(times.astype(np.int64)), dtype=np.float64),
        updates,
        values,
        errors,
    )


def describe_lags(updates: FloatArray, lags: StepArray) -> str:
    """Returns the sentence of some lags.

    Example:
        >>> print(describe_lags(np.array([0.0, 25.0, 50.0]), np.array([0, 2, 2])).split(", as")[0])
        2 updates were skipped
    """
    rises = _rises(lags)
    places = ", ".join(f"{int(updates[place]):,}" for place in rises[:4])
    lag = int(lags[-1])
    return (
        f"{lag} update{'s were' if lag > 1 else ' was'} skipped, as by the loss scaler of fp16, "
        f"where the scheduler waits: seen at update {places}{', …' if len(rises) > 4 else ''}"
    )


def _rises(lags: StepArray) -> list[int]:
    return [int(place) for place in np.flatnonzero(np.diff(lags, prepend=0) > 0)]

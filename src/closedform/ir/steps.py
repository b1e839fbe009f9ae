"""The domain of a step: one check for the call, the sessions and the back ends.

A graph is made for the integers from 0 to the last step of its dtype. Beyond them a conversion
would wrap, a line would go on and a table would be clamped, so a step that can be read is checked
before it is converted. A traced step has no value that can be read: there the value of the schedule
is NaN outside of the domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.errors import ClosedFormError, SessionError
from closedform.ir.types import MAX_STEP

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_HINT = "pass the number of optimizer steps performed so far, starting at 0"
# Longer numbers are written as a power of two: Python limits the digits that it prints.
_LONGEST = 128


def last_step(dtype: np.dtype[Any]) -> int:
    """Returns the largest step of a graph whose step has this integer dtype."""
    return min(int(np.iinfo(dtype).max), MAX_STEP)


def checked_steps(
    step: ArrayLike, last: int, where: str, error: type[ClosedFormError] = SessionError
) -> NDArray[Any]:
    """Returns steps as an array of an integer dtype, all of them in 0..last.

    Args:
        step: An integer or an array of integers that can be read.
        last: The largest step.
        where: What takes the step, for errors.
        error: The class of the errors.

    Raises:
        ClosedFormError: A step is not an integer, or outside of 0..last; of the class ``error``.
    """
    if type(step) is int:
        _check_range(step, step, last, where, error)
        return np.asarray(step)
    steps = np.asarray(step)
    if steps.size == 0:
        return steps.astype(np.int64)
    # NumPy has no dtype for integers of more than 64 bits.
    is_long = steps.dtype.kind == "O" and all(type(item) is int for item in steps.flat)
    if steps.dtype.kind not in "iu" and not is_long:
        got = steps.dtype if steps.dtype.kind != "O" else f"{step!r:.60}"
        raise error(f"the step must be an integer, got {got}", where=where, hint=_HINT)
    _check_range(int(steps.min()), int(steps.max()), last, where, error)
    return steps.astype(np.int64) if is_long else steps


def _check_range(low: int, high: int, last: int, where: str, error: type[ClosedFormError]) -> None:
    if low < 0 or high > last:
        wrong = low if low < 0 else high
        size = wrong.bit_length()
        got = str(wrong) if size <= _LONGEST else f"{'-' if wrong < 0 else ''}2**{size - 1} or more"
        raise error(f"the step must be in 0..{last}, got {got}", where=where, hint=_HINT)


def check_next(step: int, dtype: np.dtype[Any], where: str) -> None:
    """Raises SessionError if the number of steps that follows ``step`` is outside of the domain."""
    last = last_step(dtype)
    if step >= last:
        raise SessionError(
            f"the clock is at {step} and ends at {last}, the last step of {dtype}",
            where=where,
            hint='export the step with step_dtype="i64"' if last < MAX_STEP else None,
        )

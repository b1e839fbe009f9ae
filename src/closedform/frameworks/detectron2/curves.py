"""detectron2's and fvcore's schedules at commit 02b5c4e295e9 of facebookresearch/detectron2.

The file is detectron2/solver/lr_scheduler.py; fvcore's curves are functions of x, the part of the
run that is done.

Example:
    >>> cosine(0.5, start_value=1.0, end_value=0.0)
    0.5
"""

from collections.abc import Callable, Mapping
from typing import Any

from closedform.frameworks.curves import along_cosine, along_line, to_power

EPSILON = 1e-6
"""It is added to a position before it is compared: WHERE_EPSILON of fvcore."""
PAST_THE_END = "RuntimeError: the position in the schedule must be in [0, 1]"


def constant(x: float, value: float) -> float:
    """One value, before the end of the run."""
    if x >= 1:
        raise ValueError(PAST_THE_END)
    return value


def cosine(x: float, start_value: float, end_value: float) -> float:
    """Half a cosine, which rises again after the run."""
    return along_cosine(start_value, end_value, x)


def linear(x: float, start_value: float, end_value: float) -> float:
    """A line, which goes on after the run."""
    return along_line(start_value, end_value, x)


def exponential(x: float, start_value: float, decay: float) -> float:
    """A power of the part of the run."""
    return start_value * to_power(decay, x)


def polynomial(x: float, base_value: float, power: float, is_whole: bool) -> float:
    """A power of the rest of the run; after it only a whole power has a value."""
    if not is_whole and x > 1:
        raise ValueError("the power of a negative number")
    return base_value * to_power(1 - x, power)


def milestones(x: float, values: tuple[float, ...], marks: tuple[float, ...]) -> float:
    """Values that change at parts of the run."""
    if x > 1:
        raise ValueError(PAST_THE_END)
    return values[sum(1 for mark in marks if x >= mark - EPSILON)]


def equal_steps(x: float, values: tuple[float, ...]) -> float:
    """Values that hold equally long; the end of the run has none."""
    for place, value in enumerate(values):
        if x < (place + 1) / len(values) - EPSILON:
            return value
    raise IndexError("IndexError: list index out of range")


def warmed_up(
    count: int,
    rate: float,
    total: int,
    curve: Callable[..., float],
    numbers: Mapping[str, Any],
    length: float,
    factor: float,
    method: str,
    rescale: bool,
) -> float:
    """Line 46: a warmup to the curve at its end; with ``rescale`` the curve begins there."""
    if length > 0 and count <= (length - EPSILON) * total:
        first = factor * curve(0, **numbers)
        if method == "constant":
            return rate * first
        last = curve(0 if rescale else length, **numbers)
        return rate * along_line(first, last, count / total / length)
    if not rescale or length <= 0:
        return rate * curve(count / total, **numbers)
    if length == 1:
        raise ValueError("ZeroDivisionError: RESCALE_INTERVAL leaves no updates")
    return rate * curve((count - length * total) / (total - length * total), **numbers)


def deeplab(
    count: int,
    rate: float,
    MAX_ITER: int,
    WARMUP_ITERS: int,
    WARMUP_FACTOR: float,
    WARMUP_METHOD: str,
    POLY_LR_POWER: float,
    POLY_LR_CONSTANT_ENDING: float,
) -> float:
    """WarmupPolyLR: a polynomial to 0 or to a part of the rate, times the factor of a warmup."""
    if count > MAX_ITER:
        raise ValueError("ValueError: a negative number to a fractional power")
    fall = to_power(MAX_ITER - count, POLY_LR_POWER) / to_power(MAX_ITER, POLY_LR_POWER)
    if count >= WARMUP_ITERS:
        last = POLY_LR_CONSTANT_ENDING
        return rate * (max(last, fall) if last > 0 else fall)
    if WARMUP_METHOD != "linear":
        return rate * WARMUP_FACTOR * fall
    return rate * along_line(WARMUP_FACTOR, 1, count / WARMUP_ITERS) * fall

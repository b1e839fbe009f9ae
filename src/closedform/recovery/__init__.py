"""Schedules from logs: the shortest schedule of the library that reproduces logged values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

import numpy as np

from closedform.errors import ArgumentError, UnknownNameError, nearest
from closedform.language import Schedule
from closedform.language.aliases import Number
from closedform.recipes.logs import Log, Logged, logged, read_log
from closedform.recovery.compositions import shortest
from closedform.recovery.marks import Points

LogSource = str | PathLike[str] | Log | Mapping[int, Number]
"""A file, a log, or the values by step."""

FEWEST_POINTS = 3
"""Values from which a schedule is recovered."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The schedule that was found in a log.

    Attributes:
        schedule: The shortest schedule that reproduces all values; None if none was found.
        call: The call of the library that makes it, as Python code.
        residual: The largest distance from a logged value.
        precisions: The same in units of the precision of that value, at most 1.
        points: The number of logged values.
        first: The first logged update.
        last: The last one. The log does not determine the schedule after it.
    """

    schedule: Schedule | None
    call: str
    residual: float
    precisions: float
    points: int
    first: int
    last: int


def recover(
    log: LogSource, *, digits: int | None = None, key: str = "lr", offset: int | None = None
) -> Recovered:
    """Returns the shortest schedule of the library that reproduces logged values.

    Each function of the library is tried in each of its forms, and compositions of them: a warmup
    and another schedule, stretches in a row, a floor, a factor at each multiple of a number of
    steps, a repetition. Values that agree within the precision of the log do not prove that the
    run used this schedule; between and after the logged updates they do not determine it.

    Args:
        log: A CSV file or JSON lines with steps and learning rates, a ``Log``, or the values by
            step. The log may begin late and have gaps.
        digits: The significant digits to which the values were rounded; those that are printed if
            not given.
        key: The key of the param group: "lr", "weight_decay" or "momentum".
        offset: The logged step of update 0; if not given, that of the format.

    Raises:
        ConfigError: The file cannot be read, or has no column of steps or learning rates.
        UnknownNameError: The log has no values of the key.
        ArgumentError: There are fewer than 3 values, or ``digits`` is not from 1 to 17.

    Example:
        >>> from closedform import schedules
        >>> lr = schedules.cosine(3e-4, 3e-5, 2000)
        >>> found = recover({step: float(f"{lr(step):.6g}") for step in range(0, 1500, 10)})
        >>> found.call
        'cosine(start=0.0003, end=3e-05, steps=2000)'
    """
    if digits is not None and not 1 <= digits <= 17:
        raise ArgumentError(f"digits must be from 1 to 17, got {digits}")
    steps, values = _values(log, key, offset)
    if len(steps) < FEWEST_POINTS:
        raise ArgumentError(
            f"a schedule is recovered from at least {FEWEST_POINTS} values, got {len(steps)}",
            hint="log more updates",
        )
    points = _points(steps, values, digits)
    found = shortest(points)
    first, last = steps[0], steps[-1]
    if found is None:
        return Recovered(None, "", float("inf"), float("inf"), len(steps), first, last)
    apart = np.abs(np.asarray(found.schedule(np.array(steps)), dtype=np.float64) - points.values)
    return Recovered(
        found.schedule.rename("recovered"),
        found.text,
        float(np.max(apart)),
        found.residual,
        len(steps),
        first,
        last,
    )


def _values(log: LogSource, key: str, offset: int | None) -> tuple[list[int], list[Logged]]:
    """The steps in order, each once, and their values; the last one counts where a step repeats."""
    if isinstance(log, Mapping):
        cells: list[str | None] = [repr(float(value)) for value in log.values()]
        by_step = dict(zip((int(step) - (offset or 0) for step in log), logged(cells), strict=True))
    else:
        read = log if isinstance(log, Log) else read_log(log, offset)
        if key not in read.values:
            raise UnknownNameError(
                f"the log has no values of {key!r}",
                where=read.source,
                hint=nearest(key, read.values),
            )
        by_step = dict(zip(read.steps, read.values[key], strict=True))
    chosen = {step: value for step, value in by_step.items() if value is not None and step >= 0}
    order = sorted(chosen)
    return order, [chosen[step] for step in order]


def _points(steps: list[int], values: list[Logged], digits: int | None) -> Points:
    numbers = np.array([float(one.value) for one in values])
    errors = np.array([float(one.precision) for one in values])
    if digits is not None:
        with np.errstate(divide="ignore"):
            exponents = np.floor(np.log10(np.abs(numbers)))
        errors = np.where(numbers == 0, 0.0, 0.5 * 10.0 ** (exponents - digits + 1))
    largest = float(np.max(np.abs(numbers))) or 1.0
    errors = np.maximum(errors, _LEAST * largest)
    return Points(np.array(steps, dtype=np.float64), numbers, errors)


_LEAST = 1e-13
"""Least precision as a part of the largest value: that of float64 arithmetic of a framework."""

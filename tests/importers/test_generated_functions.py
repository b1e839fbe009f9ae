"""Generated Python functions of the step beside their schedules; make compare runs 5,000."""

import contextlib
import math
import random
import warnings

import pytest

import closedform as cf
from closedform.effort import METER
from closedform.errors import DomainError, TraceError
from closedform.importers.python import TracedSchedule
from tests.importers.generated_functions import generated_function

SAME = 1e-7
"""Relative: steps that differ by more than 5e-8 are named."""
LEAST = 1e-16
"""Smaller differences are those of one rounding of 1."""


def steps_of(seed: int, count: int) -> list[int]:
    """The first steps, and some far ones."""
    draw = random.Random(seed)
    far = [draw.randint(count, 10**6) for _ in range(count // 10)]
    return [*range(count - len(far)), *far]


def value_of(seed_function: object, step: int) -> float:
    """The value of a function; NaN where it has none."""
    try:
        value = seed_function(step)  # type: ignore[operator]
        return math.nan if isinstance(value, complex) else float(value)
    except (ArithmeticError, LookupError, ValueError, TypeError):
        return math.nan


def exact_of(schedule: TracedSchedule, step: int) -> float:
    """The exact value of a schedule; NaN where it has none."""
    try:
        return float(schedule.exact(step))
    except DomainError:
        return math.nan


def judged(seed: int, count: int) -> tuple[list[int], int]:
    """Returns the steps at which the schedule of a seed is wrong, and how many are named.

    Raises:
        TraceError: The function is refused.
    """
    function = generated_function(seed)
    schedule = cf.from_python(function)
    rounded = schedule.trace.comparison.rounded
    model = rounded._model
    assert model is not None
    wrong, named = [], 0
    for step in steps_of(seed, count):
        expected = value_of(function, step)
        found = model.exact(step)
        exact = math.nan if found is None else found
        if step % 50 == 0:  # by SymPy, too, which is slow
            assert same(exact, exact_of(schedule, step))
        if same(exact, expected):
            continue
        if step in rounded:
            named += 1
        else:
            wrong.append(step)
    return wrong, named


def same(exact: float, value: float) -> bool:
    """Whether two values are the same, or both do not exist."""
    if math.isnan(exact) or not math.isfinite(value):
        return math.isnan(exact) and not math.isfinite(value)
    return abs(exact - value) <= max(SAME * max(abs(exact), abs(value)), LEAST)


REFUSED = {4: "an index, or the length of a loop, takes too many values"}
"""Seeds of functions that are not read, with the reason."""


# 3079 takes a cosine of float32 numbers, which enlarges their rounding to more than 5e-8
@pytest.mark.sample(every=8)
@pytest.mark.parametrize("seed", [*range(160), 3079])
def test_a_generated_function_is_read_or_refused(seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # integers of NumPy that wrap
        if seed in REFUSED:
            with pytest.raises(TraceError, match=REFUSED[seed]):
                judged(seed, 200)
        else:
            wrong, _ = judged(seed, 200)
            assert wrong == []


@pytest.mark.parametrize("seed", [779, 808, 839, 926])
def test_a_trace_beside_long_periods_ends_soon(seed: int) -> None:
    """A table of 12 beside a remainder by 1001 took 26 s while segments were not counted."""
    before = METER.work
    with contextlib.suppress(TraceError):
        cf.from_python(generated_function(seed))
    assert METER.work - before < 3_000_000

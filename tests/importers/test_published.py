"""Published schedule functions, read and compared with themselves."""

import contextlib
import io
import statistics
import time

import numpy as np
import pytest

import closedform as cf
from closedform.errors import ClosedFormError, TraceError
from tests.importers.published import PUBLISHED, Schedule

# Factories that have variants add them when they are called.
for _make in list(PUBLISHED.values()):
    _make()
NAMES = sorted(PUBLISHED)
REFUSED = {
    "KellerJordan/modded-nanogpt:window_size_blocks": "the number of iterations is not bounded"
}
STEPS = (0, 1, 2, 13, 77, 150, 999, 12_345)
MILLISECONDS = 50


def value_of(function: Schedule, step: int) -> float | None:
    """The value of a function; None where it raises an exception."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            value = function(step)
        except (ArithmeticError, LookupError, ValueError, TypeError, AssertionError):
            return None
    return None if isinstance(value, complex) else float(value)


def test_there_are_enough() -> None:
    assert len(NAMES) >= 100
    assert len(REFUSED) <= len(NAMES) // 20


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_published_function_is_read(name: str) -> None:
    function = PUBLISHED[name]()
    schedule = cf.from_python(function)
    assert schedule.trace.comparison.points >= 8
    expected = [value_of(function, step) for step in STEPS]
    scale = max(abs(value) for value in expected if value is not None)
    is_single = any("float32" in note for note in schedule.trace.notes)
    # Each rounds some ten times, relative to the largest value; float32 where the function does.
    tolerance = scale * (1e-6 if is_single else 1e-13)
    for step, value in zip(STEPS, expected, strict=True):
        if value is None:
            with pytest.raises(ClosedFormError):
                schedule.exact(step)
        else:
            assert float(schedule.exact(step)) == pytest.approx(value, rel=1e-11, abs=tolerance)


@pytest.mark.sample(every=12)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_a_published_function_is_compiled(name: str) -> None:
    function = PUBLISHED[name]()
    schedule = cf.from_python(function)
    if schedule.trace.raises:
        pytest.skip("it has no value at some steps")
    steps = np.array(STEPS)
    expected = np.array([value_of(function, step) for step in STEPS], dtype=np.float64)
    tolerance = np.abs(expected).max() * (1e-6 if "torch" in name else 1e-12)
    np.testing.assert_allclose(schedule(steps), expected, rtol=1e-10, atol=tolerance)


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_by_name(name: str) -> None:
    with pytest.raises(TraceError, match=REFUSED[name]) as found:
        cf.from_python(PUBLISHED[name]())
    assert "published.py, line" in str(found.value.where)


@pytest.mark.exhaustive
def test_the_median_trace_is_short() -> None:
    times = []
    for name in NAMES:
        if name in REFUSED:
            continue
        function = PUBLISHED[name]()
        began = time.process_time()
        cf.from_python(function)
        times.append(1000 * (time.process_time() - began))
    assert statistics.median(times) <= MILLISECONDS

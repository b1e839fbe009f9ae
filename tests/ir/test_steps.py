"""The domain of a step: what is taken, and the messages of what is not."""

from typing import Any

import numpy as np
import pytest

from closedform.errors import DefinitionError, SessionError
from closedform.ir.steps import check_next, checked_steps, last_step

COUNT = "pass the number of optimizer steps performed so far, starting at 0"


def test_the_last_step_of_a_dtype() -> None:
    lasts = {"int64": 2**50, "int32": 2**31 - 1, "int8": 127, "uint64": 2**50}
    assert {name: last_step(np.dtype(name)) for name in lasts} == lasts


@pytest.mark.parametrize(
    ("step", "values"),
    [
        (0, 0),
        (9, 9),
        (np.uint64(9), 9),
        ([], []),
        ([[1], [2]], [[1], [2]]),
        (np.array([3, 9], np.uint8), [3, 9]),
        (np.array([3, 9], object), [3, 9]),
    ],
)
def test_steps_that_are_taken(step: Any, values: Any) -> None:
    steps = checked_steps(step, 9, "a test")
    assert steps.dtype.kind in "iu"
    assert steps.tolist() == values


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (-1, "the step must be in 0..9, got -1"),
        (10, "the step must be in 0..9, got 10"),
        ([3, 10, 11], "the step must be in 0..9, got 11"),
        (np.array([2**63], np.uint64), f"the step must be in 0..9, got {2**63}"),
        (10**5000, "the step must be in 0..9, got 2**16609 or more"),
        ([1, -(2**200)], "the step must be in 0..9, got -2**200 or more"),
        (2.0, "the step must be an integer, got float64"),
        (True, "the step must be an integer, got bool"),
        (None, "the step must be an integer, got None"),
        ("3", "the step must be an integer, got <U1"),
    ],
    ids=map(str, range(10)),
)
def test_steps_that_are_refused(step: Any, message: str) -> None:
    for error in (SessionError, DefinitionError):
        with pytest.raises(error) as caught:
            checked_steps(step, 9, "a test", error)
        assert str(caught.value) == f"{message} (a test): {COUNT}"


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (
            "int32",
            "the clock is at 2147483647 and ends at 2147483647, the last step of int32 (a test): "
            'export the step with step_dtype="i64"',
        ),
        ("int64", f"the clock is at {2**50} and ends at {2**50}, the last step of int64 (a test)"),
    ],
)
def test_the_step_after_the_last_one_is_refused(dtype: str, message: str) -> None:
    last = last_step(np.dtype(dtype))
    check_next(last - 1, np.dtype(dtype), "a test")
    with pytest.raises(SessionError) as caught:
        check_next(last, np.dtype(dtype), "a test")
    assert str(caught.value) == message

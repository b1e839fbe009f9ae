"""Exceptions of a traced function at some steps: they end the schedule, as they end a run."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, LinearLR

import closedform as cf
from closedform.errors import DomainError, LoweringError, TraceError
from closedform.language import Schedule

RAISING: dict[str, tuple[Callable[[int, int], Any], str]] = {
    "a division": (lambda step, end: 1 / (end - step), "ZeroDivisionError: "),
    "a remainder": (lambda step, end: step % (end - step), "ZeroDivisionError: "),
    "a root": (lambda step, end: math.sqrt(end - 1 - step), "ValueError: math domain error"),
    "a logarithm": (lambda step, end: math.log(end - step), "ValueError: math domain error"),
    "an index": (lambda step, end: [0.5, 0.25, 0.125][step * 3 // end], "IndexError: "),
    "a key": (lambda step, end: {0: 0.5}[step // end], "KeyError: "),
}


def function_of(name: str, end: int, length: int) -> Callable[[int], Any]:
    """A function that raises an exception at some steps from one on."""
    value = RAISING[name][0]
    return lambda step: 0.125 if step >= end + length else value(step, end)


# Tables are looked up at each step, of which there must not be many.
CASES = [
    case
    for case in itertools.product(RAISING, (1, 7, 300), (1, 5, 10**9))
    if case[2] < 10**9 or case[0] not in ("an index", "a key")
]


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("name", "end", "length"), CASES)
def test_the_schedule_ends_before_the_first_exception(name: str, end: int, length: int) -> None:
    function = function_of(name, end, length)
    schedule = cf.from_python(function)
    assert schedule.last_step == end - 1
    for step in {0, end // 2, end - 1}:
        value = pytest.approx(float(function(step)), rel=1e-15)
        assert float(schedule.exact(step)) == value
        assert schedule(step) == value
    for step in (end, end + length, end + length + 1):
        for evaluate in (schedule.exact, schedule):
            with pytest.raises(DomainError) as error:
                evaluate(step)
            assert f"its last step is {end - 1}: {RAISING[name][1]}" in str(error.value)
            assert f"{__name__.rpartition('.')[2]}.py, line" in str(error.value)
            assert "branch" not in str(error.value)


def test_the_report_names_the_steps_that_are_left_out() -> None:
    report = str(cf.from_python(function_of("a division", 7, 1)).trace)
    assert "no value at step 7: ZeroDivisionError" in report
    assert "the schedule ends there, before step 8" in report


def test_a_function_that_begins_later_is_shifted() -> None:
    schedule = cf.from_python(lambda step: 1 / step)
    with pytest.raises(
        LoweringError, match=r"no value for 0 <= t <= 0 .* begin after them with shift\(1\)"
    ):
        schedule(3)
    assert schedule.shift(1)(3) == 0.25


def scheduler(kind: Any, *args: Any, **options: Any) -> Any:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    return kind(optimizer, *args, **options)


@pytest.mark.parametrize("end", [1, 7, 200])
def test_a_function_of_torch_that_returns_none_ends_the_schedule(end: int) -> None:
    schedule = cf.from_torch(scheduler(LambdaLR, lambda step: 0.5 if step < end else None))
    assert isinstance(schedule, Schedule)
    assert schedule.last_step == end - 1
    assert float(schedule.exact(end - 1)) == 0.25
    with pytest.raises(DomainError, match=r"its last step is \d+: TypeError: .*'NoneType'"):
        schedule.exact(end)


def test_a_function_that_returns_none_is_refused_by_its_step() -> None:
    with pytest.raises(TraceError, match="returns None from step 9 on"):
        cf.from_python(lambda step: 0.5 if step < 9 else None)


def test_a_closed_form_of_torch_that_raises_is_not_taken() -> None:
    schedule = cf.from_torch(scheduler(LinearLR, 0.25, 1.0, total_iters=0))
    assert isinstance(schedule, Schedule)
    assert [float(schedule.exact(step)) for step in (0, 1, 500)] == [0.125] * 3


@pytest.mark.parametrize("function", [
    lambda step: 1 / (1 + math.isqrt(step)),
    lambda step: 0.5 if math.isqrt(step) ** 2 == step else 0.25,
    lambda step: [0.5, 0.25][min(math.isqrt(step // 100), 1)],
])  # fmt: skip
def test_the_integer_root_is_that_of_math(function: Callable[[int], Any]) -> None:
    schedule = cf.from_python(function)
    for step in (*range(30), 99, 100, 399, 400, 10**8 - 1, 10**8, 2**50 + 1):
        assert float(schedule.exact(step)) == pytest.approx(function(step), rel=1e-15)


def test_the_integer_root_of_a_float_is_an_error_of_the_function() -> None:
    with pytest.raises(TraceError, match="'float' object cannot be interpreted as an integer"):
        cf.from_python(lambda step: math.isqrt(step * 1.0))

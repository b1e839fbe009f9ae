"""More than 20,000 files that were tampered with: PROVED, and another meaning, is 0."""

import pytest

from tests.verify.tampered import BORDERS, OPTIONS, SCHEDULES, subjects, sweep
from tests.verify.tampered_floats import FLOAT_EDITS, float_subjects
from tests.verify.tampered_values import VALUE_EDITS

OF_A_SCHEDULE, OF_A_RULE, OF_A_BORDER, OF_A_VALUE, OF_A_FLOAT = 400, 120, 280, 280, 170
TOTAL: dict[str, int] = {}


@pytest.mark.parametrize("name", subjects())
def test_what_is_proved_has_its_meaning(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    is_schedule = any(name == f"{own}{options}" for own in SCHEDULES for options in OPTIONS)
    found = sweep(subjects()[name](), OF_A_SCHEDULE if is_schedule else OF_A_RULE, seed=1)
    for status, count in found.by_status.items():
        TOTAL[status] = TOTAL.get(status, 0) + count
    with capsys.disabled():
        print(f"\n{name}: {found.files} files: {found.by_status}; so far {TOTAL}")
    assert found.wrong == []


@pytest.mark.parametrize("name", subjects())
def test_what_is_proved_is_what_the_engine_runs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same of files that an engine reads in another way than the standard, or not at all."""
    result = sweep(subjects()[name](), OF_A_BORDER, seed=2, edits=BORDERS)
    with capsys.disabled():
        print(f"\n{name}: {result.files} files at the borders: {result.by_status}")
    assert result.wrong == []


@pytest.mark.parametrize("name", subjects())
def test_a_value_that_is_not_the_operand_is_not_proved_to_be(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same of values that only NaN, types and constants of engines distinguish."""
    result = sweep(subjects()[name](), OF_A_VALUE, seed=3, edits=VALUE_EDITS)
    with capsys.disabled():
        print(f"\n{name}: {result.files} files with other values: {result.by_status}")
    assert result.wrong == []


@pytest.mark.parametrize("name", float_subjects())
def test_an_overflow_that_an_operation_hides_is_not_proved(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same of values that are the operand over the real numbers, and overflow in floats."""
    result = sweep(float_subjects()[name](), OF_A_FLOAT, seed=4, edits=FLOAT_EDITS)
    with capsys.disabled():
        print(f"\n{name}: {result.files} files that overflow: {result.by_status}")
    assert result.wrong == []


def test_there_are_enough() -> None:
    schedules = len(SCHEDULES) * len(OPTIONS) * OF_A_SCHEDULE
    rules = (len(subjects()) - len(SCHEDULES) * len(OPTIONS)) * OF_A_RULE
    assert schedules + rules >= 10_000
    assert len(subjects()) * OF_A_BORDER >= 10_000
    assert len(subjects()) * OF_A_VALUE >= 10_000
    assert len(float_subjects()) * OF_A_FLOAT >= 10_000

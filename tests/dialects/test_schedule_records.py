"""Every schedule record of the reference systems: compared, or listed with its reason.

A record is compared at all its steps by two routes: exact arithmetic, and the float64 evaluator on
the compiled graph. The tolerance is 1e-12 of the record's largest value: the references computed in
float64 as well, torch by recursion, whose error the record itself states to be below 3e-13.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from closedform import dialects
from closedform.errors import DefinitionError, DomainError, UnknownNameError
from closedform.language import Schedule
from closedform.language.exact import to_float
from tests.reference.records import Row, schedule_records

TOLERANCE = 1e-12
RECORDS = {row["id"]: row for row in schedule_records()}

# Flags of records whose values come from a defect: only as_shipped gives them.
DEFECTS = (
    "poly_cycle_ignored",
    "frozen_children",
    "sequential_last_epoch",
    "recursive_differs_from_closed",
)

# Refused by the reference at construction, and here with this error.
REFUSED = {
    "cb-0641": (DefinitionError, "must not name a tag twice"),
    "cb-0642": (DefinitionError, "must not name a tag twice"),
    "cb-0647": (DefinitionError, "must be those of its composite"),
    "cb-0648": (DefinitionError, "must be those of its composite"),
    "th-0071": (DefinitionError, "factor must be in [0, 1], got 1.5"),
    "th-0072": (DefinitionError, "factor must be in [0, 1], got -0.1"),
    "th-0084": (DefinitionError, "start_factor must be in (0, 1], got 0.0"),
    "th-0085": (DefinitionError, "start_factor must be in (0, 1], got 1.2"),
    "th-0227": (DefinitionError, "milestones must be one fewer than schedulers"),
}

# Not compared, by reason.
MEMBER_MISSING = "a member is of a class that this dialect does not have"
EXCLUDED = {
    **dict.fromkeys(
        (
            *("th-0210", "th-0211", "th-0212", "th-0219", "th-0222", "th-0225", "th-0230"),
            "th-0231",
        ),
        (UnknownNameError, MEMBER_MISSING),
    ),
    "th-0126": (DomainError, "T_max 0: torch raises at step 1; refused at construction here"),
    "th-0213": (DefinitionError, "torch assumes sorted milestones; unsorted ones are refused here"),
}

# Compared as shipped only: the documented formula has no value, and building it is refused.
SHIPPED_ONLY = {
    "th-0066": "total_iters 0: torch's step() never recovers, its closed form is the base",
    "th-0112": "total_iters 0: torch's step() stays, its closed form divides by zero",
}

COMPARED = [key for key in RECORDS if key not in REFUSED and key not in EXCLUDED]


def build(row: Row, *, as_shipped: bool) -> list[Schedule | None]:
    return dialects.schedules(
        row["system"],
        row["class"],
        row["kwargs"],
        row["param_groups"],
        key=row["key"],
        as_shipped=as_shipped,
    )


def numbers(values: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([float(value) for value in values])


def assert_values(
    row: Row, schedules: list[Schedule | None], steps: Sequence[int], wanted: list[list[Any]]
) -> None:
    for index, (schedule, values) in enumerate(zip(schedules, wanted, strict=False)):
        reference = numbers(values)
        bound = TOLERANCE * np.abs(numbers([v for group in wanted for v in group])).max()
        if schedule is None:
            assert (reference == row["param_groups"][index][row["key"]]).all()
            continue
        exact = numbers([to_float(schedule.exact(step)) for step in steps])
        computed = schedule(np.array(steps))
        np.testing.assert_allclose(exact, reference, rtol=0, atol=bound)
        np.testing.assert_allclose(computed, reference, rtol=0, atol=bound)


@pytest.mark.parametrize("key", COMPARED)
def test_record_is_reproduced(key: str) -> None:
    row = RECORDS[key]
    is_defect = bool(set(row["flags"]) & set(DEFECTS))
    wanted = row.get("group_values") or [row["values"]]
    assert_values(row, build(row, as_shipped=True), row["steps"], wanted)
    if not is_defect:
        assert_values(row, build(row, as_shipped=False), row["steps"], wanted)


@pytest.mark.parametrize(
    "key",
    [k for k in COMPARED if set(RECORDS[k]["flags"]) & set(DEFECTS) and k not in SHIPPED_ONLY],
)
def test_documented_formula_differs_from_defect(key: str) -> None:
    row = RECORDS[key]
    wanted = row.get("group_values") or [row["values"]]
    with pytest.raises(AssertionError):
        assert_values(row, build(row, as_shipped=False), row["steps"], wanted)


CLOSED = [k for k in COMPARED if RECORDS[k].get("closed_form_values") and k not in SHIPPED_ONLY]


@pytest.mark.parametrize("key", CLOSED)
def test_default_is_torch_closed_form(key: str) -> None:
    row = RECORDS[key]
    values = [row["closed_form_values"]]
    assert_values(row, build(row, as_shipped=False), row["closed_form_steps"], values)


@pytest.mark.parametrize("key", SHIPPED_ONLY)
def test_value_without_meaning_is_refused(key: str) -> None:
    with pytest.raises(DomainError, match="total_iters must be above 0, got 0"):
        build(RECORDS[key], as_shipped=False)


@pytest.mark.parametrize("key", REFUSED)
def test_what_the_reference_refuses_is_refused(key: str) -> None:
    assert RECORDS[key]["error"]["where"].startswith("construction")
    kind, message = REFUSED[key]
    with pytest.raises(kind) as caught:
        build(RECORDS[key], as_shipped=False)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", EXCLUDED)
def test_excluded_record_cannot_be_built(key: str) -> None:
    kind, _ = EXCLUDED[key]
    with pytest.raises(kind):
        build(RECORDS[key], as_shipped=False)


def test_every_record_is_accounted_for() -> None:
    print(f"{len(COMPARED)} schedule records compared, {len(REFUSED)} refused as by the reference")
    print(f"{len(EXCLUDED)} excluded, of {len(RECORDS)}; {len(CLOSED)} closed forms of torch")
    assert len(COMPARED) + len(REFUSED) + len(EXCLUDED) == len(RECORDS)
    assert (len(COMPARED), len(REFUSED), len(EXCLUDED)) == (220, 9, 10)

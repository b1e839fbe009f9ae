"""Every schedule record of the reference frameworks: compared, or listed with its reason.

A record is compared at all its steps by two routes: exact arithmetic, and the float64 evaluator on
the compiled graph. The tolerance is 1e-12 of the record's largest value: the references computed in
float64 as well, torch by recursion, whose error the record itself states to be below 3e-13.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from closedform import frameworks
from closedform.language import Schedule
from closedform.language.exact import to_float
from tests.recipes.schedule_tables import (
    DEFECTS,
    DOCUMENTED_ONLY,
    METRIC_DRIVEN,
    NO_VALUE,
    REFUSED,
    SAME_AS_IMPLEMENTED,
    SHIPPED_ONLY,
    UNFLAGGED_DEFECTS,
)
from tests.reference.records import Row, schedule_records
from tests.support.metrics import run_metric_rule

TOLERANCE = 1e-12
RECORDS = {row["id"]: row for row in schedule_records()}
COMPARED = [
    key for key in RECORDS if key not in {*REFUSED, *NO_VALUE, *DOCUMENTED_ONLY, *METRIC_DRIVEN}
]


def flags(key: str) -> set[str]:
    return set(RECORDS[key]["flags"])


def is_defect(key: str) -> bool:
    """Whether the values come from a defect, so that the documented formula has others."""
    return (bool(flags(key) & DEFECTS.keys()) or key in UNFLAGGED_DEFECTS) and (
        key not in SAME_AS_IMPLEMENTED
    )


def build(row: Row, *, as_implemented: bool) -> list[Schedule | None]:
    kwargs = row["kwargs"]
    if "continuation" in row:
        loaded = {name: row["continuation"][name] for name in ("first", "load_state")}
        kwargs = {**kwargs, "continuation": loaded}
    return frameworks.schedules(
        row["system"],
        row["class"],
        kwargs,
        row["param_groups"],
        key=row["key"],
        as_implemented=as_implemented,
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
            own = row["param_groups"][index].get(row["key"], reference[0])
            assert (reference == own).all()
            continue
        if np.isnan(reference).any():
            # A reference that divides by zero from some step on: there the schedule has ended.
            assert schedule.last_step is not None
            end = schedule.last_step + 1
            has_value = np.array(steps) < end
            assert (np.isnan(reference) == ~has_value).all()
            reference, steps = reference[has_value], [step for step in steps if step < end]
            bound = TOLERANCE * np.abs(reference).max()
        computed = schedule(np.array(steps))
        np.testing.assert_allclose(computed, reference, rtol=0, atol=bound)
        exact = numbers([to_float(schedule.exact(step)) for step in steps])
        np.testing.assert_allclose(exact, reference, rtol=0, atol=bound)


def values_of(row: Row) -> list[list[Any]]:
    return row.get("group_values") or [row["values"]]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", COMPARED)
def test_record_is_reproduced(key: str) -> None:
    row = RECORDS[key]
    assert_values(row, build(row, as_implemented=True), row["steps"], values_of(row))
    if not is_defect(key) and key not in SHIPPED_ONLY:
        assert_values(row, build(row, as_implemented=False), row["steps"], values_of(row))


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", [k for k in COMPARED if is_defect(k) and k not in SHIPPED_ONLY])
def test_documented_formula_differs_from_defect(key: str) -> None:
    row = RECORDS[key]
    with pytest.raises(AssertionError):
        assert_values(row, build(row, as_implemented=False), row["steps"], values_of(row))


CLOSED = [k for k in COMPARED if RECORDS[k].get("closed_form_values") and k not in SHIPPED_ONLY]


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", CLOSED)
def test_default_is_torch_closed_form(key: str) -> None:
    row = RECORDS[key]
    values = [row["closed_form_values"]]
    assert_values(row, build(row, as_implemented=False), row["closed_form_steps"], values)


@pytest.mark.parametrize("key", SHIPPED_ONLY)
def test_value_without_meaning_is_refused(key: str) -> None:
    kind, message, _ = SHIPPED_ONLY[key]
    with pytest.raises(kind) as caught:
        build(RECORDS[key], as_implemented=False)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", [*REFUSED, *NO_VALUE])
@pytest.mark.parametrize("as_implemented", [False, True])
def test_what_has_no_value_is_refused(key: str, as_implemented: bool) -> None:
    kind, message = REFUSED[key] if key in REFUSED else NO_VALUE[key][:2]
    with pytest.raises(kind) as caught:
        build(RECORDS[key], as_implemented=as_implemented)
    assert message in str(caught.value)


def test_refused_records_are_those_that_the_reference_refuses() -> None:
    for key in REFUSED:
        assert RECORDS[key]["error"]["where"].startswith("construction")
        assert not RECORDS[key]["values"]


def test_records_without_a_value_carry_the_flag_of_their_reason() -> None:
    for key, (_, _, flag) in NO_VALUE.items():
        assert flag in flags(key), key


@pytest.mark.parametrize("key", DOCUMENTED_ONLY)
def test_documented_formula_where_the_shipped_one_is_refused(key: str) -> None:
    kind, message, _ = DOCUMENTED_ONLY[key]
    with pytest.raises(kind) as caught:
        build(RECORDS[key], as_implemented=True)
    assert message in str(caught.value)
    assert build(RECORDS[key], as_implemented=False)[0] is not None


def test_member_before_the_step_at_which_torch_raises() -> None:
    row = RECORDS["th-0222"]
    assert row["error"] == {"type": "NotImplementedError", "where": "step", "at_step": 5}
    assert_values(row, build(row, as_implemented=False), row["steps"], values_of(row))


@pytest.mark.parametrize("key", METRIC_DRIVEN)
def test_metric_driven_record_is_reproduced(key: str) -> None:
    row = RECORDS[key]
    assert flags(key) == {"metric_driven"}
    kwargs = {name: value for name, value in row["kwargs"].items() if name != "metrics"}
    rule = frameworks.metric_rule(row["system"], row["class"], kwargs)
    metrics = row["kwargs"]["metrics"]
    assert run_metric_rule(rule, row["values"][0], metrics) == row["values"][1:]


def test_every_record_is_accounted_for() -> None:
    counts = tuple(map(len, (COMPARED, REFUSED, NO_VALUE, DOCUMENTED_ONLY, METRIC_DRIVEN)))
    print(f"{counts[0]} schedule records compared, {counts[4]} as rules that wait for a metric,")
    print(f"{counts[1]} refused as by the reference,")
    print(f"{counts[2]} without a value refused, {counts[3]} by the documented formula alone;")
    print(
        f"{sum(map(is_defect, COMPARED))} of the compared are defects, {len(CLOSED)} closed forms"
    )
    assert sum(counts) == len(RECORDS) == 575
    assert counts == COUNTS
    assert not REFUSED.keys() & NO_VALUE.keys()
    assert {*REFUSED, *NO_VALUE, *DOCUMENTED_ONLY, *SHIPPED_ONLY} <= RECORDS.keys()
    assert {flag for key in RECORDS for flag in flags(key)} <= DEFECTS.keys() | HARMLESS


# Records: compared, refused as by the reference, without a value, documented formula alone,
# compared as rules.
COUNTS = (528, 22, 18, 4, 3)

# Flags whose records have the same values by the documented formula, or are in another table.
HARMLESS = {
    "past_end_not_clamped",  # One-cycle and cosine annealing go on past their end in both.
    "scale_mode_overwritten",  # Without an own function scale_mode has nothing to choose.
    "cyclic_unknown_mode",  # Refused by default: SHIPPED_ONLY.
    "unsorted_milestones",  # Refused by default: SHIPPED_ONLY.
    "zero_decay_steps",  # NO_VALUE.
    "zero_lr_min",  # NO_VALUE.
    "non_finite",  # NO_VALUE, or the schedule ends before.
    "metric_driven",  # METRIC_DRIVEN.
    "error",  # The steps before it are compared, or the record is in a table.
}

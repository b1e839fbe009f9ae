"""Runs that are resumed: the splice, new horizons and batch sizes."""

from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.analysis.resuming import resume
from closedform.errors import ArgumentError, ClosedFormError
from closedform.verify.terms.verdict import Status

RUN = cf.schedules.linear(0, 1, 20).then(cf.schedules.cosine(1, 0, 80))


def test_a_new_schedule_begins_where_the_run_has_come_to() -> None:
    found = RUN.resume(at=60, new=cf.schedules.linear(1, 0, 40))
    assert (found.before, found.after, found.factor) == (sp.Rational(1, 2),) * 3
    assert (found.history, found.continuity) == (Status.PROVED, Status.PROVED)
    assert (found.old_length, found.new_length) == (100, 100)
    steps = np.arange(120)
    expected = np.where(steps < 60, RUN(steps), 0.5 * np.clip(1 - (steps - 60) / 40, 0, 1))
    assert np.allclose(found.schedule(steps), expected, rtol=0, atol=1e-15)
    assert "multiplied by 1/2" in str(found)


def test_a_jump_is_reported() -> None:
    found = resume(RUN, 60, cf.schedules.linear(1, 0, 40), is_continuous=False)
    assert found.continuity is Status.REFUTED
    assert found.history is Status.PROVED
    assert found.schedule.exact(60) == 1


def test_a_new_total_stretches_the_rest() -> None:
    found = RUN.resume(60, total=140)
    assert found.continuity is Status.PROVED
    assert [found.schedule.exact(step) for step in (60, 140, 150)] == [sp.Rational(1, 2), 0, 0]
    steps = np.arange(60, 140, 2)
    assert np.allclose(found.schedule(steps), RUN(60 + (steps - 60) // 2), rtol=0, atol=1e-15)
    assert found.new_length == 140


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1), ("linear", 2), ("sqrt", 2**0.5)])
def test_another_batch_size_has_the_same_curve_by_samples(scaling: str, factor: float) -> None:
    found = RUN.resume(60, batch_sizes=(256, 512), scaling=scaling)
    steps = np.arange(60, 90)
    expected = factor * np.asarray(RUN(60 + 2 * (steps - 60)))
    assert np.allclose(found.schedule(steps), expected, rtol=0, atol=1e-14)
    assert found.new_length == 80
    assert found.continuity is (Status.PROVED if scaling == "none" else Status.REFUTED)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: RUN.resume(60), "exactly one of new, total and batch_sizes must be given, got 0"),
    (lambda: RUN.resume(60, total=50), "total must be above at, got 50 and 60"),
    (lambda: RUN.resume(100, total=150), "ends after update 100, got the length 100"),
    (lambda: RUN.resume(60, new=cf.schedules.linear(0, 1, 9)), "begins at 0 and the run has come"),
    (lambda: RUN.resume(60, batch_sizes=(0, 4)), r"must be rational and above 0, got \(0, 4\)"),
    (lambda: RUN.resume(6, batch_sizes=(1, 4), scaling="log"), "none, linear, sqrt, got 'log'"),
    (lambda: RUN.resume(-1, total=200), "at must be an integer >= 0, got -1"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        build()


def test_two_changes_at_once_are_refused() -> None:
    with pytest.raises(ArgumentError, match="got 2"):
        RUN.resume(60, new=RUN, total=200)

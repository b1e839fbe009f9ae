"""Inverse questions: areas and values are checked by adding the values up."""

from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.verify.claims.sums import total_of

RUN = cf.schedules.linear(0, 1, 20).then(cf.schedules.cosine(1, 0, 80))
FALL = cf.schedules.cosine(1, 0.1, 1000)


def area(schedule: Schedule) -> float:
    return float(np.sum(schedule(np.arange(int(schedule.length or 0)))))


@pytest.mark.parametrize(
    "schedule",
    [RUN, FALL, cf.schedules.polynomial(1, 0, 50, 3), cf.schedules.wsd(1, 0.1, 90, 7, 30)],
    ids=["warmup", "cosine", "polynomial", "wsd"],
)
def test_closed_forms_of_areas_are_the_sums(schedule: Schedule) -> None:
    found = total_of(schedule, int(schedule.length or 0))
    assert found is not None
    assert float(found) == pytest.approx(area(schedule), rel=1e-12)


def test_a_peak_is_exact() -> None:
    found = cf.solve(cf.schedules.linear(1, 0, 100).area() == 101, "start")
    assert (found.value, found.is_exact) == (2, True)
    value = cf.solve(cf.schedules.inverse_square_root(1, 1, 100).at(400) == 0.3, "value")
    assert value.value == 6
    assert value.schedule.exact(400) == sp.Rational(3, 10)


def test_a_peak_with_cosines() -> None:
    found = cf.solve(FALL.area() == 300, "start")
    assert area(found.schedule) == pytest.approx(300, rel=1e-12)


def test_a_number_of_steps_is_solved_to_the_step() -> None:
    found = cf.solve(RUN.area() == 55.3, "steps_1")
    assert found.high == found.low + 1
    below, above = (area(RUN.bind(steps_1=int(n))) for n in (found.low, found.high))
    assert (below - 55.3) * (above - 55.3) < 0
    assert (found.at_low, found.at_high) == pytest.approx((below, above), rel=1e-12)
    assert not found.is_exact


def test_a_step_that_meets_the_number() -> None:
    found = cf.solve(cf.schedules.linear(1, 0, 100).area() == 333, "steps")
    assert (found.value, found.is_exact, found.at_low, found.at_high) == (665, True, 332.5, 333)


def test_an_exponent_is_between_two_numbers() -> None:
    found = cf.solve(cf.schedules.polynomial(1, 0, 100, 2).at(50) == 0.3, "power")
    assert float(found.low) <= np.log2(1 / 0.3) <= float(found.high)
    assert float(found.high - found.low) < 1e-13


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: cf.solve(RUN.area() == 5, "warmup"), "has no hyperparameter 'warmup'"),
    (lambda: cf.solve(RUN.area() == 5, "steps_1"), "does not cross 5 for steps_1 from 1 to 20000"),
    (lambda: cf.solve(cf.schedules.constant(1).area() == 5, "value"), "without a length has no"),
    (lambda: cf.solve(True, "value"), "takes an equation"),  # type: ignore[arg-type]
    (lambda: cf.solve(FALL.at(0) == 2, "end"), "does not depend on end"),
    (lambda: cf.solve(RUN.area() == "x", "start_1"), "the right side must be a number"),
]


@pytest.mark.parametrize(("build", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ClosedFormError, match=message):
        build()

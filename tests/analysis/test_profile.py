"""The first rise of a series: that of a schedule, or that of a log with its errors."""

import numpy as np
import pytest

from closedform.analysis.profile import Rise, first_rise, rise_of_formula


@pytest.mark.parametrize(
    ("values", "rise"),
    [
        ([3.0], Rise(0, 0)),
        ([np.nan, 1.0, 2.0], Rise(0, 0)),
        ([0.0, 1.0, np.nan, 2.0], Rise(1, 1)),
        ([3.0, 1.0, 4.0], Rise(0, 0)),
        ([0.0, 0.0, 1.0, 2.0, 2.0, 1.0], Rise(3, 4)),
        # A staircase: the first value of the highest step.
        ([0.0, 0.0, 1.0, 1.0, 2.0, 2.0], Rise(4, 5)),
        # A greater peak after the first fall is that of another cycle.
        ([0.0, 1.0, 0.4, 2.0], Rise(1, 1)),
        # One ulp down on the plateau is a rounding.
        ([0.0, 1.0, np.nextafter(1.0, 0.0), 0.4, 1.0], Rise(1, 2)),
        # A fall to no less than half does not end a rise.
        ([0.0, 0.99, 0.5, 1.0, 1.0, 0.99, 0.9], Rise(3, 4)),
        ([0.5, 0.3, 0.6, 0.2, 0.9], Rise(2, 2)),
    ],
)
def test_the_first_rise_ends_at_the_first_of_its_greatest_values(
    values: list[float], rise: Rise
) -> None:
    assert rise_of_formula(np.array(values)) == rise


def test_errors_of_a_log_hide_a_fall() -> None:
    values = np.array([0.0, 0.9, 1.0, 0.95, 0.5])
    assert first_rise(values, np.full(5, 0.01)) == Rise(2, 2)
    assert first_rise(values, np.full(5, 0.03)) == Rise(2, 2)
    assert first_rise(values, np.full(5, 0.06)) == Rise(2, 3)
    assert first_rise(values, np.full(5, 0.1)) == Rise(1, 3)

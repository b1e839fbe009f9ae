"""Composition: names that clash, and lengths of what runs side by side."""

import sympy as sp

from closedform.language import Schedule, chained, hyper, sequential, t

PEAK, NUMBERED = hyper("peak"), hyper("peak_2")


def test_a_number_for_a_clashing_name_may_be_taken() -> None:
    first = Schedule(PEAK + NUMBERED * t, length=4, peak=1, peak_2=7)
    joined = sequential((first, Schedule(PEAK, peak=2)))
    assert [joined.exact(step) for step in (0, 1, 3, 4, 9)] == [1, 8, 22, 2, 2]
    assert list(joined.hyperparameters) == ["peak_1", "peak_2", "peak_2_"]
    assert joined.bind(peak_2_=3).exact(4) == 3


def test_a_product_is_as_long_as_the_longest() -> None:
    short, long = Schedule(1 / (t + 1), length=4), Schedule(sp.Min(t, 9) + 1, length=9)
    assert chained((short, long)).length == 9
    assert chained((long, short)).length == 9
    assert chained((short, Schedule(t + 1))).length == 4
    assert chained((Schedule(t + 1),)).length is None


def test_a_shift_moves_the_length() -> None:
    ramp = Schedule(sp.Min(t, 10), length=10)
    assert [ramp.shift(steps).length for steps in (-3, 0, 4, 25)] == [13, 10, 6, 0]

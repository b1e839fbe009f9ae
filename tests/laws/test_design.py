"""Designs: proved minima compared with scans, with the authors' optima and with planted points."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import schedules, t
from closedform.errors import ArgumentError, ClosedFormError, DomainError, UnknownNameError
from closedform.language import Schedule, hyper
from closedform.laws import LAWS, NonIncreasing, design, enclose, power_decay, predict
from closedform.laws.families import open_schedule
from closedform.laws.optimality import Question, prove_minimum
from closedform.verify.terms.verdict import Status
from tests.laws.authors import END, LAST_ITERATE, PEAK, WARMUP, last_iterate_schedules

SCALE = hyper("scale")

OPTIMIZED = {"25M": 3.149677254043507, "100M": 2.794136776132377, "400M": 2.533218602559499}
"""Losses of the schedules that the authors' code optimizes, all 21,840 rates free: its logs."""

RATES_OF_400M = {
    20_000: 3e-4,
    21_000: 3e-4,
    21_500: 2.64e-4,
    22_000: 1.75e-4,
    22_500: 1.06e-4,
    23_000: 5.44e-5,
    23_500: 1.95e-5,
}
"""Rates of optimized_schedules/400.npy by update."""


# --- the bound of the last iterate --------------------------------------------------------------


@pytest.mark.parametrize("name", LAST_ITERATE)
def test_the_best_base_rate_is_that_of_the_authors(name: str) -> None:
    """It has a closed form, which the authors' code evaluates."""
    rate, bound = LAST_ITERATE[name]
    form = last_iterate_schedules()[name]
    family = Schedule(SCALE * form.bound, name=name)
    best = design("last_iterate", 400, family, "unit", bounds={"scale": (1e-3, 1)})
    assert best.verdict is Status.PROVED
    assert best.missed_by < 1e-15
    # The sums of the authors' code have errors of 1e-9: see test_predict.
    assert best.loss == pytest.approx(bound, rel=2e-9)
    assert best.values["scale"] == pytest.approx(rate, rel=1e-8)


# --- the Multi-Power Law ------------------------------------------------------------------------


def test_a_design_is_the_best_point_of_a_scan() -> None:
    family = power_decay(PEAK, 600).bind(power=1.5)
    bounds = {"decay": (1, 599), "end": (0, PEAK)}
    best = cf.design("multi_power", 600, family, "400M", bounds=bounds)
    assert best.verdict is Status.PROVED
    assert best.missed_by < 1e-12
    decay, end = best.values["decay"], best.values["end"]
    scan = [
        predict(family.bind(decay=days, end=low), "multi_power", "400M", 600)
        for days in {1, 40, 80, 300, 599, *range(int(decay) - 3, int(decay) + 4)}
        for low in {0.0, PEAK / 2, *(end * (1 + shift) for shift in (-1e-2, -1e-4, 0, 1e-4, 1e-2))}
    ]
    assert best.loss == pytest.approx(min(scan), rel=1e-14)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("size", ["400M", "100M", "25M"])
def test_a_table_reaches_the_loss_of_the_authors_and_has_its_shape(size: str) -> None:
    family = NonIncreasing(PEAK, 0, 24_000, WARMUP, knots=64)
    best = design("multi_power", 24_000, family, size, warmup=WARMUP)
    # The authors' tables have steps that a line between 64 knots has not.
    assert best.loss < OPTIMIZED[size] + 1e-4
    assert best.verdict is Status.UNKNOWN
    assert best.reason == "not proved: too many free numbers for a proof"
    assert best.missed_by < 1e-12
    rates = best.schedule(np.arange(24_000))
    assert np.all(np.diff(rates[WARMUP:]) <= 1e-18)
    if size == "400M":
        furthest = max(abs(rates[update] - rate) for update, rate in RATES_OF_400M.items())
        assert furthest < 0.02 * PEAK
    warmup = schedules.linear(0, PEAK, WARMUP)
    ranking = [
        best.loss,
        *(
            predict(warmup.then(rest, at=WARMUP), "multi_power", size, 24_000, warmup=WARMUP)
            for rest in (
                schedules.wsd(PEAK, END, 24_000 - WARMUP, 0, 4_000, "exponential"),
                schedules.cosine(PEAK, END, 24_000 - WARMUP),
                schedules.constant(PEAK),
            )
        ),
    ]
    assert ranking == sorted(ranking)


def test_a_small_table_is_proved() -> None:
    best = design("multi_power", 240, NonIncreasing(PEAK, 0, 240, 20, knots=6), "25M", warmup=20)
    assert best.verdict is Status.PROVED
    assert "point to their bounds" in best.reason
    values = best.schedule(np.arange(240))
    assert values[20] == PEAK
    assert predict(values, "multi_power", "25M", warmup=20) == pytest.approx(best.loss, rel=1e-14)


def test_a_minimum_at_a_bound_is_proved_by_the_slope() -> None:
    family = schedules.cosine(PEAK, 0, 400).unbind("end")
    best = design("multi_power", 400, family, "400M", bounds={"end": (1e-6, PEAK)})
    assert best.verdict is Status.PROVED
    assert best.values["end"] == PEAK
    assert best.missed_by == 0
    assert "the slopes by end point to their bounds" in best.reason


# --- proofs that must fail ----------------------------------------------------------------------


def question(bounds: Mapping[str, tuple[float, float]], family: Schedule) -> Question:
    law = LAWS["last_iterate"]
    return Question(law, law.values("unit"), open_schedule(family, 60, bounds), 0)


FORM = Schedule(SCALE * schedules.linear(1, 0, 60).bound)


def test_another_point_is_not_proved_or_says_how_far() -> None:
    asked = question({"scale": (1e-3, 1)}, FORM)
    best = design("last_iterate", 60, FORM, "unit", bounds={"scale": (1e-3, 1)})
    least = enclose(best.schedule, "last_iterate", "unit", 60)[1]
    for shift in (1e-9, 1e-6, 1e-3, 0.1, 2):
        scale = sp.Rational(str(best.values["scale"] * (1 + shift)))
        local = prove_minimum(asked, {"scale": scale}, ["scale"])
        above = enclose(FORM.bind(scale=scale), "last_iterate", "unit", 60)[0] - least
        assert local.missed_by is None or float(local.missed_by) >= above > 0
    assert local.missed_by is None


def test_a_maximum_is_not_proved() -> None:
    """The rate is least at 1, and too low there: the loss is largest."""
    parabola = Schedule(sp.Rational(1, 1000) + (SCALE - 1) ** 2)
    asked = question({"scale": (0.5, 1.5)}, parabola)
    local = prove_minimum(asked, {"scale": sp.Integer(1)}, ["scale"])
    assert local.missed_by is None
    assert local.reason == "the curvatures are not proved positive"


def test_a_number_without_effect_is_not_proved() -> None:
    form = Schedule(sp.Piecewise((SCALE, t >= 60), (sp.Rational(1, 10), True)))
    best = design("last_iterate", 60, form, "unit", bounds={"scale": (0.5, 1.5)})
    assert best.verdict is Status.UNKNOWN
    assert best.reason == "not proved: the curvatures are singular"


def test_a_bound_to_which_the_slope_does_not_point_is_not_proved() -> None:
    asked = question({"scale": (0.3, 1)}, FORM)
    local = prove_minimum(asked, {"scale": sp.Integer(1)}, ["scale"])
    assert local.missed_by is None
    assert local.reason == "the slope by scale at its bound has no proved sign"


# --- the interface ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((60, schedules.linear(1, 0, 60)), {}, ArgumentError, "open hyperparameters, got none"),
        ((60, FORM), {}, ArgumentError, "needs bounds, got none for scale"),
        ((60, FORM), {"bounds": {"scal": (0, 1)}}, UnknownNameError, "hyperparameter 'scal'"),
        ((60, FORM), {"bounds": {"scale": (1, 1)}}, ArgumentError, "must rise, got 1 and 1"),
        ((0, FORM), {"bounds": {"scale": (0, 1)}}, ArgumentError, "number of updates, got 0"),
        ((60, "cosine"), {}, ArgumentError, "family must be a Schedule or NonIncreasing, got str"),
        ((60, FORM), {"bounds": {"scale": (-2, -1)}}, DomainError, "no value at any point"),
        ((60, NonIncreasing(1, 0, 50)), {}, ArgumentError, "that of the family, 50, got 60"),
    ],
)
def test_an_invalid_design_is_an_error(
    arguments: tuple[int, Any],
    options: dict[str, Any],
    error: type[ClosedFormError],
    message: str,
) -> None:
    horizon, family = arguments
    with pytest.raises(error, match=message):
        design("last_iterate", horizon, family, "unit", **options)


@pytest.mark.parametrize(
    ("peak", "end", "horizon", "knots", "message"),
    [
        (1, 0, 20, 20, "knots must be from 1 to 19, the updates after the warmup, got 20"),
        (1, 2, 20, 3, "end must be from 0 to below peak, got 2 and 1"),
    ],
)
def test_an_invalid_table_is_an_error(
    peak: float, end: float, horizon: int, knots: int, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        NonIncreasing(peak, end, horizon, knots=knots)

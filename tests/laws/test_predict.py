"""Predictions compared with the published formulas in 50 digits, and with the authors' code."""

import itertools
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp

import closedform as cf
from closedform import schedules
from closedform.errors import ArgumentError, ClosedFormError, DomainError, UnknownNameError
from closedform.language import Schedule
from closedform.laws import LAWS, enclose, predict
from tests.laws.authors import LAST_ITERATE, curves, last_iterate_schedules, schedule_of

DIGITS = 50
ANNEALING = {"L0": 2.6, "A": 0.43, "alpha": 0.55, "C": 0.41}
FITS: dict[str, Any] = {"multi_power": "100M", "momentum": ANNEALING, "last_iterate": "unit"}


# --- the formulas as the papers write them ------------------------------------------------------


def multi_power(rates: Sequence[Any], p: dict[str, Any]) -> Any:
    """Luo et al., equations 1 to 3: steps from 1 on, and eta_0 the rate before them."""
    drop = mpmath.mpf(0)
    for k in range(1, len(rates)):
        x = p["C"] * rates[k] ** -p["gamma"] * mpmath.fsum(rates[k:])
        drop += (rates[k - 1] - rates[k]) * (1 - (x + 1) ** -p["beta"])
    return p["L0"] + p["A"] * mpmath.fsum(rates) ** -p["alpha"] - p["B"] * drop


def momentum(rates: Sequence[Any], p: dict[str, Any]) -> Any:
    """Tissue et al., equations 2 and 3: the recurrence of the momentum."""
    speed, area = mpmath.mpf(0), mpmath.mpf(0)
    for previous, rate in itertools.pairwise(rates):
        speed = p["lambda"] * speed + (previous - rate)
        area += speed
    return p["L0"] + p["A"] * mpmath.fsum(rates) ** -p["alpha"] - p["C"] * area


def last_iterate(rates: Sequence[Any], p: dict[str, Any]) -> Any:
    """Schaipp et al., theorem 1, with the same bound of the gradient at each step."""
    steps, total = len(rates), mpmath.fsum(rates)
    noise = [rate**2 * p["G"] ** 2 for rate in rates]
    bound = (p["D"] ** 2 + mpmath.fsum(noise)) / (2 * total)
    for k in range(steps - 1):
        after = mpmath.fsum(rates[k + 1 :])
        bound += rates[k] / after * mpmath.fsum(noise[k:]) / mpmath.fsum(rates[k:]) / 2
    return bound


FORMULAS: dict[str, Callable[..., Any]] = {
    "multi_power": multi_power,
    "momentum": momentum,
    "last_iterate": last_iterate,
}


def numbers_of(law: str) -> dict[str, Any]:
    return {
        symbol.name: mpmath.mpf(int(number.p)) / int(number.q)
        for symbol, number in LAWS[law].values(FITS[law]).items()
    }


def exact_rates(schedule: Schedule, updates: int) -> list[Any]:
    return [mpmath.mpf(str(sp.N(schedule.exact(step), DIGITS + 15))) for step in range(updates)]


# --- 100 random schedules -----------------------------------------------------------------------


def random_schedule(draw: random.Random) -> Schedule:
    """A schedule of the library, or two in sequence, with values above 0."""
    steps = draw.randint(8, 40)
    peak, end = draw.choice([3e-4, 1e-3, 0.02, 1]), draw.choice([0.1, 0.01, 0.5])
    low = sp.Rational(str(peak)) * sp.Rational(str(end))
    shapes = ("linear", "sqrt", "inverse", "cosine", "square", "exponential", "half_exponential")
    candidates = [
        lambda: schedules.cosine(peak, low, steps),
        lambda: schedules.linear(peak, low, steps),
        lambda: schedules.linear(low, peak, steps),
        lambda: schedules.polynomial(peak, low, steps, power=draw.choice([2, 1.5, 0.5])),
        lambda: schedules.wsd(peak, low, steps + 9, 4, 5, draw.choice(shapes), low),
        lambda: schedules.piecewise_constant([peak, low, peak], [3, steps - 2]),
        lambda: schedules.exponential(peak, 0.9),
        lambda: schedules.table([peak * draw.uniform(0.01, 1) for _ in range(steps)]),
    ]
    first, second = draw.choice(candidates)(), draw.choice(candidates)()
    return first.then(second, at=draw.randint(3, steps)) if draw.random() < 0.5 else first


@cache
def cases() -> list[tuple[Schedule, list[Any]]]:
    """100 schedules, and their exact rates in more digits than the formulas are evaluated in."""
    draw = random.Random(39)
    cases = []
    with mpmath.workdps(DIGITS + 15):
        for _ in range(100):
            schedule = random_schedule(draw)
            cases.append((schedule, exact_rates(schedule, draw.randint(20, 45))))
    return cases


@pytest.mark.parametrize("law", FORMULAS)
def test_a_prediction_is_the_formula_in_50_digits(law: str) -> None:
    furthest = 0.0
    with mpmath.workdps(DIGITS):
        numbers = numbers_of(law)
        for schedule, rates in cases():
            expected = FORMULAS[law](rates, numbers)
            predicted = predict(schedule, law, FITS[law], len(rates))
            low, high = enclose(schedule, law, FITS[law], len(rates))
            furthest = max(furthest, float(abs(predicted / expected - 1)))
            # The reference has its own roundings: some units of its last digit.
            slack = abs(expected) * mpmath.mpf(10) ** (3 - DIGITS)
            assert mpmath.mpf(low.numerator) / low.denominator <= expected + slack
            assert expected - slack <= mpmath.mpf(high.numerator) / high.denominator
            assert high - low < 1e-45
    print(f"{law}: furthest {furthest:.1e}")
    assert furthest < 1e-12


@pytest.mark.parametrize("law", FORMULAS)
def test_a_long_run_is_as_exact_as_a_short_one(law: str) -> None:
    schedule = schedule_of("cosine_24000")
    low, high = enclose(schedule, law, FITS[law])
    assert predict(schedule, law, FITS[law]) == pytest.approx(float((low + high) / 2), rel=1e-14)


def test_a_warmup_leaves_changes_out() -> None:
    """The optimizer of the authors starts from the rate of update W, and counts W in the sum."""
    schedule = schedules.wsd(3e-4, 3e-5, 60, 20, 20)
    with mpmath.workdps(DIGITS):
        numbers = numbers_of("multi_power")
        rates = exact_rates(schedule, 60)
        without = [rates[max(k, 20)] for k in range(60)]
        numbers["A"] *= (mpmath.fsum(rates) / mpmath.fsum(without)) ** -numbers["alpha"]
        expected = float(multi_power(without, numbers))
    assert predict(schedule, "multi_power", "100M", warmup=20) == pytest.approx(expected, rel=1e-14)
    assert predict(schedule, "multi_power", "100M") > expected


# --- the authors' code --------------------------------------------------------------------------


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", sorted(curves()))
def test_predictions_are_those_of_the_authors_of_the_multi_power_law(name: str) -> None:
    curve = curves()[name]
    size, kind = name.split("/")
    # A step of their logs is the position of the last rate: one update less than were done.
    updates = [step + 1 for step in curve["step"]]
    predicted = predict(schedule_of(kind), "multi_power", f"{size}M", horizon=updates)
    # Their sums have the rounding errors of a cumulative sum of 72,000 numbers.
    np.testing.assert_allclose(predicted, curve["predicted"], rtol=1e-13)


@pytest.mark.parametrize("name", LAST_ITERATE)
def test_bounds_are_those_of_the_authors_of_the_last_iterate_bound(name: str) -> None:
    rate, bound = LAST_ITERATE[name]
    schedule = last_iterate_schedules()[name] * rate
    # Their sums after an update are differences of sums, with an absolute error of 1e-14: the
    # quotients by the last rates, of which 1e-6 is the least, have errors of 1e-9.
    assert predict(schedule, "last_iterate", "unit", 400) == pytest.approx(bound, rel=2e-9)


def test_the_bound_ranks_schedules_as_the_paper_does() -> None:
    scaled = {
        name: predict(schedule * LAST_ITERATE[name][0], "last_iterate", "unit", 400)
        for name, schedule in last_iterate_schedules().items()
    }
    assert sorted(scaled, key=scaled.__getitem__) == list(LAST_ITERATE)


@pytest.mark.parametrize("size", ["25", "100", "400"])
def test_the_multi_power_law_ranks_schedules_as_the_runs_of_the_authors(size: str) -> None:
    names = ["wsd_20000_24000", "wsdld_20000_24000", "cosine_24000", "constant_24000"]
    logs = {name: curves()[f"{size}/{name}"] for name in names}
    # The last logged step of a run, some of which end up to 100 updates before the others.
    predicted = [
        predict(schedule_of(name), "multi_power", f"{size}M", log["step"][-1] + 1)
        for name, log in logs.items()
    ]
    measured = [log["loss"][-1] for log in logs.values()]
    assert predicted == sorted(predicted)
    assert measured == sorted(measured)


# --- the interface ------------------------------------------------------------------------------


def test_a_curve_has_the_losses_after_each_number_of_updates() -> None:
    lr = schedules.cosine(3e-4, 3e-5, 50)
    curve = cf.predict(lr, "multi_power", "25M", horizon=[10, 50])
    assert curve.tolist() == [cf.predict(lr, "multi_power", "25M", updates) for updates in (10, 50)]


def test_rates_in_an_array_are_those_of_the_schedule() -> None:
    lr = schedules.cosine(3e-4, 3e-5, 50)
    rates = lr(np.arange(50))
    assert predict(rates, "multi_power", "25M") == predict(lr, "multi_power", "25M")
    assert float(enclose(rates.tolist(), "multi_power", "25M")[0]) == pytest.approx(
        predict(lr, "multi_power", "25M"), rel=1e-14
    )


def test_tiny_rates_do_not_vanish_in_sums() -> None:
    rates = [1.0, *[1e-30] * 9, 0.5]
    with mpmath.workdps(80):
        expected = float(
            last_iterate([mpmath.mpf(rate) for rate in rates], numbers_of("last_iterate"))
        )
    assert predict(rates, "last_iterate", "unit") == pytest.approx(expected, rel=1e-14)


LR = schedules.linear(1e-3, 0, 10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((LR, "power"), UnknownNameError, "there is no law 'power', got multi_power, momentum"),
        ((LR, 3), ArgumentError, "law must be a name or a Law, got int"),
        ((LR, "multi_power", "7B"), UnknownNameError, "the law has no published fit '7B'"),
        (
            (LR, "momentum", {"L0": 1, "A": 1}),
            ArgumentError,
            "the law needs values of L0, A, alpha, C, lambda, got none of alpha, C",
        ),
        (
            (LR, "last_iterate", {"D": 1, "g": 2}),
            UnknownNameError,
            r"the law has no parameter 'g' \(law 'last_iterate'\)",
        ),
        (
            (LR, "last_iterate", {"D": 0, "G": 2}),
            ArgumentError,
            "D must be above 0, got 0",
        ),
        (
            (LR, "momentum", {**ANNEALING, "lambda": 1}),
            ArgumentError,
            "lambda must be above 0 and below 1, got 1",
        ),
        ((LR, "multi_power", "25M", 0), ArgumentError, "horizon must be at least 1 update, got 0"),
        (
            (schedules.constant(1), "multi_power", "25M"),
            ArgumentError,
            "the schedule has no length",
        ),
        (([1.0, 2.0], "multi_power", "25M", 3), ArgumentError, "at most the 2 rates, got 3"),
        ((LR, "multi_power", "25M", 11), DomainError, "the law has no value after 11 updates"),
        (([1.0, -2.0], "last_iterate", "unit"), DomainError, "got -2.0 at update 1"),
        (([0.0, 0.0], "last_iterate", "unit"), DomainError, "a law needs a rate above 0"),
    ],
)
def test_an_invalid_question_is_an_error(
    arguments: tuple[Any, ...], error: type[ClosedFormError], message: str
) -> None:
    with pytest.raises(error, match=message):
        predict(*arguments)
    with pytest.raises(error):
        enclose(*arguments)


def test_a_warmup_is_for_laws_with_changes() -> None:
    with pytest.raises(ArgumentError, match="the law sums no changes of the rate: expected warmup"):
        predict(LR, "last_iterate", "unit", warmup=3)
    with pytest.raises(ArgumentError, match="warmup must be an integer of at least 0, got -1"):
        predict(LR, "multi_power", "25M", warmup=-1)

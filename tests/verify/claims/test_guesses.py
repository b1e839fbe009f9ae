"""Guesses of bounds and phases: none contradicts a value, and the nearest come first."""

from itertools import islice, pairwise
from typing import Any

import pytest
import sympy as sp
from flint import arb, fmpq

from closedform import schedules
from closedform.language import Schedule, hyper, t
from closedform.verify.claims.guesses import (
    Phase,
    bounds,
    candidates_of,
    draws,
    phases,
    sample_cells,
)
from closedform.verify.claims.reading import read_schedule
from closedform.verify.terms.evaluate import holds
from tests.test_library import SCHEDULES

LINE = schedules.linear(0, 3, 10)


def guesses(schedule: Schedule, *, is_lower: bool, count: int = 3) -> list[str]:
    reading = read_schedule(schedule)
    samples = sample_cells(reading)
    candidates = candidates_of(reading, samples)
    return [str(b.expr) for b in islice(bounds(candidates, samples, is_lower=is_lower), count)]


@pytest.mark.parametrize(
    ("schedule", "low", "high"),
    [
        (LINE, "0", "3"),
        (LINE.unbind(), "Min(end, start)", "Max(end, start)"),
        (schedules.exponential(2, 0.5, 9), "0", "2"),
        (schedules.table([3, 1, 7, 2]), "1", "7"),
        (
            schedules.wsd(1, 0, 30, 5, 9).unbind(),
            "Min(end, peak, warmup_start)",
            "Max(end, peak, warmup_start)",
        ),
        (schedules.inverse_square_root(1, 1, 4).unbind("warmup"), "0", "warmup**(-1/2)"),
    ],
)
def test_the_nearest_bound_comes_first(schedule: Schedule, low: str, high: str) -> None:
    assert guesses(schedule, is_lower=True, count=1) == [low]
    found = guesses(schedule, is_lower=False)
    assert found[0] == high or (high == "warmup**(-1/2)" and "1/sqrt(warmup)" in found)


def test_what_grows_has_no_upper_bound_among_its_values() -> None:
    assert guesses(schedules.multiplicative(1, 2).unbind("gamma"), is_lower=False) == []


def test_long_numbers_are_not_bounds() -> None:
    shown = guesses(schedules.multiplicative(1, 0.987), is_lower=True)
    assert shown[0] == "0"
    assert all(len(text) <= 24 for text in shown)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", SCHEDULES)
def test_samples_are_values_of_the_schedule(name: str) -> None:
    lr = SCHEDULES[name]()
    for sample in sample_cells(read_schedule(lr))[::5]:
        step = int(sample.point["t"])
        exact, found = lr.exact(step), arb(sample.value)
        digits = sp.N(exact, 30)
        assert found.overlaps(arb(str(digits), 1e-24 * (1 + abs(float(digits)))))


def test_draws_satisfy_the_domain() -> None:
    reading = read_schedule(
        schedules.cosine_k_decay(1, 0, 100, 2, 10, 0, 20).unbind(), [hyper("peak") > 3]
    )
    points = draws(reading)
    assert len(points) > 5
    for point in points:
        assert all(holds(fact, point) is True for fact in reading.assume)
        assert point["warmup"] + point["cooldown"] < point["steps"]
        assert point["peak"] > 3
    assert draws(reading) == points
    assert draws(reading, seed=1) != points
    assert draws(read_schedule(LINE)) == [{}]


PHASES: dict[str, tuple[Schedule, list[tuple[str, int, int | None]]]] = {
    "rise": (LINE, [("increasing", 0, None)]),
    "flat": (schedules.constant(1), [("constant", 0, None)]),
    "wsd": (
        schedules.wsd(1, 0, 30, 5, 9),
        [("increasing", 0, 21), ("decreasing", 21, None)],
    ),
    "a peak between two steps": (
        schedules.one_cycle(0.1, 1, 0, 99, rise=0.25),
        [("increasing", 0, 24), ("decreasing", 24, None)],
    ),
    "falls twice": (
        schedules.multi_step(1, 0.5, [3, 9]),
        [("decreasing", 0, None)],
    ),
    "falls and jumps up": (
        schedules.linear(1, 0, 4).then(schedules.linear(1, 0, 4)),
        [],
    ),
    "swings": (schedules.cosine_annealing(1, 0, 10), []),
    "turns often": (schedules.table([0, 1] * 6), []),
}


@pytest.mark.parametrize("name", PHASES)
def test_phases(name: str) -> None:
    schedule, wanted = PHASES[name]
    assert phases(read_schedule(schedule)) == tuple(Phase(*each) for each in wanted)


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", SCHEDULES)
def test_phases_go_their_way(name: str) -> None:
    lr = SCHEDULES[name]()
    ways: dict[str, Any] = {
        "increasing": lambda a, b: a <= b,
        "decreasing": lambda a, b: a >= b,
        "constant": lambda a, b: a == b,
    }
    for phase in phases(read_schedule(lr)):
        last = phase.first + 60 if phase.last is None else min(phase.last, phase.first + 60)
        values = [sp.N(lr.exact(step), 30) for step in range(phase.first, last + 1)]
        assert all(ways[phase.direction](a, b) for a, b in pairwise(values))


def test_a_schedule_of_many_branches_is_not_looked_through() -> None:
    assert phases(read_schedule(schedules.table([n % 7 for n in range(200)]))) == ()
    assert sample_cells(read_schedule(Schedule(1 / (t - 1))))[0].point == {"t": fmpq(0)}

"""Runs of floors and comparisons beside the exact value at each step."""

import pytest
import sympy as sp
from flint import fmpq

from closedform.effort import METER
from closedform.language import t
from closedform.language.exact import holds_at, value_at
from closedform.verify.terms import build
from closedform.verify.terms.jumps import Runs, jumps_of
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term

CLOCK = term(t)
LAST = 150
FLOORS = {
    "logarithm": sp.log(t / 20 + 1) / sp.log(2),
    "root": sp.sqrt(t) / 3,
    "cube root": sp.Pow(t + 1, sp.Rational(1, 3)),
    "cosine": 2 * sp.cos(sp.pi * t / 60),
    "decay": 12 * sp.exp(-t / 30),
    "power": 20 * sp.Rational(9, 10) ** (t / 7),
    "product": t * sp.sqrt(2) / 9,
    "turning": t * sp.exp(-t / 40),
}
CONDITIONS = {
    "cosine": sp.cos(sp.pi * t / 60) >= sp.Rational(1, 2),
    "root": sp.sqrt(t + 1) < 7,
    "logarithm": sp.log(t + 1) / sp.log(2) > 5,
    "product": t * sp.sqrt(5) <= 26 * sp.sqrt(5),
    "equality": sp.Eq(sp.Pow(t + 1, sp.Rational(1, 3)), 4),
}


def _values(runs: Runs | None) -> list[object]:
    assert runs is not None
    starts: dict[int, object] = dict(runs)
    values = [starts[0]]
    for step in range(1, LAST + 1):
        values.append(starts.get(step, values[-1]))
    return values


@pytest.mark.parametrize("name", FLOORS)
def test_floors(name: str) -> None:
    runs = jumps_of(term(sp.floor(FLOORS[name])), CLOCK, 0, LAST, 400)
    expected = [value_at(sp.floor(FLOORS[name]), {t: sp.Integer(n)}) for n in range(LAST + 1)]
    assert [int(str(value)) for value in _values(runs)] == expected


@pytest.mark.parametrize("name", CONDITIONS)
def test_comparisons(name: str) -> None:
    runs = jumps_of(term(CONDITIONS[name]), CLOCK, 0, LAST, 10)
    expected = [holds_at(CONDITIONS[name], {t: sp.Integer(n)}) for n in range(LAST + 1)]
    assert _values(runs) == expected


def test_powers_of_two_up_to_the_last_step() -> None:
    runs = jumps_of(term(sp.floor(sp.log(t + 1) / sp.log(2))), CLOCK, 0, 2**50, 100)
    assert runs == [(2**power - 1, power) for power in range(51)]


@pytest.mark.parametrize(
    "expr",
    [
        sp.floor(sp.sqrt(t)),  # 2**25 runs
        sp.floor(sp.sin(t)),  # turns for ever
        sp.floor(t * sp.Symbol("x", positive=True)),  # depends on more than the clock
        sp.floor(sp.exp(sp.log(t + 2))),  # t + 2, which balls never show
    ],
)
def test_runs_that_are_not_known(expr: sp.Expr) -> None:
    assert jumps_of(term(expr), CLOCK, 0, 2**50, 100) is None


def test_the_sign_of_a_difference_that_cancels_is_one_run() -> None:
    curve = build.add(build.cospi(term(t / 900)), build.rational(fmpq(11, 9)))
    half = build.multiply(build.rational(fmpq(1, 2)), curve)
    difference = build.subtract(curve, build.multiply(build.TWO, half))
    before = METER.work
    assert jumps_of(build.sign(difference), CLOCK, 0, 100_000, 400) == [(0, fmpq(0))]
    # Without the cancellation each step is a cosine of 26,000 bits.
    assert METER.work - before < 10_000


def test_a_search_without_an_end_is_given_up() -> None:
    wave = sp.cos(sp.pi * t / 50_000) * sp.cos(sp.sqrt(t + 2)) * sp.sin(sp.sqrt(t + 3))
    before = METER.work
    assert jumps_of(term(sp.sign(wave)), CLOCK, 0, 100_000, 400) is None
    assert METER.work - before < 2 * LIMITS.curved_work

"""Goals about the clock: segments, periods, directions and ranges."""

import random
import time

import pytest
import sympy as sp
from flint import fmpq

import closedform as cf
from closedform.importers.python.number import half_even
from closedform.language import floor_div, floor_mod, t
from closedform.verify.prover import prove
from closedform.verify.terms.build import (
    ONE,
    ZERO,
    absolute,
    add,
    cospi,
    divide,
    either,
    equal,
    floor_modulo,
    less,
    less_equal,
    lookup,
    minimum,
    multiply,
    negate,
    power,
    rational,
    symbol,
)
from closedform.verify.terms.evaluate import value
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Sign, Term
from closedform.verify.terms.verdict import Status

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)


def line(slope: int, height: int, denominator: int = 1) -> Term:
    return add(multiply(rational(slope, denominator), T), rational(height, denominator))


COSINE = add(ONE, cospi(line(1, 0, 100)))

DECIDED: list[tuple[Term, Status]] = [
    (less_equal(ZERO, T), Status.PROVED),
    (either(less(T, rational(5)), less_equal(cospi(line(1, 0, 9)), ONE)), Status.PROVED),
    (either(less(rational(100), T), less_equal(ZERO, COSINE)), Status.PROVED),
    (less(ZERO, COSINE), Status.REFUTED),
    (either(less(rational(99), T), less(ZERO, COSINE)), Status.PROVED),
    (
        either(less(rational(100), T), less(multiply(T, COSINE), rational(70))),
        Status.PROVED,
    ),
    (less(cospi(multiply(rational(2, 7), T)), rational(11, 10)), Status.PROVED),
    (less_equal(floor_modulo(T, rational(7)), rational(6)), Status.PROVED),
    (less_equal(floor_modulo(T, rational(7)), rational(5)), Status.REFUTED),
    (
        either(
            less(rational(40), T),
            negate(equal(floor_modulo(multiply(T, T), rational(7)), rational(3))),
        ),
        Status.PROVED,
    ),
    (less(power(rational(9, 10), T), ONE), Status.REFUTED),
    (less_equal(power(rational(9, 10), T), ONE), Status.PROVED),
    (less(ZERO, power(rational(9, 10), T)), Status.PROVED),
    (less_equal(divide(ONE, line(1, -12)), ONE), Status.REFUTED),
]


@pytest.mark.parametrize(("goal", "status"), DECIDED, ids=lambda each: str(each)[:50])
def test_goals_of_the_clock(goal: Term, status: Status) -> None:
    verdict = prove(goal)
    assert verdict.status is status, str(verdict)


def test_the_first_false_step_of_a_segment_is_the_counterexample() -> None:
    """A single wrong step in the last third of a thousand."""
    values = [fmpq(1, 2)] * 1000
    values[777] = fmpq(2)
    table = lookup(values, minimum(T, rational(999)))
    verdict = prove(less(table, ONE))
    assert verdict.counterexample == {"t": 777}
    assert verdict.reason == "the left side is 2, the right side is 1"


def test_a_number_of_steps_without_any_rule_is_gone_through() -> None:
    wild = cospi(divide(multiply(T, T), rational(7)))
    goal = either(less(rational(60), T), less(absolute(wild), rational(1001, 1000)))
    verdict = prove(either(less(rational(60), T), negate(equal(wild, rational(3, 7)))))
    assert verdict.proved
    assert prove(goal).proved


def test_assumptions_on_the_clock_narrow_it() -> None:
    goal = less_equal(multiply(T, T), rational(100))
    assert prove(goal).refuted
    assert prove(goal, assume=[less(T, rational(11))]).proved
    assert prove(goal, assume=[less(T, rational(12))]).counterexample == {"t": 11}


def test_a_positive_count_begins_at_1() -> None:
    count = symbol("n", integer=True, sign=Sign.POSITIVE)
    assert prove(less_equal(divide(ONE, count), ONE)).proved


def test_thousands_of_milestones_are_decided_fast() -> None:
    rng = random.Random(8)
    values = [rng.randrange(1, 10**6) for _ in range(3_000)]
    table = term(cf.schedules.table(values).expr)
    begun = time.process_time()
    assert prove(less_equal(table, rational(max(values)))).proved
    assert prove(less_equal(rational(min(values)), table)).proved
    assert prove(less(table, rational(max(values)))).refuted
    # 1.2 s each on the machine this was written on; a quadratic walk would take minutes.
    assert time.process_time() - begun < 15


def test_a_product_of_milestones_is_decided() -> None:
    factors = [sp.Piecewise((1, t < 10 * k), (sp.Rational(9, 10), True)) for k in range(1, 201)]
    product = term(sp.Mul(*factors, evaluate=False))
    assert prove(less_equal(product, ONE)).proved
    assert prove(less(ZERO, product)).proved
    assert prove(less(product, ONE)).counterexample == {"t": 0}


BOUND = {
    "linear": (cf.schedules.linear(0, 1, 7), 0, 1),
    "cosine": (cf.schedules.cosine(1, 0, 98_000), 0, 1),
    "joined": (cf.schedules.linear(0, 1, 2000).then(cf.schedules.cosine(1, 0, 98_000)), 0, 1),
    "annealing": (cf.schedules.cosine_annealing(1, 0, 10), 0, 1),
    "restarts": (cf.schedules.warm_restarts(1, 0, 10), 0, 1),
    "growing restarts": (cf.schedules.warm_restarts(1, 0, 10, multiplier=2), 0, 1),
    "cyclic": (cf.schedules.cyclic(0, 1, 4, 7), 0, 1),
    "ever lower": (cf.schedules.cyclic(0, 1, 4, mode="triangular2"), 0, 1),
    "decaying": (cf.schedules.exponential(1, 0.999, 30), 0, 1),
    "root": (cf.schedules.inverse_square_root(10, 1, 100), 0, 1),
}


@pytest.mark.parametrize("name", BOUND)
def test_bounds_of_bound_schedules_are_decided(name: str) -> None:
    lr, low, high = BOUND[name]
    values = {symbol: lr.hyperparameters[symbol.name] for symbol in lr.expr.free_symbols - {t}}
    formula = term(lr.expr.xreplace(values))
    assert prove(less_equal(rational(low), formula)).proved
    assert prove(less_equal(formula, rational(high))).proved
    assert prove(less_equal(formula, rational(99 * high, 100))).refuted


@pytest.mark.parametrize(
    ("number", "period"),
    [
        (floor_mod(t, 6) + floor_mod(t + 1, 4), 12),
        (floor_mod(floor_div(17 * t, 10), 17), 10),
        (floor_mod(floor_div(5 * t + 1, 2), 2), 4),
        (floor_mod(half_even(5 * t / 2), 5), 4),  # whose ties need t mod 4
        (floor_mod(half_even(t / 10), 3), 60),
    ],
    ids=lambda each: str(each)[:40],
)
def test_floors_of_floors_and_of_choices_have_a_period(number: sp.Expr, period: int) -> None:
    """A value at no step of a period is at no step."""
    node = term(number)
    values = {value(node, {"t": fmpq(step)}) for step in range(period)}
    assert prove(less_equal(node, rational(max(values)))).proved
    absent = next(n for n in map(fmpq, range(-1, 99)) if n not in values)
    assert prove(negate(equal(node, rational(absent)))).proved

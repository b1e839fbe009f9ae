"""Goals about the clock alone: segments, periods, directions and ranges, and their tactics."""

import random
import time

import pytest
import sympy as sp
from flint import fmpq

import closedform as cf
from closedform.effort import Effort, OutOfEffort
from closedform.importers.python.number import half_even
from closedform.language import floor_div, floor_mod, t
from closedform.verify.identity.equality import fold_period
from closedform.verify.tactics.clock import MONOTONE, PERIOD, SEGMENTS, walk_through
from closedform.verify.tactics.prover import prove
from closedform.verify.terms.build import (
    ONE,
    TRUE,
    TWO,
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
    sign,
    symbol,
)
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.limits import FOREVER
from closedform.verify.terms.partition import partition
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Sign, Term
from closedform.verify.terms.verdict import Status
from tests.verify.tactics.test_soundness import truth

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)


def line(slope: int, height: int, denominator: int = 1) -> Term:
    return add(multiply(rational(slope, denominator), T), rational(height, denominator))


# --- segments ------------------------------------------------------------------------------------


def test_segments_touch_and_hold_the_statement_at_every_step() -> None:
    chance = random.Random(9)
    for _ in range(150):
        goal = truth(chance, [T], 3)
        segments = partition(goal, T, 0, 41, levels=3000)
        assert [part.first for part in segments] == [0, *(part.end for part in segments[:-1])]
        assert segments[-1].end == 41
        for part in segments:
            for step in {part.first, (part.first + part.last) // 2, part.last}:
                point = {"t": fmpq(step)}
                before, after = value(goal, point), value(part.term(T), point)
                is_undefined = isinstance(before, Undefined) and isinstance(after, Undefined)
                assert is_undefined or before == after, f"{goal} at {step}: {before}, {after}"


@pytest.mark.parametrize(
    ("goal", "segments"),
    [
        (less(line(2, 0), rational(7)), [(0, 4, True), (4, FOREVER, False)]),
        (less_equal(line(2, 0), rational(6)), [(0, 4, True), (4, FOREVER, False)]),
        (equal(line(2, 0), rational(6)), [(0, 3, False), (3, 4, True), (4, FOREVER, False)]),
        (equal(line(2, 0), rational(7)), [(0, FOREVER, False)]),
        (less(rational(7), line(2, 0)), [(0, 4, False), (4, FOREVER, True)]),
        (less(ZERO, sign(line(1, -3))), [(0, 4, False), (4, FOREVER, True)]),
        (less(lookup([1, 5, 2], minimum(T, TWO)), rational(3)), None),
    ],
)
def test_lines_change_where_they_cross(
    goal: Term, segments: list[tuple[int, int, bool]] | None
) -> None:
    if segments is None:
        assert prove(goal).counterexample == {"t": 1}
        return
    found = partition(goal, T, 0, FOREVER)
    assert [(part.first, part.end, part.value == TRUE) for part in found] == segments


def test_a_check_can_end_the_splitting() -> None:
    table = term(cf.schedules.table(list(range(1000))).expr)
    with pytest.raises(OutOfEffort):
        walk_through(less(table, rational(10**6)), T, 0, Effort.of(-1))


# --- periods -------------------------------------------------------------------------------------


def test_a_period_is_folded() -> None:
    goal = less(term(floor_mod(t, 6) + floor_mod(t + 1, 4)), rational(9))
    folded = fold_period(goal, T)
    assert folded is not None
    statement, period = folded
    assert period == 12
    for step in range(50):
        assert value(goal, {"t": fmpq(step)}) == value(statement, {"t": fmpq(step % 12)})


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (floor_mod(floor_div(17 * t, 10), 17), 10),
        (floor_mod(floor_div(5 * t + 1, 2), 2), 4),
        (floor_mod(half_even(5 * t / 2), 5), 4),  # whose ties need t mod 4
        (floor_mod(half_even(t / 10), 3), 60),
    ],
)
def test_floors_of_floors_and_of_choices_have_a_period(number: sp.Expr, expected: int) -> None:
    goal = less(term(number), rational(3))
    folded = fold_period(goal, T)
    assert folded is not None
    statement, period = folded
    assert period == expected
    for step in range(3 * period):
        assert value(goal, {"t": fmpq(step)}) == value(statement, {"t": fmpq(step % period)})


def test_what_goes_on_growing_has_no_period() -> None:
    assert fold_period(less(term(floor_div(t, 6)), rational(9)), T) is None
    assert fold_period(less(T, rational(9)), T) is None
    huge = less(floor_modulo(T, rational(10**7)), rational(9))
    assert fold_period(huge, T) is None


# --- what decides --------------------------------------------------------------------------------

COSINE = add(ONE, cospi(line(1, 0, 100)))

DECIDED: list[tuple[Term, Status, str | None]] = [
    (less_equal(ZERO, T), Status.PROVED, None),
    (either(less(T, rational(5)), less_equal(cospi(line(1, 0, 9)), ONE)), Status.PROVED, MONOTONE),
    (either(less(rational(100), T), less_equal(ZERO, COSINE)), Status.PROVED, SEGMENTS),
    (less(ZERO, COSINE), Status.REFUTED, None),
    (either(less(rational(99), T), less(ZERO, COSINE)), Status.PROVED, SEGMENTS),
    (
        either(less(rational(100), T), less(multiply(T, COSINE), rational(70))),
        Status.PROVED,
        SEGMENTS,
    ),
    (less(cospi(multiply(rational(2, 7), T)), rational(11, 10)), Status.PROVED, MONOTONE),
    (less_equal(floor_modulo(T, rational(7)), rational(6)), Status.PROVED, PERIOD),
    (less_equal(floor_modulo(T, rational(7)), rational(5)), Status.REFUTED, None),
    (
        either(
            less(rational(40), T),
            negate(equal(floor_modulo(multiply(T, T), rational(7)), rational(3))),
        ),
        Status.PROVED,
        None,
    ),
    (less(power(rational(9, 10), T), ONE), Status.REFUTED, None),
    (less_equal(power(rational(9, 10), T), ONE), Status.PROVED, MONOTONE),
    (less(ZERO, power(rational(9, 10), T)), Status.PROVED, None),
    (less_equal(divide(ONE, line(1, -12)), ONE), Status.REFUTED, None),
]


@pytest.mark.parametrize(("goal", "status", "tactic"), DECIDED, ids=lambda each: str(each)[:50])
def test_goals_of_the_clock(goal: Term, status: Status, tactic: str | None) -> None:
    verdict = prove(goal)
    assert verdict.status is status, str(verdict)
    assert tactic is None or tactic in verdict.tactics, str(verdict)


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
    assert SEGMENTS in verdict.tactics
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
    values = [rng.randrange(1, 10**6) for _ in range(10_000)]
    table = term(cf.schedules.table(values).expr)
    begun = time.process_time()
    assert prove(less_equal(table, rational(max(values)))).proved
    assert prove(less_equal(rational(min(values)), table)).proved
    assert prove(less(table, rational(max(values)))).refuted
    # 0.4 s each on the machine this was written on; a quadratic walk would take minutes.
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

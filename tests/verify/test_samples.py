"""Points: drawn inside the assumptions, where a claim is likely false, and judged exactly."""

from collections.abc import Mapping
from typing import Any

import pytest
from flint import fmpq

from closedform.effort import Effort
from closedform.verify.samples import (
    Sampler,
    declarations,
    examine,
    linear_bounds,
    simplify_point,
)
from closedform.verify.terms.build import (
    ONE,
    PI,
    TWO,
    ZERO,
    absolute,
    add,
    atan,
    both,
    cospi,
    divide,
    equal,
    floor_divide,
    is_satisfied,
    ite,
    less,
    less_equal,
    log,
    multiply,
    negate,
    power,
    rational,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import Evaluator, holds
from closedform.verify.terms.interval import Interval
from closedform.verify.terms.tree import Op, Sign, Term, symbols

A, B, X = symbol("a"), symbol("b"), symbol("x")
T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
N, M = (symbol(name, integer=True, sign=Sign.POSITIVE) for name in "nm")
LONG = Effort.of(10**10)


def test_points_meet_tight_assumptions() -> None:
    """Bounds of one symbol by others: drawn at random, one in thousands would fit."""
    given = (
        less_equal(ZERO, A),
        less(A, B),
        less(B, rational(1, 1000)),
        less_equal(add(A, B), X),
        less_equal(X, rational(1, 500)),
    )
    tally = Sampler(less(X, ONE), given, 1).search(200, LONG)
    assert tally.satisfied == 200


def test_a_point_that_is_drawn_again_is_not_evaluated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goal = less(N, rational(9))
    given = (less_equal(ONE, N), less_equal(N, rational(3)))
    points: list[tuple[Term, int]] = []
    evaluate = Evaluator.holds

    def count(evaluator: Evaluator, point: Mapping[str, fmpq], *args: Any) -> Any:
        points.append((evaluator._nodes[0], int(point["n"])))
        return evaluate(evaluator, point, *args)

    monkeypatch.setattr(Evaluator, "holds", count)
    tally = Sampler(goal, given, 1).search(200, LONG)
    assert tally.satisfied >= 200
    assert [number for term, number in points if term is goal] == [1, 2, 3]
    assert len(points) == len(set(points))


def test_the_clock_is_drawn_beside_the_borders() -> None:
    """Wrong at one step, which the parameters set."""
    needle = negate(equal(T, add(multiply(N, M), rational(3))))
    tally = Sampler(needle, (less(rational(500), N), less(rational(500), M)), 0).search(300, LONG)
    found = tally.counterexample
    assert found is not None
    assert found.point["t"] == found.point["n"] * found.point["m"] + 3


@pytest.mark.parametrize(
    "goal",
    [
        less(ite(less(T, N), ZERO, ite(less_equal(T, N), TWO, ZERO)), ONE),
        less_equal(multiply(N, floor_divide(T, N)), subtract(T, ONE)),
        negate(equal(absolute(subtract(T, multiply(rational(7), N))), ZERO)),
        negate(equal(A, B)),
        less(A, rational(4)),
        less(multiply(A, A), rational(10**5)),
        less_equal(square_root(power(A, TWO)), A),
    ],
    ids=str,
)
def test_false_claims_are_refuted_by_points(goal: Term) -> None:
    found = Sampler(goal, (), 0).search(1500, LONG).counterexample
    assert found is not None
    assert holds(goal, found.point) is False


def test_ends_of_the_assumptions_are_drawn() -> None:
    given = (less_equal(ZERO, A), less_equal(A, ONE))
    for bad in (ZERO, ONE):
        assert Sampler(negate(equal(A, bad)), given, 0).search(300, LONG).counterexample


def test_an_equality_is_a_bound_on_both_sides() -> None:
    tally = Sampler(less_equal(A, B), (equal(A, multiply(TWO, B)), less(ZERO, B)), 0).search(
        9, LONG
    )
    assert tally.counterexample is not None
    assert tally.counterexample.point["a"] == 2 * tally.counterexample.point["b"]


def test_assumptions_that_exclude_each_other_give_no_point() -> None:
    tally = Sampler(less(A, ZERO), (less(A, ZERO), less(ONE, A)), 0).search(50, LONG)
    assert (tally.satisfied, tally.undecided, tally.counterexample) == (0, 0, None)


def test_what_balls_cannot_decide_is_counted_apart() -> None:
    # The canonical form has no rule for arctangents.
    root = square_root(add(A, TWO))
    total = add(atan(root), atan(divide(ONE, root)))
    tally = Sampler(equal(total, divide(PI, TWO)), (less(ZERO, A),), 0).search(50, LONG)
    assert tally.counterexample is None
    assert tally.satisfied + tally.undecided == 50
    assert tally.undecided > 20


def test_the_deadline_ends_a_search() -> None:
    tally = Sampler(less(A, rational(10**9)), (), 0).search(10**6, Effort.of(50_000))
    assert 0 < tally.satisfied < 10**6


def test_a_seed_draws_the_same_points() -> None:
    goal = less(add(A, multiply(B, N)), rational(60))
    first, again, other = (
        Sampler(goal, (), seed).search(500, LONG).counterexample for seed in (1, 1, 2)
    )
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.point == again.point
    assert first.point != other.point


def test_declarations_are_said_as_truths() -> None:
    signs = {Sign.POSITIVE: "0 < z", Sign.NONNEGATIVE: "0 <= z", Sign.NEGATIVE: "z < 0"}
    signs |= {Sign.NONPOSITIVE: "z <= 0", Sign.ANY: ""}
    for sign, text in signs.items():
        assert ", ".join(str(each) for each in declarations(symbol("z", sign=sign))) == text


@pytest.mark.parametrize(
    ("goal", "point", "reason"),
    [
        (less(A, B), {"a": 3, "b": 2}, "the left side is 3, the right side is 2"),
        (both(less(B, A), less(A, B)), {"a": 3, "b": 2}, "the left side is 3, the right side is 2"),
        (negate(equal(A, B)), {"a": 2, "b": 2}, "it is false there"),
        (less(cospi(A), ZERO), {"a": fmpq(1, 5)}, "the left side is 0.809016994375, the right"),
        (less(log(A), ONE), {"a": -1}, "undefined there: log of a number that is not above 0: a"),
        (less(divide(ONE, A), ONE), {"a": 0}, "undefined there: division by zero: a is 0"),
        (less(power(A, TWO), ONE), {"a": fmpq(10**9, 7)}, "the left side is 2.04081632653e+16"),
    ],
)
def test_a_counterexample_says_what_is_wrong(
    goal: Term, point: dict[str, fmpq], reason: str
) -> None:
    found = examine(goal, (), {name: fmpq(number) for name, number in point.items()})
    assert found is not None
    assert reason in found.reason
    assert found.is_undefined == reason.startswith("undefined")


def test_a_counterexample_is_made_simpler() -> None:
    given = (less(A, B), less(rational(1, 3), A))
    goal = less(add(A, multiply(B, T)), rational(40))
    found = examine(goal, given, {"a": fmpq(617, 99), "b": fmpq(1234, 7), "t": fmpq(61)})
    assert found is not None
    simple = simplify_point(found, goal, given, LONG)
    assert simple.point == {"a": 1, "b": 2, "t": 30}
    assert simple.reason == "the left side is 61, the right side is 40"
    assert simplify_point(found, goal, given, Effort.of(-1)) == found
    pole = examine(less(divide(ONE, T), ONE), (), {"t": fmpq(0)})
    assert pole is not None
    assert simplify_point(pole, less(divide(ONE, T), ONE), (), LONG) == pole


def test_a_point_outside_the_assumptions_is_none() -> None:
    assert examine(less(A, ZERO), (less(A, ONE),), {"a": fmpq(2)}) is None
    assert examine(less(A, ZERO), (less(log(A), ONE),), {"a": fmpq(-2)}) is None
    assert examine(less(A, ZERO), (), {"a": fmpq(-2)}) is None


# --- bounds --------------------------------------------------------------------------------------


def test_bounds_are_read_of_each_symbol() -> None:
    given = (less_equal(multiply(A, B), add(B, TWO)), less(ZERO, power(X, TWO)), less(cospi(X), A))
    found = linear_bounds(given, symbols(*given))
    assert [bound.op for bound in found["b"]] == [Op.LESS_EQUAL]
    assert [bound.op for bound in found["a"]] == [Op.LESS_EQUAL, Op.LESS]
    assert found["x"] == []


def test_intervals() -> None:
    unit = Interval().cut(Op.LESS, fmpq(0), rising=True).cut(Op.LESS_EQUAL, fmpq(1), rising=False)
    assert unit == Interval(fmpq(0), fmpq(1), low_is_open=True)
    assert not unit.holds(fmpq(0))
    assert unit.holds(fmpq(1))
    assert not unit.holds(fmpq(2))
    assert unit.whole() == Interval(fmpq(1), fmpq(1))
    assert unit.cut(Op.LESS, fmpq(1), rising=True).is_empty
    assert unit.cut(Op.EQUAL, fmpq(1, 2), rising=True).low == fmpq(1, 2)
    assert unit.cut(Op.LESS_EQUAL, fmpq(-5), rising=True) == unit
    assert set(unit.ends(is_integer=False)) == {fmpq(1), fmpq(1, 1000), fmpq(999, 1000)}
    assert Interval(fmpq(1, 2), fmpq(2, 3)).whole().is_empty
    assert Interval(fmpq(1), None, True).whole().low == 2


@pytest.mark.parametrize(
    ("op", "difference", "expected"),
    [
        (Op.LESS, 0, False),
        (Op.LESS, 1, True),
        (Op.LESS_EQUAL, 0, True),
        (Op.LESS_EQUAL, -1, False),
        (Op.EQUAL, 0, True),
        (Op.EQUAL, 1, False),
    ],
)
def test_a_relation_of_a_number_to_0(op: Op, difference: int, expected: bool) -> None:
    assert is_satisfied(op, fmpq(difference)) is expected


def test_sides_that_print_alike_name_their_difference() -> None:
    larger, smaller = (rational(10**20 + rest, 3 * 10**20 + 1) for rest in (2, 1))
    goal = less(multiply(larger, T), multiply(smaller, T))
    counterexample = examine(goal, (), {"t": fmpq(1)})
    assert counterexample is not None
    expected = (
        "the left side is 0.3333333333333333333388888888888888888889, "
        "the right side is 0.3333333333333333333355555555555555555555: they differ by 3.33e-21"
    )
    assert counterexample.reason == expected

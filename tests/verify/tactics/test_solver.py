"""The order solver: what it refutes, in which reading, and what it may only hint at."""

import subprocess
import sys
from pathlib import Path

import pytest
from flint import fmpq

from closedform.effort import METER, Effort
from closedform.verify.tactics import solver
from closedform.verify.tactics.solver import (
    SolverMode,
    ask,
    entails,
    has_integers,
)
from closedform.verify.terms.build import (
    HALF,
    ONE,
    PI,
    TWO,
    UNDEFINED,
    ZERO,
    absolute,
    add,
    both,
    cospi,
    divide,
    either,
    equal,
    exp,
    floor,
    ite,
    less,
    less_equal,
    log,
    lookup,
    maximum,
    minimum,
    multiply,
    negate,
    opaque,
    power,
    rational,
    sign,
    sinpi,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.tree import Sign, Term

X, Y = symbol("x"), symbol("y")
P = symbol("p", sign=Sign.POSITIVE)
N = symbol("n", integer=True)
ENOUGH = Effort.of(10**12)

ENTAILED: list[tuple[list[Term], Term]] = [
    ([less(ZERO, X)], less(ZERO, add(X, ONE))),
    ([], less_equal(multiply(TWO, X, Y), add(power(X, TWO), power(Y, TWO)))),
    ([], less(ZERO, P)),
    ([less(ONE, X)], less(divide(ONE, X), ONE)),
    ([], less_equal(cospi(X), ONE)),
    ([less(ZERO, X), less(X, Y), less(Y, ONE)], less(cospi(Y), cospi(X))),
    ([less(ZERO, X), less(X, ONE)], less(ZERO, sinpi(X))),
    ([less_equal(ZERO, X)], less_equal(square_root(X), add(X, ONE))),
    ([less_equal(ONE, X)], less_equal(square_root(X), X)),
    ([less(ZERO, X), less(X, Y)], less(power(X, P), power(Y, P))),
    ([less(ZERO, X), less(X, ONE)], less(power(X, add(P, ONE)), power(X, P))),
    ([less(X, Y)], less(exp(X), exp(Y))),
    ([], less_equal(add(ONE, X), exp(X))),
    ([less(ZERO, X)], less_equal(log(X), subtract(X, ONE))),
    ([], less_equal(floor(X), X)),
    ([less(X, Y)], less_equal(floor(X), floor(Y))),
    ([less_equal(ONE, X)], less_equal(power(TWO, floor(divide(log(X), log(TWO)))), X)),
    ([], less_equal(minimum(X, Y), maximum(X, Y))),
    ([], less_equal(X, absolute(X))),
    ([], less_equal(sign(X), ONE)),
    ([less(X, Y)], equal(ite(less(X, Y), X, Y), X)),
    ([], less(lookup([1, 3, 2], N), rational(4))),
    ([equal(N, ONE)], equal(lookup([1, 3, 2], N), rational(3))),
    ([], less(rational(3), PI)),
    ([equal(X, Y)], either(less(X, add(Y, ONE)), less(Y, X))),
]

NOT_ENTAILED: list[tuple[list[Term], Term]] = [
    ([], less(ZERO, X)),
    ([], less(cospi(X), ONE)),
    ([less(ZERO, X)], less(divide(ONE, X), ONE)),
    ([less_equal(ZERO, X)], less(ZERO, square_root(X))),
    ([less(X, Y)], less(floor(X), floor(Y))),
    ([], equal(UNDEFINED, ONE)),
    ([], equal(opaque("reduce_sum", X), X)),
    ([less(ZERO, X)], less(power(X, TWO), power(X, rational(3)))),
]


@pytest.mark.parametrize(("facts", "goal"), ENTAILED, ids=lambda each: str(each)[:40])
def test_entailed(facts: list[Term], goal: Term) -> None:
    assert entails(facts, goal, ENOUGH, has_integers(goal, *facts))[0] is not None


@pytest.mark.parametrize(("facts", "goal"), NOT_ENTAILED, ids=str)
def test_not_entailed(facts: list[Term], goal: Term) -> None:
    assert entails(facts, goal, ENOUGH, has_integers(goal, *facts))[0] is None


def test_integers_are_read_as_reals_first() -> None:
    between = [less(ZERO, N), less(N, ONE)]
    assert not ask(between, ENOUGH, SolverMode.REAL).refuted
    assert ask(between, ENOUGH, SolverMode.INTEGER).refuted
    assert (
        entails([less(ZERO, N)], less(HALF, N), ENOUGH, has_integers=True)[0] is SolverMode.INTEGER
    )
    assert entails([less(ZERO, N)], less(HALF, N), ENOUGH, has_integers=False)[0] is None


def test_a_declared_sign_of_an_integer_starts_at_1() -> None:
    count = symbol("c", integer=True, sign=Sign.POSITIVE)
    assert ask([less(count, ONE)], ENOUGH).refuted
    assert ask([less(rational(-1), symbol("d", integer=True, sign=Sign.NEGATIVE))], ENOUGH).refuted
    assert not ask([less(symbol("e", sign=Sign.POSITIVE), ONE)], ENOUGH).refuted


def test_a_model_is_a_point_of_polynomial_facts() -> None:
    facts = [less(ONE, X), less(multiply(X, X), TWO), equal(Y, multiply(X, rational(3)))]
    model = ask(facts, ENOUGH).model
    assert model is not None
    assert all(holds(fact, model) for fact in facts)


def test_an_irrational_model_is_a_fraction_near_it() -> None:
    model = ask([equal(multiply(X, X), TWO), less(ZERO, X)], ENOUGH).model
    assert model is not None
    # approx(20) of z3 is within 10^-20 of the root.
    assert abs(model["x"] ** 2 - 2) < fmpq(1, 10**18)


def test_what_is_too_large_is_not_asked() -> None:
    sum_of_many = add(*(symbol(f"a{index}") for index in range(5000)))
    answer = ask([less(sum_of_many, ZERO), less(ZERO, sum_of_many)], ENOUGH)
    assert not answer.refuted
    assert answer.model is None


def test_digits_of_numbers_are_counted_where_integers_are_read() -> None:
    # Of the update of LARS with an eps of 2**-1000, a step of z3 takes 10 s and 5,000 units.
    def work(digits: int, reading: SolverMode) -> int:
        fact = equal(multiply(X, add(X, rational(fmpq(1, 10**digits)))), multiply(TWO, Y))
        before = METER.work
        assert ask((fact, less(ZERO, X)), ENOUGH, reading).model is not None
        return METER.work - before

    assert work(300, SolverMode.INTEGER) > 100 * work(3, SolverMode.INTEGER)
    assert work(300, SolverMode.REAL) < 10 * work(3, SolverMode.REAL)


def test_lemmas_can_be_left_out() -> None:
    facts = [less(ONE, cospi(X))]
    assert ask(facts, ENOUGH).refuted
    assert not ask(facts, ENOUGH, with_lemmas=False).refuted


def test_a_division_is_defined_only_where_its_divisor_is_not_0() -> None:
    assert not ask([equal(X, ZERO), equal(divide(ONE, X), TWO)], ENOUGH).refuted
    assert ask([equal(X, ONE), equal(divide(ONE, X), TWO)], ENOUGH).refuted


def test_integers_are_found() -> None:
    assert has_integers(floor(X))
    assert has_integers(both(less(X, Y), less(N, X)))
    assert not has_integers(negate(equal(X, Y)))


# --- z3 is loaded by the first question, and by nothing before ---------------------------------

EXPORT = """
import sys, closedform as cf
import closedform.verify.claims.files, closedform.verify.translation.verdicts
cf.to_onnx(cf.schedules.cosine(1e-3, 1e-5, 1000), sys.argv[1])
assert "z3" not in sys.modules
"""


def test_validated_export_loads_no_solver(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", EXPORT, str(tmp_path / "lr.onnx")], check=True)


@pytest.mark.parametrize(("power", "is_long"), [(600, False), (5000, True)])
def test_numbers_of_many_digits_are_not_asked_about(power: int, is_long: bool) -> None:
    # z3 counts no digits: its resource limit does not end a question with them.
    fact = less(symbol("x"), rational(fmpq(1, 3**power)))
    assert solver.is_too_large((fact,)) is is_long

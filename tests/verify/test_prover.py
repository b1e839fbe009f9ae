"""`prove`: verdicts, refusals, assumptions, contradictions, its budget."""

from collections.abc import Callable

import pytest
import sympy as sp
from flint import fmpq

from closedform.effort import METER, Effort
from closedform.errors import VerificationError
from closedform.language import floor_mod, hyper, t
from closedform.verify.checker.replay import check
from closedform.verify.checker.terms import RejectedProofError
from closedform.verify.prover import prove
from closedform.verify.search.statements import statement_of
from closedform.verify.terms.build import (
    ONE,
    PI,
    TWO,
    UNDEFINED,
    ZERO,
    absolute,
    add,
    atan,
    cospi,
    divide,
    either,
    equal,
    exp,
    floor,
    floor_modulo,
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
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Sign, Term
from closedform.verify.terms.verdict import Status

X, Y = symbol("x"), symbol("y")
COUNT = symbol("n", integer=True, sign=Sign.POSITIVE)
CLOCK = term(t)


def test_a_declaration_is_an_assumption() -> None:
    assert prove(less(ZERO, symbol("a", sign=Sign.POSITIVE))).proved
    assert prove(less(symbol("a", sign=Sign.NEGATIVE), ZERO)).proved
    assert prove(less_equal(symbol("a", sign=Sign.NONPOSITIVE), ZERO)).proved
    assert prove(less_equal(ONE, COUNT)).proved
    assert prove(less_equal(ONE, symbol("a", sign=Sign.POSITIVE))).refuted
    assert prove(less(ZERO, X)).refuted


def test_an_assumption_narrows_the_claim() -> None:
    goal = less(X, multiply(X, X))
    assert prove(goal).refuted
    assert prove(goal, assume=[less(ONE, X)]).proved


def test_a_counterexample_is_exact_and_meets_the_assumptions() -> None:
    goal, assumption = less(power(X, TWO), rational(50)), less(rational(7), X)
    verdict = prove(goal, assume=[assumption])
    assert verdict.refuted
    assert verdict.counterexample is not None
    point = {name: fmpq(int(v.p), int(v.q)) for name, v in verdict.counterexample.items()}
    assert holds(goal, point) is False
    assert holds(assumption, point) is True


def test_undefined_refutes_and_says_why() -> None:
    verdict = prove(less(square_root(X), rational(10**9)), assume=[less(X, rational(-1))])
    assert verdict.refuted
    assert "a power of a negative number: x is below 0" in verdict.reason
    assert prove(equal(ite(less(X, Y), X, UNDEFINED), X)).refuted


def test_the_reason_gives_both_sides() -> None:
    verdict = prove(less_equal(rational(3), add(CLOCK, ONE)))
    assert verdict.counterexample == {"t": 0}
    assert verdict.reason == "the left side is 3, the right side is 1"


def test_a_goal_without_symbols_is_evaluated() -> None:
    assert prove(less(square_root(TWO), rational(3, 2))).proved
    assert prove(less(rational(3, 2), square_root(TWO))).refuted
    assert prove(equal(multiply(square_root(TWO), square_root(TWO)), TWO)).proved


def test_assumptions_that_nothing_meets_are_named() -> None:
    verdict = prove(less(X, Y), assume=[less(X, ZERO), less(ZERO, X)])
    assert verdict.proved
    assert verdict.reason == "no point was found: perhaps nothing satisfies the assumptions"


def test_the_same_seed_draws_the_same_points() -> None:
    goal = less(add(X, Y), rational(5))
    first, second = prove(goal, seed=3), prove(goal, seed=3)
    assert first.counterexample == second.counterexample


def test_a_number_is_not_a_goal() -> None:
    with pytest.raises(VerificationError, match=r"only a truth can be proved, got the number \(x"):
        prove(add(X, ONE))


def test_one_name_has_one_declaration() -> None:
    with pytest.raises(VerificationError, match=r"x is declared as"):
        prove(less(X, symbol("x", integer=True)))


def test_a_parity_that_points_would_miss_is_refuted() -> None:
    """1 of 97 values of n is a counterexample."""
    goal = negate(equal(floor_modulo(COUNT, rational(97)), rational(96)))
    verdict = prove(less_equal(CLOCK, add(CLOCK, COUNT)), assume=[goal])
    assert verdict.proved
    assert prove(goal).refuted


@pytest.mark.parametrize("status", [Status.PROVED, Status.REFUTED])
def test_a_disjunction_is_proved_from_what_it_excludes(status: Status) -> None:
    last = less_equal(X, rational(4 if status is Status.PROVED else 2))
    assert prove(either(less(rational(3), X), last)).status is status


def test_turns_of_a_cosine() -> None:
    whole = add(multiply(TWO, floor(divide(CLOCK, multiply(TWO, COUNT)))), ONE)
    odd = equal(CLOCK, multiply(COUNT, whole))
    goal = negate(equal(add(cospi(divide(CLOCK, COUNT)), ONE), ZERO))
    assert prove(goal).refuted
    assert prove(goal, assume=[negate(odd)]).proved


# --- facts and functions -------------------------------------------------------------------------

P = symbol("p", sign=Sign.POSITIVE)
N = symbol("n", integer=True)

ENTAILED: list[tuple[list[Term], Term]] = [
    ([less(ZERO, X)], less(ZERO, add(X, ONE))),
    ([], less_equal(multiply(TWO, X, Y), add(power(X, TWO), power(Y, TWO)))),
    ([], less(ZERO, P)),
    ([less(ONE, X)], less(divide(ONE, X), ONE)),
    ([], less_equal(cospi(X), ONE)),
    ([less(ZERO, X), less(X, Y), less(Y, ONE)], less(cospi(Y), cospi(X))),
    ([less(ZERO, X), less(X, ONE)], less(ZERO, sinpi(X))),
    ([], less(atan(X), multiply(rational(1, 2), PI))),
    ([less(ZERO, X)], less(ZERO, atan(X))),
    ([less(ZERO, X)], less(atan(X), X)),
    ([less(X, Y)], less(atan(X), atan(Y))),
    ([less(atan(X), ZERO)], less(X, ZERO)),
    ([less_equal(ZERO, X), less_equal(X, ONE)], less_equal(atan(X), rational(4, 5))),
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
    (
        [less_equal(ZERO, N), less_equal(N, TWO)],
        less(lookup([1, 3, 2], N), rational(4)),
    ),
    ([equal(N, ONE)], equal(lookup([1, 3, 2], N), rational(3))),
    ([], less(rational(3), PI)),
    ([equal(X, Y)], either(less(X, add(Y, ONE)), less(Y, X))),
]

NOT_ENTAILED: list[tuple[list[Term], Term]] = [
    ([], less(ZERO, X)),
    ([], less(cospi(X), ONE)),
    ([], less(atan(X), rational(3, 2))),
    ([], less_equal(atan(X), X)),
    ([less(ZERO, X)], less(divide(ONE, X), ONE)),
    ([less_equal(ZERO, X)], less(ZERO, square_root(X))),
    ([less(X, Y)], less(floor(X), floor(Y))),
    ([], equal(UNDEFINED, ONE)),
    ([], equal(opaque("reduce_sum", X), X)),
    ([less(ZERO, X)], less(power(X, TWO), power(X, rational(3)))),
]


@pytest.mark.parametrize(("facts", "goal"), ENTAILED, ids=lambda each: str(each)[:40])
def test_what_follows_from_facts_is_proved(facts: list[Term], goal: Term) -> None:
    assert prove(goal, assume=facts).proved


@pytest.mark.parametrize(("facts", "goal"), NOT_ENTAILED, ids=str)
def test_what_does_not_follow_is_not_proved(facts: list[Term], goal: Term) -> None:
    assert not prove(goal, assume=facts).proved


def test_a_proof_can_be_replayed() -> None:
    verdict = prove(less_equal(cospi(X), ONE))
    (proof,) = verdict.proof
    check(proof.statement, proof.steps)
    assert verdict.step_count == proof.step_count > 0
    assert str(verdict).startswith(f"PROVED by {proof.step_count} checked step")
    other = statement_of(less(cospi(X), ONE))
    with pytest.raises(RejectedProofError):
        check(other, proof.steps)


# --- the effort ----------------------------------------------------------------------------------


def nested_mods(depth: int) -> Term:
    inner = t
    for step in range(depth):
        inner = floor_mod(3 * inner + hyper("n", integer=True), 7 + step)
    return term(inner)


def nested_floors(depth: int) -> Term:
    inner = X
    for _ in range(depth):
        inner = floor(multiply(rational(3, 2), add(inner, rational(1, 3))))
    return inner


def nested_choices(depth: int) -> Term:
    inner = X
    for step in range(depth):
        inner = minimum(maximum(inner, symbol(f"a{step}")), symbol(f"b{step}"))
    return inner


def tower(depth: int) -> Term:
    base, inner = symbol("b", sign=Sign.POSITIVE), X
    for _ in range(depth):
        inner = power(base, inner)
    return inner


def many_choices(count: int) -> Term:
    names = [symbol(f"a{step}") for step in range(count)]
    return add(*(ite(less(name, X), ONE, absolute(name)) for name in names))


def fractions(count: int, *, backwards: bool) -> Term:
    parts = [
        divide(ONE, add(absolute(X), multiply(rational(i), absolute(Y)), power(X, TWO), ONE))
        for i in range(1, count)
    ]
    return add(*(reversed(parts) if backwards else parts))


def cosines(count: int) -> Term:
    return multiply(*(cospi(multiply(rational(i), X)) for i in range(1, count)))


SQUARES = add(*(power(symbol(f"a{step}"), TWO) for step in range(500)))
HUGE = power(add(X, ONE), rational(10**6))
GEOMETRIC = add(*(power(X, rational(i)) for i in range(1000)))
POSITIVE = symbol("p", sign=Sign.POSITIVE)

ADVERSARIAL: dict[str, Callable[[], Term]] = {
    "mods in mods": lambda: less_equal(nested_mods(6), rational(11)),
    "many mods in mods": lambda: less_equal(nested_mods(30), rational(35)),
    "mods of the clock": lambda: less_equal(term(nested_clock(6)), rational(100)),
    "floors in floors": lambda: less(nested_floors(30), add(nested_floors(30), ONE)),
    "floors beside a bound": lambda: less_equal(
        nested_floors(20), multiply(rational(10**6), absolute(X))
    ),
    "a tower": lambda: less(ZERO, tower(6)),
    "two towers": lambda: equal(tower(5), tower(6)),
    "exp of exp": lambda: less(exp(exp(exp(exp(X)))), exp(exp(exp(exp(add(X, ONE)))))),
    "log of log": lambda: less(log(log(log(log(POSITIVE)))), POSITIVE),
    "a huge exponent": lambda: less_equal(ZERO, HUGE),
    "two huge exponents": lambda: equal(
        HUGE, multiply(power(add(X, ONE), rational(10**6 - 1)), add(X, ONE))
    ),
    "huge constants": lambda: less(
        power(TWO, rational(10**18)), power(rational(3), rational(10**18))
    ),
    "choices in choices": lambda: less_equal(nested_choices(12), maximum(X, nested_choices(12))),
    "choices beside choices": lambda: less_equal(many_choices(30), rational(10**9)),
    "a common denominator": lambda: equal(
        fractions(16, backwards=False), fractions(16, backwards=True)
    ),
    "a common divisor": lambda: equal(
        divide(subtract(power(X, rational(1000)), ONE), subtract(X, ONE)), GEOMETRIC
    ),
    "a product of cosines": lambda: less_equal(cosines(20), ONE),
    "cubes": lambda: negate(
        equal(add(power(COUNT, rational(3)), power(symbol("m", integer=True), rational(3))), TWO)
    ),
    "500 symbols": lambda: less_equal(ZERO, SQUARES),
    "a square modulo a prime": lambda: less_equal(
        floor_modulo(multiply(CLOCK, CLOCK), rational(1000003)), rational(1000001)
    ),
}


def nested_clock(depth: int) -> sp.Expr:
    inner = t
    for step in range(depth):
        inner = floor_mod(3 * inner + 1, 7 + step)
    return inner


UNITS = 300_000


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_effort_is_kept(name: str) -> None:
    goal = ADVERSARIAL[name]()
    before = METER.work
    verdict = prove(goal, effort=Effort.of(UNITS))
    # Writing one question for z3, one common divisor and one exact evaluation are not interrupted;
    # each is bounded in size: 638,000 units were the most.
    assert METER.work - before < 3 * UNITS
    assert verdict.status in Status


def test_an_unknown_says_what_was_tried() -> None:
    verdict = prove(ADVERSARIAL["cubes"](), effort=Effort.of(500_000))
    if verdict.unknown:
        assert "points" in verdict.reason
        assert verdict.samples > 0

"""`prove`: verdicts, refusals, assumptions, contradictions, its budget."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import sympy as sp
from flint import fmpq

from closedform.effort import METER, Effort
from closedform.errors import VerificationError
from closedform.language import floor_mod, hyper, t
from closedform.verify.tactics import prover
from closedform.verify.tactics.escalation import Escalation
from closedform.verify.tactics.prover import prove
from closedform.verify.terms.build import (
    ONE,
    TWO,
    UNDEFINED,
    ZERO,
    absolute,
    add,
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
    maximum,
    minimum,
    multiply,
    negate,
    power,
    rational,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Sign, Term
from closedform.verify.terms.verdict import Status, Verdict
from closedform.verify import prover as one_prover

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
    assert prove(equal(multiply(square_root(TWO), square_root(TWO)), TWO)).tactics == (
        "evaluation",
    )


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


def test_a_proof_that_a_point_contradicts_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tactic that claims too much, of a goal that the first points would have refuted."""
    monkeypatch.setattr(prover, "escalate", lambda *_: Escalation(tactics={"guessing": None}))
    monkeypatch.setattr(prover, "LIMITS", replace(LIMITS, first_points=0))
    assert prove(less_equal(ZERO, absolute(X))).tactics == ("guessing",)
    with pytest.raises(
        VerificationError,
        match=r"proof by guessing of 5 < x is contradicted at {'x': .*: the left side is 5, .*"
        r"a fault of the prover",
    ):
        prove(less(rational(5), X))


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
    verdict = prove(goal, assume=[negate(odd)])
    assert verdict.proved
    assert "turns of a cosine" in verdict.tactics


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


@pytest.mark.parametrize("prover", [prove, one_prover.prove], ids=["tactics", "search"])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_the_effort_is_kept(name: str, prover: Callable[..., Verdict]) -> None:
    goal = ADVERSARIAL[name]()
    before = METER.work
    verdict = prover(goal, effort=Effort.of(UNITS))
    # Writing one question for z3, one common divisor and one exact evaluation are not interrupted;
    # each is bounded in size: 638,000 units were the most.
    assert METER.work - before < 3 * UNITS
    assert verdict.status in Status


def test_an_unknown_says_what_was_tried() -> None:
    verdict = prove(ADVERSARIAL["cubes"](), effort=Effort.of(500_000))
    if verdict.unknown:
        assert "points" in verdict.reason
        assert verdict.samples > 0

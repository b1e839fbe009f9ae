"""Cases cover everything and nothing else; integers decide more than reals; the escalation."""

import random

import pytest
from flint import fmpq

from closedform.effort import Effort
from closedform.verify.tactics.cases import Sequent, TooManyCases, is_feasible, split
from closedform.verify.tactics.escalation import (
    EVALUATION,
    IDENTITY,
    INTEGER_CASES,
    escalate,
    signs_by,
)
from closedform.verify.tactics.integers import conditions_of, eliminate, integer_cases, tighten
from closedform.verify.tactics.solver import SolverMode, session
from closedform.verify.terms.build import (
    FALSE,
    ONE,
    TRUE,
    TWO,
    ZERO,
    absolute,
    add,
    both,
    cospi,
    either,
    equal,
    floor,
    ite,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    negate,
    negative,
    power,
    rational,
    sign,
    subtract,
    symbol,
)
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.tree import Op, Sign, Term, show, walk

X, Y, Z = (symbol(name) for name in "xyz")
N, M = symbol("n", integer=True), symbol("m", integer=True)
LONG = Effort.of(10**10)
CHOICES = {Op.ITE, Op.MINIMUM, Op.MAXIMUM, Op.ABSOLUTE, Op.SIGN, Op.FLOOR}

GOALS = [
    less(ite(less(X, Y), X, Y), Z),
    less(minimum(X, maximum(Y, Z)), absolute(Z)),
    less_equal(add(sign(X), sign(Y)), ite(less(ZERO, X), TWO, ONE)),
    less_equal(ite(either(less(X, Y), less(Y, Z)), absolute(X), sign(Z)), add(Y, TWO)),
]


@pytest.mark.parametrize("goal", GOALS, ids=show)
def test_cases_say_together_what_the_goal_says(goal: Term) -> None:
    """At each point exactly the cases whose facts hold there speak, and they say the same."""
    cases = split(Sequent((), goal, {}), LONG)
    assert len(cases) > 1
    assert not any(node.op in CHOICES for case in cases for node in walk(case.goal))
    chance = random.Random(3)
    for _ in range(100):
        point = {name: fmpq(chance.randint(-4, 4), chance.choice((1, 2))) for name in "xyz"}
        spoken = [
            holds(case.goal, point)
            for case in cases
            if all(holds(fact, point) is True for fact in case.facts)
        ]
        assert spoken
        assert set(spoken) == {holds(goal, point)}


def test_a_floor_becomes_an_integer_with_its_facts() -> None:
    (case,) = split(Sequent((), less_equal(floor(X), X), {}), LONG)
    (name,) = case.floors
    assert name.value.integer
    assert case.floors[name] == X
    assert case.goal == less_equal(name, X)
    point = {"x": fmpq(7, 2), name.value.name: fmpq(3)}
    assert all(holds(fact, point) for fact in case.facts)
    assert not all(holds(fact, {**point, name.value.name: fmpq(2)}) for fact in case.facts)


def test_a_floor_is_replaced_in_the_facts_too() -> None:
    given = (equal(floor(X), TWO),)
    (case,) = split(Sequent(given, less(floor(X), rational(3)), {}), LONG)
    assert not any(node.op is Op.FLOOR for fact in case.facts for node in walk(fact))


def test_a_case_that_cannot_be_is_left_out() -> None:
    cases = split(Sequent((less(X, ZERO),), less(absolute(X), Y), {}), LONG)
    assert [case.goal for case in cases] == [less(negative(X), Y)]
    assert not is_feasible((less(X, Y), less(Y, X)), LONG)
    assert is_feasible((less(ZERO, N), less(N, ONE)), LONG)
    assert not is_feasible((less(ZERO, N), less(N, ONE)), LONG, (SolverMode.INTEGER,))


def test_a_long_chain_is_split_at_once() -> None:
    chain = Z
    for step in reversed(range(30)):
        chain = ite(less(X, rational(step)), rational(step), chain)
    cases = split(Sequent((), less_equal(chain, Y), {}), LONG)
    assert len(cases) == 31
    for step in range(-1, 31):
        point = {"x": fmpq(2 * step + 1, 2), "y": fmpq(0), "z": fmpq(9)}
        spoken = [case for case in cases if all(holds(fact, point) for fact in case.facts)]
        assert len(spoken) >= 1
    assert escalate(
        Sequent((less(Z, rational(50)),), less(chain, rational(50)), {}), LONG
    ).is_proved


def test_too_many_cases_end_the_splitting() -> None:
    many = add(*(absolute(symbol(f"a{index}")) for index in range(12)))
    with session(), pytest.raises(TooManyCases):
        split(Sequent((), less(many, ZERO), {}), LONG)


# --- integers ------------------------------------------------------------------------------------


def test_strict_comparisons_of_integers_are_tightened() -> None:
    half = multiply(rational(1, 2), N)
    facts = list(tighten([both(less(N, M), less(X, Y)), less(half, M)]))
    assert [show(fact) for fact in facts] == [
        "(n + 1) <= m",
        "x < y",
        "((2 * (1/2 * n)) + 1) <= (2 * m)",
    ]


def test_different_integers_are_below_or_above() -> None:
    cases = integer_cases(Sequent((negate(equal(N, M)),), FALSE, {}), LONG)
    facts = {show(fact) for case in cases for fact in case.facts}
    assert {"(n + 1) <= m", "(m + 1) <= n"} <= facts
    assert len(cases) == 2


def test_a_disjunction_of_equalities_is_one_case_each() -> None:
    cases = integer_cases(Sequent((either(equal(N, ONE), equal(N, TWO)),), FALSE, {}), LONG)
    assert len(cases) == 2


def test_integers_without_slack_are_equal() -> None:
    facts = (less_equal(N, M), less_equal(M, N))
    (case,) = integer_cases(Sequent(facts, FALSE, {}), LONG)
    assert equal(N, M) in case.facts


def test_equalities_eliminate_symbols() -> None:
    facts = (equal(N, add(multiply(TWO, M), ONE)), less(N, X))
    found = eliminate(Sequent(facts, less_equal(N, Y), {}), LONG)
    assert N not in set(walk(found.goal, *found.facts))
    point = {"m": fmpq(3), "x": fmpq(8), "y": fmpq(7)}
    assert holds(found.goal, point) is True
    assert holds(found.goal, {**point, "y": fmpq(6)}) is False


def test_whole_parts_leave_a_floor() -> None:
    (case,) = [eliminate(Sequent((less(X, floor(add(N, rational(1, 2)))),), FALSE, {}), LONG)]
    assert [show(fact) for fact in case.facts] == ["x < n"]


def test_a_disjunction_is_conditions_and_a_goal() -> None:
    facts, goal = conditions_of(either(less(X, Y), less(add(X, Y, Z), ZERO), equal(Y, Z)))
    assert goal == less(add(X, Y, Z), ZERO)
    assert facts == (less_equal(Y, X), negate(equal(Y, Z)))
    assert conditions_of(less(X, Y)) == ((), less(X, Y))


# --- the escalation ------------------------------------------------------------------------------


TACTICS: list[tuple[Term, tuple[Term, ...], str]] = [
    (TRUE, (), EVALUATION),
    (equal(cospi(add(X, TWO)), cospi(X)), (), IDENTITY),
    (less_equal(multiply(X, Y), add(power(X, TWO), power(Y, TWO))), (), SolverMode.REAL),
    (
        equal(
            maximum(ZERO, subtract(add(N, ONE), M)),
            add(maximum(ZERO, subtract(N, M)), ite(less_equal(add(N, ONE), M), ZERO, ONE)),
        ),
        (),
        INTEGER_CASES,
    ),
]


@pytest.mark.parametrize(("goal", "facts", "tactic"), TACTICS, ids=lambda each: str(each)[:40])
def test_each_tactic_proves_something(goal: Term, facts: tuple[Term, ...], tactic: str) -> None:
    found = escalate(Sequent(facts, goal, {}), LONG)
    assert found.is_proved
    assert tactic in found.tactics


def test_what_is_not_proved_stays_open_with_a_model() -> None:
    found = escalate(Sequent((), less(multiply(X, X), TWO), {}), LONG)
    assert not found.is_proved
    assert not found.tactics
    assert any(holds(less(multiply(X, X), TWO), model) is False for model in found.models)


def test_signs_are_asked_of_the_solver() -> None:
    sign_of = signs_by((less(ONE, X), less_equal(Y, ZERO)), LONG)
    assert sign_of(subtract(X, ONE)) is Sign.POSITIVE
    assert sign_of(subtract(ONE, X)) is Sign.NEGATIVE
    assert sign_of(Y) is Sign.NONPOSITIVE
    assert sign_of(negative(Y)) is Sign.NONNEGATIVE
    assert sign_of(Z) is Sign.ANY

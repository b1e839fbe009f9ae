"""The demands of an operation, on the path on which it is taken and without it."""

import time

import pytest
import sympy as sp
from flint import arb, fmpq

from closedform.language import hyper, t
from closedform.verify.terms.build import (
    FALSE,
    ONE,
    ZERO,
    add,
    both,
    divide,
    equal,
    ite,
    less,
    log,
    lookup,
    multiply,
    negate,
    power,
    rational,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.definedness import (
    Obligation,
    PartialOperation,
    missing_parts,
    obligations,
    with_domain,
)
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import TRUTHS, Term, show

X, Y = symbol("x"), symbol("y")
N = symbol("n", integer=True)


@pytest.mark.parametrize(
    ("made", "kind", "goal"),
    [
        (divide(X, Y), PartialOperation.DIVISION, "not(y = 0)"),
        (log(X), PartialOperation.LOGARITHM, "0 < x"),
        (square_root(X), PartialOperation.ROOT, "0 <= x"),
        (power(X, rational(-1, 2)), PartialOperation.POWER, "(0 < x or (x = 0 and 0 <= -1/2))"),
        (power(X, Y), PartialOperation.POWER, "(0 < x or (x = 0 and 0 <= y))"),
        (power(X, N), PartialOperation.POWER, "(not(x = 0) or 0 <= n)"),
        (
            power(X, multiply(rational(-2), N)),
            PartialOperation.POWER,
            "(not(x = 0) or 0 <= (-2 * n))",
        ),
        (lookup([1, 2, 3], N), PartialOperation.TABLE, "(0 <= n and n <= 2 and n = floor(n))"),
    ],
)
def test_each_partial_operation_demands_its_domain(
    made: Term, kind: PartialOperation, goal: str
) -> None:
    (found,) = obligations(made)
    assert found.kind is kind
    assert show(found.goal) == goal.replace("(x = 0 and 0 <= -1/2)", "false").replace(
        "(0 < x or false)", "0 < x"
    )
    assert found.path == ()


@pytest.mark.parametrize(
    "made",
    [X, power(X, rational(3)), power(rational(2), X), multiply(X, Y), subtract(X, ONE)],
)
def test_a_total_operation_demands_nothing(made: Term) -> None:
    assert obligations(made) == []


def test_a_branch_is_taken_under_its_conditions() -> None:
    schedule = term(sp.Piecewise((1 / t, t > 3), (sp.log(t), t > 1), (5, True)))
    first, second = obligations(schedule)
    assert [show(each) for each in first.path] == ["3 < t"]
    assert [show(each) for each in second.path] == ["t <= 3", "1 < t"]
    assert show(second.claim) == "(3 < t or t <= 1 or 0 < t)"


def test_a_missing_last_branch_is_an_obligation_where_taken() -> None:
    schedule = term(sp.Piecewise((1, t < 3), (2, t < 5)))
    (found,) = obligations(schedule)
    assert found.kind is PartialOperation.BRANCH
    assert found.goal == FALSE
    assert [show(each) for each in found.path] == ["3 <= t", "5 <= t"]
    assert obligations(schedule, taken=False) == []


def test_where_safety_leaves_the_conditions_out() -> None:
    schedule = ite(less(ZERO, X), divide(ONE, X), square_root(X))
    assert all(found.path == () for found in obligations(schedule, taken=False))
    assert [found.kind for found in obligations(schedule, taken=False)] == ["division", "root"]


def test_each_is_asked_once() -> None:
    quotient = divide(ONE, X)
    assert len(obligations(term(hyper("a") + 0))) == 0
    assert len(obligations(multiply(quotient, quotient))) == 1


def test_one_operation_on_many_paths_is_asked_on_each() -> None:
    """A path must not be taken for another one that was freed before it."""
    quotient = divide(ONE, X)
    chain = ONE
    for step in range(300):
        chain = ite(less(Y, rational(step)), multiply(quotient, rational(step + 2)), chain)
    found = obligations(chain)
    assert len({each.path for each in found}) == 300


def test_a_long_chain_costs_no_more_than_its_length() -> None:
    chain = ONE
    for step in range(20_000):
        chain = ite(less(Y, rational(step)), rational(step), chain)
    assert obligations(chain) == []
    (found,) = obligations(divide(ONE, chain))
    assert isinstance(found, Obligation)


def nested(depth: int) -> Term:
    """Choices of which each stands in both branches of the next: 2^depth paths to the innermost."""
    inner = divide(ONE, X)
    for step in range(depth):
        chosen = less(Y, rational(step))
        inner = ite(chosen, add(inner, ONE), multiply(inner, rational(step + 2)))
    return inner


def test_nested_choices_cost_no_more_than_their_number() -> None:
    begun = time.process_time()
    found = obligations(ite(less(ZERO, Y), nested(60), ONE))
    assert time.process_time() - begun < 10
    (quotient,) = [each for each in found if each.kind is PartialOperation.DIVISION]
    assert quotient.is_sufficient
    assert [show(each) for each in quotient.path] == ["0 < y"]
    assert show(quotient.goal) == "not(x = 0)"
    few = obligations(nested(4))
    assert len({each.path for each in few}) == 16
    assert not any(each.is_sufficient for each in few)


QUOTIENT = divide(ONE, X)


@pytest.mark.parametrize(
    ("number", "operand", "parts"),
    [
        (Y, X, []),
        (Y, add(X, Y), []),
        (Y, QUOTIENT, [QUOTIENT]),
        (QUOTIENT, QUOTIENT, []),
        (add(ONE, log(QUOTIENT)), QUOTIENT, []),
        (add(QUOTIENT, log(Y)), multiply(log(Y), QUOTIENT, X), []),
        (log(Y), multiply(log(Y), QUOTIENT, X), [QUOTIENT]),
        # A condition is evaluated, and one branch.
        (ite(less(QUOTIENT, ONE), X, Y), QUOTIENT, []),
        (ite(less(X, ONE), QUOTIENT, Y), QUOTIENT, [QUOTIENT]),
        (Y, less(QUOTIENT, Y), [QUOTIENT]),
        (Y, negate(equal(QUOTIENT, QUOTIENT)), [QUOTIENT]),
        # Where x is 0 the choice has a value.
        (
            Y,
            ite(equal(X, ZERO), Y, QUOTIENT),
            [ite(equal(X, ZERO), Y, QUOTIENT)],
        ),
        (
            Y,
            both(less(X, ZERO), less(QUOTIENT, Y)),
            [both(less(X, ZERO), less(QUOTIENT, Y))],
        ),
    ],
)
def test_what_is_left_out_may_be_undefined(number: Term, operand: Term, parts: list[Term]) -> None:
    assert missing_parts([number], [operand]) == parts
    result_term = with_domain(number, [operand])
    assert (result_term == number) is (not parts)
    # Neither more nor less than that both are defined.
    for x in (-2, 0, 3):
        for y in (-1, 0, 2):
            point = {"x": fmpq(x), "y": fmpq(y)}
            results = [value(number, point), value(_as_number(operand), point)]
            is_undefined = any(isinstance(result, Undefined) for result in results)
            result = value(result_term, point)
            assert isinstance(result, Undefined) is is_undefined
            assert is_undefined or arb(result).overlaps(arb(results[0]))


def _as_number(operand: Term) -> Term:
    return ite(operand, ONE, ZERO) if operand.op in TRUTHS else operand

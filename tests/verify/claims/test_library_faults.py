"""A sample of the faults planted in the library's expressions: none is proved correct.

``compare_library_faults.py``, which ``make compare`` runs, plants more than 1,000.
"""

from fractions import Fraction
from functools import cache

import pytest

from closedform.verify.terms.build import (
    add,
    both,
    cospi,
    divide,
    either,
    equal,
    floor,
    ite,
    less,
    log,
    maximum,
    multiply,
    power,
    rational,
    symbol,
)
from closedform.verify.terms.tree import Term
from tests.support.term_values import UndecidedError, UndefinedError, compare, value_at
from tests.verify.faults import WRONG, Outcome, table
from tests.verify.library_faults import (
    Fault,
    contradiction,
    drawn,
    judge,
    originals,
    schedule_faults,
    source_faults,
    standard,
)


@cache
def sample() -> list[Fault]:
    return drawn(60, seed=5)


@pytest.mark.parametrize("part", range(4))
def test_no_planted_fault_is_proved_to_be_none(part: int) -> None:
    outcomes = []
    for fault in sample()[part::4]:
        outcome, verdict = judge(fault)
        assert outcome not in WRONG, f"{fault}: {verdict}"
        outcomes.append(outcome)
    assert outcomes.count(Outcome.REFUTED) >= 10, table(outcomes)


def test_no_fault_of_the_code_is_proved_to_be_none() -> None:
    found = list(source_faults(4, seed=4))
    assert len(found) == 4
    for fault in found:
        outcome, verdict = judge(fault)
        assert outcome not in WRONG, f"{fault}: {verdict}"


def test_standard_claims_of_faulty_schedules_hold_where_they_are_proved() -> None:
    for fault in schedule_faults(3, seed=2):
        _, false = standard(fault)
        assert not false, false


def test_faults_are_of_schedules_and_rules_of_every_kind() -> None:
    names = {original.name.partition(".")[0] for original in originals()}
    assert {"cosine", "one_cycle", "warm_restarts", "adam", "lion", "rprop"} <= names
    kinds = {fault.what.rpartition("(")[2] for fault in drawn(1000, seed=5)}
    wanted = {"comparison", "sign", "swapped", "off by one", "missing clamp", "missing floor"}
    assert {f"{kind})" for kind in wanted} <= kinds


def test_faulty_claim_would_be_found() -> None:
    # The judge itself: a claim that is false is contradicted, though nothing was proved.
    assert all(contradiction(fault.claim()) for fault in sample()[:8] if judge(fault)[1].refuted)


X = symbol("x")
HALF, ONE, TWO = rational(1, 2), rational(1), rational(2)


@pytest.mark.parametrize(
    ("term", "wanted"),
    [
        (add(X, HALF), Fraction(7, 2)),
        (divide(X, add(X, ONE)), Fraction(3, 4)),
        (power(X, rational(-2)), Fraction(1, 9)),
        (cospi(divide(X, TWO)), Fraction(0)),
        (floor(divide(X, TWO)), Fraction(1)),
        (maximum(X, power(X, HALF)), Fraction(3)),
        (ite(less(X, TWO), divide(ONE, add(X, rational(-3))), X), Fraction(3)),
        (both(less(X, TWO), equal(divide(ONE, add(X, rational(-3))), X)), False),
    ],
)
def test_evaluator_of_the_judge(term: Term, wanted: object) -> None:
    assert value_at(term, {"x": Fraction(3)}) == wanted


def test_evaluator_of_the_judge_says_what_has_no_value_and_what_is_too_near() -> None:
    point = {"x": Fraction(-2)}
    by_zero = (divide(ONE, add(X, TWO)), divide(ONE, log(add(X, rational(3)))))
    for undefined in (*by_zero, power(X, HALF), power(rational(0), X)):
        with pytest.raises(UndefinedError):
            value_at(undefined, point)
    root = power(TWO, HALF)
    with pytest.raises(UndecidedError):
        value_at(equal(multiply(root, root), TWO), point)
    with pytest.raises(UndecidedError):
        value_at(either(less(root, X), equal(multiply(root, root), TWO)), point)
    assert compare(value_at(root, point), Fraction(3, 2)) == -1

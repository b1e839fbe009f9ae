"""Sums over tensors: nothing that holds at one element is used inside them."""

import pytest

from closedform.verify.prover import prove
from closedform.verify.search.statements import without_tensor_functions
from closedform.verify.terms.build import (
    ONE,
    ZERO,
    absolute,
    add,
    divide,
    equal,
    exp,
    ite,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    opaque,
    power,
    rational,
    square_root,
    subtract,
    symbol,
)
from closedform.verify.terms.facts import is_non_negative
from closedform.verify.terms.tree import Sign, Term, symbols

X, Y = symbol("x"), symbol("y")
RATE = symbol("rate", sign=Sign.POSITIVE)


def total(term: Term) -> Term:
    return opaque("reduce_sum", term)


SQUARES = total(power(X, rational(2)))


def test_a_condition_at_one_element_is_not_used_inside_a_sum() -> None:
    """At an x above 0 the sum of |x| would be that of x; other elements may be below."""
    chosen = ite(less(ZERO, X), total(absolute(X)), total(X))
    assert not prove(equal(chosen, total(X)), assume=[less(ZERO, X)]).proved
    assert not prove(equal(total(absolute(X)), total(X)), assume=[less(ZERO, X)]).proved


def test_a_sum_of_equal_elements_is_equal() -> None:
    left, right = total(multiply(X, add(X, Y))), total(add(power(X, rational(2)), multiply(Y, X)))
    assert prove(
        equal(
            divide(X, add(ONE, power(left, rational(2)))),
            divide(X, add(ONE, multiply(right, right))),
        )
    ).proved
    assert prove(equal(total(X), total(Y)), assume=[equal(X, Y)]).unknown


def test_a_sum_of_squares_is_not_negative() -> None:
    assert prove(less_equal(ZERO, SQUARES)).proved
    assert prove(less(ZERO, add(square_root(SQUARES), RATE))).proved
    assert prove(less(ZERO, SQUARES)).refuted
    assert prove(less_equal(ZERO, total(X))).refuted


def test_the_largest_square_is_not_negative_and_not_that_of_one_element() -> None:
    largest = opaque("reduce_max", power(X, rational(2)))
    assert prove(less_equal(ZERO, largest)).proved
    assert prove(equal(largest, opaque("reduce_max", multiply(X, X)))).proved
    assert not prove(equal(largest, power(X, rational(2)))).proved
    assert not prove(equal(largest, SQUARES)).proved


def test_a_constant_is_not_its_sum() -> None:
    """A tensor of one element would say that it is."""
    assert not prove(equal(total(rational(3)), rational(3))).proved
    clock = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
    assert not prove(equal(total(clock), clock)).proved


def test_matrices_and_sums_of_sums() -> None:
    product = opaque("matmul", X, opaque("transpose", Y))
    assert prove(equal(product, product)).proved
    assert not prove(equal(product, opaque("matmul", opaque("transpose", Y), X))).proved
    assert prove(equal(total(multiply(X, SQUARES)), total(multiply(SQUARES, X)))).proved


def test_one_symbol_for_equal_functions() -> None:
    goal = less(add(SQUARES, total(multiply(X, X))), total(Y))
    elementwise, given = without_tensor_functions(goal, [less(total(Y), ONE)])
    assert list(map(str, symbols(elementwise, *given))) == ["reduce_sum#0", "reduce_sum#1"]
    assert without_tensor_functions(less(X, Y), []) == (less(X, Y), ())


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (power(X, rational(2)), True),
        (power(X, rational(3)), False),
        (multiply(X, X), True),
        (multiply(X, Y, X), False),
        (multiply(X, Y, X, Y), True),
        (multiply(rational(-1), X, X), False),
        (add(absolute(X), exp(Y), ONE), True),
        (subtract(absolute(X), ONE), False),
        (divide(RATE, exp(X)), True),
        (minimum(RATE, X), False),
        (maximum(RATE, X), True),
        (ite(less(X, Y), RATE, ONE), True),
        (ite(less(X, Y), RATE, X), False),
        (power(RATE, X), True),
    ],
    ids=str,
)
def test_what_is_plainly_not_negative(term: Term, expected: bool) -> None:
    assert is_non_negative(term) is expected

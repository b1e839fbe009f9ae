"""Linear forms: read from terms, added and scaled, written back, and their signs."""

import pytest
from flint import fmpq

from closedform.verify.terms.build import (
    ONE,
    add,
    cospi,
    divide,
    multiply,
    rational,
    subtract,
    symbol,
)
from closedform.verify.terms.linear import LinearForm, line, linear_forms
from closedform.verify.terms.tree import Op, Sign, Term

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
X, Y = symbol("x", sign=Sign.POSITIVE), symbol("y")


def form(slope: int, constant: int, **others: int) -> LinearForm:
    named = {symbol: fmpq(others[name]) for name, symbol in (("x", X), ("y", Y)) if name in others}
    return LinearForm(fmpq(constant), {T: fmpq(slope), **named} if slope else named)


def test_forms_are_added_and_scaled() -> None:
    one, other = form(2, 1, x=3), form(-2, 4, y=5)
    assert one + other == form(0, 5, x=3, y=5)
    assert one - one == LinearForm()
    assert one.scale(fmpq(-2)) == form(-4, -2, x=-6)
    assert one.scale(fmpq(0)).is_constant
    assert hash(one + other) == hash(other + one)


def test_a_form_is_written_with_the_clock_first_and_symbols_by_name() -> None:
    assert str(form(2, -7, y=1, x=3).as_term(T)) == "((2 * t) + (3 * x) + y + -7)"
    assert form(2, -7, y=1, x=3).leading(T) == 2
    assert form(0, 3).as_term() == rational(3)
    assert form(0, 3).leading(T) == 3


def test_a_line_has_a_value_a_root_and_a_slope() -> None:
    found = form(3, -6)
    assert found.is_line(T)
    assert not form(3, -6, x=1).is_line(T)
    assert [found.at(T, 5), found.root(T), found.slope(T)] == [fmpq(n) for n in (9, 2, 3)]
    assert form(3, -6, x=1).fix_clock(T, 5) == form(0, 9, x=1)


@pytest.mark.parametrize(
    ("found", "sign"),
    [
        (form(1, 1), Sign.POSITIVE),
        (form(1, 0), Sign.NONNEGATIVE),
        (form(1, -1), Sign.ANY),
        (form(-1, 9), Sign.NONNEGATIVE),
        (form(-1, -1), Sign.NEGATIVE),
        (form(-1, 0), Sign.NONPOSITIVE),
        (form(1, 0, x=2), Sign.POSITIVE),
        (form(1, 0, x=-2), Sign.ANY),
        (form(-1, 0, x=-2), Sign.NEGATIVE),
        (form(1, 1, y=1), Sign.ANY),
    ],
    ids=str,
)
def test_the_sign_on_an_interval_of_steps(found: LinearForm, sign: Sign) -> None:
    assert found.sign_between(T, 0, 9) is sign


def test_every_number_is_read_as_a_form() -> None:
    cosine = cospi(T)
    root = add(multiply(rational(2), add(T, cosine)), subtract(cosine, T), ONE)
    assert linear_forms(root)[root] == LinearForm(fmpq(1), {T: fmpq(1), cosine: fmpq(3)})
    product = multiply(T, X)
    assert linear_forms(product)[product] == LinearForm.of(product)


@pytest.mark.parametrize(
    ("root", "wanted"),
    [
        (divide(add(T, ONE), multiply(rational(2), rational(2))), "((1/4 * t) + 1/4)"),
        (Term(Op.DIVIDE, (T, rational(5))), "(1/5 * t)"),
        (multiply(T, T), None),
        (add(T, X), None),
        (divide(ONE, T), None),
        (cospi(T), None),
    ],
)
def test_what_is_linear_in_the_clock_alone_is_a_line(root: Term, wanted: str | None) -> None:
    found = line(root, T)
    assert (None if found is None else str(found.as_term(T))) == wanted

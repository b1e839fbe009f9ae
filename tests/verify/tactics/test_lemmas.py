"""The lemmas of the order solver are true: they hold wherever they are evaluated.

`compare_lemmas.py` (run by `make compare`) evaluates 100,000 instances.
"""

import pytest

from closedform.verify.tactics.lemmas import (
    implies,
    is_function,
    is_product,
    lemmas_of,
    lemmas_of_pair,
)
from closedform.verify.terms.build import (
    HALF,
    ONE,
    ZERO,
    cospi,
    exp,
    less,
    less_equal,
    power,
    rational,
    symbol,
)
from closedform.verify.terms.tree import Op, Term, show, walk
from tests.verify.audit import FUNCTIONS, U, V, audit


def test_lemmas_hold() -> None:
    found = audit(FUNCTIONS.items(), 12_000, seed=1)
    assert found.violations == []
    assert found.outcomes["True"] > 0.9 * found.checked


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_kind_is_said_something_of(name: str) -> None:
    f, g = FUNCTIONS[name]
    assert len(lemmas_of(f)) >= 1
    assert all(f in walk(lemma) for lemma in lemmas_of(f))
    # A sine is its cosine, which has the lemmas of pairs.
    assert bool(lemmas_of_pair(f, g)) == (f.op is not Op.SINPI)


FALSE_LEMMAS = {
    "cosine is below 1/2": lambda f, g: [implies(less(ZERO, U), less(U, ONE), less(f, HALF))],
    "cosine rises": lambda f, g: [
        implies(less_equal(ZERO, U), less(U, V), less_equal(V, ONE), less(f, g))
    ],
    "cosine reaches 1 never": lambda f, g: [less(f, ONE)],
}


@pytest.mark.parametrize("name", FALSE_LEMMAS)
def test_a_false_lemma_is_found(name: str) -> None:
    pair = [("cosine", (cospi(U), cospi(V)))]
    assert audit(pair, 500, seed=2, lemmas=FALSE_LEMMAS[name]).violations


def test_a_wrong_side_of_bernoulli_is_found() -> None:
    def wrong(f: Term, _: Term) -> list[Term]:
        base, exponent = f.args
        return [implies(less(ZERO, base), less_equal(ONE, exponent), less_equal(f, base))]

    assert audit([("power", FUNCTIONS["power"])], 500, seed=2, lemmas=wrong).violations


def test_functions_and_products() -> None:
    x = symbol("x")
    assert is_product(power(x, rational(12)))
    assert not is_product(power(x, rational(13)))
    assert is_function(power(x, rational(13)))
    assert is_function(power(x, HALF))
    assert not is_function(x)
    assert lemmas_of_pair(cospi(x), exp(x)) == []


def test_an_implication_is_a_disjunction() -> None:
    x, y = symbol("x"), symbol("y")
    assert show(implies(less(x, y), less_equal(y, x), less(ZERO, x))) == (
        "(y <= x or x < y or 0 < x)"
    )

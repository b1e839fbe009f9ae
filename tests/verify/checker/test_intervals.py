"""Intervals of whole terms, roots of numbers and lemmas, compared with exact values."""

import math
import random
from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
from flint import fmpq
from sympy import cos, pi

from closedform.effort import Effort
from closedform.verify.checker.intervals import Intervals
from closedform.verify.checker.replay import Replay
from closedform.verify.checker.terms import Terms
from closedform.verify.search.refutation import find_proof
from closedform.verify.search.statements import statement_of
from closedform.verify.search.steps import NoProofError
from closedform.verify.terms.sympy_io import term

STEPS = range(60)


def draw(terms: Terms, step: int, source: random.Random, depth: int) -> tuple[int, list[Fraction]]:
    """Returns a random number over the step, and its exact values at ``STEPS``."""
    if not depth:
        if source.random() < 0.5:
            return step, list(map(Fraction, STEPS))
        number = Fraction(source.randint(-9, 9), source.randint(1, 30))
        return terms.rational(fmpq(number.numerator, number.denominator)), [number] * len(STEPS)
    (left, a), (right, b) = (draw(terms, step, source, depth - 1) for _ in range(2))
    divisor = source.randint(1, 30)
    quotient = terms.multiply(left, terms.rational(fmpq(1, divisor)))
    floor = terms.make("floor", (quotient,))
    remainder = terms.subtract(left, terms.multiply(terms.rational(divisor), floor))
    floors = [Fraction(math.floor(x / divisor)) for x in a]
    return source.choice(
        [
            (terms.add(left, right), [x + y for x, y in zip(a, b, strict=True)]),
            (terms.multiply(left, right), [x * y for x, y in zip(a, b, strict=True)]),
            (terms.make("min", (left, right)), list(map(min, a, b))),
            (floor, floors),
            (remainder, [x - divisor * y for x, y in zip(a, floors, strict=True)]),
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_intervals_of_terms_hold_their_values(seed: int) -> None:
    replay = Replay()
    terms = replay.terms
    step = terms.declare("t", integer=True)
    number, values = draw(terms, step, random.Random(seed), 4)
    bounds = (
        terms.less_equal(terms.rational(0), step),
        terms.less_equal(step, terms.rational(len(STEPS) - 1)),
    )
    low, high = Intervals(replay, bounds).of_term(number)
    assert low is not None
    assert high is not None
    assert Fraction(int(low.p), int(low.q)) <= min(values)
    assert max(values) <= Fraction(int(high.p), int(high.q))


def test_a_remainder_is_below_its_divisor() -> None:
    replay = Replay()
    terms = replay.terms
    step = terms.declare("t", integer=True)
    floor = terms.make("floor", (terms.multiply(step, terms.rational(fmpq(1, 25))),))
    remainder = terms.subtract(step, terms.multiply(terms.rational(25), floor))
    assert Intervals(replay, ()).of_term(remainder) == (fmpq(0), fmpq(24))


@pytest.mark.parametrize(
    ("number", "outer", "primes"),
    [(20, 2, [5]), (36, 6, []), (fmpq(1, 2), fmpq(1, 2), [2]), (210, 1, [2, 3, 5, 7])],
)
def test_roots_of_numbers_have_one_form(number: fmpq, outer: fmpq, primes: list[int]) -> None:
    replay = Replay()
    terms, forms = replay.terms, replay.forms
    half = terms.rational(fmpq(1, 2))
    root = terms.make("^", (terms.rational(number), half))
    roots = [terms.make("^", (terms.rational(prime), half)) for prime in primes]
    assert forms.of(root) == forms.of(terms.multiply(terms.rational(outer), *roots))


x, g, h = sp.Symbol("x", real=True), sp.Symbol("g", positive=True), sp.Symbol("h", positive=True)
k = sp.Symbol("k", integer=True)


def _equal(left: Any, right: Any) -> dict[str, Any]:
    return statement_of(term(sp.Eq(left, right, evaluate=False)))


@pytest.mark.parametrize(
    ("left", "right", "wrong"),
    [
        (cos(pi * x), 2 * cos(pi * x / 2) ** 2 - 1, 2 * cos(pi * x / 3) ** 2 - 1),
        (g**x, sp.exp(x * sp.log(g)), sp.exp(x * sp.log(h))),
        (cos(pi * x), cos(pi * (x + 2 * k)), cos(pi * (x + 3 * k))),
        (cos(pi * x / g), cos(pi * (x + 2 * g) / g), cos(pi * (x + 2 * h) / g)),
        (sp.sqrt(5) * sp.Max(0, x), sp.sqrt(20) * sp.Max(0, x) / 2, sp.sqrt(3) * sp.Max(0, x)),
    ],
    ids=["half angle", "power", "period", "scaled period", "root"],
)
def test_an_equation_is_certified_and_a_wrong_one_is_not(left: Any, right: Any, wrong: Any) -> None:
    find_proof(_equal(left, right))
    with pytest.raises(NoProofError):
        find_proof(_equal(left, wrong), Effort.of(400_000))

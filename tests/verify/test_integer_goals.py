"""Generated goals about integers: remainders, sums of squares, floors of curves.

``t mod 2000 = 0`` excludes ``t mod 500 = 1``, and does not exclude ``t mod 7 = 1``.
"""

import math
import random
from itertools import product

import pytest
from flint import fmpq

from closedform.verify.prover import prove
from closedform.verify.terms.build import (
    ONE,
    TWO,
    ZERO,
    add,
    cospi,
    either,
    equal,
    floor,
    floor_modulo,
    less_equal,
    multiply,
    negate,
    power,
    rational,
    symbol,
)
from closedform.verify.terms.evaluate import holds
from closedform.verify.terms.tree import Sign, Term

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)


@pytest.mark.parametrize("seed", range(30))
def test_a_remainder_excludes_others(seed: int) -> None:
    chance = random.Random(seed)
    common = chance.randint(2, 40)
    moduli = [common * chance.randint(1, 60) for _ in range(2)]
    remainders = [chance.randrange(modulus) for modulus in moduli]
    first, second = (
        equal(floor_modulo(T, rational(modulus)), rational(remainder))
        for modulus, remainder in zip(moduli, remainders, strict=True)
    )
    is_excluded = (remainders[0] - remainders[1]) % math.gcd(*moduli) != 0
    assert prove(negate(first), assume=[second]).proved is is_excluded


@pytest.mark.parametrize("seed", range(12))
def test_a_sum_of_squares_that_is_not_above_0_vanishes(seed: int) -> None:
    chance = random.Random(seed)
    names = [symbol(name) for name in "xyz"[: chance.randint(1, 3)]]
    size = symbol("n", sign=Sign.NONNEGATIVE)
    weights = [fmpq(chance.randint(1, 9), chance.randint(1, 9)) for _ in names]
    squares = [
        multiply(rational(weight), power(name, TWO))
        for weight, name in zip(weights, names, strict=True)
    ]
    fact = less_equal(add(size, *squares), ZERO)
    assert prove(equal(chance.choice([*names, size]), ZERO), assume=[fact]).proved
    # With one number of unknown sign in the sum nothing follows.
    open_fact = less_equal(add(symbol("w"), *squares), ZERO)
    assert prove(equal(names[0], ZERO), assume=[open_fact]).refuted


def _floor_of_cosine(height: fmpq, half_period: int) -> Term:
    angle = multiply(rational(1, half_period), T)
    return floor(multiply(rational(height), add(ONE, cospi(angle))))


@pytest.mark.parametrize(
    ("height", "half_period"), list(product((fmpq(21, 10), fmpq(7, 3)), (9, 50)))
)
def test_floors_of_a_curve_have_listed_values(height: fmpq, half_period: int) -> None:
    number = _floor_of_cosine(height, half_period)
    listed = [equal(number, rational(n)) for n in range(int((2 * height).floor()) + 1)]
    assert prove(either(*listed)).proved
    for left_out in listed:
        others = either(*(entry for entry in listed if entry is not left_out))
        is_attained = any(
            holds(left_out, {"t": fmpq(step)}) is True for step in range(2 * half_period)
        )
        assert not (prove(others).proved and is_attained)


@pytest.mark.parametrize("residue", range(6))
def test_a_cosine_at_a_remainder_is_a_number(residue: int) -> None:
    is_residue = equal(floor_modulo(T, rational(6)), rational(residue))
    value = fmpq([2, 1, -1, -2, -1, 1][residue], 2)  # cos(pi residue / 3)
    cosine = cospi(multiply(rational(fmpq(1, 3)), T))
    assert prove(equal(cosine, rational(value)), assume=[is_residue]).proved
    assert prove(equal(cosine, rational(-value)), assume=[is_residue]).refuted

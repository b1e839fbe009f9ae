"""Iterated odd polynomials: against numpy, against exact fractions, and random families."""

import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

from closedform import claims
from closedform.errors import VerificationError
from closedform.optimizers.muon import COEFFICIENTS, POLAR_EXPRESS
from tools.theorems_polynomials import ITERATIONS

Row = tuple[Fraction, ...]


def steps_of(coefficients: Sequence[Any], steps: int) -> list[Row]:
    """Returns the coefficients of each step, a float as the decimal that it prints as."""
    rows = coefficients if isinstance(coefficients[0], Sequence) else [coefficients]
    exact = [tuple(Fraction(str(number)) for number in row) for row in rows[:steps]]
    return exact + exact[-1:] * (steps - len(exact))


def iterated(rows: Sequence[Row], x: Fraction) -> Fraction:
    """Returns the result of the steps, in numbers of at most 400 digits after each.

    A step multiplies the error of 1e-400 by less than 1e3, and no test is nearer to an end.
    """
    for row in rows:
        x = sum((a * x ** (2 * k + 1) for k, a in enumerate(row)), Fraction(0))
        if x.denominator.bit_length() > 2000:
            x = Fraction(round(x * 10**400), 10**400)
    return x


@pytest.mark.parametrize("name", ITERATIONS)
def test_published_images_are_those_of_numpy(name: str) -> None:
    """The image of a dense grid reaches both ends of the proved one, and never beyond."""
    row = ITERATIONS[name]
    first, last = (float(end) for end in row.source)
    x: Any = np.append(first, np.geomspace(max(first, 1e-9), last, 100_000))
    for numbers in steps_of(row.coefficients, row.steps):
        x = sum(float(a) * x ** (2 * k + 1) for k, a in enumerate(numbers))
    low, high = (Fraction(str(end)) for end in (x.min(), x.max()))
    # 64 steps of doubles, and the distance of a grid of 100,000 numbers from an extreme.
    slack = Fraction(1, 10**4)
    image = (low - slack, high + slack)

    def verdict(target: tuple[Fraction, Fraction]) -> Any:
        return claims.iterate_within(row.coefficients, row.source, target, steps=row.steps).verify()

    assert verdict(image).proved
    assert verdict((low + slack, high + 1)).refuted
    assert verdict((low - 1, high - slack)).refuted


@pytest.mark.parametrize(
    ("coefficients", "source", "target", "steps"),
    [
        # The critical point of the cubic at 1 is taken to 1: an end that balls never decide.
        ((1.5, -0.5), (0, 1), (0, 1), 40),
        ((1.5, -0.5), (0.3, 1), (0, 1), 12),
        ((Fraction(15, 8), Fraction(-5, 4), Fraction(3, 8)), (0, 1), (0, 1), 40),
        ((2,), (-1, 1), (-4, 4), 2),
        ((0, 0, 1), (-1, 1), (-1, 1), 100),
        ((0,), (0, 9), (0, 0), 3),
        (COEFFICIENTS, (0, 1), (0, 1), 0),
        (POLAR_EXPRESS, (0, 1), (0, 1.2), None),
    ],
)
def test_ends_that_are_met_exactly(coefficients: Any, source: Any, target: Any, steps: Any) -> None:
    claim = claims.iterate_within(coefficients, source, target, steps=steps)
    assert claim.verify().proved
    if target[1] == source[1] == 1 and steps:
        nearer = (target[0], 1 - sp.Rational(1, 10**30))
        assert claims.iterate_within(coefficients, source, nearer, steps=steps).verify().refuted


def test_a_target_that_balls_do_not_decide_is_unknown() -> None:
    # 1 - x_n is about 3^-(2^n): its digits outnumber those of all balls.
    verdict = claims.iterate_within((1.5, -0.5), (0.3, 1.2), (0, 1), steps=64).verify()
    assert verdict.unknown
    assert "balls that reach over the target" in verdict.reason


def test_random_families() -> None:
    """Nothing that a dense grid of fractions contradicts is proved, and all that it shows false is.

    A counterexample is taken out of the target by exact fractions.
    """
    chance = random.Random(8)
    counts: Counter[str] = Counter()
    for index in range(150):
        rows, source = _drawn(chance)
        grid = [source[0] + (source[1] - source[0]) * k / 200 for k in range(201)]
        results = [iterated(rows, x) for x in grid]
        width = max(results) - min(results)
        shift = width * Fraction(chance.randint(-4, 8), 40)
        target = (min(results) - shift, max(results) + shift)
        if target[0] > target[1]:
            continue
        is_false = any(not target[0] <= result <= target[1] for result in results)
        verdict = claims.iterate_within(rows, source, target).verify()
        counts[verdict.status.value] += 1
        where = f"seed 8, family {index}: {rows} on {source} into {target}: {verdict}"
        assert not (is_false and not verdict.refuted), where
        if verdict.refuted:
            assert verdict.counterexample is not None
            number = verdict.counterexample["x"]
            x = Fraction(int(number.p), int(number.q))
            assert source[0] <= x <= source[1], where
            assert not target[0] <= iterated(rows, x) <= target[1], where
    assert counts["PROVED"] > 40
    assert counts["REFUTED"] > 30
    assert counts["UNKNOWN"] <= 3, "an end of the grid is a critical point of no other"


def _drawn(chance: random.Random) -> tuple[list[Row], tuple[Fraction, Fraction]]:
    """One to three polynomials of up to four coefficients, and an interval."""

    def number(most: int) -> Fraction:
        return Fraction(chance.randint(-most, most), chance.choice((1, 2, 3, 8, 10)))

    rows = [
        tuple(number(5) for _ in range(chance.randint(1, 4))) for _ in range(chance.randint(1, 3))
    ]
    low, high = sorted((number(3) / 2, number(3) / 2))
    return rows, (low, high)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 2), (0, 1), (0, 1), -1), "steps must be an integer from 0 to 1000, got -1"),
        (((1, 2), (0, 1), (0, 1), True), "steps must be an integer from 0 to 1000, got True"),
        (((1, 2), (1, 0), (0, 1), 1), "the source must begin at or below its end, got 1 and 0"),
        (((1, 2), (0, 1), (3, 2), 1), "the target must begin at or below its end, got 3 and 2"),
        (((1, sp.sqrt(2)), (0, 1), (0, 1), 1), "a coefficient must be rational, got sqrt(2)"),
        (((1, 2), (0, sp.pi), (0, 1), 1), "an end of the source must be rational, got pi"),
    ],
)
def test_invalid_arguments(arguments: Any, message: str) -> None:
    coefficients, source, target, steps = arguments
    with pytest.raises(VerificationError) as caught:
        claims.iterate_within(coefficients, source, target, steps=steps)
    assert caught.value.what == message
    assert caught.value.where == "claim iterate_within"

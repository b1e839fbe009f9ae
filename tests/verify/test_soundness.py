"""Random goals: nothing is proved that an exact evaluation finds false, and the other way round.

The goals are drawn small, so that many of them are true by chance, and are judged beside an
evaluation at every step up to 60, or at 200 points. `compare_soundness.py` draws more.
"""

import random
from collections import Counter

import pytest
from flint import fmpq

from closedform.effort import Effort
from closedform.verify.prover import prove
from closedform.verify.terms.build import (
    absolute,
    add,
    both,
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
    lookup,
    maximum,
    minimum,
    multiply,
    negate,
    power,
    rational,
    sign,
    sinpi,
    square_root,
    symbol,
)
from closedform.verify.terms.evaluate import Undefined, holds
from closedform.verify.terms.tree import Sign, Term
from closedform.verify.terms.verdict import Verdict

T = symbol("t", integer=True, sign=Sign.NONNEGATIVE)
N = symbol("n", integer=True, sign=Sign.POSITIVE)
X, Y = symbol("x", sign=Sign.NONNEGATIVE), symbol("y")


def number(chance: random.Random) -> Term:
    return rational(chance.randint(-6, 6), chance.choice((1, 1, 2, 3, 5)))


def drawn(chance: random.Random, leaves: list[Term], depth: int) -> Term:
    """A random number, mostly of operations that are always defined."""
    if depth == 0 or chance.random() < 0.15:
        return chance.choice([*leaves, number(chance)])

    def part() -> Term:
        return drawn(chance, leaves, depth - 1)

    makers = [
        lambda: add(part(), part()),
        lambda: add(part(), part(), part()),
        lambda: multiply(part(), part()),
        lambda: multiply(number(chance), part()),
        lambda: divide(part(), add(multiply(part(), rational(1, 2)), rational(7))),
        lambda: divide(part(), rational(chance.randint(1, 9))),
        lambda: minimum(part(), part()),
        lambda: maximum(part(), part()),
        lambda: absolute(part()),
        lambda: sign(part()),
        lambda: floor(part()),
        lambda: floor_modulo(part(), rational(chance.randint(1, 7))),
        lambda: ite(truth(chance, leaves, depth - 1), part(), part()),
        lambda: cospi(multiply(rational(1, chance.randint(1, 12)), part())),
        lambda: sinpi(multiply(rational(1, chance.randint(1, 12)), part())),
        lambda: power(part(), rational(chance.randint(2, 3))),
        lambda: square_root(absolute(part())),
        lambda: power(rational(chance.randint(1, 9), 5), part()),
        lambda: exp(multiply(rational(-1, 8), absolute(part()))),
        lambda: lookup([1, 4, 2, 3], floor_modulo(floor(part()), rational(4))),
    ]
    return chance.choice(makers)()


def truth(chance: random.Random, leaves: list[Term], depth: int) -> Term:
    relate = chance.choice((less, less_equal, less_equal, equal))
    made = relate(drawn(chance, leaves, depth), drawn(chance, leaves, depth))
    roll = chance.random()
    if roll < 0.1:
        return negate(made)
    if roll < 0.2 and depth > 0:
        return chance.choice((both, either))(made, truth(chance, leaves, depth - 1))
    return made


def points_of_clock(_: random.Random) -> list[dict[str, fmpq]]:
    return [{"t": fmpq(step)} for step in range(60)]


def points_of_all(chance: random.Random) -> list[dict[str, fmpq]]:
    return [
        {
            "t": fmpq(chance.randint(0, 12)),
            "n": fmpq(chance.randint(1, 7)),
            "x": fmpq(chance.randint(0, 12), chance.choice((1, 2, 3))),
            "y": fmpq(chance.randint(-12, 12), chance.choice((1, 2, 3))),
        }
        for _ in range(200)
    ]


def check(goal: Term, verdict: Verdict, points: list[dict[str, fmpq]]) -> None:
    """The verdict beside an evaluation at every point."""
    found = [holds(goal, point) for point in points]
    if verdict.proved:
        false = [point for point, each in zip(points, found, strict=True) if each is False]
        assert not false, f"{goal} is proved by {verdict.grounds}, but false at {false[0]}"
    if verdict.refuted:
        assert verdict.counterexample is not None
        point = {name: fmpq(int(v.p), int(v.q)) for name, v in verdict.counterexample.items()}
        at_point = holds(goal, point)
        assert at_point is False or isinstance(at_point, Undefined)


def judged(goals: int, seed: int, *, clock_only: bool, depth: int) -> Counter[str]:
    chance = random.Random(seed)
    leaves = [T] if clock_only else [T, N, X, Y]
    points = points_of_clock(chance) if clock_only else points_of_all(chance)
    counts: Counter[str] = Counter()
    for _ in range(goals):
        goal = truth(chance, leaves, depth)
        verdict = prove(goal, effort=Effort.of(500_000))
        check(goal, verdict, points)
        counts[verdict.status.value] += 1
    return counts


@pytest.mark.parametrize("seed", range(3))
def test_goals_about_the_clock(seed: int) -> None:
    counts = judged(60, seed, clock_only=True, depth=3)
    assert counts["PROVED"] > 5
    assert counts["REFUTED"] > 5


def test_goals_with_parameters() -> None:
    counts = judged(100, 1, clock_only=False, depth=2)
    assert counts["PROVED"] > 5
    assert counts["REFUTED"] > 5

"""Random sums of random schedules, judged by mpmath: no total that is off is proved."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import mpmath
import sympy as sp

from closedform import Schedule, claims, t
from closedform.verify.terms.verdict import Verdict

CONSTANTS: tuple[sp.Expr, ...] = (
    sp.cos(sp.pi / 7),
    sp.cos(1),
    sp.sin(2),
    sp.exp(-1),
    sp.log(3),
    sp.pi,
    sp.sqrt(2),
    sp.cos(sp.pi / 11) * sp.cos(1),
    1 / (2 + sp.cos(3)),
    sp.cos(sp.sqrt(2) * sp.pi),
)
SLOPES: tuple[sp.Expr, ...] = (
    sp.pi / 7,
    sp.pi / 12,
    2 * sp.pi / 9,
    sp.pi,
    3 * sp.pi,
    2 * sp.pi,
    4 * sp.pi,
    2 * sp.pi + sp.pi / 5,
    -sp.pi / 8,
    -2 * sp.pi,
    sp.Integer(1),
    sp.Rational(1, 3),
    sp.sqrt(2) * sp.pi,
    sp.pi**2,
)
DIGITS = 60
_OFF = mpmath.mpf(10) ** -40
"""Sums of at most 40 numbers below 10**12 in 60 digits are exact to far more digits."""


@dataclass(frozen=True, slots=True)
class Sum:
    """A schedule by its segments, and the number of steps that are summed."""

    segments: tuple[tuple[int, sp.Expr], ...]
    steps: int

    @property
    def schedule(self) -> Schedule:
        """The schedule; the last segment has no end."""
        *first, (_, last) = self.segments
        return Schedule(sp.Piecewise(*((value, t < end) for end, value in first), (last, True)))

    def value(self) -> mpmath.mpf:
        """The sum of the values, by mpmath."""
        functions = [sp.lambdify(t, value, "mpmath") for _, value in self.segments]
        with mpmath.workdps(DIGITS):
            return mpmath.fsum(
                functions[segment_at(self.segments, step)](mpmath.mpf(step))
                for step in range(self.steps)
            )

    def total(self) -> sp.Expr:
        """The sum of the values, as an expression."""
        values = (self.segments[segment_at(self.segments, step)][1] for step in range(self.steps))
        return sp.Add(*(value.subs(t, step) for step, value in enumerate(values)))


def segment_at(segments: Sequence[tuple[int, sp.Expr]], step: int) -> int:
    """Returns the index of the segment of a step; the last one has no end."""
    before = (index for index, (end, _) in enumerate(segments[:-1]) if step < end)
    return next(before, len(segments) - 1)


def drawn_sum(chance: random.Random) -> Sum:
    """Returns a random sum of one to three segments."""
    ends = sorted(chance.sample(range(1, 30), chance.choice((1, 1, 2, 3))))
    segments = tuple((end, _value(chance)) for end in ends)
    return Sum(segments, chance.choice((1, 2, 7, 14, 20, 40)))


def _value(chance: random.Random) -> sp.Expr:
    return sp.Add(*(_factor(chance) * _part(chance) for _ in range(chance.randint(1, 3))))


def _factor(chance: random.Random) -> sp.Expr:
    number = sp.Rational(chance.randint(-9, 9) or 1, chance.choice((1, 2, 10)))
    return number * chance.choice(CONSTANTS) if chance.random() < 0.5 else number


def _part(chance: random.Random) -> sp.Expr:
    match chance.randrange(5):
        case 0:
            return sp.S.One
        case 1:
            return t ** chance.randint(1, 4)
        case 2:
            return sp.Rational(chance.randint(1, 9), chance.choice((5, 10))) ** t
        case 3:
            return sp.exp(-t * sp.Rational(1, chance.randint(1, 9)))
        case _:
            angle = chance.choice(SLOPES) * t + chance.choice((0, 1, sp.pi / 3, sp.pi / 2))
            cosine = chance.choice((sp.cos, sp.sin))(angle)
            return cosine * cosine if chance.random() < 0.1 else cosine


def judged(count: int, seed: int) -> Counter[str]:
    """Returns the counts of verdicts on right and wrong totals.

    Raises:
        AssertionError: A wrong total is proved, or a right one is refuted.
    """
    chance = random.Random(seed)
    counts: Counter[str] = Counter()
    for _ in range(count):
        drawn = drawn_sum(chance)
        value, total = drawn.value(), drawn.total()
        guesses = (
            total,
            total + sp.Rational(1, 10 ** chance.randint(1, 12)),
            total * chance.choice((2, -1)),
            sp.S.Zero,
            sp.Integer(chance.randint(-9, 10**6)),
        )
        for guess in guesses:
            with mpmath.workdps(DIGITS):
                is_right = abs(sp.lambdify((), guess, "mpmath")() - value) < _OFF
            verdict: Verdict = claims.area(drawn.schedule, guess, drawn.steps).verify(effort=0.1)
            counts[f"{'right' if is_right else 'wrong'} {verdict.status.value}"] += 1
            assert not (verdict.proved and not is_right), f"seed {seed}: {drawn} is not {guess}"
            assert not (verdict.refuted and is_right), f"seed {seed}: {drawn} is {guess}"
    return counts

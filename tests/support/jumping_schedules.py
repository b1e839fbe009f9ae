"""Drawn schedules with floors and comparisons of numbers that floats round.

``draw(seed)`` is one of them: a rate that falls at the values of a floor, or that is another one
where a comparison holds, of a logarithm, root, power, exponential, quotient, cosine or product with
an irrational number. Many thresholds are met exactly at a step: ``log(8)/log(2)`` is 3.

>>> draw(0).name
'jumps 0'
"""

import random
from collections.abc import Callable

import sympy as sp

from closedform import expr as cf_expr
from closedform.language import Schedule, t

RATE = sp.Rational(1, 10)

IRRATIONALS = (sp.sqrt(2), sp.sqrt(3), sp.sqrt(5), sp.pi, sp.E, sp.log(2), (1 + sp.sqrt(5)) / 2)

Draw = Callable[[random.Random], sp.Expr]


def _logarithm(rng: random.Random) -> sp.Expr:
    base, start = rng.choice([2, 2, 2, 3, 4, 6, 8, 10]), rng.choice([1, 2, 5, 20, 1000])
    return sp.log(t / start + 1) / sp.log(base)


def _root(rng: random.Random) -> sp.Expr:
    degree = rng.choice([2, 2, 3, 3, 4, 5])
    return sp.Pow(t + rng.choice([0, 1, 3]), sp.Rational(1, degree)) / rng.choice([1, 2, 7, 36])


def _power(rng: random.Random) -> sp.Expr:
    exponent = sp.Rational(rng.choice([2, 3, 4]), rng.choice([3, 5, 7]))
    return (t / rng.choice([10, 100, 640])) ** exponent


def _exponential(rng: random.Random) -> sp.Expr:
    ratio = rng.choice([sp.Rational(9, 10), sp.Rational(1, 2), sp.Rational(99, 100)])
    return rng.choice([8, 20, 100]) * ratio ** (t / rng.choice([1, 7, 100]))


def _decay(rng: random.Random) -> sp.Expr:
    return rng.choice([5, 12, 40]) * sp.exp(-t / rng.choice([10, 250, 4000]))


def _quotient(rng: random.Random) -> sp.Expr:
    a, b, c = (rng.randint(1, 50) for _ in range(3))
    return (a * t + b) / (t + c) * rng.choice([1, 3, 10])


def _product(rng: random.Random) -> sp.Expr:
    factor = rng.choice(IRRATIONALS) / rng.choice([1, 10, 365, 1000])
    return t * factor + rng.choice([0, 0, sp.Rational(1, 3), 2])


def _cosine(rng: random.Random) -> sp.Expr:
    function, period = rng.choice([sp.cos, sp.sin]), rng.choice([6, 12, 60, 300, 1000])
    return rng.choice([1, 2, 5]) * (1 + function(sp.pi * t / period))


def _clamped_cosine(rng: random.Random) -> sp.Expr:
    period = rng.choice([12, 60, 500])
    return rng.choice([2, 10]) * (1 + sp.cos(sp.pi * sp.Min(t, period) / period))


def _rational(rng: random.Random) -> sp.Expr:
    step = sp.Rational(rng.randint(1, 9), rng.choice([10, 100, 7]))
    return sp.Abs(step * t - sp.Rational(rng.randint(1, 500), 10)) / rng.choice([1, 3])


def _root_of_a_polynomial(rng: random.Random) -> sp.Expr:
    a, b, c = rng.randint(0, 3), rng.randint(1, 9), rng.randint(0, 9)
    degree = rng.choice([2, 2, 2, 3])
    return sp.Pow(a * t**2 + b * t + c, sp.Rational(1, degree)) / rng.choice([1, 3, 5, 20])


def _power_of_a_line(rng: random.Random) -> sp.Expr:
    exponent = sp.Rational(rng.choice([3, 3, 2, 4]), rng.choice([2, 2, 3, 5]))
    line = rng.randint(1, 4) * t + rng.randint(0, 5)
    return rng.choice([1, 1, 3, sp.sqrt(2)]) * line**exponent / rng.choice([7, 20, 50, 1000])


def _shifted_root(rng: random.Random) -> sp.Expr:
    a, b = rng.randint(1, 9), rng.randint(0, 9)
    return (sp.sqrt(a * t + b) - rng.randint(0, 3)) / rng.randint(1, 5)


NUMBERS: tuple[Draw, ...] = (
    _logarithm,
    _root,
    _power,
    _exponential,
    _decay,
    _quotient,
    _product,
    _cosine,
    _clamped_cosine,
    _rational,
    _root_of_a_polynomial,
    _power_of_a_line,
    _shifted_root,
)


def _by_floor(rng: random.Random, number: sp.Expr) -> sp.Expr:
    level = rng.choice([sp.floor, sp.floor, sp.ceiling])(number)
    return RATE * sp.Rational(1, 2) ** sp.Min(sp.Max(level, 0), 12)


def _by_comparison(rng: random.Random, number: sp.Expr) -> sp.Expr:
    # A threshold that the number reaches exactly at a step.
    threshold = number.subs(t, rng.choice([1, 3, 7, 10, 26, 63, 100, 999]))
    relation = rng.choice([sp.Lt, sp.Le, sp.Gt, sp.Ge])
    return sp.Piecewise((RATE, relation(number, threshold)), (RATE / 7, True))


def _by_remainder(rng: random.Random, number: sp.Expr) -> sp.Expr:
    width = rng.choice([sp.Integer(1), sp.Integer(2), sp.Rational(1, 2), sp.Rational(3, 10)])
    return RATE * (1 + cf_expr.floor_mod(number, width))


def _by_sign(rng: random.Random, number: sp.Expr) -> sp.Expr:
    return RATE * (2 + sp.sign(number - number.subs(t, rng.choice([4, 9, 31]))))


USES = (_by_floor, _by_floor, _by_comparison, _by_comparison, _by_remainder, _by_sign)


def draw(seed: int) -> Schedule:
    """Returns the schedule of a seed."""
    rng = random.Random(seed)
    number = rng.choice(NUMBERS)(rng)
    return Schedule(rng.choice(USES)(rng, number), name=f"jumps {seed}")

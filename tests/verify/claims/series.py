"""Random tails of schedules whose sums are known, and sums of blocks by numpy as an oracle.

By the integral test c/(t + d)^p has a finite sum where p > 1, and its squares where p > 1/2; the
geometric series where |r| < 1. A factor between two numbers above 0 changes neither.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from closedform import Schedule, t

POWERS = tuple(
    sp.Rational(*pair)
    for pair in ((1, 3), (1, 2), (3, 5), (2, 3), (1, 1), (21, 20), (5, 4), (3, 2), (2, 1), (3, 1))
)


@dataclass(frozen=True, slots=True)
class Tail:
    """A schedule with what is true of its sums.

    Attributes:
        schedule: The schedule.
        diverges: Whether its values add up to infinity.
        square_summable: Whether the sum of its squares is finite.
        is_decided: Whether a verdict is expected; UNKNOWN is none.
    """

    schedule: Schedule
    diverges: bool
    square_summable: bool
    is_decided: bool = True


def drawn_tail(chance: random.Random) -> Tail:
    """Returns a tail behind a random head."""
    kinds: tuple[Callable[[random.Random], tuple[sp.Expr, bool, bool, bool]], ...] = (
        _power,
        _power_times_wave,
        _geometric,
        _wave,
        _spent,
        _ratio,
        _staircase,
        _below_zero,
        _alternating,
        _logarithmic,
    )
    value, diverges, square_summable, is_decided = chance.choice(kinds)(chance)
    first = chance.choice((0, 1, 7, 40))
    head = chance.choice((t / 10, sp.Integer(-5), sp.cos(t), sp.Rational(3, 2)))
    expr = sp.Piecewise((head, t < first), (value, True)) if first else value
    if chance.random() < 0.1:
        return Tail(Schedule(expr, domain=(t < first + 9,)), False, True)
    return Tail(Schedule(expr), diverges, square_summable, is_decided)


def _number(chance: random.Random) -> sp.Rational:
    return sp.Rational(chance.randint(1, 12), chance.choice((1, 2, 7, 100)))


def _power(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    p = chance.choice(POWERS)
    base = t / chance.choice((1, 10)) + _number(chance)
    return _number(chance) * base**-p, p <= 1, 2 * p > 1, True


def _power_times_wave(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    value, diverges, square_summable, _ = _power(chance)
    wave = 2 + sp.cos(t / chance.choice((1, 7, 100)))
    return value * wave, diverges, square_summable, False


def _geometric(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    ratio = sp.Rational(chance.randint(1, 99), 100)
    return _number(chance) * ratio ** (t + 1), False, True, True


def _ratio(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    extra = chance.choice((1, 2))
    value = (t + _number(chance)) / (t**2 + _number(chance)) ** extra
    return value, extra == 1, True, True


def _wave(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    floor = chance.choice((0, 0, 1, _number(chance)))
    height = 1 + sp.cos(2 * sp.pi * t / chance.choice((2, 5, 12)))
    return floor + _number(chance) * height, True, False, True


def _spent(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    return sp.Max(0, _number(chance) - _number(chance) * t), False, True, True


def _staircase(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    ratio = sp.Rational(chance.randint(1, 9), 10)
    return _number(chance) * ratio ** sp.floor(t / chance.choice((2, 30))), False, True, True


def _below_zero(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    value, _, square_summable, is_decided = _power(chance)
    return -value, False, square_summable, is_decided


def _alternating(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    """Its sum is finite by the alternating series test, though not that of its size."""
    p = chance.choice(POWERS)
    return sp.cos(sp.pi * t) / (t + _number(chance)) ** p, False, 2 * p > 1, False


def _logarithmic(chance: random.Random) -> tuple[sp.Expr, bool, bool, bool]:
    """Between 1/t and all powers below it: Bertrand's series."""
    q = chance.choice((1, 2))
    return 1 / ((t + 2) * sp.log(t + 2) ** q), q == 1, True, False


def grows(schedule: Schedule, power: int) -> bool:
    """Whether blocks of twice as many steps have sums that do not fall, by numpy.

    A sum of c/t^p over [n, 2n) is 2^(1 - p) times the one before; one of constants doubles.
    """
    floors = {"FloorDiv": np.floor_divide, "FloorMod": np.mod}
    function: Any = sp.lambdify(t, schedule.bound, [floors, "numpy"])
    first = 2**17
    with np.errstate(all="ignore"):
        steps = np.arange(first, 4 * first, dtype=np.float64)
        values = np.broadcast_to(function(steps), steps.shape).astype(np.float64) ** power
    before, after = values[:first].sum(), values[first:].sum()
    # A line from 1 to 0 ends within the rounding of 1.
    return bool(after > 1e-15 * len(steps) and after > 0.99 * before)

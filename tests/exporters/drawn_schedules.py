"""Drawn schedules of sums, floors and remainders of rational multiples of the step, and judges.

Floors, remainders and comparisons are of rational combinations of integers, whose decisions the
lowering makes exactly; roots, cosines, angles and powers stand outside of them. So a value is wrong
where it is outside of the ball that the arithmetic of its graph can reach.
"""

import random
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import cache

import flint
import numpy as np
import sympy as sp

from closedform.compiler import compile_schedule
from closedform.ir.graph import Array
from closedform.ir.types import LAST_STEP
from closedform.language import Schedule, floor_div, floor_mod, t
from closedform.language.elementary import angle
from closedform.options import GraphOptions
from tests.support import enclosures
from tests.support.engines import run_evaluator, run_onnxruntime, run_torch
from tests.support.graph_kinds import KINDS

_DECIMALS = (sp.Rational(1, 2), sp.Rational(7, 10), sp.Rational(3, 2), sp.Rational(1, 10**4))
_GUARDS = tuple(sp.Rational(1, 10**digits) for digits in (3, 5, 6, 9, 10, 12))
_BASES = (sp.Rational(1, 2), sp.Rational(9, 10), sp.Rational(999, 1000))
_STEPS = (*range(12), 29, 30, 31, 97, 99, 100, 101, 199, 200, 1000, 2**20, 2**24 + 1)
_FAR = (2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**32 + 5, 2**50 - 1, 2**50)


def steps_to(last: int) -> Array:
    """Returns the steps at which schedules are compared: small ones, and those near the ends."""
    return np.array([step for step in (*_STEPS, *_FAR) if step <= last])


class _Draw:
    """Random parts of one schedule."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def divisor(self) -> sp.Integer:
        return sp.Integer(self.random.choice([2, 3, 7, 26, 30, 31, 97, 100, 1000, 98_000]))

    def rational(self) -> sp.Rational:
        number = sp.Rational(self.random.randrange(1, 100), self.random.choice([1, 7, 10, 100]))
        return number * self.random.choice([1, 1, 1, -1])

    def combination(self, depth: int) -> sp.Expr:
        """A rational combination of integers, perhaps with a guard against rounding."""
        factor = self.random.choice([1 / self.divisor(), self.rational(), *_DECIMALS])
        total = factor * self.integer(depth)
        if self.random.random() < 0.4:
            total += self.random.choice([-1, 1, 1]) * self.random.choice(_GUARDS)
        if self.random.random() < 0.4:
            total += self.rational()
        return total

    def integer(self, depth: int) -> sp.Expr:
        """An integer at every step."""
        if depth == 0:
            return self.random.choice([t, t, t + 1, t - self.divisor(), self.divisor() - t])
        inner = self.combination(depth - 1)
        match self.random.randrange(7):
            case 0:
                return sp.floor(inner)
            case 1:
                return sp.ceiling(inner)
            case 2:
                return floor_mod(self.integer(depth - 1), self.divisor())
            case 3:
                return floor_div(inner, self.random.choice([self.divisor(), sp.Rational(3, 10)]))
            case 4:
                return sp.Min(self.integer(depth - 1), self.divisor())
            case 5:
                return sp.Abs(self.integer(depth - 1))
            case _:
                return self.integer(depth - 1) - 2 * self.integer(depth - 1)

    def real(self, depth: int) -> sp.Expr:
        """A number: what a graph may round."""
        if depth == 0:
            return self.combination(1)
        inner = self.real(depth - 1)
        match self.random.randrange(13):
            case 0:
                return self.combination(2)
            case 1:
                return floor_mod(self.combination(1), abs(self.rational()))
            case 2:
                return sp.floor(100 * self.combination(1) + sp.Rational(1, 2)) / 100
            case 3:
                return sp.Max(inner, self.rational())
            case 4:
                return sp.Abs(inner)
            case 5:
                return self.rational() * inner + self.real(depth - 1)
            case 6:
                return sp.sqrt(sp.Abs(self.integer(1)))
            case 7:
                return sp.cos(sp.pi * self.integer(1) / self.divisor())
            case 8:
                return self.random.choice(_BASES) ** sp.Min(sp.Abs(self.integer(1)), 40)
            case 9:
                return sp.atan(self.combination(1))
            case 10:
                return angle(self.integer(1), self.integer(1))
            case _:
                test = self.random.choice([sp.Lt, sp.Le, sp.Gt, sp.Ge])(
                    self.combination(1), self.rational()
                )
                return sp.Piecewise((inner, test), (self.real(depth - 1), True))


def drawn_schedule(seed: int) -> Schedule:
    """Returns a schedule that depends on the step, the same for a seed."""
    draw = _Draw(seed)
    expr = sp.Integer(0)
    while not expr.free_symbols:
        expr = sp.sympify(draw.real(2))
    return Schedule(expr, name=f"drawn_{seed}")


_BITS = {"f64": enclosures.BITS, "pairs": 38, "f32": 17}
"""Bits of the balls: those of a float or pair, less 7 or 10 for the errors of operations."""


@cache
def _ball(schedule: Schedule, bits: int, step: int) -> flint.arb | None:
    before, enclosures.BITS = enclosures.BITS, bits
    values = {t: Fraction(step)}
    try:
        ball: flint.arb = enclosures.enclosure(schedule.expr, values)
        return ball + flint.arb(0, 2.0**-bits * _cancelled(schedule.expr, values))
    except (enclosures.UndecidedError, ZeroDivisionError):
        return None
    finally:
        enclosures.BITS = before


def _cancelled(expr: sp.Basic, values: dict[sp.Symbol, Fraction]) -> float:
    """The sizes of the terms of sums, to which roundings are relative where terms cancel.

    Balls know the exact values of rational terms, and do not show it.
    """
    if isinstance(expr, sp.Piecewise):
        return _cancelled(enclosures.taken(expr, values), values)
    if not isinstance(expr, sp.Add | sp.Mul | sp.Min | sp.Max | sp.Abs):
        return 0.0
    inner = sum(_cancelled(arg, values) for arg in expr.args)
    if isinstance(expr, sp.Mul):
        return float(abs(expr.as_coeff_Mul()[0])) * inner
    if not isinstance(expr, sp.Add):
        return inner
    sizes = (abs(enclosures.enclosure(arg, values)).upper() for arg in expr.args)
    return inner + float(sum(sizes))


def wrong_values(schedule: Schedule, kind: str, steps: Array, values: Array) -> Iterator[str]:
    """Yields what is wrong with the values of a graph at steps, in words.

    Args:
        schedule: The schedule.
        kind: The kind of its graph, of ``tests.support.graph_kinds``.
        steps: The steps.
        values: The values.
    """
    arithmetic = kind.split()[0]
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        ball = _ball(schedule, _BITS[arithmetic], step)
        if ball is None:
            continue
        if arithmetic != "f64":  # one rounding to float32, and subnormal numbers
            ball = ball + flint.arb(0, abs(ball).upper() * 2.0**-24 + 2.0**-126)
        if not (np.isfinite(value) and (ball + flint.arb(0, 1e-300)).contains(flint.arb(value))):
            yield f"{schedule.name} at {step}: {value}, not in {ball}: {schedule.expr}"


ENGINES = {"evaluator": run_evaluator, "onnxruntime": run_onnxruntime, "torch": run_torch}


def values_of_kind(schedule: Schedule, kind: str) -> dict[str, tuple[Array, Array]]:
    """Returns the steps and the values of a kind of graph, by engine."""
    graph = compile_schedule(schedule, GraphOptions(step_shape=("n",), **KINDS[kind]))
    dtype = graph.inputs[0].type.dtype
    steps = steps_to(LAST_STEP[dtype]).astype(dtype.numpy)
    results = {}
    with np.errstate(all="ignore"):  # branches that are not taken
        for engine, run in ENGINES.items():
            results[engine] = (steps, run(graph, {"step": steps})["value"])
    return results


def exact_share(schedules: Iterable[Schedule]) -> float:
    """Returns the share of points that are decided, of those of ``steps_to``."""
    steps = steps_to(2**50).tolist()
    balls = [_ball(schedule, _BITS["f64"], step) for schedule in schedules for step in steps]
    return sum(ball is not None for ball in balls) / len(balls)

"""Losses as Taylor series with ball coefficients: enclosures, slopes and curvatures.

A series c0 + c1*s + c2*s**2 is the loss along a line of points, x + s*d. Where the coefficients of
x are balls, c1 and c2 enclose the slope and half the curvature along d at each point in the balls.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import sympy as sp
from flint import arb, arb_series, ctx, fmpq

from closedform.analysis.numeric import CompiledCurve
from closedform.errors import DomainError, LimitError
from closedform.ir.types import FloatArray
from closedform.language import Schedule
from closedform.language.aliases import Number
from closedform.language.balls import ball_precision, bounds, whole_number
from closedform.laws.law import (
    AFTER,
    COUNT,
    PREVIOUS,
    RATE,
    TAIL,
    TAIL_SQUARES,
    TOTAL,
    TOTAL_SQUARES,
    Law,
)
from closedform.laws.predicting import check_warmup
from closedform.laws.published import law_of
from closedform.laws.rates import rate_values, run_length
from closedform.magnitude import MOST_BITS
from closedform.verify.claims.reading import read_schedule
from closedform.verify.terms.build import rational, substitute
from closedform.verify.terms.evaluate import UndecidedError, Undefined, compile_steps, value
from closedform.verify.terms.sympy_io import CLOCK, term

Series = Any
"""A series, a ball or an integer."""


@contextmanager
def precision(bits: int, length: int) -> Iterator[None]:
    """Sets the bits of balls, and the number of coefficients of a series."""
    previous = ctx.cap
    ctx.cap = length
    try:
        with ball_precision(bits):
            yield
    finally:
        ctx.cap = previous


def ball(number: sp.Basic) -> arb:
    """Returns a ball around a real number."""
    if isinstance(number, sp.Rational):
        return arb(fmpq(int(number.p), int(number.q)))
    result = value(term(number), {})
    if isinstance(result, Undefined):
        raise DomainError(f"{number} has no value")
    return arb(result)


def coefficient(series: Series, order: int) -> arb:
    """Returns a coefficient of a series, also of a ball, which is a constant one."""
    if isinstance(series, arb_series):
        return series[order]
    return arb(series) if order == 0 else arb(0)


# --- functions of series -----------------------------------------------------------------------


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *operands: functools.reduce(function, operands)


def _power(base: Series, exponent: Series) -> Series:
    whole = whole_number(exponent) if isinstance(exponent, arb) and exponent.is_exact() else None
    if whole is not None and exponent == whole:
        return base**whole
    if isinstance(base, arb) and base.is_zero() and coefficient(exponent, 0) > 0:
        return base
    return (exponent * base.log()).exp()


def _compare(holds: Callable[[Any, Any], Any], fails: Callable[[Any, Any], Any]) -> Any:
    """A comparison of the constant coefficients: true, false, or None where balls overlap."""

    def compare(left: Series, right: Series) -> bool | None:
        low, high = coefficient(left, 0), coefficient(right, 0)
        if holds(low, high):
            return True
        return False if fails(low, high) else None

    return compare


def _branches(*operands: Any) -> Series:
    for branch, condition in zip(operands[::2], operands[1::2], strict=True):
        if condition is None:
            return arb("nan")
        if condition:
            return branch
    return arb("nan")


def _extremum(order: Any) -> Callable[..., Series]:
    def choose(left: Series, right: Series) -> Series:
        is_left = order(left, right)
        if is_left is None:
            return arb("nan")
        return left if is_left else right

    return _fold(choose)


_LESS = _compare(operator.lt, operator.ge)
_LESS_EQUAL = _compare(operator.le, operator.gt)

FUNCTIONS: Mapping[type[sp.Basic], Callable[..., Any]] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.Pow: _power,
    sp.exp: lambda operand: operand.exp(),
    sp.log: lambda operand: operand.log(),
    sp.cos: lambda operand: operand.cos(),
    sp.sin: lambda operand: operand.sin(),
    sp.atan: lambda operand: operand.atan(),
    sp.Piecewise: _branches,
    sp.Min: _extremum(_LESS_EQUAL),
    sp.Max: _extremum(_compare(operator.ge, operator.lt)),
    sp.Lt: _LESS,
    sp.Le: _LESS_EQUAL,
    sp.Gt: _compare(operator.gt, operator.le),
    sp.Ge: _compare(operator.ge, operator.lt),
}
"""Class of SymPy -> its function of series; NaN where balls do not decide a branch."""


def series_program(expr: sp.Expr) -> CompiledCurve:
    """Returns an expression as a program of series."""
    return CompiledCurve(expr, functions=FUNCTIONS, number=ball)


# --- the loss ----------------------------------------------------------------------------------


def loss_series(
    law: Law, point: Mapping[sp.Symbol, arb], rates: Sequence[Series], warmup: int
) -> Series:
    """Returns the loss after all updates as a series, in the precision of the context."""
    updates = len(rates)
    tails: list[Series] = [arb(0)]
    squares: list[Series] = [arb(0)]
    for rate in reversed(rates):
        tails.append(tails[-1] + rate)
        squares.append(squares[-1] + rate * rate)
    totals = {**point, TOTAL: tails[-1], TOTAL_SQUARES: squares[-1]}
    for part in law.sums:
        program = series_program(part.summand)
        total: Series = arb(0)
        end = updates if part.is_of_changes else updates - 1
        for k in range(warmup + 1 if part.is_of_changes else 0, end):
            if part.is_of_changes and rates[k] is rates[k - 1]:
                continue
            count = updates - k
            total += program.value(
                {
                    **point,
                    RATE: rates[k],
                    PREVIOUS: rates[k - 1],
                    TAIL: tails[count],
                    AFTER: tails[count - 1],
                    TAIL_SQUARES: squares[count],
                    COUNT: arb(count),
                }
            )
        totals[part.symbol] = total
    return series_program(law.loss).value(totals)


def rate_balls(schedule: Schedule | Sequence[float] | FloatArray, updates: int) -> list[arb]:
    """Returns balls around the exact rates; equal rates in a row are one object."""
    if isinstance(schedule, Schedule):
        rates = _exact_rates(schedule, updates)
    else:
        rates = (fmpq(*float(rate).as_integer_ratio()) for rate in schedule[:updates])
    balls: list[arb] = []
    last: Any = None
    for rate in rates:
        is_repeated = isinstance(rate, fmpq) and isinstance(last, fmpq) and rate == last
        balls.append(balls[-1] if is_repeated else arb(rate))
        last = rate
    return balls


def _exact_rates(schedule: Schedule, updates: int) -> Iterator[Any]:
    root = read_schedule(schedule).value
    at = compile_steps(root, CLOCK)
    for step in range(updates):
        try:
            rate = at(step)
        except (UndecidedError, ZeroDivisionError):
            rate = value(substitute(root, {CLOCK: rational(step)}), {}, ctx.prec)
        if isinstance(rate, Undefined):
            raise DomainError(
                f"the schedule has no value at t = {step}: {rate.reason}",
                where=f"schedule {schedule.name!r}",
            )
        yield rate


def enclose(
    schedule: Schedule | Sequence[float] | FloatArray,
    law: str | Law,
    parameters: str | Mapping[str, Number] | None = None,
    horizon: int | None = None,
    *,
    warmup: int = 0,
    digits: int = 50,
) -> tuple[Fraction, Fraction]:
    """Returns two numbers between which the loss of the formula lies, of the exact rates.

    ``predict`` rounds the rates and the terms to float64; here each operation is one of balls.

    Args:
        schedule: The schedule, or the rates of the updates.
        law: As in ``predict``.
        parameters: As in ``predict``; a float is the decimal that it prints as.
        horizon: The number of updates of the run; the length of the schedule if not given.
        warmup: As in ``predict``.
        digits: The digits with which balls are computed.

    Raises:
        ClosedFormError: As in ``predict``.

    Example:
        >>> from closedform.schedules import linear
        >>> low, high = enclose(linear(1, 0, 4), "last_iterate", "unit")
        >>> float(low), float(high - low) < 1e-48
        (1.5333333333333334, True)
    """
    declaration = law_of(law)
    check_warmup(declaration, warmup)
    updates = run_length(schedule, horizon)
    values = declaration.values(parameters)
    rate_values(schedule, updates)
    with precision(int(digits * 3.33) + 32, 1):
        point = {symbol: ball(number) for symbol, number in values.items()}
        loss = coefficient(
            loss_series(declaration, point, rate_balls(schedule, updates), warmup), 0
        )
        if not loss.is_finite():
            raise DomainError(
                f"the law has no value after {updates} updates", where=f"law {declaration.name!r}"
            )
        ends = bounds(loss)
        if ends is None:
            raise LimitError(
                f"the loss after {updates} updates has more than {MOST_BITS} bits",
                where=f"law {declaration.name!r}",
                hint="look at the coefficients of the law",
            )
        low, high = (Fraction(int(end.p), int(end.q)) for end in ends)
        return low, high

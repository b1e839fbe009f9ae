"""Losses of a law in float64, and their gradients by the parameters and by the rates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import sympy as sp

from closedform.analysis.numeric import CompiledCurve
from closedform.errors import DomainError
from closedform.ir.types import FloatArray
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
    Summation,
)
from closedform.laws.rates import Rates

Point = Mapping[sp.Symbol, float]
"""Values of the parameters."""

_OF_SUMMANDS = (RATE, PREVIOUS, TAIL, AFTER, TAIL_SQUARES)


class Evaluator:
    """The expressions of a law and their derivatives, as programs in NumPy.

    Args:
        law: The law.
        warmup: The updates whose changes of the rate count nothing.
    """

    def __init__(self, law: Law, warmup: int = 0) -> None:
        self.law = law
        self.warmup = warmup
        self._programs: dict[sp.Expr, CompiledCurve] = {}
        self._slopes: dict[tuple[sp.Expr, sp.Symbol], sp.Expr] = {}

    def loss(self, rates: Rates, point: Point, updates: int) -> float:
        """Returns the loss after so many updates.

        Raises:
            DomainError: The formula has no value there.
        """
        totals = self._totals(rates, point, updates)
        for part in self.law.sums:
            positions = self._positions(part, rates, updates, with_repeats=False)
            atoms = self._atoms(part, rates, positions, updates)
            terms = self._value(part.summand, {**atoms, **point})
            totals[part.symbol] = math.fsum(np.broadcast_to(terms, positions.shape).tolist())
        loss = float(self._value(self.law.loss, totals))
        if not math.isfinite(loss):
            raise DomainError(
                f"the law has no value after {updates} updates",
                where=f"law {self.law.name!r}",
                hint="its formula divides by rates: end above 0, or take a shorter horizon",
            )
        return loss

    def parameter_gradient(self, rates: Rates, point: Point, updates: int) -> FloatArray:
        """Returns the derivatives of the loss by the parameters, in their order."""
        totals, weights = self._linearize(rates, point, updates)
        gradient = [self._value(self._slope(self.law.loss, p), totals) for p in self.law.parameters]
        for part, weight in zip(self.law.sums, weights, strict=True):
            positions = self._positions(part, rates, updates, with_repeats=False)
            symbols = {**self._atoms(part, rates, positions, updates), **point}
            for index, parameter in enumerate(self.law.parameters):
                if part.summand.has(parameter):
                    terms = self._value(self._slope(part.summand, parameter), symbols)
                    gradient[index] = gradient[index] + weight * np.sum(terms)
        return np.array([float(entry) for entry in gradient])

    def rate_gradient(self, rates: Rates, point: Point, updates: int) -> FloatArray:
        """Returns the derivatives of the loss by the rates of the updates."""
        totals, weights = self._linearize(rates, point, updates)
        of_total, of_squares = (
            float(self._value(self._slope(self.law.loss, symbol), totals))
            for symbol in (TOTAL, TOTAL_SQUARES)
        )
        values = rates.values[:updates]
        gradient = of_total + 2 * of_squares * values
        for part, weight in zip(self.law.sums, weights, strict=True):
            positions = self._positions(part, rates, updates, with_repeats=True)
            symbols = {**self._atoms(part, rates, positions, updates), **point}
            for symbol in _OF_SUMMANDS:
                if not part.summand.has(symbol):
                    continue
                slopes = np.zeros(updates + 1)
                slopes[positions] = weight * self._value(self._slope(part.summand, symbol), symbols)
                gradient += _spread(symbol, slopes, values)
        return gradient

    def _linearize(
        self, rates: Rates, point: Point, updates: int
    ) -> tuple[dict[Any, Any], FloatArray]:
        """The sums at a point, and the derivatives of the loss by them."""
        totals = self._totals(rates, point, updates)
        for part in self.law.sums:
            positions = self._positions(part, rates, updates, with_repeats=False)
            symbols = {**self._atoms(part, rates, positions, updates), **point}
            totals[part.symbol] = np.sum(self._value(part.summand, symbols))
        slopes = [self._slope(self.law.loss, part.symbol) for part in self.law.sums]
        return totals, np.array([float(self._value(slope, totals)) for slope in slopes])

    def _totals(self, rates: Rates, point: Point, updates: int) -> dict[sp.Symbol, Any]:
        return {
            **point,
            TOTAL: float(rates.sums.between(0, updates)),
            TOTAL_SQUARES: float(rates.squares.between(0, updates)),
        }

    def _positions(self, part: Summation, rates: Rates, updates: int, *, with_repeats: bool) -> Any:
        """The updates of a sum; those that repeat the rate add nothing, but have derivatives."""
        if not part.is_of_changes:
            return np.arange(updates - 1)
        first = self.warmup + 1
        if with_repeats:
            return np.arange(first, updates)
        return first + np.flatnonzero(np.diff(rates.values[first - 1 : updates]))

    def _atoms(
        self, part: Summation, rates: Rates, positions: Any, updates: int
    ) -> dict[sp.Symbol, Any]:
        atoms: Mapping[sp.Symbol, Callable[[], Any]] = {
            RATE: lambda: rates.values[positions],
            PREVIOUS: lambda: rates.values[np.maximum(positions - 1, 0)],
            TAIL: lambda: rates.sums.between(positions, updates),
            AFTER: lambda: rates.sums.between(positions + 1, updates),
            TAIL_SQUARES: lambda: rates.squares.between(positions, updates),
            COUNT: lambda: (updates - positions).astype(np.float64),
        }
        return {symbol: atoms[symbol]() for symbol in atoms if part.summand.has(symbol)}

    def _slope(self, expr: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
        """The derivative of an expression; SymPy takes milliseconds for one."""
        if (expr, symbol) not in self._slopes:
            self._slopes[expr, symbol] = expr.diff(symbol)
        return self._slopes[expr, symbol]

    def _value(self, expr: sp.Expr, symbols: Mapping[sp.Symbol, Any]) -> Any:
        if expr not in self._programs:
            self._programs[expr] = CompiledCurve(expr)
        with np.errstate(all="ignore"):
            return self._programs[expr].value(symbols)


def _spread(symbol: sp.Symbol, slopes: FloatArray, values: FloatArray) -> FloatArray:
    """Derivatives by the rates from those by a symbol of the summands.

    A rate of update j is in the sums from k on for all k of at most j.
    """
    if symbol == RATE:
        return slopes[:-1]
    if symbol == PREVIOUS:
        return slopes[1:]
    up_to = np.cumsum(slopes[:-1])
    if symbol == AFTER:
        return up_to - slopes[:-1]
    return up_to if symbol == TAIL else 2 * values * up_to

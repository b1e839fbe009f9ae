"""Values of an expression in NumPy, for many values of its hyperparameters at once.

``ir.evaluate`` runs the graph of one schedule whose numbers were rounded when it was lowered. A
search needs the values for thousands of hyperparameters, which vary between two steps of least
squares and are not integers then: each is an array here, in addition to that of the steps, and the
parts that do not depend on a linear hyperparameter are computed once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp

from closedform.ir.types import FloatArray
from closedform.language import t
from closedform.lowering.numpy_functions import NUMPY_FUNCTIONS, ArrayFunction


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, float):
        if exponent == -1:
            return 1 / base
        if exponent == 2:
            return base * base
    # Rounding makes a base that is 0 at the end of a stretch negative: its power is not NaN.
    base = np.where((base < 0) & (base > -_ROUNDING), 0.0, base)
    if isinstance(exponent, float):
        if exponent == 0.5:
            return np.sqrt(base)
        if exponent == -0.5:
            return 1 / np.sqrt(base)
    return np.power(base, exponent)


_ROUNDING = 1e-12
"""A negative base of a power as close to 0 is one that rounding made negative."""


def _branches(*args: Any) -> Any:
    """A Piecewise: values and conditions in turn, the first condition that holds."""
    result: Any = np.nan
    for value, condition in reversed(list(zip(args[::2], args[1::2], strict=True))):
        result = value if condition is True else np.where(condition, value, result)
    return result


_FUNCTIONS: Mapping[type[sp.Basic], ArrayFunction] = {
    **NUMPY_FUNCTIONS,
    sp.Pow: _power,
    sp.Piecewise: _branches,
}


def is_supported(
    expr: sp.Basic, functions: Mapping[type[sp.Basic], ArrayFunction] = _FUNCTIONS
) -> bool:
    """Returns whether a table, that of NumPy if not given, has all functions of an expression."""
    if not expr.args:
        return True
    operands = expr.args
    if isinstance(expr, sp.Piecewise):
        operands = tuple(part for branch in expr.args for part in branch.args)
    return type(expr) in functions and all(is_supported(part, functions) for part in operands)


class CompiledCurve:
    """An expression as a list of calls in NumPy, of which equal parts are computed once.

    Args:
        expr: An expression that ``is_supported``.
        linear: Symbols that ``columns`` sets one at a time.
        values: Values of symbols that do not change.
        functions: Class of SymPy -> its function, for operands other than arrays. That of a
            Piecewise takes the values and the conditions in turn.
        number: The operand that a number of the expression is.
    """

    def __init__(
        self,
        expr: sp.Basic,
        linear: Sequence[sp.Symbol] = (),
        values: Mapping[sp.Symbol, float] | None = None,
        functions: Mapping[type[sp.Basic], ArrayFunction] = _FUNCTIONS,
        number: Callable[[sp.Basic], Any] = float,
    ) -> None:
        self._values = values or {}
        self._functions = functions
        self._number = number
        self.inputs: dict[int, sp.Symbol] = {}
        self.constants: dict[int, Any] = {}
        self.calls: list[tuple[int, ArrayFunction, tuple[int, ...]]] = []
        self.linear = tuple(linear)
        self._places: dict[sp.Basic, int] = {}
        self.result = self._add(expr)
        places = {self._places[symbol] for symbol in linear if symbol in self._places}
        for place, _, args in self.calls:
            if places.intersection(args):
                places.add(place)
        self.early = [call for call in self.calls if call[0] not in places]
        self.late = [call for call in self.calls if call[0] in places]

    def _add(self, part: sp.Basic) -> int:
        if part in self._places:
            return self._places[part]
        args: tuple[int, ...] = ()
        if isinstance(part, sp.Piecewise):
            args = tuple(self._add(operand) for branch in part.args for operand in branch.args)
        elif part.args:
            args = tuple(map(self._add, part.args))
        place = len(self._places)
        self._places[part] = place
        if isinstance(part, sp.Symbol) and part in self._values:
            self.constants[place] = self._values[part]
        elif isinstance(part, sp.Symbol):
            self.inputs[place] = part
        elif part.args:
            self.calls.append((place, self._functions[type(part)], args))
        else:
            is_truth = part in (sp.true, sp.false)
            self.constants[place] = bool(part) if is_truth else self._number(part)
        return place

    def value(self, symbols: Mapping[sp.Symbol, Any]) -> Any:
        """Returns the value where each symbol is an operand of the functions."""
        values = dict(self.constants)
        for place, symbol in self.inputs.items():
            values[place] = symbols[symbol]
        for place, function, args in self.calls:
            values[place] = function(*(values[arg] for arg in args))
        return values[self.result]

    def columns(
        self, symbols: Mapping[sp.Symbol, FloatArray], steps: FloatArray
    ) -> list[FloatArray]:
        """Returns the values with all linear symbols 0, and with each of them 1 and the others 0.

        Args:
            symbols: Other hyperparameter -> its values, of shape (sets, 1).
            steps: The steps, of shape (steps,).

        Returns:
            Values of shape (sets, steps) or ones that broadcast to it; not finite where the
            expression has no value.
        """
        bindings: Mapping[sp.Symbol, Any] = {t: steps, **symbols}
        values: dict[int, Any] = dict(self.constants)
        for place, symbol in self.inputs.items():
            if symbol not in self.linear:
                values[place] = bindings[symbol]
        columns = []
        with np.errstate(all="ignore"):
            for place, function, args in self.early:
                values[place] = function(*(values[arg] for arg in args))
            for varied_symbol in (None, *self.linear):
                for variable in self.linear:
                    if variable in self._places:
                        values[self._places[variable]] = 1.0 if variable is varied_symbol else 0.0
                for place, function, args in self.late:
                    values[place] = function(*(values[arg] for arg in args))
                columns.append(np.asarray(values[self.result], dtype=np.float64))
        return columns


def values_of(expr: sp.Basic, steps: FloatArray) -> FloatArray:
    """Returns the values of an expression without open hyperparameters at steps."""
    return np.broadcast_to(CompiledCurve(expr).columns({}, steps)[0], steps.shape)


def degree(expr: sp.Basic, symbols: frozenset[sp.Symbol]) -> float:
    """Returns the degree of an expression as a polynomial in symbols; infinity if it is none."""
    if expr in symbols:
        return 1
    if not expr.free_symbols & symbols:
        return 0
    if isinstance(expr, sp.Add):
        return max(degree(arg, symbols) for arg in expr.args)
    if isinstance(expr, sp.Mul):
        return sum(degree(arg, symbols) for arg in expr.args)
    if isinstance(expr, sp.Piecewise):
        pairs = [branch.args for branch in expr.args]
        if any(condition.free_symbols & symbols for _, condition in pairs):
            return float("inf")
        return max(degree(value, symbols) for value, _ in pairs)
    return float("inf")

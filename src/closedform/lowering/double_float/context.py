"""The state of a double-float lowering: pairs for reals, the plain lowering for integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.lowering.analysis.annotate import interval, is_integral
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.arithmetic import lower_integer, lower_integral
from closedform.lowering.conditions import COMPARISONS, lower_condition
from closedform.lowering.context import Lowered, Lowering, Rules, lower_once
from closedform.lowering.pair_arithmetic import Arithmetic, Exact, Number

Handler = Callable[["DoubleFloat", sp.Expr, Domain], Number]


class DoubleFloat:
    """The lowering of one scalar expression to double-float numbers.

    Args:
        low: The graph under construction, the values of symbols, and the place for errors; its
            scalars are float32. Integers and conditions are lowered by it.
        handlers: SymPy class to handler.

    Attributes:
        symbols: Symbols whose value is a pair; the others are values of ``low``.
    """

    def __init__(self, low: Lowering, handlers: Mapping[type[sp.Basic], Handler]) -> None:
        rules = Rules({}, lower_integral, lower_condition, self._compare)
        self.low = Lowering(rules, low.builder, low.step, low.place, scalar=DType.F32)
        self.low.symbols = low.symbols  # which may still get others
        self.math = Arithmetic(low.builder)
        self.symbols: dict[sp.Symbol, Number] = {}
        self._handlers = handlers
        self._known: Lowered[Number] = {}

    def number(self, expr: sp.Expr, domain: Domain) -> Number:
        """Lowers an expression."""
        return lower_once(self._known, self.low, expr, domain, self._number)

    def constant(self, number: Exact) -> Number:
        """Adds an exact number."""
        self.low.constant(number)  # raises if it is not finite in float32
        return self.math.constant(number)

    def _number(self, expr: sp.Expr, domain: Domain) -> Number:
        if expr.is_number:
            return self.constant(expr)
        # A Piecewise of integers stays here: its branches may become a table of pairs.
        is_arithmetic = not isinstance(expr, sp.Piecewise)
        if is_arithmetic and is_integral(expr) and self.low.fits_integer(expr, domain):
            return self.integral(expr, domain)
        if isinstance(expr, sp.Symbol) and expr in self.symbols:
            return self.symbols[expr]
        if isinstance(expr, sp.Symbol):
            return Number(self.low.cast(self.low.symbol(expr), DType.F32))
        handler = self._handlers.get(expr.func)
        if handler is None:
            names = ", ".join(sorted(kind.__name__ for kind in self._handlers))
            raise self.low.error(
                f"{expr.func} has no double-float form, in {expr}",
                f"known are {names}; compile with precision='single'",
            )
        return handler(self, expr, domain)

    def integral(self, expr: sp.Expr, domain: Domain) -> Number:
        """Lowers an integer that fits the integer dtype, exactly."""
        largest = interval(expr, domain).absolute().high
        if largest <= 2**24:
            return Number(lower_integral(self.low, expr, domain))
        return self.math.from_integer(lower_integer(self.low, expr, domain), math.ceil(largest))

    def _compare(self, _: Lowering, condition: sp.Basic, domain: Domain) -> Value:
        left, right = (self.number(arg, domain) for arg in condition.args)
        if condition.func is sp.Ne:
            return self.math.emit(Op.NOT, self.math.compare(Op.EQ, left, right))
        op, is_swapped = COMPARISONS[condition.func]
        return (
            self.math.compare(op, right, left) if is_swapped else self.math.compare(op, left, right)
        )

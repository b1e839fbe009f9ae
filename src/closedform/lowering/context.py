"""The state of one lowering: the graph under construction, the values of symbols, the dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import sympy as sp

from closedform.errors import LoweringError
from closedform.ir.graph import Builder, Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape
from closedform.language.exact import to_float, to_odd_float
from closedform.language.integers import FloorDiv
from closedform.language.symbols import t
from closedform.lowering.analysis.annotate import branches, interval, is_integral
from closedform.lowering.analysis.domain import Domain, fits_difference

_LARGEST = {DType.I64: 2**63 - 1, DType.I32: 2**31 - 1}

Prepare = Callable[[sp.Expr, Domain], sp.Expr]
Handler = Callable[["Lowering", sp.Expr, Domain], Value]


@dataclass(frozen=True, slots=True)
class Rules:
    """How classes of expressions are lowered.

    Attributes:
        handlers: SymPy class to handler; the handler returns a float value.
        integral: Handler of scalar expressions that are integers at every step.
        condition: Handler of conditions; returns a bool value.
        comparison: Handler of comparisons that are not of integers; returns a bool value.
    """

    handlers: Mapping[type[sp.Basic], Handler]
    integral: Handler
    condition: Handler
    comparison: Handler


Result = TypeVar("Result")
Lowered = dict[tuple[sp.Basic, Domain], Result | None]
"""The results of expressions by domain; None while one is being lowered."""


def lower_once(
    lowered: Lowered[Result],
    low: Lowering,
    expr: sp.Expr,
    domain: Domain,
    lower: Callable[[sp.Expr, Domain], Result],
) -> Result:
    """Returns what an expression is lowered to, the same wherever it occurs.

    Lowering ends because a handler asks for expressions with fewer functions of its class, or for
    an integer that fits, which is lowered by its structure. A handler that came back to an
    expression inside of it would not end, and is refused.

    Raises:
        LoweringError: The expression is lowered by way of itself.
    """
    key = (expr, domain)
    if key not in lowered:
        lowered[key] = None
        lowered[key] = lower(expr, domain)
    result = lowered[key]
    if result is None:
        raise low.error(
            f"the lowering of {expr} comes back to itself",
            "report it: a handler of its operands must make them simpler",
        )
    return result


class Lowering:
    """One graph under construction.

    Args:
        rules: How classes of expressions are lowered.
        builder: Takes the nodes.
        step: The clock, an integer of any shape.
        place: What is lowered, named in errors.
        scalar: Dtype of scalars, f64 or f32.
        tensor: Dtype of tensors.
        symbols: Values of hyperparameter, tensor and state symbols.
        tensors: Which of the symbols are tensors, in the order in which sums are folded.
        prepare: Applied to each scalar expression inside a tensor expression: binds
            numbers and simplifies.
        scalars: Scalars in the tensor dtype that are lowered already, shared by the lowerings of
            one graph.
        parameter: The shape of the parameter, in a graph of one.
    """

    def __init__(
        self,
        rules: Rules,
        builder: Builder,
        step: Value,
        place: str,
        *,
        scalar: DType = DType.F64,
        tensor: DType = DType.F32,
        symbols: Mapping[sp.Symbol, Value] | None = None,
        tensors: Sequence[sp.Symbol] = (),
        prepare: Prepare | None = None,
        scalars: dict[tuple[sp.Basic, Domain], Value] | None = None,
        parameter: Shape | None = None,
    ) -> None:
        self.rules = rules
        self.builder = builder
        self.step = step
        self.place = place
        self.scalar = scalar
        self.tensor = tensor
        self.symbols = {**(symbols or {}), t: step}
        self.tensor_places = {symbol: place for place, symbol in enumerate(tensors)}
        self.prepare = prepare
        self.parameter = parameter
        self._known: Lowered[Value] = {}
        self._scalars = scalars if scalars is not None else {}
        self._tensor_known: dict[sp.Basic, bool] = {}

    def adopt(self, symbol: sp.Symbol, expr: sp.Expr, domain: Domain, place: str) -> None:
        """Gives a symbol the value of an expression that is lowered by itself.

        Args:
            symbol: The symbol.
            expr: A prepared scalar expression.
            domain: Every step at which the graph may run.
            place: What is lowered, named in errors.
        """
        lowering = Lowering(self.rules, self.builder, self.step, place, scalar=self.scalar)
        self.symbols[symbol] = lowering.real(expr, domain)

    def clock(self) -> Value:
        """Returns the clock as a value of this graph."""
        return self.step

    @property
    def integer(self) -> DType:
        """The integer dtype, that of the step."""
        return self.step.type.dtype

    def error(self, message: str, hint: str | None = None) -> LoweringError:
        """Returns an error that names the place."""
        return LoweringError(message, where=self.place, hint=hint)

    def is_tensor(self, expr: sp.Basic) -> bool:
        """Returns whether an expression depends on tensors."""
        is_known = self._tensor_known.get(expr)
        if is_known is None:
            is_known = any(symbol in self.tensor_places for symbol in expr.free_symbols)
            self._tensor_known[expr] = is_known
        return is_known

    def dtype_of(self, expr: sp.Basic) -> DType:
        """Returns the float dtype of an expression."""
        return self.tensor if self.is_tensor(expr) else self.scalar

    def emit(self, op: Op, *operands: Value) -> Value:
        """Adds a node without attributes."""
        return self.builder.emit(op, *operands)

    def fold(self, op: Op, values: Sequence[Value]) -> Value:
        """Folds values with a binary op from the left."""
        result = values[0]
        for value in values[1:]:
            result = self.emit(op, result, value)
        return result

    def cast(self, value: Value, dtype: DType) -> Value:
        """Returns the value in a dtype; itself if it has it."""
        return value if value.type.dtype is dtype else self.builder.emit(Op.CAST, value, to=dtype)

    def constant(self, number: sp.Expr, dtype: DType | None = None) -> Value:
        """Adds an exact number, rounded once to the scalar dtype or the given one."""
        dtype = self.scalar if dtype is None else dtype
        if dtype.is_integer:
            if abs(int(number)) > _LARGEST[dtype]:
                raise self.error(f"the constant {number} does not fit {dtype}")
            return self.builder.const(int(number), dtype)
        try:
            # A float64 that is rounded to odd makes the rounding to float32 after it correct (Boldo
            # and Melquiond, 2008).
            nearest = to_float(number) if dtype is DType.F64 else to_odd_float(number)
        except OverflowError:
            nearest = float("inf")
        except TypeError:
            raise self.error(f"the constant {number} is not a real number") from None
        # A decimal above the largest float may be the shortest one that is rounded to it.
        with np.errstate(over="ignore"):
            is_finite = bool(np.isfinite(dtype.numpy.type(nearest)))
        if not is_finite:
            raise self.error(f"the constant {number} is not finite in {dtype}")
        return self.builder.const(nearest, dtype)

    def symbol(self, symbol: sp.Symbol) -> Value:
        """Returns the value of a symbol."""
        if symbol not in self.symbols:
            raise self.error(
                f"the symbol {symbol} has no value",
                "bind it, or name it among the inputs of the graph",
            )
        return self.symbols[symbol]

    def fits_integer(self, expr: sp.Expr, domain: Domain) -> bool:
        """Returns whether an integer expression and all in it fit the integer dtype."""
        # Not the least integer, whose negative does not fit.
        limit = _LARGEST[self.integer]
        values = interval(expr, domain)
        if isinstance(expr, sp.Piecewise):
            return all(
                self.fits_integer(value, inside) for value, _, inside in branches(expr, domain)
            )
        is_within = -limit <= values.low and values.high <= limit
        if isinstance(expr, FloorDiv):
            dividends, divisors = (interval(arg, domain) for arg in expr.args)
            is_within = is_within and fits_difference(dividends, divisors, limit)
        return is_within and all(self.fits_integer(arg, domain) for arg in expr.args)

    def real(self, expr: sp.Expr, domain: Domain) -> Value:
        """Lowers an expression to a float value of its dtype."""
        return lower_once(self._known, self, expr, domain, self._real)

    def operand(self, expr: sp.Expr, user: sp.Basic, domain: Domain) -> Value:
        """Lowers an operand of ``user``, in the dtype in which the operands of ``user`` meet."""
        if self.is_tensor(user):
            return self.tensor_value(expr, domain)
        return self.real(expr, domain)

    def tensor_value(self, expr: sp.Expr, domain: Domain) -> Value:
        """Lowers an expression to the tensor dtype.

        A scalar is prepared (bound, simplified), computed in the scalar dtype and rounded
        once.
        """
        if self.is_tensor(expr):
            return self.real(expr, domain)
        key = (expr, domain)
        if key not in self._scalars:
            prepared_expr = expr if self.prepare is None else self.prepare(expr, domain)
            self._scalars[key] = (
                self.constant(prepared_expr, self.tensor)
                if prepared_expr.is_number
                else self.cast(self.real(prepared_expr, domain), self.tensor)
            )
        return self._scalars[key]

    def element_count(self, shape: Shape) -> Value | None:
        """Returns the product of sizes, at least 1, in the tensor dtype; None if one is named."""
        numbers = [size for size in shape if isinstance(size, int)]
        if len(numbers) < len(shape):
            return None
        return self.builder.const(max(math.prod(numbers), 1), self.tensor)

    def condition(self, condition: sp.Basic, domain: Domain) -> Value:
        """Lowers a condition of a Piecewise to a bool value."""
        return self.rules.condition(self, condition, domain)

    def _real(self, expr: sp.Expr, domain: Domain) -> Value:
        if expr.is_number:
            return self.constant(expr)
        # A Piecewise is not arithmetic: its own handler makes tables of many branches.
        is_arithmetic = not self.is_tensor(expr) and not isinstance(expr, sp.Piecewise)
        if is_arithmetic and is_integral(expr) and self.fits_integer(expr, domain):
            return self.rules.integral(self, expr, domain)
        if isinstance(expr, sp.Symbol):
            value = self.symbol(expr)
            return self.cast(value, self.scalar) if value.type.dtype.is_integer else value
        handler = self.rules.handlers.get(expr.func)
        if handler is None:
            names = ", ".join(sorted(kind.__name__ for kind in self.rules.handlers))
            raise self.error(f"{expr.func} cannot be lowered, in {expr}", f"known are {names}")
        return handler(self, expr, domain)

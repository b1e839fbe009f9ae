"""Interpretation of jaxprs: each variable has the value of a traced tensor, or a small array.

Small arrays (coefficients, boundaries) are NumPy arrays of expressions. Tensors of the size of a
parameter have one expression, which the shape of the value broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import sympy as sp
from jax.extend.core import ClosedJaxpr
from sympy.core.relational import Relational

from closedform.errors import ClosedFormError, TraceError
from closedform.importers.optax.jaxprs import (
    Equation,
    callee_of,
    equations_behind,
    is_literal,
    source_of,
)
from closedform.importers.optax.refusals import refusal
from closedform.importers.optax.tables import between, on_tables
from closedform.importers.python.exact import is_decimal
from closedform.importers.python.prover import Prover
from closedform.importers.tensors.algebra import Algebra, Rule, constant
from closedform.importers.tensors.integers import Width
from closedform.importers.tensors.values import Axes, Definitions, Sizes, Value, without_ite
from closedform.language.literals import FORMATS, literal
from closedform.language.symbols import t

Array: TypeAlias = np.ndarray[Any, Any]
"""A small array whose elements are expressions."""

Known: TypeAlias = Value | Array
"""The value of a variable."""

PrimitiveRule: TypeAlias = Callable[..., "Known | list[Known]"]
"""Takes the interpreter, the equation and its operands; returns its result, or a list of them."""

MOST_ELEMENTS = 4096
"""The most elements of a small array."""

MOST_ROUNDS = 128
"""The most rounds of a loop, each of which is a part of the expression."""


_MOST_INTERVALS = 4
_COMPLEMENT_DIGITS = 8
"""A float64 that is 1 less a decimal of more digits may be so by accident."""
_FAR = 2**31


class Interpreter:
    """Computes the values of the variables of jaxprs.

    Args:
        axes: The shapes of the traced parameters.
        definitions: Takes the values that get a name.
        prover: Finds exact constants, and decides conditions on the step.
        rules: The rule of each primitive by name.

    Attributes:
        sizes: Expressions in sizes that constants are, by the identity of the literal.
        has_infinities: Whether a function of the step is infinite where it divides by 0; otherwise
            it has no value there.
        infinite: The values that are infinite at some steps. A zero is +0 there; in JAX it may be
            -0, so schedules are compared at the ends of these steps, whatever becomes of them.
    """

    def __init__(
        self,
        axes: Axes,
        definitions: Definitions,
        prover: Prover,
        rules: Mapping[str, PrimitiveRule],
    ) -> None:
        self.algebra = Algebra(axes, definitions)
        self.prover = prover
        self.rules = rules
        self.sizes: Mapping[int, sp.Expr] = {}
        self.has_infinities = False
        self.infinite: list[sp.Basic] = []
        self._callers: list[Equation] = []
        self._decided: dict[sp.Basic, sp.Basic] = {}

    def run(
        self,
        closed_jaxpr: ClosedJaxpr,
        args: Sequence[Known | None],
        output_places: Sequence[int] | None = None,
        replacements: Mapping[int, Known] | None = None,
    ) -> list[Known | None]:
        """Returns the values of the outputs of a jaxpr.

        Args:
            closed_jaxpr: The jaxpr.
            args: Values of its inputs; None for one that is not used.
            output_places: Places of the outputs that are needed; all if not given. Others are None.
            replacements: By the place of an output: the value that its variable has instead.

        Raises:
            TraceError: An operation has no expression; the message names it, the file and the line.
        """
        jaxpr = closed_jaxpr.jaxpr
        values_by_variable: dict[Any, Known | None] = {}
        places = range(len(jaxpr.outvars)) if output_places is None else output_places
        instead = {
            jaxpr.outvars[place]: value
            for place, value in (replacements or {}).items()
            if not is_literal(jaxpr.outvars[place])
        }

        def read(variable: Any) -> Known | None:
            return self._literal(variable) if is_literal(variable) else values_by_variable[variable]

        for variable, const in zip(jaxpr.constvars, closed_jaxpr.consts, strict=True):
            values_by_variable[variable] = self.of_array(const)
        values_by_variable |= dict(zip(jaxpr.invars, args, strict=True))
        for equation in equations_behind(jaxpr, places):
            operands = [read(variable) for variable in equation.invars]
            results = self._results(equation, operands)
            for variable, result in zip(equation.outvars, results, strict=True):
                values_by_variable[variable] = instead.get(variable, result)
        return [
            read(variable) if place in places else None
            for place, variable in enumerate(jaxpr.outvars)
        ]

    def _results(self, equation: Equation, operands: list[Known | None]) -> Sequence[Known]:
        callee = callee_of(equation)
        name = equation.primitive.name
        if callee is not None:
            self._callers.append(equation)
            inner_results = self.run(callee, operands)
            self._callers.pop()
            return inner_results  # type: ignore[return-value]
        rule = self.rules.get(name)
        try:
            if rule is None:
                raise refusal(name)
            result = rule(self, equation, *operands)
        except TraceError as error:
            if error.where is not None:
                raise
            where = f"{name} in {source_of([equation, *reversed(self._callers)])}"
            raise TraceError(error.what, where=where, hint=error.hint) from error.__cause__
        results: Sequence[Known] = result if isinstance(result, list) else [result]
        return list(map(self._in_width, equation.outvars, results))

    def _in_width(self, variable: Any, value: Known) -> Known:
        """A result as the dtype of its variable holds it."""
        width = Width.of(str(getattr(variable.aval, "dtype", "")))
        if width is None or not width.is_short:
            return value
        return self.map(width.wrap(self.algebra.definitions), value, name="wrapped")

    def _literal(self, literal: Any) -> Known:
        expr = self.sizes.get(id(literal))
        if expr is None:
            # Next to a float32, a float of Python is the number that was written.
            is_written = isinstance(literal.val, float) and literal.aval.dtype == np.float32
            dtype = np.float64 if is_written else literal.aval.dtype
            return self.of_array(np.asarray(literal.val, dtype=dtype))
        self.algebra.is_structural |= any("[" in symbol.name for symbol in expr.free_symbols)
        return Value(expr)

    # --- constants -------------------------------------------------------------------------------

    def of_array(self, array: Any) -> Known:
        """Returns the value of a constant: a number, or an array of numbers.

        Raises:
            TraceError: It has too many elements, or ones that are not numbers.
        """
        numbers = np.asarray(array)
        is_float = str(numbers.dtype) in FORMATS
        if not (is_float or np.issubdtype(numbers.dtype, np.integer) or numbers.dtype == bool):
            raise TraceError(f"a constant of dtype {numbers.dtype} has no expression")
        plain = (numbers.astype(np.float64) if is_float else numbers).reshape(-1).tolist()
        exact = {number: self._exact(number, str(numbers.dtype)) for number in plain or [0]}
        if len(exact) == 1:
            return Value(next(iter(exact.values())))
        return as_array([exact[number] for number in plain], numbers.shape)

    def _exact(self, number: float, dtype: str) -> sp.Basic:
        """The number that a constant stands for; infinities and NaN are themselves.

        Python computes in float64: 1 - 0.999 is 1/1000, and 0.01 / 0.1 is 1/10.
        """
        if not isinstance(number, float) or not math.isfinite(number):
            return constant(number)
        if dtype != "float64":
            return literal(number, dtype)
        complement = 1.0 - number
        is_rounded = is_decimal(complement, _COMPLEMENT_DIGITS) and 1.0 - complement == number
        return 1 - literal(complement) if is_rounded else self.prover.exact(number)

    # --- elementwise -----------------------------------------------------------------------------

    def map(self, rule: Rule, *operands: Known, name: str, is_boolean: bool = False) -> Known:
        """Returns an elementwise function of tensors, or of small arrays and scalars."""
        if not any(isinstance(operand, np.ndarray) for operand in operands):
            result = self.algebra.map(
                lambda *exprs: self.on_elements(rule, exprs),
                *operands,
                name=name,
                is_boolean=is_boolean,
            )
            if not result.is_bool:
                return result
            result = Value(without_ite(result.expr), result.shape)
            return self.on_intervals(result) if result.shape == () else result
        arrays = [as_operand(operand) for operand in operands]
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        rows = zip(*(np.broadcast_to(array, shape).reshape(-1) for array in arrays), strict=True)
        elements = [self.scalar(rule, *row, name=name, is_boolean=is_boolean).expr for row in rows]
        return as_array(elements, shape)

    def on_elements(self, rule: Rule, operands: Sequence[sp.Basic]) -> sp.Basic:
        """Returns a function of scalars, of tables by their elements."""
        table = on_tables(rule, operands, lambda holds: self.on_intervals(Value(holds)).expr)
        result = rule(*operands) if table is None else table
        self.infinite += [result] if self.has_infinities and result.has(sp.oo, -sp.oo) else []
        return result

    def choice_of(self, expr: sp.Basic) -> list[tuple[sp.Basic, sp.Basic]] | None:
        """Returns the branches of a choice among constants, or of what a name stands for."""
        choice = self.algebra.definitions.expressions.get(expr, expr)
        if not isinstance(choice, sp.Piecewise):
            return None
        branches = []
        for value, condition in choice.args:
            inner = [(value, sp.true)] if value.is_number else self.choice_of(value)
            if inner is None:
                return None
            branches += [(constant, sp.And(condition, holds)) for constant, holds in inner]
        return branches

    def scalar(self, rule: Rule, *operands: sp.Basic, name: str, is_boolean: bool = False) -> Value:
        """Returns a function of scalars."""
        values = [Value(operand) for operand in operands]
        result = self.map(rule, *values, name=name, is_boolean=is_boolean)
        if not isinstance(result, Value):
            raise TraceError(f"{name} of scalars is an array")
        return result

    def on_intervals(self, value: Value) -> Value:
        """Returns a condition in only t as intervals of steps, if they are few."""
        condition = value.expr
        if condition in (sp.true, sp.false) or condition.free_symbols != {t}:
            return value
        if condition not in self._decided:
            self._decided[condition] = self._intervals(condition)
        return Value(self._decided[condition])

    def _intervals(self, condition: sp.Basic) -> sp.Basic:
        is_simple = isinstance(condition, Relational) and t in condition.args
        if is_simple and any(arg.is_Integer and 0 < arg < _FAR for arg in condition.args):
            return condition
        try:
            parts = self.prover.split(condition, 0, None)
        except ClosedFormError:  # it holds a function that the prover does not know
            return condition
        if len(parts) > _MOST_INTERVALS or any(part.truth is None for part in parts):
            return condition
        return sp.Or(*(between(part.first, part.end) for part in parts if part.truth))


def places_of(index: sp.Basic) -> list[tuple[int, sp.Basic]] | None:
    """Returns the integers that an index is, each with its condition; None for another index."""
    pairs = index.args if isinstance(index, sp.Piecewise) else [(index, sp.true)]
    is_table = all(place.is_Integer for place, _ in pairs)
    return [(int(place), condition) for place, condition in pairs] if is_table else None


def as_array(elements: Sequence[sp.Basic], shape: Sizes) -> Known:
    """Returns a small array of expressions; one element of rank 0 is a value."""
    array: Array = np.empty(len(elements), dtype=object)
    for place, element in enumerate(elements):
        array[place] = element
    return small_array(array.reshape(shape))


def small_array(array: Array) -> Known:
    """Returns a small array; one of rank 0 is a value."""
    if array.size > MOST_ELEMENTS:
        raise TraceError(
            f"an array of {array.size} constants or expressions has more than {MOST_ELEMENTS}"
        )
    return array if array.shape else Value(array.item())


def as_operand(operand: Known) -> Array:
    """Returns a scalar or a small array as an array.

    Raises:
        TraceError: It is a tensor of the size of a parameter.
    """
    if isinstance(operand, np.ndarray):
        return operand
    if operand.shape != ():
        raise TraceError("a small array and a tensor of the size of a parameter are combined")
    array: Array = np.empty((), dtype=object)
    array[()] = operand.expr
    return array

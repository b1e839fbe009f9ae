"""The algebra of traced tensors: elementwise functions, reductions, products, changes of shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import sympy as sp
from sympy.core.relational import Relational

from closedform.errors import TraceError
from closedform.importers.tensors.values import (
    OTHER_SIZE,
    Axes,
    Definitions,
    Operand,
    Sizes,
    Value,
    shape_expressions,
)
from closedform.language.functions import (
    LikeParam,
    Permute,
    Reshape,
    Rounded,
    Transpose,
    broadcast_to,
    like_param,
    matmul,
    permute,
    reduce_max,
    reduce_mean,
    reduce_sum,
    reshape,
    rounded,
    transpose,
)
from closedform.language.shapes import SIZE
from closedform.language.symbols import exact_number

_LARGEST_SCALAR = 300

Rule = Callable[..., sp.Basic]


class Algebra:
    """Values of the operations of one run.

    Args:
        axes: The shapes of the traced parameters.
        definitions: Takes the values that get a name.
    """

    def __init__(self, axes: Axes, definitions: Definitions) -> None:
        self.axes = axes
        self.definitions = definitions
        self.is_structural = False

    # --- operands ------------------------------------------------------------------------------

    def value(self, operand: Operand) -> Value:
        """Returns the value of an operand: of a value itself, or of a number."""
        return operand if isinstance(operand, Value) else Value(self.number(operand))

    def number(self, number: Operand) -> sp.Basic:
        """Returns the expression of a number that an operation takes."""
        return constant(number)

    def real(self, operand: Operand) -> Value:
        """Returns the value of a tensor or a number; 1 and 0 for truth values."""
        value = self.value(operand)
        if value.items is not None:
            return Value(value.expr, value.shape, tuple(map(self.real, value.items)))
        return Value(as_number(value.expr), value.shape) if value.is_bool else value

    # --- elementwise ---------------------------------------------------------------------------

    def map(self, rule: Rule, *operands: Operand, name: str, is_boolean: bool = False) -> Value:
        """Returns an elementwise function of tensors and numbers."""
        take = self.value if is_boolean else self.real
        values = [take(operand) for operand in operands]
        count = next((len(value.items) for value in values if value.items is not None), None)
        if count is not None:
            return self._map_items(rule, values, count, name, is_boolean=is_boolean)
        shape = broadcast(*(value.shape for value in values))
        return self.define(_apply(rule, [value.expr for value in values]), shape, name)

    def _map_items(
        self, rule: Rule, values: Sequence[Value], count: int, name: str, *, is_boolean: bool
    ) -> Value:
        items = []
        for place in range(count):
            row = [value if value.items is None else value.items[place] for value in values]
            items.append(self.map(rule, *row, name=name, is_boolean=is_boolean))
        return stack_values(items)

    def define(self, expr: sp.Basic, shape: Sizes, name: str) -> Value:
        """Returns a value, a tensor's under a separate name."""
        if isinstance(expr, sp.Expr) and expr.is_number:
            return Value(expr)
        if shape and math.prod(shape) == 1 and isinstance(expr, sp.Expr):
            expr, shape = reshape(expr, ()), ()
        is_short = not isinstance(expr, sp.Expr) or expr.has(sp.oo, -sp.oo)
        if is_short or (shape == () and not _is_longer(expr, _LARGEST_SCALAR)):
            return Value(expr, shape)
        return Value(self.definitions.define(expr, shape, name), shape)

    # --- reductions ----------------------------------------------------------------------------

    def reduce(
        self,
        kind: str,
        operand: Operand,
        sizes: Sizes,
        axes: Sequence[int] | None,
        keepdims: bool = False,
    ) -> Value:
        """Returns a sum, mean or maximum ("sum", "mean", "max") over some axes, None for all.

        Args:
            kind: The reduction.
            operand: A tensor or its value.
            sizes: The tensor's shape, which its value may broadcast to.
            axes: The axes; None or no axes for all.
            keepdims: Whether they stay, with size 1.
        """
        value = self.real(operand)
        rank = len(sizes)
        places = sorted({axis % rank for axis in axes}) if axes and rank else list(range(rank))
        if value.items is not None:
            return _reduced_items(kind, value.items)
        offset = rank - len(value.shape)
        full_shape = (1,) * offset + value.shape
        if offset < 0 or any(n not in (1, size) for n, size in zip(full_shape, sizes, strict=True)):
            raise TraceError(f"the {kind} of elements that a mask selects has no expression")
        reduced_axes = [axis for axis in places if sizes[axis] != 1]
        inner = [axis - offset for axis in reduced_axes if full_shape[axis] != 1]
        count = sp.Mul(
            *(self.axes.size(sizes[axis]) for axis in reduced_axes if full_shape[axis] == 1)
        )
        if (
            full_shape != sizes
            and all(size == 1 for size in full_shape)
            and len(reduced_axes) == rank
        ):
            count = self.axes.size(math.prod(sizes))
        factor = count if kind == "sum" else sp.Integer(1)
        if len(inner) == sum(size != 1 for size in value.shape):
            expr = self._over_all(kind, value) if inner else self._scalar(value).expr
            return self.define(factor * expr, (), kind)
        expr, shape = value.expr, value.shape
        if inner:
            self.is_structural = True
            expr = _REDUCTIONS[kind](expr, tuple(axis - len(shape) for axis in inner), keepdims)
            shape = _without(shape, inner, keepdims=keepdims)
        result = self.define(factor * expr, shape, kind)
        trivial = [
            axis - offset for axis in places if axis >= offset and axis - offset not in inner
        ]
        if keepdims or not trivial:
            return result
        left = tuple(
            size for axis, size in enumerate(value.shape) if axis not in {*trivial, *inner}
        )
        return self.reshape(result, shape, left)

    def _over_all(self, kind: str, value: Value) -> sp.Expr:
        return _REDUCTIONS[kind](self._bare(value.expr))

    def _scalar(self, value: Value) -> Value:
        """A tensor of one element as a value of rank 0."""
        if value.shape == () or value.expr.is_number:
            return Value(value.expr)
        return Value(reshape(value.expr, ()))

    def _bare(self, expr: sp.Expr) -> sp.Expr:
        """A tensor with the same elements as this one, in whatever shape."""
        definition = self.definitions.expressions.get(expr, expr)
        if isinstance(definition, Reshape | LikeParam | Transpose | Permute):
            return self._bare(definition.args[0])
        return expr

    def minimum(
        self, operand: Operand, sizes: Sizes, axes: Sequence[int] | None, keepdims: bool = False
    ) -> Value:
        """Returns the least element over some axes."""
        negative = self.map(lambda a: -a, operand, name="neg")
        largest = self.reduce("max", negative, sizes, axes, keepdims)
        return self.map(lambda a: -a, largest, name="min")

    def norm(
        self,
        operand: Operand,
        sizes: Sizes,
        order: Operand = 2,
        axes: Sequence[int] | None = None,
        keepdims: bool = False,
    ) -> Value:
        """Returns a vector norm over some axes."""
        degree = 2 if order is None or order == "fro" else order
        if degree == math.inf:
            size = self.map(sp.Abs, operand, name="abs")
            return self.reduce("max", size, sizes, axes, keepdims)
        if degree == 2:
            square = self.map(lambda a: a**2, operand, name="square")
            total = self.reduce("sum", square, sizes, axes, keepdims)
            return self.map(sp.sqrt, total, name="norm")
        exponent = self.value(degree).expr
        if degree == 0:
            nonzero = self.map(lambda a: as_number(sp.Ne(a, 0)), operand, name="nonzero")
            return self.reduce("sum", nonzero, sizes, axes, keepdims)
        size = self.map(lambda a: sp.Abs(a) ** exponent, operand, name="power")
        total = self.reduce("sum", size, sizes, axes, keepdims)
        return self.map(lambda a: a ** (1 / exponent), total, name="norm")

    def variance(
        self,
        operand: Operand,
        sizes: Sizes,
        axes: Sequence[int] | None,
        correction: float,
        keepdims: bool,
    ) -> Value:
        """Returns the variance over some axes."""
        mean = self.reduce("mean", operand, sizes, axes, keepdims=True)
        square = self.map(lambda a, m: (a - m) ** 2, operand, mean, name="square")
        places = range(len(sizes)) if not axes else [axis % len(sizes) for axis in axes]
        count = sp.Mul(*(self.axes.size(sizes[axis]) for axis in places))
        if math.prod(sizes[axis] for axis in places) == math.prod(sizes):
            count = self.axes.size(math.prod(sizes))
        total = self.reduce("sum", square, sizes, axes, keepdims)
        return self.map(lambda a: a / (count - constant(correction)), total, name="variance")

    def truth(self, operand: Operand) -> Value:
        """Returns whether the elements are not 0."""
        value = self.value(operand)
        return value if value.is_bool else self.map(lambda a: sp.Ne(a, 0), value, name="mask")

    def is_some(
        self, operand: Operand, sizes: Sizes, axes: Sequence[int] | None, keepdims: bool = False
    ) -> Value:
        """Returns whether some element over some axes is true."""
        numbers = self.map(as_number, self.truth(operand), name="some", is_boolean=True)
        largest = self.reduce("max", numbers, sizes, axes, keepdims)
        return self.map(lambda a: sp.Gt(a, 0), largest, name="any")

    def is_every(
        self, operand: Operand, sizes: Sizes, axes: Sequence[int] | None, keepdims: bool = False
    ) -> Value:
        """Returns whether all elements over some axes are true."""
        # SymPy's negation of a comparison is its opposite, and both are false for NaN.
        none = self.map(_unless, self.truth(operand), name="some", is_boolean=True)
        is_any = self.is_some(none, sizes, axes, keepdims)
        return self.map(sp.Not, is_any, name="all", is_boolean=True)

    # --- products ------------------------------------------------------------------------------

    def matmul(self, a: Operand, a_sizes: Sizes, b: Operand, b_sizes: Sizes) -> Value:
        """Returns the product of two matrices, or batches of them."""
        self.is_structural = True
        left, right = self.whole(a, a_sizes), self.whole(b, b_sizes)
        batch = broadcast(a_sizes[:-2], b_sizes[:-2])
        shape = (*batch, a_sizes[-2], b_sizes[-1])
        return self.define(matmul(left.expr, right.expr), shape, "matmul")

    def whole(self, operand: Operand, sizes: Sizes) -> Value:
        """Returns the value of a tensor, broadcast to the tensor's shape."""
        value = self.real(operand)
        if value.items is not None:
            raise TraceError("scalars that were stacked are used as a tensor")
        if value.shape == sizes:
            return value
        self.is_structural = True
        if math.prod(sizes) == 1:
            return Value(reshape(value.expr, sizes), sizes)
        wide = broadcast_to(value.expr, shape_expressions(self.axes, sizes))
        return self.define(wide, sizes, "broadcast")

    # --- shapes --------------------------------------------------------------------------------

    def reshape(self, operand: Operand, sizes: Sizes, target: Sizes) -> Value:
        """Returns a tensor of this shape in another one."""
        value = self.value(operand)
        if sizes == target or value.shape == ():
            return value
        if value.items is not None:
            if math.prod(target) != math.prod(sizes):
                raise TraceError("scalars that were stacked are used as a tensor")
            return value.items[0] if target == () else value
        if value.is_bool:
            reshaped_mask = self.reshape(self.real(value), sizes, target)
            return self.map(lambda a: sp.Ne(a, 0), reshaped_mask, name="mask")
        if math.prod(value.shape) == 1:
            return self._scalar(value)
        value = self.whole(value, sizes)
        source = self.definitions.expressions.get(value.expr, value.expr)
        if isinstance(source, Reshape | LikeParam):
            if self.shape_of(source.args[0]) == target:
                return Value(source.args[0], target)
            value = Value(source.args[0], sizes)
        if target in (self.axes.shape, self.axes.twin):
            return self.define(like_param(value.expr), target, "like_param")
        target_shape = shape_expressions(self.axes, target)
        if target_shape not in ((SIZE,), (OTHER_SIZE,)):
            self.is_structural = True
        return self.define(reshape(value.expr, target_shape), target, "reshape")

    def shape_of(self, expr: sp.Basic) -> Sizes | None:
        """Returns the shape of a symbol; None if it is not one of a tensor."""
        return self.definitions.shapes.get(expr)

    def permute(self, operand: Operand, sizes: Sizes, order: Sequence[int]) -> Value:
        """Returns a tensor with its axes in another order."""
        value = self.value(operand)
        rank = len(sizes)
        order = tuple(axis % rank for axis in order)
        if value.shape == () or order == tuple(range(rank)):
            return value
        if value.is_bool:
            permuted_mask = self.permute(self.real(value), sizes, order)
            return self.map(lambda a: sp.Ne(a, 0), permuted_mask, name="mask")
        full_shape = (1,) * (rank - len(value.shape)) + value.shape
        if full_shape != value.shape:
            value = self.reshape(value, value.shape, full_shape)
        shape = tuple(full_shape[axis] for axis in order)
        self.is_structural = True
        last_axes_exchanged = (*range(rank - 2), rank - 1, rank - 2)
        source = self.definitions.expressions.get(value.expr, value.expr)
        if order == last_axes_exchanged:
            if isinstance(source, Transpose):
                return Value(source.args[0], shape)
            return self.define(transpose(value.expr), shape, "transpose")
        if isinstance(source, Permute):
            before = [int(axis) for axis in source.args[1]]
            whole = [before[axis] for axis in order]
            if whole == list(range(rank)):
                return Value(source.args[0], shape)
        return self.define(permute(value.expr, order), shape, "permute")

    def round_to(self, value: Value, dtype: str) -> Value:
        """Returns a tensor rounded to a dtype of 16 bits, "bf16" or "f16"."""
        if value.is_bool or (value.expr.is_number and value.expr.is_Integer):
            return self.real(value)
        if value.items is not None:
            return stack_values([self.round_to(item, dtype) for item in value.items])
        result = rounded(value.expr, dtype)
        source = self.definitions.expressions.get(value.expr, value.expr)
        if isinstance(source, Rounded) and source.args[1] == result.args[1]:
            return value
        return self.define(result, value.shape, "rounded")


def stack_values(items: Sequence[Value]) -> Value:
    """Returns the value of a vector of scalars."""
    return Value(sp.Symbol("stacked"), (len(items),), tuple(items))


def as_number(condition: sp.Basic) -> sp.Expr:
    """Returns 1 where a condition holds, 0 elsewhere."""
    if isinstance(condition, sp.Expr):
        return condition
    if condition in (sp.true, sp.false):
        return sp.Integer(int(bool(condition)))
    return sp.Piecewise((1, condition), (0, True))


def truth(operand: sp.Basic) -> sp.Basic:
    """Returns whether a number is not 0; a condition as it is."""
    return sp.Ne(operand, 0) if isinstance(operand, sp.Expr) else operand


def _unless(condition: sp.Basic) -> sp.Expr:
    """0 where a condition holds, 1 elsewhere."""
    if condition in (sp.true, sp.false):
        return sp.Integer(int(condition == sp.false))
    if isinstance(condition, Relational) and not isinstance(condition, sp.Eq | sp.Ne):
        return sp.Piecewise((0, condition), (1, True))
    return as_number(sp.Not(condition))


def broadcast(*shapes: Sizes) -> Sizes:
    """Returns the shape that shapes broadcast to."""
    return tuple(np.broadcast_shapes(*shapes))


def constant(number: Operand) -> sp.Basic:
    """Returns the exact expression of a number of Python; infinities and NaN are themselves."""
    if isinstance(number, bool):
        return sp.true if number else sp.false
    if isinstance(number, float) and not math.isfinite(number):
        return sp.nan if math.isnan(number) else sp.oo if number > 0 else -sp.oo
    return exact_number(number)


def _apply(rule: Rule, operands: Sequence[sp.Basic]) -> sp.Basic:
    """A rule applied to operands, inside the branches of one that is infinite in some."""
    for place, operand in enumerate(operands):
        if isinstance(operand, sp.Piecewise) and operand.has(sp.oo, -sp.oo):
            branches = [
                (_apply(rule, [*operands[:place], value, *operands[place + 1 :]]), condition)
                for value, condition in operand.args
            ]
            return sp.Piecewise(*branches)
    return rule(*operands)


def _is_longer(expr: sp.Basic, limit: int) -> bool:
    return any(count > limit for count, _ in enumerate(sp.preorder_traversal(expr)))


def _without(shape: Sizes, axes: Sequence[int], *, keepdims: bool) -> Sizes:
    if keepdims:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)


_REDUCTIONS: Mapping[str, Callable[..., sp.Expr]] = {
    "sum": reduce_sum,
    "mean": reduce_mean,
    "max": reduce_max,
}


def _reduced_items(kind: str, items: Sequence[Value]) -> Value:
    exprs = [as_number(item.expr) for item in items]
    if kind == "max":
        return Value(sp.Max(*exprs))
    total = sp.Add(*exprs)
    return Value(total if kind == "sum" else total / len(exprs))

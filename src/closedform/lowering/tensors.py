"""Functions of tensors: reductions, products and changes of shape, by the operand's own shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import sympy as sp

from closedform.errors import LoweringError
from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape
from closedform.language import functions
from closedform.language.partitions import Layout
from closedform.language.shapes import other_axes
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.context import Handler, Lowering


def _reduction(low: Lowering, expr: sp.Expr, domain: Domain) -> tuple[Value, tuple[int, ...], bool]:
    """The operand of a reduction, the axes from the first, and whether they stay."""
    operand = low.real(expr.args[0], domain)
    rank = operand.type.rank
    if len(expr.args) == 1:
        return operand, tuple(range(rank)), False
    keepdims = expr.args[2] == sp.true
    if isinstance(expr.args[1], functions.AllBut):
        return operand, tuple(sorted(other_axes(expr.args[1], rank))), keepdims
    axes = [int(axis) for axis in expr.args[1].args]
    for axis in axes:
        if not -rank <= axis < rank:
            raise low.error(
                f"{expr.func} over axis {axis} of {operand.type}: the axis is out of range"
            )
    return operand, tuple(sorted(axis % rank for axis in axes)), keepdims


def _reduce_sum(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand, axes, keepdims = _reduction(low, expr, domain)
    return low.builder.emit(Op.REDUCE_SUM, operand, axes=axes, keepdims=keepdims)


def _reduce_mean(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand, axes, keepdims = _reduction(low, expr, domain)
    total = low.builder.emit(Op.REDUCE_SUM, operand, axes=axes, keepdims=keepdims)
    # The mean of no elements is 0: an empty parameter leaves no NaN in a state.
    count = low.element_count(tuple(operand.type.shape[axis] for axis in axes))
    if count is None:
        raise _shape_error(low, expr, operand)
    return low.emit(Op.DIV, total, low.cast(count, operand.type.dtype))


def _reduce_max(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand, axes, keepdims = _reduction(low, expr, domain)
    # The maximum of no elements is 0, and so is their sum.
    op = Op.REDUCE_MAX if _count(low, expr, operand, axes) else Op.REDUCE_SUM
    return low.builder.emit(op, operand, axes=axes, keepdims=keepdims)


def _count(low: Lowering, expr: sp.Expr, operand: Value, axes: tuple[int, ...]) -> int:
    """The number of elements that are reduced to one."""
    sizes = [operand.type.shape[axis] for axis in axes]
    if not all(isinstance(size, int) for size in sizes):
        raise _shape_error(low, expr, operand)
    return math.prod(int(size) for size in sizes)


def _shape_error(low: Lowering, expr: sp.Expr, operand: Value) -> LoweringError:
    return low.error(f"{expr.func} needs sizes that are numbers, got {operand.type}")


def _transpose(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand = low.real(expr.args[0], domain)
    if operand.type.rank < 2:
        raise low.error(f"transpose needs a matrix, got {operand.type}")
    # Batch axes stay in front.
    order = (*range(operand.type.rank - 2), operand.type.rank - 1, operand.type.rank - 2)
    return low.builder.emit(Op.TRANSPOSE, operand, permutation=order)


def _permute(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand = low.real(expr.args[0], domain)
    order = tuple(int(axis) for axis in expr.args[1].args)
    if len(order) != operand.type.rank:
        raise low.error(f"permute orders {len(order)} axes, got {operand.type}")
    return low.builder.emit(Op.TRANSPOSE, operand, permutation=order)


def _broadcast_to(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand = low.tensor_value(expr.args[0], domain)
    shape = _numbers(low, "broadcast_to", expr.args[1].args)
    if operand.type.shape == shape:
        return operand
    return low.builder.emit(Op.BROADCAST_TO, operand, shape=shape)


def _matmul(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    return low.emit(Op.MATMUL, *(low.real(arg, domain) for arg in expr.args))


def _expand_dims(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand = low.real(expr.args[0], domain)
    axis, rank = int(expr.args[1]), operand.type.rank + 1
    if not -rank <= axis < rank:
        raise low.error(f"{operand.type} cannot get an axis at {axis}")
    shape = list(operand.type.shape)
    shape.insert(axis % rank, 1)
    return _reshape_value(low, operand, tuple(shape))


def _reshape(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    shape = _numbers(low, "reshape", expr.args[1].args)
    # A number in a shape of axes is a tensor; one of rank 0 keeps the dtype of scalars.
    lower = low.tensor_value if shape else low.real
    return _reshape_value(low, lower(expr.args[0], domain), shape)


def _numbers(low: Lowering, function: str, sizes: Sequence[sp.Expr]) -> Shape:
    if not all(size.is_Integer and size >= 0 for size in sizes):
        raise low.error(f"sizes of {function} must be integers >= 0, got {sizes}")
    return tuple(int(size) for size in sizes)


def _like_param(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    return _reshape_value(low, low.real(expr.args[0], domain), _shape_of_parameter(low, expr))


def _shape_of_parameter(low: Lowering, expr: sp.Expr) -> Shape:
    if low.parameter is None:
        raise low.error(f"{expr} has the shape of a parameter, and there is none")
    return low.parameter


def _block(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    layout, place = _layout(low, expr), int(expr.args[1])
    shape = layout.with_groups(sum(layout.sizes))
    value = _reshape_value(low, low.tensor_value(expr.args[0], domain), shape)
    (start, stop), axis = layout.ends(place), layout.joint_axis
    value = low.builder.emit(Op.SLICE, value, axis=axis, start=start, stop=stop)
    return _reshape_value(low, value, layout.block(place))


def _like_block(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    shape = _layout(low, expr).block(int(expr.args[1]))
    return _reshape_value(low, low.real(expr.args[0], domain), shape)


def _join_blocks(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    """The parameter whose blocks are given: each group has a part of every block."""
    layout, parts = _layout(low, expr), []
    for place, size in enumerate(layout.sizes):
        value, shape = low.tensor_value(expr.args[place], domain), layout.block(place)
        if value.type.shape != shape:
            value = low.builder.emit(Op.BROADCAST_TO, value, shape=shape)
        parts.append(_reshape_value(low, value, layout.with_groups(size)))
    return _reshape_value(
        low, low.builder.emit(Op.CONCAT, *parts, axis=layout.joint_axis), layout.shape
    )


def _layout(low: Lowering, expr: sp.Expr) -> Layout:
    return Layout.of(expr.args[-1], _shape_of_parameter(low, expr))


def _reshape_value(low: Lowering, value: Value, shape: Shape) -> Value:
    if value.type.shape == shape:
        return value
    return low.builder.emit(Op.RESHAPE, value, shape=shape)


def _lower_rounding(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand = low.real(expr.args[0], domain)
    rounded_value = low.cast(operand, DType(expr.args[1].name))
    return low.cast(rounded_value, operand.type.dtype)


def _positions(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    operand = low.real(expr.args[0], domain)
    axis, rank = int(expr.args[1]), operand.type.rank
    if rank < 2 or not -rank <= axis < rank:
        raise low.error(f"positions need two axes and axis {axis}, got {operand.type}")
    size = operand.type.shape[axis]
    if not isinstance(size, int):
        raise _shape_error(low, expr, operand)
    shape = tuple(size if place == axis % rank else 1 for place in range(rank))
    # Integers up to 2**24 are exact in float32.
    return low.builder.const(np.arange(size).reshape(shape), operand.type.dtype)


def _uniform(low: Lowering, expr: sp.Expr, domain: Domain) -> Value:
    like, seed = low.real(expr.args[0], domain), int(expr.args[1])
    return low.builder.emit(Op.UNIFORM, like, low.clock(), seed=seed, to=low.tensor)


TENSOR_HANDLERS: Mapping[type[sp.Basic], Handler] = {
    functions.ReduceSum: _reduce_sum,
    functions.ReduceMean: _reduce_mean,
    functions.ReduceMax: _reduce_max,
    functions.MatMul: _matmul,
    functions.Transpose: _transpose,
    functions.Permute: _permute,
    functions.BroadcastTo: _broadcast_to,
    functions.ExpandDims: _expand_dims,
    functions.Reshape: _reshape,
    functions.LikeParam: _like_param,
    functions.Block: _block,
    functions.LikeBlock: _like_block,
    functions.Joined: _join_blocks,
    functions.Rounded: _lower_rounding,
    functions.Positions: _positions,
    functions.Uniform: _uniform,
}
"""How functions of tensors are lowered."""

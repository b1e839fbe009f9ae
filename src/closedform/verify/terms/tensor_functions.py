"""Functions of whole tensors as terms: opaque, and named by the shapes of their operands.

A term of a tensor is its element at one position of the widest shape; a broadcast tensor is read at
its last axes. Elementwise operations and broadcasts then act on numbers. A function of
whole tensors depends on other positions too. Only this is known about it: for operands that are
equal at every position, and of the same shape, its values are equal. The sum over 3 columns of x is
not the sum over 4, and the sum of a number is not the sum of a tensor of this number; therefore the
name contains the shapes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from closedform.verify.terms.build import ZERO, is_rational, multiply, opaque, rational
from closedform.verify.terms.tree import Op, Term

Shape = tuple[int | str, ...]

REDUCE_SUM, REDUCE_MAX, MATMUL = "reduce_sum", "reduce_max", "matmul"
TRANSPOSE, RESHAPE, ROUNDED, POSITIONS = "transpose", "reshape", "rounded", "positions"
UNIFORM, SLICE, CONCAT = "uniform", "slice", "concat"
FUNCTIONS = frozenset({REDUCE_SUM, REDUCE_MAX, MATMUL, TRANSPOSE, RESHAPE, SLICE, CONCAT})
"""The kinds whose elements depend on other elements of their operands."""

OF_ONE_ELEMENT = frozenset({REDUCE_SUM, REDUCE_MAX, TRANSPOSE})
"""The kinds that are their operand where that has one element."""


@dataclass(frozen=True, slots=True)
class TensorFunction:
    """A function of tensors of some shapes.

    Attributes:
        kind: The operation.
        shapes: The shapes of its operands; of a reshape, that of the result as well.
        axes: The axes of a reduction, counted from the first; the order of a transpose; the axis of
            tensors that are joined, and that of a slice, its start and its stop; the seed of random
            numbers.
        dtype: Of a rounding, the target dtype.
    """

    kind: str
    shapes: tuple[Shape, ...] = ()
    axes: tuple[int, ...] = ()
    dtype: str = ""

    def __str__(self) -> str:
        shapes = " ".join(f"[{','.join(map(str, shape))}]" for shape in self.shapes)
        axes = f" axes {','.join(map(str, self.axes))}" if self.axes else ""
        return f"{self.kind} {self.dtype or shapes}{axes}"

    @property
    def factor(self) -> int | None:
        """Its factor where all elements of each operand are equal.

        None where it is not known, or there are no elements.
        """
        sizes = [size for shape in self.shapes for size in shape]
        if self.kind in (ROUNDED, UNIFORM, CONCAT) or not all(
            isinstance(size, int) and size > 0 for size in sizes
        ):
            return None
        if self.kind == REDUCE_SUM:
            return math.prod(int(self.shapes[0][axis]) for axis in self.axes)
        return int(self.shapes[0][-1]) if self.kind == MATMUL else 1


def kind_of(value: Any) -> str:
    """Returns the operation of an opaque function, by its name."""
    return value.kind if isinstance(value, TensorFunction) else str(value)


def reduce_axes(
    kind: str, operand: Term, shape: Shape, axes: Sequence[int], *, keepdims: bool
) -> Term:
    """Returns the sum or maximum over some axes; over axes of size 1 it is the operand.

    Args:
        kind: ``REDUCE_SUM`` or ``REDUCE_MAX``.
        operand: The tensor.
        shape: Its shape.
        axes: The axes, counted from the first.
        keepdims: Whether they stay, with size 1.
    """
    reduced_axes = tuple(axis for axis in sorted(axes) if shape[axis] != 1)
    remaining_shape = tuple(size for axis, size in enumerate(shape) if axis not in reduced_axes)
    result = (
        _reduction(TensorFunction(kind, (shape,), reduced_axes), operand)
        if reduced_axes
        else operand
    )
    target_shape = tuple(
        1 if axis in axes else size
        for axis, size in enumerate(shape)
        if keepdims or axis not in axes
    )
    return reshape(result, remaining_shape, target_shape)


def _reduction(function: TensorFunction, operand: Term) -> Term:
    factor = function.factor
    if is_rational(operand) and factor is not None:
        return multiply(rational(factor), operand)
    return opaque(function, operand)


def reshape(operand: Term, before: Shape, after: Shape) -> Term:
    """Returns a tensor in another shape; axes of size 1 before the others change nothing."""
    if _bare(before) == _bare(after) or is_rational(operand):
        return operand
    if operand.op is Op.OPAQUE and kind_of(operand.value) == RESHAPE:
        return reshape(operand.args[0], operand.value.shapes[0], after)
    function = TensorFunction(RESHAPE, (_bare(before), _bare(after)))
    return opaque(function, operand)


def _bare(shape: Shape) -> Shape:
    # Axes of size 1 in front do not change broadcasting, which aligns shapes at their ends.
    first = next((place for place, size in enumerate(shape) if size != 1), len(shape))
    return shape[first:]


def transpose(operand: Term, shape: Shape, order: tuple[int, ...]) -> Term:
    """Returns a tensor with its axes in another order; that of a transpose is its operand."""
    if order == tuple(range(len(shape))) or is_rational(operand):
        return operand
    if operand.op is Op.OPAQUE and kind_of(operand.value) == TRANSPOSE:
        inner: TensorFunction = operand.value
        # Axis i of the result is axis ``order[i]`` of the inner one, which is
        # ``inner.axes[order[i]]``.
        composed_order = tuple(inner.axes[axis] for axis in order)
        return transpose(operand.args[0], inner.shapes[0], composed_order)
    function = TensorFunction(TRANSPOSE, (shape,), order)
    return opaque(function, operand)


def product(left: Term, right: Term, shapes: tuple[Shape, Shape]) -> Term:
    """Returns the matrix product of two tensors of some shapes."""
    return opaque(TensorFunction(MATMUL, shapes), left, right)


def slice_of(operand: Term, shape: Shape, places: tuple[int, int, int]) -> Term:
    """Returns the part of a tensor of a shape by the axis, the start and the stop."""
    axis, *ends = places
    if ends == [0, shape[axis]] or is_rational(operand):
        return operand
    return opaque(TensorFunction(SLICE, (shape,), places), operand)


def concat(operands: Sequence[Term], shapes: Sequence[Shape], axis: int) -> Term:
    """Returns tensors of some shapes joined along an axis; one number joined stays this number."""
    if len(operands) == 1 or (is_rational(operands[0]) and len(set(operands)) == 1):
        return operands[0]
    return opaque(TensorFunction(CONCAT, tuple(shapes), (axis,)), *operands)


def positions(shape: Shape, axis: int) -> Term:
    """Returns the places along an axis of a shape; along an axis of size 1 they are 0."""
    size = shape[axis]
    if size == 1:
        return rational(0)
    places = tuple(1 for _ in shape[axis % len(shape) + 1 :])
    return opaque(TensorFunction(POSITIONS, ((size, *places),)))


def uniform(step: Term, shape: Shape, seed: int) -> Term:
    """Returns the random numbers of a tensor of a shape at a step."""
    return opaque(TensorFunction(UNIFORM, (shape,), (seed,)), step)


def round_to(operand: Term, dtype: str) -> Term:
    """Returns a number rounded to a storage dtype; zero, or a number of that dtype, is itself."""
    function = TensorFunction(ROUNDED, dtype=dtype)
    if operand == ZERO or (operand.op is Op.OPAQUE and operand.value == function):
        return operand
    return opaque(function, operand)

"""Reductions, products and changes of shape among the primitives of JAX."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp
from sympy.logic.boolalg import Boolean

from closedform.errors import TraceError
from closedform.importers.optax.elementwise import select_value
from closedform.importers.optax.interpreter import (
    MOST_ELEMENTS,
    Array,
    Interpreter,
    Known,
    PrimitiveRule,
    as_array,
    as_operand,
    small_array,
)
from closedform.importers.optax.jaxprs import Equation
from closedform.importers.optax.refusals import concatenation_refusal, refusal
from closedform.importers.tensors.algebra import Algebra, as_number, truth
from closedform.importers.tensors.values import Sizes, Value


def sizes(equation: Equation, place: int = 0) -> Sizes:
    """Returns the shape of an operand."""
    return tuple(equation.invars[place].aval.shape)


def result_sizes(equation: Equation) -> Sizes:
    """Returns the shape of the result."""
    return tuple(equation.outvars[0].aval.shape)


# --- reductions ------------------------------------------------------------------------------

_OF_ARRAYS: Mapping[str, Callable[..., sp.Basic]] = {
    "sum": lambda *parts: sp.Add(*map(as_number, parts)),
    "max": lambda *parts: sp.Max(*parts),
    "min": lambda *parts: sp.Min(*parts),
    "prod": lambda *parts: sp.Mul(*parts),
    "and": lambda *parts: sp.And(*map(truth, parts)),
    "or": lambda *parts: sp.Or(*map(truth, parts)),
}


_OF_TENSORS: Mapping[str, Callable[..., Value]] = {
    "min": Algebra.minimum, "and": Algebra.is_every, "or": Algebra.is_some
}  # fmt: skip


def _reduction(kind: str) -> PrimitiveRule:
    def rule(run: Interpreter, equation: Equation, x: Known) -> Known:
        axes = equation.params["axes"]
        if isinstance(x, np.ndarray):
            return _reduced_array(run, _OF_ARRAYS[kind], x, axes)
        shape = sizes(equation)
        if not axes:
            return x
        if kind in ("sum", "max"):
            return run.algebra.reduce(kind, x, shape, axes)
        if kind in _OF_TENSORS:
            return _OF_TENSORS[kind](run.algebra, x, shape, axes)
        raise TraceError(f"the {kind} of a tensor has no expression")

    return rule


def _reduced_array(
    run: Interpreter, reduce: Callable[..., sp.Basic], x: Array, axes: Sequence[int]
) -> Known:
    remaining = [axis for axis in range(x.ndim) if axis not in axes]
    transposed_array = x.transpose([*remaining, *axes])
    shape = tuple(x.shape[axis] for axis in remaining)
    rows = transposed_array.reshape(math.prod(shape), -1)
    return as_array([run.on_elements(reduce, list(row)) for row in rows], shape)


def _cumulative(kind: str) -> PrimitiveRule:
    def rule(run: Interpreter, equation: Equation, x: Known) -> Known:
        if isinstance(x, Value) and x.expr.is_number:
            x = fill_array(x, sizes(equation))
        if not isinstance(x, np.ndarray) or x.ndim != 1:
            raise TraceError("a cumulative operation on a tensor has no expression")
        row = list(x)[::-1] if equation.params["reverse"] else list(x)
        parts = [run.on_elements(_OF_ARRAYS[kind], row[:end]) for end in range(1, len(row) + 1)]
        return as_array(parts[::-1] if equation.params["reverse"] else parts, x.shape)

    return rule


def _place_of(kind: Callable[..., sp.Basic]) -> PrimitiveRule:
    """The place of the first greatest, or least, element along an axis of a small array."""

    def place(*row: sp.Basic) -> sp.Basic:
        if all(isinstance(element, Boolean) for element in row):
            hits = [element if kind is sp.Ge else sp.Not(element) for element in row]
        else:
            numbers = [*map(as_number, row)]
            # Of the elements before it one is less, or it would have been taken.
            hits = [
                sp.And(*(kind(number, other) for other in numbers[n + 1 :]))
                for n, number in enumerate(numbers)
            ]
        return sp.Piecewise(*((sp.Integer(n), hit) for n, hit in enumerate(hits)), (0, True))

    def rule(run: Interpreter, equation: Equation, x: Known) -> Known:
        if not isinstance(x, np.ndarray):
            raise refusal(equation.primitive.name)
        return _reduced_array(run, place, x, equation.params["axes"])

    return rule


def _dot_general(run: Interpreter, equation: Equation, a: Known, b: Known) -> Known:
    (contracting, batches) = equation.params["dimension_numbers"]
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return _dot_of_arrays(fill_array(a, sizes(equation)), fill_array(b, sizes(equation, 1)))
    # All axes are contracted: an inner product, as jnp.vdot of two tensors.
    if not batches[0] and len(contracting[0]) == len(sizes(equation)) == len(sizes(equation, 1)):
        if len(sizes(equation)) == 1:
            return _inner_product(run, a, b, sizes(equation))
        # dot_general may contract axis 0 with axis 1.
        second = run.algebra.permute(b, sizes(equation, 1), _order(contracting))
        product = run.map(lambda x, y: x * y, a, second, name="product")
        return run.algebra.reduce("sum", product, sizes(equation), None)
    left, right = _sides(equation, contracting, batches)
    count = len(batches[0])
    shapes = [sizes(equation, 0), sizes(equation, 1)]
    rows = [shapes[0][axis] for axis in left[count : len(shapes[0]) - len(contracting[0])]]
    columns = [shapes[1][axis] for axis in right[count + len(contracting[1]) :]]
    inner = math.prod(shapes[0][axis] for axis in contracting[0])
    batch = tuple(shapes[0][axis] for axis in batches[0])
    first = _arrange(run, a, shapes[0], left, (*batch, math.prod(rows), inner))
    second = _arrange(run, b, shapes[1], right, (*batch, inner, math.prod(columns)))
    shape = (*batch, math.prod(rows), math.prod(columns))
    product = run.algebra.matmul(
        first, (*batch, math.prod(rows), inner), second, (*batch, inner, math.prod(columns))
    )
    return run.algebra.reshape(product, shape, result_sizes(equation))


def _sides(equation: Equation, contracting: Any, batches: Any) -> tuple[list[int], list[int]]:
    """The axes of both operands: batch, rows, contracted; batch, contracted, columns."""
    sides = []
    for place in (0, 1):
        special = (*batches[place], *contracting[place])
        free = [axis for axis in range(len(sizes(equation, place))) if axis not in special]
        parts = (free, contracting[place]) if place == 0 else (contracting[place], free)
        sides.append([*batches[place], *parts[0], *parts[1]])
    return sides[0], sides[1]


def _inner_product(run: Interpreter, a: Value, b: Value, operand_shape: Sizes) -> Value:
    """The inner product of two vectors, or of two parameters that were flattened."""
    algebra = run.algebra
    shape = next(
        # Sizes are distinct primes: a product of them belongs to one parameter.
        (s for s in (algebra.axes.shape, algebra.axes.twin) if math.prod(s) == operand_shape[0]),
        operand_shape,
    )
    first, second = (algebra.reshape(x, operand_shape, shape) for x in (a, b))
    product = algebra.map(lambda x, y: x * y, first, second, name="product")
    return algebra.reduce("sum", product, shape, None)


def _order(contracting: Any) -> list[int]:
    """The axes of the second operand in the order of the first."""
    pairs = sorted(zip(*contracting, strict=True))
    return [second for _, second in pairs]


def _arrange(
    run: Interpreter, operand: Value, operand_shape: Sizes, order: Sequence[int], target: Sizes
) -> Value:
    whole = run.algebra.whole(operand, operand_shape)
    permuted_value = run.algebra.permute(whole, operand_shape, order)
    return run.algebra.reshape(permuted_value, tuple(operand_shape[axis] for axis in order), target)


def _dot_of_arrays(a: Array, b: Array) -> Known:
    if a.ndim != 1 or b.ndim != 1:
        raise TraceError("a product of small matrices has no expression")
    return Value(sp.Add(*(as_number(x) * as_number(y) for x, y in zip(a, b, strict=True))))


# --- shapes ----------------------------------------------------------------------------------


def fill_array(x: Known, shape: Sizes) -> Array:
    """A small array of this shape."""
    array = np.broadcast_to(as_operand(x), shape)
    # Each element is an expression of SymPy.
    if array.size > MOST_ELEMENTS:
        raise TraceError("a scalar is used as a large array")
    return array


def padded_shape(value: Value, rank: int) -> Sizes:
    """Returns the shape of a value with axes of size 1 up to a rank."""
    return (1,) * (rank - len(value.shape)) + value.shape


def _broadcast(run: Interpreter, equation: Equation, x: Known, *_: Known) -> Known:
    shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
    operand_shape = sizes(equation)
    if isinstance(x, np.ndarray):
        target = [1] * len(shape)
        for axis, place in enumerate(places):
            target[place] = operand_shape[axis]
        return small_array(np.broadcast_to(x.reshape(target), shape))
    if x.shape == ():
        return x
    spread = [1] * len(shape)
    for size, place in zip(padded_shape(x, len(operand_shape)), places, strict=True):
        spread[place] = size
    return run.algebra.reshape(x, x.shape, tuple(spread))


def _reshape(run: Interpreter, equation: Equation, x: Known, *_: Known) -> Known:
    operand_shape, target = sizes(equation), result_sizes(equation)
    if isinstance(x, np.ndarray):
        return small_array(x.reshape(target))
    if x.shape in ((), operand_shape):
        return run.algebra.reshape(x, operand_shape, target)
    # Only axes of size 1 more or less: a broadcast value stays one.
    if [size for size in operand_shape if size != 1] == [size for size in target if size != 1]:
        pairs = zip(padded_shape(x, len(operand_shape)), operand_shape, strict=True)
        axes_of_value = (n for n, size in pairs if size != 1)
        spread = tuple(1 if size == 1 else next(axes_of_value) for size in target)
        return run.algebra.reshape(x, x.shape, spread)
    return run.algebra.reshape(x, operand_shape, target)


def _transpose(run: Interpreter, equation: Equation, x: Known) -> Known:
    order = equation.params["permutation"]
    if isinstance(x, np.ndarray):
        return small_array(x.transpose(order))
    return run.algebra.permute(x, sizes(equation), order)


def _concatenate(run: Interpreter, equation: Equation, *operands: Known) -> Known:
    if all(isinstance(operand, Value) and operand.shape == () for operand in operands):
        first = operands[0]
        # A constant vector is a number that is broadcast.
        if all(operand == first for operand in operands):
            return first
    if math.prod(result_sizes(equation)) > 64:
        raise concatenation_refusal()
    parts = [fill_array(x, sizes(equation, place)) for place, x in enumerate(operands)]
    return small_array(np.concatenate(parts, axis=equation.params["dimension"]))


def stacked_arrays(parts: Sequence[Known], axis: int = 0) -> Known:
    """Returns an array with a new axis, along which scalars or small arrays are its rows."""
    return small_array(np.stack([as_operand(x) for x in parts], axis=axis))


def _stack(run: Interpreter, equation: Equation, *operands: Known) -> Known:
    if all(isinstance(x, Value) and x.shape == () and x == operands[0] for x in operands):
        return operands[0]
    return stacked_arrays(operands, equation.params["axis"])


def _split(run: Interpreter, equation: Equation, x: Known) -> list[Known]:
    if isinstance(x, Value):
        if x.shape == ():
            return [x for _ in equation.outvars]
        raise TraceError("a slice of a tensor has no expression")
    ends = np.cumsum(equation.params["sizes"])[:-1]
    return [small_array(part) for part in np.split(x, ends, axis=equation.params["axis"])]


def _slice(run: Interpreter, equation: Equation, x: Known) -> Known:
    """A slice of a small array; of a tensor only one that takes all of it."""
    operand_shape = sizes(equation)
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * len(operand_shape)
    if isinstance(x, np.ndarray):
        return small_array(x[tuple(map(slice, starts, limits, strides))])
    if x.shape == () or result_sizes(equation) == operand_shape:
        return x
    raise TraceError("a slice of a tensor has no expression")


def _dynamic_slice(run: Interpreter, equation: Equation, x: Known, *starts: Known) -> Known:
    operand_shape, target = sizes(equation), equation.params["slice_sizes"]
    if isinstance(x, Value):
        if x.shape == () or target == operand_shape:
            return x
        raise TraceError("a slice of a tensor has no expression")
    places = [
        (axis, start)
        for axis, (start, size, full) in enumerate(zip(starts, target, operand_shape, strict=True))
        if size != full
    ]
    if not places:
        return x
    axis, index = places[0]
    if len(places) > 1 or not isinstance(index, Value):
        raise TraceError("a slice at several indices has no expression")
    return take_slice(run, x, axis, index.expr, target[axis])


def take_slice(run: Interpreter, x: Array, axis: int, start: sp.Expr, size: int) -> Known:
    """The elements of an axis from an index on, which may be an expression."""
    # dynamic_slice clamps the start so that the slice fits: there is one part for each start.
    parts = [np.take(x, range(k, k + size), axis=axis) for k in range(x.shape[axis] - size + 1)]
    columns = zip(*(part.reshape(-1) for part in parts), strict=True)
    return as_array([select_value(run, start, column) for column in columns], parts[0].shape)


def _gather(run: Interpreter, equation: Equation, x: Known, indices: Known) -> Known:
    """``x[i]`` of a small array of one axis, or of the first axis of one of several."""
    if isinstance(x, Value) and x.shape == ():
        return x
    numbers = equation.params["dimension_numbers"]
    is_row = numbers.start_index_map == (0,) and numbers.collapsed_slice_dims == (0,)
    if not isinstance(x, np.ndarray) or not is_row or result_sizes(equation) != x.shape[1:]:
        raise TraceError("elements of a tensor that are taken by an index have no expression")
    index = as_operand(indices).reshape(-1)[0]
    rows = take_slice(run, x, 0, index, 1)
    if isinstance(rows, Value):
        return rows
    return small_array(rows.reshape(x.shape[1:]))


def _iota(run: Interpreter, equation: Equation) -> Known:
    shape, axis = equation.params["shape"], equation.params["dimension"]
    if math.prod(shape) > MOST_ELEMENTS:
        raise TraceError("an array of consecutive numbers has no expression")
    counts = np.broadcast_to(
        np.arange(shape[axis]).reshape([-1 if a == axis else 1 for a in range(len(shape))]), shape
    )
    return as_array([sp.Integer(int(n)) for n in counts.reshape(-1)], shape)


def _reverse(run: Interpreter, equation: Equation, x: Known) -> Known:
    if isinstance(x, Value):
        if x.shape == ():
            return x
        raise TraceError("a tensor in reverse has no expression")
    return small_array(np.flip(x, equation.params["dimensions"]))


STRUCTURE: Mapping[str, PrimitiveRule] = {
    "reduce_sum": _reduction("sum"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "reduce_prod": _reduction("prod"),
    "reduce_and": _reduction("and"),
    "reduce_or": _reduction("or"),
    "argmax": _place_of(sp.Ge),
    "argmin": _place_of(sp.Le),
    "cumsum": _cumulative("sum"),
    "cumprod": _cumulative("prod"),
    "cummax": _cumulative("max"),
    "dot_general": _dot_general,
    "broadcast_in_dim": _broadcast,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
    "transpose": _transpose,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "iota": _iota,
    "rev": _reverse,
}
"""The rules of primitives that change shapes, by name."""

"""Exact values of terms of tensors: each element is a fraction, a truth or a ball.

A term is evaluated operation by operation on whole tensors, with the functions of tensors by their
definitions. Nothing is rounded but the ends of balls; an element without a value is ``Undefined``,
one that the balls do not decide is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from flint import arb, fmpq

from closedform.effort import spend
from closedform.errors import VerificationError
from closedform.ir.graph import Array
from closedform.language.balls import ball_precision
from closedform.verify.terms import tensor_functions as functions
from closedform.verify.terms.evaluate import apply_operation, greater, product_of, total_of
from closedform.verify.terms.tree import Op, Term, walk

MOST_ELEMENTS = 4096
"""Elements of one tensor: each is an exact number."""

_PRECISION = 192
_MOST_BITS = 1024
# Units of work for an operation on one element.
_STEP = 3


def tensor_of(numbers: Any, shape: tuple[int, ...] = ()) -> Array:
    """Returns a tensor of exact numbers.

    Args:
        numbers: One number for all elements, or a list of them in order.
        shape: Its shape.
    """
    result = np.empty(shape, dtype=object)
    if isinstance(numbers, list):
        result.ravel()[:] = numbers
    else:
        result.fill(numbers)
    return result


def tensor_values(roots: Iterable[Term], point: Mapping[str, Array]) -> list[Array]:
    """Returns the tensors that terms are at a point.

    Args:
        roots: The terms, of elements of tensors.
        point: The tensor of each symbol by name.

    Raises:
        VerificationError: A symbol has no value, a tensor is too large, or a function of tensors
            is not evaluated.

    Example:
        >>> from flint import fmpq
        >>> from closedform.verify.terms.build import multiply, symbol
        >>> x = symbol("x")
        >>> tensor_values([multiply(x, x)], {"x": tensor_of([fmpq(1, 2), fmpq(3)], (2,))})[0]
        array([1/4, 9], dtype=object)
    """
    terms = list(roots)
    with ball_precision(_PRECISION):
        values: dict[Term, Array] = {}
        for node in walk(*terms):
            values[node] = _value(node, [values[arg] for arg in node.args], point)
    return [values[term] for term in terms]


def _value(node: Term, args: list[Array], point: Mapping[str, Array]) -> Array:
    if node.op is Op.SYMBOL:
        if node.value.name not in point:
            raise VerificationError(f"{node.value.name} has no value")
        return point[node.value.name]
    if node.op is Op.OPAQUE:
        return _function(node, args)
    shape = np.broadcast_shapes(*(arg.shape for arg in args))
    if math.prod(shape) > MOST_ELEMENTS:
        raise VerificationError(f"a tensor of {math.prod(shape)} elements is not evaluated exactly")
    if not args:
        return tensor_of(apply_operation(node, ()))
    operands = [np.broadcast_to(arg, shape).ravel() for arg in args]
    spend(_STEP * math.prod(shape))
    results = [_shortened(apply_operation(node, items)) for items in zip(*operands, strict=True)]
    return tensor_of(results, shape)


def _shortened(result: Any) -> Any:
    """A fraction of many digits as a ball: those of a product of products double."""
    if isinstance(result, fmpq) and result.q.bit_length() + result.p.bit_length() > _MOST_BITS:
        return arb(result)
    return result


_ROUNDED_OR_DRAWN = (functions.ROUNDED, functions.UNIFORM)


def _function(node: Term, args: list[Array]) -> Array:
    function = node.value
    if not isinstance(function, functions.TensorFunction) or function.kind in _ROUNDED_OR_DRAWN:
        raise VerificationError(f"{function} is not evaluated exactly")
    operands = [_with_shape(arg, shape) for arg, shape in zip(args, function.shapes, strict=False)]
    match function.kind:
        case functions.REDUCE_SUM | functions.REDUCE_MAX:
            return _reduce(function, operands[0])
        case functions.RESHAPE:
            return operands[0].reshape([int(size) for size in function.shapes[1]])
        case functions.TRANSPOSE:
            return operands[0].transpose(function.axes)
        case functions.MATMUL:
            return _product(*operands)
        case functions.SLICE:
            axis, start, stop = function.axes
            return operands[0][(*(slice(None),) * axis, slice(start, stop))]
        case functions.CONCAT:
            return np.concatenate(operands, function.axes[0])
        case _:
            raise VerificationError(f"{function} is not evaluated exactly")


def _with_shape(operand: Array, shape: tuple[Any, ...]) -> Array:
    if not all(isinstance(size, int) for size in shape):
        raise VerificationError(f"the sizes {list(shape)} are not numbers")
    while operand.ndim > len(shape) and operand.shape[0] == 1:
        operand = operand[0]
    return np.broadcast_to(operand, shape)


def _reduce(function: functions.TensorFunction, operand: Array) -> Array:
    stacked_axes = [axis for axis in range(operand.ndim) if axis not in function.axes]
    rows = operand.transpose((*stacked_axes, *function.axes))
    shape = rows.shape[: len(stacked_axes)]
    is_sum = function.kind == functions.REDUCE_SUM
    results = [
        total_of(list(items)) if is_sum else reduce(greater, items)
        for items in rows.reshape(math.prod(shape), -1)
    ]
    return tensor_of(results, shape)


def _product(left: Array, right: Array) -> Array:
    shape = (
        *np.broadcast_shapes(left.shape[:-2], right.shape[:-2]),
        left.shape[-2],
        right.shape[-1],
    )
    result = np.empty(shape, dtype=object)
    lefts = np.broadcast_to(left, (*shape[:-2], *left.shape[-2:]))
    rights = np.broadcast_to(right, (*shape[:-2], *right.shape[-2:]))
    for place in np.ndindex(shape):
        rows = lefts[place[:-2]][place[-2]], rights[place[:-2]][:, place[-1]]
        result[place] = total_of([product_of(a, b) for a, b in zip(*rows, strict=True)])
    return result

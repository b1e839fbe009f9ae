"""Operators of ONNX that place elements: slices, joins, paddings, and shapes as tensors."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import z3
from onnx import NodeProto, numpy_helper

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import (
    Index,
    Sum,
    Summand,
    plain,
    restrict,
)
from tests.proofs.gradients.tensors import (
    Indices,
    Result,
    Tensor,
    are_equal_sizes,
    as_index,
    axes_of,
    broadcast,
    check_shapes,
    constant_tensor,
    integers,
    is_one,
    is_within,
    joint_shape,
    without_axes,
)


def transpose(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    """Returns the tensor with its axes in the order of the attribute perm."""
    (operand,) = operands
    rank = len(operand.shape)
    order = list(attributes.get("perm", reversed(range(rank))))
    return Tensor(
        tuple(operand.shape[axis] for axis in order),
        # perm names the operand's axis for each axis of the result; an index goes the inverse way.
        lambda index: operand.at(tuple(index[order.index(axis)] for axis in range(rank))),
        operand.is_real,
    )


def _unsqueeze(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand = operands[0]
    rank = len(operand.shape) + int(str(operands[1].shape[0]) if operands[1].shape else 1)
    axes = axes_of(node, operands, rank)
    rest = iter(operand.shape)
    return Tensor(
        tuple(1 if axis in axes else next(rest) for axis in range(rank)),
        lambda index: operand.at(tuple(i for axis, i in enumerate(index) if axis not in axes)),
        operand.is_real,
    )


def _squeeze(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand = operands[0]
    axes = axes_of(node, operands, len(operand.shape)) or [
        axis for axis, size in enumerate(operand.shape) if is_one(size)
    ]
    return without_axes(operand, axes)


def _shape(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    rank = len(operands[0].shape)
    start, end = attributes.get("start", 0) % (rank + 1), attributes.get("end", rank)
    sizes = operands[0].shape[start : end if end >= 0 else end + rank]

    def at(index: Indices) -> Any:
        result = z3.IntVal(0)
        for place, size in enumerate(sizes):
            result = z3.If(as_index(index[0]) == place, as_index(size), result)
        return z3.simplify(result)

    return Tensor((len(sizes),), at, is_real=False)


def _concat(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    first = operands[0]
    axis = attributes["axis"] % len(first.shape)
    ends: list[Index] = [0]
    for operand in operands:
        across = [(*o.shape[:axis], *o.shape[axis + 1 :]) for o in (first, operand)]
        check_shapes(across[0], across[1], "what is joined")
        ends.append(plain(ends[-1] + operand.shape[axis]))

    def at(index: Indices) -> Any:
        along = as_index(index[axis])
        parts = []
        for operand, start, end in zip(operands, ends, ends[1:], strict=False):
            place = (*index[:axis], z3.simplify(along - start), *index[axis + 1 :])
            parts.append((z3.And(along >= start, along < end), operand.at(place)))
        if first.is_real:
            return tuple(s for condition, value in parts for s in restrict(value, condition))
        result = parts[-1][1]
        for condition, value in reversed(parts[:-1]):
            result = z3.If(condition, value, result)
        return z3.simplify(result)

    shape = (*first.shape[:axis], ends[-1], *first.shape[axis + 1 :])
    return Tensor(shape, at, first.is_real)


def _expand(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand, sizes = operands
    target = Tensor(tuple(integers(sizes)), lambda index: None)
    shape = joint_shape([operand, target])
    return Tensor(shape, lambda index: broadcast(index, operand), operand.is_real)


def _fill(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    value = attributes.get("value")
    array = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    single = constant_tensor(array)
    return Tensor(tuple(integers(operands[0])), lambda index: single.at((0,)), single.is_real)


def _range(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    start, stop, step = (integers(operand)[0] for operand in operands)
    if not isinstance(step, int) or step < 1:
        raise VerificationError("this Range is not read")
    span = as_index(stop) - start
    length = span if step == 1 else (span + step - 1) / step
    return Tensor((plain(length),), lambda index: start + step * index[0], is_real=False)


_FAR = 2**30
"""An end of a slice beyond it is the end of its axis."""


def _slice(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand, starts, stops, axes, *rest = operands
    lows, highs, places = integers(starts), integers(stops), integers(axes)
    steps = integers(rest[0]) if rest else [1] * len(places)
    shape, begin, along = list(operand.shape), [0] * len(operand.shape), [1] * len(operand.shape)
    for low, high, axis, step in zip(lows, highs, places, steps, strict=True):
        size = operand.shape[axis]
        # An axis from its end to its beginning, as in a flip; its stop is before the first element.
        if step == -1 and low == -1:
            shape[axis], begin[axis], along[axis] = size, plain(size - 1), -1
            continue
        if not isinstance(step, int) or step < 1:
            raise VerificationError("this Slice is not read")
        first, last = _bound(low, size), _bound(high, size)
        begin[axis], along[axis] = first, step
        if isinstance(first, int) and isinstance(last, int):
            # The ceiling of (last - first) / step.
            shape[axis] = max(0, -((first - last) // step))
        else:
            span = as_index(last) - first
            length = plain(span if step == 1 else (span + step - 1) / step)
            shape[axis] = 1 if are_equal_sizes(length, 1) else length
    return Tensor(
        tuple(shape),
        lambda index: operand.at(
            tuple(b + s * i for b, s, i in zip(begin, along, index, strict=True))
        ),
        operand.is_real,
    )


def _bound(place: Index, size: Index) -> Index:
    """An end of a slice within an axis."""
    if isinstance(place, int):
        if place >= _FAR:
            return size
        if place < 0:
            return plain(size + place)
        if isinstance(size, int):
            return min(place, size)
        return plain(z3.If(size < place, size, place)) if place else 0
    return place


def _pad(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    operand, amounts = operands[0], integers(operands[1])
    if attributes.get("mode", b"constant") != b"constant" or _is_padded_by_number(operands):
        raise VerificationError("this Pad is not read")
    rank = len(operand.shape)
    axes = integers(operands[3]) if len(operands) > 3 and operands[3] else list(range(rank))
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = amounts[place], amounts[place + len(axes)]

    def at(index: Indices) -> Sum:
        place = tuple(i - b for i, b in zip(index, before, strict=True))
        return restrict(operand.at(place), is_within(place, operand.shape))

    shape = tuple(
        plain(size + b + a) for size, b, a in zip(operand.shape, before, after, strict=True)
    )
    return Tensor(shape, at)


def _is_padded_by_number(operands: Sequence[Tensor | None]) -> bool:
    """Whether the third operand of a Pad is a number other than 0, which an empty sum is."""
    value = operands[2] if len(operands) > 2 else None
    return value is not None and value.at((0,) * len(value.shape)) != ()


def _splits(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> list[Tensor]:
    operand = operands[0]
    axis = attributes.get("axis", 0) % len(operand.shape)
    lengths = integers(operands[1])
    results, start = [], 0
    for length in lengths:
        shape = (*operand.shape[:axis], length, *operand.shape[axis + 1 :])
        results.append(Tensor(shape, _shift(operand, axis, start), operand.is_real))
        start += length
    return results


def _shift(operand: Tensor, axis: int, start: Index) -> Callable[[Indices], Any]:
    return lambda index: operand.at((*index[:axis], index[axis] + start, *index[axis + 1 :]))


def _diagonal_units(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
    offset = attributes.get("k", 0)
    unit = (Summand(Fraction(1)),)
    return Tensor(
        operands[0].shape,
        lambda index: restrict(unit, as_index(index[1]) - index[0] == offset),
    )


def _tile(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    operand, repeats = operands[0], integers(operands[1])
    return Tensor(
        tuple(plain(size * n) for size, n in zip(operand.shape, repeats, strict=True)),
        lambda index: operand.at(
            tuple(
                i if n == 1 else as_index(i) % size
                for i, size, n in zip(index, operand.shape, repeats, strict=True)
            )
        ),
        operand.is_real,
    )


def _identity(node: NodeProto, operands: Sequence[Tensor], _: Any) -> Tensor:
    return operands[0]


LAYOUTS: Mapping[str, Callable[..., Result]] = {
    "Concat": _concat,
    "ConstantOfShape": _fill,
    "EyeLike": _diagonal_units,
    "Expand": _expand,
    "Identity": _identity,
    "Pad": _pad,
    "Range": _range,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _splits,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": transpose,
    "Unsqueeze": _unsqueeze,
}
"""Operators that place elements, by name."""

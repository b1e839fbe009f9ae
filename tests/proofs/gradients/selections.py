"""Operators of ONNX that select numbers of a tensor by their order, on tensors of index sums.

The place of a selected number is a function without a definition: off ties there is one, and it
stays where it is for all small changes of the numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import z3
from onnx import NodeProto

from closedform.errors import VerificationError
from tests.proofs.gradients.index_sums import Index, Sum, plain
from tests.proofs.gradients.nonlinear import (
    place_function,
    places_of_extremes,
)
from tests.proofs.gradients.tensors import (
    Indices,
    Tensor,
    as_index,
    integers,
    is_one,
    operand_index,
    reduced_shape,
)


def _place_of_extreme(name: str) -> Callable[..., Tensor]:
    def compute(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> Tensor:
        (value,) = operands
        rank = len(value.shape)
        axis = attributes.get("axis", 0) % rank
        keeps = bool(attributes.get("keepdims", 1))
        places = places_of_extremes(name, value, [axis])

        def at(index: Indices) -> Any:
            return as_index(places(operand_index(index, [axis], rank, keeps=keeps))[axis])

        return Tensor(reduced_shape(value.shape, [axis], keeps=keeps), at, is_real=False)

    return compute


def _top_numbers(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> list[Tensor]:
    value, counts = operands
    axis = attributes.get("axis", -1) % len(value.shape)
    (count,) = integers(counts)
    if not attributes.get("sorted", 1) and not is_one(count):
        raise VerificationError("a TopK in no order is not read")
    name = "rank from the largest" if attributes.get("largest", 1) else "rank from the smallest"
    place = place_function(name, value, [axis])

    def place_at(index: Indices) -> Any:
        return place(index, as_index(index[axis]), as_index(value.shape[axis]))

    def at(index: Indices) -> Sum:
        element: Sum = value.at((*index[:axis], place_at(index), *index[axis + 1 :]))
        return element

    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    return [Tensor(shape, at), Tensor(shape, place_at, is_real=False, distinct_axis=axis)]


def _max_pool(node: NodeProto, operands: Sequence[Tensor], attributes: Any) -> list[Tensor]:
    (value,) = operands
    kernel = list(attributes["kernel_shape"])
    axes = len(kernel)
    strides = list(attributes.get("strides", [1] * axes))
    dilations = list(attributes.get("dilations", [1] * axes))
    pads = list(attributes.get("pads", [0] * 2 * axes))
    is_plain = attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
    if not is_plain or attributes.get("ceil_mode", 0) or attributes.get("storage_order", 0):
        raise VerificationError("this MaxPool is not read")
    sizes = value.shape[2:]
    spans = [
        dilation * (length - 1) + 1 for dilation, length in zip(dilations, kernel, strict=True)
    ]
    lengths = [
        plain((as_index(size) + pads[a] + pads[a + axes] - spans[a]) / strides[a] + 1)
        for a, size in enumerate(sizes)
    ]
    plane: Index = 1
    for size in sizes:
        plane = size if is_one(plane) else plane * size
    name = f"largest in a window {kernel}, {strides}, {dilations}, {pads}"
    spatial = range(2, 2 + axes)
    is_copy = math.prod(kernel) == 1 and set(strides) == {1} and not any(pads)
    place = None if is_copy else place_function(name, value, spatial)

    def place_at(index: Indices) -> Any:
        """The place in the plane of a channel, in row-major order."""
        if place is not None:
            return place(index, *(as_index(index[a]) for a in spatial), as_index(plane))
        flat: Index = 0
        for a in spatial:
            flat = flat * as_index(value.shape[a]) + as_index(index[a])
        return flat

    def at(index: Indices) -> Sum:
        source = index
        if not is_copy:
            flat, digits = place_at(index), []
            for size in reversed(sizes[1:]):
                digits.append(flat % size)
                flat = flat / size
            source = (*index[:2], flat, *reversed(digits))
        element: Sum = value.at(source)
        return element

    def number_at(index: Indices) -> Any:
        """The place in the whole tensor."""
        channel = as_index(index[0]) * value.shape[1] + index[1]
        return z3.simplify(channel * plane + place_at(index), som=True)

    shape = (*value.shape[:2], *lengths)
    return [Tensor(shape, at), Tensor(shape, number_at, is_real=False)]


SELECTIONS: Mapping[str, Callable[..., Any]] = {
    "ArgMax": _place_of_extreme("largest"),
    "ArgMin": _place_of_extreme("smallest"),
    "MaxPool": _max_pool,
    "TopK": _top_numbers,
}
"""Operators that select by order, by name."""

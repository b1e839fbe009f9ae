"""Operators whose operands are known while a graph is traced: constants, and what sizes make.

The graph that is trained does not contain them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from closedform.importers.onnx_structure import MOST_ENTRIES
from closedform.training.from_onnx import sizes
from closedform.training.from_onnx.values import (
    NUMPY_BY_NUMBER,
    Items,
    Known,
    NodeCall,
    OnnxValue,
    OperatorFunction,
    as_tensor,
)

MOVED: Mapping[str, tuple[int, ...]] = {
    "Concat": (),
    "DepthToSpace": (0,),
    "Expand": (0,),
    "Flatten": (0,),
    "Gather": (0,),
    "GatherElements": (0,),
    "GatherND": (0,),
    "Identity": (0,),
    # Operand 1 has the widths; operand 2 is the number that is put in.
    "Pad": (0, 2),
    "Reshape": (0,),
    "ScatterElements": (0, 2),
    "ScatterND": (0, 2),
    "Slice": (0,),
    "SpaceToDepth": (0,),
    "Split": (0,),
    "Squeeze": (0,),
    "Tile": (0,),
    "Transpose": (0,),
    "Trilu": (0,),
    "Unsqueeze": (0,),
    # The condition chooses and is not moved.
    "Where": (1, 2),
}
"""Operators that move numbers, by the places of the operands that they move; () for all."""

_GROWING = frozenset(
    {"ConstantOfShape", "EyeLike", "Expand", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
)
"""Operators whose results have sizes that are values of operands."""

_LARGEST_PRODUCT = 2**24
"""Of the entries of known operands, which bounds the entries of other results."""

_DRAWING = frozenset({"BatchNormalization", "Dropout"})


def known_results(operator: str, row: OperatorFunction, call: NodeCall) -> Sequence[Known] | None:
    """Returns the results of known operands; None where they stay in the graph.

    1. Of constants, the row of the operator runs in torch, apart from any trace.
    2. A move of sizes is the move of their places.
    3. Other operators on sizes are in ``sizes``.

    A result with more than ``MOST_ENTRIES`` entries, or whose numbers are not all known, stays
    in the graph.
    """
    operands = [value for value in call.operands if value is not None]
    arrays = [value for value in operands if isinstance(value, np.ndarray)]
    entries = math.prod(max(value.size, 1) for value in arrays)
    is_known = len(arrays) == len(operands) and entries <= _LARGEST_PRODUCT
    if not is_known or operator in _DRAWING or not operands:
        return None
    if operator in ("Shape", "Size"):
        return [row(call)]
    if all(value.dtype != object for value in arrays):
        return _of_constants(operator, row, call)
    if operator in MOVED:
        return _move_places(MOVED[operator], row, call)
    result = _compute_sizes(operator, call, arrays)
    return None if result is None else [result]


def _of_constants(operator: str, row: OperatorFunction, call: NodeCall) -> Sequence[Known] | None:
    """The results of a row in torch."""
    with _outside_of_traces():
        # First on fake tensors, which have shapes and no memory: Expand may ask for gigabytes.
        if operator in _GROWING and not _is_small(row, call):
            return None
        return _arrays(row(call))


def _is_small(row: OperatorFunction, call: NodeCall) -> bool:
    """Whether the results are small, by their shapes."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        results = _as_list(row(call))
    return all(math.prod(value.shape) <= MOST_ENTRIES for value in results)


@contextlib.contextmanager
def _outside_of_traces() -> Iterator[None]:
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _arrays(result: Any) -> Sequence[Known] | None:
    """Results of torch as arrays."""
    arrays = []
    for value in _as_list(result):
        if isinstance(value, Items) or (
            isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16
        ):
            return None
        array = value if isinstance(value, np.ndarray) else value.detach().numpy()
        if array.size > MOST_ENTRIES:
            return None
        arrays.append(array)
    return arrays


def _move_places(
    places: Sequence[int], row: OperatorFunction, call: NodeCall
) -> Sequence[Known] | None:
    """The results of a row on the places of the numbers in a list; 0 is the place of a zero."""
    # ScatterElements with a reduction adds numbers instead of moving them.
    if call.attributes.get("reduction", b"none") != b"none":
        return None
    # Pad and Trilu put zeros in, which need a place as well.
    numbers: list[Any] = [0]
    operands: list[OnnxValue | None] = list(call.operands)
    for place in places or range(len(operands)):
        value = operands[place] if place < len(operands) else None
        if not isinstance(value, np.ndarray):
            continue
        operands[place] = np.arange(len(numbers), len(numbers) + value.size).reshape(value.shape)
        numbers += sizes.objects_of(value).ravel().tolist()
    if any(isinstance(value, np.ndarray) and value.dtype == object for value in operands):
        return None
    with _outside_of_traces():
        results = _arrays(row(replace(call, operands=operands)))
    if results is None:
        return None
    return [
        sizes.with_number_dtype(
            sizes.objects_of(result, [numbers[i] for i in result.ravel().tolist()])
        )
        for result in results
    ]


def _compute_sizes(operator: str, call: NodeCall, arrays: Sequence[Known]) -> Known | None:
    if operator in sizes.UNARY:
        return sizes.apply(sizes.UNARY[operator], arrays)
    if operator in sizes.BINARY:
        return sizes.apply(sizes.BINARY[operator], arrays)
    if operator in sizes.REDUCTIONS:
        axes = call.numbers(1, "axes")
        if not axes and call.attributes["noop_with_empty_axes"]:
            return arrays[0]
        array = arrays[0]
        along = [int(axis) % array.ndim for axis in axes] if axes else range(array.ndim)
        keeps = bool(call.attributes["keepdims"])
        return sizes.reduce(sizes.REDUCTIONS[operator], array, along, keeps_axes=keeps)
    if operator == "Cast":
        number = NUMPY_BY_NUMBER.get(call.attributes["to"])
        return None if number is None else sizes.cast(arrays[0], np.dtype(number))
    if operator == "CastLike":
        return sizes.cast(arrays[0], as_tensor(arrays[1]).numpy().dtype)
    return None

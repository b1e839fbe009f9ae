"""Operators that move elements: shapes, indices, windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from closedform.errors import TrainingExportError
from closedform.training.from_onnx.sizes import Quotient
from closedform.training.from_onnx.values import (
    ANOTHER_SOURCE,
    Items,
    Known,
    NodeCall,
    OperatorFunction,
    as_known,
    as_tensor,
)

Tensor = torch.Tensor


def _shape(call: NodeCall) -> Known:
    value = call.operands[0]
    if value is None:
        raise TrainingExportError("its operand 0 is missing", hint=ANOTHER_SOURCE)
    if isinstance(value, Items):
        raise TrainingExportError("a sequence has no shape", hint=ANOTHER_SOURCE)
    sizes = list(value.shape)
    start, end = call.attributes["start"], call.attributes["end"]
    # start and end are attributes from opset 15 on.
    return as_known(sizes[start : len(sizes) if end is None else end])


def _size(call: NodeCall) -> Known:
    count: Any = 1
    # math.prod would turn a symbol into a number.
    for size in call.tensor().shape:
        count = count * size
    return as_known([count], ())


def _reshape(call: NodeCall) -> Tensor:
    value = call.tensor()
    sizes = _sizes(call, 1)
    if not call.attributes["allowzero"]:
        # Without allowzero, 0 copies the size of the input's axis.
        is_zero = [isinstance(size, int) and size == 0 for size in sizes]
        sizes = [
            value.shape[axis] if zero else size
            for axis, (zero, size) in enumerate(zip(is_zero, sizes, strict=True))
        ]
    return value.reshape(sizes)


def _whole(size: Any) -> Any:
    """A size that torch takes: a number of Python, or a symbol."""
    return size if isinstance(size, torch.SymInt) else int(size)


def _sizes(call: NodeCall, place: int) -> list[Any]:
    return [_whole(size) for size in call.known_operand(place).ravel()]


def _flatten(call: NodeCall) -> Tensor:
    value, axis = call.tensor(), call.attributes["axis"]
    axis = axis % value.dim() if axis < 0 else axis
    rows: Any = 1
    columns: Any = 1
    for place, size in enumerate(value.shape):
        rows, columns = (rows * size, columns) if place < axis else (rows, columns * size)
    return value.reshape(rows, columns)


def _transpose(call: NodeCall) -> Tensor:
    value, axes = call.tensor(), call.attributes["perm"]
    # The default of ONNX reverses the axes.
    return value.permute(list(reversed(range(value.dim()))) if axes is None else list(axes))


def _split(call: NodeCall) -> tuple[Tensor, ...]:
    value, axis = call.tensor(), call.attributes["axis"]
    sizes = call.numbers(1, "split")
    if sizes is None:
        # num_outputs is an attribute from opset 18 on; before, the number of results decides.
        count = call.attributes["num_outputs"] or call.results
        step = -(-_whole(value.shape[axis]) // count)
        return tuple(value.split(step, axis))
    return tuple(value.split([_whole(size) for size in sizes], axis))


def _split_to_items(call: NodeCall) -> Items:
    value, axis = call.tensor(), call.attributes["axis"]
    if not call.has(1):
        parts = value.split(1, axis)
        keeps = bool(call.attributes["keepdims"])
        return Items(tuple(parts if keeps else (part.squeeze(axis) for part in parts)))
    sizes = _sizes(call, 1)
    # One number cuts equal parts, a vector gives their sizes.
    return Items(tuple(value.split(sizes if call.known_operand(1).ndim else sizes[0], axis)))


def _slice(call: NodeCall) -> Tensor:
    value = call.tensor()
    starts, ends = (
        list(map(_whole, call.numbers(place, name) or ()))
        for place, name in ((1, "starts"), (2, "ends"))
    )
    axes = call.numbers(3, "axes") or range(len(starts))
    steps = call.numbers(4) or [1] * len(starts)
    for axis, start, end, step in zip(map(int, axes), starts, ends, map(int, steps), strict=True):
        # torch has no slices with a negative step.
        if step < 0:
            length = int(value.shape[axis])
            places = range(*_bounds(length, start, end), step)
            index = torch.tensor(list(places), dtype=torch.int64)
            value = value.index_select(axis, index)
            continue
        # The operator itself: value[…] would ask for a symbol as an index of Python.
        value = torch.ops.aten.slice.Tensor(value, axis, start, end, step)
    return value


def _bounds(length: int, start: int, end: int) -> tuple[int, int]:
    """The first place and the place after the last one of a slice that runs backwards."""
    # −1 is the place before the first one, for slices that reach it.
    first = min(start if start >= 0 else max(start + length, -1), length - 1)
    last = end if end >= 0 else max(end + length, -1)
    return first, min(last, length - 1)


def _positive(index: Tensor, length: Any) -> Tensor:
    return torch.where(index < 0, index + length, index)


def _gather(call: NodeCall) -> Tensor:
    value, index, axis = call.tensor(), call.operands[1], call.attributes["axis"]
    axis = axis % value.dim()
    # A number, not a vector of one: its axis is removed, as by select.
    if isinstance(index, np.ndarray) and index.size == 1 and not index.ndim:
        return value.select(axis, _whole(index.reshape(-1)[0]))
    places = call.tensor(1)
    # Indices that are constants and not negative need no operators.
    if isinstance(index, np.ndarray):
        places = _positive(places, value.shape[axis]) if (index < 0).any() else places
    # A row for each index is an embedding, whose gradient is one of rows.
    if axis == 0 and value.dim() == 2 and value.is_floating_point():
        return functional.embedding(places.long(), value)
    flat = value.index_select(axis, _positive(places, value.shape[axis]).reshape(-1).long())
    return flat.reshape([*value.shape[:axis], *places.shape, *value.shape[axis + 1 :]])


def _gather_elements(call: NodeCall) -> Tensor:
    value, index, axis = call.tensor(), call.tensor(1), call.attributes["axis"]
    return torch.gather(value, axis, _positive(index, value.shape[axis]).long())


def _gather_nd(call: NodeCall) -> Tensor:
    value, index = call.tensor(), call.tensor(1)
    batch = call.attributes["batch_dims"]
    # The first axes of both count the same entries, one place for each.
    batch_indices = [
        torch.arange(value.shape[axis]).reshape([-1, *[1] * (index.dim() - 2 - axis)])
        for axis in range(batch)
    ]
    # (…, k): each place has k coordinates.
    columns = index.unbind(-1)
    return value[
        (*batch_indices, *map(_positive, columns, value.shape[batch : batch + len(columns)]))
    ]


def _places(value: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    columns = index.unbind(-1)
    return tuple(
        _positive(column, size) for column, size in zip(columns, value.shape, strict=False)
    )


_REDUCTIONS = {"max": "amax", "min": "amin", "mul": "prod"}
"""Reductions of scattered entries by their names in torch. Of several largest entries, each has an
equal part of the gradient."""


def _reduction(call: NodeCall) -> str:
    """The reduction: ``none``, ``add``, or its name in torch.

    Raises:
        ExportError: It is another one.
    """
    kind: str = call.attributes["reduction"].decode()
    if kind not in ("none", "add", *_REDUCTIONS):
        raise TrainingExportError(
            f"its reduction must be none, add, {', '.join(_REDUCTIONS)}, got {kind!r}",
            hint=ANOTHER_SOURCE,
        )
    return _REDUCTIONS.get(kind, kind)


def _scatter_nd(call: NodeCall) -> Tensor:
    value, index, updates = call.tensor(), call.tensor(1), call.tensor(2)
    places, kind = _places(value, index), _reduction(call)
    if kind in ("none", "add"):
        # index_put, of which the gradient is a gather; scatter_reduce has none for "none".
        return value.index_put(places, updates, accumulate=kind == "add")
    row = torch.zeros_like(places[0])
    for column, size in zip(places, value.shape, strict=False):
        # The place in the flattened leading axes, in row-major order (Horner's scheme).
        row = row * size + column
    rest = list(value.shape[len(places) :])
    rows, addends = value.reshape([-1, *rest]), updates.reshape([-1, *rest])
    spread = row.reshape([-1, *[1] * len(rest)]).expand(addends.shape)
    return rows.scatter_reduce(0, spread, addends, kind).reshape(value.shape)


def _scatter_elements(call: NodeCall) -> Tensor:
    value, index, updates = call.tensor(), call.tensor(1), call.tensor(2)
    axis, kind = call.attributes["axis"], _reduction(call)
    index = _positive(index, value.shape[axis]).long()
    if kind == "none":
        return value.scatter(axis, index, updates)
    if kind == "add":
        return value.scatter_add(axis, index, updates)
    return value.scatter_reduce(axis, index, updates, kind)


def _axes(call: NodeCall) -> list[int] | None:
    axes = call.numbers(1, "axes")
    return None if axes is None else [int(axis) for axis in axes]


def _squeeze(call: NodeCall) -> Tensor:
    value, axes = call.tensor(), _axes(call)
    if axes is None:
        # A free size is never squeezed, even if it is 1 in a batch.
        axes = [
            axis for axis, size in enumerate(value.shape) if isinstance(size, int) and size == 1
        ]
    return value.squeeze(axes)


def _unsqueeze(call: NodeCall) -> Tensor:
    value, axes = call.tensor(), _axes(call) or []
    count = value.dim() + len(axes)
    # From the lowest axis on: each counts the axes of the result.
    for axis in sorted(axis % count for axis in axes):
        value = value.unsqueeze(axis)
    return value


def _expand(call: NodeCall) -> Tensor:
    value, sizes = call.tensor(), _sizes(call, 1)
    # Expand broadcasts both ways, torch's expand one way: 1 in the sizes keeps the value's size.
    missing = len(sizes) - value.dim()
    value_sizes = [1] * missing + list(value.shape)
    sizes = [1] * -missing + sizes
    new_sizes = [
        size if isinstance(length, int) and length == 1 else length
        for length, size in zip(value_sizes, sizes, strict=True)
    ]
    return value.expand(new_sizes)


def _tile(call: NodeCall) -> Tensor:
    return call.tensor().repeat(_sizes(call, 1))


_PADDED_FROM = 2
"""The first axis of images and volumes that torch pads with their border."""


def _pad(call: NodeCall) -> Tensor:
    value, mode = call.tensor(), call.attributes["mode"].decode()
    pads = list(map(_whole, call.numbers(1, "pads") or ()))
    axes = [int(axis) for axis in call.numbers(3) or range(value.dim())]
    count = len(axes)
    pads_of_axis = {axis % value.dim(): (pads[i], pads[i + count]) for i, axis in enumerate(axes)}
    # begin of all axes, then end of all axes.
    # torch names the padding with the border's values "replicate".
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate"}
    if mode not in modes:
        raise TrainingExportError(
            f"its mode must be {', '.join(modes)}, got {mode!r}",
            hint="write it with Concat and Slice, or " + ANOTHER_SOURCE,
        )
    if mode == "constant":
        flat = [
            pad for axis in reversed(range(value.dim())) for pad in pads_of_axis.get(axis, (0, 0))
        ]
        fill = call.number(2, call.attributes["value"])
        return functional.pad(value, flat, value=float(fill))
    # reflect and replicate of torch pad the last axes only: one of two or three axes, all but the
    # first two of more.
    lowest = min([axis for axis, pair in pads_of_axis.items() if any(pair)] + [_PADDED_FROM])
    lowest = min(lowest, value.dim() - 1)
    flat = [
        pad for a in reversed(range(lowest, value.dim())) for pad in pads_of_axis.get(a, (0, 0))
    ]
    return functional.pad(value, flat, mode=modes[mode])


def _depth_to_space(call: NodeCall) -> Tensor:
    value, size = call.tensor(), call.attributes["blocksize"]
    if call.attributes["mode"] == b"CRD":
        return functional.pixel_shuffle(value, size)
    rows, channels, height, width = value.shape
    parts = value.reshape(rows, size, size, channels // size**2, height, width)
    # DCR: depth is (block row, block column, channel); CRD, above, is pixel_shuffle's order.
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(
        rows, channels // size**2, height * size, width * size
    )


def _space_to_depth(call: NodeCall) -> Tensor:
    value, size = call.tensor(), call.attributes["blocksize"]
    rows, channels, height, width = value.shape
    parts = value.reshape(rows, channels, height // size, size, width // size, size)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(
        rows, channels * size**2, height // size, width // size
    )


def _one_hot(call: NodeCall) -> Tensor:
    index, count = call.tensor(), int(call.number(1))
    off, on = call.tensor(2).unbind(0)
    # −1 is a new axis at the end.
    axis = call.attributes["axis"]
    axis = axis + index.dim() + 1 if axis < 0 else axis
    places = torch.arange(count).reshape([count] + [1] * (index.dim() - axis))
    return torch.where(_positive(index, count).unsqueeze(axis) == places, on, off)


def _triangle(call: NodeCall) -> Tensor:
    function = torch.triu if call.attributes["upper"] else torch.tril
    return function(call.tensor(), int(call.number(1, 0)))


def _range(call: NodeCall) -> Tensor:
    bounds = [call.known_operand(place).reshape(-1)[0] for place in range(3)]
    quotients = [bound for bound in bounds if isinstance(bound, Quotient)]
    if not quotients:
        dtype = as_tensor(call.known_operand(0)).dtype
        if not any(isinstance(bound, torch.SymInt) for bound in bounds):
            return torch.arange(*(bound.item() for bound in bounds), dtype=dtype)
        return torch.arange(*map(_whole, bounds), dtype=dtype)
    dtype = torch.float64 if quotients[0].is_double else torch.float32
    numbers = [bound.over if isinstance(bound, Quotient) else bound for bound in bounds]
    if any(bound.under != 1 for bound in quotients) or any(
        not isinstance(number, torch.SymInt) and number != int(number) for number in numbers
    ):
        # A quotient that is not whole would need the number of steps before the sizes are known.
        raise TrainingExportError(
            "a range of a free size must have whole bounds and a whole step",
            hint="leave that size out of dynamic_axes",
        )
    return torch.arange(*map(_whole, numbers)).to(dtype)


def _constant_of_shape(call: NodeCall) -> Tensor:
    value = call.attributes["value"]
    return torch.full(_sizes(call, 0), value.reshape(-1)[0].item(), dtype=as_tensor(value).dtype)


def _where(call: NodeCall) -> Tensor:
    condition, first, second = (call.tensor(place) for place in range(3))
    return torch.where(condition, first, second)


def _reverse_sequence(call: NodeCall) -> Tensor:
    """Reverses the first entries of each row, as many as its length says."""
    value, lengths = call.tensor(), call.tensor(1)
    time, batch = call.attributes["time_axis"], call.attributes["batch_axis"]
    places = torch.arange(value.shape[time]).unsqueeze(1)
    sources = torch.where(places < lengths, lengths - 1 - places, places)  # [time, batch]
    if batch < time:
        sources = sources.t()
    sizes = [size if axis in (time, batch) else 1 for axis, size in enumerate(value.shape)]
    return value.gather(time, sources.reshape(sizes).expand(value.shape))


MOVEMENT: Mapping[str, tuple[OperatorFunction, Mapping[str, Any]]] = {
    "Concat": (lambda call: torch.cat(call.tensors(), call.attributes["axis"]), {"axis": None}),
    "ConstantOfShape": (_constant_of_shape, {"value": np.zeros(1, np.float32)}),
    "DepthToSpace": (_depth_to_space, {"blocksize": None, "mode": b"DCR"}),
    "Einsum": (
        lambda call: torch.einsum(call.attributes["equation"].decode(), *call.tensors()),
        {"equation": None},
    ),
    "Expand": (_expand, {}),
    "Flatten": (_flatten, {"axis": 1}),
    "Gather": (_gather, {"axis": 0}),
    "GatherElements": (_gather_elements, {"axis": 0}),
    "GatherND": (_gather_nd, {"batch_dims": 0}),
    "OneHot": (_one_hot, {"axis": -1}),
    "Pad": (_pad, {"mode": b"constant", "pads": None, "value": 0.0}),
    "Range": (_range, {}),
    "Reshape": (_reshape, {"allowzero": 0}),
    "ReverseSequence": (_reverse_sequence, {"batch_axis": 1, "time_axis": 0}),
    "Scatter": (_scatter_elements, {"axis": 0, "reduction": b"none"}),
    "ScatterElements": (_scatter_elements, {"axis": 0, "reduction": b"none"}),
    "ScatterND": (_scatter_nd, {"reduction": b"none"}),
    "SequenceAt": (lambda call: call.items()[int(call.number(1))], {}),
    "Shape": (_shape, {"start": 0, "end": None}),
    "Size": (_size, {}),
    "Slice": (_slice, {"axes": None, "ends": None, "starts": None}),
    "SpaceToDepth": (_space_to_depth, {"blocksize": None}),
    "Split": (_split, {"axis": 0, "split": None, "num_outputs": None}),
    "SplitToSequence": (_split_to_items, {"axis": 0, "keepdims": 1}),
    "Squeeze": (_squeeze, {"axes": None}),
    "Tile": (_tile, {}),
    "Transpose": (_transpose, {"perm": None}),
    "Trilu": (_triangle, {"upper": 1}),
    "Unsqueeze": (_unsqueeze, {"axes": None}),
    "Where": (_where, {}),
}
"""Rows of operators, with their attributes and defaults."""

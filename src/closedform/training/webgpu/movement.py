"""Operators that move or place data, in terms of those that the WebGPU provider has kernels for.

A transpose of booleans, which has no kernel, is one of float32 between two casts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from closedform.training.webgpu.kernels import KERNELS, MAX_TENSORS
from closedform.training.webgpu.translation import Replacement, Translation

_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT32
_BOOL, _LONG = TensorProto.BOOL, TensorProto.INT64


def convert(out: Translation, name: str, element: int) -> str:
    """Returns the name of a value in another type."""
    return out.emit("Cast", [name], element=element, to=element)


_HALF_WORD = 1 << 16


def move(places: Sequence[int] = (0,)) -> Replacement:
    """A move of data whose kernel does not support the type, as a move of float32.

    Booleans are 0 and 1; an int32 is moved as two floats, x div 2^16 and the rest, both exact.
    """

    def replace(out: Translation, node: NodeProto) -> bool:
        element = out.element(node)
        kernel = KERNELS[node.op_type]
        if element not in (_BOOL, _INT) or element in kernel.types:
            return False
        data = places or range(len(node.input))
        values = [out.operand(node, place) for place in data]
        rest = {
            place: out.on_host(node, place) if place in kernel.host else out.operand(node, place)
            for place in range(len(node.input))
            if place not in data
        }
        attributes = {a.name: out.attribute(node, a.name, None) for a in node.attribute}

        def move(parts: Sequence[str]) -> list[str]:
            operands = dict(zip(data, parts, strict=True)) | rest
            names = [f"{parts[0]}/{output}" for output in node.output]
            for name in names:
                out.types[name] = _FLOAT
            inputs = [operands[place] for place in range(len(node.input))]
            out.emit(node.op_type, inputs, outputs=names, **attributes)
            return names

        if element == _BOOL:
            parts = move([convert(out, value, _FLOAT) for value in values])
            for name, output in zip(parts, node.output, strict=True):
                out.emit("Cast", [name], outputs=[output], to=_BOOL)
            return True
        # Both parts are below 2^16 in magnitude: float32 holds integers up to 2^24.
        word = out.literal(_HALF_WORD, _INT)
        # Division truncates, so that both parts have the sign of x and x = high·2^16 + low.
        high = [out.emit("Div", [value, word]) for value in values]
        low = [
            out.emit("Sub", [value, out.emit("Mul", [part, word])])
            for value, part in zip(values, high, strict=True)
        ]
        results = [
            [convert(out, name, _INT) for name in move([convert(out, p, _FLOAT) for p in ps])]
            for ps in (high, low)
        ]
        for above, below, output in zip(*results, node.output, strict=True):
            out.emit("Add", [out.emit("Mul", [above, word]), below], outputs=[output])
        return True

    return replace


def identity(out: Translation, node: NodeProto) -> bool:
    """Booleans are negated twice: their Identity has no kernel."""
    if out.element(node) != _BOOL:
        return False
    value = out.operand(node, 0)
    out.emit("Not", [out.emit("Not", [value])], outputs=node.output)
    return True


def squeeze(out: Translation, node: NodeProto) -> bool:
    """Booleans are squeezed as int32."""
    if out.element(node) != _BOOL:
        return False
    value = convert(out, out.operand(node, 0), _INT)
    axes = [out.on_host(node, 1)] if len(node.input) > 1 else []
    result = out.emit("Squeeze", [value, *axes])
    out.emit("Cast", [result], outputs=node.output, to=_BOOL)
    return True


def fill(out: Translation, node: NodeProto) -> bool:
    """A constant that is expanded: ConstantOfShape has no kernel."""
    tensor = out.attribute(node, "value", None)
    value = np.zeros(1, np.float32) if tensor is None else numpy_helper.to_array(tensor)
    element = out.types[node.output[0]]
    # The translation has int64 values as int32: the literal takes the type of the result.
    literal = out.literal(value.astype(helper.tensor_dtype_to_np_dtype(element)), element)
    out.emit("Expand", [literal, out.on_host(node, 0)], outputs=node.output)
    return True


def concatenate(out: Translation, node: NodeProto) -> bool:
    """A tree of concatenations of at most seven tensors."""
    if move(())(out, node):
        return True
    names = [out.operand(node, place) for place in range(len(node.input))]
    axis = out.attribute(node, "axis", 0)
    while len(names) > MAX_TENSORS:
        runs = [names[at : at + MAX_TENSORS] for at in range(0, len(names), MAX_TENSORS)]
        names = [run[0] if len(run) == 1 else out.emit("Concat", run, axis=axis) for run in runs]
    out.emit("Concat", names, outputs=node.output, axis=axis)
    return True


def split(out: Translation, node: NodeProto) -> bool:
    """A tree of splits of at most seven results."""
    if move()(out, node):
        return True
    sizes = out.constant(node.input[1]) if len(node.input) > 1 else None
    if len(node.output) <= MAX_TENSORS:
        return False
    if sizes is None:
        whole = (out.shape(node.input[0]) or ())[out.attribute(node, "axis", 0)]
        if whole is None:
            return False
        # Equal parts of Split, the last one smaller: opset 18.
        part = -(-whole // len(node.output))
        sizes = np.array([min(part, whole - at) for at in range(0, whole, part)])
    parts = [(name, int(size)) for name, size in zip(node.output, sizes, strict=True)]
    _split(out, out.operand(node, 0), parts, out.attribute(node, "axis", 0))
    return True


def _split(out: Translation, value: str, parts: Sequence[tuple[str, int]], axis: int) -> None:
    if len(parts) == 1:
        out.emit("Identity", [value], outputs=[parts[0][0]])
        return
    # The largest power of seven that is below the number of results: each part has at most seven
    # results again.
    run = MAX_TENSORS
    while run * MAX_TENSORS < len(parts):
        run *= MAX_TENSORS
    if len(parts) <= MAX_TENSORS:
        runs = [[part] for part in parts]
    else:
        runs = [list(parts[at : at + run]) for at in range(0, len(parts), run)]
    names = [group[0][0] if len(group) == 1 else f"webgpu/{group[0][0]}" for group in runs]
    for name in names:
        out.types.setdefault(name, out.types[value])
    sizes = out.literal([sum(size for _, size in group) for group in runs])
    out.emit("Split", [value, sizes], outputs=names, axis=axis)
    for name, group in zip(names, runs, strict=True):
        if len(group) > 1:
            _split(out, name, group, axis)


def extreme_place(extremum: str) -> Replacement:
    """The first place of a maximum or minimum, in int32: the kernel's result is int64."""

    def replace(out: Translation, node: NodeProto) -> bool:
        axis, shape = out.attribute(node, "axis", 0), out.shape(node.input[0])
        if shape is None or out.attribute(node, "select_last_index", 0):
            return False
        value, axes, axis = out.operand(node, 0), out.literal([axis]), axis % len(shape)
        best = out.emit(extremum, [value, axes], keepdims=1)
        is_best = out.emit("Equal", [value, best], element=_BOOL)
        places, last = _number_places(out, value, axis, shape)
        # The last place where NaN equals none.
        candidates = out.emit("Where", [is_best, places, last], element=_INT)
        keep = out.attribute(node, "keepdims", 1)
        out.emit("ReduceMin", [candidates, axes], outputs=node.output, keepdims=keep)
        return True

    return replace


def _number_places(
    out: Translation, value: str, axis: int, shape: Sequence[int | None]
) -> tuple[str, str]:
    """The places along an axis in int32, with the axes of the tensor, and the last of them."""
    sizes, count = [1] * len(shape), shape[axis]
    if count is not None:
        sizes[axis] = count
        return out.literal(np.arange(count).reshape(sizes), _INT), out.literal(count - 1, _INT)
    sizes[axis] = -1
    size = out.emit("Shape", [value], element=_LONG, start=axis, end=axis + 1)
    size = out.emit("Squeeze", [size, out.literal([0])])
    size = out.emit("Cast", [size], element=_INT, to=_INT)
    unit = out.literal(1, _INT)
    line = out.emit("Range", [out.literal(0, _INT), size, unit])
    return out.emit("Reshape", [line, out.literal(sizes)]), out.emit("Sub", [size, unit])


def largest(out: Translation, node: NodeProto) -> bool:
    """TopK with places in int32: numbers in float32, gathered by the kernel's int64."""
    shape, axis = out.shape(node.input[0]), out.attribute(node, "axis", -1)
    count = None if shape is None else shape[axis]
    # Places are gathered as float32, which holds integers up to 2^24.
    if shape is None or count is None or count > 1 << 24 or len(node.output) < 2:
        return False
    value = out.operand(node, 0)
    attributes = {a.name: out.attribute(node, a.name, None) for a in node.attribute}
    places = f"webgpu/{node.output[1]}"
    out.types[places] = _LONG
    top = [node.output[0] or f"{places}/values", places]
    out.emit("TopK", [value, out.on_host(node, 1)], outputs=top, **attributes)
    sizes = [1] * len(shape)
    sizes[axis] = count
    line = out.literal(np.arange(count).reshape(sizes), _FLOAT)
    line = out.emit("Expand", [line, out.emit("Shape", [value], element=_LONG)])
    numbers = out.emit("GatherElements", [line, places], axis=axis)
    out.emit("Cast", [numbers], outputs=[node.output[1]], to=_INT)
    return True


def index(out: Translation, node: NodeProto) -> bool:
    """GatherND and ScatterND, whose indices are int64 in ONNX; booleans are moved as int32."""
    indices = out.operand(node, 1)
    operands = [out.operand(node, place) for place in range(len(node.input))]
    constant = out.constant(node.input[1])
    # Constant indices need no cast at run time.
    if constant is None:
        operands[1] = out.emit("Cast", [indices], element=_LONG, to=_LONG)
    else:
        operands[1] = out.literal(constant)
    attributes = {a.name: out.attribute(node, a.name, None) for a in node.attribute}
    if out.element(node) != _BOOL:
        out.emit(node.op_type, operands, outputs=node.output, **attributes)
        return True
    operands[::2] = [convert(out, name, _INT) for name in operands[::2]]
    result = out.emit(node.op_type, operands, **attributes)
    out.emit("Cast", [result], outputs=node.output, to=_BOOL)
    return True


def max_pool(out: Translation, node: NodeProto) -> bool:
    """A maximum pooling with places: strided slices, their maximum, and the first that equals it.

    ONNX counts places over all rows and channels. Padding is the least float32.
    """
    shape = out.shape(node.input[0])
    if len(node.output) < 2 or not node.output[1] or shape is None:
        return False
    kernel = list(out.attribute(node, "kernel_shape", []))
    axes, sizes = len(kernel), shape[2:]
    strides = list(out.attribute(node, "strides", [1] * axes))
    spread = list(out.attribute(node, "dilations", [1] * axes))
    pads = list(out.attribute(node, "pads", [0] * 2 * axes))
    if None in sizes or out.attribute(node, "storage_order", 0):
        return False
    lengths = [int(size or 0) for size in sizes]
    spans = [
        lengths[a] + pads[a] + pads[a + axes] - spread[a] * (kernel[a] - 1) - 1 for a in range(axes)
    ]
    counts = [span // stride + 1 for span, stride in zip(spans, strides, strict=True)]
    # floor(span / stride) + 1 windows; ceil_mode adds one for a remainder.
    if out.attribute(node, "ceil_mode", 0):
        counts = [-(-span // stride) + 1 for span, stride in zip(spans, strides, strict=True)]
        # A window that would begin behind the values and the padding in front is left out.
        counts = [
            count - ((count - 1) * strides[a] >= lengths[a] + pads[a])
            for a, count in enumerate(counts)
        ]
    # Padding behind, so that the last window is whole.
    ends = [
        (counts[a] - 1) * strides[a] + spread[a] * (kernel[a] - 1) + 1 - lengths[a] - pads[a]
        for a in range(axes)
    ]
    pads[axes:] = [max(*pair) for pair in zip(pads[axes:], ends, strict=True)]
    value = out.operand(node, 0)
    padded_value = value
    if any(pads):
        # Pads of ONNX: all begins, then all ends; batch and channels have none.
        widths = [0, 0, *pads[:axes], 0, 0, *pads[axes:]]
        lowest = out.literal(float(np.finfo(np.float32).min), _FLOAT)
        padded_value = out.emit("Pad", [value, out.literal(widths), lowest])
    taps, places = [], []
    for offsets in np.ndindex(*kernel):
        starts = [offset * step for offset, step in zip(offsets, spread, strict=True)]
        ends = [
            start + (count - 1) * stride + 1
            for start, count, stride in zip(starts, counts, strides, strict=True)
        ]
        where = [out.literal(x) for x in (starts, ends, list(range(2, 2 + axes)), strides)]
        taps.append(out.emit("Slice", [padded_value, *where]))
        lines = [
            np.arange(count) * stride + start - pad
            for count, stride, start, pad in zip(counts, strides, starts, pads[:axes], strict=True)
            # Row-major places, as in ONNX with storage_order 0, without the padding.
        ]
        flat = np.zeros((), np.int64)
        for line, length in zip(lines, lengths, strict=True):
            flat = flat[..., None] * length + line
        places.append(out.literal(flat[None, None], _INT))
    best = taps[0]
    for tap in taps[1:]:
        best = out.emit("Max", [best, tap])
    out.emit("Identity", [best], outputs=[node.output[0]])
    # Of equal values ONNX takes the first.
    place = places[-1]
    # Backwards, so that the first of equal maxima is the last to be chosen.
    for tap, candidate in zip(taps[-2::-1], places[-2::-1], strict=True):
        is_best = out.emit("Equal", [tap, best], element=_BOOL)
        place = out.emit("Where", [is_best, candidate, place], element=_INT)
    outer = out.emit("Shape", [value], element=_LONG, start=0, end=2)
    count = out.emit("ReduceProd", [outer], keepdims=0)
    bounds = [out.literal(0, _INT), out.emit("Cast", [count], element=_INT, to=_INT)]
    rows = out.emit("Range", [*bounds, out.literal(1, _INT)])
    unit_axes = out.literal([1] * axes)
    rows = out.emit("Reshape", [rows, out.emit("Concat", [outer, unit_axes], axis=0)])
    base = out.emit("Mul", [rows, out.literal(math.prod(lengths), _INT)])
    out.emit("Add", [base, place], outputs=[node.output[1]])
    return True


def diagonal(out: Translation, node: NodeProto) -> bool:
    """Ones where the column is the row plus k: EyeLike has no kernel."""
    shape = out.shape(node.input[0])
    if shape is None:
        return False
    value, element = out.operand(node, 0), out.types[node.output[0]]
    rows, columns = (_number_places(out, value, axis, shape)[0] for axis in (0, 1))
    shifted_rows = out.emit("Add", [rows, out.literal(out.attribute(node, "k", 0), _INT)])
    is_one = out.emit("Equal", [columns, shifted_rows], element=_BOOL)
    out.emit("Cast", [is_one], outputs=node.output, to=element)
    return True


MOVEMENT: Mapping[str, Replacement] = {
    "ArgMax": extreme_place("ReduceMax"),
    "ArgMin": extreme_place("ReduceMin"),
    "Concat": concatenate,
    "ConstantOfShape": fill,
    "EyeLike": diagonal,
    "GatherElements": move(),
    "GatherND": index,
    "Identity": identity,
    "MaxPool": max_pool,
    "ScatterND": index,
    "Slice": move(),
    "Split": split,
    "Squeeze": squeeze,
    "Tile": move(),
    "TopK": largest,
    "Transpose": move(),
}

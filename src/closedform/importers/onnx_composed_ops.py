"""ONNX operators that other tools write, composed of the rows of ``onnx_ops``.

Each is read by its definition in the ONNX standard (docs/Operators.md of onnx 1.19).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import NodeProto, numpy_helper

from closedform.errors import VerificationError
from closedform.importers.onnx_constants import array_of
from closedform.importers.onnx_ops import (
    ONNX_ROWS,
    EngineValue,
    OpReader,
    Reader,
    add_constant,
    attributes_of,
    axes_from_first,
    axes_of,
    emit_fold,
    plain_row,
    read_cast,
    read_where,
    reduction,
    reduction_axes,
)
from closedform.importers.onnx_structure import MOST_ENTRIES
from closedform.ir import Op, Shape, Value, broadcast
from closedform.ir.graph import Array


def _square(reader: Reader, operand: Value) -> Value:
    return reader.emit(Op.MUL, operand, operand)


def _unary(op: Op) -> Callable[[Reader, Value], Value]:
    return lambda reader, operand: reader.emit(op, operand)


def _mean(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    axes, keepdims = reduction_axes(reader, node, operands)
    sizes = [operands[0].type.shape[axis] for axis in axes]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise VerificationError(f"it is a mean over the sizes {sizes}, which are not numbers")
    total = reader.emit(Op.REDUCE_SUM, operands[0], axes=axes, keepdims=keepdims)
    size = math.prod(int(size) for size in sizes)
    return reader.emit(Op.DIV, total, reader.constant(size, total))


def _reshaped(reader: Reader, operand: Value, shape: Shape) -> Value:
    return operand if operand.type.shape == shape else reader.emit(Op.RESHAPE, operand, shape=shape)


def _squeeze(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    shape, attribute = operands[0].type.shape, attributes_of(node, axes=None)["axes"]
    axes = axes_of(reader, node, attribute)
    if axes:
        removed = {*axes_from_first(axes, len(shape))}
    elif attribute is None and not any(node.input[1:]):
        # A free size stays: it is 1 only in some batches.
        removed = {axis for axis, size in enumerate(shape) if size == 1}
    else:
        # onnxruntime removes all axes of size 1, and the standard does not say so.
        raise VerificationError("its list of axes is empty")
    if any(shape[axis] != 1 for axis in removed):
        raise VerificationError(f"it removes axes {sorted(removed)} of {list(shape)}, not all of 1")
    remaining_sizes = tuple(size for axis, size in enumerate(shape) if axis not in removed)
    return _folded(reader, node, _reshaped(reader, operands[0], remaining_sizes))


def _unsqueeze(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    shape = list(operands[0].type.shape)
    axes = axes_of(reader, node, attributes_of(node, axes=None)["axes"])
    for axis in sorted(axes_from_first(axes, len(shape) + len(axes))):
        shape.insert(axis, 1)
    return _folded(reader, node, _reshaped(reader, operands[0], tuple(shape)))


def _flatten(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    shape = operands[0].type.shape
    axis = attributes_of(node, axis=1)["axis"]
    if not all(isinstance(size, int) for size in shape):
        raise VerificationError(f"it is of the sizes {list(shape)}, which are not numbers")
    place = axis if axis >= 0 else axis + len(shape)
    if not 0 <= place <= len(shape):
        raise VerificationError(f"its axis {axis} is not a place in {list(shape)}")
    # An axis of 0 gives [1, n], since an empty product is 1.
    sides = tuple(math.prod(map(int, side)) for side in (shape[:place], shape[place:]))
    return _reshaped(reader, operands[0], sides)


def _folded(reader: Reader, node: NodeProto, result: Value) -> Value:
    """The result; where the operand is a constant, its array is one as well."""
    if node.input[0] in reader.arrays:
        array = reader.arrays[node.input[0]]
        reader.arrays[node.output[0]] = array.reshape([int(size) for size in result.type.shape])
    return result


def _array(reader: Reader, node: NodeProto, array: Array) -> Value:
    """A constant that a node makes."""
    if array.size > MOST_ENTRIES:
        raise VerificationError(f"it makes {array.size} entries; at most {MOST_ENTRIES} are read")
    add_constant(reader, node.output[0], numpy_helper.from_array(array))
    return reader.values[node.output[0]]


def _concat(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value | EngineValue:
    """The tensors joined; constants make a constant, such as a shape."""
    arrays = [reader.arrays[name] for name in node.input if name in reader.arrays]
    if len(arrays) < len(node.input):
        return ONNX_ROWS["Concat"](reader, node, operands)
    return _array(reader, node, np.concatenate(arrays, attributes_of(node, axis=None)["axis"]))


def _shape(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    attributes = attributes_of(node, start=0, end=None)
    sizes = operands[0].type.shape[attributes["start"] : attributes["end"]]
    if not all(isinstance(size, int) for size in sizes):
        raise VerificationError(f"it is the shape {list(sizes)}, whose sizes are not numbers")
    return _array(reader, node, np.array(sizes, np.int64))


def _constant_of_shape(reader: Reader, node: NodeProto, _: tuple[Value, ...]) -> Value:
    shape = reader.whole_numbers(node.input[0])
    tensor = attributes_of(node, value=None)["value"]
    # The default of ConstantOfShape is float32 0.
    number = np.zeros(1, np.float32) if tensor is None else array_of(tensor, "value")
    if number.size != 1:
        raise VerificationError(f"its value must have one entry, got {number.size}")
    if math.prod(shape) > MOST_ENTRIES:
        raise VerificationError(
            f"it makes {math.prod(shape)} entries; at most {MOST_ENTRIES} are read"
        )
    return _array(reader, node, np.full(shape, number.ravel()[0]))


def _power(reader: Reader, base: Value, exponent: Value) -> Value:
    """Pow; its exponent may be of another type, such as an integer."""
    if base.type.dtype is not exponent.type.dtype and base.type.dtype.is_float:
        exponent = reader.emit(Op.CAST, exponent, to=base.type.dtype)
    return reader.emit(Op.POW, base, exponent)


def _reciprocal(reader: Reader, operand: Value) -> Value:
    return reader.emit(Op.DIV, reader.constant(1, operand), operand)


def _average(reader: Reader, *operands: Value) -> Value:
    total = emit_fold(Op.ADD, reader, *operands)
    return reader.emit(Op.DIV, total, reader.constant(len(operands), total))


def _clip(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Clip: the lower bound first, the upper bound of that (where both cross, it is the upper)."""
    attributes = attributes_of(node, min=None, max=None)
    # Bounds are operands from opset 11 on, attributes before.
    names = [*node.input, "", ""][1:3]
    remaining = iter(operands[1:])
    result = operands[0]
    for op, name, label in ((Op.MAX, names[0], "min"), (Op.MIN, names[1], "max")):
        # Operands that are left out have a name "" and no value.
        bound = next(remaining) if name else None
        if bound is None and attributes[label] is not None:
            bound = reader.builder.const(attributes[label], result.type.dtype)
        result = result if bound is None else reader.emit(op, result, bound)
    return result


def _sigmoid(reader: Reader, operand: Value) -> Value:
    unit = reader.constant(1, operand)
    exponential = reader.emit(Op.EXP, reader.emit(Op.NEG, operand))
    return reader.emit(Op.DIV, unit, reader.emit(Op.ADD, unit, exponential))


def _tanh(reader: Reader, operand: Value) -> Value:
    unit, two = (reader.constant(number, operand) for number in (1, 2))
    # (exp(2x) - 1)/(exp(2x) + 1) over the real numbers; for floats it overflows at x = 44.
    exponential = reader.emit(Op.EXP, reader.emit(Op.MUL, two, operand))
    above = reader.emit(Op.SUB, exponential, unit)
    return reader.emit(Op.DIV, above, reader.emit(Op.ADD, exponential, unit))


def _ceiling(reader: Reader, operand: Value) -> Value:
    # ceil(x) = -floor(-x), exact in floats.
    return reader.emit(Op.NEG, reader.emit(Op.FLOOR, reader.emit(Op.NEG, operand)))


def _exclusive_or(reader: Reader, *operands: Value) -> Value:
    either = reader.emit(Op.OR, *operands)
    return reader.emit(Op.AND, either, reader.emit(Op.NOT, reader.emit(Op.AND, *operands)))


def _is_nan(reader: Reader, operand: Value) -> Value:
    """A value that does not equal itself."""
    return reader.emit(Op.NOT, reader.emit(Op.EQ, operand, operand))


def _is_infinite(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Above the largest number of the dtype, in size."""
    attributes = attributes_of(node, detect_negative=1, detect_positive=1)
    if not (attributes["detect_negative"] and attributes["detect_positive"]):
        raise VerificationError("it detects infinities of one sign only")
    dtype = operands[0].type.dtype
    # Graphs have no infinities as numbers: beyond the largest number there is nothing else.
    largest = reader.builder.const(float(np.finfo(dtype.numpy).max), dtype)
    return reader.emit(Op.LT, largest, reader.emit(Op.ABS, operands[0]))


def _compared_with_infinity(
    reader: Reader, operands: tuple[Value, ...]
) -> tuple[Value, Value, int] | None:
    """The largest number of the dtype, the operand next to a constant infinity, and its sign."""
    for number, infinity in (operands, operands[::-1]):
        node = reader.builder.node(infinity)
        dtype = infinity.type.dtype
        if node.op is not Op.CONST or not dtype.is_float or not np.all(np.isinf(node.array())):
            continue
        signs = set(np.sign(node.array()).ravel().tolist())
        # A constant with both infinities is not one comparison.
        if len(signs) == 1:
            largest = reader.builder.const(float(np.finfo(dtype.numpy).max), dtype)
            return largest, number, int(signs.pop())
    return None


def _equal(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value | EngineValue:
    """Equal; a float equals an infinity where it is beyond the largest number."""
    comparison = _compared_with_infinity(reader, operands)
    if comparison is None:
        return ONNX_ROWS["Equal"](reader, node, operands)
    largest, number, sign = comparison
    # x = -∞ where -x is beyond the largest number.
    beyond = number if sign > 0 else reader.emit(Op.NEG, number)
    result = reader.emit(Op.LT, largest, beyond)
    reader.infinite[result] = number, sign
    return result


def _where(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value | EngineValue:
    """Where; an infinity or NaN that is chosen where the operand equals it is the operand.

    So is NaN that is chosen where a value is NaN that the operand is computed from.
    """
    condition, then, otherwise = operands
    chosen = reader.builder.node(then)
    is_constant = chosen.op is Op.CONST and then.type.dtype.is_float
    shape = broadcast(broadcast(condition.type.shape, then.type.shape), otherwise.type.shape)
    if is_constant and shape == otherwise.type.shape and chosen.array().size:
        # Where(x = ∞, ∞, x) is x: some exporters write such guards.
        number, sign = reader.infinite.get(condition, (None, 0))
        infinity = sign * np.inf
        if number == otherwise and sign and bool(np.all(chosen.array() == infinity)):
            return EngineValue(otherwise)
        is_nan = bool(np.all(np.isnan(chosen.array()))) and _tests_for_nan(reader, condition)
        if is_nan and not reader.missing_parts(otherwise, [condition]):
            return otherwise
    return read_where(reader, node, operands)


def _tests_for_nan(reader: Reader, condition: Value) -> bool:
    """Whether a condition holds only where some value is NaN: then it holds for no numbers."""
    node = reader.builder.node(condition)
    operands = [reader.value_at(place) for place in node.operands]
    if node.op is Op.OR:
        # isnan(x) or isnan(y).
        return all(_tests_for_nan(reader, operand) for operand in operands)
    if node.op is not Op.NOT:
        return False
    comparison = reader.builder.node(operands[0])
    # not (x = x).
    return comparison.op is Op.EQ and len(set(comparison.operands)) == 1


def _less(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value | EngineValue:
    """Less; a float is less than an infinity where it is at most the largest number."""
    comparison = _compared_with_infinity(reader, operands)
    # x < ∞ is x <= largest; x < -∞ and ∞ < x have other forms.
    if comparison is None or comparison[1] is not operands[0] or comparison[2] < 0:
        return ONNX_ROWS["Less"](reader, node, operands)
    return reader.emit(Op.LE, comparison[1], comparison[0])


def _gemm(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    attributes = attributes_of(node, alpha=1.0, beta=1.0, transA=0, transB=0)
    # alpha·A'·B' + beta·C (onnx.defs, Gemm); beta scales C before the sum.
    matrices = [
        reader.emit(Op.TRANSPOSE, operand, permutation=(1, 0)) if attributes[label] else operand
        for operand, label in zip(operands[:2], ("transA", "transB"), strict=True)
    ]
    result = reader.emit(Op.MATMUL, *matrices)
    result = _scaled(reader, result, attributes["alpha"])
    if len(operands) < 3:
        return result
    return reader.emit(Op.ADD, result, _scaled(reader, operands[2], attributes["beta"]))


def _scaled(reader: Reader, operand: Value, factor: float) -> Value:
    if factor == 1:
        return operand
    return reader.emit(Op.MUL, reader.builder.const(factor, operand.type.dtype), operand)


def _einsum(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """A sum of products: each operand has each label once, and no label is ``...``."""
    equation = attributes_of(node, equation=b"")["equation"].decode().replace(" ", "")
    left, arrow, result_labels = equation.partition("->")
    labels = left.split(",")
    # A repeated label takes a diagonal, "..." broadcasts.
    if not arrow or "." in equation or any(len(set(part)) < len(part) for part in labels):
        raise VerificationError(f"its equation {equation!r} is not supported")
    if len(labels) != len(operands) or len(set(result_labels)) < len(result_labels):
        raise VerificationError(f"its equation {equation!r} does not fit its operands")
    # A scalar product: the order of its elements does not matter.
    if not result_labels and len(set(labels)) == 1:
        operands = _without_reshapes(reader, operands)
        shape = operands[0].type.shape
        product = _product(reader, operands)
        return reader.emit(Op.REDUCE_SUM, product, axes=tuple(range(len(shape))), keepdims=False)
    # The order of the axes that are summed is free; sorted, it is the same in each read.
    summed = sorted(set("".join(labels)) - set(result_labels))
    order = [*result_labels, *summed]
    factors = [
        _in_order(reader, operand, part, order)
        for operand, part in zip(operands, labels, strict=True)
    ]
    product = _product(reader, factors)
    if not summed:
        return product
    axes = tuple(range(len(result_labels), len(order)))
    return reader.emit(Op.REDUCE_SUM, product, axes=axes, keepdims=False)


def _product(reader: Reader, operands: Sequence[Value]) -> Value:
    return functools.reduce(functools.partial(reader.emit, Op.MUL), operands)


def _without_reshapes(reader: Reader, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    """The operands of reshapes from one shape, whose elements are in the same order."""
    nodes = [reader.builder.node(operand) for operand in operands]
    if not all(node.op is Op.RESHAPE for node in nodes):
        return operands
    sources = tuple(reader.value_at(node.operands[0]) for node in nodes)
    return sources if len({source.type.shape for source in sources}) == 1 else operands


def _in_order(reader: Reader, operand: Value, labels: str, order: Sequence[str]) -> Value:
    """An operand with its axes in the order of some labels, of size 1 where it has none."""
    sizes = dict(zip(labels, operand.type.shape, strict=True))
    permutation = tuple(labels.index(label) for label in order if label in sizes)
    if permutation != tuple(range(len(permutation))):
        operand = reader.emit(Op.TRANSPOSE, operand, permutation=permutation)
    return _reshaped(reader, operand, tuple(sizes.get(label, 1) for label in order))


def _cast_like(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    attributes_of(node, saturate=1)
    return reader.emit(Op.CAST, operands[0], to=operands[1].type.dtype)


def _cast(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """A cast; that of a constant of integers is a constant, such as a shape."""
    result = read_cast(reader, node, operands)
    array = reader.arrays.get(node.input[0])
    # Floats are not folded: a cast may round them.
    if array is not None and result.type.dtype.is_integer:
        reader.arrays[node.output[0]] = array.astype(result.type.dtype.numpy)
    return result


ROWS: Mapping[str, OpReader] = {
    **ONNX_ROWS,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Ceil": plain_row(_ceiling),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Einsum": _einsum,
    "Equal": _equal,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "IsInf": _is_infinite,
    "IsNaN": plain_row(_is_nan),
    "Less": _less,
    "Mean": plain_row(_average),
    "Pow": plain_row(_power),
    "Reciprocal": plain_row(_reciprocal),
    "ReduceL1": reduction(Op.REDUCE_SUM, _unary(Op.ABS)),
    "ReduceL2": reduction(Op.REDUCE_SUM, _square, _unary(Op.SQRT)),
    "ReduceMean": _mean,
    "ReduceMin": reduction(Op.REDUCE_MAX, _unary(Op.NEG), _unary(Op.NEG)),
    "ReduceSumSquare": reduction(Op.REDUCE_SUM, _square),
    "Shape": _shape,
    "Sigmoid": plain_row(_sigmoid),
    "Squeeze": _squeeze,
    "Sum": plain_row(functools.partial(emit_fold, Op.ADD)),
    "Tanh": plain_row(_tanh),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
    "Xor": plain_row(_exclusive_or),
}
"""The semantics of each ONNX operator that is read."""

WHOLE_TENSOR = frozenset(
    {
        *("Concat", "Constant", "ConstantOfShape", "Einsum", "Expand", "Flatten", "Gather"),
        *("Gemm", "MatMul", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin"),
        *("ReduceSum", "ReduceSumSquare", "Reshape", "Shape", "Slice", "Squeeze"),
        *("Transpose", "Unsqueeze"),
    }
)
"""Operators that look at a shape, or may hold one."""

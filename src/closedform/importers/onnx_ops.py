"""ONNX operators as ops of graphs, the inverse of ``exporters/onnx_ops.py``.

One row for each operator that our exporter writes, and a few that other tools write instead. An
operator without an equal op (the truncating Div of integers, the Mod of C, Sign) is composed
of the ops of the graph language, by its definition in the ONNX standard.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import VerificationError
from closedform.exporters.onnx_ops import ATAN_BOUND
from closedform.importers.onnx_constants import array_of
from closedform.importers.onnx_structure import BRANCH, CHOICE, check_entries
from closedform.ir import Builder, DType, Op, Shape, Value, broadcast
from closedform.ir.analysis.interval import full
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.ops import MOVES

DTYPES: Mapping[int, DType] = {dtype.row.number: dtype for dtype in DType}


@dataclass(slots=True)
class Reader:
    """The values read so far.

    Attributes:
        builder: Takes the nodes.
        values: The value behind each ONNX name.
        arrays: The constants among them.
        remainders: Of a value that is the Mod of C, its operands.
        signs: Of a value that is a Sign, its operand.
        infinite: Of a comparison with an infinity, the number and the sign of the infinity.
        words: What unsigned integers are made of, by name (``onnx_words``).
        failing: Values at which an engine may stop, whether a choice takes them or not.
    """

    builder: Builder
    values: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    remainders: dict[Value, tuple[Value, Value]] = field(default_factory=dict)
    signs: dict[Value, Value] = field(default_factory=dict)
    infinite: dict[Value, tuple[Value, int]] = field(default_factory=dict)
    words: dict[str, Any] = field(default_factory=dict)
    failing: list[Value] = field(default_factory=list)
    _ranges: Ranges | None = None

    @property
    def ranges(self) -> Ranges:
        """The intervals of the nodes so far."""
        if self._ranges is None:
            self._ranges = Ranges(self.builder.nodes)
        return self._ranges

    def emit(self, op: Op, *operands: Value, **attributes: Any) -> Value:
        """Adds a node."""
        return self.builder.emit(op, *operands, **attributes)

    def with_domain(self, result: Value, operands: Iterable[Value]) -> Value:
        """Returns a result that has no value where one of some operands has none.

        What the result does not take becomes the condition of a choice between it and itself.

        Raises:
            VerificationError: The result is a truth, or smaller than the operand.
        """
        for part in self.missing_parts(result, operands):
            is_truth = part.type.dtype is DType.BOOL
            shape = broadcast(part.type.shape, result.type.shape)
            if result.type.dtype is DType.BOOL or shape != result.type.shape:
                raise VerificationError("its value leaves out an operand that may have no value")
            condition = part if is_truth else self.emit(Op.EQ, part, part)
            result = self.emit(Op.WHERE, condition, result, result)
        return result

    def add_failing(self, node: NodeProto, value: Value) -> None:
        """Adds a value of a node that an engine may not be able to compute.

        A quotient of integers by 0 ends the process of onnxruntime, and an index beyond a table the
        run, where a ``Where`` does not choose them, too; of an ``If`` only one branch is run.
        """
        if node.doc_string != BRANCH:
            self.failing.append(value)

    def output(self, name: str, value: Value) -> None:
        """Names a value as a result, which has a value where the whole graph can be run."""
        self.builder.output(name, self.with_domain(value, self.failing))

    def missing_parts(self, result: Value, operands: Iterable[Value]) -> list[Value]:
        """Returns the parts of some operands that are not evaluated wherever the result is."""
        pending = [operand.index for operand in operands if operand != result]
        open_indices, evaluated_indices = set(pending), set[int]()
        for index in self._walk_evaluated(result.index):
            evaluated_indices.add(index)
            open_indices.discard(index)
            # Nearly always each operand is one of the node that was added last.
            if not open_indices:
                return []
        parts: dict[int, None] = {}
        pending = sorted(open_indices, reverse=True)
        while pending:
            index = pending.pop()
            node = self.builder.nodes[index]
            # A tensor without elements, such as the shape of a scalar, always has its value.
            is_empty = 0 in node.type.shape
            if index in evaluated_indices or is_empty or node.op in (Op.CONST, Op.INPUT):
                continue
            if self._is_total(index):
                pending.extend(node.operands)
            else:
                parts[index] = None
        return [self.value_at(index) for index in parts]

    def _is_total(self, index: int) -> bool:
        """Whether a node has a value wherever its operands have one."""
        node = self.builder.nodes[index]
        if node.op in _TOTAL or not node.type.dtype.is_integer:
            return node.op in _TOTAL
        if node.op is Op.FLOOR_MOD:
            divisor = self.ranges.of(node.operands[1])
            return divisor.low > 0 or divisor.high < 0
        # A sum that cannot leave its dtype.
        return node.op in _WHOLE and self.ranges.of(index) != full(node.type.dtype)

    def _walk_evaluated(self, index: int) -> Iterator[int]:
        """Yields the nodes that are evaluated wherever a node is, nearer ones first."""
        pending, walked_indices = deque([index]), set[int]()
        while pending:
            index = pending.popleft()
            if index in walked_indices:
                continue
            walked_indices.add(index)
            yield index
            node = self.builder.nodes[index]
            # Of a choice one branch is evaluated, and a part may decide an ``and``.
            if node.op is Op.WHERE:
                pending.append(node.operands[0])
            elif node.op not in (Op.AND, Op.OR):
                pending.extend(node.operands)

    def constant(self, number: int, like: Value) -> Value:
        """Adds a scalar constant in the dtype of a value."""
        return self.builder.const(number, like.type.dtype)

    def value_at(self, index: int) -> Value:
        """Returns the value of a node by its place."""
        return Value(index, self.builder.nodes[index].type)

    def whole_numbers(self, name: str) -> tuple[int, ...]:
        """Returns the integers of an operand that has to be a constant, such as a shape."""
        if name not in self.arrays:
            raise VerificationError(f"its operand {name!r} is not a constant")
        return tuple(int(number) for number in self.arrays[name].ravel())


_TOTAL = frozenset({Op.AND, Op.OR, Op.NOT, Op.LT, Op.LE, Op.EQ, *MOVES})
"""Ops that have a value wherever their operands have one."""

_WHOLE = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.ABS})
"""Ops that, of integers, have a value wherever it fits the dtype."""


@dataclass(frozen=True, slots=True)
class EngineValue:
    """The value that an engine computes for all operands, NaN and infinities among them.

    What it leaves out of them is not missed, while any other result of a row has no value where an
    operand has none.
    """

    value: Value


OpReader = Callable[[Reader, NodeProto, tuple[Value, ...]], Value | EngineValue]
"""The value of a node; ``read_row`` adds the domain of the operands that it leaves out."""


_EVALUATED: Mapping[str, int] = {"And": 0, "CastLike": 1, "Or": 0, "Shape": 0, "Where": 1}
"""How many operands an operator evaluates in any case, where these are not all.

The others are chosen from, or no more than their type is looked at.
"""


def read_row(row: OpReader, reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Returns the value of a node, with the domain of the operands that it evaluates."""
    result = row(reader, node, operands)
    if isinstance(result, EngineValue):
        return result.value
    count = _EVALUATED.get(node.op_type, len(operands))
    return reader.with_domain(result, operands[:count])


def add_constant(reader: Reader, name: str, tensor: TensorProto) -> None:
    """Adds an initializer.

    Raises:
        VerificationError: Its type is not supported, it is too large, or engines differ in it.
    """
    if tensor.data_type not in DTYPES:
        raise VerificationError(
            f"the constant {name!r} cannot be read",
            hint="its type is not supported, or its data is in another file",
        )
    check_entries(name, tensor)
    array = array_of(tensor, name)
    reader.arrays[name] = array
    reader.values[name] = reader.builder.const(array, DTYPES[tensor.data_type])


def attributes_of(node: NodeProto, **defaults: Any) -> dict[str, Any]:
    """Returns the attributes of a node over their defaults.

    Raises:
        VerificationError: One is not known.
    """
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    for name in values:
        if name not in defaults:
            raise VerificationError(f"its attribute {name!r} is not supported")
    return {**defaults, **values}


def plain_row(function: Callable[..., Value | EngineValue]) -> OpReader:
    """Returns the row of an operator without attributes, from a function of its operands."""

    def row(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value | EngineValue:
        attributes_of(node)
        return function(reader, *operands)

    return row


def _as_op(op: Op) -> OpReader:
    """An operator that is an op of the graph language."""
    return plain_row(lambda reader, *operands: reader.emit(op, *operands))


def emit_fold(op: Op, reader: Reader, *operands: Value) -> Value:
    """Returns an op of two operands, applied to any number of them in turn."""
    return functools.reduce(functools.partial(reader.emit, op), operands)


def _constant(reader: Reader, node: NodeProto, _: tuple[Value, ...]) -> Value:
    """Constant: a tensor or, from opset 12 on, a number or list of numbers."""
    attributes = attributes_of(node, **dict.fromkeys(_CONSTANTS))
    values = [(key, value) for key, value in attributes.items() if value is not None]
    if len(values) != 1:
        raise VerificationError(f"it has {len(values)} values, and a constant has one")
    ((key, value),) = values
    name, kind = node.output[0], _CONSTANTS[key]
    if kind is not None:
        value = numpy_helper.from_array(np.asarray(value, kind), name)
    add_constant(reader, name, value)
    return reader.values[name]


_CONSTANTS = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
"""The attributes of a constant, and the type of those that are numbers."""


def _division(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Div: of integers it truncates; where a remainder was taken off first it is the floor."""
    attributes_of(node)
    dividend, divisor = operands
    if not dividend.type.dtype.is_integer:
        return reader.emit(Op.DIV, dividend, divisor)
    above = reader.builder.node(dividend)
    if above.op is Op.SUB:
        whole, rest = (reader.value_at(index) for index in above.operands)
        if rest == reader.emit(Op.FLOOR_MOD, whole, divisor):
            return reader.emit(Op.FLOOR_DIV, whole, divisor)
    quotient = reader.emit(Op.FLOOR_DIV, dividend, divisor)
    if not _divides(reader, dividend, divisor):
        reader.add_failing(node, quotient)
    next_one = reader.emit(Op.ADD, quotient, reader.constant(1, quotient))
    return reader.emit(Op.WHERE, _is_rounded_down(reader, *operands), next_one, quotient)


def _divides(reader: Reader, dividend: Value, divisor: Value) -> bool:
    """Whether the intervals of two integers show that there is a quotient, and that it fits."""
    above, below = (reader.ranges.of(value.index) for value in (dividend, divisor))
    is_least = above.low == full(dividend.type.dtype).low
    return not (below.contains(0) or (is_least and below.contains(-1)))


def _is_rounded_down(reader: Reader, dividend: Value, divisor: Value) -> Value:
    """Whether the floor of a quotient is not the integer towards zero."""
    remainder = reader.emit(Op.FLOOR_MOD, dividend, divisor)
    zero = reader.constant(0, divisor)
    is_exact = reader.emit(Op.EQ, remainder, zero)
    below, divisor_below = (reader.emit(Op.LT, value, zero) for value in (dividend, divisor))
    one_way = reader.emit(Op.AND, below, reader.emit(Op.NOT, divisor_below))
    other_way = reader.emit(Op.AND, reader.emit(Op.NOT, below), divisor_below)
    return reader.emit(
        Op.AND, reader.emit(Op.NOT, is_exact), reader.emit(Op.OR, one_way, other_way)
    )


def _difference(reader: Reader, near: Value, step: Value) -> Value | EngineValue:
    """Sub; a step of Newton's from an arctangent of f32 is the arctangent of f64."""
    operand = _operand_of_arctangent(reader, near, step)
    if operand is not None:
        return EngineValue(reader.emit(Op.ATAN, operand))
    return reader.emit(Op.SUB, near, step)


def _operand_of_arctangent(reader: Reader, near: Value, step: Value) -> Value | None:
    """The x of ``near - step``, where that is how ``exporters.onnx_ops`` writes its arctangent."""
    value, values = near, []
    for op in (Op.CAST, Op.ATAN, Op.CAST, Op.MIN, Op.MAX):
        source = reader.builder.node(value)
        if source.op is not op:
            return None
        value = reader.value_at(source.operands[0])
        values.append(value)
    *_, single, clamped, _, x = values
    if (single.type.dtype, x.type.dtype) != (DType.F32, DType.F64):
        return None
    least, most = (reader.builder.const(sign * ATAN_BOUND, DType.F64) for sign in (-1, 1))
    emit = reader.emit
    sine, cosine = emit(Op.SIN, near), emit(Op.COS, near)
    above = emit(Op.SUB, sine, emit(Op.MUL, clamped, cosine))
    below = emit(Op.ADD, cosine, emit(Op.MUL, clamped, sine))
    is_step = step == emit(Op.DIV, above, below)
    return x if is_step and clamped == emit(Op.MIN, emit(Op.MAX, x, least), most) else None


def _modulo(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Mod: with fmod=1 the remainder has the sign of the dividend, as in C.

    Floats need fmod=1. Integers with fmod=1 go through float64 in onnxruntime.
    """
    is_fmod = bool(attributes_of(node, fmod=0)["fmod"])
    dtype = operands[0].type.dtype
    if dtype.is_float is not is_fmod and dtype is not DType.I32:
        raise VerificationError(
            f"its attribute fmod is {int(is_fmod)}, of {dtype}",
            hint="onnxruntime computes no remainder of floats with fmod=0, and rounds the 64-bit "
            "integers of one with fmod=1 to float64",
        )
    remainder = reader.emit(Op.FLOOR_MOD, *operands)
    if dtype.is_integer and not _divides(reader, *operands):
        # x86 computes both at once: the remainder of the least integer and -1 ends the process.
        reader.add_failing(node, reader.emit(Op.FLOOR_DIV, *operands))
    if not is_fmod:
        return remainder
    # Where the quotient is negative and inexact, floor is one below C's truncation.
    c_remainder = reader.emit(Op.SUB, remainder, operands[1])
    result = reader.emit(Op.WHERE, _is_rounded_down(reader, *operands), c_remainder, remainder)
    reader.remainders[result] = operands[0], operands[1]
    return result


def _sign(reader: Reader, operand: Value) -> Value:
    zero, unit, less = (reader.constant(number, operand) for number in (0, 1, -1))
    above = reader.emit(Op.WHERE, reader.emit(Op.LT, zero, operand), unit, zero)
    result = reader.emit(Op.WHERE, reader.emit(Op.LT, operand, zero), less, above)
    reader.signs[result] = operand
    return result


def read_where(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value | EngineValue:
    """Returns the value of a Where.

    The Mod of C with the divisor added where the signs differ is the floored one.
    """
    attributes_of(node)
    condition, then, otherwise = operands
    if node.doc_string == CHOICE and (then.type != otherwise.type or condition.type.shape):
        raise VerificationError(
            f"an If chooses by {condition.type} between {then.type} and {otherwise.type}",
            hint="its condition needs rank 0, and its branches results of one type",
        )
    division = reader.remainders.get(otherwise)
    if division is not None and then == reader.emit(Op.ADD, otherwise, division[1]):
        zero = reader.constant(0, otherwise)
        is_opposite = reader.emit(Op.LT, otherwise, zero)
        by_signs = _signs_differ(reader, otherwise, division[1])
        is_positive = _is_positive(reader, division[1])
        if condition in by_signs or (condition == is_opposite and is_positive):
            return EngineValue(reader.emit(Op.FLOOR_MOD, *division))
    return reader.emit(Op.WHERE, *operands)


def _signs_differ(reader: Reader, remainder: Value, divisor: Value) -> list[Value]:
    signs = {operand: sign for sign, operand in reader.signs.items()}
    if remainder not in signs or divisor not in signs:
        return []
    product = reader.emit(Op.MUL, signs[remainder], signs[divisor])
    return [reader.emit(Op.LT, product, reader.constant(0, product))]


def _is_positive(reader: Reader, value: Value) -> bool:
    node = reader.builder.node(value)
    return node.op is Op.CONST and bool(np.all(node.array() > 0))


def read_cast(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Returns the value of a Cast."""
    attributes = attributes_of(node, to=None, saturate=1)
    if attributes["to"] not in DTYPES:
        raise VerificationError(f"it casts to a type that is not supported: {attributes['to']}")
    return reader.emit(Op.CAST, operands[0], to=DTYPES[attributes["to"]])


def reduction(
    op: Op,
    before: Callable[[Reader, Value], Value] = lambda _, operand: operand,
    after: Callable[[Reader, Value], Value] = lambda _, result: result,
) -> OpReader:
    """Returns the row of a reduction of a function of the operand, and a function of its result."""

    def row(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
        axes, keepdims = reduction_axes(reader, node, operands)
        operand = before(reader, operands[0])
        return after(reader, reader.emit(op, operand, axes=axes, keepdims=keepdims))

    return row


def reduction_axes(
    reader: Reader, node: NodeProto, operands: tuple[Value, ...]
) -> tuple[tuple[int, ...], bool]:
    """Returns the axes of a reduction, counted from the first, and whether they stay."""
    attributes = attributes_of(node, axes=None, keepdims=1, noop_with_empty_axes=0)
    rank = operands[0].type.rank
    axes_of_node = axes_of(reader, node, attributes["axes"])
    if not axes_of_node:
        axes_of_node = () if attributes["noop_with_empty_axes"] else tuple(range(rank))
    return tuple(sorted(axes_from_first(axes_of_node, rank))), bool(attributes["keepdims"])


def axes_of(reader: Reader, node: NodeProto, attribute: Sequence[int] | None) -> Sequence[int]:
    """Returns the axes of a node, an operand or in older opsets an attribute."""
    is_operand = len(node.input) > 1 and node.input[1]
    return reader.whole_numbers(node.input[1]) if is_operand else attribute or ()


def axes_from_first(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Returns axes counted from the first; those below 0 count from the end.

    Raises:
        VerificationError: There is no such axis, or one is named twice.
    """
    result = tuple(axis + rank if axis < 0 else axis for axis in axes)
    if not all(0 <= axis < rank for axis in result) or len(set(result)) < len(result):
        raise VerificationError(f"its axes {list(axes)} are not distinct ones of {rank}")
    return result


def _transpose(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    order = attributes_of(node, perm=None)["perm"]
    permutation = range(operands[0].type.rank)[::-1] if order is None else order
    return reader.emit(Op.TRANSPOSE, operands[0], permutation=tuple(permutation))


def _reshape(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    copies_zero = attributes_of(node, allowzero=0)["allowzero"]
    before = operands[0].type.shape
    sizes: list[int | str] = list(reader.whole_numbers(node.input[1]))
    if not copies_zero:
        sizes = [before[axis] if dim == 0 else dim for axis, dim in enumerate(sizes)]
    if -1 in sizes:
        sizes[sizes.index(-1)] = _remaining(before, sizes)
    return reader.emit(Op.RESHAPE, operands[0], shape=tuple(sizes))


def _remaining(before: Shape, sizes_of_node: Sequence[int | str]) -> int | str:
    """The size that a -1 stands for: the one name that is missing, or the quotient of the sizes."""
    names = [dim for dim in before if isinstance(dim, str) and dim not in sizes_of_node]
    if len(names) == 1:
        return names[0]
    sizes = [dim for dim in before if isinstance(dim, int)]
    constant_sizes = [dim for dim in sizes_of_node if isinstance(dim, int) and dim != -1]
    total, product = int(np.prod(sizes)), int(np.prod(constant_sizes))
    if names or product == 0 or total % product:
        raise VerificationError(f"the size of its axis -1 is not known, from {list(before)}")
    return total // product


def _expand(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    attributes_of(node)
    sizes = reader.whole_numbers(node.input[1])
    if min(sizes, default=0) < 0:
        raise VerificationError(f"its sizes must be 0 or more, got {list(sizes)}")
    shape = broadcast(operands[0].type.shape, sizes)
    return reader.emit(Op.BROADCAST_TO, operands[0], shape=shape)


def _concat(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    (axis,) = axes_from_first([attributes_of(node, axis=None)["axis"]], operands[0].type.rank)
    return reader.emit(Op.CONCAT, *operands, axis=axis)


def _slice(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Slice along one axis in steps of 1; places below 0 count from the end."""
    attributes_of(node)
    starts, stops, axes, *steps = map(reader.whole_numbers, node.input[1:])
    if not len(starts) == len(stops) == len(axes) == 1 or steps not in ([], [(1,)]):
        raise VerificationError("it takes more than one axis, or steps over places")
    (axis,) = axes_from_first(axes, operands[0].type.rank)
    size = operands[0].type.shape[axis]
    if not isinstance(size, int):
        raise VerificationError(f"the size {size!r} of its axis is not a number")
    start, stop, _ = slice(*starts, *stops).indices(size)
    return reader.emit(Op.SLICE, operands[0], axis=axis, start=start, stop=max(start, stop))


def _gather(reader: Reader, node: NodeProto, operands: tuple[Value, ...]) -> Value:
    """Gather of a vector; a negative index counts from its end."""
    table, index = operands
    if attributes_of(node, axis=0)["axis"] not in (0, -1) or table.type.rank != 1:
        raise VerificationError(f"it gathers along an axis of {table.type}, not of a vector")
    size = table.type.shape[0]
    places = reader.ranges.of(index.index)
    if places.low < 0 and isinstance(size, int) and index.type.dtype.is_integer:
        from_end = reader.emit(Op.ADD, index, reader.constant(size, index))
        is_negative = reader.emit(Op.LT, index, reader.constant(0, index))
        is_always = places.high < 0
        index = from_end if is_always else reader.emit(Op.WHERE, is_negative, from_end, index)
    element = reader.emit(Op.LOOKUP, table, index)
    if not (isinstance(size, int) and -size <= places.low and places.high < size):
        reader.add_failing(node, element)
    return element


ONNX_ROWS: Mapping[str, OpReader] = {
    "Abs": _as_op(Op.ABS),
    "Add": _as_op(Op.ADD),
    "And": _as_op(Op.AND),
    "Atan": _as_op(Op.ATAN),
    "Cast": read_cast,
    "Concat": _concat,
    "Constant": _constant,
    "Cos": _as_op(Op.COS),
    "Div": _division,
    "Equal": _as_op(Op.EQ),
    "Exp": _as_op(Op.EXP),
    "Expand": _expand,
    "Floor": _as_op(Op.FLOOR),
    "Gather": _gather,
    "Greater": plain_row(lambda reader, x, y: reader.emit(Op.LT, y, x)),
    "GreaterOrEqual": plain_row(lambda reader, x, y: reader.emit(Op.LE, y, x)),
    "Identity": plain_row(lambda _, operand: operand),
    "Less": _as_op(Op.LT),
    "LessOrEqual": _as_op(Op.LE),
    "Log": _as_op(Op.LOG),
    "MatMul": _as_op(Op.MATMUL),
    "Max": plain_row(functools.partial(emit_fold, Op.MAX)),
    "Min": plain_row(functools.partial(emit_fold, Op.MIN)),
    "Mod": _modulo,
    "Mul": _as_op(Op.MUL),
    "Neg": _as_op(Op.NEG),
    "Not": _as_op(Op.NOT),
    "Or": _as_op(Op.OR),
    "Pow": _as_op(Op.POW),
    "ReduceMax": reduction(Op.REDUCE_MAX),
    "ReduceSum": reduction(Op.REDUCE_SUM),
    "Reshape": _reshape,
    "Sign": plain_row(_sign),
    "Sin": _as_op(Op.SIN),
    "Slice": _slice,
    "Sqrt": _as_op(Op.SQRT),
    "Sub": plain_row(_difference),
    "Transpose": _transpose,
    "Where": read_where,
}
"""The semantics of each ONNX operator."""

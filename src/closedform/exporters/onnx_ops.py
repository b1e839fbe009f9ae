"""The ONNX table: for each op of the graph language the ONNX nodes that mean the same.

Constants become initializers, never nodes. Every emitted node is a standard operator without a
subgraph, so If, Loop and Scan cannot occur.

Measured with onnx 1.23 and onnxruntime 1.31 on CPU: integer Div truncates, Mod(fmod=0) has the
sign of the divisor, fails the run for a zero divisor and kills the process (SIGFPE) for the least
integer by -1, ReduceSum with no axes reduces all of them, and on integers it saturates instead of
wrapping; ReduceMax drops every NaN but the first element; Expand has no bf16 kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from closedform.errors import ExportError
from closedform.ir import draws
from closedform.ir.graph import Array, Graph, Node
from closedform.ir.ops import Op
from closedform.ir.types import DType, Shape, TensorType


@dataclass(slots=True)
class Writer:
    """Collects the ONNX inputs, initializers and nodes of one graph.

    Attributes:
        graph: The graph that is written.
        names: The ONNX value name of each node of ``graph``, by index.
        opset: The opset that the model will declare.
        dtypes: The dtypes that the model may contain.
    """

    graph: Graph
    names: list[str]
    opset: int
    dtypes: frozenset[DType] = frozenset(DType)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    _constants: dict[tuple[TensorType, bytes], str] = field(default_factory=dict)
    _spread: dict[tuple[str, int], str] = field(default_factory=dict)
    _words: dict[tuple[int, int], str] = field(default_factory=dict)
    _names_in_use: set[str] = field(default_factory=set)
    _counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._names_in_use.update(self.names, (output.name for output in self.graph.outputs))

    def operand(self, node: Node, position: int) -> Node:
        """Returns the node behind an operand."""
        return self.graph.nodes[node.operands[position]]

    def add_initializer(self, name: str, type_: TensorType, data: bytes) -> None:
        """Adds a constant under a name of the caller's choice."""
        element = type_.dtype.row.number
        self.initializers.append(
            helper.make_tensor(name, element, sizes(type_.shape), data, raw=True)
        )
        # The first name of equal constants is the one that is reused.
        self._constants.setdefault((type_, data), name)

    def constant(self, value: int | Sequence[int] | Array, dtype: DType) -> str:
        """Returns the name of an initializer that holds ``value``, adding it when it is new."""
        array = np.asarray(value, dtype.numpy)
        type_ = TensorType(dtype, array.shape)
        existing_name = self._constants.get((type_, array.tobytes()))
        if existing_name is not None:
            return existing_name
        name = self._fresh(f"const_{dtype}")
        self.add_initializer(name, type_, array.tobytes())
        return name

    def constant_word(self, value: int, element: int = TensorProto.UINT32) -> str:
        """Returns the name of an unsigned initializer; graphs have no such dtype."""
        if (value, element) not in self._words:
            name = self._words[value, element] = self._fresh("const_word")
            self.initializers.append(helper.make_tensor(name, element, (), [value]))
        # Random bits are computed in uint32, a dtype that graphs do not have.
        return self._words[value, element]

    def spread(self, node: Node, name: str, rank: int) -> str:
        """Returns a number as a tensor of one element, with ``rank`` axes."""
        unit_shape = (1,) * rank
        if node.op is Op.CONST:
            return self.constant(node.array().reshape(unit_shape), node.type.dtype)
        # Reshape takes its shape in int64, which some targets do not have.
        if DType.I64 not in self.dtypes:
            return name
        if (name, rank) not in self._spread:
            shape = self.constant(unit_shape, DType.I64)
            self._spread[name, rank] = self.call("Reshape", name, shape)
        return self._spread[name, rank]

    def call(
        self,
        operator: str,
        *inputs: str,
        into: str | None = None,
        **attributes: int | str | list[int],
    ) -> str:
        """Adds a node and returns the name of its result; ``into`` chooses that name."""
        result = into if into is not None else self._fresh(operator.lower())
        node = helper.make_node(operator, list(inputs), [result], name=result)
        # Attributes in one order, so that equal graphs give equal bytes.
        for name, value in sorted(attributes.items()):
            node.attribute.append(helper.make_attribute(name, value))
        self.nodes.append(node)
        return result

    def _fresh(self, stem: str) -> str:
        while True:
            name = f"{stem}.{self._counts[stem]}"
            self._counts[stem] += 1
            if name not in self._names_in_use:
                return name


Emitter = Callable[[Writer, Node, tuple[str, ...], str], None]


@dataclass(frozen=True, slots=True)
class OnnxRow:
    """How one op is written.

    Attributes:
        min_opset: The first opset in which the emitted nodes are legal for all dtypes of the op
            but bf16, which needs ``BF16_MIN_OPSET``.
        emit: Adds the nodes; the last one has the given result name.
    """

    min_opset: int
    emit: Emitter


BF16_MIN_OPSET = 13
ATAN_BOUND = 2.0**60
"""The arctangents of all larger numbers are one float64."""


def sizes(shape: Shape) -> list[int]:
    """Returns a shape without named sizes as a list of ints."""
    return [int(dim) for dim in shape]


def _input(writer: Writer, node: Node, _: tuple[str, ...], result: str) -> None:
    element = node.type.dtype.row.number
    writer.inputs.append(helper.make_tensor_value_info(result, element, node.type.shape))


def _const(writer: Writer, node: Node, _: tuple[str, ...], result: str) -> None:
    writer.add_initializer(result, node.type, node.attribute("data"))


def _direct(operator: str, min_opset: int) -> OnnxRow:
    """An op that is one ONNX operator with the same operands and no attributes."""

    def emit(writer: Writer, _: Node, operands: tuple[str, ...], result: str) -> None:
        writer.call(operator, *operands, into=result)

    return OnnxRow(min_opset, emit)


def _elementwise(operator: str, min_opset: int) -> OnnxRow:
    """An op that is one ONNX operator of operands that are broadcast."""

    def emit(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
        writer.call(operator, *_spread(writer, node, operands), into=result)

    return OnnxRow(min_opset, emit)


def _spread(writer: Writer, node: Node, operands: tuple[str, ...]) -> tuple[str, ...]:
    """The operands, numbers with as many axes as the result where its last axis has one element.

    onnxruntime 1.31 applies a number to one last axis at a time, which takes 70 times as long for
    the weight of a convolution with kernel 1, unless the number has as many axes.
    """
    shape = node.type.shape
    if len(shape) < 2 or shape[-1] != 1 or all(dim == 1 for dim in shape):
        return operands
    sources = [writer.operand(node, place) for place in range(len(operands))]
    return tuple(
        name if source.type.rank else writer.spread(source, name, len(shape))
        for source, name in zip(sources, operands, strict=True)
    )


def _extremum(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """Min or Max; of i64 a Where, since onnxruntime 1.31 cuts vectors of them to 32 bits."""
    if node.type.dtype is not DType.I64:
        spread = _spread(writer, node, operands)
        writer.call("Min" if node.op is Op.MIN else "Max", *spread, into=result)
        return
    first, second = operands if node.op is Op.MIN else operands[::-1]
    is_first_less = writer.call("Less", first, second)
    writer.call("Where", is_first_less, *operands, into=result)


def _atan(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """Atan; of f64 that of f32 with one step of Newton's: onnxruntime 1.31 has no Atan of float64.

    The step is ``a - (sin a - x cos a) / (cos a + x sin a)``, which is the arctangent of x but for
    a third of the cube of the error of a, at most 5e-22. Beyond 2**60 the arctangent in f64 is
    that of 2**60, and no product overflows. In this order of the differences zeros keep their
    signs.
    """
    if node.type.dtype is not DType.F64:
        writer.call("Atan", *operands, into=result)
        return
    x = operands[0]
    for operator, bound in (("Max", -ATAN_BOUND), ("Min", ATAN_BOUND)):
        x = writer.call(operator, x, writer.constant(np.asarray(bound), DType.F64))
    near = writer.call("Atan", writer.call("Cast", x, to=TensorProto.FLOAT))
    near = writer.call("Cast", near, to=TensorProto.DOUBLE)
    sine, cosine = writer.call("Sin", near), writer.call("Cos", near)
    above = writer.call("Sub", sine, writer.call("Mul", x, cosine))
    below = writer.call("Add", cosine, writer.call("Mul", x, sine))
    writer.call("Sub", near, writer.call("Div", above, below), into=result)


def _floor_div(writer: Writer, _: Node, operands: tuple[str, ...], result: str) -> None:
    """(a - Mod(a, b)) / b: the division is exact, and truncation is floor.

    The difference would wrap where a is within one divisor of the least integer: lowering makes no
    such quotient.
    """
    dividend, divisor = operands
    remainder = writer.call("Mod", dividend, divisor)
    multiple = writer.call("Sub", dividend, remainder)
    writer.call("Div", multiple, divisor, into=result)


def _floor_mod(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """Mod(fmod=0) on integers; on floats Mod(fmod=1), plus b where r != 0 and the signs differ.

    Signs are compared by Sign and not by r * b < 0, a product that underflows for small r and b.
    A constant positive divisor needs no more than r < 0.
    """
    dividend, divisor = operands
    if node.type.dtype.is_integer:
        writer.call("Mod", dividend, divisor, into=result)
        return
    remainder = writer.call("Mod", dividend, divisor, fmod=1)
    zero = writer.constant(0, node.type.dtype)
    sign = remainder
    if not _is_positive_constant(writer.operand(node, 1)):
        signs = writer.call("Sign", remainder), writer.call("Sign", divisor)
        sign = writer.call("Mul", *signs)
    misfit = writer.call("Less", sign, zero)
    shifted_remainder = writer.call("Add", remainder, divisor)
    writer.call("Where", misfit, shifted_remainder, remainder, into=result)


def _is_positive_constant(node: Node) -> bool:
    return node.op is Op.CONST and bool(np.all(node.array() > 0))


def _cast(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    writer.call("Cast", *operands, into=result, to=node.attribute("to").row.number)


def _reduce_sum(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    if not node.attribute("axes"):
        writer.call("Identity", *operands, into=result)
        return
    _reduction(writer, node, operands, "ReduceSum", 13, result)


def _reduction(
    writer: Writer,
    node: Node,
    operands: tuple[str, ...],
    operator: str,
    since: int,
    result: str | None = None,
) -> str:
    """A reduction: its axes are an operand from the opset ``since`` on, an attribute before."""
    axes = sizes(node.attribute("axes"))
    keepdims = int(node.attribute("keepdims"))
    if writer.opset < since:
        return writer.call(operator, *operands, into=result, axes=axes, keepdims=keepdims)
    axes_input = writer.constant(axes, DType.I64)
    return writer.call(operator, *operands, axes_input, into=result, keepdims=keepdims)


def _reduce_max(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """ReduceMax, and of floats the NaN that it drops: only for NaN is a sum of sizes NaN."""
    if not node.attribute("axes"):
        writer.call("Identity", *operands, into=result)
        return
    if not node.type.dtype.is_float:
        _reduction(writer, node, operands, "ReduceMax", 18, result)
        return
    maximum = _reduction(writer, node, operands, "ReduceMax", 18)
    total = _reduction(writer, node, (writer.call("Abs", *operands),), "ReduceSum", 13)
    writer.call("Where", writer.call("Equal", total, total), maximum, total, into=result)


def _transpose(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    permutation = node.attribute("permutation")
    if not permutation:
        writer.call("Identity", *operands, into=result)
        return
    writer.call("Transpose", *operands, into=result, perm=sizes(permutation))


def _slice(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    places = [int(node.attribute(name)) for name in ("start", "stop", "axis")]
    dtype = DType.I64 if DType.I64 in writer.dtypes else DType.I32
    indices = (writer.constant([place], dtype) for place in places)
    writer.call("Slice", *operands, *indices, into=result)


def _concat(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    writer.call("Concat", *operands, into=result, axis=int(node.attribute("axis")))


def _reshape(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """A named size is -1; a size of 0 needs allowzero, which ONNX forbids next to -1."""
    shape = node.attribute("shape")
    if DType.I64 not in writer.dtypes and _without_ones(shape) == _without_ones(
        writer.operand(node, 0).type.shape
    ):
        _unit_axes(writer, node, operands, result)
        return
    target_shape = [dim if isinstance(dim, int) else -1 for dim in shape]
    if 0 not in target_shape:
        writer.call("Reshape", *operands, writer.constant(target_shape, DType.I64), into=result)
        return
    if -1 in target_shape or writer.opset < 14:
        raise ExportError(
            f"reshape to {list(shape)} has a size of 0, which ONNX has from opset 14 on "
            f"and not together with a named size; got opset {writer.opset}",
            where=f"graph {writer.graph.name!r}",
            hint="leave empty tensors out of the graph",
        )
    target = writer.constant(target_shape, DType.I64)
    writer.call("Reshape", *operands, target, into=result, allowzero=1)


def _broadcast_to(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """Expand; bf16 goes through f32, which holds it exactly (onnxruntime has no bf16 Expand).

    In files without int64 a product with ones: a vector of ones for each axis that is expanded.
    """
    (operand,) = operands
    if DType.I64 not in writer.dtypes and node.type.dtype is not DType.BOOL:
        _times_ones(writer, node, operand, result)
        return
    target = writer.constant(sizes(node.attribute("shape")), DType.I64)
    if node.type.dtype is not DType.BF16:
        writer.call("Expand", operand, target, into=result)
        return
    wide = writer.call("Cast", operand, to=TensorProto.FLOAT)
    expansion = writer.call("Expand", wide, target)
    writer.call("Cast", expansion, into=result, to=TensorProto.BFLOAT16)


def _without_ones(shape: Shape) -> list[int | str]:
    return [dim for dim in shape if dim != 1]


def _unit_axes(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """Squeeze and Unsqueeze, whose axes are attributes before opset 13."""
    (operand,) = operands
    for operator, shape, into in (
        ("Squeeze", writer.operand(node, 0).type.shape, None),
        ("Unsqueeze", node.type.shape, result),
    ):
        axes = [axis for axis, dim in enumerate(shape) if dim == 1]
        if axes:
            operand = writer.call(operator, operand, into=into, axes=axes)
    if operand != result:
        writer.call("Identity", operand, into=result)


def _times_ones(writer: Writer, node: Node, operand: str, result: str) -> None:
    shape = sizes(node.type.shape)
    source_sizes = [1] * (len(shape) - writer.operand(node, 0).type.rank)
    source_sizes += sizes(writer.operand(node, 0).type.shape)
    expanded_axes = [axis for axis, size in enumerate(shape) if size != source_sizes[axis]]
    for axis in expanded_axes or [-1] * bool(len(shape) > writer.operand(node, 0).type.rank):
        factor_shape = [1] * len(shape)
        factor_shape[axis] = shape[axis] if expanded_axes else 1
        factor = writer.constant(np.ones(factor_shape), node.type.dtype)
        operand = writer.call("Mul", operand, factor)
    writer.call("Identity", operand, into=result)


def _uniform(writer: Writer, node: Node, operands: tuple[str, ...], result: str) -> None:
    """``closedform.ir.draws`` in uint32: BitwiseXor is an operator from opset 18 on."""
    like, step = operands
    if DType.I64 not in writer.dtypes:
        raise ExportError(
            "random numbers need int64 and uint32",
            where=f"graph {writer.graph.name!r}",
            hint="round to nearest: transforms.kahan",
        )

    def operation(operator: str) -> Callable[[str, str], str]:
        return lambda x, y: writer.call(operator, x, y)

    words = draws.Words(
        operation("Add"),
        lambda x, factor: writer.call("Mul", x, writer.constant_word(factor)),
        lambda x, count: writer.call("BitShift", x, writer.constant_word(count), direction="RIGHT"),
        operation("BitwiseXor"),
        writer.constant_word,
    )
    high = None
    if writer.operand(node, 1).type.dtype is DType.I64:
        step = writer.call("Cast", step, to=TensorProto.UINT64)
        count = writer.constant_word(32, TensorProto.UINT64)
        high = writer.call("BitShift", step, count, direction="RIGHT")
        high = writer.call("Cast", high, to=TensorProto.UINT32)
    low = writer.call("Cast", step, to=TensorProto.UINT32)
    zero, one = (writer.constant(number, DType.I64) for number in (0, 1))
    # A constant number of places would be folded into a constant of that size.
    places = writer.call("Range", zero, writer.call("Size", like), one)
    place = writer.call("Cast", places, to=TensorProto.UINT32)
    seed = draws.seed_word(int(node.attribute("seed")))
    bits = words.bits(place, low, high, seed)
    shape = node.type.shape
    is_static = all(isinstance(size, int) and size > 0 for size in shape)
    sizes_of_like = (
        writer.constant(sizes(shape), DType.I64) if is_static else writer.call("Shape", like)
    )
    allowed: dict[str, int] = {} if is_static else {"allowzero": 1}
    bits = writer.call("Reshape", bits, sizes_of_like, into=None, **allowed)
    numbers = writer.call("Cast", bits, to=node.type.dtype.row.number)
    unit = writer.constant(np.asarray(2.0**-draws.BITS), node.type.dtype)
    writer.call("Mul", numbers, unit, into=result)


ONNX_OPS: Mapping[Op, OnnxRow] = {
    Op.INPUT: OnnxRow(1, _input),
    Op.CONST: OnnxRow(1, _const),
    Op.ADD: _elementwise("Add", 7),
    Op.SUB: _elementwise("Sub", 7),
    Op.MUL: _elementwise("Mul", 7),
    Op.NEG: _direct("Neg", 6),
    Op.ABS: _direct("Abs", 6),
    Op.DIV: _elementwise("Div", 7),
    Op.FLOOR_DIV: OnnxRow(10, _floor_div),
    Op.FLOOR_MOD: OnnxRow(10, _floor_mod),
    Op.MIN: OnnxRow(12, _extremum),
    Op.MAX: OnnxRow(12, _extremum),
    Op.FLOOR: _direct("Floor", 6),
    Op.SQRT: _direct("Sqrt", 6),
    Op.EXP: _direct("Exp", 6),
    Op.LOG: _direct("Log", 6),
    Op.COS: _direct("Cos", 7),
    Op.SIN: _direct("Sin", 7),
    Op.ATAN: OnnxRow(12, _atan),
    Op.POW: _elementwise("Pow", 7),
    Op.LT: _elementwise("Less", 9),
    Op.LE: _elementwise("LessOrEqual", 12),
    Op.EQ: _elementwise("Equal", 11),
    Op.AND: _direct("And", 7),
    Op.OR: _direct("Or", 7),
    Op.NOT: _direct("Not", 1),
    Op.WHERE: _elementwise("Where", 9),
    Op.CAST: OnnxRow(9, _cast),
    Op.REDUCE_SUM: OnnxRow(11, _reduce_sum),
    Op.REDUCE_MAX: OnnxRow(12, _reduce_max),
    Op.MATMUL: _direct("MatMul", 1),
    Op.TRANSPOSE: OnnxRow(1, _transpose),
    Op.RESHAPE: OnnxRow(5, _reshape),
    Op.BROADCAST_TO: OnnxRow(8, _broadcast_to),
    Op.SLICE: OnnxRow(10, _slice),
    Op.CONCAT: OnnxRow(4, _concat),
    Op.LOOKUP: _direct("Gather", 1),
    Op.UNIFORM: OnnxRow(18, _uniform),
}

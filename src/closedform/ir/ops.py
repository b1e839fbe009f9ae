"""The op table: one row for each op, read by checker, evaluator, ranges and all exporters.

Ops are closed: a graph holds these and nothing else. A row states how many operands an op takes,
which dtypes and attributes, the type of its result, and how far two engines may differ in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from closedform.errors import GraphError
from closedform.ir.types import (
    COMPUTED_FLOATS,
    COMPUTED_INTEGERS,
    FLOATS,
    INTEGERS,
    DType,
    Shape,
    TensorType,
    broadcast,
)

AttributeValue = bool | int | str | bytes | DType | Shape
Attributes = Mapping[str, AttributeValue]
Infer = Callable[[tuple[TensorType, ...], Attributes], TensorType]


class Op(StrEnum):
    """Names of the ops; the string is the name in the text form."""

    INPUT = "input"
    CONST = "const"
    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    NEG = "neg"
    ABS = "abs"
    DIV = "div"
    FLOOR_DIV = "floor_div"
    FLOOR_MOD = "floor_mod"
    MIN = "min"
    MAX = "max"
    FLOOR = "floor"
    SQRT = "sqrt"
    EXP = "exp"
    LOG = "log"
    COS = "cos"
    SIN = "sin"
    ATAN = "atan"
    POW = "pow"
    LT = "lt"
    LE = "le"
    EQ = "eq"
    AND = "and"
    OR = "or"
    NOT = "not"
    WHERE = "where"
    CAST = "cast"
    REDUCE_SUM = "reduce_sum"
    REDUCE_MAX = "reduce_max"
    MATMUL = "matmul"
    TRANSPOSE = "transpose"
    RESHAPE = "reshape"
    BROADCAST_TO = "broadcast_to"
    SLICE = "slice"
    CONCAT = "concat"
    LOOKUP = "lookup"
    UNIFORM = "uniform"


BOOLS = frozenset({DType.BOOL})
NUMBERS = COMPUTED_INTEGERS | COMPUTED_FLOATS
ANY = BOOLS | INTEGERS | FLOATS


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row of the op table.

    Attributes:
        op: The op.
        arity: Number of operands.
        dtypes: Dtypes that the operands may have.
        infer: Operand types and attributes to the result type; raises GraphError on a misfit.
        attributes: Names of the attributes, all required.
        ulp: How far an engine may be off the exact result of this one op, in units in the last
            place of the result (for cos and sin: of 1). 0 means bit for bit.
        reason: The reason for ``ulp``.
        is_variadic: Whether it takes more operands, too.
    """

    op: Op
    arity: int
    dtypes: frozenset[DType]
    infer: Infer
    attributes: tuple[str, ...] = ()
    ulp: float = 0.0
    reason: str = "IEEE 754 prescribes the rounded result"
    is_variadic: bool = False


def _same_dtype(types: tuple[TensorType, ...]) -> DType:
    if any(operand.dtype != types[0].dtype for operand in types):
        operand_types = ", ".join(str(operand) for operand in types)
        raise GraphError(f"operands must share one dtype, got {operand_types}")
    return types[0].dtype


def _common_shape(types: tuple[TensorType, ...]) -> Shape:
    shape = types[0].shape
    for operand in types[1:]:
        shape = broadcast(shape, operand.shape)
    return shape


def _elementwise(types: tuple[TensorType, ...], _: Attributes) -> TensorType:
    return TensorType(_same_dtype(types), _common_shape(types))


def _comparison(types: tuple[TensorType, ...], _: Attributes) -> TensorType:
    _same_dtype(types)
    return TensorType(DType.BOOL, _common_shape(types))


def _where(types: tuple[TensorType, ...], _: Attributes) -> TensorType:
    condition, *branches = types
    if condition.dtype is not DType.BOOL:
        raise GraphError(f"the condition must be bool, got {condition}")
    dtype = _same_dtype(tuple(branches))
    if dtype is DType.BOOL:
        raise GraphError("the branches must be numbers, got bool (onnxruntime has no bool Where)")
    return TensorType(dtype, _common_shape(types))


def _cast(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    target = attributes["to"]
    if not isinstance(target, DType):
        raise GraphError(f"attribute 'to' must be a dtype, got {target!r}")
    if target is DType.I8 and types[0].dtype.is_float:
        raise GraphError(
            f"a float becomes i8 by way of i32, got {types[0]}: engines differ in what does not fit"
        )
    return TensorType(target, types[0].shape)


def _shape_attribute(attributes: Attributes, name: str) -> Shape:
    value = attributes[name]
    if not isinstance(value, tuple):
        raise GraphError(f"attribute {name!r} must be a tuple, got {value!r}")
    return value


def _reduced_type(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    (operand,) = types
    axes = _shape_attribute(attributes, "axes")
    legal = all(isinstance(axis, int) and 0 <= axis < operand.rank for axis in axes)
    if not legal or sorted(set(axes), key=str) != sorted(axes, key=str):
        raise GraphError(
            f"axes must be distinct and in 0..{operand.rank - 1}, got {list(axes)} for {operand}"
        )
    keepdims = attributes["keepdims"]
    if not isinstance(keepdims, bool):
        raise GraphError(f"attribute 'keepdims' must be a bool, got {keepdims!r}")
    remaining = [
        1 if axis in axes else dim
        for axis, dim in enumerate(operand.shape)
        if keepdims or axis not in axes
    ]
    return TensorType(operand.dtype, tuple(remaining))


def _reduce_max(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    result = _reduced_type(types, attributes)
    (operand,) = types
    sizes = [operand.shape[int(axis)] for axis in _shape_attribute(attributes, "axes")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise GraphError(
            f"the sizes of reduced axes must be integers >= 1, got {sizes} for {operand}: no "
            "elements have no maximum"
        )
    return result


def _matmul(types: tuple[TensorType, ...], _: Attributes) -> TensorType:
    left, right = types
    dtype = _same_dtype(types)
    if left.rank < 2 or right.rank < 2 or left.shape[-1] != right.shape[-2]:
        raise GraphError(f"operands must be matrices with a common inner size, got {left}, {right}")
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    return TensorType(dtype, (*batch, left.shape[-2], right.shape[-1]))


def _transpose(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    (operand,) = types
    order = _shape_attribute(attributes, "permutation")
    if sorted(order, key=str) != sorted(range(operand.rank), key=str):
        raise GraphError(
            f"permutation must order axes 0..{operand.rank - 1}, got {list(order)} for {operand}"
        )
    return TensorType(operand.dtype, tuple(operand.shape[int(axis)] for axis in order))


def _size(shape: Shape) -> tuple[int, tuple[str, ...]]:
    """Product of the known sizes, and the named ones in order."""
    product = 1
    for dim in shape:
        product *= dim if isinstance(dim, int) else 1
    return product, tuple(sorted(dim for dim in shape if isinstance(dim, str)))


def _reshape(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    (operand,) = types
    shape = _shape_attribute(attributes, "shape")
    if _size(shape) != _size(operand.shape):
        raise GraphError(
            f"cannot reshape {operand} to {list(shape)}: the number of elements differs"
        )
    # ONNX's Reshape has one -1 to infer; a second named size would need shape arithmetic in the
    # graph.
    if len(_size(shape)[1]) > 1:
        raise GraphError(f"cannot reshape {operand} to {list(shape)}: more than one named size")
    return TensorType(operand.dtype, shape)


def _broadcast_to(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    (operand,) = types
    shape = _shape_attribute(attributes, "shape")
    # A named size is unknown when the constant operand of ONNX's Expand is written.
    if any(isinstance(dim, str) for dim in shape) or broadcast(operand.shape, shape) != shape:
        raise GraphError(f"cannot broadcast {operand} to {list(shape)}")
    return TensorType(operand.dtype, shape)


def _integers(attributes: Attributes, *names: str) -> list[int]:
    values = [attributes[name] for name in names]
    numbers = [value for value in values if type(value) is int and value >= 0]
    if len(numbers) < len(values):
        raise GraphError(f"attributes {', '.join(names)} must be integers >= 0, got {values}")
    return numbers


def _slice(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    (operand,) = types
    axis, start, stop = _integers(attributes, "axis", "start", "stop")
    size = operand.shape[axis] if axis < operand.rank else None
    if not isinstance(size, int) or not start <= stop <= size:
        raise GraphError(f"{operand} has no places {start} to {stop} along axis {axis}")
    return TensorType(
        operand.dtype, (*operand.shape[:axis], stop - start, *operand.shape[axis + 1 :])
    )


def _concat(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    first, (axis,) = types[0], _integers(attributes, "axis")
    joint_types = {
        (operand.dtype, operand.shape[:axis], operand.shape[axis + 1 :])
        for operand in types
        if operand.rank > axis
    }
    sizes = [n for operand in types for n in operand.shape[axis : axis + 1] if isinstance(n, int)]
    if len(sizes) < len(types) or len(joint_types) > 1:
        raise GraphError(f"cannot join {', '.join(map(str, types))} along axis {axis}")
    return TensorType(first.dtype, (*first.shape[:axis], sum(sizes), *first.shape[axis + 1 :]))


def _lookup(types: tuple[TensorType, ...], _: Attributes) -> TensorType:
    table, index = types
    if table.rank != 1 or table.shape[0] == 0:
        raise GraphError(f"the table must be a non-empty vector, got {table}")
    if not index.dtype.is_integer:
        raise GraphError(f"the index must be an integer, got {index}")
    return TensorType(table.dtype, index.shape)


def _uniform(types: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    like, step = types
    dtype, seed = attributes["to"], attributes["seed"]
    if dtype not in COMPUTED_FLOATS or not isinstance(dtype, DType):
        raise GraphError(f"attribute 'to' must be f32 or f64, got {dtype!r}")
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise GraphError(f"the seed must be in 0..2**32 - 1, got {seed!r}")
    if not step.dtype.is_integer or step.shape:
        raise GraphError(f"the step must be an integer of rank 0, got {step}")
    return TensorType(dtype, like.shape)


def _leaf(_: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    dtype = attributes["dtype"]
    if not isinstance(dtype, DType):
        raise GraphError(f"attribute 'dtype' must be a dtype, got {dtype!r}")
    return TensorType(dtype, _shape_attribute(attributes, "shape"))


_LIBM = "math libraries agree to a few ulp; Eigen's vector code in onnxruntime is the widest"
_NEWTON = "onnxruntime has a float64 one by a step of Newton's, which is off by 4.1 ulp"
_ORDER = "the order of the summation is the engine's own"

OPS: Mapping[Op, OpSpec] = {
    spec.op: spec
    for spec in (
        OpSpec(Op.INPUT, 0, ANY, _leaf, ("name", "role", "dtype", "shape")),
        OpSpec(Op.CONST, 0, ANY, _leaf, ("data", "dtype", "shape")),
        OpSpec(Op.ADD, 2, NUMBERS, _elementwise),
        OpSpec(Op.SUB, 2, NUMBERS, _elementwise),
        OpSpec(Op.MUL, 2, NUMBERS, _elementwise),
        OpSpec(Op.NEG, 1, NUMBERS, _elementwise),
        OpSpec(Op.ABS, 1, NUMBERS, _elementwise),
        OpSpec(Op.DIV, 2, COMPUTED_FLOATS, _elementwise),
        # Only integers: a floor of a rounded quotient of floats may be one too large.
        OpSpec(Op.FLOOR_DIV, 2, COMPUTED_INTEGERS, _elementwise),
        OpSpec(Op.FLOOR_MOD, 2, NUMBERS, _elementwise),
        OpSpec(Op.MIN, 2, NUMBERS, _elementwise),
        OpSpec(Op.MAX, 2, NUMBERS, _elementwise),
        OpSpec(Op.FLOOR, 1, COMPUTED_FLOATS, _elementwise),
        OpSpec(Op.SQRT, 1, COMPUTED_FLOATS, _elementwise, ulp=1.0, reason="MKL is off by one ulp"),
        OpSpec(Op.EXP, 1, COMPUTED_FLOATS, _elementwise, ulp=4.0, reason=_LIBM),
        OpSpec(Op.LOG, 1, COMPUTED_FLOATS, _elementwise, ulp=4.0, reason=_LIBM),
        OpSpec(Op.COS, 1, COMPUTED_FLOATS, _elementwise, ulp=4.0, reason=_LIBM),
        OpSpec(Op.SIN, 1, COMPUTED_FLOATS, _elementwise, ulp=4.0, reason=_LIBM),
        OpSpec(Op.ATAN, 1, COMPUTED_FLOATS, _elementwise, ulp=8.0, reason=_NEWTON),
        OpSpec(Op.POW, 2, COMPUTED_FLOATS, _elementwise, ulp=4.0, reason=_LIBM),
        OpSpec(Op.LT, 2, NUMBERS, _comparison),
        OpSpec(Op.LE, 2, NUMBERS, _comparison),
        OpSpec(Op.EQ, 2, NUMBERS, _comparison),
        OpSpec(Op.AND, 2, BOOLS, _elementwise),
        OpSpec(Op.OR, 2, BOOLS, _elementwise),
        OpSpec(Op.NOT, 1, BOOLS, _elementwise),
        OpSpec(Op.WHERE, 3, BOOLS | NUMBERS, _where),
        OpSpec(Op.CAST, 1, ANY, _cast, ("to",)),
        OpSpec(Op.REDUCE_SUM, 1, NUMBERS, _reduced_type, ("axes", "keepdims"), 8.0, _ORDER),
        OpSpec(Op.REDUCE_MAX, 1, NUMBERS, _reduce_max, ("axes", "keepdims")),
        OpSpec(Op.MATMUL, 2, COMPUTED_FLOATS, _matmul, ulp=16.0, reason=_ORDER),
        OpSpec(Op.TRANSPOSE, 1, ANY, _transpose, ("permutation",)),
        OpSpec(Op.RESHAPE, 1, ANY, _reshape, ("shape",)),
        OpSpec(Op.BROADCAST_TO, 1, ANY, _broadcast_to, ("shape",)),
        OpSpec(Op.SLICE, 1, ANY, _slice, ("axis", "start", "stop")),
        OpSpec(Op.CONCAT, 1, ANY, _concat, ("axis",), is_variadic=True),
        OpSpec(Op.LOOKUP, 2, NUMBERS, _lookup),
        OpSpec(Op.UNIFORM, 2, NUMBERS, _uniform, ("seed", "to")),
    )
}

ELEMENTWISE = frozenset(
    op for op, spec in OPS.items() if spec.infer in (_elementwise, _comparison, _where, _cast)
)
"""The ops whose elements need only those at the same place."""

# Bit for bit: IEEE 754 rounds a + b and b + a alike.
COMMUTATIVE = frozenset({Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.EQ, Op.AND, Op.OR})

MOVES = frozenset({Op.TRANSPOSE, Op.RESHAPE, Op.BROADCAST_TO, Op.SLICE, Op.CONCAT})
"""The ops that move elements and compute none."""

FUNCTIONS = (Op.EXP, Op.LOG, Op.COS, Op.SIN, Op.ATAN, Op.POW)
"""The ops that engines take from a math library."""


def infer_type(op: Op, operands: tuple[TensorType, ...], attributes: Attributes) -> TensorType:
    """Returns the type of ``op`` applied to operands of these types.

    Raises:
        GraphError: Wrong number of operands, dtype, shape or attribute; the message begins with
            the name of the op.
    """
    spec = OPS[op]
    for name, value in attributes.items():
        if isinstance(value, list):
            raise GraphError(f"{op}: attribute {name!r} must be a tuple, got {value!r}")
    if len(operands) < spec.arity or (len(operands) > spec.arity and not spec.is_variadic):
        raise GraphError(f"{op}: takes {spec.arity} operands, got {len(operands)}")
    if sorted(attributes) != sorted(spec.attributes):
        raise GraphError(
            f"{op}: takes attributes {sorted(spec.attributes)}, got {sorted(attributes)}"
        )
    for operand in operands:
        if operand.dtype not in spec.dtypes:
            legal = ", ".join(sorted(spec.dtypes))
            raise GraphError(f"{op}: operands must be one of {legal}, got {operand}")
    try:
        return spec.infer(operands, attributes)
    except GraphError as error:
        raise GraphError(f"{op}: {error.what}") from None

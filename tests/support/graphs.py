"""Random graphs and random inputs for them, for property tests of everything that reads a graph."""

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from closedform.errors import GraphError
from closedform.ir.evaluate import STEP_MAX
from closedform.ir.graph import Array, Builder, Graph, Node, Role, Value, scalar
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, Shape, TensorType

COMPUTED = (DType.BOOL, DType.I32, DType.I64, DType.F32, DType.F64)
SPECIAL_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.5, 3.0, 7.0, 0.1, 1e-3, 100.0, -0.75, 1e-45, 5e-324,
    -1e-310, 3e38, 1e300, -1e300, float("inf"), float("-inf"), float("nan"), float(2**53),
    4503599627370497.5,
)  # fmt: skip
SPECIAL_INTEGERS = (
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    -4,
    10,
    100,
    2**31 - 1,
    -(2**31),
    2**53,
    -(2**63),
    2**63 - 1,
)
SIZE = 3
"""The value of the named size ``n``."""


def numbers(dtype: DType) -> st.SearchStrategy[float]:
    """Numbers that fit a dtype, special ones often."""
    if dtype is DType.BOOL:
        return st.sampled_from((0, 1))
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        legal = [value for value in SPECIAL_INTEGERS if info.min <= value <= info.max]
        return st.sampled_from(legal) | st.integers(-20, 20)
    return st.sampled_from(SPECIAL_FLOATS) | st.floats(-4, 4, width=32)


def array(values: object, dtype: DType) -> Array:
    """Numbers as an array of a dtype, overflow going to infinity."""
    with np.errstate(all="ignore"):
        return np.asarray(np.asarray(values).astype(dtype.numpy))


@st.composite
def arrays(draw: st.DrawFn, dtype: DType, shape: Shape) -> Array:
    """Arrays of a type; a named size is ``SIZE``."""
    concrete = tuple(SIZE if isinstance(dim, str) else dim for dim in shape)
    count = int(np.prod(concrete, dtype=int))
    values = draw(st.lists(numbers(dtype), min_size=count, max_size=count))
    return array(np.array(values, dtype.numpy if dtype.is_integer else None), dtype).reshape(
        concrete
    )


@st.composite
def graphs(draw: st.DrawFn, size: int = 20) -> Graph:
    """Legal graphs of up to ``size`` random nodes over all ops, with every input used or not."""
    builder = Builder("random")
    pool = [
        builder.input("step", scalar(DType.I64), Role.STEP),
        builder.input("hyper", scalar(DType.F64), Role.HYPER),
        builder.input("param.0.weight", TensorType(DType.F32, (2, "n")), Role.PARAM),
        builder.input("grad x", TensorType(DType.F32, ("n",)), Role.GRAD),
        builder.input("state", TensorType(DType.I32, (2, 1)), Role.STATE),
        builder.input("half", TensorType(DType.BF16, (2, 2)), Role.STATE),
    ]
    pool += [builder.const(draw(arrays(dtype, ())), dtype) for dtype in COMPUTED]
    for _ in range(draw(st.integers(size // 2, size))):
        value = draw_node(draw, builder, pool)
        if value is not None:
            pool.append(value)
    chosen = draw(st.lists(st.sampled_from(pool), max_size=2))
    for number, value in enumerate([*chosen, *pool[-4:]]):
        builder.output(f"out.{number}", value)
    return builder.build()


def draw_node(draw: st.DrawFn, builder: Builder, pool: list[Value]) -> Value | None:
    """A random node on values of the pool; None if the drawn operands do not fit."""
    op = draw(st.sampled_from([op for op in OPS if op is not Op.INPUT]))
    if op is Op.CONST:
        dtype = draw(st.sampled_from(COMPUTED))
        shape = draw(st.sampled_from([(), (), (2,), (2, 1), (0,), (1, 2)]))
        if draw(st.booleans()):
            number = draw(st.sampled_from((0, 1, -1)) | numbers(dtype))
            return builder.const(np.full(shape, array(number, dtype)), dtype)
        return builder.const(draw(arrays(dtype, shape)), dtype)
    legal = [value for value in pool if value.type.dtype in OPS[op].dtypes]
    first = draw(st.sampled_from(legal[::-1]))
    try:
        if op in STRUCTURED:
            return STRUCTURED[op](draw, builder, pool, first)
        same = [value for value in legal if value.type.dtype == first.type.dtype]
        rest = [draw(st.sampled_from(same[::-1])) for _ in range(OPS[op].arity - 1)]
        return builder.emit(op, first, *rest)
    except GraphError:
        return None


def _divide(op: Op, draw: st.DrawFn, builder: Builder, pool: list[Value], first: Value) -> Value:
    """Integers are divided by what is proved positive, or by a constant below -1."""
    dtype = first.type.dtype
    if not dtype.is_integer:
        same = [value for value in pool if value.type.dtype == dtype]
        return builder.emit(op, first, draw(st.sampled_from(same)))
    divisors = [value for value in pool if value.type.dtype == dtype]
    positive = builder.emit(Op.MAX, draw(st.sampled_from(divisors)), builder.const(1, dtype))
    constant = builder.const(draw(st.sampled_from((-7, -2, 1, 3, 10))), dtype)
    return builder.emit(op, first, draw(st.sampled_from((positive, constant))))


def _floor_div(draw: st.DrawFn, builder: Builder, pool: list[Value], first: Value) -> Value:
    return _divide(Op.FLOOR_DIV, draw, builder, pool, first)


def _floor_mod(draw: st.DrawFn, builder: Builder, pool: list[Value], first: Value) -> Value:
    return _divide(Op.FLOOR_MOD, draw, builder, pool, first)


def _where(draw: st.DrawFn, builder: Builder, pool: list[Value], _: Value) -> Value:
    condition = draw(st.sampled_from([v for v in pool if v.type.dtype is DType.BOOL][::-1]))
    branches = [v for v in pool if v.type.dtype in COMPUTED[1:]]
    then = draw(st.sampled_from(branches[::-1]))
    same = [value for value in branches if value.type.dtype == then.type.dtype]
    return builder.emit(Op.WHERE, condition, then, draw(st.sampled_from(same[::-1])))


def _cast(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    return builder.emit(Op.CAST, first, to=draw(st.sampled_from(tuple(DType))))


def _reduce(op: Op, draw: st.DrawFn, builder: Builder, first: Value) -> Value:
    axes = tuple(axis for axis in range(first.type.rank) if draw(st.booleans()))
    return builder.emit(op, first, axes=axes, keepdims=draw(st.booleans()))


def _reduce_sum(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    return _reduce(Op.REDUCE_SUM, draw, builder, first)


def _reduce_max(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    return _reduce(Op.REDUCE_MAX, draw, builder, first)


def _matmul(draw: st.DrawFn, builder: Builder, pool: list[Value], _: Value) -> Value:
    matrices = [v for v in pool if v.type.rank > 1 and v.type.dtype in OPS[Op.MATMUL].dtypes]
    first = draw(st.sampled_from(matrices[::-1]))
    last = first.type.rank - 1
    order = (*range(last - 1), last, last - 1)
    return builder.emit(Op.MATMUL, first, builder.emit(Op.TRANSPOSE, first, permutation=order))


def _transpose(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    order = draw(st.permutations(range(first.type.rank)))
    return builder.emit(Op.TRANSPOSE, first, permutation=tuple(order))


def _reshape(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    shape = draw(st.permutations((*first.type.shape, 1)))
    return builder.emit(Op.RESHAPE, first, shape=tuple(shape))


def _broadcast_to(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    shape = draw(st.sampled_from([(2,), (2, 2), (1, 2, 2), (40, 2), first.type.shape]))
    return builder.emit(Op.BROADCAST_TO, first, shape=shape)


def _slice(draw: st.DrawFn, builder: Builder, _: list[Value], first: Value) -> Value:
    sizes = [(axis, n) for axis, n in enumerate(first.type.shape) if isinstance(n, int)]
    axis, size = draw(st.sampled_from(sizes or [(0, 0)]))
    start, stop = sorted(draw(st.lists(st.integers(0, size), min_size=2, max_size=2)))
    return builder.emit(Op.SLICE, first, axis=axis, start=start, stop=stop)


def _concat(draw: st.DrawFn, builder: Builder, pool: list[Value], first: Value) -> Value:
    same = [value for value in pool if value.type == first.type]
    operands = draw(st.lists(st.sampled_from(same), min_size=1, max_size=3))
    return builder.emit(Op.CONCAT, *operands, axis=draw(st.integers(0, 1)))


def _lookup(draw: st.DrawFn, builder: Builder, pool: list[Value], _: Value) -> Value:
    dtype = draw(st.sampled_from(COMPUTED[1:]))
    table = builder.const(draw(arrays(dtype, (4,))), dtype)
    index = draw(st.sampled_from([v for v in pool if v.type.dtype.is_integer]))
    zero, last = (builder.const(number, index.type.dtype) for number in (0, 3))
    clamped = builder.emit(Op.MIN, builder.emit(Op.MAX, index, zero), last)
    if draw(st.booleans()):
        low = builder.emit(Op.LE, zero, index)
        inside = builder.emit(
            Op.AND, low, builder.emit(Op.LT, index, builder.const(4, index.type.dtype))
        )
        clamped = builder.emit(Op.WHERE, inside, index, zero)
    return builder.emit(Op.LOOKUP, table, clamped)


def _uniform(draw: st.DrawFn, builder: Builder, pool: list[Value], first: Value) -> Value:
    step = next(value for value in pool if value.type.dtype.is_integer and not value.type.shape)
    dtype = draw(st.sampled_from((DType.F32, DType.F64)))
    # The reader of files needs the sizes, which make the indices of the elements.
    if not all(isinstance(size, int) for size in first.type.shape):
        first = step
    return builder.emit(Op.UNIFORM, first, step, seed=draw(st.integers(0, 3)), to=dtype)


STRUCTURED = {
    Op.FLOOR_DIV: _floor_div,
    Op.FLOOR_MOD: _floor_mod,
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.REDUCE_SUM: _reduce_sum,
    Op.REDUCE_MAX: _reduce_max,
    Op.MATMUL: _matmul,
    Op.TRANSPOSE: _transpose,
    Op.RESHAPE: _reshape,
    Op.BROADCAST_TO: _broadcast_to,
    Op.SLICE: _slice,
    Op.CONCAT: _concat,
    Op.LOOKUP: _lookup,
    Op.UNIFORM: _uniform,
}
"""Ops whose operands or attributes are not drawn at random alone."""


@st.composite
def inputs_of(draw: st.DrawFn, graph: Graph) -> dict[str, Array]:
    """Arrays for the inputs of a graph; a step is in its range."""
    return {node.attribute("name"): draw(input_of(node)) for node in graph.inputs}


@st.composite
def input_of(draw: st.DrawFn, node: Node) -> Array:
    """An array for an input."""
    if node.attribute("role") is not Role.STEP:
        return draw(arrays(node.type.dtype, node.type.shape))
    steps = st.integers(0, 30) | st.sampled_from((0, 1, 2**31, STEP_MAX))
    return array(draw(steps), node.type.dtype)


def assert_same(first: Mapping[str, Array], second: Mapping[str, Array], message: str) -> None:
    """Asserts that arrays are equal bit for bit, any NaN being equal to any NaN."""
    assert list(first) == list(second), message
    for name in first:
        difference = f"{name}: {first[name]!r} != {second[name]!r}\n{message}"
        assert first[name].dtype == second[name].dtype, difference
        assert first[name].shape == second[name].shape, difference
        assert canonical(first[name]).tobytes() == canonical(second[name]).tobytes(), difference


def canonical(values: Array) -> Array:
    """The array with every NaN the usual one."""
    is_nan = values != values
    return (
        np.where(is_nan, array(np.nan, DType.F64).astype(values.dtype), values)
        if is_nan.any()
        else values
    )

"""Rows x special values x dtypes: one case is a graph of one op and its inputs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from closedform.ir.graph import Array, Builder, Graph, Role, Value
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, TensorType

FLOATS = (DType.F32, DType.F64)
INTEGERS = (DType.I32, DType.I64)
BFLOAT16 = DType.BF16.numpy
NUMBERS = (*FLOATS, *INTEGERS)
OTHER_FUNCTIONS = [
    op
    for op, spec in OPS.items()
    if (spec.arity, spec.attributes, spec.dtypes) == (1, (), OPS[Op.EXP].dtypes)
    and op not in (Op.FLOOR, Op.SQRT, Op.EXP, Op.LOG, Op.COS, Op.SIN, Op.ATAN)
]


@dataclass(frozen=True, slots=True)
class Case:
    """One op applied to inputs, and the unit of its tolerance where that is not its result's."""

    op: Op
    label: str
    graph: Graph
    inputs: dict[str, Array]
    unit: float | None = None

    def __str__(self) -> str:
        return f"{self.op}-{self.label}"


def specials(dtype: DType) -> Array:
    """Values at which engines differ: signed zeros, NaN, infinities, denormals, extremes."""
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        listed: list[float] = [0, 1, -1, 2, -2, 7, -7, 1000, info.max, info.min]
        return np.array(listed, dtype.numpy)
    limits = np.finfo(dtype.numpy)
    halves = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 3.25, 7.0, -7.0, 100.75]
    ends = [float(limits.tiny), float(limits.smallest_subnormal), float(limits.max)]
    return np.array([*halves, *ends, -ends[-1], np.inf, -np.inf, np.nan], dtype.numpy)


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Every special value with every other."""
    values = specials(dtype)
    first, second = np.meshgrid(values, values)
    return first.ravel(), second.ravel()


def build(
    op: Op,
    arrays: tuple[Array, ...],
    label: str,
    unit: float | None = None,
    **attributes: bool | int | DType | tuple[int, ...],
) -> Case:
    """A graph that applies ``op`` to inputs of the arrays' types."""
    builder = Builder(f"one_{op}")
    operands: list[Value] = []
    inputs: dict[str, Array] = {}
    for position, array in enumerate(arrays):
        name = f"x{position}"
        inputs[name] = crossable(array)
        type_ = TensorType(dtype_of(inputs[name]), array.shape)
        value = builder.input(name, type_, Role.PARAM)
        if array.dtype == BFLOAT16:
            value = builder.emit(Op.CAST, value, to=DType.BF16)
        operands.append(value)
    result = builder.emit(op, *operands, **attributes)
    if result.type.dtype is DType.BF16:
        result = builder.emit(Op.CAST, result, to=DType.F32)
    builder.output("y", result)
    return Case(op, label, builder.build(), inputs, unit)


def crossable(array: Array) -> Array:
    """The array in a dtype that the engines take from NumPy: bf16 enters and leaves as f32."""
    return array.astype(np.float32) if array.dtype == BFLOAT16 else array


def dtype_of(array: Array) -> DType:
    """The dtype of the graph language that an array has."""
    return next(dtype for dtype in DType if dtype.numpy == array.dtype)


def elementwise_cases() -> Iterator[Case]:
    """Arithmetic and comparisons on every pair of special values."""
    for dtype in NUMBERS:
        first, second = pairs(dtype)
        for op in (Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX, Op.LT, Op.LE, Op.EQ):
            yield build(op, (first, second), str(dtype))
        for op in (Op.NEG, Op.ABS):
            yield build(op, (specials(dtype),), str(dtype))
        condition = np.arange(first.size) % 2 == 0
        yield build(Op.WHERE, (condition, first, second), str(dtype))
    for dtype in INTEGERS:
        # Division by zero is an error; the least integer over -1 kills onnxruntime (SIGFPE); a
        # quotient times the divisor must fit.
        first, second = pairs(dtype)
        least = np.iinfo(dtype.numpy).min
        valid = (second != 0) & (second != least) & (first >= -1000) & (first <= 1000)
        yield build(Op.FLOOR_DIV, (first[valid], second[valid]), str(dtype))
        yield build(Op.FLOOR_MOD, (first[valid], second[valid]), str(dtype))
    for dtype in FLOATS:
        yield build(Op.DIV, pairs(dtype), str(dtype))
        # torch's vector fmod gives NaN where the quotient of finite operands is infinite.
        first, second = pairs(dtype)
        with np.errstate(all="ignore"):
            is_lost = np.isfinite(first) & (second != 0) & np.isinf(first / second)
        yield build(Op.FLOOR_MOD, (first[~is_lost], second[~is_lost]), str(dtype))
        yield build(Op.FLOOR, (specials(dtype),), str(dtype))
        yield build(Op.SQRT, (specials(dtype),), str(dtype))
    for op in (Op.AND, Op.OR):
        yield build(op, (np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)), "bool")
    yield build(Op.NOT, (np.array([False, True]),), "bool")


def function_cases() -> Iterator[Case]:
    """exp, log, cos, sin, atan, pow where schedules use them, and at NaN, zeros and infinities.

    A function of one float that has no values of its own here is computed from -30 to 30.
    """
    ends = [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan]
    for dtype in FLOATS:
        spread = np.linspace(-30, 30, 241)
        generator = np.random.default_rng(20)
        positive = np.exp(generator.uniform(-20, 20, 200))
        yield build(Op.EXP, (np.array([*ends, *spread], dtype.numpy),), str(dtype))
        yield build(Op.LOG, (np.array([*ends, -1.0, *positive], dtype.numpy),), str(dtype))
        for op in (Op.COS, Op.SIN):
            angles = np.array([*ends, *spread], dtype.numpy)
            yield build(op, (angles,), str(dtype), unit=1.0)
        sizes = 2.0 ** generator.uniform(-60, 70, 300)
        arguments = np.concatenate([specials(dtype), spread, sizes, -sizes]).astype(dtype.numpy)
        yield build(Op.ATAN, (arguments,), str(dtype))
        base = np.array([0.0, 1.0, 2.0, np.inf, np.nan, *positive[:50]], dtype.numpy)
        exponent = np.array([0.5, -0.75, 2.0, 0.0, 1.25, *spread[:50] / 10], dtype.numpy)
        yield build(Op.POW, (base, exponent), str(dtype))
        for op in OTHER_FUNCTIONS:
            yield build(op, (np.array([*ends, *spread], dtype.numpy),), str(dtype))


def shape_cases() -> Iterator[Case]:
    """Ops on shapes, in all dtypes that they take, rank 0 and broadcasts included."""
    for dtype in DType:
        grid = np.arange(24).reshape(2, 3, 4).astype(dtype.numpy)
        yield build(Op.TRANSPOSE, (grid,), str(dtype), permutation=(2, 0, 1))
        yield build(Op.RESHAPE, (grid,), str(dtype), shape=(4, 6))
        yield build(Op.BROADCAST_TO, (grid[:, :1],), str(dtype), shape=(5, 2, 3, 4))
        yield build(Op.SLICE, (grid,), str(dtype), axis=1, start=1, stop=3)
        yield build(Op.CONCAT, (grid, grid[:, :1], grid), str(dtype), axis=1)
        for target in DType:
            if target is not DType.I8 or not dtype.is_float:  # a float becomes i8 by way of i32
                yield build(Op.CAST, (grid,), f"{dtype}-{target}", to=target)
    scalar = np.array(2.5)
    yield build(Op.TRANSPOSE, (scalar,), "rank0", permutation=())
    yield build(Op.RESHAPE, (scalar,), "rank0", shape=(1, 1))
    yield build(Op.RESHAPE, (scalar.reshape(1),), "to-rank0", shape=())
    yield build(Op.BROADCAST_TO, (scalar,), "rank0", shape=())
    yield build(Op.RESHAPE, (np.zeros((0, 3)),), "empty", shape=(3, 0))
    yield build(Op.SLICE, (np.ones((2, 3)),), "empty", axis=0, start=1, stop=1)
    yield build(Op.CONCAT, (np.ones((2, 3)),), "of one", axis=1)
    for dtype in NUMBERS:
        grid = np.arange(24).reshape(2, 3, 4).astype(dtype.numpy)
        yield build(Op.ADD, (grid, grid[0, 0]), f"broadcast-{dtype}")
        for axes in ((), (1,), (0, 2), (0, 1, 2)):
            for keepdims in (False, True):
                label = f"{dtype}-{len(axes)}-{keepdims}"
                for op in (Op.REDUCE_SUM, Op.REDUCE_MAX):
                    yield build(op, (grid,), label, axes=axes, keepdims=keepdims)
        # Each special value beside each other, over the first axis and the last.
        both = np.stack(pairs(dtype))
        for axis, values in enumerate((both, np.ascontiguousarray(both.T))):
            label = f"specials-{dtype}-{axis}"
            yield build(Op.REDUCE_MAX, (values,), label, axes=(axis,), keepdims=False)
        empty = np.zeros((0, 3), dtype.numpy)
        yield build(Op.REDUCE_MAX, (empty,), f"empty-{dtype}", axes=(1,), keepdims=True)
        index = np.array([[0, 2], [1, 1]], np.int64)
        yield build(Op.LOOKUP, (grid[0, :, 0].copy(), index), str(dtype))
        yield build(Op.LOOKUP, (grid[0, :, 0].copy(), np.array(2, np.int32)), f"rank0-{dtype}")
        for step in (np.array(7, np.int32), np.array(2**40 + 7, np.int64)):
            label = f"{dtype}-{step.dtype}"
            yield build(Op.UNIFORM, (grid, step), label, seed=5, to=DType.F32)
            yield build(Op.UNIFORM, (grid.ravel(), step), f"flat-{label}", seed=5, to=DType.F32)
            yield build(Op.UNIFORM, (grid[0, 0, 0], step), f"rank0-{label}", seed=5, to=DType.F64)
    for dtype in FLOATS:
        values = np.random.default_rng(21).normal(size=(2, 3, 4)).astype(dtype.numpy)
        turned = np.ascontiguousarray(values.swapaxes(1, 2))
        yield build(Op.MATMUL, (values, turned), str(dtype), unit=10.0)
    doubles = np.array([0.0, -0.0, 1.5, -1.5, 0.1, 65504.0, 1e-8, 3.0000001, np.inf, np.nan])
    for target in (DType.F16, DType.BF16, DType.F32, DType.BOOL):
        yield build(Op.CAST, (doubles,), f"specials-{target}", to=target)
    integers = np.array([2**53 + 1, 2**31, -1, 2**24 + 1, 2**63 - 1], np.int64)
    for target in (DType.I8, DType.I32, DType.F32, DType.F64, DType.BOOL):
        yield build(Op.CAST, (integers,), f"large-{target}", to=target)
    fractions = np.array([1.99, -1.99, 0.5, -0.5, 2.0**31 - 1, -(2.0**31)])
    for target in INTEGERS:
        yield build(Op.CAST, (fractions,), f"truncates-{target}", to=target)


CASES = (*elementwise_cases(), *function_cases(), *shape_cases())

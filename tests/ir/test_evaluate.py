"""The semantics: each op on special values in each dtype, against exact arithmetic."""

import itertools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from closedform.errors import GraphError
from closedform.ir.evaluate import KERNELS, evaluate, evaluate_node
from closedform.ir.graph import Array, Builder, Graph, Node, Role, scalar
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, TensorType, convert
from tests.support.graphs import SPECIAL_FLOATS, SPECIAL_INTEGERS, array

NAN = math.nan
INF = math.inf


def apply(op: Op, *operands: Array, **attributes: Any) -> Array:
    """One op on arrays that are inputs of a graph of that op alone."""
    builder = Builder("one")
    values = []
    for place, operand in enumerate(operands):
        dtype = next(dtype for dtype in DType if dtype.numpy == operand.dtype)
        type_ = TensorType(dtype, operand.shape)
        values.append(builder.input(f"x{place}", type_, Role.HYPER))
    builder.output("y", builder.emit(op, *values, **attributes))
    inputs = {f"x{place}": operand for place, operand in enumerate(operands)}
    return evaluate(builder.build(), inputs)["y"]


def test_every_op_has_a_kernel() -> None:
    assert set(KERNELS) == set(OPS)


def wrapped(value: int, dtype: DType) -> int:
    bits = 8 * dtype.numpy.itemsize
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


INTEGER_OPS: dict[Op, Callable[..., int]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.MIN: min,
    Op.MAX: max,
    Op.FLOOR_DIV: operator.floordiv,
    Op.FLOOR_MOD: operator.mod,
    Op.NEG: operator.neg,
    Op.ABS: abs,
}


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64])
@pytest.mark.parametrize("op", INTEGER_OPS)
def test_integers_are_exact_and_wrap(op: Op, dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    legal = [number for number in SPECIAL_INTEGERS if info.min <= number <= info.max]
    for numbers in itertools.product(legal, repeat=OPS[op].arity):
        if op in (Op.FLOOR_DIV, Op.FLOOR_MOD) and numbers[1] == 0:
            continue
        result = apply(op, *(np.asarray(number, dtype.numpy) for number in numbers))
        assert int(result) == wrapped(INTEGER_OPS[op](*numbers), dtype), (op, numbers)


def round_to(value: Fraction, dtype: DType) -> Any:
    """The exact number rounded once: to f64 by Python, to f32 by way of a rounding to odd."""
    if dtype is DType.F64:
        try:
            return np.float64(value.numerator / value.denominator)
        except OverflowError:
            return np.float64(INF if value > 0 else -INF)
    near = float(round_to(value, DType.F64))
    if near and not math.isinf(near) and Fraction(near) != value:
        toward = math.nextafter(near, INF if Fraction(near) < value else -INF)
        near = near if int(np.float64(near).view(np.int64)) & 1 else toward
    return array(near, DType.F32)[()]


FLOAT_OPS: dict[Op, Callable[[Fraction, Fraction], Fraction]] = {
    Op.ADD: operator.add,
    Op.SUB: operator.sub,
    Op.MUL: operator.mul,
    Op.DIV: operator.truediv,
}


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", FLOAT_OPS)
def test_floats_are_rounded_once(op: Op, dtype: DType) -> None:
    numbers = [array(number, dtype) for number in (*SPECIAL_FLOATS, 1 / 3, math.pi, -1e-3)]
    finite = [number for number in numbers if np.isfinite(number)]
    for first, second in itertools.product(finite, repeat=2):
        if op is Op.DIV and second == 0:
            continue
        exact = FLOAT_OPS[op](Fraction(float(first)), Fraction(float(second)))
        result = apply(op, first, second)
        assert result.dtype == dtype.numpy
        assert float(result) == float(round_to(exact, dtype)), (op, first, second)


TABLE: list[tuple[Op, tuple[float, ...], float]] = [
    (Op.ADD, (-0.0, -0.0), -0.0),
    (Op.ADD, (-0.0, 0.0), 0.0),
    (Op.ADD, (INF, -INF), NAN),
    (Op.SUB, (0.0, 0.0), 0.0),
    (Op.SUB, (-0.0, 0.0), -0.0),
    (Op.MUL, (0.0, INF), NAN),
    (Op.MUL, (-0.0, 3.0), -0.0),
    (Op.NEG, (0.0,), -0.0),
    (Op.ABS, (-0.0,), 0.0),
    (Op.ABS, (-INF,), INF),
    (Op.DIV, (1.0, 0.0), INF),
    (Op.DIV, (1.0, -0.0), -INF),
    (Op.DIV, (0.0, 0.0), NAN),
    (Op.DIV, (INF, INF), NAN),
    (Op.FLOOR_MOD, (7.0, 3.0), 1.0),
    (Op.FLOOR_MOD, (-7.0, 3.0), 2.0),
    (Op.FLOOR_MOD, (7.0, -3.0), -2.0),
    (Op.FLOOR_MOD, (-7.0, -3.0), -1.0),
    (Op.FLOOR_MOD, (-6.0, 3.0), -0.0),
    (Op.FLOOR_MOD, (6.0, -3.0), 0.0),
    (Op.FLOOR_MOD, (-1e-30, 1.0), 1.0),
    (Op.FLOOR_MOD, (-1.0, INF), INF),
    (Op.FLOOR_MOD, (1.0, INF), 1.0),
    (Op.FLOOR_MOD, (1.0, 0.0), NAN),
    (Op.FLOOR_MOD, (INF, 1.0), NAN),
    (Op.MIN, (0.0, -0.0), -0.0),
    (Op.MIN, (-0.0, 0.0), -0.0),
    (Op.MAX, (0.0, -0.0), 0.0),
    (Op.MAX, (-0.0, 0.0), 0.0),
    (Op.MIN, (NAN, 1.0), NAN),
    (Op.MIN, (1.0, NAN), NAN),
    (Op.MAX, (NAN, 1.0), NAN),
    (Op.MAX, (1.0, NAN), NAN),
    (Op.MIN, (-INF, 1.0), -INF),
    (Op.FLOOR, (-0.5,), -1.0),
    (Op.FLOOR, (-0.0,), -0.0),
    (Op.FLOOR, (INF,), INF),
    (Op.SQRT, (-0.0,), -0.0),
    (Op.SQRT, (-1.0,), NAN),
    (Op.EXP, (-INF,), 0.0),
    (Op.EXP, (0.0,), 1.0),
    (Op.EXP, (1e4,), INF),
    (Op.LOG, (0.0,), -INF),
    (Op.LOG, (-1.0,), NAN),
    (Op.LOG, (1.0,), 0.0),
    (Op.COS, (INF,), NAN),
    (Op.COS, (0.0,), 1.0),
    (Op.SIN, (-0.0,), -0.0),
    (Op.SIN, (NAN,), NAN),
    (Op.ATAN, (-0.0,), -0.0),
    (Op.ATAN, (INF,), math.pi / 2),
    (Op.ATAN, (-INF,), -math.pi / 2),
    (Op.ATAN, (NAN,), NAN),
    (Op.POW, (NAN, 0.0), 1.0),
    (Op.POW, (1.0, NAN), 1.0),
    (Op.POW, (-8.0, 1 / 3), NAN),
    (Op.POW, (0.0, -1.0), INF),
    (Op.POW, (-2.0, 3.0), -8.0),
    (Op.LT, (NAN, 1.0), 0),
    (Op.LE, (NAN, NAN), 0),
    (Op.EQ, (NAN, NAN), 0),
    (Op.EQ, (0.0, -0.0), 1),
    (Op.LT, (-0.0, 0.0), 0),
    (Op.LE, (1.0, 1.0), 1),
]


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize(("op", "operands", "expected"), TABLE)
def test_special_floats(op: Op, operands: tuple[float, ...], expected: float, dtype: DType) -> None:
    result = apply(op, *(array(operand, dtype) for operand in operands))
    if op in (Op.LT, Op.LE, Op.EQ):
        assert result.dtype == np.bool_
        assert bool(result) is bool(expected)
        return
    assert result.dtype == dtype.numpy
    # pi/2 is not a float32.
    assert np.array_equal(result, dtype.numpy.type(expected), equal_nan=True)
    assert math.isnan(expected) or np.signbit(result) == np.signbit(expected)


LIBM: dict[Op, Callable[[float], float]] = {
    Op.SQRT: math.sqrt,
    Op.EXP: math.exp,
    Op.LOG: math.log,
    Op.COS: math.cos,
    Op.SIN: math.sin,
    Op.ATAN: math.atan,
}


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", LIBM)
def test_functions_are_within_the_ulp_of_their_row(op: Op, dtype: DType) -> None:
    numbers = array(np.linspace(0.01, 20.0, 257), dtype)
    expected = np.array([LIBM[op](float(number)) for number in numbers])
    of_one = op in (Op.COS, Op.SIN)
    spacing = np.spacing(array(np.ones(257) if of_one else np.abs(expected), dtype))
    error = np.abs(apply(op, numbers).astype(np.float64) - expected) / spacing
    assert error.max() <= OPS[op].ulp + 0.5  # half a unit: the reference is rounded, too


def test_bools() -> None:
    first = np.array([False, False, True, True])
    second = np.array([False, True, False, True])
    np.testing.assert_array_equal(apply(Op.AND, first, second), [False, False, False, True])
    np.testing.assert_array_equal(apply(Op.OR, first, second), [False, True, True, True])
    np.testing.assert_array_equal(apply(Op.NOT, first), [True, True, False, False])


CASTS: list[tuple[float, DType, DType, float]] = [
    (2.9, DType.F64, DType.I64, 2),
    (-2.9, DType.F32, DType.I32, -2),
    (NAN, DType.F64, DType.I64, -(2**63)),
    (INF, DType.F32, DType.I32, -(2**31)),
    (2.0**63, DType.F64, DType.I64, -(2**63)),
    (-(2.0**63), DType.F64, DType.I64, -(2**63)),
    (2.0**31, DType.F64, DType.I32, -(2**31)),
    (2.0**31 - 0.5, DType.F64, DType.I32, 2**31 - 1),
    (NAN, DType.BF16, DType.I32, -(2**31)),
    (2**32 + 5, DType.I64, DType.I32, 5),
    (2**31, DType.I64, DType.I32, -(2**31)),
    (2**53 + 1, DType.I64, DType.F64, 2.0**53),
    (16777217, DType.I32, DType.F32, 16777216.0),
    (1e39, DType.F64, DType.F32, INF),
    (65520.0, DType.F32, DType.F16, INF),
    (1.00390625, DType.F32, DType.BF16, 1.0),
    (1.01171875, DType.F32, DType.BF16, 1.015625),
    (0.1, DType.F32, DType.F64, 0.10000000149011612),
    (NAN, DType.F32, DType.BOOL, 1),
    (-0.0, DType.BF16, DType.BOOL, 0),
    (5e-324, DType.F64, DType.BOOL, 1),
    (1, DType.BOOL, DType.BF16, 1.0),
    (1, DType.BOOL, DType.I64, 1),
]


@pytest.mark.parametrize(("number", "source", "target", "expected"), CASTS)
def test_cast(number: float, source: DType, target: DType, expected: float) -> None:
    result = apply(Op.CAST, np.asarray(number, source.numpy), to=target)
    assert result.dtype == target.numpy
    assert float(result) == expected
    assert convert(np.asarray(number, source.numpy), target).tobytes() == result.tobytes()


def test_shapes() -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(apply(Op.TRANSPOSE, matrix, permutation=(1, 0)), matrix.T)
    np.testing.assert_array_equal(
        apply(Op.RESHAPE, matrix, shape=(3, 1, 2)), matrix.reshape(3, 1, 2)
    )
    broadcast = apply(Op.BROADCAST_TO, matrix[0], shape=(2, 3))
    np.testing.assert_array_equal(broadcast, [matrix[0], matrix[0]])
    np.testing.assert_array_equal(apply(Op.MATMUL, matrix, matrix.T), [[5, 14], [14, 50]])
    summed = apply(Op.REDUCE_SUM, matrix, axes=(1,), keepdims=True)
    np.testing.assert_array_equal(summed, [[3], [12]])
    assert apply(Op.REDUCE_SUM, matrix, axes=(0, 1), keepdims=False).dtype == np.float32
    np.testing.assert_array_equal(apply(Op.REDUCE_SUM, matrix, axes=(), keepdims=True), matrix)


def test_sum_of_integers_wraps_in_its_own_dtype() -> None:
    result = apply(Op.REDUCE_SUM, np.full(2, 2**31 - 1, np.int32), axes=(0,), keepdims=False)
    assert result.dtype == np.int32
    assert int(result) == -2


def test_the_largest_element() -> None:
    matrix = np.array([[1, NAN, -3], [-INF, -0.0, 0.0], [-0.0, -0.0, -INF]])
    result = apply(Op.REDUCE_MAX, matrix, axes=(1,), keepdims=False)
    np.testing.assert_array_equal(result, [NAN, 0, 0])
    assert np.signbit(result[1:]).tolist() == [False, True]
    for size in (2, 3, 8, 33):
        for place in range(size):
            zeros = np.full(size, -0.0, np.float32)
            zeros[place] = 0.0
            found = apply(Op.REDUCE_MAX, zeros, axes=(0,), keepdims=False)
            assert not np.signbit(found), (size, place)
    maxima = apply(Op.REDUCE_MAX, np.arange(6).reshape(2, 3), axes=(0,), keepdims=True)
    assert maxima.tolist() == [[3, 4, 5]]
    np.testing.assert_array_equal(apply(Op.REDUCE_MAX, matrix, axes=(), keepdims=True), matrix)


def test_where_takes_elements() -> None:
    condition = np.array([True, False])
    result = apply(Op.WHERE, condition, np.asarray(NAN), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(result, [NAN, 2.0])


def table_graph() -> Graph:
    builder = Builder("table")
    index = builder.input("i", scalar(DType.I64), Role.HYPER)
    builder.output("y", builder.emit(Op.LOOKUP, builder.const([1.5, 2.5], DType.F32), index))
    return builder.build()


@pytest.mark.parametrize("index", [-1, 2, 7])
def test_lookup_out_of_range(index: int) -> None:
    with pytest.raises(GraphError, match=rf"lookup: index {index} is outside 0..1: clamp"):
        evaluate(table_graph(), {"i": index})


def test_lookup() -> None:
    assert evaluate(table_graph(), {"i": 1})["y"] == np.float32(2.5)


@pytest.mark.parametrize("op", [Op.FLOOR_DIV, Op.FLOOR_MOD])
def test_integer_division_by_zero(op: Op) -> None:
    with pytest.raises(GraphError, match=rf"{op}: division of an integer by zero: guard"):
        apply(op, np.array([3, 4]), np.array([1, 0]))


def sizes_graph() -> Graph:
    builder = Builder("sizes")
    step = builder.input("step", scalar(DType.I64), Role.STEP)
    param = builder.input("param.w", TensorType(DType.F32, (2, "n")), Role.PARAM)
    grad = builder.input("grad.w", TensorType(DType.F32, (2, "n")), Role.GRAD)
    rate = builder.input("rate", scalar(DType.F32), Role.HYPER)
    flat = builder.emit(Op.RESHAPE, builder.emit(Op.ADD, param, grad), shape=("n", 2))
    builder.output("sum", builder.emit(Op.MUL, flat, rate))
    builder.output("step", step)
    return builder.build()


def good_inputs(size: int = 3) -> dict[str, Any]:
    ones = np.ones((2, size), np.float32)
    return {"step": 4, "param.w": ones, "grad.w": ones, "rate": 0.5}


@pytest.mark.parametrize("size", [0, 1, 3])
def test_named_sizes_and_python_numbers(size: int) -> None:
    result = evaluate(sizes_graph(), good_inputs(size))
    np.testing.assert_array_equal(result["sum"], np.ones((size, 2), np.float32))
    assert result["step"].dtype == np.int64


WRONG_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({"step": -1}, "the step must be in 0..2**53, got -1 (input 'step' of graph 'sizes')"),
    ({"step": 2**53 + 1}, f"the step must be in 0..2**53, got {2**53 + 1} (input 'step'"),
    ({"step": 2**70}, f"{2**70} does not fit i64 (input 'step' of graph 'sizes')"),
    ({"step": 1.0}, "expected dtype int64, got float64 (input 'step' of graph 'sizes'): convert"),
    ({"step": True}, "expected dtype int64, got bool (input 'step'"),
    ({"step": np.arange(2)}, "expected i64[], got shape [2] (input 'step' of graph 'sizes')"),
    ({"rate": np.float64(0.5)}, "expected dtype float32, got float64 (input 'rate'"),
    ({"param.w": np.ones((3, 3), np.float32)}, "expected f32[2,n], got shape [3, 3] (input 'par"),
    (
        {"grad.w": np.ones((2, 4), np.float32)},
        "size 'n' is 4 in input 'grad.w' but 3 in input 'param.w' (graph 'sizes')",
    ),
    ({"grad": 1}, "the graph has no input 'grad' (graph 'sizes'): did you mean 'grad.w'?"),
]


@pytest.mark.parametrize(("changed", "message"), WRONG_INPUTS)
def test_wrong_inputs(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        evaluate(sizes_graph(), {**good_inputs(), **changed})
    assert message in str(caught.value)


def test_missing_inputs() -> None:
    with pytest.raises(GraphError, match=r"inputs are missing: param.w, rate \(graph 'sizes'\)"):
        evaluate(sizes_graph(), {"step": 1, "grad.w": np.ones((2, 3), np.float32)})


def test_inputs_of_a_graph_without_inputs() -> None:
    builder = Builder("none")
    builder.output("y", builder.const(1, DType.I32))
    with pytest.raises(GraphError, match=r"no input 'x' \(graph 'none'\): the graph has no inputs"):
        evaluate(builder.build(), {"x": 1})


def test_a_node_that_states_another_type() -> None:
    node = Node(Op.NEG, (0,), (), scalar(DType.F64))
    expected = r"neg: the node states f64\[\], its value is float32 of shape \[\]: run check"
    with pytest.raises(GraphError, match=expected):
        evaluate_node(node, (np.asarray(1.0, np.float32),))


def test_a_named_size_of_no_input() -> None:
    node = Node(Op.RESHAPE, (0,), (("shape", ("m",)),), TensorType(DType.F32, ("m",)))
    with pytest.raises(GraphError, match="named size 'm' has no value"):
        evaluate_node(node, (np.ones(2, np.float32),))

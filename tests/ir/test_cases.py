"""Cases of conditions: what holds in each of them, and what must not be concluded."""

import numpy as np
import pytest

from closedform.ir.analysis.cases import bound_by_cases, cases, faults_by_cases
from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.obligations import ObligationKind, faults
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.refine import is_at_most
from closedform.ir.analysis.step_check import node_values
from closedform.ir.graph import Builder, Graph, Role, Value, scalar
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType

TENSOR = TensorType(DType.F32, (64,))


def signed(factor: float, *, swapped: bool = False) -> Graph:
    """``v - sign(v - g*g) * factor*g*g`` and its root: the second moment of Yogi."""
    builder = Builder("signed")
    v = builder.input("v", TENSOR, Role.STATE)
    g = builder.input("g", TENSOR, Role.GRAD)
    zero, one, minus = (builder.const(each, DType.F32) for each in (0.0, 1.0, -1.0))
    square = builder.emit(Op.MUL, g, g)
    back = builder.emit(Op.SUB, square, v)
    is_less, is_more = builder.emit(Op.LT, zero, back), builder.emit(Op.LT, back, zero)
    rest = builder.emit(Op.WHERE, is_less, minus, builder.emit(Op.SUB, v, square))
    sign = builder.emit(Op.WHERE, is_more, one, rest)
    part = builder.emit(Op.MUL, g, builder.emit(Op.MUL, g, builder.const(factor, DType.F32)))
    step = builder.emit(Op.MUL, sign, part)
    following = builder.emit(Op.ADD if swapped else Op.SUB, v, step)
    builder.output("next", following)
    builder.output("root", builder.emit(Op.SQRT, following))
    return builder.build()


def table_of(graph: Graph, size: float = 2.0**24) -> Ranges:
    given = {"v": Interval(0.0, size**2), "g": Interval(-size, size)}
    return Ranges(graph.nodes, 0, input_ranges=given, flushes=True)


@pytest.mark.parametrize(
    ("factor", "swapped", "is_met"),
    [(0.001, False, True), (1.0, False, True), (1.5, False, False), (0.001, True, False)],
)
def test_a_sign_that_keeps_a_number_from_falling_below_zero(
    factor: float, swapped: bool, is_met: bool
) -> None:
    graph = signed(factor, swapped=swapped)
    found = {fault.kind for fault in faults_by_cases(graph, table_of(graph))}
    assert found == (set() if is_met else {ObligationKind.NAN})
    assert {fault.kind for fault in faults(graph, table_of(graph))} == {ObligationKind.NAN}
    draw = np.random.default_rng(3)
    values = node_values(
        graph,
        {
            "v": draw.choice([0.0, 1e-45, 1e-38, 1.0, 2.0, 4.0], 64).astype(np.float32),
            "g": draw.choice([0.0, 1e-20, -1e-19, -1.0, 1.5, 2.0], 64).astype(np.float32),
        },
    )
    low = values[graph.outputs[0].index].min()
    interval = bound_by_cases(table_of(graph), graph.outputs[0].index)
    assert interval.low <= low
    assert (interval.low >= 0) == is_met


def test_each_case_of_a_disjunction_is_looked_at() -> None:
    """1/x where a < x or b < x: neither alone is the condition."""
    builder = Builder("either")
    a, b, x = (builder.input(name, scalar(DType.F64), Role.HYPER) for name in "abx")
    either = builder.emit(Op.OR, builder.emit(Op.LT, a, x), builder.emit(Op.LT, b, x))
    one = builder.const(1.0, DType.F64)
    inverse = builder.emit(Op.DIV, one, x)
    builder.output("value", builder.emit(Op.WHERE, either, inverse, one))
    graph = builder.build()
    positive, all_ = Interval(1.0, 2.0), Interval(-5.0, 5.0)
    given = {"a": positive, "b": positive, "x": all_}
    assert faults(graph, Ranges(graph.nodes, 0, input_ranges=given, flushes=True))
    assert not faults_by_cases(graph, Ranges(graph.nodes, 0, input_ranges=given, flushes=True))
    given["b"] = all_
    assert faults_by_cases(graph, Ranges(graph.nodes, 0, input_ranges=given, flushes=True))


def test_equal_operations_on_equal_numbers_have_one_interval() -> None:
    """Where x is 0, max(a, x) is max(a, 0): its sign is that of the condition."""
    builder = Builder("congruent")
    a, x = (builder.input(name, scalar(DType.F64), Role.HYPER) for name in "ax")
    zero, one = (builder.const(each, DType.F64) for each in (0.0, 1.0))

    def most(value: Value) -> Value:
        return builder.emit(Op.MAX, a, value)

    is_zero = builder.emit(Op.AND, builder.emit(Op.LE, x, zero), builder.emit(Op.LE, zero, x))
    condition = builder.emit(Op.AND, is_zero, builder.emit(Op.LT, zero, most(zero)))
    builder.output(
        "value",
        builder.emit(Op.WHERE, condition, builder.emit(Op.DIV, one, most(x)), one),
    )
    graph = builder.build()
    given = {"a": Interval(0.0, 1.0), "x": Interval(-1.0, 1.0)}
    table = Ranges(graph.nodes, 0, input_ranges=given, flushes=True)
    # 1/most is at most 1/5e-324, which overflows; it is not infinite by a division by zero.
    assert {fault.kind for fault in faults_by_cases(graph, table)} == {ObligationKind.OVERFLOW}
    parts = cases(table, [condition.index])
    divisors = [
        part.of(index)
        for part in parts
        if part.of(condition.index).low == 1
        for index, node in enumerate(graph.nodes)
        if node.op is Op.MAX
    ]
    assert len(divisors) == 2
    assert all(interval.low > 0 for interval in divisors)


def test_order_by_form() -> None:
    builder = Builder("order")
    x = builder.input("x", TENSOR, Role.GRAD)
    half, large = builder.const(0.5, DType.F32), builder.const(1.5, DType.F32)
    square = builder.emit(Op.MUL, x, x)
    less = builder.emit(Op.MUL, builder.emit(Op.MUL, x, half), x)
    more = builder.emit(Op.MUL, builder.emit(Op.MUL, x, large), x)
    builder.output("less", less)
    builder.output("more", more)
    builder.output("square", square)
    graph = builder.build()
    table = Ranges(graph.nodes, 0, input_ranges={"x": Interval(-2.0, 2.0)}, flushes=True)
    for index in range(len(graph.nodes)):
        table.of(index)
    assert is_at_most(graph.nodes, table.intervals, (), less.index, square.index)
    assert not is_at_most(graph.nodes, table.intervals, (), more.index, square.index)
    assert not is_at_most(graph.nodes, table.intervals, (), square.index, less.index)


@pytest.mark.parametrize("is_norm", [True, False])
def test_a_part_divided_by_either_of_two_norms_is_bounded(is_norm: bool) -> None:
    """The norm of the row or of the whole; the fault: the norm of another tensor."""
    matrix = TensorType(DType.F32, (4, 6))
    builder = Builder("norms")
    x, y = (builder.input(name, matrix, Role.GRAD) for name in "xy")
    flag = builder.input("flag", TensorType(DType.F32, ()), Role.HYPER)

    def norm(value: Value, axes: tuple[int, ...]) -> Value:
        square = builder.emit(Op.MUL, value, value)
        total = builder.emit(Op.REDUCE_SUM, square, axes=axes, keepdims=True)
        return builder.emit(Op.SQRT, total)

    zero, least = (builder.const(each, DType.F32) for each in (0.0, 1e-8))
    by_row = builder.emit(Op.LT, zero, flag)
    whole = norm(x if is_norm else y, (0, 1))
    chosen = builder.emit(Op.WHERE, by_row, norm(x, (1,)), whole)
    quotient = builder.emit(Op.DIV, x, builder.emit(Op.ADD, chosen, least))
    builder.output("value", quotient)
    graph = builder.build()
    given = {name: Interval(-(2.0**24), 2.0**24) for name in ("x", "y", "flag")}
    interval = Ranges(graph.nodes, 0, input_ranges=given, flushes=True).of(quotient.index)
    assert (interval.high <= 1.5) == is_norm
    draw = np.random.default_rng(7)
    for scale in (1e-30, 1e-20, 1.0, 1e7):
        for row in (-1.0, 1.0):
            tensors = {name: draw.normal(size=(4, 6)) * scale for name in "xy"}
            inputs = {name: value.astype(np.float32) for name, value in tensors.items()}
            inputs["flag"] = np.asarray(row, np.float32)
            value = node_values(graph, inputs)[quotient.index]
            assert interval.low <= value.min() <= value.max() <= interval.high

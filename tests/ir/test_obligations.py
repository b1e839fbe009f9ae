"""Obligations of floats: what must be finite, where branches are taken, what an infinity may do."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from closedform.ir.analysis.directions import Direction, directions
from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.obligations import (
    OPERAND_DEMANDS,
    Demand,
    ObligationKind,
    faults,
    operand_demands,
)
from closedform.ir.analysis.ranges import Ranges
from closedform.ir.analysis.step_check import Answer, check_steps, first_nonfinite
from closedform.ir.graph import Builder, Graph, Role, Value, scalar
from closedform.ir.ops import OPS, Op
from closedform.ir.types import DType, TensorType

F32 = TensorType(DType.F32, ("n",))
Make = Callable[[Builder, Value], Value]


def of_step(make: Make) -> Graph:
    """A graph of the step in float64."""
    builder = Builder("test")
    step = builder.input("step", scalar(DType.I64), Role.STEP)
    builder.output("value", make(builder, builder.emit(Op.CAST, step, to=DType.F64)))
    return builder.build()


def const(builder: Builder, number: float) -> Value:
    return builder.const(number, DType.F64)


def exp(builder: Builder, x: Value) -> Value:
    return builder.emit(Op.EXP, x)


def inverse(builder: Builder, x: Value) -> Value:
    return builder.emit(Op.DIV, const(builder, 1), x)


def kinds(graph: Graph, last: int = 2**50, first: int = 0) -> list[tuple[Op, ObligationKind]]:
    table = Ranges(graph.nodes, last, step_min=first, flushes=True)
    return [(graph.nodes[fault.index].op, fault.kind) for fault in faults(graph, table)]


def test_operands_of_an_op_without_a_row_are_finite() -> None:
    graph = of_step(exp)
    (node,) = (node for node in graph.nodes if node.op is Op.EXP)
    interval = (Interval(0.0, 1.0),)
    assert operand_demands(node, Demand.NUMBER, interval) == (Demand.NUMBER,)
    assert set(OPS) - set(OPERAND_DEMANDS) >= {Op.SQRT, Op.LOG, Op.POW, Op.MATMUL, Op.LOOKUP}
    root = replace(node, op=Op.SQRT)
    assert operand_demands(root, Demand.NUMBER, interval) == (Demand.FINITE,)


# Graph, the last step at which it has no fault, and what fails then.
CASES: Mapping[str, tuple[Make, int | None, tuple[Op, ObligationKind] | None]] = {
    "exp overflows": (exp, 709, (Op.EXP, ObligationKind.OVERFLOW)),
    "a divisor may overflow": (lambda b, x: inverse(b, exp(b, x)), None, None),
    "and what is added to it": (
        lambda b, x: inverse(b, b.emit(Op.ADD, const(b, 1), exp(b, x))),
        None,
        None,
    ),
    "not if it is made small first": (
        lambda b, x: inverse(b, b.emit(Op.MUL, const(b, 1e-200), exp(b, x))),
        709,
        (Op.EXP, ObligationKind.OVERFLOW),
    ),
    "a minimum hides it": (lambda b, x: b.emit(Op.MIN, const(b, 5), exp(b, x)), None, None),
    "a root does not": (
        lambda b, x: inverse(b, b.emit(Op.SQRT, exp(b, x))),
        709,
        (Op.EXP, ObligationKind.OVERFLOW),
    ),
    "infinity over infinity": (
        lambda b, x: b.emit(Op.DIV, exp(b, x), b.emit(Op.ADD, const(b, 1), exp(b, x))),
        709,
        (Op.EXP, ObligationKind.OVERFLOW),
    ),
    "a branch not taken": (
        lambda b, x: b.emit(Op.WHERE, b.emit(Op.LT, x, const(b, 500)), exp(b, x), const(b, 1)),
        None,
        None,
    ),
    "a branch taken too long": (
        lambda b, x: b.emit(Op.WHERE, b.emit(Op.LT, x, const(b, 800)), exp(b, x), const(b, 1)),
        709,
        (Op.EXP, ObligationKind.OVERFLOW),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_obligation_is_met_until_it_is_not(name: str) -> None:
    make, last, fault = CASES[name]
    graph = of_step(make)
    if last is None:
        assert kinds(graph) == []
        assert check_steps(graph, 0, 2**50).answer is Answer.MET
        return
    assert kinds(graph, last) == []
    assert fault in kinds(graph, last + 1)
    found = check_steps(graph, 0, 2**50)
    assert found.answer is Answer.FAILED
    assert (found.step, found.is_first) == (last + 1, True)
    assert found.fault is not None
    assert (graph.nodes[found.fault.index].op, found.fault.kind) == fault


def test_a_step_at_which_the_value_is_not_finite_is_found() -> None:
    found = first_nonfinite(of_step(exp), 0, 2**50)
    assert found is not None
    assert (found.step, found.value) == (710, float("inf"))
    assert first_nonfinite(of_step(lambda b, x: inverse(b, exp(b, x))), 0, 2**50) is None


def test_a_single_step_is_a_range() -> None:
    # The steps before the first failure are one step, which is looked at by itself.
    def pole(b: Builder, x: Value) -> Value:
        is_early = b.emit(Op.LT, x, const(b, 5))
        return b.emit(Op.WHERE, is_early, inverse(b, b.emit(Op.SUB, x, const(b, 1))), x)

    graph = of_step(pole)
    found = check_steps(graph, 0, 2**50)
    assert (found.answer, found.step, found.is_first) == (Answer.FAILED, 1, True)


def test_a_subnormal_number_that_decides_is_reported() -> None:
    # 1/(exp(-t) * 1e10) is 1e298 at most where exp(-t) is subnormal, and 1/0 where it is flushed.
    graph = of_step(
        lambda b, x: inverse(b, b.emit(Op.MUL, const(b, 1e10), exp(b, b.emit(Op.NEG, x))))
    )
    found = check_steps(graph, 0, 715)
    assert found.answer is Answer.FAILED
    assert found.fault is not None
    assert (found.fault.kind, found.step, found.value) == (ObligationKind.SUBNORMAL, 709, None)


def test_integers_that_wrap_and_floats_that_do_not_hold_them() -> None:
    builder = Builder("test")
    step = builder.input("step", scalar(DType.I64), Role.STEP)
    square = builder.emit(Op.MUL, step, step)
    single = builder.emit(Op.CAST, step, to=DType.F32)
    limit = builder.const(2.0**30, DType.F32)
    chosen = builder.emit(
        Op.WHERE, builder.emit(Op.LT, single, limit), single, builder.const(0.0, DType.F32)
    )
    builder.output("square", builder.emit(Op.CAST, square, to=DType.F64))
    builder.output("chosen", chosen)
    graph = builder.build()
    assert kinds(graph) == [(Op.MUL, ObligationKind.WRAP), (Op.LT, ObligationKind.INEXACT)]
    assert kinds(graph, 2**24) == []


def tensors(make: Callable[[Builder, Value, Value], Value]) -> tuple[Graph, Ranges]:
    builder = Builder("test")
    x = builder.input("x", F32, Role.PARAM)
    y = builder.input("y", F32, Role.GRAD)
    builder.output("out", make(builder, x, y))
    graph = builder.build()
    given = {"x": Interval(-100.0, 100.0), "y": Interval(0.0, 100.0)}
    return graph, Ranges(graph.nodes, input_ranges=given, flushes=True)


def single(builder: Builder, number: float) -> Value:
    return builder.const(np.float32(number), DType.F32)


def test_a_condition_on_elements_holds_for_these_elements() -> None:
    graph, table = tensors(
        lambda b, x, y: b.emit(
            Op.WHERE, b.emit(Op.LT, single(b, 1), y), b.emit(Op.DIV, x, y), single(b, 0)
        )
    )
    assert faults(graph, table) == ()


def test_a_condition_on_elements_says_nothing_of_a_sum_of_all() -> None:
    def inverse_of_the_sum(b: Builder, x: Value, y: Value) -> Value:
        total = b.emit(Op.REDUCE_SUM, x, axes=(0,), keepdims=False)
        is_positive = b.emit(Op.LT, single(b, 1), x)
        return b.emit(Op.WHERE, is_positive, b.emit(Op.DIV, y, total), single(b, 0))

    graph, table = tensors(inverse_of_the_sum)
    assert ObligationKind.NAN in {fault.kind for fault in faults(graph, table)}


def test_an_average_stays_between_what_it_averages() -> None:
    def average(b: Builder, x: Value, y: Value) -> Value:
        change = b.emit(Op.MUL, single(b, 0.1), b.emit(Op.SUB, y, x))
        return b.emit(Op.ADD, x, change)

    graph, table = tensors(average)
    found = table.of(graph.outputs[0].index)
    # 0.9 * 100 + 0.1 * 100, and half an ulp of numbers up to 200 for each of three roundings.
    assert -90.001 < found.low <= -90
    assert 100 <= found.high < 100.001


def test_a_part_of_a_norm_is_at_most_the_norm() -> None:
    def normalized(b: Builder, x: Value, _: Value) -> Value:
        total = b.emit(Op.REDUCE_SUM, b.emit(Op.MUL, x, x), axes=(0,), keepdims=True)
        return b.emit(Op.DIV, x, b.emit(Op.ADD, b.emit(Op.SQRT, total), single(b, 1e-7)))

    graph, table = tensors(normalized)
    found = table.of(graph.outputs[0].index)
    assert (found.low, found.high, found.maybe_nan) == (-1.5, 1.5, False)


def test_directions_follow_rounding() -> None:
    graph = of_step(lambda b, x: b.emit(Op.SUB, const(b, 1), b.emit(Op.DIV, x, const(b, 3))))
    falling = directions(graph, Ranges(graph.nodes, 100))[graph.outputs[0].index]
    assert falling is Direction.FALLING
    graph = of_step(exp)
    assert directions(graph, Ranges(graph.nodes, 100))[graph.outputs[0].index] is Direction.NONE
    graph = of_step(lambda b, x: b.emit(Op.MUL, x, b.emit(Op.SUB, x, const(b, 50))))
    of_product = directions(graph, Ranges(graph.nodes, 100))[graph.outputs[0].index]
    assert of_product is Direction.NONE
    later = Ranges(graph.nodes, 100, step_min=50)
    assert directions(graph, later)[graph.outputs[0].index] is Direction.RISING


@pytest.mark.parametrize(("number", "is_met"), [(1e-50, False), (1e-40, True)])
def test_a_constant_that_an_engine_takes_for_zero(number: float, is_met: bool) -> None:
    """onnxruntime removes the addition of 1e-50 to a float64: the logarithm is that of 0 then."""

    def make(builder: Builder, x: Value) -> Value:
        far = builder.emit(Op.MAX, x, const(builder, 1.0))
        inverse_power = builder.emit(Op.EXP, builder.emit(Op.NEG, far))
        return builder.emit(Op.LOG, builder.emit(Op.ADD, inverse_power, const(builder, number)))

    graph = of_step(make)
    assert (not faults(graph, Ranges(graph.nodes, 2**50, flushes=True))) == is_met


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (lambda b, x: b.emit(Op.MIN, exp(b, x), const(b, 5)), Op.EXP),
        (lambda b, x: inverse(b, exp(b, x)), Op.EXP),
        (lambda b, x: exp(b, b.emit(Op.NEG, exp(b, x))), Op.EXP),
        (
            lambda b, x: b.emit(
                Op.WHERE, b.emit(Op.LT, exp(b, x), const(b, 9)), const(b, 1), const(b, 2)
            ),
            Op.EXP,
        ),
    ],
)
def test_where_all_values_are_finite_no_infinity_stands_for_a_number(make: Make, op: Op) -> None:
    graph = of_step(make)
    table = Ranges(graph.nodes, 2**50, flushes=True)
    assert faults(graph, table) == ()
    overflows = [
        fault
        for fault in faults(graph, table, all_finite=True)
        if fault.kind is not ObligationKind.INEXACT
    ]
    assert [(graph.nodes[fault.index].op, fault.kind) for fault in overflows][:1] == [
        (op, ObligationKind.OVERFLOW)
    ]
    assert not [
        fault
        for fault in faults(graph, Ranges(graph.nodes, 700, flushes=True), all_finite=True)
        if fault.index == overflows[0].index
    ]


def test_an_infinity_that_is_written_has_not_overflowed() -> None:
    graph = of_step(lambda b, x: b.emit(Op.MIN, x, const(b, np.inf)))
    assert faults(graph, Ranges(graph.nodes, 100, flushes=True), all_finite=True) == ()

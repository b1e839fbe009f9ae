"""The function of a graph on Python numbers is its evaluator, bit for bit."""

import itertools
import math
import struct
from typing import Any

import numpy as np
import pytest

from closedform import compile
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Builder, Graph, Role, Value
from closedform.ir.ops import OPS, Op
from closedform.ir.scalar import CASTS, FORMS, UncommonError, scalar_function
from closedform.ir.types import DType, TensorType
from closedform.language import Schedule
from closedform.schedules.examples import EXAMPLES
from tests.support.graphs import SPECIAL_FLOATS, SPECIAL_INTEGERS

VALUES: dict[DType, list[Any]] = {
    DType.F64: [*SPECIAL_FLOATS, 0.3, -0.3, 2.5, -2.5, 7.0, 1e-300, 1e300, 700.5, 3e18, -3e18],
    DType.I64: [*SPECIAL_INTEGERS, 7, -7, 12, 2**53 + 1],
    DType.BOOL: [False, True],
}
"""Operands of each dtype; SPECIAL_INTEGERS are those of i64."""


def one_step(shape: tuple[str, ...] = ()) -> tuple[Builder, Value]:
    builder = Builder("one")
    return builder, builder.input("step", TensorType(DType.I64, shape), Role.STEP)


def as_float(builder: Builder, value: Value) -> Value:
    if value.type.dtype is DType.F64:
        return value
    return builder.emit(Op.CAST, value, to=DType.F64)


def column(builder: Builder, step: Value, values: list[Any], dtype: DType) -> Value:
    """The value at index ``step`` of a table, so that nothing is constant."""
    if dtype is not DType.BOOL:
        return builder.emit(Op.LOOKUP, builder.const(np.array(values), dtype), step)
    numbers = builder.const(np.array([int(value) for value in values]), DType.I64)
    return builder.emit(Op.CAST, builder.emit(Op.LOOKUP, numbers, step), to=DType.BOOL)


def bits(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else struct.pack("<d", value)


def covered(graph: Graph, steps: range) -> int:
    """How many steps the function covers; its values there are those of ``evaluate``."""
    function = scalar_function(graph)
    assert function is not None
    known = 0
    for step in steps:
        try:
            value = function(step)
        except UncommonError:
            continue
        assert type(value) is float
        assert bits(value) == bits(float(evaluate(graph, {"step": step})["y"])), step
        known += 1
    return known


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(dtype, op) for dtype, forms in FORMS.items() for op in forms],
    ids=lambda part: str(part),
)
def test_a_form_is_its_op(dtype: DType, op: Op) -> None:
    operands = list(zip(*itertools.product(VALUES[dtype], repeat=OPS[op].arity), strict=True))
    builder, step = one_step()
    values = [column(builder, step, list(one), dtype) for one in operands]
    builder.output("y", as_float(builder, builder.emit(op, *values)))
    count = len(operands[0])
    assert covered(builder.build(), range(count)) >= count / 5


@pytest.mark.parametrize(("source", "target"), CASTS, ids=lambda dtype: str(dtype))
def test_a_cast_is_its_op(source: DType, target: DType) -> None:
    builder, step = one_step()
    value = column(builder, step, VALUES[source], source)
    builder.output("y", as_float(builder, builder.emit(Op.CAST, value, to=target)))
    count = len(VALUES[source])
    assert covered(builder.build(), range(count)) >= count / 2


def test_schedules_of_the_library_have_functions() -> None:
    """A graph with an op that has no form runs in NumPy, where a step takes 50 µs, not 1."""
    schedules = [example.make() for example in EXAMPLES.values()]
    graphs = [compile(schedule) for schedule in schedules if isinstance(schedule, Schedule)]
    assert {graph.name for graph in graphs if scalar_function(graph) is None} == set()


def test_each_pair_of_dtypes_has_a_cast() -> None:
    pairs = {(a, b) for a in FORMS for b in FORMS if a is not b}
    assert set(CASTS) == pairs


@pytest.mark.parametrize("op", [Op.LE, Op.LT])
def test_marks_that_are_reached_are_counted_in_any_order(op: Op) -> None:
    builder, step = one_step(("n",))
    marks = builder.const(np.array([9, 3, 3, 12]), DType.I64)
    row = builder.emit(Op.RESHAPE, step, shape=("n", 1))
    reached = builder.emit(Op.CAST, builder.emit(op, marks, row), to=DType.I64)
    count = builder.emit(Op.REDUCE_SUM, reached, axes=(1,), keepdims=False)
    builder.output("y", as_float(builder, count))
    graph = builder.build()
    function = scalar_function(graph)
    assert function is not None
    steps = np.arange(15)
    assert [function(int(one)) for one in steps] == list(evaluate(graph, {"step": steps})["y"])


def chain(length: int) -> Graph:
    """A chain of Where, each with a division by 0 in the branch that is not taken."""
    builder, step = one_step()
    number = as_float(builder, step)
    result = number
    for mark in range(length):
        rest = builder.emit(Op.SUB, number, builder.const(float(mark), DType.F64))
        value = builder.emit(Op.DIV, builder.const(1.0, DType.F64), rest)
        is_before = builder.emit(Op.EQ, step, builder.const(mark, DType.I64))
        result = builder.emit(Op.WHERE, is_before, result, value)
    builder.output("y", result)
    return builder.build()


@pytest.mark.parametrize("length", [1, 50, 500])
def test_only_the_selected_branch_is_computed(length: int) -> None:
    graph = chain(length)
    function = scalar_function(graph)
    assert function is not None
    assert function(length) == 1.0
    if length < 200:  # deeper branches are computed in any case
        assert covered(graph, range(length)) == length


def test_a_value_of_both_branches_is_computed_once_before_them() -> None:
    builder, step = one_step()
    number = as_float(builder, step)
    wave = builder.emit(Op.COS, number)
    twice = builder.emit(Op.ADD, wave, wave)
    is_early = builder.emit(Op.LT, step, builder.const(3, DType.I64))
    inner = builder.emit(Op.WHERE, is_early, twice, wave)
    builder.output("y", builder.emit(Op.MUL, inner, builder.emit(Op.NEG, inner)))
    assert covered(builder.build(), range(6)) == 6


def matrix() -> Graph:
    builder, step = one_step(("n",))
    row = builder.emit(Op.RESHAPE, step, shape=("n", 1))
    table = builder.emit(Op.ADD, row, builder.const(np.array([1, 2]), DType.I64))
    total = builder.emit(Op.REDUCE_SUM, table, axes=(1,), keepdims=False)
    builder.output("y", as_float(builder, total))
    return builder.build()


def other_float() -> Graph:
    builder, step = one_step()
    builder.output("y", builder.emit(Op.CAST, step, to=DType.F32))
    return builder.build()


def two_inputs() -> Graph:
    builder, step = one_step()
    peak = builder.input("peak", TensorType(DType.F64), Role.HYPER)
    builder.output("y", builder.emit(Op.MUL, peak, as_float(builder, step)))
    return builder.build()


@pytest.mark.parametrize("make", [matrix, other_float, two_inputs])
def test_another_kind_of_graph_has_no_function(make: Any) -> None:
    assert scalar_function(make()) is None

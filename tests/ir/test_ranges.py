"""Intervals: what is proved of chosen graphs, and soundness on random ones."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.ir.analysis.interval import Interval, full, hull
from closedform.ir.analysis.ranges import RULES, Ranges, ranges
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Array, Builder, Graph, Output, Role, scalar
from closedform.ir.ops import OPS, Op
from closedform.ir.text import parse_graph, print_graph
from closedform.ir.types import DType
from tests.support.graphs import array, graphs, inputs_of, numbers
from tests.support.sampling import examples

INF = math.inf


def test_every_op_has_a_rule() -> None:
    assert set(RULES) == set(OPS)


def assert_inside(value: Array, interval: Interval, message: str) -> None:
    for element in value.ravel():
        number: Any = float(element) if value.dtype.kind not in "biu" else int(element)
        if number != number:
            assert interval.maybe_nan, message
        else:
            assert interval.contains(number), f"{number}: {message}"


@given(st.data())
@settings(max_examples=examples(250))
def test_every_value_is_in_its_interval(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    inputs = data.draw(inputs_of(graph))
    outputs = tuple(Output(f"v{index}", index) for index in range(len(graph.nodes)))
    values = evaluate(Graph(graph.name, graph.nodes, outputs), inputs)
    for index, interval in enumerate(ranges(graph)):
        message = f"node {index} in {interval}\n{print_graph(graph)}\n{inputs}"
        assert_inside(values[f"v{index}"], interval, message)


STRUCTURED = (Op.WHERE, Op.MATMUL, Op.LOOKUP, Op.AND, Op.OR, Op.NOT)
PLAIN = [op for op in OPS if OPS[op].arity and not OPS[op].attributes and op not in STRUCTURED]
ROWS = [(op, dtype) for op in PLAIN for dtype in sorted(OPS[op].dtypes)]


@pytest.mark.parametrize(("op", "dtype"), ROWS)
@given(data=st.data())
@settings(max_examples=examples(30))
def test_an_op_on_all_pairs(op: Op, dtype: DType, data: st.DataObject) -> None:
    """Constants have the tightest intervals, so this is where a bound that is too tight shows."""
    builder = Builder("pairs")
    operands = []
    for place in range(OPS[op].arity):
        numbers_ = data.draw(st.lists(numbers(dtype), min_size=1, max_size=3))
        if place and dtype.is_integer and op in (Op.FLOOR_DIV, Op.FLOOR_MOD):
            numbers_ = [number or 1 for number in numbers_]
        shape = (len(numbers_), 1) if place else (len(numbers_),)
        values = array(np.array(numbers_, dtype.numpy if dtype.is_integer else None), dtype)
        operands.append(builder.const(values.reshape(shape), dtype))
    builder.output("y", builder.emit(op, *operands))
    graph = builder.build()
    assert_inside(evaluate(graph, {})["y"], ranges(graph)[-1], print_graph(graph))


def interval_of(body: str, type_: str) -> Interval:
    """The interval of the last line of a body; inputs t (step), k, f, h, x."""
    lines = body.split("; ")
    listed = "\n".join(f"%{number} = {line}" for number, line in enumerate(lines))
    text = (
        "graph g(t: i64[] step, k: i64[] hyper, f: f64[] hyper, h: f32[] hyper, x: f32[4] grad)"
        f" -> (y: {type_}) {{\n{listed}\ny = %{len(lines) - 1}\n}}"
    )
    return ranges(parse_graph(text))[-1]


FULL = (-INF, INF, True)
INTEGERS = (-(2**63), 2**63 - 1)

PROVED: list[tuple[str, str, tuple[Any, ...]]] = [
    ("add(t, t) : i64[]", "i64[]", (0, 2**54)),
    ("mul(t, t) : i64[]", "i64[]", INTEGERS),
    ("neg(k) : i64[]", "i64[]", INTEGERS),
    ("abs(k) : i64[]", "i64[]", INTEGERS),
    ("neg(t) : i64[]; abs(%0) : i64[]", "i64[]", (0, 2**53)),
    ("const 7 : i64[]; floor_mod(t, %0) : i64[]", "i64[]", (0, 6)),
    ("const -7 : i64[]; floor_mod(t, %0) : i64[]", "i64[]", (-6, 0)),
    ("const 3 : i64[]; const 5 : i64[]; floor_mod(%0, %1) : i64[]", "i64[]", (3, 3)),
    ("const 4096 : i64[]; floor_div(t, %0) : i64[]", "i64[]", (0, 2**41)),
    ("const 1 : i64[]; max(k, %0) : i64[]; floor_div(t, %1) : i64[]", "i64[]", (0, 2**53)),
    ("cast(t) to=f64 : f64[]", "f64[]", (0.0, 2.0**53, False)),
    ("cast(f) to=i64 : i64[]", "i64[]", INTEGERS),
    ("cast(t) to=i32 : i32[]", "i32[]", (-(2**31), 2**31 - 1)),
    ("const 2.7 : f64[]; cast(%0) to=i64 : i64[]", "i64[]", (2, 2)),
    ("cast(t) to=f32 : f32[]; mul(%0, h) : f32[]", "f32[]", FULL),
    ("cos(f) : f64[]", "f64[]", (-1.0, 1.0, True)),
    ("cast(t) to=f64 : f64[]; cos(%0) : f64[]", "f64[]", (-1.0, 1.0, False)),
    (
        "cast(t) to=f64 : f64[]; cos(%0) : f64[]; const 1.0 : f64[]; add(%1, %2) : f64[]",
        "f64[]",
        (0.0, 2.0, False),
    ),
    (
        "cast(t) to=f64 : f64[]; const 9.0 : f64[]; div(%0, %1) : f64[]; const 1.0 : f64[]; "
        "min(%2, %3) : f64[]; sub(%3, %4) : f64[]",
        "f64[]",
        (0.0, 1.0, False),
    ),
    ("const 0.0 : f64[]; max(f, %0) : f64[]", "f64[]", (0.0, INF, True)),
    ("const [0.5, 9.0, nan] : f64[3]; const 2 : i64[]; min(t, %1) : i64[]; "
     "lookup(%0, %2) : f64[]", "f64[]", (0.5, 9.0, True)),
    ("const [0.5, 9.0, nan] : f64[3]; const 1 : i64[]; min(t, %1) : i64[]; "
     "lookup(%0, %2) : f64[]", "f64[]", (0.5, 9.0, False)),
    ("const [2, 5, 9] : i64[3]; le(%0, t) : bool[3]; cast(%1) to=i64 : i64[3]; "
     "reduce_sum(%2) axes=[0] keepdims=false : i64[]", "i64[]", (0, 3)),
    ("mul(x, x) : f32[4]; abs(%0) : f32[4]; "
     "reduce_sum(%1) axes=[0] keepdims=false : f32[]", "f32[]", (0.0, INF, True)),
    ("mul(x, x) : f32[4]; abs(%0) : f32[4]; "
     "reduce_max(%1) axes=[0] keepdims=false : f32[]", "f32[]", (0.0, INF, True)),
    ("cast(t) to=f64 : f64[]; exp(%0) : f64[]", "f64[]", (1.0, INF, False)),
    ("lt(f, f) : bool[]", "bool[]", (0, 1)),
    ("const -1 : i64[]; lt(%0, t) : bool[]", "bool[]", (1, 1)),
    ("const 5.0 : f64[]; cos(f) : f64[]; lt(%1, %0) : bool[]", "bool[]", (0, 1)),
    ("const 5.0 : f64[]; cos(f) : f64[]; lt(%0, %1) : bool[]", "bool[]", (0, 0)),
    ("const 3 : i64[]; lt(t, %0) : bool[]; where(%1, t, %0) : i64[]", "i64[]", (0, 3)),
    ("const 3 : i64[]; le(t, %0) : bool[]; not(%1) : bool[]; where(%2, t, %0) : i64[]", "i64[]",
     (3, 2**53)),
    ("const 0 : i64[]; const 1 : i64[]; eq(t, %0) : bool[]; where(%2, %1, t) : i64[]", "i64[]",
     (1, 2**53)),
    ("const 0 : i64[]; const 9 : i64[]; eq(t, %0) : bool[]; where(%2, %1, t) : i64[]", "i64[]",
     (1, 2**53)),
    ("const 3 : i64[]; const 9 : i64[]; lt(t, %0) : bool[]; where(%2, %1, t) : i64[]", "i64[]",
     (3, 2**53)),
    ("const 3 : i64[]; const 9 : i64[]; le(t, %0) : bool[]; where(%2, %1, t) : i64[]", "i64[]",
     (4, 2**53)),
    ("const 5 : i64[]; sub(t, %0) : i64[]; const 10 : i64[]; lt(t, %2) : bool[]; "
     "where(%3, %1, %0) : i64[]", "i64[]", (-5, 5)),
    ("const 5 : i64[]; sub(t, %0) : i64[]; const 10 : i64[]; lt(%1, %2) : bool[]; "
     "where(%3, t, %0) : i64[]", "i64[]", (0, 14)),
    ("const [0.0, nan] : f64[2]; cast(%0) to=bool : bool[2]", "bool[2]", (0, 1)),
    ("const 0.0 : f64[]; lt(%0, f) : bool[]; where(%1, f, %0) : f64[]", "f64[]",
     (0.0, INF, False)),
    ("const 0.0 : f64[]; lt(%0, f) : bool[]; where(%1, %0, f) : f64[]", "f64[]", FULL),
]  # fmt: skip


@pytest.mark.parametrize(("body", "type_", "expected"), PROVED)
def test_proved(body: str, type_: str, expected: tuple[Any, ...]) -> None:
    assert interval_of(body, type_) == Interval(*expected)


def test_step_max() -> None:
    graph = parse_graph("graph g(t: i64[] step) -> (y: i64[]) { y = t }")
    assert ranges(graph, step_max=100) == (Interval(0, 100),)


def test_narrow_step_holds_no_more_than_its_dtype() -> None:
    graph = parse_graph("graph g(t: i32[] step) -> (y: i32[]) { y = t }")
    assert ranges(graph) == (Interval(0, 2**31 - 1),)


def test_intervals_read_well() -> None:
    assert str(Interval(0, 6)) == "[0, 6]"
    assert str(full(DType.F32)) == "[-inf, inf] or nan"
    assert hull([Interval(0.0, 1.0), Interval(-2.0, 0.5, True)]) == Interval(-2.0, 1.0, True)


def test_a_long_chain_is_bounded_once() -> None:
    lines = ["%0 = add(t, t) : i64[]"]
    lines += [f"%{number} = min(%{number - 1}, t) : i64[]" for number in range(1, 3000)]
    body = "\n".join(lines)
    graph = parse_graph(f"graph g(t: i64[] step) -> (y: i64[]) {{ {body}\n y = %2999 }}")
    assert ranges(graph)[-1] == Interval(0, 2**53)
    assert np.asarray(evaluate(graph, {"t": 5})["y"]) == 5


@pytest.mark.parametrize(
    ("base", "exponent", "low", "high"),
    [
        ((-3.0, 2.0), 2.0, 0.0, 9.0),
        ((-3.0, 2.0), 3.0, -27.0, 27.0),
        ((-3.0, -1.0), 4.0, 0.0, 81.0),
        ((-3.0, 2.0), 1.0, -3.0, 3.0),
        ((-3.0, 2.0), 0.0, 1.0, 1.0),
    ],
)
def test_a_whole_power_of_any_number_is_bounded(
    base: tuple[float, float], exponent: float, low: float, high: float
) -> None:
    builder = Builder("powers")
    x = builder.input("x", scalar(DType.F32), Role.GRAD)
    power = builder.emit(Op.POW, x, builder.const(exponent, DType.F32))
    table = Ranges(builder.nodes, input_ranges={"x": Interval(*base)})
    interval = table.of(power.index)
    assert not interval.maybe_nan
    # The op table allows engines 4 ulp of the result.
    assert interval.low == pytest.approx(low, rel=1e-5)
    assert interval.high == pytest.approx(high, rel=1e-5)
    for number in np.linspace(*base, 9, dtype=np.float32):
        assert interval.contains(float(number**exponent))
    half = builder.emit(Op.POW, x, builder.const(exponent + 0.5, DType.F32))
    assert table.of(half.index).maybe_nan


def test_above_the_largest_float_is_infinity_without_a_warning() -> None:
    builder = Builder("largest")
    x = builder.input("x", scalar(DType.F32), Role.GRAD)
    largest = builder.const(np.finfo(np.float32).max, DType.F32)
    condition = builder.emit(Op.LT, largest, x)
    table = Ranges(builder.nodes, flushes=True)
    for index in range(len(builder.nodes)):
        table.of(index)
    inner = table.where(condition.index, True)
    assert inner is not None
    assert inner.intervals[x.index].low == math.inf

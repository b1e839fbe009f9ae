"""A valid graph is corrupted in every way the checker knows; each message is pinned."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from closedform.errors import GraphError
from closedform.ir.check import ATTRIBUTES, check, label
from closedform.ir.graph import Builder, Graph, Node, Output, Role, scalar
from closedform.ir.ops import OPS, AttributeValue, Op
from closedform.ir.types import DType, Shape, TensorType


def valid() -> Graph:
    """Inputs step, param.w; %0 = 7, %1 floor_mod, %2 table, %3 lookup, %4 add, %5 reduce_sum."""
    builder = Builder("sample")
    step = builder.input("step", scalar(DType.I64), Role.STEP)
    param = builder.input("param.w", TensorType(DType.F32, (2, "n")), Role.PARAM)
    phase = builder.emit(Op.FLOOR_MOD, step, builder.const(7, DType.I64))
    table = builder.const(np.arange(7), DType.F32)
    moved = builder.emit(Op.ADD, param, builder.emit(Op.LOOKUP, table, phase))
    total = builder.emit(Op.REDUCE_SUM, moved, axes=(0, 1), keepdims=False)
    builder.output("param.w", moved)
    builder.output("total", total)
    return builder.build()


def with_max(shape: Shape, axes: tuple[int, ...]) -> Callable[[Graph], Graph]:
    def corrupt(_: Graph) -> Graph:
        builder = Builder("max")
        wide = builder.input("x", TensorType(DType.F32, (2, 3)), Role.PARAM)
        builder.output("y", builder.emit(Op.REDUCE_MAX, wide, axes=axes, keepdims=True))
        return with_attribute(0, "shape", shape)(
            with_node(0, type=TensorType(DType.F32, shape))(builder.build())
        )

    return corrupt


def with_node(index: int, **changes: object) -> Callable[[Graph], Graph]:
    def corrupt(graph: Graph) -> Graph:
        nodes = list(graph.nodes)
        nodes[index] = replace(nodes[index], **changes)  # type: ignore[arg-type]
        return replace(graph, nodes=tuple(nodes))

    return corrupt


def with_attribute(index: int, name: str, value: object) -> Callable[[Graph], Graph]:
    def corrupt(graph: Graph) -> Graph:
        attributes = dict(graph.nodes[index].attributes)
        attributes[name] = value  # type: ignore[assignment]
        return with_node(index, attributes=tuple(sorted(attributes.items())))(graph)

    return corrupt


def with_outputs(*outputs: tuple[str, int]) -> Callable[[Graph], Graph]:
    return lambda graph: replace(graph, outputs=tuple(Output(*output) for output in outputs))


def swap_inputs_back(graph: Graph) -> Graph:
    """Moves the second input behind the first constant."""
    first, second, third, *rest = graph.nodes
    remaining = tuple(replace(node, operands=tuple(map(_exchange, node.operands))) for node in rest)
    return replace(graph, nodes=(first, third, second, *remaining))


def _exchange(index: int) -> int:
    return {1: 2, 2: 1}.get(index, index)


def const(value: int) -> tuple[tuple[str, AttributeValue], ...]:
    data = np.asarray(value, np.int64).tobytes()
    return (("data", data), ("dtype", DType.I64), ("shape", ()))


BROKEN: list[tuple[Callable[[Graph], Graph], str]] = [
    (lambda g: replace(g, name="a b"), "the name of a graph must be an identifier, got 'a b'"),
    (with_node(3, op="modulo"), "%1 = modulo: is not an op; ops are input, const, add, "),
    (
        with_node(3, operands=(0, 3)),
        "%1 = floor_mod: operands must be earlier nodes, in 0..2, got 3",
    ),
    (
        with_node(3, operands=(-1, 2)),
        "%1 = floor_mod: operands must be earlier nodes, in 0..2, got -1",
    ),
    (with_node(3, operands=(0,)), "%1 = floor_mod: takes 2 operands, got 1"),
    (
        with_node(3, operands=(0, 1)),
        "%1 = floor_mod: operands must share one dtype, got i64[], f32[2,n]",
    ),
    (
        with_node(3, type=scalar(DType.I32)),
        "%1 = floor_mod: the node states i32[], but its type is i64[]",
    ),
    (with_node(3, type="i64[]"), "%1 = floor_mod: the type must be a TensorType, got 'i64[]'"),
    (
        with_node(3, type=TensorType(DType.I64, (-1,))),
        "%1 = floor_mod: sizes must be integers >= 0 or identifiers, got (-1,)",
    ),
    (
        with_node(3, attributes=(("to", DType.F32),)),
        "%1 = floor_mod: attributes must be [] in this order, got ['to']",
    ),
    (
        with_node(7, attributes=(("keepdims", False),)),
        "%5 = reduce_sum: attributes must be ['axes', 'keepdims'] in this order, got ['keepdims']",
    ),
    (
        with_attribute(7, "keepdims", 0),
        "%5 = reduce_sum: attribute 'keepdims' must be a bool, got 0",
    ),
    (
        with_attribute(7, "axes", [0]),
        "%5 = reduce_sum: attribute 'axes' must be a tuple of integers, got [0]",
    ),
    (
        with_attribute(7, "axes", (0, 2)),
        "%5 = reduce_sum: axes must be distinct and in 0..1, got [0, 2] for f32[2,n]",
    ),
    (
        with_max((2, 0), (0, 1)),
        "%0 = reduce_max: the sizes of reduced axes must be integers >= 1, got [2, 0] for "
        "f32[2,0]: no elements have no maximum",
    ),
    (
        with_max(("n", 4), (0,)),
        "%0 = reduce_max: the sizes of reduced axes must be integers >= 1, got ['n'] for f32[n,4]",
    ),
    (
        with_attribute(1, "role", "weight"),
        "input 'param.w' = input: attribute 'role' must be a Role, got 'weight'",
    ),
    (
        with_attribute(1, "dtype", "f32"),
        "input 'param.w' = input: attribute 'dtype' must be a DType, got 'f32'",
    ),
    (
        with_attribute(1, "name", ""),
        "input '' = input: attribute 'name' must be a non-empty string, got ''",
    ),
    (with_attribute(1, "name", "step"), "input 'step': a second input of this name"),
    (
        with_attribute(1, "shape", (2, "n m")),
        "attribute 'shape' must be a tuple of integers >= 0 and identifiers, got (2, 'n m')",
    ),
    (
        with_attribute(1, "role", Role.STEP),
        "input 'param.w' = input: a step must be i64 or i32, got f32[2,n]",
    ),
    (swap_inputs_back, "input 'param.w': comes after other nodes: move it to the front"),
    (with_attribute(2, "data", b"1234"), "%0 = const: i64[] takes 8 bytes, got 4"),
    (with_attribute(2, "data", "7"), "%0 = const: attribute 'data' must be bytes, got '7'"),
    (
        with_node(
            4,
            attributes=(("data", b""), ("dtype", DType.F32), ("shape", ("n",))),
            type=TensorType(DType.F32, ("n",)),
        ),
        "%2 = const: a constant has no named sizes, got f32[n]",
    ),
    (
        with_node(2, attributes=const(0)),
        "%1 = floor_mod: divisor %0 is not proved nonzero, its range is [0, 0]: use max",
    ),
    (
        with_node(3, operands=(2, 0)),
        "%1 = floor_mod: divisor input 'step' is not proved nonzero, its range is [0, 9007",
    ),
    (
        with_node(2, attributes=const(9)),
        "%3 = lookup: index %1 is not proved in 0..6, its range is [0, 8]: clamp it with",
    ),
    (
        with_node(2, attributes=const(-3)),
        "%3 = lookup: index %1 is not proved in 0..6, its range is [-2, 0]: clamp it",
    ),
    (with_outputs(), "the graph has no outputs"),
    (with_outputs(("a", 6), ("a", 7)), "output 'a': a second output of this name"),
    (with_outputs(("", 6)), "output '': the name must be a non-empty string"),
    (with_outputs(("total", 8)), "output 'total': must be a node in 0..7, got 8"),
]


def test_valid_graph_passes() -> None:
    check(valid())


@pytest.mark.parametrize(("corrupt", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_graph(corrupt: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        check(corrupt(valid()))
    assert message in str(caught.value)
    assert "graph " in str(caught.value)


def test_one_problem_reads_as_a_line() -> None:
    broken = with_attribute(2, "data", b"1234")(valid())
    expected = "%0 = const: i64[] takes 8 bytes, got 4 (graph 'sample', after pass 'fold')"
    with pytest.raises(GraphError) as caught:
        check(broken, "after pass 'fold'")
    assert str(caught.value) == expected


def test_all_problems_are_reported_at_once() -> None:
    broken = with_outputs(("a", 90))(
        with_attribute(2, "data", b"")(with_node(7, operands=(9,))(valid()))
    )
    with pytest.raises(GraphError) as caught:
        check(broken)
    text = str(caught.value)
    assert text.startswith("3 rules are broken\n  %0 = const: ")
    assert "\n  %5 = reduce_sum: operands must be earlier" in text
    assert "\n  output 'a': must be" in text


def test_lookup_in_a_computed_table() -> None:
    graph = valid()
    table = Node(Op.NEG, (4,), (), graph.nodes[4].type)
    nodes = (*graph.nodes[:5], table, replace(graph.nodes[5], operands=(5, 3)))
    with pytest.raises(GraphError, match="%4 = lookup: the table must be a const, got %3 = neg"):
        check(Graph("sample", nodes, (Output("y", 6),)))


def test_bool_constant_of_another_byte() -> None:
    builder = Builder("flag")
    builder.output("y", builder.const(True, DType.BOOL))
    broken = with_attribute(0, "data", b"\2")(builder.build())
    with pytest.raises(GraphError, match="a bool is the byte 0 or 1, got 2"):
        check(broken)


def test_least_integer_by_minus_one() -> None:
    builder = Builder("trap")
    hyper = builder.input("k", scalar(DType.I32), Role.HYPER)
    builder.output("y", builder.emit(Op.FLOOR_DIV, hyper, builder.const(-1, DType.I32)))
    expected = r"%1 = floor_div: -2147483648 by -1 is not ruled out, the ranges are \[-2147483648, "
    with pytest.raises(GraphError, match=expected):
        check(builder.build())


def test_guarded_divisor_and_index_are_proved() -> None:
    builder = Builder("guarded")
    size = builder.input("size", scalar(DType.I64), Role.HYPER)
    zero, one, four = (builder.const(number, DType.I64) for number in (0, 1, 4))
    safe = builder.emit(Op.MAX, size, one)
    builder.output("quotient", builder.emit(Op.FLOOR_DIV, four, safe))
    inside = builder.emit(Op.AND, builder.emit(Op.LE, zero, size), builder.emit(Op.LT, size, four))
    index = builder.emit(Op.WHERE, inside, size, zero)
    builder.output("entry", builder.emit(Op.LOOKUP, builder.const(range(4), DType.F64), index))
    check(builder.build())


def test_every_attribute_of_the_table_has_a_rule() -> None:
    assert set(ATTRIBUTES) == {name for spec in OPS.values() for name in spec.attributes}


def test_labels_are_those_of_the_text() -> None:
    assert [label(valid(), index) for index in (0, 1, 2, 7)] == [
        "input 'step'",
        "input 'param.w'",
        "%0",
        "%5",
    ]


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (
            Op.SLICE,
            {"axis": 1, "start": 2, "stop": 5},
            "slice: f32[2,4] has no places 2 to 5 along axis 1",
        ),
        (
            Op.SLICE,
            {"axis": 2, "start": 0, "stop": 1},
            "slice: f32[2,4] has no places 0 to 1 along axis 2",
        ),
        (
            Op.SLICE,
            {"axis": 0, "start": -1, "stop": 1},
            "slice: attributes axis, start, stop must be integers >= 0, got [0, -1, 1]",
        ),
        (Op.CONCAT, {"axis": 2}, "concat: cannot join f32[2,4], f32[2,3] along axis 2"),
        (Op.CONCAT, {"axis": 0}, "concat: cannot join f32[2,4], f32[2,3] along axis 0"),
        (Op.CONCAT, {"axis": True}, "concat: attributes axis must be integers >= 0, got [True]"),
    ],
)
def test_parts_that_do_not_fit_are_refused(op: Op, attributes: Any, message: str) -> None:
    builder = Builder("parts")
    first = builder.input("x", TensorType(DType.F32, (2, 4)), Role.PARAM)
    second = builder.input("y", TensorType(DType.F32, (2, 3)), Role.PARAM)
    with pytest.raises(GraphError) as caught:
        builder.emit(op, *((first, second) if op is Op.CONCAT else (first,)), **attributes)
    assert str(caught.value) == message

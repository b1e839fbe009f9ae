"""The simplifier of graphs: its guarantees, and each rewrite with a graph that must stay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import GraphError
from closedform.ir.check import check
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.simplification import simplify
from closedform.ir.text import parse_graph, print_graph
from tests.support.graphs import assert_same, graphs, inputs_of
from tests.support.sampling import examples

INPUTS = (
    "k: i64[] hyper, j: i32[] hyper, f: f64[] hyper, e: f64[] hyper, "
    "x: f32[4] grad, h: bf16[2] state"
)


def graph_of(body: str) -> Graph:
    """A graph of lines without numbers; the last is the output, or an input."""
    lines = body.split("; ")
    if ":" not in lines[-1]:
        *lines, last = lines
    else:
        last = f"%{len(lines) - 1}"
    listed = "\n".join(f"%{number} = {line}" for number, line in enumerate(lines))
    types = {part.split(":")[0]: part.split()[1] for part in INPUTS.split(", ")}
    type_ = types[last] if last in types else lines[int(last[1:])].rsplit(" : ", 1)[1]
    return parse_graph(f"graph g({INPUTS}) -> (y: {type_}) {{\n{listed}\ny = {last}\n}}")


def test_an_illegal_graph_is_refused() -> None:
    graph = graph_of("neg(f) : f64[]")
    with pytest.raises(GraphError, match=r"no outputs \(graph 'g', before it is simplified\)"):
        simplify(Graph("g", graph.nodes, ()))


@given(data=st.data())
@settings(max_examples=examples(300))
def test_simplifying_keeps_meaning_and_interface(data: st.DataObject) -> None:
    graph = data.draw(graphs())
    inputs = data.draw(inputs_of(graph))
    result = simplify(graph)
    message = f"{print_graph(graph)}\nsimplified:\n{print_graph(result)}\n{inputs}"
    check(result, message)
    assert result.inputs == graph.inputs, message
    names = [[output.name for output in each.outputs] for each in (graph, result)]
    assert names[0] == names[1], message
    assert_same(evaluate(graph, inputs), evaluate(result, inputs), message)
    assert simplify(result) is result, message
    assert result is graph or result != graph, message


WARMUP = """\
graph warmup(step: i64[] step) -> (value: f64[]) {
  %0 = const 100 : i64[]
  %1 = lt(step, %0) : bool[]
  %2 = min(%0, step) : i64[]
  %3 = cast(%2) to=f64 : f64[]
  %4 = const 50.0 : f64[]
  %5 = add(%4, %4) : f64[]
  %6 = div(%3, %5) : f64[]
  %7 = const 1.0 : f64[]
  %8 = mul(%7, %6) : f64[]
  %9 = where(%1, %8, %4) : f64[]
  value = %9
}
"""


def test_golden(golden: Callable[[str, str], None]) -> None:
    graph = parse_graph(WARMUP)
    result = simplify(graph)
    golden("ir/warmup", print_graph(result))
    for step in (0, 1, 99, 100, 101, 2**53):
        inputs = {"step": step}
        assert evaluate(result, inputs) == evaluate(graph, inputs)


FIRES = [
    # 1
    ("const 2.0 : f64[]; cos(%0) : f64[]", "const -0.4161468365471424 : f64[]"),
    ("const 0.0 : f64[]; div(%0, %0) : f64[]", "const nan : f64[]"),
    ("const 2 : i64[]; broadcast_to(%0) shape=[3] : i64[3]", "const [2, 2, 2] : i64[3]"),
    (
        "const [1, 2] : i64[2]; const 3 : i64[]; lt(%0, %1) : bool[2]",
        "const [true, true] : bool[2]",
    ),
    ("const 0.1 : f64[]; cast(%0) to=bf16 : bf16[]", "const 0.100098 : bf16[]"),
    # 2
    ("const 1.0 : f64[]; mul(f, %0) : f64[]", "f"),
    ("const 1 : i64[]; mul(%0, k) : i64[]", "k"),
    ("const 1.0 : f64[]; div(f, %0) : f64[]", "f"),
    ("const [1.0, 1.0, 1.0, 1.0] : f32[4]; mul(x, %0) : f32[4]", "x"),
    # 3
    ("cast(f) to=f64 : f64[]", "f"),
    ("cast(x) to=f64 : f64[4]; cast(%0) to=f32 : f32[4]", "x"),
    ("cast(h) to=f32 : f32[2]; cast(%0) to=f64 : f64[2]", "cast(h) to=f64 : f64[2]"),
    ("cast(j) to=i64 : i64[]; cast(%0) to=f32 : f32[]", "cast(j) to=f32 : f32[]"),
    (
        "cast(h) to=f32 : f32[2]; cast(%0) to=f64 : f64[2]; cast(%1) to=bf16 : bf16[2]",
        "h",
    ),
    # 4
    (
        "add(f, e) : f64[]; add(e, f) : f64[]; mul(%0, %1) : f64[]",
        "add(f, e) : f64[]; mul(%0, %0) : f64[]",
    ),
    ("const 3.0 : f64[]; mul(%0, f) : f64[]", "const 3.0 : f64[]; mul(f, %0) : f64[]"),
    # 5
    ("neg(f) : f64[]; neg(f) : f64[]; sub(%0, %1) : f64[]", "neg(f) : f64[]; sub(%0, %0) : f64[]"),
    ("neg(f) : f64[]; e", "e"),
]

STAYS = [
    # 1: a constant grows, an operand is not one, and the places of a matrix.
    "neg(f) : f64[]",
    "const 2.0 : f64[]; broadcast_to(%0) shape=[65] : f64[65]",
    "const [1.0, 2.0, 3.0, 4.0] : f64[2,2]; transpose(%0) permutation=[1,0] : f64[2,2]",
    # 2: 1 / x, another number, and a constant that widens the shape.
    "const 1.0 : f64[]; div(%0, f) : f64[]",
    "const -1.0 : f64[]; mul(f, %0) : f64[]",
    "const [1.0, 2.0, 1.0, 1.0] : f32[4]; mul(x, %0) : f32[4]",
    "const [1.0, 1.0] : f64[2]; mul(f, %0) : f64[2]",
    # 3: f32 does not hold what f64 and integers hold.
    "cast(f) to=f32 : f32[]; cast(%0) to=f64 : f64[]",
    "cast(j) to=f32 : f32[]; cast(%0) to=f64 : f64[]",
    "cast(k) to=i32 : i32[]; cast(%0) to=i64 : i64[]",
    # 4: the order of these matters, and sums are never regrouped.
    "sub(e, f) : f64[]",
    "lt(e, f) : bool[]",
    "add(f, e) : f64[]; add(e, %0) : f64[]; add(f, %1) : f64[]",
    # Inexact, or wrong for NaN and infinities.
    "const 0.0 : f64[]; mul(f, %0) : f64[]",
    "const 0.0 : f64[]; add(f, %0) : f64[]",
    "sub(f, f) : f64[]",
    "div(f, f) : f64[]",
    "const 2.0 : f64[]; mul(f, %0) : f64[]; mul(%1, %0) : f64[]",
]


@pytest.mark.parametrize(("before", "after"), FIRES)
def test_fires(before: str, after: str) -> None:
    result = simplify(graph_of(before))
    assert print_graph(result) == print_graph(graph_of(after))
    assert simplify(result) is result


@pytest.mark.parametrize("body", STAYS)
def test_stays(body: str) -> None:
    graph = graph_of(body)
    result = simplify(graph)
    assert result is graph, print_graph(result)

"""The guarantees of every pass, on random graphs, and the pipeline's own behaviour."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import GraphError
from closedform.ir.check import check
from closedform.ir.evaluate import evaluate
from closedform.ir.graph import Graph
from closedform.ir.passes import DEFAULT, Algebra, Fold, Pass, Pipeline, Select, Share
from closedform.ir.text import parse_graph, print_graph
from tests.support.graphs import assert_same, graphs, inputs_of
from tests.support.sampling import examples

PASSES: list[Pass] = [Fold(), Algebra(), Select(), Share(), DEFAULT]


@pytest.mark.parametrize("pass_", PASSES, ids=[pass_.name for pass_ in PASSES])
@given(data=st.data())
@settings(max_examples=examples(120))
def test_a_pass_keeps_meaning_and_interface(pass_: Pass, data: st.DataObject) -> None:
    graph = data.draw(graphs())
    inputs = data.draw(inputs_of(graph))
    result = pass_(graph)
    message = f"{print_graph(graph)}\n{pass_.name}:\n{print_graph(result)}\n{inputs}"
    check(result, message)
    assert result.inputs == graph.inputs, message
    assert_same(evaluate(graph, inputs), evaluate(result, inputs), message)
    assert pass_(result) is result, message
    assert result is graph or result != graph, message


WARMUP = """\
graph warmup(step: i64[] step) -> (value: f64[]) {
  %0 = const 100 : i64[]
  %1 = le(%0, step) : bool[]
  %2 = not(%1) : bool[]
  %3 = min(step, %0) : i64[]
  %4 = cast(%3) to=f64 : f64[]
  %5 = const 50.0 : f64[]
  %6 = add(%5, %5) : f64[]
  %7 = div(%4, %6) : f64[]
  %8 = const 1.0 : f64[]
  %9 = mul(%8, %7) : f64[]
  %10 = min(%9, %8) : f64[]
  %11 = where(%2, %10, %8) : f64[]
  %12 = where(%2, %11, %5) : f64[]
  value = %12
}
"""


def test_default_pipeline_golden(golden: Callable[[str, str], None]) -> None:
    graph = parse_graph(WARMUP)
    result = DEFAULT(graph)
    golden("ir/warmup", print_graph(result))
    for step in (0, 1, 99, 100, 101, 2**53):
        inputs = {"step": step}
        assert evaluate(result, inputs) == evaluate(graph, inputs)
    assert len(result.nodes) < len(graph.nodes) - 4


def test_passes_are_named_apart() -> None:
    names = [pass_.name for pass_ in PASSES]
    assert names == ["fold", "algebra", "select", "share", "default"]


@dataclass(frozen=True)
class Replace:
    """A pass that returns a given graph once."""

    result: Graph
    name: str = "replace"

    def __call__(self, graph: Graph) -> Graph:
        return graph if graph == self.result else self.result


@dataclass(frozen=True)
class Flip:
    """A pass that never settles."""

    first: Graph
    second: Graph
    name: str = "flip"

    def __call__(self, graph: Graph) -> Graph:
        return self.second if graph == self.first else self.first


def negated(name: str = "y", *, twice: bool = False) -> Graph:
    lines = "%0 = neg(x) : f32[] " + ("%1 = neg(%0) : f32[] " if twice else "")
    last = int(twice)
    return parse_graph(f"graph g(x: f32[] param) -> ({name}: f32[]) {{ {lines} {name} = %{last} }}")


def test_pipeline_refuses_an_illegal_graph() -> None:
    graph = negated()
    illegal = Graph("g", graph.nodes, ())
    with pytest.raises(GraphError, match=r"no outputs \(graph 'g', before the first pass\)"):
        DEFAULT(illegal)


def test_pipeline_names_the_pass_that_breaks_a_graph() -> None:
    illegal = Graph("g", negated().nodes, ())
    with pytest.raises(GraphError, match=r"no outputs \(graph 'g', after pass 'replace'\)"):
        Pipeline((Replace(illegal),))(negated())


def test_pipeline_refuses_another_interface() -> None:
    expected = (
        r"inputs and outputs must keep .* \(graph 'g', after pass 'replace'\): a pass rewrites"
    )
    with pytest.raises(GraphError, match=expected):
        Pipeline((Replace(negated("z")),))(negated())


def test_pipeline_reports_passes_that_do_not_settle() -> None:
    flip = Flip(negated(), negated(twice=True))
    with pytest.raises(GraphError, match="the passes flip, fold still change the graph after 9 ro"):
        Pipeline((flip, Fold()), rounds=9)(negated())

"""Operators of exported steps have the same bits with threads; compare_threads.py searches all."""

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper

from tests.support.thread_search import difference, largest_difference, node_runs
from tests.training.compare_threads import ENTRIES, ROUNDING, runs_of

FEW_REPETITIONS = 4


@pytest.mark.parametrize("name", ["embedding, padding", "batch norm"])
def test_no_operator_of_a_step_depends_on_the_threads(name: str) -> None:
    kinds = set()
    for run in runs_of(ENTRIES[name]):
        if run.kind in kinds:
            continue
        kinds.add(run.kind)
        from_one, apart = largest_difference(run, 2, FEW_REPETITIONS)
        assert apart == 0, run.node
        assert from_one <= ROUNDING, run.node
    assert len(kinds) > 10


def test_each_node_runs_on_the_values_of_the_graph() -> None:
    def vector(name: str) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"])

    nodes = [
        helper.make_node("Neg", ["x"], ["e"]),
        helper.make_node("Mul", ["e", "x"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "two", [vector("x")], [vector("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.array([0, 1], np.float32)
    first, second = node_runs(model, {"x": x})
    assert (first.node.op_type, second.node.op_type) == ("Neg", "Mul")
    assert np.array_equal(second.values["e"], -x)
    assert first.size == 2


@pytest.mark.parametrize(
    ("value", "expected", "is_zero"),
    [
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.inf], [1.0, np.inf], True),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, 2.0], [1.0, 2.5], False),
        ([1, 2], [1, 3], False),
    ],
)
def test_a_difference_of_other_elements_is_not_zero(
    value: list[float], expected: list[float], is_zero: bool
) -> None:
    assert (difference(np.array(value), np.array(expected)) == 0) is is_zero

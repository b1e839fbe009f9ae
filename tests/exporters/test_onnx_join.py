"""Models one behind the other: what is handed over, and what cannot be joined."""

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from closedform.errors import ExportError
from closedform.exporters.onnx_join import join_models
from closedform.runtime.onnx_session import open_session


def model(
    op: str,
    inputs: list[str],
    output: str,
    *,
    shape: tuple[int | str, ...] = (2,),
    element: int = TensorProto.FLOAT,
    opset: int = 21,
) -> ModelProto:
    """One op, its operands squared first under a name that every such model has."""
    nodes = [
        helper.make_node("Mul", [name, name], [f"square_{i}"]) for i, name in enumerate(inputs)
    ]
    nodes.append(helper.make_node(op, [f"square_{i}" for i in range(len(inputs))], [output]))
    graph = helper.make_graph(
        nodes,
        op,
        [helper.make_tensor_value_info(name, element, shape) for name in inputs],
        [helper.make_tensor_value_info(output, element, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_an_output_feeds_the_input_of_its_name() -> None:
    joined = join_models(
        {"first": model("Add", ["x", "y"], "sum"), "second": model("Sub", ["sum", "x"], "rest")},
        "both",
        outputs=["rest", "sum"],
        metadata={"b": "2", "a": "1"},
    )
    session = open_session(joined)
    assert list(session.inputs) == ["x", "y"]
    assert list(session.outputs) == ["rest", "sum"]
    feeds = {"x": np.array([1, 2], np.float32), "y": np.array([3, 4], np.float32)}
    rest, total = session.raw.run(None, feeds)
    assert total.tolist() == [10, 20]
    assert rest.tolist() == [99, 396]
    assert [(entry.key, entry.value) for entry in joined.metadata_props] == [("a", "1"), ("b", "2")]


def test_other_outputs_are_dropped() -> None:
    parts = {"first": model("Neg", ["x"], "y"), "second": model("Neg", ["y"], "z")}
    joined = join_models(parts, "both", outputs=["z"])
    assert list(open_session(joined).outputs) == ["z"]
    assert {node.output[0] for node in joined.graph.node} == {
        "first/square_0",
        "y",
        "second/square_0",
        "z",
    }


def _control_flow() -> ModelProto:
    inner = helper.make_graph([], "inner", [], [])
    node = helper.make_node("If", ["x"], ["y"], name="fork", then_branch=inner, else_branch=inner)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", TensorProto.BOOL, ())], [value("y", TensorProto.FLOAT, (2,))]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


FIRST = model("Neg", ["x"], "y")
BAD: dict[str, tuple[ModelProto, str]] = {
    "dtype": (
        model("Neg", ["y"], "z", element=TensorProto.DOUBLE),
        r"'y' must have one type, got float\[2\] and double\[2\] \(model 'second'\)",
    ),
    "shape": (
        model("Neg", ["x"], "z", shape=(3,)),
        r"'x' must have one type, got float\[2\] and float\[3\]",
    ),
    "rank": (model("Neg", ["x"], "z", shape=("n", 2)), r"got float\[2\] and float\[n,2\]"),
    "opset": (model("Neg", ["y"], "z", opset=20), "one version, got 21 and 20"),
    "twice": (model("Neg", ["x"], "y"), "output 'y' is an input or output of another model"),
    "circle": (model("Neg", ["y"], "x"), "output 'x' is an input or output of another model"),
    "control flow": (_control_flow(), r"node 'fork' is control flow \(If\)"),
    "unknown": (model("Neg", ["y"], "w"), "no model has an output 'z'"),
}


@pytest.mark.parametrize("name", BAD)
def test_incompatible_models_are_refused(name: str) -> None:
    second, message = BAD[name]
    with pytest.raises(ExportError, match=message):
        join_models({"first": FIRST, "second": second}, "both", outputs=["z"])


def test_the_parts_are_left_alone() -> None:
    before = FIRST.SerializeToString()
    join_models({"first": FIRST}, "one", outputs=["y"])
    assert FIRST.SerializeToString() == before
    assert onnx.load_from_string(before).graph.node[0].output == ["square_0"]

"""Transposes and reshapes that a later operator makes void."""

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxscript import ir

from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx.moves import merge_moves

Nodes = list[onnx.NodeProto]


def _model(nodes: Nodes, output: list[int]) -> onnx.ModelProto:
    """A model of a (2, 3), b (4, 3) and c (2, 3, 4) with the output y."""
    inputs = {"a": [2, 3], "b": [4, 3], "c": [2, 3, 4]}
    graph = helper.make_graph(
        nodes,
        "moves",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", 1, output)],
        [
            numpy_helper.from_array(np.array([6, 4]), "flat"),
            numpy_helper.from_array(np.array([2, 12]), "long"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def _transpose(name: str, into: str, *perm: int) -> onnx.NodeProto:
    return helper.make_node("Transpose", [name], [into], perm=perm)


_PRODUCT = helper.make_node("MatMul", ["a", "t"], ["y"])
_PLAIN = helper.make_node("Identity", ["p"], ["y"])

CASES: dict[str, tuple[Nodes, list[int], dict[str, int]]] = {
    "product": ([_transpose("b", "t", 1, 0), _PRODUCT], [2, 4], {"Gemm": 1}),
    "both": (
        [
            _transpose("a", "s", 1, 0),
            _transpose("b", "t", 1, 0),
            _transpose("s", "u", 1, 0),
            helper.make_node("Gemm", ["u", "t"], ["y"]),
        ],
        [2, 4],
        {"Gemm": 1},
    ),
    "inverse": (
        [
            _transpose("b", "r", 1, 0),
            helper.make_node("MatMul", ["a", "r"], ["m"]),
            _transpose("m", "s", 1, 0),
            _transpose("s", "y", 1, 0),
        ],
        [2, 4],
        {"Gemm": 1},
    ),
    "inverse of an input": (
        [_transpose("a", "s", 1, 0), _transpose("s", "y", 1, 0)],
        [2, 3],
        {"Transpose": 1},
    ),
    "cycle": (
        [_transpose("c", "s", 1, 2, 0), _transpose("s", "p", 1, 2, 0), _PLAIN],
        [4, 2, 3],
        {"Transpose": 1, "Identity": 1},
    ),
    "not of matrices": (
        [_transpose("c", "t", 0, 2, 1), helper.make_node("MatMul", ["c", "t"], ["y"])],
        [2, 3, 3],
        {"Transpose": 1, "MatMul": 1},
    ),
    "reshapes": (
        [
            helper.make_node("Reshape", ["c", "long"], ["r"]),
            helper.make_node("Reshape", ["r", "flat"], ["p"]),
            _PLAIN,
        ],
        [6, 4],
        {"Reshape": 1, "Identity": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fewer_moves_give_the_same_values(name: str) -> None:
    nodes, output, wanted = CASES[name]
    before = _model(nodes, output)
    model = ir.serde.deserialize_model(before)
    merge_moves(model.graph)
    ir.passes.common.RemoveUnusedNodesPass()(model)
    after = ir.serde.serialize_model(model)
    assert Counter(node.op_type for node in after.graph.node) == wanted
    draws = np.random.default_rng(0)
    given = {
        port.name: draws.integers(-9, 9, [d.dim_value for d in port.type.tensor_type.shape.dim])
        for port in before.graph.input
    }
    feeds = {name: array.astype(np.float32) for name, array in given.items()}  # exact products
    results = [
        open_session(each, is_optimized=False).raw.run(
            None, {port.name: feeds[port.name] for port in each.graph.input}
        )[0]
        for each in (before, after)
    ]
    assert np.array_equal(*results)

"""Numbers that become factors of products of matrices, and GELUs that share an error function."""

import math
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxscript import ir

from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx.factors import merge_factors

Nodes = list[NodeProto]

_NUMBERS = {
    "half": np.float32(0.5),
    "flat": np.full((1, 1), 0.25, np.float32),
    "high": np.full((1, 1, 1), 0.25, np.float32),
    "tiny": np.float32(2.0**-30),
    "zero": np.float32(0),
    "pair": np.array([0.5, 0.25, 2.0], np.float32),
    "root": np.float32(math.sqrt(0.5)),
    "bias": np.array([0.5, -0.5, 0.125], np.float32),
    "turned": np.array([3, 2]),
    "wide": np.array([2, 2, 3]),
}


def _node(kind: str, *inputs: str, into: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, list(inputs), [into], **attributes)


def _model(nodes: Nodes) -> onnx.ModelProto:
    """A model of a (4, 2), b (2, 3) and c (5, 4, 2) with all outputs that are named y, z."""
    inputs = {"a": [4, 2], "b": [2, 3], "c": [5, 4, 2]}
    outputs = [name for node in nodes for name in node.output if name in ("y", "z")]
    graph = helper.make_graph(
        nodes,
        "factors",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in _NUMBERS.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


def _gelu_with_gradient(value: str, **attributes: str) -> Nodes:
    """A GELU g of a value, with the part of its gradient that computes Φ."""
    return [
        _node("Gelu", value, into="g", **attributes),
        _node("Mul", value, "root", into="u"),
        _node("Erf", "u", into="e"),
        _node("HardSigmoid", "e", into="z", alpha=0.5, beta=0.5),
    ]


_PRODUCT = _node("MatMul", "a", "b", into="p")

CASES: dict[str, tuple[Nodes, dict[str, int]]] = {
    "a result": (
        [_PRODUCT, _node("Mul", "p", "half", into="s"), _node("Neg", "s", into="y")],
        {"Gemm": 1, "Neg": 1},
    ),
    "a result with a bias": (
        [
            _node("Gemm", "a", "b", "bias", into="p", alpha=2.0, beta=0.5),
            _node("Mul", "flat", "p", into="s"),
            _node("Neg", "s", into="y"),
        ],
        {"Gemm": 1, "Neg": 1},
    ),
    "a result that is reshaped": (
        [
            _PRODUCT,
            _node("Reshape", "p", "wide", into="r"),
            _node("Mul", "r", "high", into="s"),
            _node("Neg", "s", into="y"),
        ],
        {"Gemm": 1, "Reshape": 1, "Neg": 1},
    ),
    "a result that another reads": (
        [_PRODUCT, _node("Mul", "p", "half", into="s"), _node("Sub", "s", "p", into="y")],
        {"MatMul": 1, "Mul": 1, "Sub": 1},
    ),
    "a result that is an output": (
        [_PRODUCT, _node("Mul", "p", "half", into="y")],
        {"MatMul": 1, "Mul": 1},
    ),
    "a result with a longer shape": (
        [_PRODUCT, _node("Mul", "p", "high", into="s"), _node("Neg", "s", into="y")],
        {"MatMul": 1, "Mul": 1, "Neg": 1},
    ),
    "a result and a vector": (
        [_PRODUCT, _node("Mul", "p", "pair", into="s"), _node("Neg", "s", into="y")],
        {"MatMul": 1, "Mul": 1, "Neg": 1},
    ),
    "an operand": (
        [_node("Mul", "half", "a", into="s"), _node("MatMul", "s", "b", into="y")],
        {"Gemm": 1},
    ),
    "an operand of two products": (
        [
            _node("Mul", "half", "a", into="s"),
            _node("MatMul", "s", "b", into="y"),
            _node("Gemm", "s", "s", into="z", transA=1, alpha=2.0),
        ],
        {"Gemm": 2},
    ),
    "an operand that is reshaped": (
        [
            _node("Mul", "half", "b", into="s"),
            _node("Reshape", "s", "turned", into="r"),
            _node("MatMul", "a", "s", into="y"),
            _node("Gemm", "a", "r", into="z", transB=1),
        ],
        {"Gemm": 2, "Reshape": 1},
    ),
    "an operand that another reads": (
        [
            _node("Mul", "half", "a", into="s"),
            _node("MatMul", "s", "b", into="y"),
            _node("Neg", "s", into="z"),
        ],
        {"Mul": 1, "MatMul": 1, "Neg": 1},
    ),
    "what is added to a product": (
        [_PRODUCT, _node("Mul", "half", "p", into="s"), _node("Gemm", "a", "b", "s", into="y")],
        {"Gemm": 2},
    ),
    "of more axes": (
        [_node("Mul", "half", "c", into="s"), _node("MatMul", "s", "b", into="y")],
        {"Mul": 1, "MatMul": 1},
    ),
    "a number that is too small": (
        [_node("Mul", "tiny", "a", into="s"), _node("MatMul", "s", "b", into="y")],
        {"Mul": 1, "MatMul": 1},
    ),
    "zero": (
        [_node("Mul", "zero", "a", into="s"), _node("MatMul", "s", "b", into="y")],
        {"Mul": 1, "MatMul": 1},
    ),
    "a GELU between products": (
        [_PRODUCT, *_gelu_with_gradient("p"), _node("Gemm", "g", "b", into="y", transB=1)],
        {"Gemm": 2, "Erf": 1, "HardSigmoid": 1, "Mul": 1},
    ),
    "a GELU that another reads": (
        [_PRODUCT, *_gelu_with_gradient("p"), _node("Neg", "g", into="y")],
        {"MatMul": 1, "Erf": 1, "HardSigmoid": 1, "Mul": 2, "Neg": 1},
    ),
    "a GELU of another value": (
        [*_gelu_with_gradient("a"), _node("MatMul", "g", "b", into="y")],
        {"MatMul": 1, "Erf": 1, "HardSigmoid": 1, "Mul": 2},
    ),
    "a GELU with tanh": (
        [
            _PRODUCT,
            *_gelu_with_gradient("p", approximate="tanh"),
            _node("Gemm", "g", "b", into="y", transB=1),
        ],
        {"MatMul": 1, "Gelu": 1, "Mul": 1, "Erf": 1, "HardSigmoid": 1, "Gemm": 1},
    ),
    "a GELU without a gradient": (
        [_PRODUCT, _node("Gelu", "p", into="g"), _node("Neg", "g", into="y")],
        {"MatMul": 1, "Gelu": 1, "Neg": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_fewer_operators_give_the_same_values(name: str) -> None:
    nodes, wanted = CASES[name]
    before = _model(nodes)
    model = ir.serde.deserialize_model(before)
    merge_factors(model.graph)
    ir.passes.common.RemoveUnusedNodesPass()(model)
    after = ir.serde.serialize_model(model)
    onnx.checker.check_model(after)
    assert Counter(node.op_type for node in after.graph.node) == wanted
    draws = np.random.default_rng(0)
    feeds = {
        port.name: draws.integers(-9, 9, [d.dim_value for d in port.type.tensor_type.shape.dim])
        for port in before.graph.input
    }
    results = [
        open_session(each, is_optimized=False).raw.run(
            None, {port.name: feeds[port.name].astype(np.float32) for port in each.graph.input}
        )
        for each in (before, after)
    ]
    # Factors are powers of two and exact; √½ is rounded once more.
    tolerance = 1e-6 if "GELU" in name else 0
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=tolerance, atol=10 * tolerance)

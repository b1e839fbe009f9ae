"""Files whose values depend on the threads of onnxruntime run on one thread, with a warning."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import make_node, make_tensor_value_info

import closedform as cf
from closedform.errors import SessionError, ThreadsWarning, VerificationError
from closedform.ir.graph import Array
from closedform.runtime.onnx_session import open_session
from closedform.runtime.shared_places import node_with_shared_places
from tests.proofs.gradients.indexing import INDEXING
from tests.proofs.gradients.tensors import input_tensor

ROWS, COLUMNS, PLACES = 16384, 64, 65
SEVERAL = (2, None)


def sum_of_rows(
    nodes: Sequence[NodeProto] = (),
    constants: Mapping[str, Array] | None = None,
    *,
    operator: str = "ScatterND",
    reduction: str | None = "add",
) -> ModelProto:
    """A table to which rows are added at the places ``j``; by default these are an input."""
    constants = dict(constants or {})
    attributes: dict[str, Any] = {} if reduction is None else {"reduction": reduction}
    if operator != "ScatterND":
        nodes = [*nodes, make_node("Expand", ["j", "shape"], ["spread"])]
        constants["shape"] = np.array([1, COLUMNS])
        attributes["axis"] = 0
    defined = {*constants, *(name for node in nodes for name in node.output)}
    read = {"x", "j", "u", *(name for node in nodes for name in node.input)}
    places = "j" if operator == "ScatterND" else "spread"
    inputs = [
        make_tensor_value_info("x", TensorProto.FLOAT, [PLACES, COLUMNS]),
        make_tensor_value_info("j", TensorProto.INT64, ["n", 1]),
        make_tensor_value_info("mask", TensorProto.BOOL, [PLACES]),
        make_tensor_value_info("u", TensorProto.FLOAT, ["n", COLUMNS]),
    ]
    graph = helper.make_graph(
        [*nodes, make_node(operator, ["x", places, "u"], ["y"], **attributes)],
        "sums",
        [value for value in inputs if value.name in read and value.name not in defined],
        [make_tensor_value_info("y", TensorProto.FLOAT, [PLACES, COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _column(*places: int) -> dict[str, Array]:
    return {"j": np.array(places)[:, None]}


MASKED = [make_node("NonZero", ["mask"], ["k"]), make_node("Transpose", ["k"], ["j"], perm=[1, 0])]

SHARED = {
    "an input": sum_of_rows(),
    "a product": sum_of_rows(reduction="mul"),
    "a maximum": sum_of_rows(reduction="max"),
    "a minimum": sum_of_rows(reduction="min"),
    "a repeated constant": sum_of_rows(constants=_column(1, 2, 1)),
    "a constant from both ends": sum_of_rows(constants=_column(1, -64)),
    "a default of an input": sum_of_rows([make_node("Identity", ["i"], ["j"])]),
    "rows and columns of a mask": sum_of_rows(
        [MASKED[0], make_node("Transpose", ["k"], ["j"], perm=[0, 1])]
    ),
    "computed places": sum_of_rows([make_node("Abs", ["i"], ["j"])]),
}
for name in ("a default of an input", "computed places"):
    SHARED[name].graph.input.append(make_tensor_value_info("i", TensorProto.INT64, ["n", 1]))
SHARED["a default of an input"].graph.initializer.append(
    numpy_helper.from_array(np.array([[1], [2]]), "i")
)

DISTINCT = {
    "a replacement": sum_of_rows(reduction=None),
    "a replacement by name": sum_of_rows(reduction="none"),
    "one place": sum_of_rows(constants=_column(3)),
    "a constant": sum_of_rows(constants=_column(3, 0, 64)),
    "a constant from the end": sum_of_rows(constants=_column(-1, -65)),
    "a mask": sum_of_rows(MASKED),
    "elements": sum_of_rows(operator="ScatterElements"),
}


@pytest.mark.parametrize("kind", SHARED)
def test_a_sum_of_rows_that_may_share_a_place_is_named(kind: str) -> None:
    node = node_with_shared_places(SHARED[kind].SerializeToString())
    assert node is not None
    assert node.output[0] == "y"


@pytest.mark.parametrize("kind", DISTINCT)
def test_distinct_places_and_replacements_are_left(kind: str) -> None:
    assert node_with_shared_places(DISTINCT[kind].SerializeToString()) is None


def test_graphs_of_attributes_and_functions_are_searched() -> None:
    inner = sum_of_rows().graph
    branch = helper.make_graph([inner.node[0]], "branch", [], [inner.output[0]])
    either = make_node("If", ["condition"], ["z"], then_branch=branch, else_branch=branch)
    nested = sum_of_rows(reduction=None)
    nested.graph.node.append(either)
    function = sum_of_rows(reduction=None)
    opsets = [helper.make_opsetid("", 21)]
    function.functions.append(
        helper.make_function("local", "Sum", ["x", "j", "u"], ["y"], [inner.node[0]], opsets)
    )
    for model in (nested, function):
        node = node_with_shared_places(model.SerializeToString())
        assert node is not None
        assert node.attribute[0].s == b"add"


def test_bytes_other_than_a_model_are_left_to_onnxruntime() -> None:
    assert node_with_shared_places(b"ScatterND") is None
    with pytest.raises(SessionError, match="it is not an ONNX model"):
        open_session(b"ScatterND")
    invalid = sum_of_rows()
    del invalid.graph.node[0].input[1:]
    assert node_with_shared_places(invalid.SerializeToString()) is None
    with pytest.raises(SessionError, match="onnxruntime cannot load the model"):
        open_session(invalid)


@pytest.mark.parametrize("threads", SEVERAL)
def test_a_session_runs_such_a_file_on_one_thread_and_warns(threads: int | None) -> None:
    draws = np.random.default_rng(0)
    x = np.zeros((PLACES, COLUMNS), np.float32)
    j = draws.integers(0, PLACES, (ROWS, 1))
    u = draws.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    exact = np.zeros(x.shape)
    np.add.at(exact, j[:, 0], u.astype(np.float64))
    with pytest.warns(ThreadsWarning) as warned:
        session = open_session(sum_of_rows(), threads=threads)
    assert str(warned[0].message) == (
        "the ScatterND of 'y' may add two rows to one place, which onnxruntime does from several "
        "threads without a lock (model 'sums'): it runs on one thread; export the model again, or "
        "write ScatterElements"
    )
    for _ in range(20):
        (y,) = session.raw.run(None, {"x": x, "j": j, "u": u})
        # A sum of some 250 numbers; a lost row is an error of 1e-1.
        assert np.abs(y - exact).max() <= 2e-6 * np.abs(exact).max()


def test_one_thread_and_distinct_places_need_no_warning() -> None:
    open_session(sum_of_rows(), threads=1)
    for model in DISTINCT.values():
        open_session(model, threads=2)


@pytest.mark.parametrize("reduction", ["add", "none"])
def test_a_proof_of_a_gradient_needs_distinct_places(reduction: str) -> None:
    node = make_node("ScatterND", ["x", "j", "u"], ["y"], reduction=reduction)
    operands = [
        input_tensor("x", (5, 3), is_real=True),
        input_tensor("j", (4, 1), is_real=False),
        input_tensor("u", (4, 3), is_real=True),
    ]
    with pytest.raises(VerificationError, match="two rows may be written to one place"):
        INDEXING["ScatterND"](node, operands, {"reduction": reduction.encode()})


def test_the_reader_of_files_names_the_node(tmp_path: Path) -> None:
    path = tmp_path / "sums.onnx"
    path.write_bytes(sum_of_rows().SerializeToString())
    with pytest.raises(VerificationError, match="the operator 'ScatterND' is not supported"):
        cf.from_onnx(path)

"""Branches and loops of ONNX files: onnxruntime beside the step, which has no control flow."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform import optimizers
from closedform.errors import ExportError
from closedform.training import TrainSession, export

NUMBERS = np.random.default_rng(0)
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def op(operator: str, operands: str, results: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, operands.split(), results.split(), **attributes)


def body(
    nodes: Sequence[NodeProto], outputs: str, inputs: Sequence[tuple[str, int]] = ()
) -> GraphProto:
    """A graph within a node; the first result of a loop is its condition."""
    kinds = [BOOL if name.startswith("is") else FLOAT for name in outputs.split()]
    return helper.make_graph(
        nodes,
        f"body of {outputs}",
        [
            helper.make_tensor_value_info(name, kind, None if kind == FLOAT else [])
            for name, kind in inputs
        ],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(outputs.split(), kinds, strict=True)
        ],
    )


def model_of(
    nodes: Sequence[NodeProto], inputs: Sequence[tuple[str, int, Sequence[Any]]], **weights: Any
) -> ModelProto:
    arrays = {"w": NUMBERS.normal(size=(4, 4)).astype(np.float32), **weights}
    graph = helper.make_graph(
        nodes,
        "flow",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def in_onnxruntime(model: ModelProto, weights: dict[str, Any], batch: dict[str, Any]) -> float:
    """The loss of a batch: the mean square of the output."""
    changed = ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    session = onnxruntime.InferenceSession(changed.SerializeToString())
    return float((session.run(None, batch)[0].astype(np.float64) ** 2).mean())


def _loss(output: torch.Tensor) -> torch.Tensor:
    return output.square().mean()


def check(
    model: ModelProto, batches: Sequence[dict[str, Any]], folder: Path, **options: Any
) -> TrainSession:
    """Each loss is that of onnxruntime with the weights after the steps before."""
    example = {name: torch.from_numpy(value) for name, value in batches[0].items()}
    export(model, _loss, example, optimizers.sgd(0.05), folder, trainable=["w"], **options)
    session = TrainSession(folder, threads=1)
    operators = {node.op_type for node in onnx.load(folder / "train.onnx").graph.node}
    assert operators.isdisjoint({"If", "Loop", "Scan"})
    for batch in batches:
        before = {"w": session.params["w"].copy()}
        expected = in_onnxruntime(model, before, batch)
        # Roundings of float32.
        assert session.step(batch).loss == pytest.approx(expected, rel=1e-5)
        _check_gradient(model, before["w"], session.params["w"], batch)
    return session


def _check_gradient(model: ModelProto, before: Any, after: Any, batch: dict[str, Any]) -> None:
    """The step of gradient descent is along central differences of the loss of onnxruntime."""
    gradient = (before - after).astype(np.float64) / 0.05
    assert np.isfinite(gradient).all()
    direction = NUMBERS.normal(size=before.shape)
    width = 1e-2
    far, near = (
        in_onnxruntime(model, {"w": (before + sign * direction).astype(np.float32)}, batch)
        for sign in (width, -width)
    )
    # Differences of width h are off by h²; the losses are rounded to float32, divided by h.
    assert (far - near) / (2 * width) == pytest.approx((gradient * direction).sum(), rel=2e-2)


def normal(*shape: int) -> Any:
    return NUMBERS.normal(size=shape).astype(np.float32)


def test_a_branch_on_an_input_selects_a_result(tmp_path: Path) -> None:
    """The branch that is not taken has an infinite derivative, and reads the weights, too."""
    nodes = [
        op("MatMul", "x w", "h"),
        op(
            "If",
            "yes",
            "y",
            then_branch=body([op("Mul", "h h", "a")], "a"),
            # sqrt of 0 has an infinite derivative.
            else_branch=body(
                [op("Sub", "h h", "z"), op("Sqrt", "z", "r"), op("Add", "h r", "b")], "b"
            ),
        ),
    ]
    model = model_of(nodes, [("x", FLOAT, ["rows", 4]), ("yes", BOOL, [])])
    batches = [
        {"x": normal(3, 4), "yes": np.array(True)},
        {"x": normal(5, 4), "yes": np.array(True)},
    ]
    check(model, batches, tmp_path)


def test_a_branch_on_data_within_a_branch_is_selected(tmp_path: Path) -> None:
    inner = op(
        "If",
        "large",
        "n",
        then_branch=body([op("Tanh", "h", "t")], "t"),
        else_branch=body([op("Neg", "h", "m")], "m"),
    )
    nodes = [
        op("MatMul", "x w", "h"),
        op("ReduceSum", "h", "sum", keepdims=0),
        op("Greater", "sum zero", "large"),
        op(
            "If",
            "yes",
            "y",
            then_branch=body([inner, op("Mul", "n n", "a")], "a"),
            else_branch=body([op("Sigmoid", "h", "b")], "b"),
        ),
    ]
    inputs: list[Any] = [("x", FLOAT, ["rows", 4]), ("yes", BOOL, [1])]
    model = model_of(nodes, inputs, zero=np.float32(0))
    batches = [
        {"x": sign * np.abs(normal(rows, 4)), "yes": np.array([is_then])}
        for rows, sign, is_then in ((3, 1, True), (4, -1, True), (2, 1, False))
    ]
    check(model, [{**b, "x": b["x"].astype(np.float32)} for b in batches], tmp_path)


def loop(
    nodes: Sequence[NodeProto], outputs: str, operands: str = "count yes x", results: str = "y"
) -> NodeProto:
    carried = [("state", FLOAT)] if len(operands.split(" ")) > 2 else []
    inputs = [("i", INT), ("is_on", BOOL), *carried]
    return helper.make_node(
        "Loop", operands.split(" "), results.split(), body=body(nodes, outputs, inputs)
    )


STATE = [
    op("MatMul", "state w", "p"),
    op("Cast", "i", "number", to=1),
    op("Add", "number third", "scale"),
    op("Mul", "p scale", "q"),
    op("Tanh", "q", "next"),
]
KEEPS = op("Identity", "is_on", "is_next")


def _known(**more: Any) -> dict[str, Any]:
    return {"third": np.float32(1 / 3), **more}


def test_a_loop_is_written_out(tmp_path: Path) -> None:
    """The number of the iteration is a number; results of all iterations are stacked."""
    nodes = [
        loop([KEEPS, *STATE, op("Neg", "p", "s")], "is_next next s", results="last all"),
        op("ReduceSum", "all first", "sum", keepdims=0),
        op("Add", "last sum", "y"),
    ]
    weights = _known(count=np.int64(3), yes=np.array(True), first=np.array([0]))
    model = model_of(nodes, [("x", FLOAT, ["rows", 4])], **weights)
    session = check(model, [{"x": normal(3, 4)}, {"x": normal(5, 4)}], tmp_path)
    assert np.isfinite(session.params["w"]).all()


def test_a_loop_ends_by_its_known_condition(tmp_path: Path) -> None:
    nodes = [loop([*STATE, op("Less", "i two", "is_next")], "is_next next", "many  x")]
    weights = _known(many=np.int64(2**62), two=np.int64(2))
    check(model_of(nodes, [("x", FLOAT, ["rows", 4])], **weights), [{"x": normal(3, 4)}], tmp_path)


def test_a_loop_over_a_size_has_the_iterations_of_the_example(tmp_path: Path) -> None:
    nodes = [
        op("Shape", "x", "s"),
        op("Gather", "s place", "count"),
        loop([op("Gather", "x i", "at", axis=1), op("MatMul", "at w", "row"),
              op("Add", "state row", "next"), KEEPS], "is_next next", "count yes start"),
    ]  # fmt: skip
    weights = {"place": np.int64(1), "yes": np.array(True), "start": np.zeros(4, np.float32)}
    model = model_of(nodes, [("x", FLOAT, ["rows", "time", 4])], **weights)
    axes = {"x": {0: "rows"}}
    check(model, [{"x": normal(3, 2, 4)}, {"x": normal(2, 2, 4)}], tmp_path, dynamic_axes=axes)
    with pytest.raises(ExportError, match="the size 'time' is not free"):
        export(
            model, _loss, (torch.zeros(3, 2, 4),), optimizers.sgd(0.1), tmp_path, trainable=["w"]
        )


def _constant(name: str, array: Any) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def test_branches_and_loops_with_constants_of_one_name(tmp_path: Path) -> None:
    """The size that the second loop calls ``p`` is known, and the tensor in the first is not."""
    scales = [normal(4, 1) for _ in range(4)]
    nodes = [
        op(
            "If",
            "yes",
            "h",
            then_branch=body([_constant("c", scales[0]), op("MatMul", "x c", "r")], "r"),
            else_branch=body([_constant("c", scales[1]), op("MatMul", "x c", "r")], "r"),
        ),
        op("Add", "x h", "a"),
        loop(
            [_constant("c", scales[2].T), op("Mul", "c third", "n"), op("MatMul", "state w", "p"),
             op("Add", "p n", "next"), KEEPS],
            "is_next next", "count on a", "b",
        ),
        loop(
            [_constant("c", scales[3].T), op("Shape", "c", "p"), op("Gather", "p first", "n"),
             op("Cast", "n", "factor", to=1), op("Add", "state c", "q"), op("Div", "q factor", "s"),
             op("MatMul", "s w", "next"), KEEPS],
            "is_next next", "count on b",
        ),
    ]  # fmt: skip
    weights = _known(count=np.int64(2), on=np.array(True), first=np.int64(1))
    model = model_of(nodes, [("x", FLOAT, ["rows", 4]), ("yes", BOOL, [])], **weights)
    batches = [{"x": normal(3, 4), "yes": np.array(value)} for value in (True, False)]
    check(model, batches, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "eval.onnx")
    assert {value.name for value in session.get_inputs()} >= {"batch.x", "batch.yes", "param.w"}


def test_a_weight_of_two_branches_with_one_name_is_trained_in_both(tmp_path: Path) -> None:
    first, second = normal(4, 2), normal(4, 2)
    nodes = [
        op(
            "If",
            "yes",
            "y",
            then_branch=body([_constant("c", first), op("MatMul", "x c", "r")], "r"),
            else_branch=body([_constant("c", second), op("MatMul", "x c", "r")], "r"),
        )
    ]
    model = model_of(nodes, [("x", FLOAT, ["rows", 4]), ("yes", BOOL, [])])
    batch = {"x": normal(3, 4), "yes": np.array(True)}
    example = {name: torch.from_numpy(value) for name, value in batch.items()}
    export(model, _loss, example, optimizers.sgd(0.05), tmp_path)
    session = TrainSession(tmp_path, threads=1)
    before = dict(session.params)
    # onnx's attributes of an If are in the order of their names.
    assert list(before) == ["c", "y/then_branch/c"]
    np.testing.assert_array_equal(before["y/then_branch/c"], first)
    session.step(batch)
    np.testing.assert_array_equal(session.params["c"], second)
    gradient = 2 * batch["x"].T @ (batch["x"] @ first) / 6
    weight = session.params["y/then_branch/c"]
    np.testing.assert_allclose(weight, first - 0.05 * gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        session.predict(batch["x"], batch["yes"]), batch["x"] @ weight, rtol=1e-4, atol=1e-5
    )


def _branch(then: NodeProto, otherwise: NodeProto) -> list[NodeProto]:
    return [
        op("MatMul", "x w", "h"),
        op("If", "on", "y", then_branch=body([then], "a"), else_branch=body([otherwise], "b")),
    ]


_STATISTICS = {name: np.abs(normal(4)) for name in ("scale", "bias", "mean", "variance")}

REFUSED: dict[str, tuple[list[NodeProto], dict[str, Any], str]] = {
    "shapes": (
        _branch(op("Neg", "h", "a"), op("ReduceSum", "h", "b", keepdims=0)),
        {},
        r"its result 0 is float32 \[3, 4\] in one branch and float32 \[\] in the other"
        ".*operator If.*make the condition a constant",
    ),
    "running statistics": (
        _branch(op("BatchNormalization", "h scale bias mean variance", "a"), op("Neg", "h", "b")),
        _STATISTICS,
        "operator BatchNormalization moves its running statistics in one branch only.*operator If",
    ),
    "a trip count of data": (
        [op("Cast", "on", "count", to=7), loop([KEEPS, *STATE], "is_next next", "count  x")],
        _known(),
        "its trip count depends on data.*operator Loop.*export the model without the loop",
    ),
    "a condition of data": (
        [loop([*STATE, op("Identity", "on", "is_next")], "is_next next", "count  x")],
        _known(count=np.int64(3)),
        "its condition depends on data.*operator Loop.*export the model without the loop",
    ),
    "many iterations": (
        [loop([KEEPS, *STATE], "is_next next", "count  x")],
        _known(count=np.int64(300)),
        "it has more than 256 iterations.*operator Loop.*export the model without the loop",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_control_flow_that_depends_on_data_is_refused(name: str, tmp_path: Path) -> None:
    nodes, weights, message = REFUSED[name]
    model = model_of(nodes, [("x", FLOAT, [3, 4]), ("on", BOOL, [])], **weights)
    example = torch.zeros(3, 4), torch.tensor(True)
    with pytest.raises(ExportError, match=f"(?s){message}"):
        export(model, _loss, example, optimizers.sgd(0.1), tmp_path, dynamic_axes={})


def test_features_are_scaled(tmp_path: Path) -> None:
    scaler = op(
        "Scaler", "onnx::x", "s", domain="ai.onnx.ml", offset=[1.0, -2, 0, 3], scale=[0.5, 1, 2, 3]
    )
    model = model_of([scaler, op("MatMul", "s w", "y")], [("onnx::x", FLOAT, ["n", 4])])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    # A batch has the names of the file, too.
    rows = torch.from_numpy(normal(3, 4))
    export(model, _loss, {"onnx::x": rows}, optimizers.sgd(0.05), tmp_path)
    session = TrainSession(tmp_path, threads=1)
    expected = in_onnxruntime(model, dict(session.params), {"onnx::x": rows.numpy()})
    # Roundings of float32.
    assert session.step((rows.numpy(),)).loss == pytest.approx(expected, rel=1e-5)


def test_an_input_of_a_condition_can_be_fixed(tmp_path: Path) -> None:
    wrong = np.ones((5, 4), np.float32)
    nodes = _branch(op("MatMul", "x w5", "a"), op("Neg", "h", "b"))
    model = model_of(nodes, [("x", FLOAT, ["n", "m"]), ("on", BOOL, [])], w5=wrong)
    batch = {"x": torch.from_numpy(normal(3, 4)), "on": torch.tensor(False)}
    message = (
        r"its condition 'on' depends on data, so that both branches run, and .*node 'a', operator "
        r"MatMul fails: RuntimeError: mat1 and mat2 shapes .*operator If\): fix an input"
    )
    options: Any = {"dynamic_axes": {}, "trainable": ["w"]}
    with pytest.raises(ExportError, match=message):
        export(model, _loss, batch, optimizers.sgd(0.05), tmp_path / "out", **options)
    # As the message says.
    model.graph.initializer.append(numpy_helper.from_array(np.array(False), "on"))
    del model.graph.input[1], batch["on"]
    export(model, _loss, batch, optimizers.sgd(0.05), tmp_path / "out", **options)

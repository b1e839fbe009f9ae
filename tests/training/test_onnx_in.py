"""Training steps of ONNX models: gradients of torch, free sizes of the file, losses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from torch.nn import functional

from closedform import optimizers, transforms
from closedform.errors import ExportError
from closedform.training import TrainSession, export

NUMBERS = np.random.default_rng(0)
WEIGHTS = {
    "conv.weight": NUMBERS.normal(size=(4, 2, 3, 3)).astype(np.float32),
    "norm.weight": NUMBERS.normal(size=4).astype(np.float32),
    "norm.bias": NUMBERS.normal(size=4).astype(np.float32),
    "norm.mean": NUMBERS.normal(size=4).astype(np.float32),
    "norm.variance": NUMBERS.random(4).astype(np.float32),
    "head.weight": NUMBERS.normal(size=(4, 3)).astype(np.float32),
    "head.bias": np.zeros(3, np.float32),
}


def classifier() -> ModelProto:
    """A convolution, batch normalisation and a linear layer; rows and sizes of images are free."""
    nodes = [
        helper.make_node("Conv", ["image.1", "conv.weight"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization",
            ["a", "norm.weight", "norm.bias", "norm.mean", "norm.variance"],
            ["b"],
        ),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "head.weight", "head.bias"], ["logits"]),
    ]
    image = helper.make_tensor_value_info("image.1", 1, ["rows", 2, "height", "width"])
    logits = helper.make_tensor_value_info("logits", 1, ["rows", 3])
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "classifier", [image], [logits], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def in_torch(
    weights: dict[str, torch.Tensor], images: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    value = functional.conv2d(images, weights["conv.weight"], padding=1)
    mean, variance, scale, bias = (
        weights[f"norm.{name}"] for name in ("mean", "variance", "weight", "bias")
    )
    value = functional.batch_norm(value, mean, variance, scale, bias, training=True)
    value = value.relu().mean((2, 3))
    logits = value @ weights["head.weight"] + weights["head.bias"]
    return functional.cross_entropy(logits, labels)


def batch(rows: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    images = torch.randn(rows, 2, size, size + 1, generator=generator)
    return images, torch.randint(0, 3, (rows,), generator=generator)


def test_a_file_trains_as_in_torch(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(classifier().SerializeToString())
    rule = optimizers.sgd(0.1)
    export(path, "cross_entropy", batch(4, 6), rule, tmp_path / "run", trainable=["*"])

    session = TrainSession(tmp_path / "run", threads=1)
    weights = {name: torch.from_numpy(array.copy()) for name, array in WEIGHTS.items()}
    fixed = ("norm.mean", "norm.variance")
    assert set(session.params) == weights.keys() - set(fixed)
    trained = [value.requires_grad_() for name, value in weights.items() if name not in fixed]
    optimizer = torch.optim.SGD(trained, 0.1)
    for rows, size in ((4, 6), (3, 5), (5, 7)):
        images, labels = batch(rows, size)
        result = session.step((images.numpy(), labels.numpy()))
        optimizer.zero_grad()
        loss = in_torch(weights, images, labels)
        loss.backward()
        optimizer.step()
        assert result.loss == pytest.approx(loss.item(), rel=1e-5)
    for name in session.params:  # roundings of sums in another order, over three steps
        np.testing.assert_allclose(
            session.params[name], weights[name].detach().numpy(), rtol=1e-4, atol=1e-6
        )
    for name in fixed:
        np.testing.assert_allclose(session.buffers[name], weights[name].numpy(), rtol=1e-5)


INVALID: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no weights": (
        "mse",
        {"trainable": ["conv.wait"]},
        r"no weight has the name 'conv.wait'.*the weights are conv.weight \[4, 2, 3, 3\]",
    ),
    "loss": ("mae", {"trainable": ["*"]}, "loss must be a function or one of mse, .*got 'mae'"),
}


@pytest.mark.parametrize("name", INVALID)
def test_what_is_missing_is_one_error(name: str, tmp_path: Path) -> None:
    loss, options, message = INVALID[name]
    rule = optimizers.sgd(0.1)
    with pytest.raises(ExportError, match=message):
        export(classifier(), loss, batch(4, 6), rule, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_trainable_is_for_files(tmp_path: Path) -> None:
    model, rule = torch.nn.Linear(2, 2), optimizers.sgd(0.1)
    example = torch.zeros(2, 2), torch.zeros(2, 2)
    with pytest.raises(ExportError, match="trainable is for ONNX models"):
        export(model, "mse", example, rule, tmp_path / "run", trainable=["weight"])


def odd_names(opset: int) -> ModelProto:
    """A file with names that no identifier has, and weights in constants, one for no loss."""
    tensors = {
        "onnx::w": NUMBERS.normal(size=(4, 3)).astype(np.float32),
        "bias": np.zeros(3, np.float32),
        "unused": np.ones(3, np.float32),
    }
    constants = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name))
        for name, array in tensors.items()
    ]
    nodes = [
        *constants,
        helper.make_node("MatMul", ["in.put:0", "onnx::w"], ["param.bias"]),
        helper.make_node("Add", ["param.bias", "bias"], ["output"]),
        helper.make_node("Dropout", ["output"], ["13", "mask"]),
        helper.make_node("Mul", ["13", "unused"], ["second"]),
    ]
    given = helper.make_tensor_value_info("in.put:0", 1, ["?", 4])
    results = [helper.make_tensor_value_info(name, 1, ["?", 3]) for name in ("13", "second")]
    graph = helper.make_graph(nodes, "odd", [given], results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)
    helper.set_model_props(model, {"stride": "32"})
    return model


def first(outputs: tuple[torch.Tensor, ...], target: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(outputs[0], target)


@pytest.mark.parametrize("opset", [9, 17])
def test_a_trained_file_is_the_given_one_with_other_weights(
    opset: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = odd_names(opset)
    example = torch.randn(3, 4), torch.randn(3, 3)
    with caplog.at_level("INFO", "closedform.training"):
        export(model, first, example, optimizers.sgd(0.5), tmp_path / "run")
    assert "2 weights that reach the loss: onnx::w [4, 3], bias [3]" in caplog.text
    session = TrainSession(tmp_path / "run", threads=1)
    assert set(session.params) == {"onnx::w", "bias"}
    before = session.to_onnx(tmp_path / "before.onnx")
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    given = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"in.put:0": x})
    for found, wanted in zip(session.predict(x), given, strict=True):
        assert np.array_equal(found, wanted)

    session.step((example[0].numpy(), example[1].numpy()))
    after = session.to_onnx(tmp_path / "after.onnx")
    trained = onnxruntime.InferenceSession(tmp_path / "after.onnx")
    results = trained.run(["13", "second"], {"in.put:0": x})
    assert np.array_equal(results[0], session.predict(x)[0])
    assert not np.allclose(results[0], given[0])
    for file in (before, after):
        assert list(file.graph.input) == list(model.graph.input)
        assert list(file.graph.output) == list(model.graph.output)
        assert list(file.opset_import) == list(model.opset_import)
        assert list(file.metadata_props) == list(model.metadata_props)


def test_names_stay_at_a_point_of_evaluation(tmp_path: Path) -> None:
    """Averages are a graph of the latest opset; the names are those of the file."""
    rule = transforms.lookahead(optimizers.sgd(0.1))
    example = torch.randn(3, 4), torch.randn(3, 3)
    export(odd_names(17), first, example, rule, tmp_path / "run")
    file = TrainSession(tmp_path / "run", threads=1).to_onnx(tmp_path / "model.onnx")
    assert [value.name for value in file.graph.input] == ["in.put:0"]
    assert [value.name for value in file.graph.output] == ["13", "second"]


def recurrent(strides: int) -> ModelProto:
    """A convolution over a free width and a GRU over what is left of it."""
    weights = {
        "c": NUMBERS.normal(size=(3, 2, 3)),
        "w": NUMBERS.normal(size=(1, 12, 3)),
        "r": NUMBERS.normal(size=(1, 12, 4)),
    }
    nodes = [
        helper.make_node("Conv", ["src", "c"], ["a"], strides=[strides], pads=[1, 1]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[2, 0, 1]),
        helper.make_node("GRU", ["b", "w", "r"], ["", "y"], hidden_size=4),
    ]
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [helper.make_tensor_value_info("src", 1, ["rows", 2, "width"])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(array.astype(np.float32), n) for n, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("strides", "why"), [(1, "fixes it to 8"), (2, r"fixes .*width.* to 4")], ids=str
)
@pytest.mark.parametrize("validate", [False])
def test_a_recurrence_over_a_free_length_is_refused(
    strides: int, why: str, validate: bool, tmp_path: Path
) -> None:
    """Also where the length is an expression of the size, and without validation."""
    example, rule = (torch.randn(3, 2, 8),), optimizers.sgd(0.1)

    def loss(y: torch.Tensor) -> torch.Tensor:
        return (y * y).mean()

    message = rf"the size 'width' is not free: .*{why}.*dynamic_axes=\{{\"src\": \{{0: \"rows\"\}}"
    with pytest.raises(ExportError, match=message):
        export(recurrent(strides), loss, example, rule, tmp_path / "run", validate=validate)
    rows = {"src": {0: "rows"}}
    export(recurrent(strides), loss, example, rule, tmp_path / "run", dynamic_axes=rows)


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_lengths_of_sequences_end_a_recurrence(operator: str, gates: int, tmp_path: Path) -> None:
    shapes = {"W": (2, 4 * gates, 3), "R": (2, 4 * gates, 4), "B": (2, 8 * gates)}
    weights = [
        numpy_helper.from_array(NUMBERS.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    node = helper.make_node(
        operator,
        ["x", "W", "R", "B", "lengths"],
        ["y", "last"],
        hidden_size=4,
        direction="bidirectional",
    )
    inputs = [
        helper.make_tensor_value_info("x", 1, [5, "rows", 3]),
        helper.make_tensor_value_info("lengths", 6, ["rows"]),
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("y", "last")]
    graph = helper.make_graph([node], "g", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x = NUMBERS.normal(size=(5, 3, 3)).astype(np.float32)
    lengths = np.array([2, 5, 1], np.int32)

    def loss(output: Any) -> Any:
        return (output[0] ** 2).sum() + (output[1] ** 3).sum()

    example = torch.from_numpy(x), torch.from_numpy(lengths)
    export(model, loss, example, optimizers.sgd(0.0), tmp_path)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = loss(session.run(None, {"x": x, "lengths": lengths}))
    result = TrainSession(tmp_path, threads=1).step((x, lengths))
    # Sums of some hundred terms in another order, in float32.
    assert result.loss == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_peepholes_of_an_lstm(direction: str, tmp_path: Path) -> None:
    directions = 2 if direction == "bidirectional" else 1
    shapes = {
        "W": (directions, 16, 3),
        "R": (directions, 16, 4),
        "B": (directions, 32),
        "P": (directions, 12),
    }
    weights = [
        numpy_helper.from_array(NUMBERS.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    operands = ["x", "W", "R", "B", "", "", "", "P"]
    node = helper.make_node("LSTM", operands, ["y"], hidden_size=4, direction=direction)
    inputs = [helper.make_tensor_value_info("x", 1, [5, "rows", 3])]
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x = NUMBERS.normal(size=(5, 3, 3)).astype(np.float32)

    def loss(y: Any) -> Any:
        return (y**2).sum()

    export(model, loss, (torch.from_numpy(x),), optimizers.sgd(2.0**20), tmp_path)
    session = TrainSession(tmp_path, threads=1)
    before = {name: value.astype(np.float64) for name, value in session.params.items()}
    step = session.step((x,))
    after = session.params

    def loss_of(weight: np.ndarray[Any, Any]) -> float:
        moved = ModelProto()
        moved.CopyFrom(model)
        moved.graph.initializer[3].CopyFrom(numpy_helper.from_array(weight, "P"))
        engine = onnxruntime.InferenceSession(moved.SerializeToString())
        return float(loss(engine.run(None, {"x": x})[0].astype(np.float64)))

    peepholes = numpy_helper.to_array(model.graph.initializer[3])
    # Sums of some hundred terms in another order, in float32.
    assert step.loss == pytest.approx(loss_of(peepholes), rel=1e-5)
    gradient = (before["P"] - after["P"]) / 2**20
    for place in np.ndindex(gradient.shape):
        move = np.zeros_like(peepholes)
        move[place] = 1e-2
        difference = (loss_of(peepholes + move) - loss_of(peepholes - move)) / 2e-2
        # The third derivative times 1e-4 / 6, and roundings of a loss of some 30 over the step.
        assert gradient[place] == pytest.approx(difference, rel=2e-3, abs=2e-3)

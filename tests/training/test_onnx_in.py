"""Training steps of ONNX models: gradients of torch, free sizes of the file, losses by name."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from torch.nn import functional

from closedform import optimizers, transforms
from closedform.errors import ExportError, SessionError
from closedform.language.groups import Group
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

    with pytest.raises(SessionError, match=r"unknown tensor 'in.putt:0'.*mean 'in_put_0'"):
        session.step({"in.putt:0": example[0].numpy(), "target": example[1].numpy()})
    session.step({"in.put:0": example[0].numpy(), "target": example[1].numpy()})
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
    ("strides", "why"), [(1, "fixes it to 8"), (2, r"must be 4: .*width")], ids=str
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


@pytest.mark.sample(every=3)
@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
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


@pytest.mark.sample(every=3)
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


def _of_floats(second: Any) -> tuple[ModelProto, dict[str, Any]]:
    """Two layers, the second one in another float type."""
    numbers = np.random.default_rng(1)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(second))
    weights = {
        "first": numbers.normal(size=(4, 5)).astype(np.float32),
        "second": numbers.normal(size=(5, 3)).astype(second),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("Cast", ["a"], ["b"], to=kind),
        helper.make_node("MatMul", ["b", "second"], ["c"]),
        helper.make_node("Cast", ["c"], ["y"], to=1),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    x = helper.make_tensor_value_info("x", 1, ["rows", 4])
    y = helper.make_tensor_value_info("y", 1, ["rows", 3])
    graph = helper.make_graph(nodes, "floats", [x], [y], tensors)
    opsets = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), weights


@pytest.mark.parametrize("is_chosen", [True, False])
def test_groups_train_weights_of_16_bits_beside_others(is_chosen: bool, tmp_path: Path) -> None:
    model, weights = _of_floats(np.float16)
    rule = optimizers.sgd(0.0625, momentum=0.5)
    groups = [Group("second", rule=transforms.master_weights(rule, "f16"))]
    x, target = torch.randn(3, 4), torch.randn(3, 3)
    trainable = ["*"] if is_chosen else None
    export(model, "mse", (x, target), rule, tmp_path, groups=groups, trainable=trainable)
    session = TrainSession(tmp_path, threads=1)
    tensors = {name: torch.from_numpy(array).requires_grad_() for name, array in weights.items()}
    masters = {name: value.detach().float() for name, value in tensors.items()}
    optimizer = torch.optim.SGD(masters.values(), 0.0625, 0.5)
    for _ in range(3):
        output = ((x @ tensors["first"]).half() @ tensors["second"]).float()
        loss = functional.mse_loss(output, target)
        grads = torch.autograd.grad(loss, list(tensors.values()))
        for master, grad in zip(masters.values(), grads, strict=True):
            master.grad = grad.float()
        optimizer.step()
        for name, value in tensors.items():
            value.data = masters[name].to(value.dtype)
        result = session.step((x.numpy(), target.numpy()))
        assert result.loss == pytest.approx(loss.item(), rel=2e-3)  # rounded to 11 bits
    assert session.params["second"].dtype == np.float16
    for name, value in tensors.items():
        np.testing.assert_allclose(
            session.params[name], value.detach().numpy(), rtol=4e-3, atol=4e-3
        )


def test_weights_of_two_float_types_have_a_way_out(tmp_path: Path) -> None:
    rule = optimizers.sgd(0.1)
    example = torch.zeros(3, 4), torch.zeros(3, 3)
    wide, narrow = _of_floats(np.float64)[0], _of_floats(np.float16)[0]
    with pytest.raises(
        ExportError,
        match=r"got float32 \('first'\), float64 \('second'\) .*: leave trainable out, which "
        "trains weights in the dtype of the rule, or list only weights of one dtype$",
    ):
        export(wide, "mse", example, rule, tmp_path / "run", trainable=["*"])
    with pytest.raises(
        ExportError, match=r"one dtype; groups train 16 bits next to float32: Group"
    ):
        export(narrow, "mse", example, rule, tmp_path / "run", trainable=["*"])
    for model, names in ((wide, None), (wide, ["second"]), (narrow, None)):
        export(model, "mse", example, rule, tmp_path / "run", trainable=names)
        session = TrainSession(tmp_path / "run", threads=1)
        assert list(session.params) == (names or ["first"])
    scaling_rule = transforms.dynamic_loss_scaling(transforms.master_weights(rule, "f16"))
    groups = [Group("second", rule=scaling_rule)]
    with pytest.raises(ExportError, match=r"the loss is scaled for 'second'.*'first' does not"):
        export(narrow, "mse", example, rule, tmp_path / "run", groups=groups)


SHAPES: dict[str, tuple[list[Any], str]] = {
    "rank": (
        [torch.zeros(2, 6, 7), torch.zeros(4, dtype=torch.long)],
        r"the input 'image_1' must have the shape \[rows, 2, height, width\], got \[2, 6, 7\] in "
        r"the example \(the ONNX model\): .* height, rows, width may be any size",
    ),
    "size": (
        [torch.zeros(4, 3, 6, 7), torch.zeros(4, dtype=torch.long)],
        r"'image_1' must have the shape \[rows, 2, height, width\], got "
        r"\[4, 3, 6, 7\]",
    ),
    "scalar": ([torch.tensor(1.0), torch.zeros(4, dtype=torch.long)], r"got \[\] in the example"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_an_example_of_another_shape_is_refused_by_its_input(name: str, tmp_path: Path) -> None:
    example, message = SHAPES[name]
    with pytest.raises(ExportError, match=message):
        export(classifier(), "cross_entropy", example, optimizers.sgd(0.1), tmp_path)


def test_sizes_of_one_name_are_equal(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(name, 1, ["rows", "width"]) for name in "ab"]
    weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    output = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph(nodes, "product", inputs, [output], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    example = torch.zeros(3, 4), torch.zeros(3, 5), torch.zeros(3, 3)
    with pytest.raises(
        ExportError, match=r"'b' must have the shape \[rows, width = 4\], got \[3, 5\]"
    ):
        export(model, "mse", example, optimizers.sgd(0.1), tmp_path, dynamic_axes={})


def test_a_weight_within_a_function_is_trained_in_each_call(tmp_path: Path) -> None:
    weight = np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(weight)),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    function = helper.make_function("local", "Layer", ["a"], ["b"], nodes, opsets[:1])
    calls = [
        helper.make_node("Layer", [source], [result], domain="local")
        for source, result in (("x", "h"), ("h", "y"))
    ]
    x, y = (helper.make_tensor_value_info(name, 1, ["rows", 4]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(calls, "calls", [x], [y]),
        opset_imports=opsets,
        ir_version=10,
        functions=[function],
    )
    example = torch.randn(3, 4), torch.randn(3, 4)
    export(model, "mse", example, optimizers.sgd(0.1), tmp_path)
    session = TrainSession(tmp_path, threads=1)
    batch = tuple(value.numpy() for value in example)
    session.step(batch)
    first, second = session.params.values()
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(session.predict(batch[0]), batch[0] @ first @ second, rtol=1e-4)

"""Training steps of ONNX models: gradients of torch, free sizes of the file, losses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper
from torch.nn import functional

from closedform import optimizers
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

"""Convolutions in the blocked layout of onnxruntime: the same values, the same file."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn
from torch.nn.functional import cross_entropy

from closedform import optimizers
from closedform.runtime import blocked_convolutions, tuned_session
from closedform.runtime.blocked_convolutions import DOMAIN, block_size
from closedform.runtime.onnx_session import open_session
from closedform.runtime.tuned_session import tune
from closedform.training import TrainSession, export

needs_blocks = pytest.mark.skipif(not block_size(), reason="onnxruntime has no blocks here")


def _model(
    kind: str, inputs: int, outputs: int, attributes: dict[str, Any], element: int = 1
) -> onnx.ModelProto:
    """A convolution of 2 images of 9 × 8 with a weight that is an input."""
    group = attributes.get("group", 1)
    place = attributes["kernel_shape"]
    first, second = (outputs, inputs) if kind == "Conv" else (inputs, outputs)
    shapes = {"x": [2, inputs, 9, 8], "w": [first, second // group, *place]}
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w"], ["y"], **attributes)],
        "convolution",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", element, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(f"{node.domain}:{node.op_type}" for node in model.graph.node)


def _variant(seed: int) -> onnx.ModelProto:
    """A convolution that has blocks, drawn: channels, kernel, strides, pads and dilations."""
    draw = random.Random(seed)
    kind = ("Conv", "ConvTranspose")[seed % 2]
    is_of_channels = seed // 2 % 3 == 0
    inputs, outputs = draw.choice([16, 32, 48]), draw.choice([16, 32])
    place = [draw.choice([2, 3, 5]), draw.choice([1, 3, 4])]
    attributes: dict[str, Any] = {"kernel_shape": place}
    if is_of_channels:
        outputs, attributes["group"] = inputs, inputs
    attributes["pads"] = [draw.randrange(size + 2 * (kind == "Conv")) for size in (*place, *place)]
    if kind == "Conv":
        attributes["strides"] = [draw.choice([1, 2]), draw.choice([1, 3])]
        attributes["dilations"] = [1, draw.choice([1, 2])]
    return _model(kind, inputs, outputs, attributes)


@needs_blocks
@pytest.mark.parametrize("seed", range(36))
def test_blocked_convolutions_have_the_same_values(seed: int) -> None:
    model = _variant(seed)
    blocked = tune(model)
    assert blocked is not None
    assert _kinds(blocked)[f"{DOMAIN}:Conv"] == 1
    assert not {":Conv", ":ConvTranspose"} & set(_kinds(blocked))
    draws = np.random.default_rng(seed)
    # Small integers, whose sums are exact in float32.
    feeds = {
        port.name: draws.integers(-9, 9, [d.dim_value for d in port.type.tensor_type.shape.dim])
        for port in model.graph.input
    }
    first, second = (
        open_session(each).raw.run(None, {n: a.astype(np.float32) for n, a in feeds.items()})[0]
        for each in (model, blocked)
    )
    assert np.array_equal(first, second)


_OTHERS: dict[str, onnx.ModelProto] = {
    "channels": _model("Conv", 16, 12, {"kernel_shape": [3, 3]}),
    "inputs": _model("Conv", 3, 16, {"kernel_shape": [3, 3]}),
    "groups": _model("Conv", 32, 32, {"kernel_shape": [3, 3], "group": 2}),
    "one place": _model("Conv", 16, 16, {"kernel_shape": [1, 1]}),
    "strides": _model("ConvTranspose", 16, 16, {"kernel_shape": [3, 3], "strides": [2, 2]}),
    "far pads": _model("ConvTranspose", 16, 16, {"kernel_shape": [2, 2], "pads": [2, 0, 0, 0]}),
    "auto_pad": _model("Conv", 16, 16, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}),
    "float64": _model("Conv", 16, 16, {"kernel_shape": [3, 3]}, TensorProto.DOUBLE),
}


@pytest.mark.parametrize("name", _OTHERS)
def test_other_convolutions_stay_as_they_are(name: str) -> None:
    assert tune(_OTHERS[name]) is None


def _session(folder: Path) -> tuple[TrainSession, tuple[Any, ...]]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1, bias=False),
        nn.ReLU(), nn.Conv2d(16, 32, 3, bias=False), nn.Flatten(), nn.Linear(128, 4),
    )  # fmt: skip
    batch = torch.randn(3, 3, 8, 8), torch.randint(4, (3,))
    export(model, cross_entropy, batch, optimizers.sgd(0.1), folder, validate=False)
    return TrainSession(folder), tuple(tensor.numpy() for tensor in batch)


@needs_blocks
def test_a_session_has_blocks_and_its_file_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, batch = _session(tmp_path)
    assert DOMAIN not in {entry.domain for entry in onnx.load(tmp_path / "train.onnx").opset_import}
    rewritten: list[onnx.ModelProto] = []

    def record(model: onnx.ModelProto) -> onnx.ModelProto | None:
        rewritten.extend([tune(model) or model])
        return None

    monkeypatch.setattr(tuned_session, "tune", record)
    plain = TrainSession(tmp_path)
    assert _kinds(rewritten[0])[f"{DOMAIN}:Conv"] >= 2
    own, others = ([each.step(batch).loss for _ in range(5)] for each in (session, plain))
    # Sums of some hundred products in another order.
    np.testing.assert_allclose(own, others, rtol=1e-5)


def test_another_order_of_weights_gives_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_convolutions, "_reorder", lambda weight, block: weight)
    assert block_size.__wrapped__() == 0


@needs_blocks
def test_a_graph_that_onnxruntime_does_not_take_is_loaded_as_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_convolutions, "DOMAIN", "of.another.version")
    session, batch = _session(tmp_path)
    assert session.step(batch).step == 1

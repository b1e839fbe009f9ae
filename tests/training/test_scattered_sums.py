"""Gradients of weights that are looked up and used once more: rows are added to the other part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, embedding

from closedform import optimizers, transforms
from closedform.training import TrainSession, export

_ROWS, _WIDTH = 40, 8

# The logits of looked-up rows; how many sums of rows the gradient of the weight has.
USES: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], int]] = {
    "output layer": (lambda w, ids: torch.tanh(embedding(ids, w)) @ w.T, 1),
    "padding": (lambda w, ids: torch.tanh(embedding(ids, w, padding_idx=3)) @ w.T, 1),
    "index": (lambda w, ids: torch.tanh(w[ids]) @ w.T, 1),
    "two look-ups": (lambda w, ids: (embedding(ids, w) + embedding(ids + 1, w)) @ w.T, 2),
    "look-ups only": (lambda w, ids: torch.exp(embedding(ids, w) * w[ids + 1]) * 0.1, 2),
    "a norm": (lambda w, ids: embedding(ids, w) * w.square().sum() * 0.01, 1),
}


class _Shared(nn.Module):
    def __init__(self, use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(_ROWS, _WIDTH))
        self._use = use

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self._use(self.weight, ids)


def _loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output.flatten(0, 1), labels.flatten())


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("use", USES)
def test_rows_are_added_to_the_other_part(use: str, dtype: torch.dtype, tmp_path: Path) -> None:
    forward, sums = USES[use]
    model = _Shared(forward).to(dtype)
    ids = torch.tensor([[3, 3, 3, 1], [3, 7, 0, 1], [38, 38, 3, 7]])  # rows of several places
    labels = ids % _WIDTH
    is_narrow = dtype is torch.float16
    rule = transforms.master_weights(optimizers.sgd(1.0), "f16") if is_narrow else None
    compute_dtype = "f32" if is_narrow else None
    rule = rule or optimizers.sgd(1.0)
    export(model, _loss, (ids, labels), rule, tmp_path, compute_dtype=compute_dtype)
    graph = onnx.load(tmp_path / "train.onnx").graph
    adders = [node for node in graph.node if b"add" in (a.s for a in node.attribute)]
    assert [node.op_type for node in adders] == ["ScatterElements"] * sums
    producers = {output: node for node in graph.node for output in node.output}
    shapes = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in onnx.shape_inference.infer_shapes(
            onnx.load(tmp_path / "train.onnx")
        ).graph.value_info
    }
    added = [
        node
        for node in graph.node
        if node.op_type == "Add"
        and any(name in producers and producers[name] in adders for name in node.input)
        and shapes.get(node.output[0]) == [_ROWS, _WIDTH]
    ]
    assert not added
    session = TrainSession(tmp_path, threads=1)
    session.step((ids.numpy(), labels.numpy()))
    wide = _Shared(forward).to(dtype).double()
    _loss(wide(ids), labels).backward()
    gradient = wide.weight.grad
    assert gradient is not None
    expected = (wide.weight - gradient).detach().numpy()
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3}[dtype]
    scale = np.abs(gradient.numpy()).max() + 1
    assert np.abs(session.params["weight"] - expected).max() <= tolerance * scale

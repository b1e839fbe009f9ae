"""Attention, layer norm and GELU of a training step beside torch: values and gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from closedform.runtime.onnx_session import open_session
from closedform.training.tracing.trace import trace

Mask = Callable[[torch.Tensor], torch.Tensor]


class _Attention(nn.Module):
    """Attention of 4 heads over sequences of 6 entries of 8 numbers.

    With a mask of the sequence itself, some queries see no key at all.
    """

    def __init__(self, mask: Mask | None = None, key_heads: int = 4, **options: Any) -> None:
        super().__init__()
        self.mixed = nn.Linear(8, 16 + 8 * key_heads)
        self.out = nn.Linear(16, 3)
        self.mask, self.key_heads, self.options = mask, key_heads, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [16, 4 * self.key_heads, 4 * self.key_heads]
        query, key, value = (
            part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in self.mixed(x).split(sizes, -1)
        )
        mask = None if self.mask is None else self.mask(x)
        found = scaled_dot_product_attention(query, key, value, attn_mask=mask, **self.options)
        result: torch.Tensor = self.out(found.transpose(1, 2).flatten(2))
        return result


def _seen(x: torch.Tensor) -> torch.Tensor:
    visible = x[:, :, 0] > 0
    return visible[:, None, :, None] & (x[:, None, None, :, 1] < 0.5)


def _added(x: torch.Tensor) -> torch.Tensor:
    return torch.where(_seen(x), x[:, None, :, :6], -math.inf)


class _Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.of_both, self.of_last = nn.LayerNorm((6, 8)), nn.LayerNorm(8, bias=False)
        self.without = nn.LayerNorm(8, elementwise_affine=False)
        self.first = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.of_both(self.first(x)) * 4)
        hidden = nn.functional.gelu(self.of_last(hidden), approximate="tanh")
        result: torch.Tensor = self.without(hidden)
        return result


MODELS: dict[str, Callable[[], nn.Module]] = {
    "causal": lambda: _Attention(is_causal=True),
    "boolean mask": lambda: _Attention(_seen),
    "added mask": lambda: _Attention(_added, scale=0.3),
    "grouped keys": lambda: _Attention(key_heads=2, enable_gqa=True),
    "layer norms": _Norms,
}


def _loss(output: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (output * weight).sum()


_EXHAUSTIVE = ("boolean mask", "grouped keys")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name in _EXHAUSTIVE else [])
        for name in MODELS
    ],
)
def test_gradients_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(5, 6, 8)
    weight = torch.randn(model(x).shape)
    traced = trace(model, _loss, (x[:3], weight[:3]))
    session = open_session(traced.step)
    feeds = {f"param.{name}": value for name, value in traced.params.items()}
    feeds |= {"batch.x": x.numpy(), "batch.weight": weight.numpy()}
    given = {name: feeds[name] for name in session.inputs}
    found = dict(zip(session.outputs, session.raw.run(None, given), strict=True))
    errors = {}
    for dtype in (torch.float64, torch.float32):
        copied = copy.deepcopy(model).to(dtype)
        _loss(copied(x.to(dtype)), weight.to(dtype)).backward()
        errors[dtype] = {
            f"grad.{name}": parameter.grad.double().numpy()
            for name, parameter in copied.named_parameters()
            if parameter.grad is not None
        }
    assert errors[torch.float64]
    for key, exact in errors[torch.float64].items():
        scale = np.abs(exact).max()
        own = np.abs(found[key] - exact).max()
        in_torch = np.abs(errors[torch.float32][key] - exact).max()
        # Sums in another order: some roundings, relative to the largest gradient.
        assert own <= 4 * in_torch + 4e-6 * scale, (key, own / scale, in_torch / scale)


def test_scores_are_neither_transposed_nor_searched_for_masked_rows() -> None:
    x = torch.randn(3, 6, 8)
    traced = trace(_Attention(is_causal=True), _loss, (x, torch.randn(3, 6, 3)))
    shapes = {
        value.name: [size.dim_value for size in value.type.tensor_type.shape.dim]
        for value in traced.step.graph.value_info
    }
    nodes = traced.step.graph.node
    moved = [node.input[0] for node in nodes if node.op_type == "Transpose"]
    assert moved
    assert not [name for name in moved if shapes.get(name, [])[-2:] == [6, 6]]
    assert not {"ReduceMax", "Not"} & {node.op_type for node in nodes}

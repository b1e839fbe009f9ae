"""Batch normalisation in a training step beside torch: its result, gradients and statistics."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx.trace import trace


class _Norms(nn.Module):
    """Normalisations of vectors, sequences and images, with and without weights and statistics.

    The images are far from 0: their mean is 50 times their deviation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 2 * 4 * 3)
        self.of_vectors = nn.BatchNorm1d(24)
        self.of_sequences = nn.BatchNorm1d(2, affine=False, momentum=0.3)
        self.of_images = nn.BatchNorm2d(2, eps=1e-2)
        self.without = nn.BatchNorm2d(2, track_running_stats=False)
        self.of_volumes = nn.BatchNorm3d(2)
        self.frozen = nn.BatchNorm2d(2).eval()
        for weight in (self.of_images.weight, self.without.bias):
            nn.init.normal_(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.of_vectors(self.first(x))
        hidden = self.of_sequences(hidden.view(-1, 2, 12)).view(-1, 2, 4, 3)
        hidden = self.without(self.of_images(hidden + 50 * self.first.bias[0].exp()))
        hidden = self.frozen(torch.sin(hidden))
        result: torch.Tensor = self.of_volumes(hidden.view(-1, 2, 2, 2, 3)).flatten(1)
        return result


def _loss(output: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (output * output * weight).sum()


def _in_torch(model: nn.Module, batch: Any, dtype: torch.dtype) -> dict[str, NDArray[Any]]:
    model = copy.deepcopy(model).to(dtype)
    loss = _loss(model(batch[0].to(dtype)), batch[1].to(dtype))
    loss.backward()
    found = {f"grad.{name}": param.grad for name, param in model.named_parameters()}
    found |= {f"next.buffer.{name}": value for name, value in model.named_buffers()}
    return {
        name: value.double().numpy()
        for name, value in {"loss": loss.detach(), **found}.items()
        if value is not None
    }


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.exhaustive)]
)
def test_a_step_is_that_of_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = _Norms().to(dtype)
    example = torch.randn(6, 5, dtype=dtype), torch.rand(6, 24, dtype=dtype)
    batch = torch.randn(9, 5, dtype=dtype), torch.rand(9, 24, dtype=dtype)
    traced = trace(model, _loss, example)
    session = open_session(traced.step)
    feeds = {f"param.{name}": value for name, value in traced.params.items()}
    feeds |= {f"buffer.{name}": value for name, value in traced.buffers.items()}
    feeds |= {"batch.x": batch[0].numpy(), "batch.weight": batch[1].numpy()}
    feeds = {name: feeds[name] for name in session.inputs}
    found = dict(zip(session.outputs, session.raw.run(None, feeds), strict=True))
    exact = _in_torch(model, batch, torch.float64)
    in_torch = _in_torch(model, batch, dtype)
    compared = found.keys() & exact.keys()
    assert {"loss", "grad.first.weight", "next.buffer.of_images.running_var"} <= compared
    assert "next.buffer.frozen.running_mean" not in found
    largest = max(float(np.abs(exact[name]).max()) for name in compared if "grad" in name)
    for name in compared:
        own = np.abs(found[name] - exact[name]).max()
        # Torch's own distance from float64, or some roundings of the largest gradient where that
        # is 0: the gradient of a bias before a normalisation is. In float64, the reference has
        # roundings of its own, through seven layers.
        # Means that are 0 but for roundings are those of values of about 1.
        scale = largest if "grad" in name else max(float(np.abs(exact[name]).max()), 1)
        roundings = 8 if dtype is torch.float32 else 1000
        allowed = 4 * np.abs(in_torch[name] - exact[name]).max()
        allowed += roundings * torch.finfo(dtype).eps * scale
        assert own <= allowed, name

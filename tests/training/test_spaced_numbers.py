"""``torch.linspace`` and ``torch.logspace`` over a free size, next to torch at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import closedform as cf
from closedform import training

Weights = Callable[[torch.Tensor], torch.Tensor]

WEIGHTS: dict[str, Weights] = {
    "numbers": lambda y: torch.linspace(-1, 2.5, y.shape[1]),
    "by name": lambda y: torch.linspace(start=0, end=1, steps=y.shape[1], dtype=torch.float64),
    "ends that are sizes": lambda y: torch.linspace(0, y.shape[1] - 1, y.shape[1]),
    "ends that are tensors": lambda y: torch.linspace(y.min(), torch.tensor(2), steps=y.shape[1]),
    "powers": lambda y: torch.logspace(0, 1, y.shape[1], base=2.0),
    "count of two sizes": lambda y: torch.linspace(0, 1, y.numel()).reshape(y.shape),
}


class _Weighted(nn.Module):
    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.scale, self.weights = nn.Parameter(torch.tensor(1.5)), weights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.scale * x
        return self.weights(y).to(y.dtype) * torch.sin(y)


def _loss(y: torch.Tensor) -> torch.Tensor:
    return (y**2).mean()


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_count_is_free(name: str, tmp_path: Path) -> None:
    model = _Weighted(WEIGHTS[name])
    axes = {"x": {0: "rows", 1: "columns"}}
    rule = cf.optimizers.sgd(lr=1.0)
    training.export(model, _loss, (torch.randn(3, 5),), rule, tmp_path, dynamic_axes=axes)
    numbers = np.random.default_rng(0)
    for shape in ((2, 1), (3, 5), (2, 8), (4, 13)):  # a count of one is the start
        session = training.TrainSession(tmp_path)
        x = numbers.normal(size=shape).astype(np.float32)
        result = session.step((x,))
        loss = _loss(model(torch.from_numpy(x)))
        (gradient,) = torch.autograd.grad(loss, [model.scale])
        # Some roundings of float32.
        assert result.loss == pytest.approx(loss.item(), rel=1e-6)
        assert 1.5 - session.params["scale"] == pytest.approx(gradient.item(), rel=2e-6, abs=2e-7)


def test_integers_fix_the_count(tmp_path: Path) -> None:
    model = _Weighted(lambda y: torch.linspace(0, 9, y.shape[1], dtype=torch.int64))
    with pytest.raises(cf.ClosedFormError, match="'columns' is not free"):
        training.export(
            model,
            _loss,
            (torch.randn(3, 5),),
            cf.optimizers.sgd(lr=1.0),
            tmp_path,
            dynamic_axes={"x": {1: "columns"}},
        )

"""Functions with as many entries as a free size, next to torch at other sizes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import closedform as cf
from closedform import training

Weights = Callable[[torch.Tensor], torch.Tensor]


def _by_triangle(y: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Numbers in which each index has another weight."""
    row, column = indices
    return (y[row, column] * torch.cos(torch.arange(indices.shape[1]))).sum()


def _by_lower(offset: int, y: torch.Tensor) -> torch.Tensor:
    return _by_triangle(y, torch.tril_indices(y.shape[0], y.shape[1], offset))


def _by_upper(offset: int, y: torch.Tensor) -> torch.Tensor:
    return _by_triangle(y, torch.triu_indices(y.shape[0], y.shape[1], offset))


WEIGHTS: dict[str, Weights] = {
    "numbers": lambda y: torch.linspace(-1, 2.5, y.shape[1]),
    "by name": lambda y: torch.linspace(start=0, end=1, steps=y.shape[1], dtype=torch.float64),
    "ends that are sizes": lambda y: torch.linspace(0, y.shape[1] - 1, y.shape[1]),
    "ends that are tensors": lambda y: torch.linspace(y.min(), torch.tensor(2), steps=y.shape[1]),
    "powers": lambda y: torch.logspace(0, 1, y.shape[1], base=2.0),
    "Hann": lambda y: torch.hann_window(y.shape[1]),
    "Hann, symmetric": lambda y: torch.hann_window(y.shape[1], periodic=False),
    "Hann of torch.signal": lambda y: torch.signal.windows.hann(y.shape[1]),
    "Hamming": lambda y: torch.hamming_window(2 * y.shape[1], False, 0.5)[::2],
    "Blackman": lambda y: torch.blackman_window(y.shape[1], dtype=torch.float64),
    "Bartlett": lambda y: torch.bartlett_window(y.shape[1]),
    "Bartlett, symmetric": lambda y: torch.bartlett_window(y.shape[1], False),
    "Kaiser": lambda y: torch.kaiser_window(y.shape[1], False, 8.0),
    "frequencies": lambda y: torch.fft.fftfreq(y.shape[1], d=0.5),
    "real frequencies": lambda y: torch.fft.rfftfreq(y.shape[1]).sum(),
    "labels": lambda y: functional.one_hot(torch.arange(y.shape[0]) % y.shape[1], y.shape[1]),
    **{f"lower triangle {offset}": partial(_by_lower, offset) for offset in (-1, 0, 1)},
    **{f"upper triangle {offset}": partial(_by_upper, offset) for offset in (-1, 0, 1)},
    "square triangle": lambda y: _by_triangle(
        y.T @ y, torch.triu_indices(y.shape[1], y.shape[1], 1)
    ),
    "triangle of a number": lambda y: _by_triangle(
        y, torch.tril_indices(2, y.shape[1], dtype=torch.int64)
    ),
    "remainders by a size": lambda y: torch.arange(3 * y.shape[1])[::3] % y.shape[0],
    "remainders of division": lambda y: torch.fmod(torch.arange(y.shape[1]) - 4, y.shape[0]),
    "quotients by a size": lambda y: (torch.arange(y.shape[1]) - 4) // y.shape[0],
    "rounded quotients": lambda y: torch.div(
        torch.arange(y.shape[1]) - 4, y.shape[0], rounding_mode="trunc"
    ),
    "powers of places": lambda y: torch.linspace(0, 1, y.shape[1]) ** y.shape[0],
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


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_count_is_free(name: str, tmp_path: Path) -> None:
    model = _Weighted(WEIGHTS[name])
    axes = {"x": {0: "rows", 1: "columns"}}
    rule = cf.optimizers.sgd(lr=1.0)
    training.export(model, _loss, (torch.randn(3, 5),), rule, tmp_path, dynamic_axes=axes)
    numbers = np.random.default_rng(0)
    # A count of one is the start; torch.signal branches on it.
    for shape in ((2, 1), (3, 5), (2, 8), (4, 13))["signal" in name :]:
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


def test_one_hot_names_its_classes(tmp_path: Path) -> None:
    model = _Weighted(lambda y: functional.one_hot((y > 0).sum(1)).sum())
    with pytest.raises(cf.ClosedFormError, match=r"one_hot without num_classes .* in the mod"):
        training.export(model, _loss, (torch.randn(3, 5),), cf.optimizers.sgd(lr=1.0), tmp_path)


def test_labels_beyond_a_free_size_are_refused(tmp_path: Path) -> None:
    class Classes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return self.scale * (functional.one_hot(labels, x.shape[1]) * x).sum(1)

    batch = torch.randn(3, 5), torch.tensor([1, 0, 4])
    axes = {"x": {0: "rows", 1: "classes"}, "labels": {0: "rows"}}
    rule = cf.optimizers.sgd(lr=1.0)
    training.export(Classes(), _loss, batch, rule, tmp_path, dynamic_axes=axes)
    session = training.TrainSession(tmp_path)
    session.step({"x": np.zeros((2, 9), np.float32), "labels": np.array([8, 0])})
    for label in (-1, 4):
        with pytest.raises(cf.ClosedFormError, match=rf"values in 0\.\.3.*got {label} in row 1"):
            session.step({"x": np.zeros((2, 4), np.float32), "labels": np.array([3, label])})


def test_windows_of_one_entry(tmp_path: Path) -> None:
    """A window of torch.signal branches on a length of 1, which the session names."""
    model = _Weighted(lambda y: torch.signal.windows.hann(y.shape[1]))
    axes = {"x": {0: "rows", 1: "columns"}}
    rule = cf.optimizers.sgd(lr=1.0)
    training.export(model, _loss, (torch.randn(3, 5),), rule, tmp_path, dynamic_axes=axes)
    session = training.TrainSession(tmp_path)
    with pytest.raises(cf.ClosedFormError, match="columns"):
        session.step((np.zeros((2, 1), np.float32),))

"""Small models, batches and losses that training is tested with."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from closedform import UpdateRule, optimizers, schedules, transforms


class Convnet(nn.Module):
    """Two convolutions with batch normalisation, both poolings, and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 8, 3, stride=2, padding=1, groups=2)
        self.head = nn.Linear(8, 10)

    def forward(self, image: torch.Tensor) -> Any:
        hidden = functional.max_pool2d(functional.relu(self.norm(self.first(image))), 2)
        hidden = functional.avg_pool2d(functional.relu(self.second(hidden)), 2)
        return self.head(hidden.flatten(1))


class Transformer(nn.Module):
    """A causal transformer of characters, pre-norm, with attention as torch's function.

    Keys have no bias: softmax takes it out, so its gradient is rounding noise, and Lion would walk
    by the sign of that.
    """

    def __init__(self, vocabulary: int = 30, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(12, width) / 10)
        self.mixed = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> Any:
        hidden = self.embedding(tokens) + self.position
        rows, length, width = hidden.shape
        parts = self.mixed(self.norms[0](hidden)).chunk(3, -1)
        query, key, value = (
            part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        hidden = hidden + self.down(functional.gelu(self.up(self.norms[1](hidden))))
        return self.head(hidden).transpose(1, 2)


Batch = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """A model with batches, a rule, and the same in torch."""

    model: Callable[[], nn.Module]
    inputs: Callable[[np.random.Generator, int], Batch]
    rule: UpdateRule
    in_torch: Callable[[nn.Module], torch.optim.Optimizer]
    max_norm: float | None = None


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 10))


def vectors(generator: np.random.Generator, rows: int) -> Batch:
    label = generator.integers(0, 10, rows)
    noise = generator.normal(size=(rows, 64)) / 2
    return (noise + np.eye(10, 64)[label] * 3).astype(np.float32), label


def images(generator: np.random.Generator, rows: int) -> Batch:
    values, label = vectors(generator, rows)
    return values.reshape(rows, 1, 8, 8), label


def characters(generator: np.random.Generator, rows: int) -> Batch:
    start = generator.integers(0, 30, (rows, 1))
    line = (start + 7 * np.arange(13)) % 30
    return line[:, :-1], line[:, 1:]


STEPS = 300


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), weight_decay=0.1)


def _momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), momentum=0.9)


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. (2023), written out."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.0})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step with betas 0.9 and 0.99."""
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                moment = state.setdefault("exp_avg", torch.zeros_like(param))
                update = moment * 0.9 + param.grad * (1 - 0.9)
                with torch.no_grad():
                    param -= group["lr"] * update.sign()
                moment.mul_(0.99).add_(param.grad, alpha=1 - 0.99)


_WARMUP_COSINE = schedules.linear(0, 1e-2, 30).then(schedules.cosine(1e-2, 1e-4, 270))
_ONE_CYCLE = schedules.one_cycle(0.005, 0.05, 1e-4, STEPS)
_WSD = schedules.wsd(1e-3, 1e-5, STEPS, warmup=20, decay=60)

CASES = {
    "mlp": Case(
        mlp,
        vectors,
        transforms.clip_by_global_norm(optimizers.adamw(_WARMUP_COSINE, weight_decay=0.1), 0.5),
        _adamw,
        max_norm=0.5,
    ),
    "convnet": Case(Convnet, images, optimizers.sgd(_ONE_CYCLE, momentum=0.9), _momentum),
    "transformer": Case(
        Transformer, characters, optimizers.lion(_WSD), lambda model: Lion(model.parameters())
    ),
}


def batches(case: Case, count: int, rows: int = 16) -> Iterator[Batch]:
    generator = np.random.default_rng(0)
    for _ in range(count):
        yield case.inputs(generator, rows)

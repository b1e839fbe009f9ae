"""Two problems for AdamW: a quadratic with noisy gradients, and a small language model.

Parameters are given as arrays of any dtype. Gradients and losses are computed in float32 or float64
from their widened values, so that they are the same numbers for parameters of the same bits.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from closedform.language import Schedule
from closedform.schedules import cosine, linear

Arrays = Mapping[str, NDArray[Any]]

DOCS = Path(__file__).parents[2] / "docs"
SIZE, BATCH = 64, 16
"""The weights of the quadratic, and the examples of a batch."""
CONTEXT, SEQUENCES, WIDTH, HEADS = 32, 8, 32, 2
"""The characters of an example, the examples of a batch, the width of the model, its heads."""


def warmup_cosine(peak: float, steps: int) -> Schedule:
    """A warmup over a hundredth of the steps, and a cosine to a hundredth of the peak."""
    warmup = steps // 100
    return linear(0, peak, warmup).then(cosine(peak, peak / 100, steps - warmup))


class Problem(ABC):
    """A function to minimise by stochastic gradients.

    Args:
        steps: The steps of a training, which the schedule is for.
        seed: The seed of the batches.

    Attributes:
        start: The first parameters, of float32.
        schedule: The learning rate.
    """

    start: Arrays
    schedule: Schedule

    def __init__(self, steps: int, seed: int = 0) -> None:
        self.seed = seed

    @abstractmethod
    def gradients(self, params: Arrays, step: int) -> dict[str, NDArray[Any]]:
        """Returns the gradients of the batch of a step, of float32."""

    @abstractmethod
    def loss(self, params: Arrays) -> float:
        """Returns the loss on data that are not trained on."""


class Quadratic(Problem):
    r"""Least squares with noise in the labels.

    .. math:: \tfrac12 E (x \cdot w - y)^2 = \tfrac12 \sum_i a_i (w_i - w^*_i)^2 + \tfrac12

    for :math:`y = x \cdot w^* + \varepsilon`, normal :math:`x_i` of variance :math:`a_i` from 1
    down to 0.01, and normal :math:`\varepsilon` of variance 1. The gradient is that of a batch.
    """

    def __init__(self, steps: int, seed: int = 0) -> None:
        super().__init__(steps, seed)
        rng = np.random.default_rng(0)
        self.deviations = np.sqrt(np.logspace(0, -2, SIZE))
        self.target = rng.normal(size=SIZE)
        self.start = {"w": rng.normal(size=SIZE).astype(np.float32)}
        self.schedule = warmup_cosine(1e-3, steps)

    def gradients(self, params: Arrays, step: int) -> dict[str, NDArray[Any]]:
        rng = np.random.default_rng([1, self.seed, step])
        x = rng.normal(size=(BATCH, SIZE)) * self.deviations
        residuals = x @ (params["w"].astype(np.float64) - self.target) + rng.normal(size=BATCH)
        return {"w": (residuals @ x / BATCH).astype(np.float32)}

    def loss(self, params: Arrays) -> float:
        distance = (params["w"].astype(np.float64) - self.target) * self.deviations
        return float(distance @ distance + 1) / 2


class Separable(Problem):
    r"""A quadratic of many weights, each by itself, with noise in the gradients.

    .. math:: \frac{1}{2n} \sum_i a_i (w_i - w^*_i)^2

    for :math:`a_i` from 1 down to 0.001, and normal noise of deviation 0.1.
    """

    size = 2**14

    def __init__(self, steps: int, seed: int = 0) -> None:
        super().__init__(steps, seed)
        rng = np.random.default_rng(0)
        self.curvatures = np.logspace(0, -3, self.size)
        self.target = rng.normal(size=self.size)
        self.start = {"w": rng.normal(size=self.size).astype(np.float32)}
        self.schedule = warmup_cosine(1e-2, steps)

    def gradients(self, params: Arrays, step: int) -> dict[str, NDArray[Any]]:
        noise = np.random.default_rng([4, self.seed, step]).normal(size=self.size)
        gradient = self.curvatures * (params["w"].astype(np.float64) - self.target) + 0.1 * noise
        return {"w": gradient.astype(np.float32)}

    def loss(self, params: Arrays) -> float:
        distance = params["w"].astype(np.float64) - self.target
        return float(self.curvatures @ distance**2) / (2 * self.size)


class CharacterModel(nn.Module):
    """A transformer of one block that predicts the next character."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(WIDTH // HEADS)
        mask = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        x = x + self.projection((weights @ v).transpose(1, 2).flatten(-2))
        x = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        logits: Tensor = self.head(self.norm(x))
        return logits


class Language(Problem):
    """Characters of the pages of docs/, the last tenth of which is not trained on."""

    def __init__(self, steps: int, seed: int = 0) -> None:
        super().__init__(steps, seed)
        pages = sorted(path for path in DOCS.glob("*.md") if path.name != "low_precision.md")
        text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
        vocabulary = sorted(set(text))
        places = {character: place for place, character in enumerate(vocabulary)}
        codes = torch.tensor([places[character] for character in text])
        self.size = len(codes)
        self.trained, self.held_out = codes.split([self.size - self.size // 10, self.size // 10])
        torch.manual_seed(0)
        self.model = CharacterModel(len(vocabulary))
        self.start = {
            name: parameter.detach().numpy().copy()
            for name, parameter in self.model.named_parameters()
        }
        self.schedule = warmup_cosine(3e-3, steps)

    def gradients(self, params: Arrays, step: int) -> dict[str, NDArray[Any]]:
        self._write(params)
        self.model.zero_grad()
        self._mean_loss(
            self.trained, np.random.default_rng([2, self.seed, step]), SEQUENCES
        ).backward()
        gradients = {}
        for name, parameter in self.model.named_parameters():
            assert parameter.grad is not None, name
            gradients[name] = parameter.grad.numpy()
        return gradients

    @torch.no_grad()
    def loss(self, params: Arrays) -> float:
        self._write(params)
        return float(self._mean_loss(self.held_out, np.random.default_rng(3), 1024))

    def _mean_loss(self, codes: Tensor, rng: np.random.Generator, count: int) -> Tensor:
        starts = torch.from_numpy(rng.integers(len(codes) - CONTEXT, size=(count, 1)))
        windows = codes[starts + torch.arange(CONTEXT + 1)]
        logits = self.model(windows[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())

    @torch.no_grad()
    def _write(self, params: Arrays) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(torch.from_numpy(params[name].astype(np.float32)))

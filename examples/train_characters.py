"""Train a transformer of characters in onnxruntime on a text that ships with Python.

Attention, dropout and layer normalisation are traced by torch once; then one ONNX graph trains,
with Lion and a warmup-stable-decay schedule inside, and another one writes text.
"""

from pathlib import Path
from pydoc_data import topics

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import closedform as cf
from closedform import training

STEPS, ROWS, LENGTH, WIDTH, HEADS = 240, 24, 40, 48, 4
FOLDER = Path("build") / "characters"


class Transformer(nn.Module):
    """Two causal layers between an embedding and a linear layer."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) / 50)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.05, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, vocabulary)
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), -torch.inf).triu(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns a score for each letter that may follow at each place."""
        hidden = self.embedding(tokens) + self.position
        for layer in self.layers:
            hidden = layer(hidden, src_mask=self.mask)
        logits: torch.Tensor = self.head(hidden)
        return logits


def loss(logits: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def written(session: training.TrainSession, letters: str, begin: str, count: int) -> str:
    """Returns text that the model writes, the likeliest of a few letters at each place."""
    draws = np.random.default_rng(0)
    text = begin.rjust(LENGTH)
    for _ in range(count):
        tokens = np.array([[letters.index(letter) for letter in text[-LENGTH:]]])
        logits = session.predict(tokens)[0, -1]
        weights = np.exp((logits - logits.max()) / 0.5)
        text += letters[draws.choice(len(letters), p=weights / weights.sum())]
    return text[LENGTH - len(begin) :]


def main() -> None:
    text = " ".join(" ".join(topics.topics.values()).split())[:300_000]
    letters = "".join(sorted(set(text)))
    numbers = np.array([letters.index(letter) for letter in text])

    def batch(draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        starts = draws.integers(0, len(numbers) - LENGTH - 1, ROWS)
        lines = numbers[starts[:, None] + np.arange(LENGTH + 1)]
        return lines[:, :-1], lines[:, 1:]

    torch.manual_seed(0)
    draws = np.random.default_rng(0)
    lr = cf.schedules.wsd(1e-3, 0, STEPS, warmup=20, decay=100)
    example = tuple(map(torch.from_numpy, batch(draws)))
    training.export(Transformer(len(letters)), loss, example, cf.optimizers.lion(lr), FOLDER)

    session = training.TrainSession(FOLDER)
    results = session.fit((batch(draws) for _ in range(STEPS)), progress=False)
    for result in results[:: STEPS // 6] + results[-1:]:
        print(f"step {result.step:>3}: loss {result.loss:.3f}, lr {result.learning_rate:.2e}")
    print(written(session, letters, "The class ", 60))


if __name__ == "__main__":
    main()

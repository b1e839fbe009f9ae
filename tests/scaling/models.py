"""Two small models of any width, with µP or the standard parametrization, and their training."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from closedform import scaling
from closedform.optimizers import adam, sgd
from closedform.schedules import linear

BASE = 64
WIDTHS = (64, 128, 256, 512, 1024)
FLATNESS = 1.2
"""The largest ratio of the scales of an activation over the widths."""
VOCABULARY, LENGTH, BATCH = 32, 16, 8
FEATURES, CLASSES = 16, 8


class Network(nn.Module, ABC):
    """A model that shows the outputs of its layers; the last one is the logits."""

    multiplier: float

    @abstractmethod
    def activations(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yields the output of each layer by name."""


class Mlp(Network):
    """Two hidden layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.head = nn.Linear(width, CLASSES)
        self.multiplier = 1.0

    def activations(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        for name in ("first", "second", "third"):
            x = getattr(self, name)(x)
            yield name, x
            x = torch.relu(x)
        yield "head", self.head(x) * self.multiplier


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm."""

    def __init__(self, width: int, heads: int, attention_power: float) -> None:
        super().__init__()
        self.heads, self.power = heads, attention_power
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        size = width // self.heads
        parts = self.qkv(self.norm_1(x)).reshape(batch, length, 3, self.heads, size)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        # Logits over d instead of its root keep their scale (Tensor Programs V, definition 4.1). At
        # the base width both are the same.
        base = BASE // self.heads
        scores = q @ k.mT / (math.sqrt(base) * (size / base) ** self.power)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~mask, -math.inf).softmax(-1)
        x = x + self.projection((weights @ v).transpose(1, 2).reshape(batch, length, width))
        feed_forward: Tensor = self.down(functional.gelu(self.up(self.norm_2(x))))
        return x + feed_forward


class Transformer(Network):
    """Two blocks with learned positions."""

    def __init__(self, width: int, attention_power: float = 1.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position_embedding = nn.Embedding(LENGTH, width)
        self.h = nn.ModuleList(Block(width, 4, attention_power) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)
        self.multiplier = 1.0

    def activations(self, x: Tensor) -> Iterator[tuple[str, Tensor]]:
        x = self.embedding(x) + self.position_embedding.weight
        yield "embedding", x
        for index, block in enumerate(self.h):
            x = block(x)
            yield f"h.{index}", x
        yield "head", self.head(self.norm(x)) * self.multiplier


Batches = Callable[[int], tuple[Tensor, Tensor]]


def teacher_batches(seed: int) -> Batches:
    """Gaussian features with the classes of a random network."""
    source = torch.Generator().manual_seed(12345)
    first = torch.randn(FEATURES, 32, generator=source) / 4
    second = torch.randn(32, CLASSES, generator=source)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(10_000 * seed + step)
        x = torch.randn(64, FEATURES, generator=draw)
        return x, (torch.tanh(x @ first) @ second).argmax(-1)

    return batch


def chain_batches(seed: int) -> Batches:
    """Tokens of a Markov chain."""
    source = torch.Generator().manual_seed(54321)
    logits = 2.5 * torch.randn(VOCABULARY, VOCABULARY, generator=source)
    rows = logits.softmax(-1)

    def batch(step: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(10_000 * seed + step)
        tokens = torch.randint(VOCABULARY, (BATCH, 1), generator=draw)
        for _ in range(LENGTH):
            following = torch.multinomial(rows[tokens[:, -1]], 1, generator=draw)
            tokens = torch.cat([tokens, following], 1)
        return tokens[:, :-1], tokens[:, 1:]

    return batch


@dataclass(frozen=True)
class Subject:
    """A model, its data and the names of its optimizer."""

    model: Callable[[int, bool], Network]
    batches: Callable[[int], Batches]
    optimizer: str


SUBJECTS: Mapping[str, Subject] = {
    "mlp": Subject(lambda width, is_mup: Mlp(width), teacher_batches, "adam"),
    "mlp-sgd": Subject(lambda width, is_mup: Mlp(width), teacher_batches, "sgd"),
    "transformer": Subject(
        lambda width, is_mup: Transformer(width, 1.0 if is_mup else 0.5), chain_batches, "adam"
    ),
}


def scales_of(subject: Subject, model: Network) -> scaling.Parametrization:
    """The factors of the model against the base width."""
    rule = adam(1) if subject.optimizer == "adam" else sgd(1)
    return scaling.mup(model, subject.model(BASE, True), rule)


def prepare(
    subject: Subject, width: int, lr: float, *, is_mup: bool, seed: int
) -> tuple[Network, torch.optim.Optimizer]:
    """The model with its initial values, and its optimizer.

    At the base width both parametrizations are one model.
    """
    torch.manual_seed(seed)
    model = subject.model(width, is_mup)
    scales = scales_of(subject, model)
    base_shapes = {name: p.shape for name, p in subject.model(BASE, is_mup).named_parameters()}
    gain = math.sqrt(2) if isinstance(model, Mlp) else 1.0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
            elif "embedding" in name:
                parameter.normal_(0, 1)
            elif name == "head.weight":
                # Tensor Programs V, appendix D.2: output weights begin at 0, so that the first
                # function of a narrow model is that of a wide one.
                parameter.zero_()
            elif parameter.dim() == 2:
                fan_in, base_fan_in = parameter.shape[1], base_shapes[name][1]
                factor = float(scales[name].deviation) if is_mup else (base_fan_in / fan_in) ** 0.5
                parameter.normal_(0, gain * factor / math.sqrt(base_fan_in))
    if is_mup:
        model.multiplier = float(scales["head.weight"].multiplier)
        groups = scales.param_groups(model, adam(lr) if subject.optimizer == "adam" else sgd(lr))
    else:
        groups = [{"params": list(model.parameters())}]
    make = torch.optim.Adam if subject.optimizer == "adam" else torch.optim.SGD
    return model, make(groups, lr=lr)


def final_loss(
    name: str, width: int, lr: float, steps: int, *, is_mup: bool, seed: int = 0
) -> float:
    """The loss on batches that were not trained on, after a training with a linear decay to 0."""
    subject = SUBJECTS[name]
    model, optimizer = prepare(subject, width, lr, is_mup=is_mup, seed=seed)
    peaks = [group["lr"] for group in optimizer.param_groups]
    decay = linear(1, 0, steps)(range(steps))
    batch = subject.batches(seed)
    for step in range(steps):
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["lr"] = peak * float(decay[step])
        loss = loss_of(model, *batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        values = [float(loss_of(model, *batch(10**6 + index))) for index in range(16)]
    mean = sum(values) / len(values)
    return mean if math.isfinite(mean) else math.inf


def loss_of(model: Network, x: Tensor, y: Tensor) -> Tensor:
    """The cross entropy of a batch."""
    *_, (_, logits) = model.activations(x)
    return functional.cross_entropy(logits.flatten(0, -2), y.flatten())


def coordinates(
    name: str, width: int, lr: float, steps: int, *, is_mup: bool, seeds: int
) -> dict[str, float]:
    """The root mean square of each layer's output after some steps, over seeds."""
    subject = SUBJECTS[name]
    squares: dict[str, float] = {}
    for seed in range(seeds):
        model, optimizer = prepare(subject, width, lr, is_mup=is_mup, seed=seed)
        batch = subject.batches(seed)
        for step in range(steps):
            x, y = batch(step)
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
        with torch.no_grad():
            for layer, value in model.activations(batch(steps)[0]):
                squares[layer] = squares.get(layer, 0.0) + float(value.square().mean()) / seeds
    return {layer: math.sqrt(square) for layer, square in squares.items()}


def spread(scales: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The ratio of the largest to the smallest scale of each layer, over the widths."""
    return {
        layer: max(scale[layer] for scale in scales) / min(scale[layer] for scale in scales)
        for layer in scales[0]
    }

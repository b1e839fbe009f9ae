"""Models and situations of training: each is exported and equals torch, or is refused by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Entry:
    """A model in a situation.

    Attributes:
        model: Makes the model.
        batch: Makes a batch of a number of rows.
        loss: The loss; None if the model computes it.
        options: Further arguments of the export.
        refused: A pattern of the error with which it is refused; None if it is exported.
        prepare: Changes the model before the export, and before training in torch.
    """

    model: Callable[[], nn.Module]
    batch: Callable[[int], Any]
    loss: Any = functional.mse_loss
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    prepare: Callable[[nn.Module], object] = nn.Module.train


class Of(nn.Module):
    """A function between layers; the layers are attributes with their names."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def vectors(inputs: int = 6, outputs: int = 3) -> Callable[[int], Any]:
    return lambda rows: (torch.randn(rows, inputs), torch.randn(rows, outputs))


def classes(inputs: int = 6, count: int = 4) -> Callable[[int], Any]:
    return lambda rows: (torch.randn(rows, inputs), torch.randint(0, count, (rows,)))


def shaped(*shape: int, target: tuple[int, ...] = (3,)) -> Callable[[int], Any]:
    return lambda rows: (torch.randn(rows, *shape), torch.randn(rows, *target))


def tokens(length: int = 7, vocabulary: int = 11, target: tuple[int, ...] = (3,)) -> Any:
    return lambda rows: (
        torch.randint(0, vocabulary, (rows, length)),
        torch.randn(rows, *target),
    )


def after(function: Callable[[torch.Tensor], Any], width: int = 3) -> Callable[[], nn.Module]:
    """A linear layer, a function of its result, and another one."""
    return lambda: Of(
        lambda m, x: m.out(function(m.first(x)).flatten(1)),
        first=nn.Linear(6, 8),
        out=nn.LazyLinear(width),
    )


def images(function: Callable[[torch.Tensor], Any]) -> Callable[[], nn.Module]:
    """A convolution, a function of its result, and a linear layer."""
    return lambda: Of(
        lambda m, x: m.out(function(m.first(x)).flatten(1)),
        first=nn.Conv2d(2, 4, 3, padding=1),
        out=nn.LazyLinear(3),
    )


def volumes(function: Callable[[torch.Tensor], Any]) -> Callable[[], nn.Module]:
    return lambda: Of(
        lambda m, x: m.out(function(m.first(x)).flatten(1)),
        first=nn.Conv3d(1, 2, 3, padding=1),
        out=nn.LazyLinear(3),
    )


class Recurrent(nn.Module):
    def __init__(self, kind: Any, **options: Any) -> None:
        super().__init__()
        self.layer = kind(5, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layer(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self, dropout: float = 0.0, mask: bool = True) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(5) if mask else None

    def forward(self, x: torch.Tensor) -> Any:
        return self.encoder(x, mask=self.mask)


class Seq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def forward(self, source: torch.Tensor, start: torch.Tensor) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(start.shape[1])
        return self.model(source, start, tgt_mask=mask)


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, dropout=dropout, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x, x, x)[0]


class Autoencoder(nn.Module):
    """A variational autoencoder, whose loss has a second term."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 8), nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> Any:
        mean, log = self.encode(x).chunk(2, -1)
        code = mean + torch.randn_like(mean) * (log / 2).exp()
        return self.decode(code), mean, log


def _elbo(output: Any, x: torch.Tensor) -> Any:
    made, mean, log = output
    return functional.mse_loss(made, x) - 0.5 * (1 + log - mean**2 - log.exp()).mean()


class DropPath(nn.Module):
    """A residual branch that is dropped by rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> Any:
        keep = 0.8
        mask = (keep + torch.rand(x.shape[0], 1)).floor()
        return x + self.layer(x) / keep * mask


class OwnLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        output = self.layer(x)
        return {"loss": functional.mse_loss(output, labels), "output": output}


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(4, 3)

    def forward(self, pair: Any, scale: torch.Tensor) -> Any:
        return self.first(pair["left"]) + self.second(pair["right"][0]) * scale


class Reassigns(nn.Module):
    """A running mean that is assigned, not written to."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return self.layer(x - self.mean)


class Weights(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> Any:
        return functional.mse_loss(output, target) * torch.exp(-self.log) + self.log


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.count = torch.zeros(())

    def forward(self, x: torch.Tensor) -> Any:
        self.count += 1
        return self.layer(x) / self.count


class Decides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x) if x.sum() > 0 else -self.layer(x)


class Selects(nn.Module):
    """A result whose size depends on the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x[x[:, 0] > 0]).sum() + self.layer(x)


class Bags(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(11, 5, mode=mode), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.bag(x))


class Warps(nn.Module):
    """A spatial transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.head = nn.Linear(72, 6), nn.Linear(72, 3)

    def forward(self, x: torch.Tensor) -> Any:
        theta = self.place(x.flatten(1)).view(-1, 2, 3) * 0.1 + torch.eye(2, 3)
        grid = functional.affine_grid(theta, [x.shape[0], 2, 6, 6], align_corners=False)
        return self.head(functional.grid_sample(x, grid, align_corners=False).flatten(1))


def _weighted_norm(parametrized: bool) -> nn.Module:
    layer = nn.Linear(6, 8)
    if parametrized:
        nn.utils.parametrizations.weight_norm(layer)
    else:
        nn.utils.parametrizations.spectral_norm(layer)
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(8, 3))


def mlp(*middle: nn.Module, outputs: int = 3) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, outputs))


def freeze(name: str) -> Callable[[nn.Module], object]:
    def prepare(model: nn.Module) -> None:
        model.train()
        part = model.get_submodule(name).eval()
        part.requires_grad_(False)

    return prepare


_CLASS_WEIGHTS = torch.tensor([1.0, 2.0, 0.5, 3.0])
_FREE = {"dynamic_axes": {"x": {0: "batch", 1: "sequence"}, "target": {0: "batch", 1: "sequence"}}}
_IMAGE = {"dynamic_axes": {"x": {0: "batch", 2: "height", 3: "width"}, "target": {0: "batch"}}}

ZOO: dict[str, Entry] = {
    "mlp": Entry(mlp(nn.GELU()), vectors()),
    "layer norm": Entry(mlp(nn.LayerNorm(8), nn.SiLU()), vectors()),
    "rms norm": Entry(mlp(nn.RMSNorm(8), nn.Softplus()), vectors()),
    "dropout": Entry(mlp(nn.Dropout(0.3)), vectors()),
    "alpha dropout": Entry(mlp(nn.SELU(), nn.AlphaDropout(0.3)), vectors()),
    "feature dropout": Entry(images(lambda x: functional.dropout2d(x, 0.5)), shaped(2, 6, 6)),
    "transposed dropout": Entry(
        lambda: Of(
            lambda m, x: functional.dropout(m.first(x).transpose(0, 1), 0.5).transpose(0, 1),
            first=nn.Linear(6, 3),
        ),
        shaped(4, 6, target=(4, 3)),
    ),
    "rrelu": Entry(mlp(nn.RReLU()), vectors()),
    "batch norm": Entry(mlp(nn.BatchNorm1d(8)), vectors()),
    "frozen batch norm": Entry(mlp(nn.BatchNorm1d(8)), vectors(), prepare=freeze("1")),
    "evaluation mode": Entry(mlp(nn.Dropout(0.5)), vectors(), prepare=nn.Module.eval),
    "instance norm": Entry(images(nn.InstanceNorm2d(4, affine=False)), shaped(2, 6, 6)),
    "group norm": Entry(images(lambda x: functional.group_norm(x, 2)), shaped(2, 6, 6)),
    "reassigned buffer": Entry(Reassigns, vectors()),
    "max_norm": Entry(
        lambda: Of(
            lambda m, x: m.head(m.table(x).flatten(1)),
            table=nn.Embedding(11, 4, max_norm=1.0),
            head=nn.Linear(28, 3),
        ),
        tokens(),
    ),
    "embedding, padding": Entry(
        lambda: Of(
            lambda m, x: m.head(m.table(x).mean(1)),
            table=nn.Embedding(11, 4, padding_idx=0),
            head=nn.Linear(4, 3),
        ),
        tokens(),
    ),
    "embedding bag": Entry(lambda: Bags("mean"), tokens()),
    "embedding bag, maximum": Entry(lambda: Bags("max"), tokens()),
    "class weights": Entry(
        mlp(nn.ReLU(), outputs=4), classes(), nn.CrossEntropyLoss(_CLASS_WEIGHTS)
    ),
    "label smoothing": Entry(
        mlp(nn.ReLU(), outputs=4), classes(), nn.CrossEntropyLoss(label_smoothing=0.1)
    ),
    "captured tensor": Entry(
        mlp(nn.ReLU(), outputs=4),
        classes(),
        lambda output, target: functional.cross_entropy(output, target, _CLASS_WEIGHTS),
    ),
    "plain attribute": Entry(
        lambda: Of(
            lambda m, x: m.first(x * m.scale),
            first=nn.Linear(6, 3),
        ),
        vectors(),
        prepare=lambda model: setattr(model, "scale", torch.arange(6.0)),
    ),
    "loss with a parameter": Entry(mlp(nn.ReLU()), vectors(), Weights()),
    "binary cross entropy": Entry(
        mlp(nn.ReLU()),
        lambda rows: (torch.randn(rows, 6), torch.rand(rows, 3)),
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])),
    ),
    "cosine embedding loss": Entry(
        mlp(nn.ReLU()),
        lambda rows: (torch.randn(rows, 6), torch.randn(rows, 3), torch.ones(rows)),
        lambda output, other, sign: functional.cosine_embedding_loss(output, other, sign),
    ),
    "triplet loss": Entry(
        mlp(nn.ReLU()),
        lambda rows: (torch.randn(rows, 6), torch.randn(rows, 3), torch.randn(rows, 3)),
        lambda output, near, far: functional.triplet_margin_loss(output, near, far),
    ),
    "divergence": Entry(
        mlp(nn.LogSoftmax(-1), nn.Identity()),
        lambda rows: (torch.randn(rows, 6), torch.rand(rows, 3)),
        lambda output, target: functional.kl_div(output.log_softmax(-1), target.softmax(-1)),
    ),
    "huber": Entry(mlp(nn.ReLU()), vectors(), nn.HuberLoss()),
    "checkpoint": Entry(
        lambda: Of(
            lambda m, x: m.out(
                checkpoint(lambda h: torch.tanh(m.first(h)), x, use_reentrant=False)
            ),
            first=nn.Linear(6, 8),
            out=nn.Linear(8, 3),
        ),
        vectors(),
    ),
    "checkpoint, reentrant, dropout": Entry(
        lambda: Of(
            lambda m, x: m.out(
                checkpoint(lambda h: functional.dropout(m.first(h), 0.5), x, use_reentrant=True)
            ),
            first=nn.Linear(6, 8),
            out=nn.Linear(8, 3),
        ),
        vectors(),
    ),
    "encoder with a mask": Entry(Encoder, shaped(5, 8, target=(5, 8))),
    "encoder with dropout": Entry(lambda: Encoder(0.2), shaped(5, 8, target=(5, 8))),
    "encoder, free length": Entry(
        lambda: Encoder(0.2, mask=False), shaped(5, 8, target=(5, 8)), options=_FREE
    ),
    "decoder with a mask": Entry(
        Seq2Seq,
        lambda rows: (torch.randn(rows, 5, 8), torch.randn(rows, 4, 8), torch.randn(rows, 4, 8)),
    ),
    "attention, free length": Entry(
        lambda: Attention(0.3), shaped(5, 8, target=(5, 8)), options=_FREE
    ),
    "lstm": Entry(lambda: Recurrent(nn.LSTM), shaped(4, 5)),
    "lstm, two layers, dropout": Entry(
        lambda: Recurrent(nn.LSTM, num_layers=2, dropout=0.3), shaped(4, 5)
    ),
    "gru, both directions": Entry(lambda: Recurrent(nn.GRU, bidirectional=True), shaped(4, 5)),
    "rnn": Entry(lambda: Recurrent(nn.RNN), shaped(4, 5)),
    "autoencoder": Entry(Autoencoder, lambda rows: (x := torch.randn(rows, 6), x.clone()), _elbo),
    "drop path": Entry(DropPath, vectors(6, 6)),
    "gumbel": Entry(after(lambda h: functional.gumbel_softmax(h, tau=0.7)), vectors()),
    "permutation": Entry(after(lambda h: h + h[:, torch.randperm(8)]), vectors()),
    "own loss": Entry(
        OwnLoss,
        lambda rows: {"x": torch.randn(rows, 6), "labels": torch.randn(rows, 3)},
        None,
        {"targets": ("labels",)},
    ),
    "nested batch": Entry(
        Nested,
        lambda rows: {
            "pair": {"left": torch.randn(rows, 6), "right": [torch.randn(rows, 4)]},
            "scale": torch.tensor(0.5),
            "target": torch.randn(rows, 3),
        },
    ),
    "bytes": Entry(
        lambda: Of(lambda m, x: m.first(x.float() / 255), first=nn.Linear(6, 3)),
        lambda rows: (torch.randint(0, 256, (rows, 6), dtype=torch.uint8), torch.randn(rows, 3)),
    ),
    "metrics": Entry(
        mlp(nn.ReLU()),
        vectors(),
        lambda output, target: (
            functional.mse_loss(output, target),
            {"error": (output - target).abs().mean()},
        ),
    ),
    "convolutions": Entry(
        images(lambda x: functional.max_pool2d(functional.relu(x), 2)), shaped(2, 6, 6)
    ),
    "fully convolutional, free size": Entry(
        lambda: Of(
            lambda m, x: m.out(functional.relu(m.first(x)).mean((2, 3))),
            first=nn.Conv2d(2, 4, 3, stride=2, padding=1),
            out=nn.Linear(4, 3),
        ),
        shaped(2, 6, 6),
        options=_IMAGE,
    ),
    "transposed convolution": Entry(
        lambda: Of(
            lambda m, x: m.second(m.first(x)).mean((2, 3)),
            first=nn.ConvTranspose2d(2, 4, 3, stride=2),
            second=nn.Conv2d(4, 3, 1),
        ),
        shaped(2, 5, 5),
    ),
    "adaptive average": Entry(
        images(lambda x: functional.adaptive_avg_pool2d(x, (3, 4))), shaped(2, 7, 6)
    ),
    "adaptive maximum": Entry(
        images(lambda x: functional.adaptive_max_pool2d(x, (3, 2))), shaped(2, 7, 6)
    ),
    "average, ceil mode": Entry(
        images(lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True)), shaped(2, 6, 6)
    ),
    "average, padding not counted": Entry(
        images(lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        shaped(2, 6, 6),
    ),
    "maximum in 3 dimensions": Entry(
        volumes(lambda x: functional.max_pool3d(x, 2)), shaped(1, 4, 4, 4)
    ),
    "average in 3 dimensions": Entry(
        volumes(lambda x: functional.avg_pool3d(x, 2)), shaped(1, 4, 4, 4)
    ),
    "maximum in 1 dimension": Entry(
        after(lambda h: functional.max_pool1d(h.unsqueeze(1), 2)), vectors()
    ),
    "unfold": Entry(images(lambda x: functional.unfold(x, 2)), shaped(2, 4, 4)),
    "pixel shuffle": Entry(images(lambda x: functional.pixel_shuffle(x, 2)), shaped(2, 4, 4)),
    "upsampling": Entry(
        images(lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear")),
        shaped(2, 4, 4),
    ),
    "grid sample": Entry(Warps, shaped(2, 6, 6)),
    "weight norm": Entry(lambda: _weighted_norm(True), vectors()),
    "spectral norm": Entry(lambda: _weighted_norm(False), vectors()),
    "product": Entry(after(lambda h: h.prod(1, keepdim=True)), vectors()),
    "cumulative product": Entry(after(lambda h: h.cumprod(1)), vectors()),
    "cumulative sum": Entry(after(lambda h: h.cumsum(1)), vectors()),
    "distances": Entry(
        after(lambda h: torch.cdist(h.view(-1, 2, 4), h.view(-1, 2, 4) + 1.0)), vectors()
    ),
    "sort": Entry(after(lambda h: h.sort(-1)[0]), vectors()),
    "top k": Entry(after(lambda h: h.topk(3)[0]), vectors()),
    "logsumexp": Entry(after(lambda h: h.logsumexp(1, keepdim=True)), vectors()),
    "einsum": Entry(after(lambda h: torch.einsum("bi,bj->bij", h, h)), vectors()),
    "tied weights": Entry(
        lambda: Of(
            lambda m, x: functional.linear(torch.tanh(m.first(x)), m.first.weight.T)[:, :3],
            first=nn.Linear(6, 8),
        ),
        vectors(),
    ),
    "branch on data": Entry(Decides, vectors(), refused="control flow that depends on data"),
    "size by data": Entry(Selects, vectors()),
    "written attribute": Entry(Counter, vectors(), refused="neither a parameter nor a buffer"),
    "fixed size": Entry(
        lambda: Of(lambda m, x: m.first(x).reshape(4, 3), first=nn.Linear(6, 3)),
        vectors(),
        refused="the size 'batch' is not free",
    ),
}

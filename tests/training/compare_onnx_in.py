"""Inference models that torch exported as ONNX, trained from the file, beside their own modules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform.runtime.onnx_session import open_session
from closedform.training.from_onnx import OnnxModule, read_module
from closedform.training.to_onnx.arrays import array_of
from closedform.training.to_onnx.onnx_registry import quiet
from closedform.training.to_onnx.trace import trace
from tests.training.zoo import Recurrent

pytestmark = pytest.mark.packages()
TOLERANCE = 1e-5
"""Of the largest gradient: roundings of sums in another order."""


class Convolutions(nn.Module):
    """A residual block with a depthwise convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.second, self.head = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = torch.relu(self.norm(self.first(x)))
        x = functional.max_pool2d(x + self.second(x), 2)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Segments(nn.Module):
    """Down, up by a transposed convolution and by interpolation, and across."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = (
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
        )
        self.up, self.out = nn.ConvTranspose2d(4, 4, 2, stride=2), nn.Conv2d(8, 2, 1)
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x: torch.Tensor) -> Any:
        low = functional.silu(self.norm(self.down(x)))
        wide = functional.interpolate(self.middle(low), scale_factor=2, mode="bilinear")
        return self.out(torch.cat([self.up(low), wide], 1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 3)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.encoder(self.table(x)).mean(1))


def _normed(inputs: int, outputs: int, size: int, **options: Any) -> list[nn.Module]:
    options.setdefault("padding", size // 2)
    return [nn.Conv2d(inputs, outputs, size, bias=False, **options), nn.BatchNorm2d(outputs)]


class ResNet(nn.Module):
    """Two basic blocks, the second with a stride and a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_normed(3, 8, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.same = nn.Sequential(*_normed(8, 8, 3), nn.ReLU(), *_normed(8, 8, 3))
        self.down = nn.Sequential(*_normed(8, 16, 3, stride=2), nn.ReLU(), *_normed(16, 16, 3))
        self.across, self.head = nn.Sequential(*_normed(8, 16, 1, stride=2)), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        x = torch.relu(x + self.same(x))
        x = torch.relu(self.across(x) + self.down(x))
        return self.head(x.mean((2, 3)))


class MobileNet(nn.Module):
    """An inverted residual with squeeze and excitation, and hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_normed(3, 8, 3, stride=2), nn.Hardswish())
        self.wide = nn.Sequential(*_normed(8, 24, 1), nn.Hardswish())
        self.deep = nn.Sequential(*_normed(24, 24, 5, groups=24), nn.ReLU6())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(24, 8, 1),
            nn.ReLU(),
            nn.Conv2d(8, 24, 1),
            nn.Hardsigmoid(),
        )
        self.narrow, self.head = nn.Sequential(*_normed(24, 8, 1)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        wide = self.deep(self.wide(x))
        x = x + self.narrow(wide * self.squeeze(wide))
        return self.head(x.mean((2, 3)))


class ConvNeXt(nn.Module):
    """A block with layer norm over channels and a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, 8, 7, padding=3, groups=8)
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)
        self.scale, self.head = nn.Parameter(torch.full((8,), 0.5)), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.stem(x)
        inner = self.norm(self.deep(x).permute(0, 2, 3, 1))
        inner = self.scale * self.narrow(functional.gelu(self.wide(inner)))
        return self.head((x + inner.permute(0, 3, 1, 2)).mean((2, 3)))


class VisionTransformer(nn.Module):
    """Patches, a class token, places, and a pre-norm encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.token, self.places = (nn.Parameter(torch.randn(1, n, 8)) for n in (1, 17))
        layer = nn.TransformerEncoderLayer(
            8, 2, 16, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Logits(nn.Module):
    """A model of transformers, with one output."""

    def __init__(self, model: nn.Module, key: str = "logits") -> None:
        super().__init__()
        self.model, self.key = model, key

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)[self.key]


def _transformers(name: str, config: str, **sizes: Any) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        transformers = pytest.importorskip("transformers")
        made = getattr(transformers, config)(**sizes)
        return Logits(getattr(transformers, name)(made))

    return made


def _tokens() -> torch.Tensor:
    return torch.randint(1, 40, (4, 6))  # without 0: a file does not hold padding_idx


_SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}

MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)),
        lambda: torch.randn(4, 6),
    ),
    "convolutions": (Convolutions, lambda: torch.randn(4, 2, 8, 8)),
    "segmentation": (Segments, lambda: torch.randn(4, 1, 8, 8)),
    "encoder": (Encoder, lambda: torch.randint(0, 11, (4, 7))),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(4, 5, 5)),
    "lstm, both directions": (
        lambda: Recurrent(nn.LSTM, bidirectional=True),
        lambda: torch.randn(4, 5, 5),
    ),
    "resnet": (ResNet, lambda: torch.randn(4, 3, 16, 16)),
    "mobilenet": (MobileNet, lambda: torch.randn(4, 3, 16, 16)),
    "convnext": (ConvNeXt, lambda: torch.randn(4, 3, 16, 16)),
    "vit": (VisionTransformer, lambda: torch.randn(4, 3, 16, 16)),
    "bert": (
        _transformers(
            "BertForSequenceClassification",
            "BertConfig",
            hidden_size=16,
            intermediate_size=32,
            **_SMALL,
        ),
        _tokens,
    ),
    "gpt2": (
        _transformers(
            "GPT2LMHeadModel", "GPT2Config", n_embd=16, n_layer=1, n_head=2, vocab_size=40
        ),
        _tokens,
    ),
    "llama": (
        _transformers(
            "LlamaForCausalLM", "LlamaConfig", hidden_size=16, intermediate_size=32, **_SMALL
        ),
        _tokens,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_file_are_those_of_its_module(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, draw = MODELS[name]
    model, x = make().eval(), draw()
    path = tmp_path / "model.onnx"
    with quiet():
        torch.onnx.export(
            model,
            (x,),
            path,
            dynamo=True,
            optimize=False,  # which folds batch normalisations, transposes and casts into weights
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train()  # as the file's, whose scales are trained
    target = torch.randn_like(model(x))
    module = read_module(path, ["*"])
    traced = trace(module, functional.mse_loss, (x, target))
    _compare(traced, model, module, x, target)


def _compare(
    traced: Any, model: nn.Module, module: OnnxModule, x: torch.Tensor, target: torch.Tensor
) -> None:
    functional.mse_loss(model(x), target).backward()
    session = open_session(traced.step)
    feeds = {f"param.{n}": v for n, v in traced.params.items()}
    feeds |= {f"buffer.{n}": v for n, v in traced.buffers.items()}
    feeds |= {f"batch.{module.input_names[0]}": array_of(x), "batch.target": array_of(target)}
    feeds = {name: feeds[name] for name in session.inputs}
    found = dict(zip(session.outputs, session.raw.run(None, feeds), strict=True))
    wanted = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    largest = max(np.abs(grad).max() for grad in wanted.values())
    same = 0
    for name, grad in wanted.items():
        if f"grad.{name}" in found:
            distance = np.abs(found[f"grad.{name}"] - grad).max()
            assert distance <= TOLERANCE * largest, (name, distance, largest)
            same += 1
    print(f"\n{same} of {len(wanted)} gradients by name, largest {largest:.2g}")
    assert same >= len(wanted) / 2

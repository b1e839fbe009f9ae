"""Backward operators written with those that ONNX has, beside torch's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx import decompositions, elementary
from closedform.training.to_onnx.onnx_registry import registry
from closedform.training.to_onnx.trace import trace

_LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "plain": (nn.Conv2d(2, 3, 3), (7, 6)),
    "stride": (nn.Conv2d(2, 3, 3, stride=2), (8, 7)),
    "padding": (nn.Conv2d(2, 3, (3, 2), padding=(2, 1), stride=(1, 2)), (5, 6)),
    "dilation": (nn.Conv2d(2, 3, 3, dilation=2, padding=1), (8, 7)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2, stride=2, bias=False), (7, 8)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4, padding=1), (6, 5)),
    "one dimension": (nn.Conv1d(2, 3, 4, stride=3), (13,)),
    "three dimensions": (nn.Conv3d(2, 3, 2, stride=2), (4, 5, 4)),
    "transposed": (nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1, output_padding=1), (4, 5)),
    "transposed groups": (nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2), (4, 5)),
    "max": (nn.Sequential(nn.Conv2d(2, 2, 1), nn.MaxPool2d(3, stride=2, padding=1)), (7, 8)),
    "average": (nn.Sequential(nn.Conv2d(2, 2, 1), nn.AvgPool2d(2)), (6, 7)),
    "average padded": (nn.Sequential(nn.Conv2d(2, 2, 1), nn.AvgPool2d(3, 2, padding=1)), (6, 7)),
    "adaptive": (nn.Sequential(nn.Conv2d(2, 2, 1), nn.AdaptiveAvgPool2d(1)), (6, 7)),
    "batch norm": (nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)), (4, 5)),
    "group norm": (nn.Sequential(nn.Conv2d(2, 4, 2), nn.GroupNorm(2, 4)), (4, 5)),
    "limits": (nn.Sequential(nn.Conv2d(2, 3, 2), nn.Hardtanh(-0.2, 0.3), nn.ReLU6()), (4, 5)),
    "embedding": (nn.Sequential(nn.Flatten(), nn.Linear(40, 3)), (4, 5)),
}
_CHANNELS = {"groups": 4, "depthwise": 4, "transposed groups": 4}


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", _LAYERS)
def test_gradients_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    layer, space = _LAYERS[name]
    # A layer before it, so that the gradient in its input is asked for, too.
    channels = _CHANNELS.get(name, 2)
    scaled = _Scaled(layer, channels, len(space))
    example = torch.randn(3, channels, *space)
    rows = torch.randn(5, channels, *space)
    weight = torch.randn(5, *layer(rows).shape[1:])
    traced = trace(scaled, _weighted, (example, torch.randn(3, *weight.shape[1:])))
    session = open_session(traced.step)
    feeds = {f"param.{key}": value for key, value in traced.params.items()}
    feeds |= {f"buffer.{key}": value for key, value in traced.buffers.items()}
    feeds |= {"batch.x": rows.numpy(), "batch.weight": weight.numpy()}
    feeds = {key: feeds[key] for key in session.inputs}
    found = dict(zip(session.outputs, session.raw.run(None, feeds), strict=True))
    scaled.train()
    _weighted(scaled(rows), weight).backward()
    for key, parameter in scaled.named_parameters():
        assert parameter.grad is not None
        wanted = parameter.grad.numpy()
        # Sums of up to a few hundred float32 products, in another order.
        assert found[f"grad.{key}"] == pytest.approx(wanted, rel=1e-4, abs=1e-5), key
    for key in traced.changed_buffers:
        wanted = dict(scaled.named_buffers())[key].numpy()
        assert found[f"next.buffer.{key}"] == pytest.approx(wanted, rel=1e-5), key


def test_batch_norm_tells_which_buffers_change() -> None:
    layer, space = _LAYERS["batch norm"]
    traced = trace(layer, _weighted, (torch.randn(3, 2, *space), torch.randn(3, 3, 3, 4)))
    assert set(traced.changed_buffers) == {
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    }


class _Scaled(nn.Module):
    def __init__(self, layer: nn.Module, channels: int, axes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels, *[1] * axes))
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x * self.scale)
        return result


def _weighted(output: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return (output * weight).sum()


class _Draws(TorchDispatchMode):
    """Gives torch's random operators the numbers that the graph is given."""

    def __init__(self, numbers: list[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.left = list(numbers)

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.ops.aten.bernoulli_.float:
            probability = args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
            return args[0].copy_(self.left.pop(0) < probability)
        return function(*args, **(kwargs or {}))


class _SelfAttention(nn.Module):
    """Attention as it is in a layer of an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x, x, x, need_weights=False)[0]
        return result


def _encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)


@pytest.mark.parametrize(
    ("layer", "count"),
    [(_SelfAttention, 2), pytest.param(_encoder, 5, marks=pytest.mark.exhaustive)],
)
def test_dropout_keeps_what_torch_keeps_of_the_same_numbers(
    layer: Callable[[], nn.Module], count: int
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.25), nn.Unflatten(1, (2, 4)), layer())
    rows, weight = torch.randn(5, 6), torch.randn(5, 2, 4)
    traced = trace(model, _weighted, (rows[:3], weight[:3]))
    session = open_session(traced.step)
    draws = {
        key: torch.rand([5 if size is None else size for size in port.shape])
        for key, port in session.inputs.items()
        if key.startswith("random.")
    }
    feeds = {f"param.{key}": value for key, value in traced.params.items()}
    feeds |= {"batch.input": rows.numpy(), "batch.weight": weight.numpy()}
    feeds |= {key: value.numpy() for key, value in draws.items()}
    found = dict(zip(session.outputs, session.raw.run(None, feeds), strict=True))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        with _Draws(list(draws.values())) as given:
            loss = _weighted(model(rows), weight)
        assert len(draws) == count
        assert given.left == []
        loss.backward()
    # float32 sums in another order.
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-4)
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None
        close = pytest.approx(parameter.grad.numpy(), rel=1e-3, abs=1e-5)
        assert found[f"grad.{key}"] == close, key


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    layer = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    batch = (torch.randn(3, 4), torch.tensor([0, 1, 2]))
    trace(layer, functional.cross_entropy, batch)
    assert not layer.training
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())
    assert not any(module._forward_hooks for module in layer.modules())


@pytest.mark.parametrize("operator", decompositions._WITH_ATTRIBUTES, ids=str)
def test_an_operator_that_is_kept_in_float32_has_an_onnx_form(operator: Any) -> None:
    """Torch would decompose one without: the rule for float64 hides its decomposition."""
    assert registry(opset=21).is_registered(operator)


@pytest.mark.parametrize(
    ("function", "reference"),
    [(elementary._lgamma, torch.lgamma), (elementary._digamma, torch.digamma)],
)
def test_gamma_functions_are_near_those_of_torch_next_to_their_poles(
    function: Callable[..., torch.Tensor], reference: Callable[..., torch.Tensor]
) -> None:
    # At these distances from the poles the sine of the reflection has lost all digits if its
    # argument is rounded.
    distances = 2.0 ** -torch.arange(1, 22, dtype=torch.float32)
    poles = -torch.arange(6, dtype=torch.float32).unsqueeze(1)
    values = torch.cat([(poles + d).flatten() for d in (distances, -distances)])
    values = torch.cat([values[values != torch.round(values)], torch.linspace(0.5, 30, 3001)])
    exact = reference(values.double())
    distance = (function(values).double() - exact).abs() / (1 + exact.abs())
    assert distance.max() < 2e-6

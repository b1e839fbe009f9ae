"""A step beside torch before it is exported: in its dtype, with its draws, judged by float64."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform.errors import ExportError
from closedform.runtime.onnx_session import open_session, run_on
from closedform.training.to_onnx import attention, comparison, rounding
from closedform.training.to_onnx.trace import trace


class _Attention(nn.Module):
    """A causal attention by a boolean mask, with dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.mixed, self.dropout = nn.Linear(8, 24), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mixed(x).chunk(3, -1)
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.dropout
        )


def _loss(output: torch.Tensor) -> torch.Tensor:
    return (output.float() ** 2).mean()


def _added(mask: Any, *_: Any, **__: Any) -> Any:
    """A fault: the mask is added as it is."""
    return mask


@pytest.mark.parametrize("is_faulty", [False, True])
@pytest.mark.parametrize(
    ("dtype", "dropout", "is_widened"),
    [
        (torch.float16, 0.0, False),
        pytest.param(torch.float16, 0.3, False, marks=pytest.mark.exhaustive),
        pytest.param(torch.bfloat16, 0.3, True, marks=pytest.mark.exhaustive),
        (torch.float32, 0.3, False),
    ],
)
def test_a_mask_that_is_added_as_zeros_and_ones_is_an_error(
    dtype: torch.dtype,
    dropout: float,
    is_widened: bool,
    is_faulty: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model, x = _Attention(dropout).to(dtype), torch.randn(4, 6, 8)
    batch = (x if is_widened else x.to(dtype),)
    if not is_faulty:
        trace(model, _loss, batch, is_widened=is_widened)
        return
    monkeypatch.setattr(attention, "_bias", _added)
    with pytest.raises(ExportError, match=r"differs from torch in .* off from float64, torch "):
        trace(model, _loss, batch, is_widened=is_widened)


class _Chaotic(nn.Module):
    """A product whose roundings are a part of the result."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.first, self.factor = nn.Linear(200, 7), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.first(x) * self.factor)


def _equal_weights() -> nn.Module:
    """A net whose channels are all equal: what normalisations divide by is rounding noise."""
    model = nn.Sequential(
        *(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, eps=1e-12), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 6, 3), nn.BatchNorm2d(6, eps=1e-12), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(6 * 16, 4), nn.LayerNorm(4, eps=1e-12)),
    )
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.01)
    return model


CHAOTIC: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "sine of large products": (lambda: _Chaotic(1e5), (4, 200)),
    "equal weights": (_equal_weights, (3, 3, 14, 14)),
}


@pytest.mark.parametrize("name", CHAOTIC)
def test_roundings_that_torch_has_too_are_accepted(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    make, shape = CHAOTIC[name]
    with caplog.at_level(logging.INFO, "closedform.training"):
        trace(make(), _loss, (torch.randn(shape),))
    assert "as torch does from float64 or itself" in caplog.text


@pytest.mark.parametrize("is_double_possible", [True, False])
def test_an_error_beyond_that_of_torch_is_a_defect(
    is_double_possible: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)

    def run_wrongly(session: Any, feeds: Any) -> list[Any]:
        return [result * 1.5 for result in run_on(session, feeds)]

    monkeypatch.setattr(comparison, "run_on", run_wrongly)
    if not is_double_possible:
        monkeypatch.setattr(comparison, "LARGEST", 0)
    told = "off from float64, torch " if is_double_possible else "a rounding of the inputs changes"
    with pytest.raises(ExportError, match=told) as raised:
        trace(_Chaotic(1e3), _loss, (torch.randn(4, 200),))
    assert "defect of closedform" in str(raised.value)


def _written(value: torch.Tensor, weight: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    space = torch.zeros(value.shape, dtype=constant.dtype)
    space[:, 0] = functional.linear(value, weight)[:, 0]
    space[:, 1:] = value[:, 1:] / constant[1:]
    return space


def _profiled(x: torch.Tensor, weight: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("part"):  # its operators have an object of no dtype
        return functional.linear(x, weight, constant)


NARROW_PARTS: dict[str, Callable[..., torch.Tensor]] = {
    "a product": lambda x, w, c: functional.linear(x, w, c),
    "a convolution": lambda x, w, c: functional.conv1d(x[None], w.unsqueeze(-1) * c, c),
    "statistics": lambda x, w, c: functional.batch_norm(x @ w, c, c * c, c, c),
    "a cast": lambda x, w, c: (x @ w).to(c.dtype).sin() / c,
    "a new tensor": lambda x, w, c: x @ w + torch.full((6,), 1 / 3, dtype=c.dtype),
    "a transposed convolution": lambda x, w, c: functional.conv_transpose1d(
        x[None], w.unsqueeze(-1), c
    ),
    "a norm": lambda x, w, c: functional.layer_norm(x @ w, (6,), c, c),
    "a write": _written,
    "integers": lambda x, w, c: x @ w * torch.arange(6).to(c.dtype).sqrt(),
    "a view": lambda x, w, c: x @ w * c[::2].repeat(2).view(1, 6),
    "a profiled part": _profiled,
}


@pytest.mark.parametrize("name", NARROW_PARTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_model_with_constants_and_casts_runs_in_float64(name: str, dtype: torch.dtype) -> None:
    """The gradient in the weight is that of the same function with constants in float64."""
    torch.manual_seed(0)
    x, constant = torch.randn(6, 6, dtype=torch.float64), (torch.rand(6) + 0.5).to(dtype)
    gradients = []
    for wide, given in ((rounding.in_float64(), constant), (nullcontext(), constant.double())):
        weight = torch.linspace(-1, 1, 36, dtype=torch.float64).reshape(6, 6).requires_grad_()
        with wide:
            NARROW_PARTS[name](x, weight, given).square().sum().backward()
        assert weight.grad is not None
        gradients.append(weight.grad)
    assert gradients[0].dtype is torch.float64
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-12)


SATURATED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": torch.sigmoid,
    "logarithm of a sigmoid": lambda x: torch.sigmoid(x).log(),
    "cross entropy of a one": lambda x: functional.binary_cross_entropy(
        torch.sigmoid(x), torch.ones_like(x), reduction="sum"
    ),
    "cross entropy of a zero": lambda x: functional.binary_cross_entropy(
        torch.sigmoid(x), torch.zeros_like(x), reduction="sum"
    ),
    "gate": lambda x: functional.glu(torch.stack([torch.ones_like(x), x], 1), 1),
    "silu": functional.silu,
}


class _Pointwise(nn.Module):
    """A function of the parameters, at a factor of 1."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.linspace(-60, 15, 151)), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight * x[0])


@pytest.mark.parametrize("name", SATURATED)
def test_saturated_sigmoids_have_the_gradient_of_torch(name: str) -> None:
    """onnxruntime's Sigmoid is 0 from −16 on, where torch still has all digits."""
    model = _Pointwise(SATURATED[name])
    batch = (torch.ones(2, 151),)
    traced = trace(model, lambda value: value.sum(), batch)
    session = open_session(traced.step)
    feeds = {"param.weight": model.weight.detach().numpy(), "batch.x": batch[0].numpy()}
    found = dict(zip(session.outputs, run_on(session, feeds), strict=True))["grad.weight"]
    model(batch[0]).sum().backward()
    assert model.weight.grad is not None
    # Some roundings: 1 − σ, and the sum of two parts in SiLU's derivative, which is 0 at −1.28.
    np.testing.assert_allclose(found, model.weight.grad.numpy(), rtol=1e-5, atol=1e-30)

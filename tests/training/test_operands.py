"""Numbers and sizes as operands, indices of any type, and layouts, beside torch.

A function is traced as a part of a model for three rows and run for five.
"""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import nn
from torch.nn import functional

from closedform.runtime.onnx_session import open_session
from closedform.training.to_onnx.trace import trace

Tensor = torch.Tensor
Function = Callable[[Tensor], Tensor]


class Positive(nn.Module):
    """A function of positive numbers that depend on a weight."""

    def __init__(self, function: Function, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(*shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(torch.sigmoid(self.weight * x) + 0.5)


def squares(output: Tensor) -> Tensor:
    return (output * output).mean()


def check_gradients(function: Function, *shape: int) -> None:
    torch.manual_seed(0)
    model = Positive(function, shape)
    x = torch.randn(5, *shape)
    session = open_session(trace(model, squares, (x[:3],), check=False).step)
    feeds = {"param.weight": model.weight.detach().numpy(), "batch.x": x.numpy()}
    results = dict(zip(session.outputs, session.raw.run(None, feeds), strict=True))
    loss = squares(model(x))
    loss.backward()
    assert model.weight.grad is not None
    # Sums of up to a hundred float32 products, in another order.
    assert results["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert results["grad.weight"] == pytest.approx(model.weight.grad.numpy(), rel=1e-4, abs=1e-6)


def sums(function: Callable[[Tensor], list[Tensor]]) -> Function:
    """Several results as one, each with a factor: a wrong one cannot cancel another."""
    return lambda h: torch.stack([(i + 1) * r for i, r in enumerate(function(h))]).sum(0)


_ARITHMETIC: Mapping[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "div": torch.div,
    "mul": torch.mul,
    "sub": torch.sub,
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", _ARITHMETIC)
def test_a_number_or_a_size_is_either_operand(name: str) -> None:
    operator = _ARITHMETIC[name]

    def both(h: Tensor) -> list[Tensor]:
        whole = (4 * h).long()  # of at least 2
        numbers = 0.5, 2, h.shape[0], 0.25 * h.shape[0]
        firsts = [operator(number, h) * h for number in numbers]
        seconds = [operator(h, number) * h for number in numbers]
        return firsts + seconds + [h * operator(number, whole) for number in numbers]

    check_gradients(sums(both), 4)


_CHOICES: Mapping[str, Callable[[Tensor], list[Tensor]]] = {
    "powers": lambda h: [torch.pow(0.5, h), torch.pow(2, h), torch.pow(h, 2), torch.pow(h, 0.5)],
    "remainders": lambda h: [h * torch.remainder(7.5, (4 * h).long()), torch.fmod(h, 0.7)],
    "choices": lambda h: [
        torch.where(h > 1, 0.5, h),
        torch.where(h > 1, h, 0.5),
        torch.where(h > 1, h.shape[0], h),
        h * torch.where(h > 1, 1, 2),
    ],
    "other functions": lambda h: [torch.rsub(h, 2.0), torch.xlogy(2.0, h), torch.xlogy(h, 2.0)],
}


@pytest.mark.parametrize("name", _CHOICES)
def test_a_number_is_an_operand_of(name: str) -> None:
    check_gradients(sums(_CHOICES[name]), 4)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices_are_of_any_integer_type(dtype: torch.dtype) -> None:
    places = torch.tensor([0, 2, 2], dtype=dtype)

    def indexed(h: Tensor) -> Tensor:
        written = torch.zeros_like(h).index_put((places[1:], places[:2]), h[:2, 0])
        added = torch.zeros(4, 4).index_put((places,), h[:3], accumulate=True)
        return (h * written).sum(0) + h[places, 1:].mean() * added.sum(0)

    check_gradients(indexed, 4)


_WINDOWS: Mapping[str, Function] = {
    "overlap": lambda h: h.unfold(1, 3, 1),
    "gaps": lambda h: h.unfold(1, 2, 3),
    "two axes": lambda h: h.unfold(1, 4, 2).unfold(2, 2, 2),
    "the last axis": lambda h: h.unfold(-1, 2, 1) * h.unfold(-1, 2, 1).shape[0],
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", _WINDOWS)
def test_windows_of_an_axis_are_those_of_torch(name: str) -> None:
    check_gradients(_WINDOWS[name], 7, 4)


def last(h: Tensor) -> Tensor:
    """Images or volumes whose channels are last, as torch sees them: permuted."""
    return h.movedim(-1, 1)


_POOLS: Mapping[str, tuple[Function, tuple[int, ...]]] = {
    "one window": (lambda h: functional.adaptive_avg_pool2d(last(h), 1), (3, 4, 2)),
    "one window, pairs": (lambda h: functional.adaptive_avg_pool2d(last(h), (1, 1)), (3, 4, 2)),
    "one row": (lambda h: functional.adaptive_avg_pool2d(last(h), (1, 3)), (3, 4, 2)),
    "windows": (lambda h: functional.adaptive_avg_pool2d(last(h), 2), (3, 4, 2)),
    "maximum": (lambda h: functional.adaptive_max_pool2d(last(h), 1), (3, 4, 2)),
    "channels_last": (
        lambda h: functional.adaptive_avg_pool2d(h.to(memory_format=torch.channels_last), 1),
        (2, 3, 4),
    ),
    "one axis": (lambda h: functional.adaptive_avg_pool1d(last(h), 1), (4, 2)),
    "three axes": (lambda h: functional.adaptive_avg_pool3d(last(h), 1), (3, 4, 2, 2)),
    "three axes, windows": (lambda h: functional.adaptive_avg_pool3d(last(h), 2), (3, 4, 2, 2)),
}


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", _POOLS)
def test_pools_of_permuted_tensors_are_those_of_torch(name: str) -> None:
    function, shape = _POOLS[name]
    check_gradients(function, *shape)

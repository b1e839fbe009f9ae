"""Small models that the tests of the torch drop-ins train."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

COMPILING = "ignore:.*torch.jit.script_method. is deprecated:DeprecationWarning"
"""The warning of torch 2.13 about itself when its compiler is imported."""

SHAPES = ((), (0,), (5,), (3, 4), (2, 3, 4))


def parameters(
    shapes: Iterable[tuple[int, ...]] = SHAPES,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> list[nn.Parameter]:
    """Parameters with normally distributed values, which are equal on all devices."""
    generator = torch.Generator().manual_seed(seed)
    return [
        nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype))
        for shape in shapes
    ]


def steps(
    optimizer: torch.optim.Optimizer,
    params: Iterable[nn.Parameter],
    count: int,
    *,
    seed: int = 1,
    after: Callable[[], object] | None = None,
) -> None:
    """Steps with gradients that the seed decides."""
    generator = torch.Generator().manual_seed(seed)
    listed = list(params)
    for _ in range(count):
        for param in listed:
            drawn = torch.randn(param.shape, generator=generator, dtype=torch.float64)
            param.grad = drawn.to(param.device, param.dtype)
        optimizer.step()
        if after is not None:
            after()


def values(params: Iterable[nn.Parameter]) -> list[Tensor]:
    """Copies of the values of parameters."""
    return [param.detach().clone() for param in params]


def largest_difference(one: Iterable[Tensor], other: Iterable[Tensor]) -> float:
    """The largest difference of two lists of tensors."""
    pairs = [(a.detach(), b.detach()) for a, b in zip(one, other, strict=True)]
    return max(float((a - b).abs().max()) for a, b in pairs if a.numel())


def two_groups(**options: object) -> torch.optim.Optimizer:
    """torch's SGD with two groups: the first is tagged, the second has a rate of its own."""
    first, second = parameters([(2,), (3,)])
    groups = [{"params": [first], "tags": "body"}, {"params": [second], "lr": 0.2}]
    return torch.optim.SGD(groups, **{"lr": 0.1, "momentum": 0.9, **options})  # type: ignore[arg-type]

"""One rule in the backends of the Optimizer and in onnxruntime, on all shapes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import closedform as cf
from closedform.language import UpdateRule
from closedform.torch import Optimizer
from tests.support.rules import accepts
from tests.torch.training import SHAPES, parameters, steps, values

LIBRARY: Mapping[str, Any] = {
    name: getattr(cf.optimizers, name)
    for name in cf.optimizers.__all__
    # MoMo takes the loss, a number; others with inputs take a tensor.
    if name != "momo" and not getattr(cf.optimizers, name)().inputs
}
"""The library with its defaults, but for rules that take more than the gradient."""

FLIPS = {"lion", "signum", "rprop", "tiger", "muon"}
"""Rules with a sign, or bfloat16 iterations: an ulp before it is a whole step after it."""

ESTIMATES = {"prodigy", "d_adapt_adam", "d_adapt_sgd"}
"""Rules whose rate is a state, grown from sums over the model: an error there grows with it."""


def shapes_of(rule: UpdateRule) -> list[tuple[int, ...]]:
    """The shapes that a rule is for."""
    return [shape for shape in SHAPES if accepts(rule, shape)]


def trained(rule: UpdateRule, backend: str, count: int) -> list[Tensor]:
    """The parameters after so many steps in a backend, or in onnxruntime."""
    params = parameters(shapes_of(rule))
    if backend == "onnxruntime":
        named = {f"p{number}": param.detach().numpy() for number, param in enumerate(params)}
        session = cf.OptimizerSession(rule, named)
        generator = torch.Generator().manual_seed(1)  # the gradients of ``steps``
        for _ in range(count):
            session.step(
                {
                    name: torch.randn(value.shape, generator=generator, dtype=torch.float64)
                    .float()
                    .numpy()
                    for name, value in named.items()
                }
            )
        return [torch.tensor(session.params[name]) for name in named]
    optimizer = Optimizer(params, rule, backend=backend)
    steps(optimizer, params, count)
    return values(params)


def distance(rule: UpdateRule, name: str, backend: str, count: int) -> tuple[float, float]:
    """The largest difference of a backend to eager, and what it may be.

    A step rounds some ten times, by 6e-8 of numbers of about 1, and the states carry it on. Where
    signs decide, a difference of one ulp may turn an element by a whole step, twice the rate: three
    times at most.
    """
    eager, other = trained(rule, "eager", count), trained(rule, backend, count)
    found = max(
        (float((a - b).abs().max()) for a, b in zip(eager, other, strict=True) if a.numel()),
        default=0.0,
    )
    rate = rule.hyperparameters.get("lr", 0.01)
    bound = 10 * count * 6e-8 * (10 if name in ESTIMATES else 1)
    return found, bound + (3 * 2 * float(rate) if name in FLIPS else 0)


def is_finite(values: list[Tensor]) -> bool:
    """Whether all values are finite."""
    return all(bool(torch.isfinite(value).all()) for value in values)

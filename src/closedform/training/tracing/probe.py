"""One step of a model in torch itself, with given random numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from closedform.training.tracing.forward import Forward
from closedform.training.tracing.isolation import Writes, no_other_randomness
from closedform.training.tracing.onnx_program import Tensors
from closedform.training.tracing.random_operators import Distribution, Drawn, Sizes


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a step in torch.

    Attributes:
        loss: The loss.
        metrics: Further results of the loss.
        grads: The gradients by parameter.
        buffers: The buffers afterwards.
        draws: The random numbers, in the order of the draws.
    """

    loss: torch.Tensor
    metrics: Tensors
    grads: Tensors
    buffers: Tensors
    draws: list[torch.Tensor]


def run_eagerly(
    of: Forward, params: Tensors, fixed: Tensors, tensors: Tensors, *, seed: int = 0
) -> Run:
    """Returns the loss and the gradients of a batch; the tensors given are not changed.

    Raises:
        ExportError: The forward draws numbers apart from torch, or writes to other tensors.
    """
    generator = torch.Generator().manual_seed(seed)
    draws: list[torch.Tensor] = []

    def draw(distribution: Distribution, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        numbers = torch.empty(shape, dtype=dtype)
        match distribution:
            case Distribution.UNIFORM:
                numbers.uniform_(generator=generator)
            case Distribution.NORMAL:
                numbers.normal_(generator=generator)
            case Distribution.EXPONENTIAL:
                numbers.exponential_(generator=generator)
        draws.append(numbers)
        return numbers

    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    copies = {name: value.clone() for name, value in fixed.items()}
    batch = {name: value.detach().clone() for name, value in tensors.items()}
    with (
        no_other_randomness(of.where),
        Writes(of.places, {**leaves, **copies, **batch}, of.where),
        Drawn(draw, of.places, of.where),
    ):
        found = of.outcome(leaves, copies, batch)
    grads = torch.autograd.grad(found.loss, list(leaves.values()), materialize_grads=True)
    return Run(
        found.loss.detach(),
        found.metrics,
        dict(zip(leaves, grads, strict=True)),
        found.buffers,
        draws,
    )

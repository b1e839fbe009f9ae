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
    of: Forward,
    params: Tensors,
    fixed: Tensors,
    tensors: Tensors,
    draws: list[torch.Tensor] | None = None,
) -> Run:
    """Returns the loss and the gradients of a batch; the tensors given are not changed.

    Args:
        of: The model and its loss.
        params: The parameters to train.
        fixed: Buffers and frozen parameters.
        tensors: The batch.
        draws: The random numbers, in the order of the draws; drawn if None.

    Raises:
        ExportError: The forward draws numbers apart from torch, or writes to other tensors.
    """
    generator = torch.Generator().manual_seed(0)
    given = iter(draws) if draws is not None else None
    drawn: list[torch.Tensor] = []

    def draw(distribution: Distribution, shape: Sizes, dtype: torch.dtype) -> torch.Tensor:
        if given is not None:
            return next(given).reshape(shape)
        numbers = torch.empty(shape, dtype=dtype)
        match distribution:
            case Distribution.UNIFORM:
                numbers.uniform_(generator=generator)
            case Distribution.NORMAL:
                numbers.normal_(generator=generator)
            case Distribution.EXPONENTIAL:
                numbers.exponential_(generator=generator)
        drawn.append(numbers)
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
        drawn,
    )

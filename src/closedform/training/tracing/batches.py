"""A batch by name: the inputs of the model, then the targets of the loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from closedform.errors import ExportError

Loss = Callable[..., torch.Tensor]


def target_count(loss: Loss, where: str) -> int:
    """The number of tensors that the loss takes in addition to the model's output."""
    return len(_required(loss.forward if isinstance(loss, torch.nn.Module) else loss, where)) - 1


def _required(function: Callable[..., Any], where: str) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise ExportError(
            f"cannot read the parameters of {function!r}", where=where, hint="wrap it in a lambda"
        ) from None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def batch_names(
    model: torch.nn.Module, loss: Loss, batch: Sequence[torch.Tensor], where: str
) -> list[str]:
    """Names of the batch's tensors: the parameters of the forward, then those of the loss."""
    if isinstance(batch, torch.Tensor) or not all(isinstance(x, torch.Tensor) for x in batch):
        is_tuple = isinstance(batch, list | tuple)
        parts = f" of {', '.join(type(x).__name__ for x in batch)}" if is_tuple else ""
        raise ExportError(
            f"example_inputs must be a tuple of tensors, got {type(batch).__name__}{parts}",
            where=where,
            hint="give a batch, such as (images, labels), with torch.from_numpy of arrays",
        )
    targets = target_count(loss, where)
    count = len(batch) - targets
    if targets < 0 or count < 1:
        raise ExportError(
            f"the loss takes an output and {targets} targets, got a batch of {len(batch)} tensors",
            where=where,
            hint="the batch holds the model's inputs, then the loss's targets",
        )
    sizes = [x.shape[0] if x.dim() else None for x in batch]
    if None in sizes or len(set(sizes)) != 1:
        raise ExportError(
            f"the tensors of a batch must have the same first size, got {sizes}", where=where
        )
    if sizes[0] in (0, 1):
        raise ExportError(
            f"the example batch must hold two rows or more, got {sizes[0]}",
            where=where,
            hint="torch treats sizes 0 and 1 as fixed",
        )
    positional = [
        p.name
        for p in inspect.signature(model.forward).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    inputs = positional if len(positional) >= count else [f"input{i}" for i in range(count)]
    called = loss.forward if isinstance(loss, torch.nn.Module) else loss
    names = [*inputs[:count], *_required(called, where)[1:]]
    if len(set(names)) == len(names):
        return names
    return [f"{name}{index}" for index, name in enumerate(names)]

"""A batch by name, and a model with its loss as functions of tensors only."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.func import functional_call
from torch.fx import traceback as fx_traceback
from torch.nn.attention import SDPBackend, sdpa_kernel

from closedform.errors import ExportError
from closedform.training.tracing.decompositions import NARROW
from closedform.training.tracing.onnx_program import PLACE, Tensors, quiet

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


@dataclass(frozen=True, slots=True)
class Forward:
    """A model and its loss.

    Attributes:
        model: The model; its current parameters are not used.
        loss: Called with the model's output and the last tensors of a batch.
        count: The number of tensors of a batch that the model takes.
        is_widened: Whether tensors of 16 bits are cast to float32 for the model.
        where: The model, named in errors.
    """

    model: torch.nn.Module
    loss: Loss
    count: int
    is_widened: bool
    where: str

    def output(self, params: Tensors, buffers: Tensors, inputs: Sequence[torch.Tensor]) -> Any:
        """Returns the model's output; the buffers are written to."""
        given = tuple(map(self._wide, inputs))
        wide = {name: self._wide(value) for name, value in params.items()}
        with sdpa_kernel(SDPBackend.MATH), _plain_kernels(), _places_recorded(self.model):
            return functional_call(self.model, (wide, buffers), given, strict=True)

    def loss_of(
        self, params: Tensors, buffers: Tensors, batch: Tensors
    ) -> tuple[torch.Tensor, Tensors]:
        """Returns the loss, and the buffers after the forward, in the dtype of the forward."""
        after = self.copies(buffers)
        values = list(batch.values())
        output = self.output(params, after, values[: self.count])
        value = self.loss(output, *map(self._wide, values[self.count :]))
        if not isinstance(value, torch.Tensor) or value.dim() != 0:
            got = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ExportError(
                f"the loss must be a scalar tensor, got {got}",
                where=self.where,
                hint="reduce it, such as with .mean()",
            )
        if torch.is_grad_enabled() and not value.requires_grad:
            raise ExportError(
                "the loss has no gradient in the parameters",
                where=self.where,
                hint="compute it from the model's output, without argmax, detach or item",
            )
        return value, after

    def copies(self, buffers: Tensors) -> Tensors:
        """Returns copies of buffers in the dtype of the forward."""
        return {name: self._wide(value.clone()) for name, value in buffers.items()}

    def _wide(self, value: torch.Tensor) -> torch.Tensor:
        return value.float() if self.is_widened and value.dtype in NARROW else value


@contextlib.contextmanager
def _plain_kernels() -> Iterator[None]:
    """Stops torch from fusing recurrent layers, so that they are traced as products and sums."""
    with quiet(), torch.backends.mkldnn.flags(enabled=False):  # which warns of other hardware
        yield


@contextlib.contextmanager
def _places_recorded(model: torch.nn.Module) -> Iterator[None]:
    """Records the path of the calling module at each traced operator."""
    meta = fx_traceback.current_meta
    handles, above = [], []

    def enter(path: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            above.append(meta.get(PLACE))
            meta[PLACE] = {"module": path}

        return hook

    def leave(*_: Any) -> None:
        meta[PLACE] = above.pop()

    for name, module in model.named_modules():
        place = f"{name or 'the model itself'} ({type(module).__name__})"
        handles.append(module.register_forward_pre_hook(enter(place)))
        handles.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        meta.pop(PLACE, None)

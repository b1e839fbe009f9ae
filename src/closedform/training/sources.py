"""Models and losses that are given by a file or by a name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from closedform.errors import ExportError, nearest

if TYPE_CHECKING:
    import torch

LOSSES = ("mse", "l1", "cross_entropy", "binary_cross_entropy")
"""Losses by name: means of squared errors, of absolute errors, of cross entropies of logits, and of
binary cross entropies of logits."""


def loss_of(loss: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    """Returns a loss by its name, or the loss that is given.

    Raises:
        ExportError: There is no such loss.
    """
    if not isinstance(loss, str):
        return loss
    from torch.nn import functional

    functions: tuple[Callable[..., Any], ...] = (
        functional.mse_loss,
        functional.l1_loss,
        functional.cross_entropy,
        functional.binary_cross_entropy_with_logits,
    )
    found = dict(zip(LOSSES, functions, strict=True)).get(loss)
    if found is None:
        raise ExportError(
            f"loss must be a function or one of {', '.join(LOSSES)}, got {loss!r}",
            hint=nearest(loss, LOSSES),
        )
    return found


def model_of(
    model: torch.nn.Module | ModelProto | str | os.PathLike[str], trainable: Sequence[str] | None
) -> torch.nn.Module:
    """Returns a module: the one that is given, or that of an ONNX model.

    Raises:
        ExportError: The ONNX model is not supported, or ``trainable`` is given for a module.
    """
    if isinstance(model, ModelProto | str | os.PathLike):
        from closedform.importers.onnx_torch import read_module

        read = read_module(model, trainable or ())
        if not trainable:
            weights = (
                f"{n} {list(v.shape)}" for n, v in read.named_buffers() if v.is_floating_point()
            )
            raise ExportError(
                "trainable must name the weights of the ONNX model that are trained",
                hint=f"the weights are {', '.join(weights)}",
            )
        return read
    if trainable is not None:
        raise ExportError(
            "trainable is for ONNX models; the parameters of a module have requires_grad",
            where=f"model {type(model).__name__}",
        )
    return unwrapped(model)


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Returns the module within ``torch.compile``, DataParallel and DistributedDataParallel.

    Raises:
        ExportError: It is compiled by TorchScript, or has parameters without sizes.
    """
    import torch

    parallel = torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel
    where = f"model {type(model).__name__}"
    while isinstance(model, parallel) or "_orig_mod" in getattr(model, "_modules", ()):
        model = model.get_submodule("module" if isinstance(model, parallel) else "_orig_mod")
    if not isinstance(model, torch.nn.Module):
        return model
    for name, part in model.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            what = f"part {name!r} of the model" if name else "model"
            raise ExportError(
                f"the {what} is compiled by TorchScript ({part.original_name}), whose operators "
                "cannot be traced",
                where=where,
                hint="give the module that torch.jit.script or torch.jit.trace was called with",
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise ExportError(
                f"{name!r} has no size before the first forward",
                where=where,
                hint="call the model once with a batch: model(*inputs)",
            )
        if tensor.device.type != "cpu":
            raise ExportError(
                f"the model must be on the CPU, got {name!r} on {tensor.device}",
                where=where,
                hint="move it there: model.cpu()",
            )
    return model

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
    return model

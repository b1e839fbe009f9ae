"""Models and losses that are given by a file or by a name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from closedform.errors import TrainingExportError, nearest

if TYPE_CHECKING:
    import torch

    from closedform.training.onnx_torch import OnnxModule

LOSSES = ("mse", "l1", "cross_entropy", "binary_cross_entropy")
"""Losses by name: means of squared errors, of absolute errors, of cross entropies of logits, and of
binary cross entropies of logits."""


def loss_of(loss: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    """Returns a loss by its name, or the loss that is given.

    Raises:
        ExportError: The name is unknown.
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
    function = dict(zip(LOSSES, functions, strict=True)).get(loss)
    if function is None:
        raise TrainingExportError(
            f"loss must be a function or one of {', '.join(LOSSES)}, got {loss!r}",
            hint=nearest(loss, LOSSES),
        )
    return function


def model_of(
    model: torch.nn.Module | ModelProto | str | os.PathLike[str],
    trainable: Sequence[str] | None,
    stored_dtype: str | None = None,
) -> torch.nn.Module:
    """Returns the given module, or the module of an ONNX model.

    Args:
        model: The module, or an ONNX model or its file.
        trainable: Names or globs of the weights of an ONNX model that are trained; None for those
            in the dtype of the rule, or else in that of most entries.
        stored_dtype: The dtype of 16 bits of the parameters of the rule; None for another one.

    Raises:
        ExportError: The ONNX model is not supported, or ``trainable`` is given for a module.
    """
    if isinstance(model, ModelProto | str | os.PathLike):
        from closedform.training.onnx_torch import read_module

        module = read_module(model, trainable)
        if not module.is_chosen:
            module.freeze(_of_other_dtypes(module, stored_dtype))
        return module
    if trainable is not None:
        raise TrainingExportError(
            "trainable is for ONNX models; the parameters of a module have requires_grad",
            where=f"model {type(model).__name__}",
            hint="leave it out, and freeze parameters with requires_grad_(False)",
        )
    return unwrap(model)


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
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
            subject = f"part {name!r} of the model" if name else "model"
            raise TrainingExportError(
                f"the {subject} is compiled by TorchScript ({part.original_name}), whose operators "
                "cannot be traced",
                where=where,
                hint="give the module that torch.jit.script or torch.jit.trace was called with",
            )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(tensor):
            raise TrainingExportError(
                f"{name!r} has no size before the first forward",
                where=where,
                hint="call the model once with a batch: model(*inputs)",
            )
        if tensor.device.type != "cpu":
            raise TrainingExportError(
                f"the model must be on the CPU, got {name!r} on {tensor.device}",
                where=where,
                hint="move it there: model.cpu()",
            )
    return model


def _of_other_dtypes(module: OnnxModule, stored_dtype: str | None) -> list[str]:
    """The weights that a rule does not train with the others, which have one dtype."""
    narrow = {"torch.float16": "f16", "torch.bfloat16": "bf16"}
    entries: Counter[str] = Counter()
    for parameter in module.parameters():
        entries[str(parameter.dtype)] += parameter.numel()
    of_rule = {
        dtype: n for dtype, n in entries.items() if narrow.get(dtype) == stored_dtype
    } or entries
    trained_dtype = max(of_rule, key=lambda dtype: of_rule[dtype], default="")
    return [name for name, value in module.named_parameters() if str(value.dtype) != trained_dtype]

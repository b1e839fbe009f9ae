"""Models and losses that are given by a file or by a name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from closedform.errors import TrainingExportError, nearest
from closedform.language import UpdateRule
from closedform.language.groups import Group
from closedform.training.dtypes import fitting_names, rules_by_name

if TYPE_CHECKING:
    import torch

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
    rule: UpdateRule,
    groups: Sequence[Group] = (),
) -> torch.nn.Module:
    """Returns the given module, or the module of an ONNX model.

    Args:
        model: The module, or an ONNX model or its file.
        trainable: Names or globs of the weights of an ONNX model that are trained; None for those
            in the dtype of their rule, or else in that of most entries.
        rule: The rule of the parameters that no group matches.
        groups: The groups.

    Raises:
        ExportError: The ONNX model is not supported, or ``trainable`` is given for a module.
    """
    if isinstance(model, ModelProto | str | os.PathLike):
        from closedform.training.from_onnx import read_module

        module = read_module(model, trainable)
        if not module.is_chosen:
            params = dict(module.named_parameters())
            fitting = fitting_names(params, rules_by_name(params, rule, groups))
            module.freeze(params.keys() - set(fitting))
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

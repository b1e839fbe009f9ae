"""Traced operators to ONNX by torch's exporter, with its errors in one line."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
import torch
from torch.onnx._internal.exporter._registration import ONNXRegistry

from closedform.errors import ExportError

Tensors = dict[str, torch.Tensor]

BATCH = "batch"
"""The name of the free size of a batch."""

FREE = ("batch", "random")
"""Kinds of inputs whose first size is free."""

PLACE = "custom"
"""The key of an operator's metadata that holds the calling module."""


def write_onnx(
    traced: torch.fx.GraphModule,
    arguments: tuple[Tensors, ...],
    kinds: Sequence[str],
    outputs: Sequence[str],
    opset: int,
    where: str,
) -> onnx.ModelProto:
    """Returns the ONNX model of traced operators.

    Args:
        traced: The operators.
        arguments: Example tensors by name, a group for each kind.
        kinds: The kinds of the groups; an input is ``<kind>.<name>``.
        outputs: Names of the outputs.
        opset: ONNX opset.
        where: The model, named in errors.

    Raises:
        ExportError: An operator has no ONNX form, or onnxruntime does not support its dtype.
    """
    _check_dtypes(traced, where)

    class Traced(torch.nn.Module):
        def forward(self, values: list[torch.Tensor]) -> Any:
            left = iter(values)
            return traced(*({name: next(left) for name in of} for of in arguments))

    named = [(kind, name) for kind, of in zip(kinds, arguments, strict=True) for name in of]
    size = torch.export.Dim(BATCH)
    try:
        with quiet():
            program = torch.onnx.export(
                Traced(),
                ([value for of in arguments for value in of.values()],),
                dynamo=True,
                opset_version=opset,
                dynamic_shapes=([{0: size} if kind in FREE else None for kind, _ in named],),
                input_names=[f"{kind}.{name}" for kind, name in named],
                output_names=list(outputs),
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise _unsupported(traced, opset, error, where) from error
    if program is None:
        raise ExportError("torch wrote no ONNX model", where=where)
    model: onnx.ModelProto = program.model_proto
    _strip_metadata(model)
    return model


def _strip_metadata(model: onnx.ModelProto) -> None:
    """Removes torch's metadata of each node: paths of this machine, three quarters of the file."""
    bodies = (model.graph, *model.functions)
    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    for part in (*values, *bodies, *(node for body in bodies for node in body.node)):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")


_MOVES = frozenset(
    {
        "aten._to_copy",
        "aten.alias",
        "aten.clone",
        "aten.copy",
        "aten.detach",
        "aten.expand",
        "aten.permute",
        "aten.reshape",
        "aten.slice",
        "aten.split",
        "aten.squeeze",
        "aten.t",
        "aten.transpose",
        "aten.unsqueeze",
        "aten.view",
    }
)
"""Operators without arithmetic, which onnxruntime supports for all dtypes."""


def _check_dtypes(traced: torch.fx.GraphModule, where: str) -> None:
    """Raises ExportError at the first operator with arithmetic in bfloat16.

    onnxruntime 1.31 does not support it on CPUs; it computes float16 in float32.
    """
    for node in traced.graph.nodes:
        value = node.meta.get("val")
        is_bf16 = isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16
        target = node.target
        if not is_bf16 or not isinstance(target, torch._ops.OpOverload):
            continue
        if str(target.overloadpacket) not in _MOVES:
            raise ExportError(
                f"onnxruntime does not compute {target} in bfloat16, in {_place(node)}",
                where=where,
                hint='give compute_dtype="f32": parameters stay bfloat16, and forward and '
                "backward run in float32",
            )


def _place(node: torch.fx.Node) -> str:
    """The module that calls an operator."""
    noted: str = (node.meta.get(PLACE) or {}).get("module", "the loss or the backward pass")
    return noted


def _unsupported(
    traced: torch.fx.GraphModule, opset: int, error: Exception, where: str
) -> ExportError:
    """The error for an operator that torch's exporter does not support, with its module.

    Some operators without a rule are decomposed by torch: moves, and those not in its message.
    """
    with quiet():
        registry = ONNXRegistry.from_torchlib(opset_version=opset)
    without = [
        node
        for node in traced.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and str(node.target.overloadpacket) not in _MOVES
        and not registry.is_registered(node.target)
    ]
    message = "".join(map(str, _chain(error)))
    without.sort(key=lambda node: repr(node.target) not in message)
    if not without:
        return explained(error, where)
    return ExportError(
        f"the operator {without[0].target} has no ONNX form, in {_place(without[0])}",
        where=where,
        hint="write it with other operators",
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences the internal warnings of torch's exporter."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def explained(error: Exception, where: str) -> ExportError:
    """Returns an error of torch in one line, with a hint."""
    *_, cause = _chain(error)
    kind = type(cause).__name__
    text = str(cause).strip().splitlines()[0] if str(cause).strip() else kind
    if "DataDependent" in kind or "data-dependent" in str(cause) or "Unbacked" in kind:
        return ExportError(
            f"the model has control flow that depends on data: {text}",
            where=where,
            hint="write it with torch.where; a graph has no control flow",
        )
    return ExportError(f"torch cannot trace the model: {kind}: {text}", where=where)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__

"""The weights of ONNX files: read within a limit, chosen by name to be trained, and left out.

Weights are initializers and constants, also in branches. ``trainable_names`` has
``fc.weight`` for the glob ``*.weight``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from closedform.errors import ClosedFormError, TrainingExportError
from closedform.exporters.onnx_scopes import scopes_of
from closedform.files import check_regular
from closedform.training.from_onnx.values import INVALID_FILE, TORCH_BY_NUMBER, Known

# Weights are held twice for a while, as bytes of protobuf and as arrays; a protobuf file itself
# ends at 2 GiB, external data do not.
MOST_BYTES = 4 * 2**30
"""Bytes of all weights of a model."""


FLOATS = ("float16", "bfloat16", "float32", "float64")


def without_weights(
    model: ModelProto, graph: GraphProto, owned_names: Collection[str]
) -> ModelProto:
    """Returns a copy of a model with another graph, without some of its weights."""
    copy = ModelProto()
    has_calls = graph is model.graph
    # Fields are copied one by one: CopyFrom would copy gigabytes of weights first.
    for field, value in model.ListFields():
        if field.name == "graph" or (field.name == "functions" and not has_calls):
            continue
        if isinstance(value, str | int):
            setattr(copy, field.name, value)
        else:
            getattr(copy, field.name).extend(value)
    copy.graph.name = graph.name
    copy.graph.input.extend(graph.input)
    copy.graph.output.extend(graph.output)
    copy.graph.value_info.extend(graph.value_info)  # onnxruntime fuses nodes by their shapes
    copy.graph.initializer.extend(t for t in graph.initializer if t.name not in owned_names)
    copy.graph.node.extend(node for node in graph.node if not _is_owned(node, owned_names))
    # Constants within branches are weights, too.
    for inner in scopes_of(copy.graph):
        for parts in (inner.initializer, inner.node):
            for place in reversed(range(len(parts))):
                if _is_owned(parts[place], owned_names):
                    del parts[place]
    return copy


def _is_owned(part: TensorProto | NodeProto, owned_names: Collection[str]) -> bool:
    if isinstance(part, TensorProto):
        return part.name in owned_names
    return part.op_type == "Constant" and part.output[0] in owned_names


def load_model(path: Path, where: str) -> ModelProto:
    """Returns the model of a file, its external data within the limit of bytes.

    Raises:
        TrainingExportError: The file cannot be read, or is not a model with outputs.
    """
    check_regular(path, TrainingExportError)
    try:
        # External data are read tensor by tensor, each checked before: onnx.load would read all at
        # once.
        model = onnx.load(path, load_external_data=False)
        folder = str(path.parent)
        for tensor in _tensors(model.graph):
            if tensor.data_location == TensorProto.EXTERNAL:
                check_bytes([tensor], where)
                onnx.external_data_helper.load_external_data_for_tensor(tensor, folder)
                tensor.data_location = TensorProto.DEFAULT
    except OSError as error:
        raise TrainingExportError(
            f"cannot read it: {error.strerror}",
            where=where,
            hint="give the path of an .onnx file, with its external data in the same folder",
        ) from error
    except ClosedFormError:
        raise
    except Exception as error:  # protobuf's and onnx's own errors have no base
        text = str(error).splitlines() or [""]
        raise TrainingExportError(
            f"it is not an ONNX model: {text[0]}", where=where, hint=INVALID_FILE
        ) from error
    if not model.graph.output:
        raise TrainingExportError(
            "it is not an ONNX model: it has no output", where=where, hint=INVALID_FILE
        )
    return model


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    for body in scopes_of(graph):
        yield from body.initializer
        for node in body.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t


def check_bytes(tensors: Sequence[TensorProto], where: str) -> None:
    """Raises TrainingExportError if weights have other types, or more bytes than are read."""
    total = 0
    for tensor in tensors:
        if tensor.data_type not in TORCH_BY_NUMBER or min(tensor.dims, default=0) < 0:
            raise TrainingExportError(
                f"the weight {tensor.name!r} has a type that is not supported, or a negative size",
                where=where,
                hint="export the model with weights in float32, float16, bfloat16 or float64",
            )
        total += math.prod(tensor.dims) * TORCH_BY_NUMBER[tensor.data_type].itemsize
    if total > MOST_BYTES:
        raise TrainingExportError(
            f"its weights have {total} bytes; at most {MOST_BYTES} are read",
            where=where,
            hint="export it in float16, or export the torch module that the file was written from",
        )


def read_weights(graph: GraphProto, where: str) -> Iterator[tuple[str, Known]]:
    """Yields the initializers, and the constants among the nodes, including branches."""
    for body in scopes_of(graph):
        for tensor in body.initializer:
            yield tensor.name, array_of(tensor, where)
        for node in body.node:
            if node.op_type != "Constant" or node.domain:
                continue
            (attribute,) = node.attribute
            value = helper.get_attribute_value(attribute)
            match attribute.name:
                case "value":
                    check_bytes([value], where)
                    array = array_of(value, where)
                case "value_float" | "value_floats":
                    array = np.asarray(value, np.float32)
                case "value_int" | "value_ints":
                    array = np.asarray(value, np.int64)
                case _:
                    raise TrainingExportError(
                        f"the constant {node.output[0]!r} has a {attribute.name!r}",
                        where=where,
                        hint="store it as value, a tensor",
                    )
            yield node.output[0], array


def weight_names(graph: GraphProto) -> set[str]:
    """Returns the names of initializers and constants, including branches."""
    return {
        name
        for body in scopes_of(graph)
        for name in (
            *(tensor.name for tensor in body.initializer),
            *(node.output[0] for node in body.node if node.op_type == "Constant"),
        )
    }


def array_of(tensor: TensorProto, where: str) -> Known:
    """Returns the array of a tensor of the file.

    Raises:
        TrainingExportError: Its data do not fit its shape.
    """
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise TrainingExportError(
            f"the weight {tensor.name!r} cannot be read",
            where=where,
            hint="its data do not have its shape, or are not in the folder of the file",
        ) from error


def tensor_of(array: Known) -> torch.Tensor:
    """Returns a copy of an array as a tensor of torch."""
    if array.dtype.name == "bfloat16":
        # torch.from_numpy does not take the bfloat16 of ml_dtypes.
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def trainable_names(
    weights: Mapping[str, Known],
    trainable: Sequence[str] | None,
    untrainable: set[str],
    where: str,
) -> Iterator[str]:
    """Yields the names of the weights that are trained.

    Raises:
        TrainingExportError: A name or glob is not that of a float.
    """
    floats = {n: a for n, a in weights.items() if a.dtype.name in FLOATS and n not in untrainable}
    if trainable is None:
        # "*" leaves out single numbers, such as the epsilon of a norm that an exporter wrote as an
        # initializer.
        yield from (name for name, array in floats.items() if array.size > 1)
        return
    if isinstance(trainable, str) or not all(isinstance(name, str) for name in trainable):
        raise TrainingExportError(
            f"trainable must be a list of names or globs, got {trainable!r}",
            where=where,
            hint='such as ["*.weight"]',
        )
    for glob in trainable:
        matches = [n for n, a in floats.items() if a.size > 1 and fnmatchcase(n, glob)]
        # A name itself may have the letters of a glob, such as brackets.
        if glob in floats:
            matches = [glob]
        if not matches:
            weights_text = ", ".join(
                f"{n} {list(a.shape)}" for n, a in floats.items() if a.size > 1
            )
            raise TrainingExportError(
                f"no weight has the name {glob!r}",
                where=where,
                hint=f"the weights are {weights_text or 'none'}",
            )
        yield from matches

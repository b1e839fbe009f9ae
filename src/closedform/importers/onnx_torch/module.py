"""ONNX inference models as modules of torch.

The weights are parameters and buffers with the names in the file. Nothing in the file is run: each
node is a row of a table of functions of torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch._subclasses.fake_tensor import FakeTensorMode

from closedform.errors import ClosedFormError, ExportError, nearest
from closedform.importers.onnx_checks import check_model, node_place
from closedform.importers.onnx_limits import MOST_ENTRIES
from closedform.importers.onnx_torch.elementwise import ELEMENTWISE
from closedform.importers.onnx_torch.layers import LAYERS
from closedform.importers.onnx_torch.movement import MOVEMENT
from closedform.importers.onnx_torch.recurrent import RECURRENT
from closedform.importers.onnx_torch.values import (
    TORCH_TYPES,
    Call,
    Items,
    Known,
    Value,
    as_tensor,
    known_result,
)

ROWS = {**ELEMENTWISE, **MOVEMENT, **LAYERS, **RECURRENT}
"""The table of operators: a function, and the attributes with their defaults."""

OLDEST, NEWEST = 13, 24
"""The opsets that the table is for."""

MOST_BYTES = 4 * 2**30
"""Bytes of all weights of a model."""

MOST_KNOWN = 16
"""Entries of floats that may be sizes, such as factors of a Resize."""

MOST_NUMBERS = 2**30
"""Entries of one tensor while the model runs."""


class OnnxModule(torch.nn.Module):
    """An ONNX model that torch runs, and trains.

    Made by ``read_module``. In training mode, a batch normalisation uses the statistics of the
    batch, and moves the running ones, if its scale or its bias is trained or the file has it in
    training form; a dropout drops if the file has it in training form.

    Attributes:
        input_names: Names of the inputs, with ``_`` for each character that no identifier has.
        output_names: Names of the outputs.
        free_sizes: Names of the free sizes by input and axis.
    """

    def __init__(self, graph: GraphProto, trainable: Sequence[str], where: str) -> None:
        super().__init__()
        self._where = where
        self._limit: int | None = None
        weights = dict(_weights(graph, where))
        given = [value for value in graph.input if value.name not in weights]
        self._given = tuple(value.name for value in given)
        self.input_names = tuple(re.sub(r"\W", "_", name) for name in self._given)
        if len(set(self.input_names)) < len(self.input_names):
            raise ExportError(f"inputs have one name: {list(self.input_names)}", where=where)
        self.output_names = tuple(value.name for value in graph.output)
        self.free_sizes = {
            name: free
            for name, value in zip(self.input_names, given, strict=True)
            if (free := _symbols(value, name))
        }
        fixed = _statistics(graph) | _sizes(graph)
        own = {tensor.name for tensor in graph.initializer}
        self._trained = frozenset(_chosen(weights, trainable, own, fixed, where))
        self._nodes = tuple(
            self._node(node) for node in graph.node if node.op_type != "Constant" or node.domain
        )
        _check_order(self._nodes, {"", *weights, *self._given}, self.output_names, where)
        self._known: dict[str, Known] = {}
        self._owners: dict[str, tuple[torch.nn.Module, str]] = {}
        statistics = _statistics(graph)
        for name, array in weights.items():
            self._add(name, array, is_written=name in statistics)

    def forward(self, *positional: torch.Tensor, **named: torch.Tensor) -> Any:
        """Returns the output, or a tuple of the outputs."""
        given = dict(zip(self.input_names, positional, strict=False)) | named
        if given.keys() != set(self.input_names) or len(positional) > len(self.input_names):
            raise ExportError(
                f"the model takes {', '.join(self.input_names)}, got {len(positional)} inputs and "
                f"{', '.join(named) or 'none by name'}",
                where=self._where,
            )
        values: dict[str, Value | None] = {"": None, **self._known}
        values |= {name: getattr(owner, own) for name, (owner, own) in self._owners.items()}
        values |= {
            name: given[own] for name, own in zip(self._given, self.input_names, strict=True)
        }
        for node in self._nodes:
            results = self._results(node, [values[name] for name in node.inputs])
            values |= dict(zip(node.outputs, results, strict=False))
        outputs = tuple(as_tensor(_present(values[name])) for name in self.output_names)
        return outputs if len(outputs) > 1 else outputs[0]

    def check_memory(self, *positional: torch.Tensor, **named: torch.Tensor) -> None:
        """Raises ExportError if a tensor has too many entries for inputs of these sizes."""
        self._limit = MOST_NUMBERS
        try:
            with FakeTensorMode(allow_non_fake_inputs=True) as mode, torch.no_grad():
                fake = {name: mode.from_tensor(value) for name, value in named.items()}
                self(*map(mode.from_tensor, positional), **fake)
        finally:
            self._limit = None

    def _results(self, node: _Node, operands: list[Value | None]) -> Sequence[Value]:
        call = Call(operands, node.attributes, self.training and node.is_trained, node.count)
        row = ROWS[node.operator][0]
        try:
            result = known_result(node.operator, call)
            if result is None:
                result = row(call)
        except ClosedFormError as error:
            raise ExportError(error.what, where=node.where, hint=error.hint) from error
        except Exception as error:  # of any kind: torch's own have no base
            kind, text = type(error).__name__, str(error).strip().splitlines() or [""]
            raise ExportError(f"{kind}: {text[0]}", where=node.where) from error
        results = result if isinstance(result, tuple | list) else [result]
        for value in results if self._limit is not None else ():
            if isinstance(value, Items):
                continue  # parts of a tensor
            if (count := math.prod(value.shape)) > (self._limit or 0):
                raise ExportError(
                    f"its result has {count} entries; at most {self._limit} are computed",
                    where=node.where,
                )
        return results

    def _node(self, node: NodeProto) -> _Node:
        where = f"{self._where}, node {node.name or node.output[0]!r}, operator {node.op_type}"
        attributes = _attributes(node, where)
        is_trained = True
        if node.op_type == "BatchNormalization":
            is_trained = bool(attributes["training_mode"]) or not self._trained.isdisjoint(
                node.input[1:3]
            )
        outputs = tuple(node.output)
        return _Node(node.op_type, tuple(node.input), outputs, attributes, is_trained, where)

    def _add(self, name: str, array: Known, *, is_written: bool) -> None:
        """Adds a weight: a parameter if it is trained, else a buffer, or a constant."""
        kind = array.dtype.name
        is_small = array.size <= (MOST_KNOWN if kind in _FLOATS else MOST_ENTRIES)
        if name not in self._trained and is_small and not is_written and kind != "bfloat16":
            self._known[name] = array
            return
        *path, last = name.split(".")
        owner: torch.nn.Module = self
        try:
            for part in path:
                if part not in owner._modules:
                    owner.add_module(part, torch.nn.Module())
                owner = owner.get_submodule(part)
            if name in self._trained:
                owner.register_parameter(last, torch.nn.Parameter(_tensor(array)))
            else:
                owner.register_buffer(last, _tensor(array))
        except (KeyError, AttributeError) as error:
            raise ExportError(
                f"the weight {name!r} cannot have its name in torch: {error}",
                where=self._where,
                hint="rename it in the file",
            ) from error
        self._owners[name] = owner, last


_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class _Node:
    """A node that has been checked.

    Attributes:
        operator: The operator.
        inputs: Names of the operands.
        outputs: Names of the results.
        attributes: The attributes over their defaults.
        is_trained: Whether it is in training form when the module is in training mode.
        where: The node, named in errors.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    is_trained: bool
    where: str

    @property
    def count(self) -> int:
        """The number of results."""
        return sum(bool(name) for name in self.outputs)


def read_module(source: ModelProto | str | PathLike[str], trainable: Sequence[str]) -> OnnxModule:
    """Returns an ONNX inference model as a module of torch, in training mode.

    Args:
        source: A model, or the path of its file; external data has to be beside it.
        trainable: Weights that are parameters, as names or globs such as ``"*.weight"``; a glob
            matches floats with more than one entry. All other weights are buffers or constants.

    Raises:
        ExportError: The file cannot be read, is too large, or has an operator, an attribute, a type
            or an opset that is not supported; or a name in ``trainable`` is not that of a weight.
    """
    where = "the ONNX model" if isinstance(source, ModelProto) else f"file {str(source)!r}"
    model = source if isinstance(source, ModelProto) else _load(Path(source), where)
    _check_bytes(list(model.graph.initializer), where)
    try:
        checked = check_model(model, _check_operator)
    except ClosedFormError as error:
        is_node = error.where is not None and error.where.startswith("node")
        place = f"{where}, {error.where}" if is_node else where
        raise ExportError(error.what, where=place, hint=error.hint) from error
    (version,) = (entry.version for entry in checked.model.opset_import if not entry.domain)
    if not OLDEST <= version <= NEWEST:
        raise ExportError(
            f"its opset must be in {OLDEST}..{NEWEST}, got {version}",
            where=where,
            hint="convert it with onnx.version_converter.convert_version",
        )
    return OnnxModule(checked.inlined(), trainable, where)


def _load(path: Path, where: str) -> ModelProto:
    try:
        model = onnx.load(path, load_external_data=False)
        folder = str(path.parent)
        for tensor in _tensors(model.graph):
            if tensor.data_location == TensorProto.EXTERNAL:
                _check_bytes([tensor], where)
                onnx.external_data_helper.load_external_data_for_tensor(tensor, folder)
                tensor.data_location = TensorProto.DEFAULT
    except OSError as error:
        raise ExportError(f"cannot read it: {error.strerror}", where=where) from error
    except ClosedFormError:
        raise
    except Exception as error:  # protobuf's and onnx's own errors have no base
        text = str(error).splitlines() or [""]
        raise ExportError(f"it is not an ONNX model: {text[0]}", where=where) from error
    if not model.graph.output:
        raise ExportError("it is not an ONNX model: it has no output", where=where)
    return model


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t


def _check_bytes(tensors: Sequence[TensorProto], where: str) -> None:
    total = 0
    for tensor in tensors:
        if tensor.data_type not in TORCH_TYPES or min(tensor.dims, default=0) < 0:
            raise ExportError(
                f"the weight {tensor.name!r} has a type that is not supported, or a negative size",
                where=where,
            )
        total += math.prod(tensor.dims) * TORCH_TYPES[tensor.data_type].itemsize
    if total > MOST_BYTES:
        raise ExportError(
            f"its weights have {total} bytes; at most {MOST_BYTES} are read", where=where
        )


def _weights(graph: GraphProto, where: str) -> Iterator[tuple[str, Known]]:
    """The initializers, and the constants among the nodes."""
    for tensor in graph.initializer:
        yield tensor.name, _array(tensor, where)
    for node in graph.node:
        if node.op_type != "Constant" or node.domain:
            continue
        (attribute,) = node.attribute
        value = helper.get_attribute_value(attribute)
        match attribute.name:
            case "value":
                _check_bytes([value], where)
                array = _array(value, where)
            case "value_float" | "value_floats":
                array = np.asarray(value, np.float32)
            case "value_int" | "value_ints":
                array = np.asarray(value, np.int64)
            case _:
                raise ExportError(
                    f"the constant {node.output[0]!r} has a {attribute.name!r}", where=where
                )
        yield node.output[0], array


def _array(tensor: TensorProto, where: str) -> Known:
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise ExportError(
            f"the weight {tensor.name!r} cannot be read",
            where=where,
            hint="its data do not have its shape, or are not beside the file",
        ) from error


def _tensor(array: Known) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _statistics(graph: GraphProto) -> set[str]:
    """The running statistics."""
    kind = "BatchNormalization"
    return {name for node in graph.node if node.op_type == kind for name in node.input[3:5]}


_SIZES = {"Clip": (1, 2), "Dropout": (1, 2), "Pad": (2,), "Resize": (1, 2)}
"""Operands that are floats and have to be known while the graph is traced."""


def _sizes(graph: GraphProto) -> set[str]:
    return {
        node.input[place]
        for node in graph.node
        for place in _SIZES.get(node.op_type, ())
        if place < len(node.input)
    }


def _chosen(
    weights: Mapping[str, Known],
    trainable: Sequence[str],
    own: set[str],
    fixed: set[str],
    where: str,
) -> Iterator[str]:
    """The names of the weights that are trained: by a glob, only initializers."""
    floats = {n: a for n, a in weights.items() if a.dtype.name in _FLOATS and n not in fixed}
    if isinstance(trainable, str) or not all(isinstance(name, str) for name in trainable):
        raise ExportError(
            f"trainable must be a list of names or globs, got {trainable!r}", where=where
        )
    for glob in trainable:
        found = [n for n, a in floats.items() if a.size > 1 and fnmatchcase(n, glob)]
        if glob in floats:
            found = [glob]
        if not found:
            listed = ", ".join(f"{n} {list(a.shape)}" for n, a in floats.items() if a.size > 1)
            raise ExportError(
                f"no weight has the name {glob!r}",
                where=where,
                hint=f"the weights are {listed or 'none'}",
            )
        yield from found


def _symbols(value: onnx.ValueInfoProto, name: str) -> dict[int, str]:
    """Names of the free sizes of an input by axis."""
    return {
        axis: re.sub(r"\W", "_", dim.dim_param) if dim.dim_param else f"{name}_{axis}"
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value")
    }


def _check_operator(node: NodeProto) -> None:
    """Raises ExportError if an operator is not supported."""
    if node.op_type in ROWS and not node.domain:
        return
    of = f" of the domain {node.domain!r}" if node.domain else ""
    raise ExportError(
        f"the operator {node.op_type!r}{of} is not supported",
        where=node_place(node),
        hint="export the model without fused operators"
        if node.domain
        else nearest(node.op_type, ROWS),
    )


def _attributes(node: NodeProto, where: str) -> Mapping[str, Any]:
    """The attributes of a node over their defaults.

    Raises:
        ExportError: An attribute is not supported.
    """
    row = ROWS[node.op_type]
    given = {}
    for attribute in node.attribute:
        if attribute.name not in row[1]:
            raise ExportError(f"its attribute {attribute.name!r} is not supported", where=where)
        value = helper.get_attribute_value(attribute)
        is_tensor = isinstance(value, TensorProto)
        given[attribute.name] = _array(value, where) if is_tensor else value
    return {**row[1], **given}


def _check_order(
    nodes: Sequence[_Node], known: set[str], outputs: Sequence[str], where: str
) -> None:
    """Raises ExportError if a name is used before it is computed, or twice computed."""
    for node in nodes:
        missing = [name for name in node.inputs if name not in known]
        if missing:
            raise ExportError(
                f"its operand {missing[0]!r} is not computed by any node before it",
                where=node.where,
            )
        known |= set(node.outputs)
    missing = [name for name in outputs if name not in known]
    if missing:
        raise ExportError(f"the output {missing[0]!r} is not computed by any node", where=where)


def _present(value: Value | None) -> Value:
    if value is None:
        raise ExportError("an output has no value")
    return value

"""Graph -> ONNX model: checked, deterministic, named for people."""

from __future__ import annotations

import importlib.metadata
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, ModelProto, ValueInfoProto, helper

from closedform.errors import ExportError, WriteError, describe, nearest
from closedform.exporters.onnx_metadata import set_metadata
from closedform.exporters.onnx_ops import BF16_MIN_OPSET, ONNX_OPS, Writer
from closedform.exporters.onnx_targets import ALL_DTYPES, check_dtypes, lowest_ir_version
from closedform.files import files_of, write_file, writing
from closedform.ir.graph import Graph, Node, Role, input_names
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.options import DEFAULT_OPSET

# Opset 7 began NumPy's broadcasting in both directions (onnx.defs, Add-7).
MIN_OPSET = 7
MAX_OPSET = 23
PRODUCER = "closedform"

Number = bool | int | float


def to_model(
    graph: Graph,
    *,
    opset: int = DEFAULT_OPSET,
    dtypes: frozenset[DType] = ALL_DTYPES,
    metadata: Mapping[str, str] | None = None,
    docs: Mapping[str, str] | None = None,
    defaults: Mapping[str, Number] | None = None,
) -> ModelProto:
    """Returns the graph as an ONNX model that passed the full checker and strict shape inference.

    Inputs and outputs have the names of the graph, values between them the names of their op and
    their place (``mul_7``). Constants are initializers.

    Args:
        graph: A checked graph.
        opset: 7 to 23; an op that needs a later one raises.
        dtypes: The dtypes that the file may contain, constants included.
        metadata: The metadata_props, written in the order of their keys.
        docs: Doc strings by input or output name; that under the graph's name is the model's.
        defaults: Values of inputs with the role hyper, which become optional inputs.

    Raises:
        ExportError: The opset is out of range or too old for an op, a name in ``docs`` or
            ``defaults`` is unknown, a default does not fit its input, the dtype of a value is not
            in ``dtypes``, or ONNX refuses the model.
    """
    check_opset(graph, opset)
    docs = dict(docs or {})
    _check_known("doc string", docs, (graph.name, *_interface(graph)), graph)
    writer, outputs = write_graph(graph, opset, dtypes)
    _write_defaults(writer, dict(defaults or {}))
    for value in (*writer.inputs, *outputs):
        value.doc_string = docs.get(value.name, "")
    body = helper.make_graph(
        writer.nodes, graph.name, writer.inputs, outputs, initializer=writer.initializers
    )
    model = finish_model(body, opset, metadata, doc=docs.get(graph.name, ""))
    check_dtypes(model, dtypes)
    return model


def write_graph(
    graph: Graph, opset: int, dtypes: frozenset[DType] = ALL_DTYPES
) -> tuple[Writer, list[ValueInfoProto]]:
    """Returns the inputs, initializers and nodes of a graph, and its outputs.

    Raises:
        ExportError: An input and an output share a name.
    """
    writer = Writer(graph, _value_names(graph), opset, dtypes)
    for node, name in zip(graph.nodes, writer.names, strict=True):
        operands = tuple(writer.names[operand] for operand in node.operands)
        ONNX_OPS[node.op].emit(writer, node, operands, name)
    return writer, _write_outputs(writer)


def finish_model(
    body: GraphProto,
    opset: int,
    metadata: Mapping[str, str] | None = None,
    *,
    doc: str = "",
    functions: Sequence[FunctionProto] = (),
    domain: str | None = None,
) -> ModelProto:
    """Returns a model of this graph that passed the full checker and strict shape inference.

    Args:
        body: The graph.
        opset: The version of the standard operators.
        metadata: The metadata_props, written in the order of their keys.
        doc: The doc string of the model.
        functions: Its local functions.
        domain: The domain of the functions.

    Raises:
        ExportError: ONNX refuses the model.
    """
    imports = [helper.make_opsetid("", opset)]
    if domain is not None:
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(
        body,
        opset_imports=imports,
        # The lowest version of the format that the opset allows, for older runtimes.
        ir_version=lowest_ir_version(opset, has_functions=bool(functions)),
        producer_name=PRODUCER,
        producer_version=_package_version(),
        doc_string=doc,
        functions=list(functions),
    )
    set_metadata(model, metadata or {})
    _check_model(model, body.name)
    return model


def type_info(name: str, type_: TensorType) -> ValueInfoProto:
    """Returns the declaration of an input or output."""
    return helper.make_tensor_value_info(name, type_.dtype.row.number, type_.shape)


def serialize(model: ModelProto) -> bytes:
    """Returns the bytes of a model; equal models give equal bytes."""
    # Maps of protobuf are otherwise written in any order.
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def write_model(model: ModelProto, path: str | os.PathLike[str]) -> Path:
    """Writes a model and returns its path; a failure leaves the previous file in place.

    The bytes go to a temporary file in the same folder, which then takes the name.

    Raises:
        ExportError: The folder does not exist, or the path is a folder.
        WriteError: Writing failed.
    """
    target = checked_target(path)
    write_file(target, serialize(model), "the model")
    return target


def checked_target(path: object) -> Path:
    """Returns the path of a file to write; ExportError if it is not one, or has no folder."""
    target = checked_path(path)
    where = f"file {str(target)!r}"
    if not target.parent.is_dir():
        raise ExportError(
            f"folder {str(target.parent)!r} does not exist", where=where, hint="create it first"
        )
    if target.is_dir():
        raise ExportError("the path is a folder", where=where, hint="give the path of a file")
    return target


def checked_path(path: object) -> Path:
    """Returns the path to write to; ExportError if it is not one."""
    if not isinstance(path, str | os.PathLike) or isinstance(path, bytes):
        raise ExportError(
            f"path must be the path of a file or folder, got {describe(path)}",
            hint='give one, such as "lr.onnx", or leave it out to write no file',
        )
    if "\0" in str(path):
        raise ExportError(f"a path has no null byte, got {describe(path)}")
    return Path(path)


def write_models(models: Mapping[str, ModelProto | str], folder: Path, hint: str) -> None:
    """Writes models and texts by file name into a folder, which is made if it does not exist.

    Raises:
        WriteError: The folder cannot be made, with ``hint``, or a file cannot be written; then none
            is.
    """
    make_folder(folder, hint)
    with writing(folder, "the models"), files_of(folder) as place:
        for name, model in models.items():
            data = model.encode() if isinstance(model, str) else serialize(model)
            write_file(place / name, data, f"the file {name}")


def make_folder(folder: Path, hint: str) -> None:
    """Makes a folder if it does not exist; WriteError, with ``hint``, if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"cannot make the folder: {error.strerror}",
            where=f"folder {str(folder)!r}",
            hint=hint,
        ) from error


def check_opset(graph: Graph, opset: int) -> None:
    """Raises ExportError if the opset is out of range or too old for an op of the graph."""
    where = f"graph {graph.name!r}"
    if type(opset) is not int or not MIN_OPSET <= opset <= MAX_OPSET:
        raise ExportError(
            f"opset must be in {MIN_OPSET}..{MAX_OPSET}, got {opset!r}",
            where=where,
            hint=f"the default is {DEFAULT_OPSET}; onnxruntime 1.17 reads up to 20, later ones 21",
        )
    for node in graph.nodes:
        lowest_opset = _needed_opset(node)
        if lowest_opset > opset:
            raise ExportError(
                f"{node.op} of {node.type} needs opset {lowest_opset}, got {opset}",
                where=where,
                hint=f"export with opset={lowest_opset} or later",
            )


def _needed_opset(node: Node) -> int:
    lowest_opset = ONNX_OPS[node.op].min_opset
    return max(lowest_opset, BF16_MIN_OPSET) if node.type.dtype is DType.BF16 else lowest_opset


def _interface(graph: Graph) -> tuple[str, ...]:
    return (*input_names(graph), *(output.name for output in graph.outputs))


def _check_known(
    kind: str, names: Mapping[str, object], known_names: tuple[str, ...], graph: Graph
) -> None:
    for name in names:
        if name not in known_names:
            raise ExportError(
                f"{kind} for unknown name {name!r}",
                where=f"graph {graph.name!r}",
                hint=nearest(name, known_names) if known_names else "the graph has none",
            )


def _value_names(graph: Graph) -> list[str]:
    """Names every node: inputs by their own name, results by that of the output, the rest by op.

    Raises:
        ExportError: An input and an output share a name, which ONNX forbids.
    """
    inputs = input_names(graph)
    counts = Counter(_interface(graph))
    duplicate = next((name for name, count in counts.items() if count > 1), None)
    if duplicate is not None:
        raise ExportError(
            f"the name {duplicate!r} is used by two inputs or outputs",
            where=f"graph {graph.name!r}",
            hint="ONNX needs distinct names: call the output 'next.…'",
        )
    names: dict[int, str] = {}
    for output in graph.outputs:
        # An input or constant cannot be an output: it gets an Identity.
        if graph.nodes[output.index].op not in (Op.INPUT, Op.CONST):
            # A value that is two outputs has the first name, and an Identity for the second.
            names.setdefault(output.index, output.name)
    reserved_names = {*inputs, *counts}
    for index, node in enumerate(graph.nodes):
        if node.op is Op.INPUT:
            names[index] = node.attribute("name")
        names.setdefault(index, _free_name(f"{node.op}_{index}", reserved_names))
    return [names[index] for index in range(len(graph.nodes))]


def _free_name(name: str, reserved_names: set[str]) -> str:
    while name in reserved_names:
        name = f"_{name}"
    return name


def _write_outputs(writer: Writer) -> list[ValueInfoProto]:
    """Declares the outputs; one that is an input, a constant or named already gets an Identity."""
    output_infos = []
    for output in writer.graph.outputs:
        type_ = writer.graph.nodes[output.index].type
        if writer.names[output.index] != output.name:
            writer.call("Identity", writer.names[output.index], into=output.name)
        output_infos.append(type_info(output.name, type_))
    return output_infos


def _write_defaults(writer: Writer, defaults: Mapping[str, Number]) -> None:
    """Gives hyper inputs an initializer of the same name, which makes them optional."""
    hypers = {
        node.attribute("name"): node
        for node in writer.graph.inputs
        if node.attribute("role") == Role.HYPER
    }
    _check_known("default", defaults, tuple(hypers), writer.graph)
    for name, value in sorted(defaults.items()):
        type_ = hypers[name].type
        array = np.asarray(value)
        fits = array.shape == type_.shape and (
            np.can_cast(array.dtype, type_.dtype.numpy, "safe")
            # 1 is a default of a float, too.
            or (type_.dtype.is_float and array.dtype.kind in "iuf")
        )
        if not fits:
            raise ExportError(
                f"the default of input {name!r} must be {type_}, got {value!r}",
                where=f"graph {writer.graph.name!r}",
            )
        writer.add_initializer(name, type_, array.astype(type_.dtype.numpy).tobytes())


def _check_model(model: ModelProto, name: str) -> None:
    try:
        onnx.checker.check_model(model, full_check=True)
        onnx.shape_inference.infer_shapes(
            model, check_type=True, strict_mode=True, data_prop=not _has_long_vector(model)
        )
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(
            f"ONNX refuses the model: {str(error).strip()}",
            where=f"graph {name!r}",
            hint="check the graph with closedform.ir.check; if it passes, please report a bug "
            "in closedform",
        ) from error


def _has_long_vector(model: ModelProto) -> bool:
    """Whether an input or output is a long vector.

    The propagation of data takes each vector of a known size for a shape, and makes a list of as
    many entries: without end for a vector of 10**12 elements (onnx 1.23).
    """
    shapes = (
        value.type.tensor_type.shape.dim for value in (*model.graph.input, *model.graph.output)
    )
    return any(len(dims) == 1 and dims[0].dim_value > _LONG_VECTOR for dims in shapes)


_LONG_VECTOR = 2**16


def _package_version() -> str:
    try:
        return importlib.metadata.version(PRODUCER)
    except importlib.metadata.PackageNotFoundError:
        return "source"

"""ONNX models as graphs, whichever tool wrote them.

The metadata of a file is not read, and nothing in the file is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from closedform.errors import ClosedFormError, VerificationError, nearest
from closedform.files import check_regular
from closedform.importers.onnx_checks import CheckedModel, check_model, node_place, without_branches
from closedform.importers.onnx_composed_ops import ROWS
from closedform.importers.onnx_constants import array_of
from closedform.importers.onnx_ops import DTYPES, Reader, add_constant, read_row
from closedform.importers.onnx_training_ops import TRAINING, TRAINING_ROWS
from closedform.importers.onnx_words import OPERATORS, add_word, read_words
from closedform.ir import Builder, Graph, Role, TensorType, Value

OnnxSource = CheckedModel | ModelProto | str | PathLike[str]
"""A model, or the path of its file."""

_ROLES = {"param": Role.PARAM, "grad": Role.GRAD, "state": Role.STATE}
STEP = "step"


def read_model(source: OnnxSource, *, has_optional: bool = True) -> Graph:
    """Returns the graph of an ONNX model, as onnxruntime reads it.

    An integer input named ``step``, or the only integer input, is the clock. Inputs named as in the
    files of a rule (``param.w``) have the same roles; all others are hyperparameters.

    Args:
        source: The model, or the path of its file.
        has_optional: Whether an optional input is an input; if not, it is the constant that it is
            for a caller who leaves it out.

    Raises:
        VerificationError: The file cannot be read, onnxruntime would refuse it or read it in
            another way (``onnx_checks``), or it contains an operator, type or attribute that is not
            supported; the message names the node.
    """
    body = checked_model(source).inline_functions()
    inputs = required_inputs(body) if not has_optional else list(body.input)
    reader = begin_graph(body.name, inputs, body.initializer, _step_of(inputs))
    for node in body.node:
        read_node(reader, node)
    for output in body.output:
        _check_output(output, reader)
        reader.output(output.name, reader.values[output.name])
    return reader.builder.build()


def begin_graph(
    name: str, inputs: Iterable[ValueInfoProto], tensors: Iterable[TensorProto], step: str | None
) -> Reader:
    """Returns a reader that has read the inputs of a graph, and its other initializers.

    Args:
        name: The name of the graph.
        inputs: Its inputs.
        tensors: Its initializers, each a constant of a graph or an unsigned integer.
        step: The name of the clock.

    Raises:
        VerificationError: A type is not supported.
    """
    reader = Reader(Builder(name or "model"))
    for value in inputs:
        role = role_of(value.name, step)
        reader.values[value.name] = reader.builder.input(value.name, type_of(value), role)
    for tensor in tensors:
        if tensor.name not in reader.values and not add_word(reader, tensor.name, tensor):
            add_constant(reader, tensor.name, tensor)
    return reader


def value_of(reader: Reader, name: str) -> Value:
    """Returns the value behind a name.

    Raises:
        VerificationError: It is an unsigned integer.
    """
    if name in reader.words:
        raise VerificationError(f"{name!r} is an unsigned integer, which only random numbers have")
    return reader.values[name]


def checked_model(source: OnnxSource) -> CheckedModel:
    """Returns a model that has the operators that are read, and one meaning.

    Raises:
        VerificationError: As :func:`read_model`.
    """
    if isinstance(source, CheckedModel):
        return source
    model = source if isinstance(source, ModelProto) else load_model(Path(source))
    return check_model(without_branches(model), _check_operator)


def _check_output(output: ValueInfoProto, reader: Reader) -> None:
    actual = value_of(reader, output.name).type.dtype
    # onnxruntime refuses a file whose declared types are not the inferred ones.
    declared_type = output.type.tensor_type.elem_type
    if DTYPES.get(declared_type) is not actual:
        raise VerificationError(
            f"the output {output.name!r} is declared as "
            f"{helper.tensor_dtype_to_string(declared_type) if declared_type else 'no tensor'}, "
            f"and computed as {actual}"
        )


def required_inputs(body: GraphProto) -> list[ValueInfoProto]:
    """Returns the inputs without a default."""
    defaults = {tensor.name for tensor in body.initializer}
    return [value for value in body.input if value.name not in defaults]


def defaults_of(source: OnnxSource) -> dict[str, float]:
    """Returns the values of the optional inputs, which have an initializer.

    Raises:
        VerificationError: An optional input is not a number.
    """
    graph = checked_model(source).graph
    # Since IR version 4 an initializer need not be an input; one that is, is its default.
    names = {value.name for value in graph.input}
    defaults: dict[str, float] = {}
    for tensor in graph.initializer:
        if tensor.name not in names:
            continue
        if tensor.dims or tensor.data_type not in DTYPES:
            raise VerificationError(f"the default of the input {tensor.name!r} is not a number")
        number = array_of(tensor, tensor.name).item()
        if number != number or abs(number) == float("inf"):
            raise VerificationError(f"the default of the input {tensor.name!r} is {number}")
        defaults[tensor.name] = number
    return defaults


def load_model(path: Path) -> ModelProto:
    """Returns the model in a file; external data is not loaded.

    Raises:
        VerificationError: There is no such file, or it is not a model.
    """
    where = f"file {str(path)!r}"
    check_regular(path, VerificationError)
    try:
        # The file names other files by path: an untrusted one would read any of them.
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise VerificationError(f"cannot read it: {error.strerror}", where=where) from error
    except Exception as error:  # protobuf's own error, of a package that onnx does not re-export
        raise VerificationError("it is not an ONNX model", where=where) from error
    if not model.graph.output:
        raise VerificationError("it is not an ONNX model: it has no output", where=where)
    return model


def _step_of(inputs: Sequence[ValueInfoProto]) -> str | None:
    """The name of the clock."""
    integers = [value.name for value in inputs if type_of(value).dtype.is_integer]
    if STEP in integers:
        return STEP
    return integers[0] if len(integers) == 1 else None


def role_of(name: str, step: str | None) -> Role:
    """Returns the role of an input by its name and that of the clock."""
    if name == step:
        return Role.STEP
    # A plain "state" is a hyperparameter of that name.
    return _ROLES.get(name.split(".")[0], Role.HYPER) if "." in name else Role.HYPER


def type_of(value: ValueInfoProto) -> TensorType:
    """Returns the type of an input.

    Raises:
        VerificationError: The type is not supported.
    """
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or tensor.elem_type not in DTYPES:
        kind = helper.tensor_dtype_to_string(tensor.elem_type) if tensor.elem_type else "no tensor"
        raise VerificationError(
            f"the input {value.name!r} has a type that is not supported: {kind}"
        )
    dims = [
        # A size with neither value nor name may be anything, so it gets a name of its axis.
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_{axis}"
        for axis, dim in enumerate(tensor.shape.dim)
    ]
    return TensorType(DTYPES[tensor.elem_type], tuple(dims))


def _check_operator(node: NodeProto) -> None:
    is_training = node.domain == TRAINING and node.op_type in TRAINING_ROWS
    is_read = node.op_type in ROWS or node.op_type in OPERATORS
    if (not is_read or node.domain) and not is_training:
        of = f" of the domain {node.domain!r}" if node.domain else ""
        raise VerificationError(
            f"the operator {node.op_type!r}{of} is not supported",
            where=node_place(node),
            hint=nearest(node.op_type, ROWS),
        )


def read_node(reader: Reader, node: NodeProto) -> None:
    """Adds the value of a node of a model that ``onnx_checks`` has checked.

    Raises:
        VerificationError: The node is not supported; the message names it.
    """
    try:
        if read_words(reader, node):
            return
        operands = tuple(value_of(reader, name) for name in node.input if name)
        if node.domain == TRAINING:
            results = TRAINING_ROWS[node.op_type](reader, node, operands)
            reader.values.update(zip(node.output, results, strict=True))
            return
        result = read_row(ROWS[node.op_type], reader, node, operands)
    except ClosedFormError as error:
        raise VerificationError(error.what, where=node_place(node), hint=error.hint) from error
    name = node.output[0]
    reader.values[name] = result
    if node.op_type == "Identity" and node.input[0] in reader.arrays:
        reader.arrays[name] = reader.arrays[node.input[0]]

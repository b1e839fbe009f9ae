"""Training information of ONNX: a step, its initial state and their bindings in one model.

``ModelProto.training_info`` has the graph ``algorithm``, which is run joined to the graph of the
model, ``initialization``, which has no inputs, and the pairs of a variable and the output that it
takes. A variable is an initializer of the model or of its algorithm (onnx.proto,
``TrainingInfoProto``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableSequence, Sequence
from typing import Any

from onnx import GraphProto, ModelProto, ValueInfoProto, helper, numpy_helper

from closedform.errors import ExportError
from closedform.exporters.onnx_join import check_joined, join_models, unite_opsets
from closedform.exporters.onnx_metadata import set_metadata
from closedform.exporters.onnx_weights import LIMIT
from closedform.ir import naming
from closedform.ir.graph import Array

_WEIGHTS = (naming.PARAM, naming.BUFFER)


def with_training_info(
    inference: ModelProto,
    step: ModelProto,
    start: ModelProto,
    values: Mapping[str, Array],
    weights: Collection[str] = (),
) -> ModelProto:
    """Returns a model with the step as its training information.

    Variables are the inputs of the step whose next value is an output. The initializers of
    parameters, buffers and all that the forward reads are in the graph of the model, the others in
    the algorithm.

    Args:
        inference: The forward of the model.
        step: The training step, ``(step, param.*, state.*, …) -> (next.step, next.param.*, …)``.
        start: The initial state: outputs with names of variables, and no inputs but variables.
        values: The initial values of the variables.
        weights: Variables that stay inputs of the graph, to be written by
            :func:`closedform.exporters.onnx_weights.write_weights`.

    Raises:
        ExportError: The states are too large for one file, or ONNX refuses the joined graph.
    """
    outputs = {value.name for value in step.graph.output}
    bindings = {
        value.name: naming.following(value.name)
        for value in step.graph.input
        if naming.following(value.name) in outputs
    }
    start_inputs = [value.name for value in start.graph.input]
    embedded = [name for name in bindings if name not in weights]
    _check_size([values[name] for name in (*embedded, *start_inputs)], step.graph.name)
    model = join_models(
        {"inference": inference},
        inference.graph.name,
        outputs=[value.name for value in inference.graph.output],
    )
    graph, algorithm = model.graph, GraphProto()
    algorithm.CopyFrom(step.graph)
    read_names = {value.name for value in graph.input}
    of_graph = {name for name in bindings if name.startswith(_WEIGHTS) or name in read_names}
    unread_weights = [
        value
        for value in step.graph.input
        if value.name in weights and value.name not in read_names
    ]
    _keep(graph.input, [value for value in graph.input if value.name not in embedded])
    graph.input.extend(unread_weights)
    # The joined graph has each input once.
    names = {value.name for value in graph.input} | bindings.keys()
    _keep(algorithm.input, [value for value in step.graph.input if value.name not in names])
    for name in embedded:
        owner = graph if name in of_graph else algorithm
        owner.initializer.append(numpy_helper.from_array(values[name], name))
    initialization = GraphProto()
    initialization.CopyFrom(start.graph)
    _keep(initialization.input, [])
    initialization.initializer.extend(
        numpy_helper.from_array(values[name], name) for name in start_inputs
    )
    model.training_info.append(
        helper.make_training_info(
            algorithm,
            list(bindings.items()),
            initialization,
            [(value.name, value.name) for value in start.graph.output],
        )
    )
    _unite(model, {"step": step, "start": start})
    metadata = {entry.key: entry.value for of in (inference, step) for entry in of.metadata_props}
    set_metadata(model, metadata)
    check_joined(joined_step(model), step.graph.name)
    return model


def joined_step(model: ModelProto) -> ModelProto:
    """Returns the training step of a model: its graph, joined with that of its algorithm."""
    (info,) = model.training_info
    joined = ModelProto()
    joined.CopyFrom(model)
    joined.ClearField("training_info")
    joined.graph.MergeFrom(info.algorithm)
    joined.graph.name = info.algorithm.name
    return joined


def _check_size(arrays: Sequence[Array], name: str) -> None:
    size = sum(array.nbytes for array in arrays)
    if size > LIMIT:
        raise ExportError(
            f"states in training information must have at most {LIMIT:,} bytes, got {size:,}",
            where=f"graph {name!r}",
            hint="leave training_info out: the other files have no such limit",
        )


def _keep(field: MutableSequence[Any], values: Sequence[ValueInfoProto]) -> None:
    del field[:]
    field.extend(values)


def _unite(model: ModelProto, parts: Mapping[str, ModelProto]) -> None:
    """Gives a model the operator sets and local functions of parts of it."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    functions = {(function.domain, function.name) for function in model.functions}
    for label, part in parts.items():
        unite_opsets(opsets, part, label)
        model.functions.extend(
            function
            for function in part.functions
            if (function.domain, function.name) not in functions
        )
        functions |= {(function.domain, function.name) for function in part.functions}
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*entry) for entry in opsets.items())
    model.ir_version = max(model.ir_version, *(part.ir_version for part in parts.values()))

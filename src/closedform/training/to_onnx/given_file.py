"""The forward of a given ONNX file: its own graph, with weights as inputs.

A trained file is the given one with other weights: its names, order, types and opset stay.
"""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto, ModelProto, helper

from closedform.exporters.onnx_join import rename_values
from closedform.exporters.onnx_scopes import all_nodes
from closedform.ir import naming
from closedform.runtime.shared_places import node_with_shared_places
from closedform.training.file_names import mark_names, output_names
from closedform.training.from_onnx import OnnxModule
from closedform.training.from_onnx.operators import is_training_form
from closedform.training.to_onnx.arrays import view_of
from closedform.training.to_onnx.onnx_program import Tensors

_DEFAULTS_SINCE = 4
"""The version of the format in which a constant need not be an input."""


def forward_of_file(module: OnnxModule, params: Tensors, buffers: Tensors) -> ModelProto | None:
    """Returns the graph of a file in evaluation mode, with its weights as inputs.

    None if an input is an output, too, or an output is a weight, or if values of the graph depend
    on the threads of onnxruntime.

    Args:
        module: The model of the file.
        params: The parameters that are trained.
        buffers: Buffers and frozen parameters.
    """
    model = module.skeleton
    tensors = {naming.param(name): value for name, value in params.items()}
    tensors |= {naming.buffer(name): value for name, value in buffers.items()}
    files = names_of_file(module)
    names = {file: new for new, file in files.items()}
    names |= {name: naming.param(name) for name in params}
    names |= {name: naming.buffer(name) for name in buffers}
    if len(names) < len(files) + len(tensors):
        return None
    if node_with_shared_places(model.SerializeToString()) is not None:
        return None
    for name in _defined_names(model.graph):
        if name in names.values() and name not in names:
            names[name] = _free(name, {*names, *names.values()})
    model = rename_values(model, names)
    _evaluate(model.graph, module.version)
    graph = model.graph
    batch_names = {f"{naming.BATCH}{name}" for name in module.input_names}
    inputs = [value for value in graph.input if value.name in batch_names]
    del graph.input[:]
    graph.input.extend(inputs)
    for name, value in tensors.items():
        array = view_of(value)
        element = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(name, element, array.shape))
    # Before version 4 each initializer must be an input, too.
    model.ir_version = max(model.ir_version, _DEFAULTS_SINCE)
    mark_names(model, files | {new: file for file, new in names.items() if new in tensors})
    return model


def names_of_file(module: OnnxModule) -> dict[str, str]:
    """Returns the names of inputs and outputs in a file by those in the forward."""
    files = dict(zip(module.input_names, module.file_inputs, strict=True))
    files = {f"{naming.BATCH}{name}": file for name, file in files.items()}
    outputs = output_names(len(module.output_names))
    return files | dict(zip(outputs, module.output_names, strict=True))


def _defined_names(graph: GraphProto) -> set[str]:
    """The names of all values of a graph."""
    names = {value.name for value in (*graph.input, *graph.initializer)}
    return names.union(*(node.output for node in all_nodes(graph.node)))


def _free(name: str, taken_names: Iterable[str]) -> str:
    taken_names = set(taken_names)
    while name in taken_names:
        name += "_"
    return name


def _evaluate(graph: GraphProto, version: int) -> None:
    """Puts nodes of a training form in evaluation form, in place."""
    for node in all_nodes(graph.node):
        if node.op_type == "Dropout" and len(node.input) > 2:
            # Without ratio and training_mode, a Dropout of opset 12 and later passes its input.
            del node.input[2:]
        if node.op_type != "BatchNormalization" or not is_training_form(node, version):
            continue
        del node.output[1:]
        for attribute in node.attribute:
            if attribute.name == "training_mode":
                attribute.i = 0

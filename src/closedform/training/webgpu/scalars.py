"""The scalars of a step that need no tensor, as a graph for the CPU: GPUs have no float64.

Schedules and bias corrections follow from the step and the hyperparameters; their rounding to
float32 comes last. Computed in WGSL's float32, a learning rate is off by up to 1.8e-4.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from closedform.ir.naming import (
    BATCH,
    BUFFER,
    PARAM,
    RANDOM,
    SHARED,
    STATE,
    STEP,
    following,
    scalar,
)
from closedform.training.webgpu.kernels import element_types, ranks

_TENSORS = (PARAM, STATE, SHARED, BUFFER, BATCH, RANDOM)
_NARROW: Mapping[int, int] = {
    TensorProto.DOUBLE: TensorProto.FLOAT,
    TensorProto.INT64: TensorProto.INT32,
}


def split_scalars(graph: GraphProto) -> tuple[GraphProto, GraphProto]:
    """Returns a step without its scalars, and the graph of its scalars.

    A scalar is a value without axes that follows from the step, hyperparameters and numbers that a
    step carries on, such as the count of batches of a batch normalisation. Scalars
    that the rest reads are inputs ``scalar.*`` of it, in float32, int32 or bool; those that are
    outputs of the step (``learning_rate``, ``next.step``) are outputs of the second graph only.

    Args:
        graph: A training step, whose types were inferred.
    """
    values = _scalars(graph)
    nodes = [node for node in graph.node if set(node.output) <= values]
    tensor_nodes = [node for node in graph.node if not set(node.output) <= values]
    scalar_names = {name for node in tensor_nodes for name in node.input if name in values}
    types = element_types(graph)
    names = {name: scalar(place) for place, name in enumerate(sorted(scalar_names))}
    results = [output for output in graph.output if output.name in values]
    return _tensor_graph(graph, tensor_nodes, names, types, values), _host(
        graph, nodes, names, types, results
    )


def _scalars(graph: GraphProto) -> set[str]:
    """The values without axes that no tensor enters."""
    axes = ranks(graph)
    inputs = {value.name for value in graph.input if axes.get(value.name) == 0}
    outputs = {value.name for value in graph.output}
    constants = {tensor.name for tensor in graph.initializer}
    step_inputs = {name for name in inputs if name == STEP or not name.startswith(_TENSORS)}
    candidates = {
        name
        for name in inputs - step_inputs
        if name.startswith((STATE, SHARED, BUFFER)) and following(name) in outputs
    }
    while True:  # until each number that is carried follows from those that are left
        values = step_inputs | candidates
        for node in graph.node:
            operands = {name for name in node.input if name}
            if (
                operands <= values | constants
                and (operands & values or outputs.issuperset(node.output))
                and all(axes.get(name) == 0 for name in node.output)
            ):
                values.update(node.output)
        remaining = {name for name in candidates if following(name) in values}
        if remaining == candidates:
            return values
        candidates = remaining


def _tensor_graph(
    graph: GraphProto,
    nodes: list[NodeProto],
    names: Mapping[str, str],
    types: Mapping[str, int],
    values: set[str],
) -> GraphProto:
    """The nodes of a step that have tensors, with the scalars that they read as inputs by name."""
    step = GraphProto()
    step.CopyFrom(graph)
    del step.node[:], step.input[:], step.output[:]
    step.node.extend(nodes)
    for node in step.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    names_used = {name for node in step.node for name in node.input}
    step.input.extend(value for value in graph.input if value.name in names_used)
    step.input.extend(
        helper.make_tensor_value_info(name, _narrow(types[source]), ())
        for source, name in names.items()
    )
    step.output.extend(output for output in graph.output if output.name not in values)
    return step


def _host(
    graph: GraphProto,
    nodes: list[NodeProto],
    names: Mapping[str, str],
    types: Mapping[str, int],
    results: list[ValueInfoProto],
) -> GraphProto:
    host = GraphProto(name="scalars")
    host.node.extend(nodes)
    host.output.extend(results)
    for source, name in names.items():
        narrow = _narrow(types[source])
        if narrow == types[source]:
            host.node.append(helper.make_node("Identity", [source], [name]))
        else:
            host.node.append(helper.make_node("Cast", [source], [name], to=narrow))
        host.output.append(helper.make_tensor_value_info(name, narrow, ()))
    names_used = {name for node in host.node for name in node.input}
    host.input.extend(value for value in graph.input if value.name in names_used)
    host.initializer.extend(tensor for tensor in graph.initializer if tensor.name in names_used)
    return host


def _narrow(element: int) -> int:
    return _NARROW.get(element, element)

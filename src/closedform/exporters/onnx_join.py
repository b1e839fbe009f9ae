"""ONNX models one behind the other, as one model: an output feeds the later input of its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from closedform.errors import ExportError
from closedform.exporters.onnx_metadata import set_metadata
from closedform.exporters.onnx_scopes import graphs_within, scopes_of


def join_models(
    models: Mapping[str, ModelProto],
    name: str,
    *,
    outputs: Sequence[str],
    metadata: Mapping[str, str] | None = None,
) -> ModelProto:
    """Returns one checked model that runs several in their order.

    Inputs of one name are one input. An output of a model feeds each later model that has an input
    of its name, which then is not an input of the whole. Values between are named after their
    model: ``update/mul_7``.

    Args:
        models: The models by a name for each, in their order.
        name: Name of the joined graph.
        outputs: Which outputs the joined model has, in this order.
        metadata: The metadata_props.

    Raises:
        ExportError: Two models give one name different types, versions of an operator set differ,
            two outputs share a name, an output is unknown, or ONNX refuses the result.
    """
    graph_proto = onnx.GraphProto(name=name)
    inputs: dict[str, ValueInfoProto] = {}
    values_by_name: dict[str, ValueInfoProto] = {}
    opsets: dict[str, int] = {}
    functions: dict[tuple[str, str], onnx.FunctionProto] = {}
    for label, model in models.items():
        unite_opsets(opsets, model, label)
        graph = _named_apart(model.graph, label, name)
        for value in graph.input:
            _unite_input(inputs, values_by_name, value, label)
        for value in graph.output:
            # An input that is an output later would be read before it is computed.
            if value.name in values_by_name or value.name in inputs:
                raise ExportError(
                    f"output {value.name!r} is an input or output of another model, too",
                    where=f"model {label!r}",
                )
            values_by_name[value.name] = value
        graph_proto.node.extend(graph.node)
        graph_proto.initializer.extend(graph.initializer)
        functions |= {(function.domain, function.name): function for function in model.functions}
    unknown = [output for output in outputs if output not in values_by_name]
    if unknown:
        raise ExportError(f"no model has an output {unknown[0]!r}", where=f"graph {name!r}")
    graph_proto.input.extend(inputs.values())
    graph_proto.output.extend(values_by_name[output] for output in outputs)
    result = helper.make_model(
        graph_proto,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in opsets.items()],
        ir_version=max(model.ir_version for model in models.values()),
        functions=list(functions.values()),
    )
    set_metadata(result, metadata or {})
    check_joined(result, name)
    return result


def with_nodes(model: ModelProto, nodes: Iterable[NodeProto]) -> ModelProto:
    """Returns a copy of a model with other nodes."""
    result = ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def rename_values(model: ModelProto, names: Mapping[str, str]) -> ModelProto:
    """Returns a copy of a model with other names for some of its values, in branches, too."""
    copy = ModelProto()
    copy.CopyFrom(model)
    for graph in scopes_of(copy.graph):
        for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            value.name = names.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
    return copy


def unite_opsets(opsets: dict[str, int], model: ModelProto, label: str) -> None:
    """Adds the operator sets of a model; ExportError if one has another version."""
    for entry in model.opset_import:
        version = opsets.setdefault(entry.domain, entry.version)
        if version != entry.version:
            raise ExportError(
                f"operator set {entry.domain!r} must have one version, got {version} and "
                f"{entry.version}",
                where=f"model {label!r}",
                hint="export all models with the same opset",
            )


def _unite_input(
    inputs: dict[str, ValueInfoProto],
    values_by_name: Mapping[str, ValueInfoProto],
    value: ValueInfoProto,
    label: str,
) -> None:
    source = values_by_name.get(value.name, inputs.get(value.name))
    if source is None:
        inputs[value.name] = value
        return
    have, want = source.type.tensor_type, value.type.tensor_type
    if have.elem_type != want.elem_type or not _fits(have.shape, want.shape):
        raise ExportError(
            f"{value.name!r} must have one type, got {_type(source)} and {_type(value)}",
            where=f"model {label!r}",
        )


def _fits(have: onnx.TensorShapeProto, want: onnx.TensorShapeProto) -> bool:
    """Whether two shapes may be one: free sizes fit every size."""
    if len(have.dim) != len(want.dim):
        return False
    return all(
        not (a.HasField("dim_value") and b.HasField("dim_value")) or a.dim_value == b.dim_value
        for a, b in zip(have.dim, want.dim, strict=True)
    )


def _type(value: ValueInfoProto) -> str:
    type_ = value.type.tensor_type
    sizes = ",".join(d.dim_param or str(d.dim_value) for d in type_.shape.dim)
    return f"{onnx.TensorProto.DataType.Name(type_.elem_type).lower()}[{sizes}]"


def _named_apart(graph: onnx.GraphProto, label: str, where: str) -> onnx.GraphProto:
    """A copy in which all but inputs and outputs is named after the model."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    # Values between are renamed: two models name theirs alike, such as add_1.
    public = {value.name for value in (*copy.input, *copy.output)}

    def rename_values(names: Collection[str]) -> list[str]:
        return [name if not name or name in public else f"{label}/{name}" for name in names]

    for node in copy.node:
        if [*graphs_within(node)]:
            raise ExportError(
                f"node {node.name!r} is control flow ({node.op_type})",
                where=f"graph {where!r}, model {label!r}",
                hint="a training graph holds none",
            )
        node.input[:] = rename_values(node.input)
        node.output[:] = rename_values(node.output)
        node.name = f"{label}/{node.name}" if node.name else ""
    for initializer in copy.initializer:
        (initializer.name,) = rename_values([initializer.name])
    return copy


def check_joined(model: ModelProto, name: str) -> None:
    """Raises ExportError if ONNX refuses a model."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(
            f"ONNX refuses the joined model: {str(error).strip()}", where=f"graph {name!r}"
        ) from error

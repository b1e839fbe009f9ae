"""Names of an ONNX graph and of the graphs within its nodes: one for each value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from onnx import GraphProto, NodeProto

from closedform.exporters.onnx_scopes import scopes_of


def distinct_names(graph: GraphProto) -> GraphProto:
    """Returns a graph in which no two branches or loops define the same name.

    The first definition keeps its name; later ones begin with their node and branch, such as
    ``If_2/else_branch/scale``. A graph without such names is returned as it is.
    """
    counts = Counter(name for body in scopes_of(graph) for name in _definitions(body))
    if max(counts.values(), default=1) == 1:
        return graph
    copy = GraphProto()
    copy.CopyFrom(graph)
    _rename(copy, {}, "", set(), set(counts))
    return copy


def _definitions(graph: GraphProto) -> Iterator[str]:
    """The names that a graph itself defines, each once."""
    names = dict.fromkeys(value.name for value in (*graph.input, *graph.initializer))
    names |= dict.fromkeys(name for node in graph.node for name in node.output)
    yield from filter(None, names)


def _rename(
    graph: GraphProto,
    outer: Mapping[str, str],
    place: str,
    defined_names: set[str],
    taken_names: set[str],
) -> None:
    """Renames the values of a graph, in place; a name means the definition nearest to it."""
    names = dict(outer)
    for name in _definitions(graph):
        names[name] = name
        if name in defined_names:
            names[name] = f"{place}/{name}"
            while names[name] in taken_names:
                names[name] += "_"
            taken_names.add(names[name])
        defined_names.add(name)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        label = _label(node)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                inner = f"{label}/{attribute.name}"
                _rename(attribute.g, names, inner, defined_names, taken_names)


def _label(node: NodeProto) -> str:
    return node.name or next(filter(None, node.output), node.op_type)

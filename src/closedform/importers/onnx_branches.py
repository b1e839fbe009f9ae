"""``If`` as nodes of both branches and a choice between their results.

The nodes of a graph have no effects, so that the branch that is not taken computes what nothing
reads. A choice between tensors of two shapes is refused: ``Where`` would broadcast them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, helper

from closedform.errors import VerificationError

IF = "If"
CHOICE = "closedform.choice"
"""The ``doc_string`` of a ``Where`` that was an ``If``: its operands need one type.

A file that says so itself is read more strictly, and in no other way.
"""

_STANDARD = ("", "ai.onnx")


def has_branches(model: ModelProto) -> bool:
    """Whether a graph or local function has an ``If``."""
    return any(_is_if(node) for body in _bodies(model) for node in body.node)


def inline_branches(model: ModelProto) -> ModelProto:
    """Returns a model whose ``If`` nodes are replaced.

    Raises:
        VerificationError: A branch has inputs, sparse constants or another number of results.
    """
    if not has_branches(model):
        return model
    result = ModelProto()
    result.CopyFrom(model)
    places = count()
    for body in _bodies(result):
        nodes = list(_flatten(body.node, {}, places))
        del body.node[:]
        body.node.extend(nodes)
    return result


def nodes_within(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yields nodes and those of the graphs that are their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*((attribute.g,) if _is_graph(attribute) else ()), *attribute.graphs):
                yield from nodes_within(graph.node)


def _bodies(model: ModelProto) -> list[GraphProto | FunctionProto]:
    return [model.graph, *model.functions]


def _is_graph(attribute: AttributeProto) -> bool:
    return bool(attribute.type == AttributeProto.GRAPH)


def _is_if(node: NodeProto) -> bool:
    return node.op_type == IF and node.domain in _STANDARD


def _flatten(
    nodes: Iterable[NodeProto], names: Mapping[str, str], places: Iterator[int]
) -> Iterator[NodeProto]:
    """Yields nodes in the names of the outermost body."""
    for node in nodes:
        renamed = NodeProto()
        renamed.CopyFrom(node)
        for field in (renamed.input, renamed.output):
            new_names = [names.get(name, name) for name in field]
            del field[:]
            field.extend(new_names)
        if _is_if(node):
            yield from _choose(renamed, names, places)
        else:
            yield renamed


def _choose(
    node: NodeProto, names: Mapping[str, str], places: Iterator[int]
) -> Iterator[NodeProto]:
    where = f"node {node.name!r}, operator {IF}"
    graphs = {attribute.name: attribute.g for attribute in node.attribute if _is_graph(attribute)}
    if graphs.keys() != {"then_branch", "else_branch"} or len(node.input) != 1:
        raise VerificationError("it does not have a condition and two branches", where=where)
    results: list[list[str]] = []
    for label in ("then_branch", "else_branch"):
        graph = graphs[label]
        if graph.input or graph.sparse_initializer:
            raise VerificationError(
                f"its {label} has inputs or sparse constants, which are not supported", where=where
            )
        place = next(places)
        inner_names = [
            *(tensor.name for tensor in graph.initializer),
            *(name for inner in graph.node for name in inner.output if name),
        ]
        hidden = sorted(names.keys() & set(inner_names))
        if hidden:
            raise VerificationError(f"its {label} defines {hidden[0]!r} again", where=where)
        scope = {**names, **{name: f"branch.{place}/{name}" for name in inner_names}}
        for tensor in graph.initializer:
            yield helper.make_node("Constant", [], [scope[tensor.name]], value=tensor)
        yield from _flatten(graph.node, scope, places)
        results.append([scope.get(value.name, value.name) for value in graph.output])
    then_names, else_names = results
    if not len(then_names) == len(else_names) == len(node.output):
        raise VerificationError("its branches have another number of results", where=where)
    for then_name, else_name, output in zip(then_names, else_names, node.output, strict=True):
        if output:
            operands = [node.input[0], then_name, else_name]
            yield helper.make_node("Where", operands, [output], node.name, doc_string=CHOICE)

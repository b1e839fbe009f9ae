"""Nodes of an ONNX graph and of the graphs within them: branches of If, bodies of Loop and Scan.

``names_read`` of a node If(c) whose branches return ``y`` and ``z`` of the graph around it is
``{"c", "y", "z"}``, of which only ``c`` is an input of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

Body = TypeVar("Body", GraphProto, FunctionProto)


def scopes_of(body: Body) -> Iterator[Body | GraphProto]:
    """Yields a graph or function, and the graphs within its nodes."""
    yield body
    for node in body.node:
        for graph in graphs_within(node):
            yield from scopes_of(graph)


def graphs_within(node: NodeProto) -> Iterator[GraphProto]:
    """Yields the graphs that are attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yields nodes, each after the nodes of the graphs within it."""
    for node in nodes:
        for graph in graphs_within(node):
            yield from all_nodes(graph.node)
        yield node


def names_read(nodes: Iterable[NodeProto]) -> set[str]:
    """Returns the names that nodes and the graphs within them read."""
    names: set[str] = set()
    for node in all_nodes(nodes):
        names.update(node.input)
        names.update(value.name for graph in graphs_within(node) for value in graph.output)
    return names


def needed_nodes(nodes: Iterable[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """Returns the nodes that outputs depend on, in their order."""
    names, backward = {*outputs}, []
    for node in reversed([*nodes]):
        if not names.isdisjoint(node.output):
            names |= names_read([node])
            backward.append(node)
    return backward[::-1]


def part_of(model: ModelProto, outputs: Iterable[str]) -> ModelProto:
    """Returns the part of a model that computes some of its outputs, with the inputs it reads."""
    names = {*outputs}
    nodes = needed_nodes(model.graph.node, names)
    values = names_read(nodes) | names
    part = ModelProto()
    part.CopyFrom(model)
    for field, entries in (
        (part.graph.node, nodes),
        (part.graph.input, [v for v in model.graph.input if v.name in values]),
        (part.graph.output, [v for v in model.graph.output if v.name in names]),
        (part.graph.initializer, [v for v in model.graph.initializer if v.name in values]),
    ):
        del field[:]
        field.extend(entries)
    return part

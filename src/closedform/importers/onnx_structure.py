"""The nodes of a model: ``If`` as nodes of both branches, and how many nodes there may be.

The nodes of a graph have no effects, so that the branch that is not taken computes what nothing
reads. A choice between tensors of two shapes is refused: ``Where`` would broadcast them.

A file may ask for more than its size: a function that calls another one twice, which calls another
one twice, has as many nodes as there are calls in all; a table has as many entries as its shape
says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
)

from closedform.errors import VerificationError

IF = "If"
CHOICE = "closedform.choice"
"""The ``doc_string`` of a ``Where`` that was an ``If``: its operands need one type.

A file that says so itself is read more strictly, and in no other way.
"""

BRANCH = "closedform.branch"
"""The ``doc_string`` of a node that was in a branch of an ``If``, which an engine may not run."""

_STANDARD = ("", "ai.onnx")

MOST_NODES = 100_000
"""Nodes of a model, each local function counted at each of its calls."""

MOST_ENTRIES = 65_536
"""Entries of one constant."""

_Key = tuple[str, str]


def has_branches(model: ModelProto) -> bool:
    """Whether a graph or local function has an ``If``, or says that a node was in one."""
    return any(
        _is_if(node) or node.doc_string == BRANCH for body in _bodies(model) for node in body.node
    )


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
    """Yields nodes, and the nodes of the graphs that are their attributes."""
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
        # Protobuf messages are mutable and shared: the given model is not changed.
        renamed.CopyFrom(node)
        renamed.doc_string = BRANCH if names else ""
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
        # ONNX forbids names that hide outer ones.
        hidden = sorted(names.keys() & set(inner_names))
        if hidden:
            raise VerificationError(f"its {label} defines {hidden[0]!r} again", where=where)
        scope = {**names, **{name: f"branch.{place}/{name}" for name in inner_names}}
        for tensor in graph.initializer:
            # A branch's initializer becomes a node: the outer list has one namespace.
            yield helper.make_node("Constant", [], [scope[tensor.name]], value=tensor)
        yield from _flatten(graph.node, scope, places)
        results.append([scope.get(value.name, value.name) for value in graph.output])
    then_names, else_names = results
    if not len(then_names) == len(else_names) == len(node.output):
        raise VerificationError("its branches have another number of results", where=where)
    for then_name, else_name, output in zip(then_names, else_names, node.output, strict=True):
        if output:
            # Where computes both branches, which have no effects; only the chosen values are seen.
            operands = [node.input[0], then_name, else_name]
            yield helper.make_node("Where", operands, [output], node.name, doc_string=CHOICE)


def check_size(model: ModelProto) -> None:
    """Raises VerificationError if a model has too many nodes, or functions that call themselves."""
    functions = {(function.domain, function.name): function for function in model.functions}
    sizes = _sizes(functions)
    total = _size(model.graph.node, sizes)
    if total > MOST_NODES:
        raise VerificationError(
            f"it has {_count(total)} nodes, its functions counted at each call; "
            f"at most {MOST_NODES} are read",
            where=f"graph {model.graph.name!r}",
            hint="split the model, or export only the part in question",
        )


def check_entries(name: str, tensor: TensorProto) -> None:
    """Raises VerificationError if a constant has too many entries."""
    count = entries_of(tensor)
    if count > MOST_ENTRIES:
        raise VerificationError(
            f"the constant {name!r} has {_count(count)} entries; at most {MOST_ENTRIES} are read",
            hint="a table of so many steps has a formula, or several files",
        )


def entries_of(tensor: TensorProto) -> int:
    """Returns the number of entries that the shape of a constant says."""
    return math.prod(tensor.dims)


def _count(number: int) -> str:
    """A number for people; the digits of a larger one say nothing."""
    # Calls within calls multiply it, and Python refuses to print more than 4300 digits.
    return str(number) if number < 10**12 else "more than 10**12"


def _sizes(functions: Mapping[_Key, FunctionProto]) -> dict[_Key, int]:
    """The nodes of each function with those that it calls, without recursion."""
    sizes: dict[_Key, int] = {}
    waiting: set[_Key] = set()
    pending = list(functions)
    # A stack instead of recursion: a chain of functions may be deeper than Python's limit.
    while pending:
        key = pending[-1]
        callees = {
            (node.domain, node.op_type) for node in nodes_within(functions[key].node)
        } & functions.keys()
        left = [key_of_callee for key_of_callee in callees if key_of_callee not in sizes]
        if key in sizes or not left:
            sizes.setdefault(key, _size(functions[key].node, sizes))
            waiting.discard(key)
            pending.pop()
            continue
        if key in waiting and not waiting.isdisjoint(left):
            raise VerificationError(f"the function {key[1]!r} calls itself")
        waiting.add(key)
        pending.extend(left)
    return sizes


def _size(nodes: Iterable[NodeProto], sizes: Mapping[_Key, int]) -> int:
    return sum(sizes.get((node.domain, node.op_type), 1) for node in nodes_within(nodes))

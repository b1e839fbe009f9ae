"""The step of a matrix in three graphs: on the shards, at one owner, and on the shards again.

A rule such as Muon needs the whole matrix for some of its operations only. What comes before them
element by element is computed on the shards, and so is what comes after; the tensors that travel to
the process that owns the matrix, and back, are the fewest bytes that separate the parts of a graph
(a minimum cut). All processes find the same cut: it depends on the full shape.

Where each process has as many rows, and they are whole blocks, a rule that steps each block by
itself (states of few bits) needs no owner: all of it is computed on the shards.

Example:
    The momentum of Muon stays on the shards. Its direction travels, and comes back orthogonal::

        >>> from closedform import optimizers
        >>> from closedform.compiler import compile_step
        >>> from closedform.options import ModelSpec
        >>> graph = compile_step(ModelSpec(optimizers.muon(ns_steps=1), {"w": (8, 4)}))
        >>> graphs = split_for_owner(graph, Cut((8, 4), (2, 4)))
        >>> [output.name for output in graphs.before.outputs]
        ['sent.0']
        >>> [output.name for output in graphs.whole.outputs]
        ['returned.0']
        >>> sorted(output.name for output in graphs.after.outputs)
        ['next.param.w', 'next.state.w.momentum_buffer', 'next.step']
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from closedform.ir.graph import Builder, Graph, Node, Role, Value
from closedform.ir.ops import ELEMENTWISE, Op
from closedform.ir.types import Shape, TensorType

SENT, RETURNED = "sent.", "returned."
"""Prefixes of the names of tensors that travel to the owner, and back from it."""

_UNCUT = 2**62
"""The weight of what no cut may contain: more than the bytes of all tensors."""


@dataclass(frozen=True, slots=True)
class Cut:
    """How a tensor is sharded.

    Attributes:
        shape: Its shape.
        part: The shape of the local part.
        draws: Whether random numbers can be drawn for the part, whose elements follow each other.
        count: The number of shards if they are equally many rows; 0 if not.
    """

    shape: Shape
    part: Shape
    draws: bool = True
    count: int = 0

    def has_parts(self, shape: Shape) -> bool:
        """Returns whether a tensor of some shape can be sharded along with this one."""
        is_even = bool(shape) and bool(self.count) and int(shape[0]) % self.count == 0
        return bool(shape) and (shape == self.shape or is_even)

    def part_of(self, shape: Shape) -> Shape:
        """Returns the local shape of a tensor of some shape; one without parts is whole."""
        if shape == self.shape:
            return self.part
        return (int(shape[0]) // self.count, *shape[1:]) if self.has_parts(shape) else shape

    def splits(self, node: Node, operands: Sequence[Node]) -> bool:
        """Returns whether the rows of a result need only the same rows of its operands."""
        first, *sizes = operands[0].type.shape or (1,) if operands else (1,)
        # A constant is whole in each process.
        is_even = self.count > 0 and not any(operand.op is Op.CONST for operand in operands)
        match node.op:
            case Op.REDUCE_SUM | Op.REDUCE_MAX:
                is_split = bool(sizes) and 0 not in node.attribute("axes")
                return is_split and is_even and self.has_parts((first, *sizes))
            case Op.RESHAPE:
                shapes = (node.type.shape, operands[0].type.shape)
                return is_even and all(map(self.has_parts, shapes))
            case Op.UNIFORM:
                return self.draws and node.type.shape == self.shape
            case Op.LOOKUP:
                return operands[0].op is Op.CONST and self.has_parts(node.type.shape)
        if node.op not in ELEMENTWISE and node.op is not Op.BROADCAST_TO:
            return False
        return (self.has_parts(node.type.shape) or is_number(node)) and all(
            is_number(operand)
            or (
                _is_repeated(operand, node)
                if operand.op is Op.CONST
                else self.has_parts(operand.type.shape) and _is_aligned(operand, node)
            )
            for operand in operands
        )

    def local_nodes(self, graph: Graph) -> list[bool]:
        """Returns whether a process can compute its part of each value, or the number."""
        is_local: list[bool] = []
        is_common: list[bool] = []  # a constant, or a number that depends on numbers
        for node in graph.nodes:
            operands = [graph.nodes[operand] for operand in node.operands]
            if node.op is Op.INPUT:
                is_common.append(not node.type.rank)
                is_local.append(not node.type.rank or self.has_parts(node.type.shape))
                continue
            are_common = all(is_common[operand] for operand in node.operands)
            is_common.append(node.op is Op.CONST or (are_common and is_number(node)))
            are_known = all(is_local[operand] or is_common[operand] for operand in node.operands)
            is_split = bool(operands) and are_known and self.splits(node, operands)
            is_local.append(is_split or (is_common[-1] and is_number(node)))
        return is_local


@dataclass(frozen=True, slots=True)
class OwnerGraphs:
    """A step in three graphs.

    Attributes:
        before: Local parts to ``sent.<k>``, which together are tensors of the full shape.
        whole: Full tensors to ``returned.<k>``, and to states of shapes other than the parameter's;
            its inputs are tensors sent, states of those shapes, parameters or gradients as they
            are, and numbers.
        after: Local parts and what is returned to the other outputs.
    """

    before: Graph
    whole: Graph
    after: Graph


def split_for_owner(graph: Graph, cut: Cut) -> OwnerGraphs:
    """Returns the graphs of a step whose operations on whole tensors run at one owner.

    Args:
        graph: The step of one parameter, for its full shape.
        cut: How it is sharded.
    """
    nodes, is_local = graph.nodes, cut.local_nodes(graph)
    if cut.count and not all(is_local[output.index] for output in graph.outputs):
        # Sums of rows at the owner, which has the bits of one process.
        return split_for_owner(graph, replace(cut, count=0))
    numbers = range(len(nodes))
    users: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for operand in {*node.operands}:
            users[operand].append(index)
    is_split = [cut.splits(node, [nodes[operand] for operand in node.operands]) for node in nodes]
    # At the owner: whole tensors, and what they are computed from.
    wholes = [
        index
        for index in numbers
        if not (is_local[index] or is_split[index] or nodes[index].op is Op.CONST)
    ]
    owned_nodes = {*wholes}
    for index in reversed(numbers):
        if not is_local[index] and not owned_nodes.isdisjoint(users[index]):
            owned_nodes.add(index)
    weights = [
        node.type.dtype.numpy.itemsize * prod(map(int, node.type.shape))
        if cut.has_parts(node.type.shape) or is_number(node)
        else _UNCUT
        for node in nodes
    ]
    local = {index: weights[index] for index in numbers if is_local[index]}
    parts = [index for index in local if nodes[index].op is Op.INPUT and nodes[index].type.rank]
    sent_nodes = smallest_cut(
        {
            index: [operand for operand in nodes[index].operands if is_local[operand]]
            for index in local
        },
        local,
        [index for index in local if not owned_nodes.isdisjoint(users[index])],
        parts,
    )
    at_owner: list[bool] = []
    for index, node in enumerate(nodes):
        is_computed = node.op is not Op.INPUT or index not in local or not node.type.rank
        is_known = is_computed and all(at_owner[operand] for operand in node.operands)
        at_owner.append(is_known or index in sent_nodes)
    remote = {
        index: weights[index] if at_owner[index] else _UNCUT
        for index in numbers
        if not is_local[index]
    }
    outputs = {output.name: output.index for output in graph.outputs}
    shard_outputs = {
        name: index
        for name, index in outputs.items()
        if cut.has_parts(nodes[index].type.shape) or not nodes[index].type.rank
    }
    # An input that is an output is a state that stays as it is.
    owner_outputs = {
        name: index
        for name, index in outputs.items()
        if name not in shard_outputs and nodes[index].op is not Op.INPUT
    }
    returned_nodes = smallest_cut(
        {index: [user for user in users[index] if is_split[user]] for index in remote},
        remote,
        wholes,
        [index for index in shard_outputs.values() if index in remote],
    )
    # An input travels as it is stored, under its name.
    names = {index: f"{SENT}{number}" for number, index in enumerate(sorted(sent_nodes - {*parts}))}
    results = {index: f"{RETURNED}{number}" for number, index in enumerate(sorted(returned_nodes))}
    return OwnerGraphs(
        _subgraph(graph, {}, {name: index for index, name in names.items()}, cut),
        _subgraph(graph, names, {name: index for index, name in results.items()} | owner_outputs),
        _subgraph(graph, results, shard_outputs, cut),
    )


def local_sums(graph: Graph, cut: Cut) -> Graph | None:
    """Returns the graph of sums over all elements of a tensor as that of a part, or None.

    It is None if a sum is of other terms than those of the elements.

    Args:
        graph: The parts of sums over all parameters, of one of them.
        cut: How it is sharded.
    """
    is_local = replace(cut, draws=False, count=0).local_nodes(graph)
    for output in graph.outputs:
        node = graph.nodes[output.index]
        if node.op is Op.CAST:
            node = graph.nodes[node.operands[0]]
        terms = graph.nodes[node.operands[0]] if node.op is Op.REDUCE_SUM else node
        is_sum = node is not terms and not node.type.rank and terms.type.shape == cut.shape
        if not (is_sum and is_local[node.operands[0]]):
            return None
    return _subgraph(graph, {}, {output.name: output.index for output in graph.outputs}, cut)


def assign_owners(works: Sequence[int], count: int) -> list[int]:
    """Returns the owner of each matrix: the largest first, each to the one with the least work.

    Args:
        works: The work of each.
        count: The number of processes.

    Example:
        >>> assign_owners([1, 4, 2, 2], 2)
        [0, 0, 1, 1]
    """
    loads, owners = [0] * count, [0] * len(works)
    for number in sorted(range(len(works)), key=lambda number: -works[number]):
        owners[number] = min(range(count), key=loads.__getitem__)
        loads[owners[number]] += works[number]
    return owners


def work_of(graph: Graph) -> int:
    """Returns the multiplications of a graph's products of matrices, and elements of all values."""
    total = 0
    for node in graph.nodes:
        inner = graph.nodes[node.operands[0]].type.shape[-1] if node.op is Op.MATMUL else 1
        total += prod(map(int, node.type.shape)) * int(inner)
    return total


def smallest_cut(
    edges: Mapping[int, Collection[int]],
    weights: Mapping[int, int],
    sources: Iterable[int],
    sinks: Iterable[int],
) -> set[int]:
    """Returns the nodes of least weight that all paths meet, and of several cuts the first one.

    The cost is linear in the edges for each node of the cut, and a few more.

    Args:
        edges: The nodes after each node.
        weights: The weight of each node.
        sources: The nodes where paths begin.
        sinks: The nodes where they end.

    Example:
        >>> smallest_cut({0: [2], 1: [2], 2: [3], 3: []}, {0: 1, 1: 1, 2: 1, 3: 1}, [0, 1], [3])
        {2}
    """
    # A flow through nodes: (node, 0) is where it enters, (node, 1) where it leaves.
    start, end = (-1, 0), (-1, 1)
    capacity: dict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for node, weight in weights.items():
        capacity[node, 0][node, 1] = weight
        capacity[node, 1] |= {(after, 0): _UNCUT for after in edges[node]}
    capacity[start] |= {(node, 0): _UNCUT for node in sources}
    for node in sinks:
        capacity[node, 1][end] = _UNCUT
    while True:
        before = {start: start}
        queue = [start]
        for place in queue:
            next_places = [
                after for after, left in capacity[place].items() if left and after not in before
            ]
            before |= dict.fromkeys(next_places, place)
            queue += next_places
        if end not in before:
            return {node for node in weights if (node, 0) in before and (node, 1) not in before}
        path = [end]
        while path[-1] != start:
            path.append(before[path[-1]])
        pairs = list(zip(path[1:], path, strict=False))
        amount = min(capacity[place][after] for place, after in pairs)
        for place, after in pairs:
            capacity[place][after] -= amount
            capacity[after][place] += amount


def is_number(node: Node) -> bool:
    """Returns whether a value has one element, which all elements of a tensor can meet."""
    return all(size == 1 for size in node.type.shape)


def _is_aligned(operand: Node, result: Node) -> bool:
    """Whether the rows of a result meet those of an operand, one by one."""
    return operand.type.rank == result.type.rank and operand.type.shape[0] == result.type.shape[0]


def _is_repeated(operand: Node, result: Node) -> bool:
    """Whether all rows of a result meet the same elements of an operand."""
    return operand.type.rank < result.type.rank or operand.type.shape[0] == 1


def _subgraph(
    graph: Graph, input_names: Mapping[int, str], outputs: Mapping[str, int], cut: Cut | None = None
) -> Graph:
    """The graph of some outputs in which given nodes are inputs; with a cut, that of a part."""
    needed_nodes = {*outputs.values()}
    for index in range(len(graph.nodes) - 1, -1, -1):
        if index in needed_nodes and index not in input_names:
            needed_nodes |= {*graph.nodes[index].operands}
    builder = Builder(graph.name)
    values: dict[int, Value] = {}
    for index in sorted(needed_nodes):
        node, attributes = graph.nodes[index], dict(graph.nodes[index].attributes)
        shape = node.type.shape if cut is None else cut.part_of(node.type.shape)
        if index in input_names or node.op is Op.INPUT:
            name = input_names[index] if index in input_names else str(attributes["name"])
            role = Role.STATE if index in input_names else Role(str(attributes["role"]))
            values[index] = builder.input(name, TensorType(node.type.dtype, shape), role)
            continue
        if node.op in (Op.BROADCAST_TO, Op.RESHAPE):
            attributes["shape"] = shape
        operands = (values[operand] for operand in node.operands)
        values[index] = builder.emit(node.op, *operands, **attributes)
    for name, index in outputs.items():
        builder.output(name, values[index])
    return builder.build()

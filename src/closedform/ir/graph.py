"""Graphs: immutable SSA in topological order, and the hash-consing builder that makes them.

    graph  ::= name, nodes, outputs
    node   ::= op, operands (indices of earlier nodes), attributes, type
    output ::= name, index of a node

Inputs and constants are nodes too. The builder returns the same value for the same node, so
sharing is by construction and equal graphs are equal tuples.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform.errors import GraphError
from closedform.ir.ops import AttributeValue, Op, infer_type
from closedform.ir.types import DType, Shape, TensorType

Array = NDArray[Any]


class Role(StrEnum):
    """The meaning of an input of a graph."""

    STEP = "step"
    HYPER = "hyper"
    PARAM = "param"
    GRAD = "grad"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Node:
    """One op applied to earlier nodes."""

    op: Op
    operands: tuple[int, ...]
    attributes: tuple[tuple[str, AttributeValue], ...]
    type: TensorType

    def attribute(self, name: str) -> Any:
        """Returns the value of an attribute; KeyError if the op has none of this name."""
        return dict(self.attributes)[name]

    def array(self) -> Array:
        """Returns the value of a constant as a read-only array."""
        return np.frombuffer(self.attribute("data"), self.type.dtype.numpy).reshape(
            tuple(int(dim) for dim in self.type.shape)
        )


@dataclass(frozen=True, slots=True)
class Output:
    """A named result of a graph: the index of the node that computes it."""

    name: str
    index: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A static, control-free computation.

    Attributes:
        name: An identifier.
        nodes: In topological order; inputs come first.
        outputs: The results, in order.
    """

    name: str
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input nodes in order."""
        return tuple(node for node in self.nodes if node.op is Op.INPUT)


@dataclass(frozen=True, slots=True)
class Value:
    """A handle on a node under construction."""

    index: int
    type: TensorType


def node_of(op: Op, operands: Sequence[Value], attributes: Mapping[str, AttributeValue]) -> Node:
    """Returns a node with the type that its operands give; GraphError if they do not fit the op."""
    type_ = infer_type(op, tuple(operand.type for operand in operands), attributes)
    indices = tuple(operand.index for operand in operands)
    # Sorted, so that nodes with the same attributes are equal: Builder builds one of them.
    return Node(op, indices, tuple(sorted(attributes.items())), type_)


class Builder:
    """Builds a graph node by node; the same node asked for twice is built once.

    Operands must come from the same builder. Types are inferred and checked at once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._nodes: list[Node] = []
        self._index: dict[Node, int] = {}
        self._outputs: list[Output] = []
        self._input_names: set[str] = set()
        self._output_names: set[str] = set()

    def input(self, name: str, type_: TensorType, role: Role) -> Value:
        """Adds an input; a second one of the same name is an error."""
        if name in self._input_names:
            raise GraphError(f"input {name!r} is declared twice", where=f"graph {self.name!r}")
        self._input_names.add(name)
        return self.emit(Op.INPUT, name=name, role=role, dtype=type_.dtype, shape=type_.shape)

    def const(self, value: Any, dtype: DType) -> Value:
        """Adds a constant from a Python or NumPy number or array, rounded once to ``dtype``.

        Raises:
            GraphError: The dtype is bool or an integer and does not hold the value exactly.
        """
        array_of_value = np.asarray(value)
        # Floats overflow to infinity, as they should; integers are compared below.
        with np.errstate(invalid="ignore", over="ignore"):
            array = array_of_value.astype(dtype.numpy, copy=False)
        if not dtype.is_float and not np.array_equal(array, array_of_value):
            raise GraphError(f"const: {dtype} does not hold {value!r} exactly")
        return self.emit(Op.CONST, data=array.tobytes(), dtype=dtype, shape=array_of_value.shape)

    def emit(self, op: Op, *operands: Value, **attributes: AttributeValue) -> Value:
        """Adds a node and returns its value; GraphError if the operands do not fit the op."""
        return self.add(node_of(op, operands, attributes))

    def add(self, node: Node) -> Value:
        """Adds a node, with the type that its operands give, and returns its value."""
        index = self._index.setdefault(node, len(self._nodes))
        if index == len(self._nodes):
            self._nodes.append(node)
        return Value(index, node.type)

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes so far; more may be appended."""
        return self._nodes

    def node(self, value: Value) -> Node:
        """Returns the node behind a value."""
        return self._nodes[value.index]

    def output(self, name: str, value: Value) -> None:
        """Names a value as a result of the graph."""
        if name in self._output_names:
            raise GraphError(f"output {name!r} is declared twice", where=f"graph {self.name!r}")
        self._output_names.add(name)
        self._outputs.append(Output(name, value.index))

    def build(self) -> Graph:
        """Returns the graph: inputs first, then the nodes that the outputs need, in order."""
        indices = {output.index for output in self._outputs}
        # Users come after their operands: one pass from the end finds all that the outputs need.
        for index in range(len(self._nodes) - 1, -1, -1):
            if index in indices:
                indices.update(self._nodes[index].operands)
        # Inputs stay, used or not: they are the interface.
        order = [i for i, node in enumerate(self._nodes) if node.op is Op.INPUT]
        order += [i for i in sorted(indices) if self._nodes[i].op is not Op.INPUT]
        place = {old: new for new, old in enumerate(order)}
        nodes = tuple(_renumber(self._nodes[old], place) for old in order)
        outputs = tuple(Output(output.name, place[output.index]) for output in self._outputs)
        return Graph(self.name, nodes, outputs)


def with_outputs(graph: Graph, names: Container[str]) -> Graph:
    """Returns a graph with only these outputs, and the nodes that they need."""
    builder = Builder(graph.name)
    values = [builder.add(node) for node in graph.nodes]
    for output in graph.outputs:
        if output.name in names:
            builder.output(output.name, values[output.index])
    return builder.build()


def _renumber(node: Node, place: Mapping[int, int]) -> Node:
    operands = tuple(place[operand] for operand in node.operands)
    return Node(node.op, operands, node.attributes, node.type)


def scalar(dtype: DType) -> TensorType:
    """Returns the type of a rank-0 value."""
    return TensorType(dtype, ())


def input_names(graph: Graph) -> tuple[str, ...]:
    """Returns the names of the inputs in order."""
    return tuple(node.attribute("name") for node in graph.inputs)


__all__ = [
    "Array",
    "Builder",
    "Graph",
    "Node",
    "Output",
    "Role",
    "Shape",
    "Value",
    "input_names",
    "scalar",
]

"""The checker: the conditions that a graph satisfies before anything reads it.

A graph made by ``Builder`` has legal types; a graph made by hand or from a text may break any rule.
The checker collects every problem with its place and raises once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from closedform.errors import GraphError
from closedform.ir.analysis.interval import Interval
from closedform.ir.analysis.ranges import ranges
from closedform.ir.graph import Graph, Node, Output, Role
from closedform.ir.ops import OPS, AttributeValue, Op, infer_type
from closedform.ir.types import DType, TensorType

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(graph: Graph, where: str = "") -> None:
    """Returns if the graph is legal.

    Inputs come first and have unique names and legal roles (a step is a scalar or tensor of
    integers); operands come before their use; attributes are complete and of their types; each
    recorded type is the inferred one; constants have as many bytes as their type says; the table of
    a lookup is a constant. By interval analysis: no integer is divided by zero, no least integer by
    -1 (the processor traps on it), no index is out of range.

    Args:
        graph: Any value of the class.
        where: What has just been done to the graph, such as ``"as parsed"``.

    Raises:
        GraphError: The graph breaks rules; the message has a line for each.
    """
    # Ranges read types and operands, so values are checked only in graphs of sound structure.
    problems = list(_structure(graph))
    if not problems:
        problems = list(_values(graph))
    if not problems:
        return
    place = f"graph {graph.name!r}" + (f", {where}" if where else "")
    if len(problems) == 1:
        raise GraphError(problems[0], where=place)
    problem_lines = "".join(f"\n  {problem}" for problem in problems)
    raise GraphError(f"{len(problems)} rules are broken{problem_lines}\n", where=place)


def label(graph: Graph, index: int) -> str:
    """Returns the name of a node in the text form: that of an input, or ``%k``."""
    node = graph.nodes[index]
    if node.op is Op.INPUT:
        return f"input {dict(node.attributes).get('name')!r}"
    return f"%{index - leading_inputs(graph)}"


def leading_inputs(graph: Graph) -> int:
    """Returns how many inputs come before the first other node."""
    for index, node in enumerate(graph.nodes):
        if node.op is not Op.INPUT:
            return index
    return len(graph.nodes)


def _structure(graph: Graph) -> Iterator[str]:
    if not isinstance(graph.name, str) or not IDENTIFIER.fullmatch(graph.name):
        yield f"the name of a graph must be an identifier, got {graph.name!r}"
    names: set[str] = set()
    first_other = leading_inputs(graph)
    for index, node in enumerate(graph.nodes):
        for problem in _node(graph, index):
            yield f"{label(graph, index)} = {node.op}: {problem}"
        if node.op is not Op.INPUT:
            continue
        if index > first_other:
            yield f"{label(graph, index)}: comes after other nodes: move it to the front"
        name = dict(node.attributes).get("name")
        if name in names:
            yield f"{label(graph, index)}: a second input of this name"
        names.add(str(name))
    yield from _outputs(graph)


def _outputs(graph: Graph) -> Iterator[str]:
    if not graph.outputs:
        yield "the graph has no outputs"
    names: set[str] = set()
    for output in graph.outputs:
        yield from _output(graph, output)
        if output.name in names:
            yield f"output {output.name!r}: a second output of this name"
        names.add(output.name)


def _output(graph: Graph, output: Output) -> Iterator[str]:
    if not isinstance(output.name, str) or not output.name:
        yield f"output {output.name!r}: the name must be a non-empty string"
    if type(output.index) is not int or not 0 <= output.index < len(graph.nodes):
        yield (
            f"output {output.name!r}: must be a node in 0..{len(graph.nodes) - 1}, "
            f"got {output.index!r}"
        )


def _node(graph: Graph, index: int) -> Iterator[str]:
    """Problems of one node; later rules are only tried where the earlier ones hold."""
    node = graph.nodes[index]
    if not isinstance(node.op, Op):
        yield f"is not an op; ops are {', '.join(OPS)}"
        return
    problems = [*_operands(node, index), *_attributes(node), *_type(node)]
    yield from problems
    if problems:
        return
    operands = tuple(graph.nodes[operand].type for operand in node.operands)
    if not all(isinstance(operand, TensorType) for operand in operands):
        return  # said of the operand
    try:
        inferred_type = infer_type(node.op, operands, dict(node.attributes))
    except GraphError as error:
        yield error.what.removeprefix(f"{node.op}: ")
        return
    if inferred_type != node.type:
        yield f"the node states {node.type}, but its type is {inferred_type}"
        return
    yield from RULES.get(node.op, _nothing)(graph, node)


def _operands(node: Node, index: int) -> Iterator[str]:
    for operand in node.operands:
        # type() and not isinstance: True is an int, and would be node 1.
        if type(operand) is not int or not 0 <= operand < index:
            yield f"operands must be earlier nodes, in 0..{index - 1}, got {operand!r}"


def _type(node: Node) -> Iterator[str]:
    if not isinstance(node.type, TensorType) or not isinstance(node.type.dtype, DType):
        yield f"the type must be a TensorType, got {node.type!r}"
    elif not _is_shape(node.type.shape):
        yield f"sizes must be integers >= 0 or identifiers, got {node.type.shape!r}"


def _attributes(node: Node) -> Iterator[str]:
    names = tuple(name for name, _ in node.attributes)
    expected = tuple(sorted(OPS[node.op].attributes))
    if names != expected:
        yield f"attributes must be {list(expected)} in this order, got {list(names)}"
        return
    for name, value in node.attributes:
        meaning, is_legal = ATTRIBUTES[name]
        if not is_legal(value):
            yield f"attribute {name!r} must be {meaning}, got {value!r}"


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        (type(dim) is int and dim >= 0) or (type(dim) is str and IDENTIFIER.fullmatch(dim))
        for dim in value
    )


def _is_axes(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(axis) is int for axis in value)


ATTRIBUTES: Mapping[str, tuple[str, Callable[[AttributeValue], bool]]] = {
    "name": ("a non-empty string", lambda value: type(value) is str and value != ""),
    "role": ("a Role", lambda value: isinstance(value, Role)),
    "dtype": ("a DType", lambda value: isinstance(value, DType)),
    "to": ("a DType", lambda value: isinstance(value, DType)),
    "shape": ("a tuple of integers >= 0 and identifiers", _is_shape),
    "data": ("bytes", lambda value: isinstance(value, bytes)),
    "axes": ("a tuple of integers", _is_axes),
    "permutation": ("a tuple of integers", _is_axes),
    "keepdims": ("a bool", lambda value: isinstance(value, bool)),
    **{
        name: ("an integer", lambda value: type(value) is int)
        for name in ("axis", "start", "stop", "seed")
    },
}
"""The requirement on each attribute: in words, and as a test."""


def _nothing(_: Graph, __: Node) -> Iterator[str]:
    return iter(())


def _input(_: Graph, node: Node) -> Iterator[str]:
    if node.attribute("role") is Role.STEP and not node.type.dtype.is_integer:
        yield f"a step must be i64 or i32, got {node.type}"


def _const(_: Graph, node: Node) -> Iterator[str]:
    if any(isinstance(dim, str) for dim in node.type.shape):
        yield f"a constant has no named sizes, got {node.type}"
        return
    count = 1
    for dim in node.type.shape:
        count *= int(dim)
    expected = count * node.type.dtype.numpy.itemsize
    data = node.attribute("data")
    if len(data) != expected:
        yield f"{node.type} takes {expected} bytes, got {len(data)}"
    elif node.type.dtype is DType.BOOL and set(data) - {0, 1}:
        yield f"a bool is the byte 0 or 1, got {max(data)}"


def _lookup(graph: Graph, node: Node) -> Iterator[str]:
    table = node.operands[0]
    if graph.nodes[table].op is not Op.CONST:
        yield f"the table must be a const, got {label(graph, table)} = {graph.nodes[table].op}"


TypeRule = Callable[[Graph, Node], Iterator[str]]
RULES: Mapping[Op, TypeRule] = {Op.INPUT: _input, Op.CONST: _const, Op.LOOKUP: _lookup}
"""Checks beyond the type rules of the op table."""


def _values(graph: Graph) -> Iterator[str]:
    intervals = ranges(graph)
    for index, node in enumerate(graph.nodes):
        if node.op is Op.LOOKUP:
            problems = _index(graph, node, intervals)
        elif node.op in (Op.FLOOR_DIV, Op.FLOOR_MOD) and node.type.dtype.is_integer:
            problems = _divisor(graph, node, intervals)
        else:
            continue
        for problem in problems:
            yield f"{label(graph, index)} = {node.op}: {problem}"


def _divisor(graph: Graph, node: Node, intervals: tuple[Interval, ...]) -> Iterator[str]:
    dividend, divisor = (intervals[operand] for operand in node.operands)
    name = label(graph, node.operands[1])
    if divisor.contains(0):
        yield f"divisor {name} is not proved nonzero, its range is {divisor}: use max(divisor, 1)"
    # x86's idiv raises SIGFPE for the least integer by -1, as for a divisor of 0: the process ends.
    least = int(np.iinfo(node.type.dtype.numpy).min)
    if dividend.contains(least) and divisor.contains(-1):
        yield (
            f"{least} by -1 is not ruled out, the ranges are {dividend} and {divisor}: "
            "use a positive divisor"
        )


def _index(graph: Graph, node: Node, intervals: tuple[Interval, ...]) -> Iterator[str]:
    table, index = node.operands
    size = int(graph.nodes[table].type.shape[0])
    interval = intervals[index]
    if interval.low < 0 or interval.high >= size:
        yield (
            f"index {label(graph, index)} is not proved in 0..{size - 1}, its range is "
            f"{interval}: clamp it with max(min(index, {size - 1}), 0)"
        )

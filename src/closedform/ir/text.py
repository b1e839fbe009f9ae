"""The text form of graphs, for people, goldens and diffs: ``parse_graph(print_graph(g)) == g``.

    graph   ::= "graph" identifier "(" inputs ")" "->" "(" outputs ")" "{" line* "}"
    input   ::= name ":" type role               output ::= name ":" type
    type    ::= dtype "[" (integer | identifier), … "]"
    line    ::= "%" integer "=" op operands attribute* ":" type      one node
              | name "=" operand                                     one output
    operand ::= "%" integer | name of an input
    const   ::= "const" (number | "[" (number ("x" count)?), … "]")    row-major, with runs

Nodes are numbered from %0 after the inputs. A name of letters, digits, ``_`` and ``.`` is written
bare; any other is a JSON string. For example::

    graph half(step: i64[] step) -> (value: f64[]) {
      %0 = cast(step) to=f64 : f64[]
      %1 = const 0.5 : f64[]
      %2 = mul(%0, %1) : f64[]
      value = %2
    }
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from closedform.ir.check import leading_inputs
from closedform.ir.graph import Graph, Node
from closedform.ir.literals import format_number
from closedform.ir.ops import Op
from closedform.ir.parser import BARE_NAME, parse_graph
from closedform.ir.types import DType

_RUN = 4
"""From this length on, equal numbers are written as a run."""


def print_graph(graph: Graph) -> str:
    """Returns the text form of a graph that ``check`` accepts, with a line break at the end."""
    inputs = ", ".join(
        f"{_name(node.attribute('name'))}: {node.type} {node.attribute('role')}"
        for node in graph.inputs
    )
    outputs = ", ".join(
        f"{_name(output.name)}: {graph.nodes[output.index].type}" for output in graph.outputs
    )
    lines = [f"graph {graph.name}({inputs}) -> ({outputs}) {{"]
    lines += [f"  {line}" for line in _lines(graph)]
    return "\n".join([*lines, "}", ""])


def _lines(graph: Graph) -> Iterator[str]:
    for index, node in enumerate(graph.nodes):
        if node.op is not Op.INPUT:
            yield f"{_operand(graph, index)} = {_application(graph, node)} : {node.type}"
    for output in graph.outputs:
        yield f"{_name(output.name)} = {_operand(graph, output.index)}"


def _application(graph: Graph, node: Node) -> str:
    if node.op is Op.CONST:
        return f"const {_constant(node)}"
    operands = ", ".join(_operand(graph, operand) for operand in node.operands)
    attributes = "".join(f" {name}={_attribute(value)}" for name, value in node.attributes)
    return f"{node.op}({operands}){attributes}"


def _operand(graph: Graph, index: int) -> str:
    node = graph.nodes[index]
    if node.op is Op.INPUT:
        return _name(node.attribute("name"))
    return f"%{index - leading_inputs(graph)}"


def _name(name: str) -> str:
    return name if BARE_NAME.fullmatch(name) else json.dumps(name)


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        return value.value
    if isinstance(value, int):
        return str(value)
    return f"[{','.join(str(item) for item in value)}]"


def _constant(node: Node) -> str:
    array = node.array()
    dtype = node.type.dtype
    if array.ndim == 0:
        return format_number(array[()], dtype)
    literals = (format_number(number, dtype) for number in array.ravel())
    return f"[{', '.join(_runs(literals))}]"


def _runs(literals: Iterator[str]) -> Iterator[str]:
    """The literals with runs of equal ones as ``literal x count``."""
    for literal, group in itertools.groupby(literals):
        count = sum(1 for _ in group)
        if count >= _RUN:
            yield f"{literal} x {count}"
        else:
            yield from [literal] * count


__all__ = ["parse_graph", "print_graph"]

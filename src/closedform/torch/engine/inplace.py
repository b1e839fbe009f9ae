"""The ops of a torch program that may write their result over an operand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import fx

from closedform.exporters.torch_module import TYPE, FxProgram, GraphProgram


class ForeachOp(NamedTuple):
    """A torch function that also exists on lists of tensors, and in place.

    Attributes:
        name: The functions are ``torch._foreach_<name>`` and, in place, ``_foreach_<name>_``.
        operands: How many operands it may write over: the first, or either if they commute.
    """

    name: str
    operands: int


FOREACH_OPS: Mapping[Any, ForeachOp] = {
    torch.add: ForeachOp("add", 2),
    torch.sub: ForeachOp("sub", 1),
    torch.mul: ForeachOp("mul", 2),
    torch.true_divide: ForeachOp("div", 1),
    torch.neg: ForeachOp("neg", 1),
    torch.abs: ForeachOp("abs", 1),
    torch.sqrt: ForeachOp("sqrt", 1),
    torch.exp: ForeachOp("exp", 1),
    torch.log: ForeachOp("log", 1),
    torch.sin: ForeachOp("sin", 1),
    torch.cos: ForeachOp("cos", 1),
    torch.floor: ForeachOp("floor", 1),
    torch.pow: ForeachOp("pow", 1),
    torch.minimum: ForeachOp("minimum", 2),
    torch.maximum: ForeachOp("maximum", 2),
}
"""The functions that programs consist of, except comparisons and choices."""

_ELEMENTWISE = frozenset(
    {
        *FOREACH_OPS,
        torch.where,
        torch.lt,
        torch.le,
        torch.eq,
        torch.logical_and,
        torch.logical_or,
        torch.logical_not,
        torch.fmod,
        torch.sign,
    }
)
"""Elementwise functions, whose result is in new memory."""


class InplaceProgram:
    """The nodes of a program, and which of them share memory.

    Args:
        program: The program.
        overwritable: The output that may be written over each input, both by index.

    Attributes:
        program: The program.
        nodes: All nodes: inputs, ops, the output.
        ops: The nodes between inputs and output.
        results: The nodes that are returned.
        overwritten: The operand that an op writes its result over, by its position.
        is_elementwise: Whether the program may run on tiles of its tensors.
    """

    def __init__(self, program: FxProgram | GraphProgram, overwritable: Mapping[int, int]) -> None:
        self.program = program
        self.nodes = list(program.graph.nodes)
        self.ops = self.nodes[len(program.input_names) : -1]
        outputs: Any = self.nodes[-1].args[0]
        self.results: tuple[fx.Node, ...] = outputs if isinstance(outputs, tuple) else (outputs,)
        self.is_elementwise = all(
            node.target in _ELEMENTWISE
            or node.target in (getattr, "to")
            or (node.target is torch.full and node.args[0] == ())
            for node in self.ops
        )
        self._last_use = {operand: node for node in self.nodes for operand in node.all_input_nodes}
        self.overwritten: dict[fx.Node, int] = {}
        for index, result in overwritable.items():
            self.overwritten |= self._chain(self.results[result], self.nodes[index]) or {}
        for node in self.ops:
            if node not in self.overwritten:
                self._overwrite_intermediate(node)

    def frees(self, node: fx.Node) -> list[fx.Node]:
        """Returns the values whose last use is this op."""
        return [operand for operand in node.all_input_nodes if self._last_use[operand] is node]

    def _overwrite_intermediate(self, node: fx.Node) -> None:
        """Lets an op write over an intermediate value that is not used afterwards."""
        for position in self._writable(node):
            operand: Any = node.args[position]
            if operand.target in _ELEMENTWISE:
                self.overwritten[node] = position
                return

    def _chain(self, node: fx.Node, start: fx.Node) -> dict[fx.Node, int] | None:
        """The ops, with their operands, that compute a value in the memory of an input, if any."""
        if node is start:
            return {}
        for position in self._writable(node):
            operand: Any = node.args[position]
            chain = self._chain(operand, start)
            if chain is not None:
                return {**chain, node: position}
        return None

    def _writable(self, node: fx.Node) -> list[int]:
        """The operands that an op could write over if it owned their memory.

        Such an operand has the shape and dtype of the result, is used here for the last time, and
        no op that uses it returns a view.
        """
        count = FOREACH_OPS[node.target].operands if node.target in FOREACH_OPS else 0
        return [
            position
            for position, operand in enumerate(node.args[:count])
            if isinstance(operand, fx.Node)
            and node.args.count(operand) == 1
            and self._last_use[operand] is node
            and _has_same_type(operand, node)
            and all(user.target in _ELEMENTWISE for user in operand.users)
        ]


def _has_same_type(value: fx.Node, operand: fx.Node) -> bool:
    """Whether two values are known to have the same shape and dtype."""
    return TYPE in value.meta and value.meta[TYPE] == operand.meta.get(TYPE)


def is_list(value: object) -> bool:
    """Returns whether a value is a tensor for each parameter; a device is shared by all."""
    return isinstance(value, fx.Node) and value.target is not getattr

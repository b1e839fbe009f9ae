"""Which op of a torch program may write its result over an operand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.passes.shape_prop import ShapeProp

from closedform.exporters.torch_module import GraphProgram


class Arithmetic(NamedTuple):
    """A function that torch has on lists and in place, too.

    Attributes:
        name: Its name there: ``_foreach_<name>``, and ``_foreach_<name>_`` in place.
        operands: How many operands it may write over: the first one, or either if they commute.
    """

    name: str
    operands: int


ARITHMETIC: Mapping[Any, Arithmetic] = {
    torch.add: Arithmetic("add", 2),
    torch.sub: Arithmetic("sub", 1),
    torch.mul: Arithmetic("mul", 2),
    torch.true_divide: Arithmetic("div", 1),
    torch.neg: Arithmetic("neg", 1),
    torch.abs: Arithmetic("abs", 1),
    torch.sqrt: Arithmetic("sqrt", 1),
    torch.exp: Arithmetic("exp", 1),
    torch.log: Arithmetic("log", 1),
    torch.sin: Arithmetic("sin", 1),
    torch.cos: Arithmetic("cos", 1),
    torch.floor: Arithmetic("floor", 1),
    torch.pow: Arithmetic("pow", 1),
    torch.minimum: Arithmetic("minimum", 2),
    torch.maximum: Arithmetic("maximum", 2),
}
"""The functions of torch that programs are made of, but for comparisons and choices."""

_ELEMENTWISE = frozenset(
    {
        *ARITHMETIC,
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
"""Functions whose result has an element for each element, and memory of its own."""


class Memory:
    """The values of a program, and which of them share memory.

    Args:
        program: The program.
        kept: The output that an input may be written over by, by their places.

    Attributes:
        program: The program.
        nodes: Its nodes: inputs, ops, the output.
        ops: Those between inputs and output.
        results: What it returns.
        overwritten: The operand that an op writes its result over.
    """

    def __init__(self, program: GraphProgram, kept: Mapping[int, int]) -> None:
        sizes = [[int(size) for size in node.type.shape] for node in program.source.inputs]
        ShapeProp(program).propagate(
            *(
                torch.empty(size, dtype=dtype, device="meta")
                for size, dtype in zip(sizes, program.input_dtypes, strict=True)
            )
        )
        self.program = program
        self.nodes = list(program.graph.nodes)
        self.ops = self.nodes[len(sizes) : -1]
        returned: Any = self.nodes[-1].args[0]
        self.results: tuple[fx.Node, ...] = returned if isinstance(returned, tuple) else (returned,)
        self._last = {used: node for node in self.nodes for used in node.all_input_nodes}
        self.overwritten: dict[fx.Node, int] = {}
        for place, result in kept.items():
            self.overwritten |= self._chain(self.results[result], self.nodes[place]) or {}
        for node in self.ops:
            if node not in self.overwritten:
                self._overwrite_own(node)

    def frees(self, node: fx.Node) -> list[fx.Node]:
        """Returns the values that no op after this one uses."""
        return [used for used in node.all_input_nodes if self._last[used] is node]

    @cached_property
    def is_elementwise(self) -> bool:
        """Whether the program may be run on parts of tensors that lie alike in memory."""
        return all(
            node.target in _ELEMENTWISE
            or node.target in (getattr, "to")
            or (node.target is torch.full and node.args[0] == ())
            for node in self.ops
        )

    def _overwrite_own(self, node: fx.Node) -> None:
        """Lets an op write over a value of the program that has no more use."""
        for position in self._writable(node):
            operand: Any = node.args[position]
            if operand.target in _ELEMENTWISE:
                self.overwritten[node] = position
                return

    def _chain(self, node: fx.Node, start: fx.Node) -> dict[fx.Node, int] | None:
        """The ops, and their operands, that make a value in the memory of an input, if they can."""
        if node is start:
            return {}
        for position in self._writable(node):
            operand: Any = node.args[position]
            found = self._chain(operand, start)
            if found is not None:
                return {**found, node: position}
        return None

    def _writable(self, node: fx.Node) -> list[int]:
        """The operands that an op could write over if it may have their memory.

        Each is as its result, used here the last time, and no op that uses it returns a view.
        """
        count = ARITHMETIC[node.target].operands if node.target in ARITHMETIC else 0
        return [
            position
            for position, operand in enumerate(node.args[:count])
            if isinstance(operand, fx.Node)
            and node.args.count(operand) == 1
            and self._last[operand] is node
            and _is_alike(operand, node)
            and all(user.target in _ELEMENTWISE for user in operand.users)
        ]


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    """Whether two values have one shape and dtype."""
    first, second = one.meta["tensor_meta"], other.meta["tensor_meta"]
    return bool(first.shape == second.shape and first.dtype == second.dtype)


def is_list(value: object) -> bool:
    """Returns whether a value of a program is a tensor of each member; a device is one for all."""
    return isinstance(value, fx.Node) and value.target is not getattr

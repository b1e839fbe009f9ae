"""Programs on lists of tensors: each op once for all members, in place where it may be.

A program is the torch.fx graph that one member runs. Its ops become those of ``torch._foreach``
where torch has one, and a loop over the members otherwise. So the cost of Python is that of one
member, and an output takes the memory of the state that it is the next value of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from closedform.torch.engine.bound_program import in_dtype
from closedform.torch.engine.inplace import ARITHMETIC, Memory, is_list

Values = list[Any]
"""The value of each node: a list with a tensor for each member, or what is one for all."""


class _Instruction(NamedTuple):
    """One op.

    Attributes:
        place: Where its result goes.
        function: From all values and the number of members to the result.
        frees: Values that have no more use.
    """

    place: int
    function: Callable[[Values, int], Any]
    frees: tuple[int, ...]


class ListProgram:
    """A program on lists of tensors.

    Args:
        memory: The program, and what it may write over.
    """

    def __init__(self, memory: Memory) -> None:
        self._dtypes = memory.program.input_dtypes
        self._places = {node: place for place, node in enumerate(memory.nodes)}
        self._outputs = [self._places[result] for result in memory.results]
        self._instructions = [
            _Instruction(
                self._places[node],
                self._function(node, memory.overwritten.get(node)),
                tuple(self._places[used] for used in memory.frees(node)),
            )
            for node in memory.ops
        ]

    def run(self, given: Sequence[list[Tensor]]) -> list[list[Tensor]]:
        """Returns the outputs, one list each; what was written over an input is that tensor.

        Args:
            given: The inputs, one list each.
        """
        values: Values = [None] * len(self._places)
        for place, (tensors, dtype) in enumerate(zip(given, self._dtypes, strict=True)):
            values[place] = [in_dtype(one, dtype) for one in tensors]
        count = len(given[0])
        for place, function, frees in self._instructions:
            values[place] = function(values, count)
            for used in frees:
                values[used] = None
        return [values[place] for place in self._outputs]

    def _function(self, node: fx.Node, overwritten: int | None) -> Callable[[Values, int], Any]:
        """What computes a node for all members."""
        if node.target in ARITHMETIC:
            return self._on_lists(node, ARITHMETIC[node.target].name, overwritten)
        if node.target is getattr:
            owner, name = self._operand(node.args[0]), str(node.args[1])
            return lambda values, _: getattr(owner(values)[0], name)
        target: Any = node.target
        function = getattr(Tensor, target) if node.op == "call_method" else target
        lists = [operand for operand in node.args if is_list(operand)]
        if not node.kwargs and lists and len(lists) == len(node.all_input_nodes):
            return self._on_rows(node, function)
        return self._one_by_one(node, function)

    def _on_rows(self, node: fx.Node, function: Callable[..., Any]) -> Callable[[Values, int], Any]:
        """An op that torch has for one tensor alone, of tensors and what is one for all."""
        given = [(is_list(operand), self._operand(operand)) for operand in node.args]

        def run(values: Values, count: int) -> Any:
            columns = (
                operand(values) if is_column else [operand(values)] * count
                for is_column, operand in given
            )
            return [function(*row) for row in zip(*columns, strict=True)]

        return run

    def _on_lists(
        self, node: fx.Node, name: str, overwritten: int | None
    ) -> Callable[[Values, int], Any]:
        """An op on lists.

        A number that all have is a list of it: torch reads a tensor of rank 0 that is in no list
        back to the host.
        """
        args = list(node.args)
        if overwritten is not None:
            args.insert(0, args.pop(overwritten))
            name += "_"
        function = getattr(torch, f"_foreach_{name}")
        first, *rest = (self._operand(operand) for operand in args)

        def run(values: Values, _: int) -> Any:
            kept = first(values)
            made = function(kept, *(operand(values) for operand in rest))
            return kept if overwritten is not None else made

        return run

    def _operand(self, operand: Any) -> Callable[[Values], Any]:
        """What finds an operand: a list, or a number for all."""
        if not isinstance(operand, fx.Node):
            return lambda _: operand
        place = self._places[operand]
        return lambda values: values[place]

    def _one_by_one(
        self, node: fx.Node, function: Callable[..., Any]
    ) -> Callable[[Values, int], Any]:
        """An op whose arguments hold tensors within others, or none."""

        def call(values: Values, row: int) -> Any:
            def entry(used: fx.Node) -> Any:
                value = values[self._places[used]]
                return value[row] if is_list(used) else value

            args = fx.map_arg(node.args, entry)
            return function(*args, **fx.map_arg(node.kwargs, entry))

        if not any(map(is_list, node.all_input_nodes)):
            return lambda values, count: [call(values, 0)] * count
        return lambda values, count: [call(values, row) for row in range(count)]

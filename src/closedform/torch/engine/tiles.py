"""Programs on large tensors of the CPU piece by piece, in memory that is taken once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from closedform.torch.engine.bound_program import in_dtype
from closedform.torch.engine.inplace import Memory, is_list


class _Instruction(NamedTuple):
    """One op: what it calls, the places of its operands, and that of its result."""

    function: Callable[..., Any]
    operands: tuple[int, ...]
    result: int


class PieceProgram:
    """An elementwise program on flat tensors of a size that is not large.

    What is between its inputs and its results lies in buffers that are kept: a new tensor for each
    op would be new memory of the system, page by page.

    Args:
        memory: The program, and what it may write over.
        size: The most elements of a tensor.
    """

    def __init__(self, memory: Memory, size: int) -> None:
        self._size, self._length = size, -1
        self._dtypes = memory.program.input_dtypes
        self._values: list[Any] = [None] * len(self._dtypes)
        self._buffers: dict[int, Tensor] = {}
        self._instructions: list[_Instruction] = []
        self._places = {node: place for place, node in enumerate(memory.nodes[: len(self._values)])}
        free: dict[tuple[bool, torch.dtype], list[int]] = {}
        used: dict[fx.Node, tuple[tuple[bool, torch.dtype], int]] = {}
        for node in memory.ops:
            if node.target is getattr or not any(map(is_list, node.all_input_nodes)):
                self._places[node] = self._add(_constant(node))
                continue
            operands = tuple(self._operand(operand) for operand in node.args)
            if node in memory.overwritten:
                kept: Any = node.args[memory.overwritten[node]]
                self._places[node] = self._places[kept]
                if kept in used:
                    used[node] = used.pop(kept)
            else:
                kind = bool(node.meta["tensor_meta"].shape), node.meta["tensor_meta"].dtype
                found = free.get(kind)
                self._places[node] = found.pop() if found else self._new_buffer(*kind)
                used[node] = kind, self._places[node]
            function = _cast if node.op == "call_method" else node.target
            self._instructions.append(_Instruction(function, operands, self._places[node]))
            for last in memory.frees(node):
                if last in used:
                    kind, place = used.pop(last)
                    free.setdefault(kind, []).append(place)
        self._outputs = [self._places[result] for result in memory.results]
        ranks = [node.type.rank for node in memory.program.source.inputs]
        self._vector = ranks.index(max(ranks))

    def run(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Returns the outputs; one that was written over an input is that tensor.

        The others are buffers, which the next call writes over.

        Args:
            given: The inputs: vectors of one length, and numbers.
        """
        length = given[self._vector].numel()
        if length != self._length:
            self._length = length
            for place, buffer in self._buffers.items():
                self._values[place] = buffer[:length] if buffer.dim() else buffer
        values = self._values
        values[: len(given)] = map(in_dtype, given, self._dtypes)
        for function, operands, result in self._instructions:
            function(*[values[operand] for operand in operands], out=values[result])
        return [values[place] for place in self._outputs]

    def _add(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _new_buffer(self, is_vector: bool, dtype: torch.dtype) -> int:
        place = self._add(None)
        self._buffers[place] = torch.empty((self._size,) if is_vector else (), dtype=dtype)
        return place

    def _operand(self, operand: Any) -> int:
        return self._places[operand] if is_list(operand) else self._add(operand)


def _constant(node: fx.Node) -> Any:
    """The value of a node that depends on no input: a device, or a tensor of rank 0 there."""
    if node.target is getattr:
        return torch.device("cpu")
    target: Any = node.target
    return target(*node.args, **fx.map_arg(node.kwargs, _constant))


def _cast(value: Tensor, _: torch.dtype, out: Tensor) -> None:
    out.copy_(value)

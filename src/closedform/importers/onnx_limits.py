"""The size of a model that is read: what a file may ask for without being as large itself.

A function that calls another one twice, which calls another one twice, has as many nodes as there
are calls in all; a table has as many entries as its shape says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

from closedform.errors import VerificationError
from closedform.importers.onnx_branches import nodes_within

MOST_NODES = 100_000
"""Nodes of a model, each local function counted at each of its calls."""

MOST_ENTRIES = 65_536
"""Entries of one constant."""

_Key = tuple[str, str]


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
    count = 1
    for size in tensor.dims:
        count *= size
    return count


def _count(number: int) -> str:
    """A number for people; the digits of a larger one say nothing."""
    return str(number) if number < 10**12 else "more than 10**12"


def _sizes(functions: Mapping[_Key, FunctionProto]) -> dict[_Key, int]:
    """The nodes of each function with those that it calls, without recursion."""
    sizes: dict[_Key, int] = {}
    waiting: set[_Key] = set()
    pending = list(functions)
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

"""Statements of the prover as data for the checker: terms as rows, in the order of their use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from closedform.language.symbols import InternalName
from closedform.verify.checker.lemmas import SUM
from closedform.verify.terms.tensor_functions import REDUCE_SUM, kind_of
from closedform.verify.terms.tree import Op, Term, walk


def statement_of(goal: Term, assume: Iterable[Term] = ()) -> dict[str, Any]:
    """Returns a goal and its assumptions as JSON data, each term printed as it is written.

    A prefix of its name distinguishes a symbol of the prover from the symbols of users.
    """
    assumptions = tuple(assume)
    places: dict[Term, int] = {}
    functions: dict[Any, str] = {}
    rows: list[list[Any]] = []
    for node in walk(*assumptions, goal):
        value: Any = None
        if node.op is Op.RATIONAL:
            value = str(node.value)
        elif node.op is Op.SYMBOL:
            value = [_name_of(node), node.value.integer, node.value.sign.value]
        elif node.op is Op.LOOKUP:
            value = [str(entry) for entry in node.value]
        elif node.op is Op.OPAQUE:
            value = functions.setdefault(node.value, f"{_kind_of(node)}{len(functions)}")
        places[node] = len(rows)
        rows.append([node.op.value, [places[arg] for arg in node.args], value])
    return {"nodes": rows, "assume": [places[fact] for fact in assumptions], "goal": places[goal]}


def _kind_of(node: Term) -> str:
    """The beginning of the name of an opaque function: it says which is a sum of elements."""
    return SUM if kind_of(node.value) == REDUCE_SUM else "function "


def _name_of(node: Term) -> str:
    name = node.value.name
    return f"{name.use}: {name}" if isinstance(name, InternalName) else f"user: {name}"

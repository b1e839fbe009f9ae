"""Statements of the prover as data for the checker: terms as rows, in the order of their use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from closedform.language.symbols import InternalName
from closedform.verify.terms.build import own_symbol, rewrite, subtract
from closedform.verify.terms.canonical import is_zero
from closedform.verify.terms.facts import is_non_negative
from closedform.verify.terms.tensor_functions import FUNCTIONS, REDUCE_MAX, REDUCE_SUM, kind_of
from closedform.verify.terms.tree import Op, Sign, Term, walk


def statement_of(goal: Term, assume: Iterable[Term] = ()) -> dict[str, Any]:
    """Returns a goal and its assumptions as JSON data, each term printed as it is written.

    A prefix of its name distinguishes a symbol of the prover from the symbols of users.
    """
    goal, assumptions = without_tensor_functions(goal, assume)
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
            value = functions.setdefault(node.value, f"function {len(functions)}")
        places[node] = len(rows)
        rows.append([node.op.value, [places[arg] for arg in node.args], value])
    return {"nodes": rows, "assume": [places[fact] for fact in assumptions], "goal": places[goal]}


def _name_of(node: Term) -> str:
    name = node.value.name
    return f"{name.use}: {name}" if isinstance(name, InternalName) else f"user: {name}"


def without_tensor_functions(
    goal: Term, assumptions: Iterable[Term]
) -> tuple[Term, tuple[Term, ...]]:
    """Returns a goal and assumptions with each function of tensors as a symbol.

    What is proved of the symbols is proved of the functions; what is not may still be true.
    """
    statements = (goal, *assumptions)
    if not any(_is_tensor_function(node) for node in walk(*statements)):
        return goal, statements[1:]
    names_of_functions: list[tuple[Term, Term]] = []

    def change(node: Term) -> Term:
        return _symbol_of(node, names_of_functions) if _is_tensor_function(node) else node

    goal, *facts = (rewrite(statement, change) for statement in statements)
    return goal, tuple(facts)


def _is_tensor_function(node: Term) -> bool:
    return node.op is Op.OPAQUE and kind_of(node.value) in FUNCTIONS


def _symbol_of(node: Term, names_of_functions: list[tuple[Term, Term]]) -> Term:
    """The symbol of an equal function, or a new one."""
    for function, name in names_of_functions:
        if function.value == node.value and all(
            is_zero(subtract(left, right))
            for left, right in zip(node.args, function.args, strict=True)
        ):
            return name
    is_reduction = kind_of(node.value) in (REDUCE_SUM, REDUCE_MAX)
    is_large = is_reduction and is_non_negative(node.args[0])
    # A sum or maximum of numbers >= 0 is >= 0, that of none included.
    sign = Sign.NONNEGATIVE if is_large else Sign.ANY
    name = own_symbol(f"{kind_of(node.value)}#{len(names_of_functions)}", sign=sign)
    names_of_functions.append((node, name))
    return name

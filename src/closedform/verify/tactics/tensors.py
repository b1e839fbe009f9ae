"""Functions of whole tensors in statements about one element, as numbers of which little is known.

A statement about a rule is one about any element, with the conditions that hold at that element.
A sum over a tensor, a product of matrices, or a transpose is made of other elements too, so nothing
that is assumed or split at this element may be used inside: ``sum |x|`` is not ``sum x`` where this
x is positive. Each such function therefore becomes a symbol before any tactic sees it: one for all
that are equal whatever their elements are, at least 0 where it is a sum or the maximum of what
cannot be negative.
"""

from __future__ import annotations

from collections.abc import Iterable

from closedform.verify.identity.canonical import is_zero
from closedform.verify.terms.build import rebuild, subtract, symbol
from closedform.verify.terms.facts import is_non_negative
from closedform.verify.terms.tensor_functions import FUNCTIONS, REDUCE_MAX, REDUCE_SUM, kind_of
from closedform.verify.terms.tree import Op, Sign, Term, walk


def without_tensor_functions(
    goal: Term, assumptions: Iterable[Term]
) -> tuple[Term, tuple[Term, ...]]:
    """Returns a goal and assumptions with each function of tensors as a symbol.

    What is proved of the symbols is proved of the functions; what is not may still be true.
    """
    statements = (goal, *assumptions)
    if not any(_is_tensor_function(node) for node in walk(*statements)):
        return goal, statements[1:]
    done: dict[Term, Term] = {}
    known: list[tuple[Term, Term]] = []
    for node in walk(*statements):
        made = rebuild(node, tuple(done[arg] for arg in node.args)) if node.args else node
        done[node] = _symbol_of(made, known) if _is_tensor_function(made) else made
    return done[goal], tuple(done[assumption] for assumption in statements[1:])


def _is_tensor_function(node: Term) -> bool:
    return node.op is Op.OPAQUE and kind_of(node.value) in FUNCTIONS


def _symbol_of(node: Term, known: list[tuple[Term, Term]]) -> Term:
    """The symbol of an equal function, or a new one."""
    for other, name in known:
        if other.value == node.value and all(
            is_zero(subtract(left, right))
            for left, right in zip(node.args, other.args, strict=True)
        ):
            return name
    is_reduction = kind_of(node.value) in (REDUCE_SUM, REDUCE_MAX)
    is_large = is_reduction and is_non_negative(node.args[0])
    sign = Sign.NONNEGATIVE if is_large else Sign.ANY
    name = symbol(f"{kind_of(node.value)}#{len(known)}", sign=sign)
    known.append((node, name))
    return name

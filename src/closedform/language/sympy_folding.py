"""A correction of SymPy: a choice inside a function of whole tensors stays inside.

SymPy 1.14 folds the condition of a branch: ``f(Piecewise((a, c), (b, True))) > 0`` becomes
``f(a) > 0`` where ``c`` holds, and ``f(b) > 0`` elsewhere. That is true of elementwise functions.
The sum of a tensor whose elements are chosen is neither the sum of all of ``a`` nor that of ``b``:
a step would silently be another one. SymPy folds while it constructs the branch, before the
library sees it, so that its function is corrected when ``closedform`` is imported.

Source: ``ExprCondPair.__new__`` and ``piecewise_fold`` of sympy/functions/elementary/piecewise.py,
SymPy 1.14.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy as sp
from sympy.functions.elementary.piecewise import ExprCondPair


def correct_folding() -> None:
    """Replaces SymPy's construction of a branch, once, by one that looks into no such function.

    A function of whole tensors has the class attribute ``is_elementwise = False``.
    """
    construct: Callable[[type, Any, Any], ExprCondPair] = ExprCondPair.__new__
    if hasattr(construct, "__wrapped__"):
        return

    @functools.wraps(construct)
    def new(cls: type, expr: Any, cond: Any) -> ExprCondPair:
        names = _names_of_tensors(cond) if isinstance(cond, sp.Basic) else {}
        if not names:
            return construct(cls, expr, cond)
        pair = construct(cls, expr, cond.xreplace(names))
        functions = {name: node for node, name in names.items()}
        return sp.Tuple.__new__(cls, pair.expr, pair.cond.xreplace(functions))

    ExprCondPair.__new__ = new


def _names_of_tensors(condition: sp.Basic) -> dict[sp.Basic, sp.Dummy]:
    """A symbol for each outermost function of whole tensors that has a choice in it."""
    if not condition.has(sp.Piecewise):
        return {}
    nodes = _functions_of_tensors(condition)
    return {node: sp.Dummy(real=node.is_real) for node in nodes if node.has(sp.Piecewise)}


def _functions_of_tensors(expr: sp.Basic) -> Iterator[sp.Basic]:
    nodes = sp.preorder_traversal(expr)
    for node in nodes:
        if not getattr(node, "is_elementwise", True):
            nodes.skip()
            yield node

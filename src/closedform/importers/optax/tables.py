"""Tables: choices by the step among constants, which are computed element by element.

A search in a table, as of ``jnp.interp``, makes choices within choices; its elements are a few
numbers, each on an interval of steps.

>>> first, second = (sp.Piecewise((1, t < end), (2, True)) for end in (3, 7))
>>> on_tables(lambda x, y: x + y, [first, second], lambda condition: condition)
Piecewise((2, t < 3), (3, t < 7), (4, True))
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TypeAlias

import sympy as sp
from sympy.core.relational import Relational

from closedform.importers.python.join import ValueRange, join_cells, simplify_cells
from closedform.language.symbols import t

Table: TypeAlias = Sequence[tuple[int, sp.Basic]]
"""The steps from which on the element is another, in order, and the elements; the first is 0."""


def on_tables(
    rule: Callable[..., sp.Basic],
    operands: Sequence[sp.Basic],
    decide: Callable[[sp.Basic], sp.Basic],
) -> sp.Basic | None:
    """Returns a function of tables and constants, or whether a table is above a function of t.

    Args:
        rule: The function.
        operands: Its operands.
        decide: Returns a condition on the step as intervals of steps.

    Returns:
        A choice by the step, or a condition on it; None where an operand is something else.
    """
    if not any(isinstance(operand, sp.Piecewise) for operand in operands):
        return None
    tables = [table_of(operand) for operand in operands]
    pairs = [*zip(operands, tables, strict=True)]
    formulas = [operand for operand, table in pairs if table is None]
    if len(formulas) == len(pairs) or any(x.free_symbols != {t} for x in formulas):
        return None
    result: dict[int, sp.Basic] = {}
    for first, end in _intervals(step for table in tables for step, _ in table or ()):
        value = rule(*(x if table is None else _element(table, first) for x, table in pairs))
        if formulas and isinstance(value, sp.Expr):
            return None
        part = table_of(decide(value) if formulas else value)
        if part is None:
            return None
        until = end or math.inf
        result |= {max(first, step): element for step, element in part if step < until}
    cells = simplify_cells([ValueRange(*ends, result[ends[0]]) for ends in _intervals(result)])
    if any(isinstance(cell.value, sp.Expr) for cell in cells):
        return join_cells(cells)
    return sp.Or(*(between(cell.first, cell.end) for cell in cells if cell.value))


def table_of(expr: sp.Basic) -> Table | None:
    """Returns the table that a number, a condition or a choice by thresholds of t is, or None.

    Conditions are comparisons of t with rational numbers, and Boolean functions of them.
    """
    pairs = expr.args if isinstance(expr, sp.Piecewise) else [(expr, sp.true)]
    if not isinstance(expr, sp.Expr):
        pairs = [(sp.true, expr), (sp.false, sp.true)]
    elif any(value.free_symbols for value, _ in pairs):
        return None
    steps = firsts_of(condition for _, condition in pairs)
    if steps is None:
        return None
    elements: dict[int, sp.Basic] = {}
    for value, condition in pairs:
        for first, end in _intervals(firsts_of([condition]) or []):
            truth = _decide_at(first, condition)
            if truth not in (sp.true, sp.false):
                return None
            if truth == sp.true:  # on the steps that no branch before has
                here = slice(bisect_left(steps, first), bisect_left(steps, end or math.inf))
                elements |= dict.fromkeys(steps[here], value)
                del steps[here]
    return None if steps else sorted(elements.items(), key=itemgetter(0))


def in_branches(expr: sp.Expr) -> sp.Expr:
    """Returns an expression with several choices by the same steps as one choice of formulas."""
    conditions = [tuple(condition for _, condition in p.args) for p in expr.atoms(sp.Piecewise)]
    firsts = firsts_of(c for branch in conditions for c in branch)
    if firsts is None or len({*conditions}) == len(conditions):
        return expr
    cells = [ValueRange(*ends, _decide_at(ends[0], expr)) for ends in _intervals(firsts)]
    return join_cells(simplify_cells(cells))


def between(first: int, end: int | None) -> sp.Basic:
    """Returns the condition that the step is in ``[first, end)``."""
    after = sp.Ge(t, first) if first else sp.true
    return after if end is None else sp.And(after, sp.Lt(t, end))


def firsts_of(conditions: Iterable[sp.Basic]) -> list[int] | None:
    """Returns steps where conditions may change; None if one has more than thresholds of t."""
    firsts = {0}
    for condition in conditions:
        for comparison in condition.atoms(Relational):
            bounds = [bound for bound in comparison.args if bound != t]
            if len(bounds) != 1 or not bounds[0].is_Rational:
                return None
            firsts |= {int(bounds[0] // 1), int(bounds[0] // 1) + 1}
    return sorted(first for first in firsts if first >= 0)


def _decide_at(step: int, expr: sp.Basic) -> sp.Basic:
    """An expression or condition with the truth values that its comparisons have at a step."""
    number = {t: sp.Integer(step)}
    return expr.xreplace({part: part.xreplace(number) for part in expr.atoms(Relational)})


def _intervals(firsts: Iterable[int]) -> list[tuple[int, int | None]]:
    """The intervals of steps that begin at steps, in order."""
    firsts = sorted({*firsts})
    return [*zip(firsts, [*firsts[1:], None], strict=True)]


def _element(table: Table, step: int) -> sp.Basic:
    return table[bisect_right(table, step, key=itemgetter(0)) - 1][1]

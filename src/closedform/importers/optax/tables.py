"""Tables: choices by the step among constants, which are computed element by element.

A search in a table, as of ``jnp.interp``, makes choices within choices; its elements are a few
numbers, each on an interval of steps.

>>> first, second = (sp.Piecewise((1, t < end), (2, True)) for end in (3, 7))
>>> on_tables(lambda x, y: x + y, [first, second], lambda condition: condition)
Piecewise((2, t < 3), (3, t < 7), (4, True))
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

import sympy as sp
from sympy.core.relational import Relational

from closedform.importers.python.join import ValueRange, join_cells, simplify_cells
from closedform.language.symbols import t

Table: TypeAlias = Mapping[int, sp.Basic]
"""The element from each step on at which it changes, in order, the first one from step 0 on."""

_COMPARISONS: Mapping[type[sp.Basic], Callable[[Fraction, Fraction], bool]] = {
    sp.Lt: operator.lt,
    sp.Le: operator.le,
    sp.Gt: operator.gt,
    sp.Ge: operator.ge,
    sp.Eq: operator.eq,
    sp.Ne: operator.ne,
}


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
    for first, end in _intervals(*(table for table in tables if table is not None)):
        value = rule(*(x if table is None else _element(table, first) for x, table in pairs))
        if formulas and isinstance(value, sp.Expr):
            return None
        part = table_of(decide(value) if formulas else value)
        if part is None:
            return None
        result[first] = _element(part, first)
        result |= {
            step: element
            for step, element in part.items()
            if step > first and (end is None or step < end)
        }
    cells = simplify_cells([ValueRange(*ends, result[ends[0]]) for ends in _intervals(result)])
    if any(isinstance(cell.value, sp.Expr) for cell in cells):
        return join_cells(cells)
    return sp.Or(*(between(cell.first, cell.end) for cell in cells if cell.value))


def table_of(expr: sp.Basic) -> Table | None:
    """Returns the table that a number, a condition or a choice by thresholds of t is, or None."""
    pairs = expr.args if isinstance(expr, sp.Piecewise) else [(expr, sp.true)]
    if not isinstance(expr, sp.Expr):
        pairs = [(sp.true, expr), (sp.false, sp.true)]
    elif any(value.free_symbols for value, _ in pairs):
        return None
    firsts = _firsts_of(condition for _, condition in pairs)
    if firsts is None:
        return None
    elements = {
        first: next((value for value, condition in pairs if _holds(condition, first)), None)
        for first in firsts
    }
    return None if None in elements.values() else elements


def in_branches(expr: sp.Expr) -> sp.Expr:
    """Returns an expression with several choices by the same steps as one choice of formulas."""
    conditions = [tuple(condition for _, condition in p.args) for p in expr.atoms(sp.Piecewise)]
    firsts = _firsts_of(c for branch in conditions for c in branch)
    if firsts is None or len({*conditions}) == len(conditions):
        return expr
    comparisons = expr.atoms(Relational)
    cells = [
        ValueRange(
            first,
            end,
            expr.xreplace({c: sp.S.true if _holds(c, first) else sp.S.false for c in comparisons}),
        )
        for first, end in _intervals(dict.fromkeys(firsts))
    ]
    return join_cells(simplify_cells(cells))


def between(first: int, end: int | None) -> sp.Basic:
    """Returns the condition that the step is in ``[first, end)``."""
    after = sp.Ge(t, first) if first else sp.true
    return after if end is None else sp.And(after, sp.Lt(t, end))


def _firsts_of(conditions: Iterable[sp.Basic]) -> list[int] | None:
    """Steps from which on conditions may be others; None if t is in another than a threshold."""
    firsts = {0}
    for condition in conditions:
        for comparison in condition.atoms(Relational):
            bounds = [bound for bound in comparison.args if bound != t]
            if len(bounds) != 1 or not bounds[0].is_Rational:
                return None
            firsts |= {int(bounds[0] // 1), int(bounds[0] // 1) + 1}
    return sorted(first for first in firsts if first >= 0)


def _holds(condition: sp.Basic, step: int) -> bool:
    match condition:
        case sp.And():
            return all(_holds(part, step) for part in condition.args)
        case sp.Or():
            return any(_holds(part, step) for part in condition.args)
        case sp.Not():
            return not _holds(condition.args[0], step)
        case Relational():
            a, b = (step if x == t else Fraction(int(x.p), int(x.q)) for x in condition.args)
            return _COMPARISONS[condition.func](Fraction(a), Fraction(b))
    return bool(condition)


def _intervals(*tables: Table) -> list[tuple[int, int | None]]:
    """The intervals of steps on which no table changes."""
    firsts = sorted({first for table in tables for first in table})
    return [*zip(firsts, [*firsts[1:], None], strict=True)]


def _element(table: Table, step: int) -> sp.Basic:
    return table[max(first for first in table if first <= step)]

"""Choices whose conditions hold no choice.

SymPy folds a ``Piecewise`` in a condition of another one by sets of real numbers: for a table of 19
entries that takes minutes. Here such a condition is decided for each branch first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.python.run import negation

MOST_BRANCHES = 1024
"""The most branches for which a condition is decided; it takes some 0.1 ms for each."""

Cases = list[tuple[sp.Basic, sp.Basic]]


def choice(cases: Iterable[tuple[sp.Expr, sp.Basic]]) -> sp.Piecewise:
    """Returns the value of the first case that holds; values stay as they are written.

    Args:
        cases: Values and their conditions.

    Raises:
        TraceError: A condition is about too many branches.

    Example:
        >>> from closedform import t
        >>> table = sp.Piecewise((5, t < 3), (7, True))
        >>> choice([(1, sp.Lt(table, 6, evaluate=False)), (2, sp.true)])
        Piecewise((1, t < 3), (2, True))
    """
    branches = [(value, without_choices(condition)) for value, condition in cases]
    return sp.Piecewise(*branches, evaluate=False)


def without_choices(condition: sp.Basic) -> sp.Basic:
    """Returns a condition that is decided for each branch of the choices in it.

    Raises:
        TraceError: It is about too many branches.
    """
    if not condition.has(sp.Piecewise):
        return condition
    count = branch_count(condition)
    if count > MOST_BRANCHES:
        raise TraceError(
            f"a condition is about {count:,} combinations of entries, and {MOST_BRANCHES:,} are "
            "the most that are traced",
            hint="make one table of them outside the function",
        )
    return over_branches(condition, lambda part: part, _first)


def branch_count(expr: sp.Basic) -> int:
    """Returns the number of combinations of branches that an expression is about."""
    conditions = {tuple(pair.cond for pair in part.args) for part in expr.atoms(sp.Piecewise)}
    return math.prod(map(len, conditions))


def over_branches(
    expr: sp.Basic, leaf: Callable[[sp.Basic], sp.Basic], join: Callable[[Cases], sp.Basic]
) -> sp.Basic:
    """Returns an expression with the choices in it made outside of it.

    Choices with the same conditions, such as tables of one index, are made together.

    Args:
        expr: A number or a condition.
        leaf: The result for an expression without a choice.
        join: The result of the cases of a choice.
    """
    if isinstance(expr, sp.And | sp.Or | sp.Not | sp.ITE):
        parts = [over_branches(part, leaf, join) for part in expr.args]
        return expr.func(*parts)
    choices = sorted(expr.atoms(sp.Piecewise), key=sp.default_sort_key)
    if not choices:
        return leaf(expr)
    outer = next(
        part for part in choices if not any(part in container.args for container in choices)
    )
    conditions = [pair.cond for pair in outer.args]
    alike = [part for part in choices if [pair.cond for pair in part.args] == conditions]
    cases = []
    for place, condition in enumerate(conditions):
        branch = expr.xreplace({part: part.args[place].expr for part in alike})
        cases.append((over_branches(branch, leaf, join), condition))
    return join(cases)


def _first(cases: Sequence[tuple[sp.Basic, sp.Basic]]) -> sp.Basic:
    """The truth of the first case that holds."""
    (result, certain), *rest = reversed(cases)
    if certain != sp.true:
        raise TraceError("a condition is about a value that some steps do not have")
    below: tuple[sp.Basic, sp.Basic] = result, certain
    for truth, condition in rest:
        is_implied = truth == below[0] and _implies(condition, below[1])
        if truth == result or is_implied:
            continue
        if truth == sp.true:
            result = condition if result == sp.false else sp.Or(condition, result, evaluate=False)
        elif truth == sp.false:
            no = negation(condition)
            result = no if result == sp.true else sp.And(no, result, evaluate=False)
        else:
            result = sp.ITE(condition, truth, result)
        below = truth, condition
    return result


def _implies(condition: sp.Basic, weaker: sp.Basic) -> bool:
    """Whether a bound implies another one of the same number, by how they are written."""
    if condition == weaker:
        return True
    if not (isinstance(condition, sp.Lt) and isinstance(weaker, sp.Lt)):
        return False
    is_same = condition.lhs == weaker.lhs
    return is_same and bool(condition.rhs.is_Rational and condition.rhs <= weaker.rhs)

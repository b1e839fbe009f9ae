"""The steps at which the formula of a schedule changes: ends of branches, and of Min and Max."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import sympy as sp
from sympy.core.relational import Relational

from closedform.language.symbols import t


def boundaries(expr: sp.Expr) -> tuple[int, ...]:
    """Returns the steps > 0 at which a branch, a Min or a Max of a formula changes, in order.

    Only conditions that are linear in the step are considered, not periodic ones.

    Example:
        >>> import sympy as sp
        >>> from closedform import t
        >>> boundaries(sp.Piecewise((t / 10, t < 10), (1, t <= 20), (0, True)))
        (10, 21)
    """
    steps = set(_changes(expr))
    return tuple(sorted(step for step in steps if step is not None and step > 0))


def _changes(expr: sp.Expr) -> Iterator[int | None]:
    for relation in expr.atoms(Relational):
        yield _first_change(relation)
    for bound in expr.atoms(sp.Max, sp.Min):
        for first, second in itertools.combinations(bound.args, 2):
            yield _crossing(first - second)


def _first_change(relation: Relational) -> int | None:
    """The first step at which the truth value of a relation linear in t changes."""
    step = _crossing(relation.lhs - relation.rhs)
    if step is None:
        return None
    # A zero between two steps changes the truth at the first step after it, a whole zero of <= or >
    # one step later.
    return step if _holds(relation, step) != _holds(relation, step - 1) else step + 1


def root_of_line(difference: sp.Expr) -> sp.Expr | None:
    """Returns where an expression linear in the step is 0; None for others and for constants."""
    polynomial = sp.expand(difference)
    slope = polynomial.coeff(t)
    intercept = polynomial - slope * t
    return None if slope == 0 or intercept.has(t) or slope.has(t) else -intercept / slope


def _crossing(difference: sp.Expr) -> int | None:
    """The first step at or after the zero of an expression in the step only; None for others."""
    root = root_of_line(difference) if difference.free_symbols <= {t} else None
    return None if root is None else int(sp.ceiling(root))


def _holds(relation: Relational, step: int) -> bool:
    at = {t: sp.Integer(step)}
    return bool(relation.func(relation.lhs.xreplace(at), relation.rhs.xreplace(at)))

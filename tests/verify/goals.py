"""The table of goals: a name, a truth, the assumptions, and the expected verdict.

`goals_schedules` has the goals about 29 schedules, `goals_equalities` those that relate schedules
to each other and to recurrences, `goals_optimizers` those about rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.verify.terms.build import equal, less, less_equal
from closedform.verify.terms.sympy_io import term
from closedform.verify.terms.tree import Term
from closedform.verify.terms.verdict import Status

PROVED, REFUTED = Status.PROVED, Status.REFUTED


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal of the table."""

    name: str
    goal: Term
    assume: tuple[Term, ...]
    expected: Status


def terms_of(conditions: Iterable[Any]) -> tuple[Term, ...]:
    return tuple(
        condition if isinstance(condition, Term) else term(condition) for condition in conditions
    )


def same(left: Any, right: Any) -> Term:
    return equal(term(left), term(right))


def at_most(left: Any, right: Any) -> Term:
    return less_equal(term(left), term(right))


def below(left: Any, right: Any) -> Term:
    return less(term(left), term(right))


def at(expr: sp.Expr, replacements: Mapping[sp.Basic, Any]) -> sp.Expr:
    """An expression at other values, replaced all at once and as it stands."""
    return expr.xreplace({old: sp.sympify(new) for old, new in replacements.items()})


def distinct(goals: Iterable[Goal]) -> list[Goal]:
    """The goals without those that are stated twice, under the name that comes first."""
    by_statement: dict[tuple[Term, tuple[Term, ...]], Goal] = {}
    for goal in goals:
        by_statement.setdefault((goal.goal, goal.assume), goal)
    return list(by_statement.values())

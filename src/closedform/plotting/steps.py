"""The steps of a plot or table: boundaries, the last step, evenly spaced ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sympy as sp
from sympy.core.relational import Relational

from closedform.language import Schedule, t

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STEPS_WITHOUT_END = 1000


def boundaries(schedule: Schedule) -> tuple[int, ...]:
    """Returns the steps > 0 at which a branch, a Min or a Max of the schedule changes, in order.

    Only conditions that are linear in the step are considered, not periodic ones.

    Example:
        >>> import sympy as sp
        >>> from closedform import Schedule, t
        >>> boundaries(Schedule(sp.Piecewise((t / 10, t < 10), (1, t <= 20), (0, True))))
        (10, 21)
    """
    steps = set(_changes(schedule.bound))
    return tuple(sorted(step for step in steps if step is not None and step > 0))


def last_step(schedule: Schedule) -> int:
    """Returns the last step of a table or plot of the schedule.

    This is the last step that its domain declares, else the length of the schedule if it has one,
    else 1.5 times its last boundary, else 1000.
    """
    if schedule.last_step is not None:
        return schedule.last_step
    if schedule.length is not None and schedule.length > 0:
        return int(schedule.length)
    marks = boundaries(schedule)
    return math.ceil(1.5 * marks[-1]) if marks else _STEPS_WITHOUT_END


def even_steps(end: int, most: int = 1_000_000) -> NDArray[np.int64]:
    """Returns the steps 0..end, or ``most`` evenly spaced ones if there are more."""
    import numpy as np

    return np.arange(end + 1) if end < most else np.linspace(0, end, most).astype(np.int64)


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
    return step if _holds(relation, step) != _holds(relation, step - 1) else step + 1


def _crossing(difference: sp.Expr) -> int | None:
    """The first step at or after the zero of an expression linear in t; None for others."""
    expanded = sp.expand(difference)
    slope = expanded.coeff(t)
    rest = expanded - slope * t
    if slope == 0 or rest.free_symbols or slope.free_symbols:
        return None
    return int(sp.ceiling(-rest / slope))


def _holds(relation: Relational, step: int) -> bool:
    at = {t: sp.Integer(step)}
    return bool(relation.func(relation.lhs.xreplace(at), relation.rhs.xreplace(at)))

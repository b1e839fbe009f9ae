"""Curves of frameworks as schedules: plain functions of the count, traced when a config is read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import sympy as sp

from closedform import delegation
from closedform.errors import DefinitionError
from closedform.language import Schedule, t
from closedform.recipes.intervals import ending
from closedform.recipes.section import Section

CurveFunction = Callable[..., float]
"""A function of the count and of keywords."""


def curve(
    name: str,
    function: CurveFunction,
    count: sp.Expr = t,
    /,
    *sections: Section,
    **numbers: Any,
) -> Schedule:
    """Returns the schedule of a function of the count, as the framework calls it in a run.

    The function is one of ``curves.py`` of a framework: numbers in, a number out, with ``if``,
    ``min``, ``//`` and the functions of ``math``. Numbers are exact, as in all schedules. Where it
    raises an exception, the run and the schedule end.

    Args:
        name: The name of the schedule.
        function: The function, which takes the count first, and keywords.
        count: The count at update t: ``Clock.count(facts).n``, or t itself.
        *sections: Sections of the config, whose keys are keywords of the function.
        **numbers: Its other keywords; it need not take all of them, as curves of one family do.

    Raises:
        DefinitionError: The function raises an exception at update 0.

    Example:
        >>> def warmup(count: int, *, rate: float, steps: int) -> float:
        ...     return rate * count / steps if count < steps else rate
        >>> schedule = curve("warmup", warmup, rate=sp.Rational(1, 10), steps=4)
        >>> schedule.bound
        Piecewise((t/40, t < 4), (1/10, True))
    """
    available: dict[str, Any] = {}
    for section in sections:
        available |= vars(section)
    available |= numbers
    _, *keywords = inspect.signature(function).parameters.values()
    values = {
        keyword.name: available.get(keyword.name, keyword.default)
        if keyword.default is not keyword.empty
        else available[keyword.name]
        for keyword in keywords
    }
    traced = delegation.functions().trace_curve(function, count, values)
    if not traced.cells:
        raise DefinitionError(f"update 0 has no value: {traced.reason}", where=name)
    if traced.end is None:
        return Schedule(traced.expr, name=name)
    return ending(traced.expr, traced.end, traced.reason, name)

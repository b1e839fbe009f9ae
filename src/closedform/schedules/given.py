"""Schedules that are given directly: by a function of the step, or by a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number, t
from closedform.language.aliases import Number, Steps
from closedform.schedules.arguments import stepwise


def function(
    definition: sp.Expr | Callable[[sp.Symbol], Any],
    *,
    name: str = "function",
    length: Steps | None = None,
    **hyperparameters: Number,
) -> Schedule:
    r"""Returns the schedule that an expression in ``t``, or a Python function of ``t``, defines.

    .. math:: f(t) = \text{the definition}

    Args:
        definition: A SymPy expression in ``closedform.t`` and symbols, or a function that is
            called once, with the clock, and returns one. Write branches on ``t`` with
            ``sympy.Piecewise``: a Python ``if`` on the clock cannot be decided.
        name: Its name, for graphs, files and errors.
        length: The number of steps after which its shape is complete, if it has one.
        **hyperparameters: Values of its symbols.

    Raises:
        DefinitionError: It is not an expression, or a value names no symbol of it.

    Example:
        >>> decay = function(lambda t: sp.Rational(1, 2) ** (t / 10))
        >>> [decay.exact(step) for step in (0, 10, 20)]
        [1, 1/2, 1/4]
        >>> function(1 / (1 + t)).exact(3)
        1/4

    Source: ``LambdaLR`` of torch 2.13, where the function is a factor of the base rate: ``scale``.
    """
    made = definition
    if not isinstance(definition, sp.Expr) and callable(definition):
        made = definition(t)
    return Schedule(made, name=name, length=length).bind(**hyperparameters)


def table(values: Sequence[Number]) -> Schedule:
    r"""Returns one given value a step, then the last one.

    .. math:: f(t) = v_{\min(t,\, n - 1)}

    Args:
        values: The values v from step 0 on, n of them, at least one. In the graph they are one
            constant table, however many.

    Raises:
        DefinitionError: There are no values, they are not a sequence, or one is not a finite
            number.

    Example:
        >>> schedule = table([0.1, 0.5, 0.25])
        >>> [schedule.exact(step) for step in (0, 1, 2, 9)]
        [1/10, 1/2, 1/4, 1/4]

    Source: none; it is for values that are measured, drawn by hand or computed elsewhere.
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise DefinitionError(
            f"values must be a sequence of numbers, got {type(values).__name__} {values!r}",
            where="table",
            hint="give a list",
        )
    if len(values) == 0:
        raise DefinitionError("values must not be empty, got none", where="table")
    exact = [exact_number(value, f"value {index} of table") for index, value in enumerate(values)]
    expr = stepwise(exact, [sp.Integer(end) for end in range(1, len(exact))])
    return Schedule(expr, name="table", length=len(exact))

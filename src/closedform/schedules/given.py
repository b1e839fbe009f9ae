"""Schedules that are given directly: by a function of the step, or by a table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import sympy as sp

from closedform import delegation
from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number
from closedform.language.aliases import Number, Steps
from closedform.language.lengths import with_lengths
from closedform.schedules.branches import stepwise


@with_lengths
def function(
    definition: sp.Expr | Callable[..., object],
    *,
    name: str = "function",
    length: Steps | None = None,
    **hyperparameters: Number,
) -> Schedule:
    r"""Returns the schedule that an expression in ``t``, or a Python function of ``t``, defines.

    .. math:: f(t) = \text{the definition}

    Args:
        definition: A SymPy expression in ``closedform.t`` and symbols, or a Python function of the
            step, which :func:`closedform.from_python` reads.
        name: Its name, for graphs, files and errors.
        length: The number of steps after which its shape is complete, if it has one.
        **hyperparameters: Values of its symbols, or of parameters of the function.

    Raises:
        DefinitionError: It is not an expression, or a value names no symbol of it.
        TraceError: The function cannot be traced.

    Example:
        >>> decay = function(lambda t: sp.Rational(1, 2) ** (t / 10))
        >>> [decay.exact(step) for step in (0, 10, 20)]
        [1, 1/2, 1/4]
        >>> from closedform import t
        >>> function(1 / (1 + t)).exact(3)
        1/4

    Source: ``LambdaLR`` of torch 2.13, where the function is a factor of the base rate: ``scale``.
    """
    if isinstance(definition, sp.Expr) or not callable(definition):
        return Schedule(definition, name=name, length=length).bind(**hyperparameters)
    variables = [key for key in hyperparameters if key in _variables(definition)]
    schedule = delegation.functions().from_python(definition, name=name, hyper=variables)
    if length is not None:
        numbers = schedule.hyperparameters
        schedule = Schedule(
            schedule.expr, name=name, length=length, domain=schedule.domain, **numbers
        )
    return schedule.bind(**hyperparameters) if hyperparameters else schedule


def _variables(function: Callable[..., object]) -> set[str]:
    """The parameters of a function besides the step."""
    try:
        return set(list(inspect.signature(function).parameters)[1:])
    except (TypeError, ValueError):  # a function without a signature
        return set()


@with_lengths
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

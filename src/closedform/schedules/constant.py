"""Schedules that hold one value, or one value after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, exact_number, hyper
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import rational_milestones, run_length
from closedform.language.lengths import with_lengths
from closedform.language.settled import values_in
from closedform.schedules.branches import stepwise, whole_length


@with_lengths
def constant(value: Number, steps: Steps | None = None) -> Schedule:
    r"""Returns one value at every step.

    .. math:: f(t) = v

    Args:
        value: The value v, any finite number.
        steps: Its length, at which ``then`` begins the next schedule; None for no length.
            The value does not depend on it.

    Raises:
        DefinitionError: ``value`` is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> constant(0.1).exact(1000)
        1/10

    Source: ``ConstantLR`` of cerebras.pytorch 2.10; that of torch is ``piecewise_constant``.
    """
    length = None if steps is None else whole_length(run_length(steps, "steps", "constant"))
    return Schedule(hyper("value"), name="constant", length=length, value=value)


@with_lengths
def piecewise_constant(values: Sequence[Number], milestones: Sequence[Steps]) -> Schedule:
    r"""Returns the first value until the first milestone, then the second, and so on.

    .. math:: f(t) = v_i \quad\text{for}\quad m_{i-1} \le t < m_i

    Args:
        values: The values, one more than milestones.
        milestones: The steps at which the next value begins, integers above 0, strictly
            increasing; empty for one value throughout.

    Raises:
        DefinitionError: The numbers of values and milestones do not fit, milestones are out of
            order or no integers above 0, or a value is not a finite number.

    Example:
        >>> schedule = piecewise_constant([1.0, 0.5, 0.25], [10, 20])
        >>> [schedule.exact(step) for step in (0, 9, 10, 20)]
        [1, 1, 1/2, 1/4]

    Source: ``PiecewiseConstantLR`` of cerebras.pytorch 2.10.
    """
    where = "piecewise_constant"
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise DefinitionError(
            f"values must be a sequence of numbers, got {type(values).__name__} {values!r}",
            where=where,
            hint="give a list, one more than milestones",
        )
    marks = rational_milestones(milestones, where)
    if len(values) != len(marks) + 1:
        raise DefinitionError(
            f"values must be one more than milestones: expected {len(marks) + 1}, "
            f"got {len(values)}",
            where=where,
        )
    for earlier, later in pairwise((sp.Integer(0), *marks)):
        if not later.is_Integer or later <= earlier:
            raise DefinitionError(
                "milestones must be integers above 0 and strictly increasing, "
                f"got {later} after {earlier}",
                where=where,
                hint="sort them, and drop duplicates",
            )
    exact = [exact_number(value, f"value {index} of {where}") for index, value in enumerate(values)]
    return Schedule(stepwise(exact, marks), name=where, length=marks[-1] if marks else None)


@with_lengths
def multi_step(value: Number, gamma: Number, milestones: Sequence[Steps]) -> Schedule:
    r"""Returns a value that is multiplied by ``gamma`` at each milestone.

    .. math:: f(t) = v\, \gamma^{\#\{m \le t\}}

    Args:
        value: The value v before the first milestone.
        gamma: The factor; above 1 it grows, below 0 the sign alternates.
        milestones: Steps in any order. At t = m the factor is applied already, so 0 and negative
            ones apply from the start; one that occurs twice counts twice; fractions are allowed.

    Raises:
        DefinitionError: An argument is not a finite number, or ``milestones`` is not a sequence.

    Example:
        >>> schedule = multi_step(1.0, 0.1, [5, 10])
        >>> [schedule.exact(step) for step in (4, 5, 10)]
        [1, 1/10, 1/100]

    Source: ``MultiStepLR`` of torch 2.13 (closed form) and of cerebras.pytorch 2.10: identical.
    """
    # A milestone that is listed twice counts twice, as in the Counter of torch's MultiStepLR.
    marks = Counter(rational_milestones(milestones, "multi_step"))
    initial, factor = hyper("value"), hyper("gamma")
    distinct = sorted(marks)
    counts = accumulate((marks[mark] for mark in distinct), initial=0)
    expr = stepwise([_product(factor**count, initial) for count in counts], distinct)
    length = max(whole_length(distinct[-1]), sp.Integer(0)) if marks else None
    arguments: dict[str, Any] = {"value": value, "gamma": gamma}
    exact_number(gamma, "gamma of multi_step")
    return Schedule(expr, name="multi_step", length=length, **values_in(expr, arguments))


def _product(power: sp.Expr, value: sp.Expr) -> sp.Expr:
    """The product as SymPy writes it, which takes 0.3 ms to sort its two factors."""
    return sp.Mul(value, power, evaluate=False) if isinstance(power, sp.Pow) else power * value

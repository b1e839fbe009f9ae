"""A value that goes from stage to stage, and may be taken over by another decay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, exact_number, t
from closedform.language.aliases import Count, Number
from closedform.language.arguments import choice, whole_number
from closedform.language.exact import value_at
from closedform.language.lengths import with_lengths
from closedform.schedules.branches import stepwise
from closedform.schedules.wsd import POSITIVE_SHAPES, SHAPES


class Stage(NamedTuple):
    """One stage of ``stages``.

    Attributes:
        end: The value after it.
        steps: Its number of steps, at least 1.
        shape: A shape of ``wsd``.
        start: Its first value; None for the value that the stage before ends at.
    """

    end: Number
    steps: Count
    shape: str = "linear"
    start: Number | None = None


@with_lengths
def stages(
    start: Number,
    stages: Sequence[Stage | tuple[Number, Count] | tuple[Number, Count, str]],
    at: Count | None = None,
    override: Stage | tuple[Number, Count] | tuple[Number, Count, str] | None = None,
) -> Schedule:
    r"""Returns stages one after the other, and a last one that may begin at any step.

    .. math:: f(t) = s_i\!\left(\frac{t - m_{i-1}}{N_i}\right) \quad\text{for}\quad
        m_{i-1} \le t < m_i, \qquad m_i = N_1 + \dots + N_i

    Stage i has the shape s of ``wsd`` from its first value to its end, which the next stage begins
    at; the last end is held. From step ``at`` on, the override goes from the value that is met
    there to its own end, and replaces all that would follow.

    Args:
        start: The value at step 0.
        stages: At least one: ``(end, steps)``, ``(end, steps, shape)`` or a ``Stage``.
        at: The step at which the override begins, at least 0.
        override: The last stage, as those before; None for no override.

    Raises:
        DefinitionError: A value is not a finite number, a shape is unknown, or ``at`` and
            ``override`` are not given together.
        DomainError: A count is not such an integer, or a shape needs values above 0.

    Example:
        >>> lr = stages(0, [(1, 10), (1, 30), (0, 60, "cosine")])
        >>> [lr.exact(step) for step in (0, 5, 10, 40, 70, 100)]
        [0, 1/2, 1, 1, 1/2, 0]
        >>> early = stages(0, [(1, 10), (1, 90)], at=50, override=(0, 20))
        >>> [early.exact(step) for step in (49, 50, 60, 70)]
        [1, 1, 1/2, 0]

    Source: ``ComposableScheduler`` of OLMo-core.
    """
    if not isinstance(stages, Sequence) or isinstance(stages, str) or not stages:
        raise DefinitionError(f"stages must be a list of stages, got {stages!r}", where="stages")
    if (at is None) != (override is None):
        raise DefinitionError(
            f"at and override must be given together, got {at!r} and {override!r}", where="stages"
        )
    last = exact_number(start, "start of stages")
    values: list[sp.Expr] = []
    marks: list[sp.Expr] = []
    begin = sp.S.Zero
    for index, stage in enumerate(stages):
        value, last, length = _curve(stage, last, begin, f"stage {index} of stages")
        begin += length
        values.append(value)
        marks.append(begin)
    values.append(last)
    if at is not None and override is not None:
        first = sp.Integer(whole_number(at, "at", "stages", least=0))
        value_reached = value_at(stepwise(values, marks), {t: first})
        before = sum(1 for mark in marks if mark < first)
        values, marks = values[: before + 1], [*marks[:before], first]
        value, last, length = _curve(override, value_reached, first, "the override of stages")
        values += [value, last]
        marks.append(first + length)
    return Schedule(stepwise(values, marks), name="stages", length=marks[-1])


def _curve(
    entry: object, previous: sp.Expr, begin: sp.Expr, where: str
) -> tuple[sp.Expr, sp.Expr, int]:
    """The expression of a stage, its end, and its number of steps."""
    if not isinstance(entry, tuple) or not 2 <= len(entry) <= 4:
        raise DefinitionError(
            f"a stage must be (end, steps) or (end, steps, shape), got {entry!r}", where=where
        )
    stage = Stage(*entry)
    choice(stage.shape, "shape", where, tuple(SHAPES))
    length = whole_number(stage.steps, "steps", where, least=1)
    first = previous if stage.start is None else exact_number(stage.start, "start")
    end = exact_number(stage.end, "end")
    if stage.shape in POSITIVE_SHAPES and not (first > 0 and end > 0):
        raise DomainError(
            f"the shape {stage.shape} needs values above 0, got {first} and {end}", where=where
        )
    return SHAPES[stage.shape](first, end, (t - begin) / sp.Integer(length)), end, length

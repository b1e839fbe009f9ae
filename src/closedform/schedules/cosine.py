"""Schedules along a cosine: held at the end, or swinging on."""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform.language import Schedule, hyper, t
from closedform.schedules.arguments import positive_steps, steps_symbol, whole_length
from closedform.schedules.blends import along_cosine


def cosine(start: Any, end: Any, steps: Any) -> Schedule:
    r"""Returns half a cosine from ``start`` to ``end``, which it holds.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi \min(t, N)}{N}\right)

    Args:
        start: The value a at step 0; it may be below ``end``.
        end: The value b from step N on.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is no finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> decay = cosine(1, 0, 10)
        >>> [decay.exact(step) for step in (0, 5, 10, 99)]
        [1, 1/2, 0, 0]

    Source: Loshchilov and Hutter, SGDR (2017), eq. 5, one period; ``CosineDecayLR`` of
    cerebras.pytorch 2.10.
    """
    number = positive_steps(steps, "steps", "cosine")
    n = steps_symbol(number)
    return Schedule(
        along_cosine(hyper("start"), hyper("end"), sp.Min(t, n) / n),
        name="cosine",
        length=whole_length(n),
        start=start,
        end=end,
        steps=number,
    )


def cosine_annealing(start: Any, end: Any, steps: Any) -> Schedule:
    r"""Returns a cosine between ``start`` and ``end`` that rises again: its period is 2N.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi t}{N}\right)

    Args:
        start: The value a at steps 0, 2N, 4N, …; it may be below ``end``.
        end: The value b at steps N, 3N, 5N, …
        steps: The half period N above 0; a fraction is allowed. It is the length, too.

    Raises:
        DefinitionError: An argument is no finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> swing = cosine_annealing(1, 0, 10)
        >>> [swing.exact(step) for step in (0, 5, 10, 15, 20)]
        [1, 1/2, 0, 1/2, 1]

    Source: ``CosineAnnealingLR`` of torch 2.13 (closed form) and of cerebras.pytorch 2.10:
    identical, neither is clamped.
    """
    number = positive_steps(steps, "steps", "cosine_annealing")
    n = steps_symbol(number)
    return Schedule(
        along_cosine(hyper("start"), hyper("end"), t / n),
        name="cosine_annealing",
        length=whole_length(n),
        start=start,
        end=end,
        steps=number,
    )

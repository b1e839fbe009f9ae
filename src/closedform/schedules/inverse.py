"""Schedules that fall like an inverse power of the time."""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform.language import Schedule, hyper, t
from closedform.schedules.arguments import NO_WARMUP, positive_steps


def inverse_square_root(value: Any = 1, scale: Any = 1, warmup: Any = 1) -> Schedule:
    r"""Returns a value that falls with the square root of the time, after a flat start.

    .. math:: f(t) = \frac{v\, s}{\sqrt{\max(t, W)}}

    Args:
        value: The value v.
        scale: The factor s; with s = √W the flat start is v itself.
        warmup: The number of flat steps W above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is no finite number.
        DomainError: ``warmup`` is not above 0: the value at step 0 would be infinite.

    Example:
        >>> decay = inverse_square_root(1e-3, scale=10, warmup=100)
        >>> [decay.exact(step) for step in (0, 100, 400)]
        [1/1000, 1/1000, 1/2000]

    Source: ``InverseSquareRootDecayLR`` of cerebras.pytorch 2.10 (its document leaves out v); the
    T5 schedule (Raffel et al., 2020) is v = s = 1, W = 10000.
    """
    number = positive_steps(warmup, "warmup", "inverse_square_root", NO_WARMUP)
    v, s, w = hyper("value"), hyper("scale"), hyper("warmup", positive=True)
    return Schedule(
        v * s / sp.sqrt(sp.Max(t, w)),
        name="inverse_square_root",
        value=value,
        scale=scale,
        warmup=number,
    )

"""A schedule that is computed from the gradient norms of an earlier run."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import accumulate

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, exact_number
from closedform.language.aliases import Number
from closedform.language.lengths import with_lengths
from closedform.schedules.given import table


@with_lengths
def refined(
    norms: Sequence[float],
    peak: Number = 1,
    power: Number = 2,
    smoothing: Number = 0.1,
) -> Schedule:
    r"""Returns the schedule that the gradient norms of an earlier run make optimal.

    .. math:: f(t) = a\, \frac{h_t}{\max_i h_i}, \qquad h_t = w_t \sum_{i = t + 1}^{T - 1} w_i,
        \qquad w_t = \hat g_t^{-k}

    Here :math:`\hat g` is the running median of the norms over :math:`2 \lfloor \tau T / 2 \rfloor
    + 1` steps; before the first step it sees the first norm, after the last one the norms
    mirrored. With constant norms it is a line to 0.

    Args:
        norms: The T norms g, one a step, above 0: L2 norms, or L1 norms for Adam.
        peak: The largest value a.
        power: The exponent k: 2 for SGD, 1 for Adam.
        smoothing: The part τ of the run over which medians are taken, from 0 to 1.

    Raises:
        DefinitionError: There are fewer than two norms, or one is not a finite number.
        DomainError: A norm is not above 0, or ``smoothing`` is not from 0 to 1.

    Example:
        >>> [float(refined([5] * 5, 1, 1, 0)(step)) for step in (0, 1, 3, 4, 9)]
        [1.0, 0.75, 0.25, 0.0, 0.0]
        >>> float(refined([1, 2, 1], smoothing=0)(1))
        0.2

    Source: Defazio et al., When, why and how much? Adaptive learning rate scheduling by refinement
    (2023), algorithm 1.
    """
    where = "refined"
    values = [float(value) for value in norms]
    if len(values) < 2 or not all(map(math.isfinite, values)):
        raise DefinitionError(
            f"norms must be at least two finite numbers, got {len(values)}: {_first(values)}",
            where=where,
        )
    if min(values) <= 0:
        step = values.index(min(values))
        raise DomainError(f"norm {step} must be above 0, got {values[step]}", where=where)
    part = exact_number(smoothing, "smoothing of refined")
    if not 0 <= part <= 1:
        raise DomainError(f"smoothing must be from 0 to 1, got {smoothing!r}", where=where)
    exponent, height = (
        exact_number(power, "power of refined"),
        exact_number(peak, "peak of refined"),
    )
    half = int(sp.floor(part * len(values))) // 2
    weights = [median ** -float(exponent) for median in running_median(values, half)]
    # Suffix sums from the end: linear, where a sum for each step is quadratic.
    later = [*accumulate(reversed(weights[1:]))][::-1]
    heights = [weight * rest for weight, rest in zip(weights, [*later, 0.0], strict=True)]
    largest = max(heights)
    return table([value / largest for value in heights]).scale(height).rename(where)


def running_median(values: Sequence[float], half: int) -> list[float]:
    """Returns the median of ``half`` values to either side of each one.

    Before the first value it sees that one, after the last one the values mirrored at it. The
    window stays sorted: the cost is that of one insertion for each value.
    """
    tail = values[-half - 1 : -1][::-1] if half else []
    padding = [*[values[0]] * half, *values, *tail]
    window = sorted(padding[: 2 * half + 1])
    medians = [window[half]]
    for old, new in zip(padding, padding[2 * half + 1 :], strict=False):
        del window[bisect_left(window, old)]
        insort(window, new)
        medians.append(window[half])
    return medians


def _first(values: Sequence[float]) -> str:
    """The first values that an error shows, those that are not finite before others."""
    bad = [value for value in values if not math.isfinite(value)]
    return ", ".join(map(str, (bad or values)[:3])) or "none"

"""Rises over magnitudes, for learning rate range tests."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, floor_div, hyper, t
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import run_length
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct
from closedform.schedules.blends import along_geometric
from closedform.schedules.branches import steps_symbol, whole_length


@with_lengths
def geometric(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns a geometric sweep from ``start`` to ``end``, which it holds.

    .. math:: f(t) = a \left(\frac{b}{a}\right)^{\min(t, N) / N}

    Args:
        start: The value a at step 0, above 0.
        end: The value b from step N on, above 0; below ``start`` it is an exponential decay.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``start``, ``end`` or ``steps`` is not above 0.

    Example:
        >>> sweep = geometric(1e-6, 1, 60)
        >>> [sweep.exact(step) for step in (0, 20, 30, 60, 99)]
        [1/1000000, 1/10000, 1/1000, 1, 1]

    Source: ``find_lr`` of fastai; ``ExponentialScheduler`` of OLMo-core.
    """
    number = run_length(steps, "steps", "geometric")
    for name, value in (("start", start), ("end", end)):
        if exact_number(value, f"{name} of geometric") <= 0:
            raise DomainError(f"{name} must be above 0, got {value!r}", where="geometric")
    n = steps_symbol(number)
    a, b = hyper("start", positive=True), hyper("end", positive=True)
    return Schedule(
        along_geometric(a, b, construct(sp.Min, t, n) / n),
        name="geometric",
        length=whole_length(n),
        start=start,
        end=end,
        steps=number,
    )


@with_lengths
def range_test(start: Number, rate: Number, steps: Steps, *, staircase: bool = False) -> Schedule:
    r"""Returns a rise for ever by ``rate`` times ``start`` every ``steps`` steps.

    .. math:: f(t) = a\,(1 + r\, e), \qquad e = \begin{cases} \lfloor t / N \rfloor &
        \text{staircase} \\ t / N & \text{else} \end{cases}

    Args:
        start: The value a at step 0.
        rate: The growth r over N steps, as a part of ``start``.
        steps: The number of steps N above 0 of one growth; a fraction is allowed.
        staircase: Whether to grow at once, at t = N, 2N, …

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> test = range_test(0.001, 1, 100)
        >>> [test.exact(step) for step in (0, 50, 100, 200)]
        [1/1000, 3/2000, 1/500, 3/1000]
        >>> range_test(0.001, 1, 100, staircase=True).exact(199)
        1/500

    Source: Smith, A disciplined approach to neural network hyper-parameters (2018);
    ``LRRangeTest`` of DeepSpeed.
    """
    number = run_length(steps, "steps", "range_test")
    n = steps_symbol(number)
    periods = floor_div(t, n) if staircase else t / n
    return Schedule(
        hyper("start") * (1 + hyper("rate") * periods),
        name="range_test",
        start=start,
        rate=rate,
        steps=number,
    )

"""Rises to a value: logarithmic and quadratic; ``linear`` is the straight one."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, hyper, t
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import run_length
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct
from closedform.schedules.blends import along_line, logarithmic
from closedform.schedules.branches import steps_symbol, whole_length


@with_lengths
def log_warmup(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns a rise from ``start`` to ``end`` along a logarithm, fast first.

    .. math:: f(t) = a + (b - a) \frac{\log \min(t + 1, N)}{\log N}

    Args:
        start: The value a at step 0.
        end: The value b from step N - 1 on.
        steps: The number of steps N above 1; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 1: the logarithm of 1 is 0.

    Example:
        >>> warmup = log_warmup(0, 1, 16)
        >>> [float(warmup(step)) for step in (0, 1, 3, 15, 99)]
        [0.0, 0.25, 0.5, 1.0, 1.0]

    Source: ``WarmupLR`` of DeepSpeed with ``warmup_type="log"``.
    """
    number = run_length(steps, "steps", "log_warmup")
    if number <= 1:
        raise DomainError(
            f"steps must be above 1, got {steps!r}", where="log_warmup", hint="log(1) is 0"
        )
    n = steps_symbol(number)
    return Schedule(
        along_line(hyper("start"), hyper("end"), logarithmic(construct(sp.Min, t, n - 1), n)),
        name="log_warmup",
        length=whole_length(n - 1),
        domain=(n > 1,),
        start=start,
        end=end,
        steps=number,
    )


@with_lengths
def quadratic_warmup(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns a rise from ``start`` to ``end`` along a parabola, slow first.

    .. math:: f(t) = a + (b - a) \left(\frac{\min(t, N)}{N}\right)^2

    Args:
        start: The value a at step 0, where it is flat.
        end: The value b from step N on.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> warmup = quadratic_warmup(0, 1, 10)
        >>> [warmup.exact(step) for step in (0, 5, 10, 99)]
        [0, 1/4, 1, 1]

    Source: ``lr_quadratic_warmup`` of axolotl.
    """
    number = run_length(steps, "steps", "quadratic_warmup")
    n = steps_symbol(number)
    return Schedule(
        along_line(hyper("start"), hyper("end"), (construct(sp.Min, t, n) / n) ** 2),
        name="quadratic_warmup",
        length=whole_length(n),
        start=start,
        end=end,
        steps=number,
    )

"""Schedules that go from one value to another along a power of the time: linear, polynomial."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, floor_div, hyper, t
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import run_length
from closedform.language.lengths import with_lengths
from closedform.schedules.branches import steps_symbol, whole_length


@with_lengths
def linear(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns a straight line from ``start`` to ``end``, which it holds.

    .. math:: f(t) = \begin{cases} a + (b - a)\, t / N & t < N \\ b & t \ge N \end{cases}

    Args:
        start: The value a at step 0; below ``end`` for a warmup.
        end: The value b from step N on.
        steps: The number of steps N above 0; a fraction is allowed, then b is first met at the
            integer step after it.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> warmup = linear(0, 3e-4, 2000)
        >>> [warmup.exact(step) for step in (0, 500, 2000, 9999)]
        [0, 3/40000, 3/10000, 3/10000]

    Source: ``LinearLR`` of cerebras.pytorch 2.10; torch's ``LinearLR`` is the same line between
    base*start_factor and base*end_factor.
    """
    number = run_length(steps, "steps", "linear")
    a, b, n = hyper("start"), hyper("end"), steps_symbol(number)
    expr = sp.Piecewise((a + (b - a) * t / n, t < n), (b, True))
    return Schedule(expr, name="linear", length=whole_length(n), start=start, end=end, steps=number)


@with_lengths
def polynomial(
    start: Number, end: Number, steps: Steps, power: Number = 1, *, cycle: bool = False
) -> Schedule:
    r"""Returns a power of the remaining time from ``start`` to ``end``, which it holds.

    .. math:: f(t) = \begin{cases} b + (a - b)(1 - t/N)^k & t < N \\ b & t \ge N \end{cases}

    With ``cycle`` the time is stretched instead of clamped: N is replaced by N⌊t/N + 1⌋, and no
    step is beyond the end.

    Args:
        start: The value a at step 0; it may be below ``end``.
        end: The value b from step N on, exactly, also where the power is 0 or below: power 0 holds
            a and then jumps to b, a power below 0 moves away from b and then jumps.
        steps: The number of steps N above 0; a fraction is allowed without ``cycle``.
        power: The exponent k, any finite number.
        cycle: Whether to stretch the time beyond N.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, or no integer where ``cycle`` is set.

    Example:
        >>> decay = polynomial(1, 0, 10, power=2)
        >>> [decay.exact(step) for step in (0, 5, 10)]
        [1, 1/4, 0]
        >>> polynomial(1, 0, 10, cycle=True).exact(15)
        1/4

    Source: ``PolynomialLR`` of cerebras.pytorch 2.10, whose ``cycle`` has no effect as implemented.
    """
    number = run_length(steps, "steps", "polynomial")
    exact_number(power, "power of polynomial")
    a, b, k = hyper("start"), hyper("end"), hyper("power")
    n = steps_symbol(number)
    arguments = {"start": start, "end": end, "steps": number, "power": power}
    if not cycle:
        expr = sp.Piecewise((b + (a - b) * (1 - t / n) ** k, t < n), (b, True))
        return Schedule(expr, name="polynomial", length=whole_length(n), **arguments)
    check_cycle(steps, "steps", "polynomial")
    cycle_end = n * (floor_div(t, n) + 1)
    expr = b + (a - b) * (1 - t / cycle_end) ** k
    return Schedule(expr, name="polynomial", **arguments)


@with_lengths
def fsl(start: Number, steps: Steps, beta: Number) -> Schedule:
    r"""Returns the optimal decay of the functional scaling law, a power of the remaining time.

    .. math:: f(t) = a \left(1 - \frac{\min(t, N)}{N}\right)^{2 \beta - 1}

    It is ``polynomial`` with the power 2β - 1.

    Args:
        start: The value a at step 0.
        steps: The number of steps N above 0; a fraction is allowed.
        beta: The capacity exponent β of the task, above 1/2: the larger, the earlier the fall.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, or ``beta`` is not above 1/2.

    Example:
        >>> [fsl(1, 100, beta=1.5).exact(step) for step in (0, 50, 90, 100)]
        [1, 1/4, 1/100, 0]

    Source: Li et al., Functional scaling laws in kernel regression (2025).
    """
    exponent = exact_number(beta, "beta of fsl")
    if exponent <= sp.S.Half:
        raise DomainError(f"beta must be above 1/2, got {beta!r}", where="fsl")
    return polynomial(start, 0, steps, 2 * exponent - 1).rename("fsl")


def check_cycle(steps: Steps, name: str, where: str) -> None:
    """Refuses a length over which a polynomial cannot be stretched.

    Raises:
        DomainError: It is not an integer.
    """
    if not exact_number(steps, f"{name} of {where}").is_Integer:
        raise DomainError(
            f"{name} must be an integer where cycle is set, got {steps!r}", where=where
        )

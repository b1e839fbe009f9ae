"""Schedules that are multiplied by one factor again and again."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, floor_div, hyper, t
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import positive_steps
from closedform.language.lengths import with_lengths
from closedform.schedules.branches import steps_symbol


@with_lengths
def exponential(
    value: Number, rate: Number, steps: Steps = 1, *, staircase: bool = False
) -> Schedule:
    r"""Returns a value that is multiplied by ``rate`` over every ``steps`` steps, for ever.

    .. math:: f(t) = v\, r^{e}, \qquad e = \begin{cases} \lfloor t / N \rfloor &
        \text{staircase} \\ t / N & \text{else} \end{cases}

    Args:
        value: The value v at step 0.
        rate: The factor r. Above 1 it grows; 0 gives v while e = 0 and 0 after; below 0 the sign
            alternates, which needs whole exponents: ``staircase`` or ``steps=1``.
        steps: The number of steps N above 0 per factor; a fraction is allowed.
        staircase: Whether to apply each factor at once, at t = N, 2N, …

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, or a fractional power of a negative rate is asked.

    Example:
        >>> decay = exponential(8, 0.25, 10)
        >>> [decay.exact(step) for step in (0, 5, 10, 20)]
        [8, 4, 2, 1/2]
        >>> [exponential(8, 0.25, 10, staircase=True).exact(step) for step in (9, 10)]
        [8, 2]

    Source: ``ExponentialLR`` of cerebras.pytorch 2.10; that of torch 2.13 is ``steps=1``.
    """
    return _factors("exponential", value, "rate", rate, steps, staircase=staircase)


@with_lengths
def step_decay(value: Number, gamma: Number, steps: Steps) -> Schedule:
    r"""Returns a value that is multiplied by ``gamma`` at every N-th step.

    .. math:: f(t) = v\, \gamma^{\lfloor t / N \rfloor}

    It is ``exponential`` as a staircase.

    Args:
        value: The value v before step N.
        gamma: The factor; 0 gives 0 from step N on, below 0 the sign alternates.
        steps: The number of steps N above 0 between factors; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> decay = step_decay(1, 0.1, 30)
        >>> [decay.exact(step) for step in (0, 29, 30, 60)]
        [1, 1, 1/10, 1/100]

    Source: ``StepLR`` of torch 2.13 (closed form) and of cerebras.pytorch 2.10: identical.
    """
    return _factors("step_decay", value, "gamma", gamma, steps, staircase=True)


@with_lengths
def multiplicative(value: Number, gamma: Number) -> Schedule:
    r"""Returns a value that is multiplied by ``gamma`` at every step.

    .. math:: f(t) = v\, \gamma^{t}

    It is ``exponential`` with one step per factor.

    Args:
        value: The value v at step 0.
        gamma: The factor; 0 gives 0 from step 1 on, below 0 the sign alternates.

    Raises:
        DefinitionError: An argument is not a finite number.

    Example:
        >>> [multiplicative(1, 0.5).exact(step) for step in (0, 1, 10)]
        [1, 1/2, 1/1024]

    Source: ``MultiplicativeLR`` of cerebras.pytorch 2.10; ``ExponentialLR`` of torch 2.13.
    """
    return _factors("multiplicative", value, "gamma", gamma, 1, staircase=False)


def check_factor(
    base: Number, steps: Steps, where: str, *, staircase: bool, names: tuple[str, str]
) -> sp.Expr:
    """Returns the factor of an exponential, exactly.

    Args:
        base: The factor.
        steps: The number of steps above 0 per factor.
        where: The schedule, for errors.
        staircase: Whether each factor is applied at once.
        names: What ``base`` and ``steps`` are called, for errors.

    Raises:
        DefinitionError: It is not a finite number.
        DomainError: It is below 0, and its power would be a fractional one.
    """
    base_name, steps_name = names
    factor = exact_number(base, f"{base_name} of {where}")
    if factor < 0 and not staircase and steps != 1:
        raise DomainError(
            f"{base_name} must be at least 0 where {steps_name} is {steps!r}, got {base!r}",
            where=where,
            hint="a fractional power of a negative number is not real; set staircase",
        )
    return factor


def _factors(
    name: str, value: Number, base_name: str, base: Number, steps: Steps, *, staircase: bool
) -> Schedule:
    """``value * base**(t/steps)``, the exponent floored where ``staircase`` is set."""
    number = positive_steps(steps, "steps", name)
    factor = check_factor(base, steps, name, staircase=staircase, names=(base_name, "steps"))
    v, r = hyper("value"), hyper(base_name)
    arguments = {"value": value, base_name: factor}
    if number == 1:
        return Schedule(v * r**t, name=name, **arguments)
    n = steps_symbol(number)
    exponent: sp.Expr = floor_div(t, n) if staircase else t / n
    # A negative number has whole powers only.
    domain = () if staircase else (r >= 0,)
    return Schedule(v * r**exponent, name=name, domain=domain, steps=number, **arguments)

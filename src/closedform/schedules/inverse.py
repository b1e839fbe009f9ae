"""Schedules that fall like an inverse power of the time."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, floor_div, hyper, t
from closedform.language.aliases import Number, Steps
from closedform.language.arguments import NO_WARMUP, positive_steps
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct
from closedform.schedules.branches import steps_symbol


@with_lengths
def inverse_square_root(value: Number = 1, scale: Number = 1, warmup: Steps = 1) -> Schedule:
    r"""Returns a value that falls with the square root of the time, after a flat start.

    .. math:: f(t) = \frac{v\, s}{\sqrt{\max(t, W)}}

    Args:
        value: The value v.
        scale: The factor s; with s = √W the flat start is v itself.
        warmup: The number of flat steps W above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
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
        v * s / sp.sqrt(construct(sp.Max, t, w)),
        name="inverse_square_root",
        value=value,
        scale=scale,
        warmup=number,
    )


@with_lengths
def inverse_time(
    value: Number, rate: Number, steps: Steps = 1, power: Number = 1, *, staircase: bool = False
) -> Schedule:
    r"""Returns a value that falls with the inverse of the time, or of a power of it.

    .. math:: f(t) = \frac{v}{1 + r\, a}, \qquad a = \begin{cases} \lfloor t^k / N \rfloor &
        \text{staircase} \\ t^k / N & \text{else} \end{cases}

    Args:
        value: The value v at step 0, where the power is above 0.
        rate: The rate r, at least 0.
        steps: The number of steps N above 0; a fraction is allowed. Only t is raised to the power.
        power: The exponent k. With 0 it is constant; below 0 it rises from 0 at step 0, the limit,
            towards v.
        staircase: Whether to floor a. Where k is not an integer, t^k is rounded before the floor.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, or ``rate`` is below 0: there is a pole.

    Example:
        >>> decay = inverse_time(1, 0.5, 10)
        >>> [decay.exact(step) for step in (0, 10, 20, 60)]
        [1, 2/3, 1/2, 1/4]
        >>> inverse_time(1, 0.5, 10, staircase=True).exact(19)
        2/3

    Source: ``InverseExponentialTimeDecayLR`` of cerebras.pytorch 2.10; with power 1
    ``InverseTimeDecay`` of Keras.
    """
    number = positive_steps(steps, "steps", "inverse_time")
    exponent = exact_number(power, "power of inverse_time")
    falling_rate(rate, "rate", "inverse_time")
    v, r, n = hyper("value"), hyper("rate"), steps_symbol(number)
    arguments = {"value": value, "rate": rate, "steps": number}
    domain = [r >= 0]
    if exponent == 1:
        time_power: sp.Expr = t
    else:
        k = hyper("power", integer=bool(exponent.is_integer))
        time_power = t**k
        arguments["power"] = exponent
        domain.append(k < 0 if exponent < 0 else k >= 0)
    if staircase:
        periods = floor_div(time_power, n) if exponent.is_integer else sp.floor(time_power / n)
    else:
        periods = time_power / n
    expr = v / (1 + r * periods)
    if exponent < 0:
        # t**k grows without bound towards t = 0 for k < 0, where v / (1 + r t**k) tends to 0.
        expr = sp.Piecewise((0, t < 1), (expr, True))
    return Schedule(expr, name="inverse_time", domain=domain, **arguments)


def falling_rate(rate: Number, name: str, where: str) -> sp.Expr:
    """Returns the rate of an inverse time decay, at least 0.

    Raises:
        DefinitionError: It is not a finite number.
        DomainError: It is below 0.
    """
    number = exact_number(rate, f"{name} of {where}")
    if number < 0:
        raise DomainError(
            f"{name} must be at least 0, got {rate!r}",
            where=where,
            hint="below 0 the value has a pole",
        )
    return number


@with_lengths
def power(value: Number, exponent: Number, warmup: Steps = 1) -> Schedule:
    r"""Returns a power law of the time, after a flat start.

    .. math:: f(t) = v \left(\frac{\max(t, W)}{W}\right)^{k}

    Args:
        value: The value v up to step W.
        exponent: The exponent k; -1/2 is the inverse square root, above 0 it grows.
        warmup: The number of flat steps W above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``warmup`` is not above 0.

    Example:
        >>> decay = power(1, -0.5, warmup=100)
        >>> [decay.exact(step) for step in (0, 100, 400)]
        [1, 1, 1/2]

    Source: Shen et al., Power scheduler (2024), min(v, a t^k): W is the step at which they meet.
    """
    number = positive_steps(warmup, "warmup", "power", NO_WARMUP)
    v, k, w = hyper("value"), hyper("exponent"), hyper("warmup", positive=True)
    return Schedule(
        v * construct(sp.Max, t / w, 1) ** k,
        name="power",
        value=value,
        exponent=exponent,
        warmup=number,
    )


@with_lengths
def noam(width: Number, warmup: Steps, factor: Number = 1) -> Schedule:
    r"""Returns the schedule of the Transformer: a linear warmup, then an inverse square root.

    .. math:: f(t) = \frac{s}{\sqrt d} \min\!\left(\frac{1}{\sqrt{t + 1}},
        \frac{t + 1}{W \sqrt W}\right)

    The paper counts steps from 1, the clock from 0.

    Args:
        width: The width d of the model, above 0.
        warmup: The number of warmup steps W above 0: the peak is at t = W - 1.
        factor: The factor s.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``width`` or ``warmup`` is not above 0.

    Example:
        >>> lr = noam(256, 100)
        >>> [lr.exact(step) for step in (0, 99, 399)]
        [1/16000, 1/160, 1/320]

    Source: Vaswani et al., Attention is all you need (2017), eq. 3.
    """
    size = positive_steps(width, "width", "noam", "it is the number of features of the model")
    number = positive_steps(warmup, "warmup", "noam", "1 is the shortest")
    s, d, w = hyper("factor"), hyper("width", positive=True), hyper("warmup", positive=True)
    shape = construct(sp.Min, 1 / sp.sqrt(t + 1), (t + 1) / (w * sp.sqrt(w)))
    return Schedule(s / sp.sqrt(d) * shape, name="noam", width=size, warmup=number, factor=factor)

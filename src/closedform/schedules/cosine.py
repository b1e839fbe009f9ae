"""Schedules along a cosine: constant after the end, or oscillating."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, exact_number, hyper, t
from closedform.language.aliases import Count, Number, Steps
from closedform.language.arguments import positive_steps, run_length, whole_number
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct, values_in
from closedform.schedules.blends import (
    along_cosine,
    along_envelope,
    along_half_cosine,
    along_line,
)
from closedform.schedules.branches import steps_symbol, whole_length


@with_lengths
def cosine(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns half a cosine from ``start`` to ``end``, which it holds.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi \min(t, N)}{N}\right)

    Args:
        start: The value a at step 0; it may be below ``end``.
        end: The value b from step N on.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> decay = cosine(1, 0, 10)
        >>> [decay.exact(step) for step in (0, 5, 10, 99)]
        [1, 1/2, 0, 0]

    Source: Loshchilov and Hutter, SGDR (2017), eq. 5, one period; ``CosineDecayLR`` of
    cerebras.pytorch 2.10.
    """
    return _fall("cosine", along_cosine, start, end, steps)


@with_lengths
def cosine_annealing(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns a cosine between ``start`` and ``end`` that rises again: its period is 2N.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi t}{N}\right)

    Args:
        start: The value a at steps 0, 2N, 4N, …; it may be below ``end``.
        end: The value b at steps N, 3N, 5N, …
        steps: The half period N above 0; a fraction is allowed. It is the length, too.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> swing = cosine_annealing(1, 0, 10)
        >>> [swing.exact(step) for step in (0, 5, 10, 15, 20)]
        [1, 1/2, 0, 1/2, 1]

    Source: ``CosineAnnealingLR`` of torch 2.13 (closed form) and of cerebras.pytorch 2.10:
    identical, neither is clamped.
    """
    where = "cosine_annealing"
    number = run_length(steps, "steps", where)
    n = steps_symbol(number)
    expr = along_cosine(hyper("start"), hyper("end"), t / n)
    return Schedule(expr, name=where, length=whole_length(n), start=start, end=end, steps=number)


@with_lengths
def cosine_with_min(start: Number, end: Number, steps: Steps, cycles: Number = 0.5) -> Schedule:
    r"""Returns ``cycles`` whole cosines between ``start`` and a least value, then the last value.

    .. math:: f(t) = b + \frac{a - b}{2} \begin{cases} 1 + \cos (2 \pi c\, t / N) & t < N \\
        1 + \cos (2 \pi c) & t \ge N \end{cases}

    Args:
        start: The value a at step 0 and after each whole cycle.
        end: The least value b, half a cycle later.
        steps: The number of steps N above 0 of all cycles together; a fraction is allowed.
        cycles: The number of cycles c above 0; 1/2 is ``cosine``.

    Raises:
        DefinitionError: An argument is not a finite rational number.
        DomainError: ``steps`` or ``cycles`` is not above 0.

    Example:
        >>> swings = cosine_with_min(1, 0.5, 30, cycles=1.5)
        >>> [swings.exact(step) for step in (0, 10, 20, 30, 31)]
        [1, 1/2, 1, 1/2, 1/2]

    Source: ``get_cosine_with_min_lr_schedule_with_warmup`` of transformers without its warmup;
    there the cosine goes on beyond N.
    """
    where = "cosine_with_min"
    number = run_length(steps, "steps", where)
    count = positive_steps(cycles, "cycles", where, "1/2 is a plain fall")
    n, c = steps_symbol(number), hyper("cycles", positive=True)
    a, b = hyper("start"), hyper("end")
    # The last value as a separate formula, not at min(t, N): its cosine is a constant of the graph.
    swing, final = along_cosine(a, b, 2 * c * t / n), along_cosine(a, b, 2 * c)
    return Schedule(
        sp.Piecewise((swing, t < n), (final, True)),
        name=where,
        length=whole_length(n),
        start=start,
        end=end,
        steps=number,
        cycles=count,
    )


@with_lengths
def flat_cosine(start: Number, end: Number, steps: Steps, flat: Steps) -> Schedule:
    r"""Returns ``start`` for a while, then half a cosine to ``end``, which it holds.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \pi p\right), \qquad
        p = \frac{\min(\max(t - F, 0), N - F)}{N - F}

    Args:
        start: The value a up to step F.
        end: The value b from step N on.
        steps: The number of steps N of both together; a fraction is allowed.
        flat: The number of flat steps F, at least 0 and below N.

    Raises:
        DefinitionError: An argument is not a finite rational number.
        DomainError: ``steps`` is not above 0, or ``flat`` not from 0 to below it.

    Example:
        >>> lr = flat_cosine(1, 0, 100, flat=80)
        >>> [lr.exact(step) for step in (0, 80, 90, 100)]
        [1, 1, 1/2, 0]

    Source: ``fit_flat_cos`` of fastai 2, where the flat part is 3/4 of all steps.
    """
    number = run_length(steps, "steps", "flat_cosine")
    flat_steps = exact_number(flat, "flat of flat_cosine")
    if not flat_steps.is_Rational:
        raise DefinitionError(f"flat must be a rational number, got {flat!r}", where="flat_cosine")
    if not 0 <= flat_steps < number:
        raise DomainError(
            f"flat must be at least 0 and below steps, got {flat!r} of {steps!r}",
            where="flat_cosine",
        )
    # Integer symbols where the numbers are: t - F is then computed in integers, without a rounding.
    n, f = steps_symbol(number), hyper("flat", integer=bool(flat_steps.is_Integer))
    progress = construct(sp.Min, construct(sp.Max, t - f, 0), n - f) / (n - f)
    return Schedule(
        along_cosine(hyper("start"), hyper("end"), progress),
        name="flat_cosine",
        length=whole_length(n),
        domain=(f >= 0, f < n),
        start=start,
        end=end,
        steps=number,
        flat=flat_steps,
    )


@with_lengths
def half_cosine(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns the second half of a cosine from ``start`` to ``end``, which it holds.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 - \sin \frac{\pi \min(t, N)}{2 N}\right)

    Args:
        start: The value a of the whole cosine: at step 0 it is midway, (a + b)/2.
        end: The value b from step N on.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> [half_cosine(1, 0, 30).exact(step) for step in (0, 10, 30, 99)]
        [1/2, 1/4, 0, 0]

    Source: ``HalfCosWithWarmup`` of OLMo-core, after its warmup.
    """
    return _fall("half_cosine", along_half_cosine, start, end, steps)


@with_lengths
def cosine_linear_envelope(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns half a cosine times a line, from ``start`` to ``end``, which it holds.

    .. math:: f(t) = b + \frac{a - b}{2} (1 - p) \left(1 + \cos \pi p\right), \qquad
        p = \frac{\min(t, N)}{N}

    Args:
        start: The value a at step 0; it may be below ``end``.
        end: The value b from step N on.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> decay = cosine_linear_envelope(1, 0, 30)
        >>> [decay.exact(step) for step in (0, 10, 15, 30)]
        [1, 1/2, 1/4, 0]

    Source: ``cosine_linear_envelope`` of OLMo, after its warmup.
    """
    return _fall("cosine_linear_envelope", along_envelope, start, end, steps)


def _fall(
    name: str,
    blend: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr],
    start: Number,
    end: Number,
    steps: Steps,
) -> Schedule:
    """An interpolation over ``steps``, whose end is held."""
    number = run_length(steps, "steps", name)
    n = steps_symbol(number)
    expr = blend(hyper("start"), hyper("end"), construct(sp.Min, t, n) / n)
    return Schedule(expr, name=name, length=whole_length(n), start=start, end=end, steps=number)


@with_lengths
def cosine_k_decay(
    peak: Number,
    end: Number,
    steps: Count,
    k: Number = 1,
    warmup: Count = 0,
    warmup_start: Number = 0,
    cooldown: Count = 0,
) -> Schedule:
    r"""Returns a linear warmup, a cosine over a power of its time, and a cooldown at ``end``.

    .. math:: f(t) = \begin{cases} c + (a - c)\, t / W & t < W \\
        b + \frac{a - b}{2} \left(1 + \cos \frac{\pi (t - W)^k}{M^k}\right)
        & W \le t < N - C \\ b & t \ge N - C \end{cases} \qquad M = N - W - C

    Args:
        peak: The value a at step W.
        end: The value b from step N - C on.
        steps: The number of steps N of all three together.
        k: The exponent k above 0; above 1 it stays high for longer.
        warmup: The number of steps W of the warmup; 0 for none.
        warmup_start: The value c at step 0, where there is a warmup.
        cooldown: The number of steps C at ``end``; W + C is below N.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: A count is not such an integer, they do not fit, or ``k`` is not above 0.

    Example:
        >>> lr = cosine_k_decay(1, 0, 100, warmup=20, cooldown=20)
        >>> [lr.exact(step) for step in (0, 10, 20, 50, 80, 100)]
        [0, 1/2, 1, 1/2, 0, 0]

    Source: Zhang and Li, k-decay (2020); ``CosineLrScheduler`` of pytorch-accelerated 0.1.61 by
    its documents (as implemented the cosine stops W steps early) and of timm.
    """
    where = "cosine_k_decay"
    number = whole_number(steps, "steps", where, least=1)
    rising = whole_number(warmup, "warmup", where, least=0)
    cooling = whole_number(cooldown, "cooldown", where, least=0)
    if rising + cooling >= number:
        raise DomainError(
            f"warmup and cooldown must leave steps for the cosine, got {rising} + {cooling} of "
            f"{number}",
            where=where,
        )
    exponent = positive_steps(k, "k", where, "1 is a plain cosine")
    exact_number(warmup_start, f"warmup_start of {where}")
    n = hyper("steps", integer=True, positive=True)
    w = hyper("warmup", integer=True, positive=True) if rising else sp.Integer(0)
    c = hyper("cooldown", integer=True, positive=True) if cooling else sp.Integer(0)
    a, b = hyper("peak"), hyper("end")
    arguments = {"peak": peak, "end": end, "steps": number, "warmup": rising, "cooldown": cooling}
    progress = (t - w) / (n - w - c)
    if exponent != 1:
        # Not (c*x)**k, which SymPy writes as c**k * x**k: 24**1.4234567890123457 takes it for ever.
        progress = construct(sp.Min, progress, 1) ** hyper("k", positive=True)
        arguments["k"] = exponent
    branches = [(along_cosine(a, b, progress), t < n - c), (b, True)]
    if rising:
        branches.insert(0, (along_line(hyper("warmup_start"), a, t / w), t < w))
        arguments["warmup_start"] = warmup_start
    expr = sp.Piecewise(*branches)
    domain = (w + c < n,) if rising or cooling else ()
    return Schedule(expr, name=where, length=n, domain=domain, **values_in(expr, arguments))

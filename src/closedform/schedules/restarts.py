"""Cosines that start again: with periods of one length, or ever longer ones."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError, LimitError, describe
from closedform.language import Schedule, exact_number, floor_mod, hyper, t
from closedform.language.aliases import Count, Number, Steps
from closedform.language.arguments import positive_steps, run_length, whole_number
from closedform.language.compose import product
from closedform.language.lengths import with_lengths
from closedform.schedules.blends import along_cosine, along_line
from closedform.schedules.branches import steps_symbol, whole_length

# The last step of the clock (lowering/analysis/domain.py): restarts beyond it are never met.
_LAST_RESTART = 2**50
_MOST_RESTARTS = 1000
"""Of periods that grow: 50 reach the last step of the clock."""


@with_lengths
def warm_restarts(
    start: Number, end: Number, steps: Steps, multiplier: int = 1, restarts: int | None = None
) -> Schedule:
    r"""Returns half cosines from ``start`` to ``end``, each ``multiplier`` times as long.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi (t - S_i)}{N M^i}\right)
        \quad\text{for}\quad S_i \le t < S_{i+1}, \qquad S_i = N (1 + M + \dots + M^{i-1})

    The period i is found by comparison with the restart steps, never by a logarithm.

    Args:
        start: The value a at step 0 and at every restart; it may be below ``end``.
        end: The value b that each period falls to; the restart comes before it is met.
        steps: The number of steps N above 0 of the first period; a fraction is allowed.
        multiplier: The factor M from period to period, an integer of at least 1.
        restarts: How many restarts there are; after the last period the value is b. None for no
            end: the restarts then reach beyond 2^50, the last step of the clock.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, ``multiplier`` is not an integer of at least 1, or
            ``restarts`` is not an integer of at least 0.

    Example:
        >>> swings = warm_restarts(1, 0, 10, multiplier=2)
        >>> [swings.exact(step) for step in (0, 5, 10, 20, 30)]
        [1, 1/2, 1, 1/2, 1]
        >>> warm_restarts(1, 0, 10, restarts=1).exact(20)
        0

    Source: Loshchilov and Hutter, SGDR (2017), eq. 5; ``CosineAnnealingWarmRestarts`` of torch
    2.13, whose ``step(epoch)`` finds the period with a logarithm and errs at some restarts. That
    of cerebras.pytorch 2.10 is constant in each period after the first, as implemented.
    """
    where = "warm_restarts"
    number = run_length(steps, "steps", where)
    factor = whole_number(multiplier, "multiplier", where, least=1)
    count = None if restarts is None else whole_number(restarts, "restarts", where, least=0)
    if factor > 1 and count is not None and count > _MOST_RESTARTS:
        raise LimitError(
            f"restarts must be at most {_MOST_RESTARTS} where periods grow, got {describe(count)}",
            where=where,
            hint="leave it out: restarts then reach beyond the last step of the clock",
        )
    n = steps_symbol(number)
    sums = _sums_of_powers(factor, count)
    if factor > 1:
        # At most 50 periods up to 2**50, as each is at least twice as long as the one before.
        progress = _growing_periods(n, factor, sums)
    elif count is None:
        progress = floor_mod(t, n) / n
    else:
        progress = sp.Piecewise((floor_mod(t, n) / n, t < sums[-1] * n), (1, True))
    return Schedule(
        along_cosine(hyper("start"), hyper("end"), progress),
        name=where,
        length=None if count is None else whole_length(sums[-1] * n),
        start=start,
        end=end,
        steps=number,
    )


def _sums_of_powers(factor: int, restarts: int | None) -> list[int]:
    """S_1/N, S_2/N, … up to the end of the last period."""
    if factor == 1:
        return [1 if restarts is None else restarts + 1]
    # S_{i+1} = M S_i + 1: the geometric sums, in integers.
    sums = [1]
    while len(sums) <= restarts if restarts is not None else sums[-1] <= _LAST_RESTART:
        sums.append(sums[-1] * factor + 1)
    return sums


def _growing_periods(n: sp.Expr, factor: int, sums: list[int]) -> sp.Expr:
    """The progress in each period: lines, which lower to one table; 1 after the last."""
    starts = [0, *sums[:-1]]
    branches = [
        ((t - begin * n) / (n * factor**index), t < stop * n)
        for index, (begin, stop) in enumerate(zip(starts, sums, strict=True))
    ]
    return sp.Piecewise(*branches, (1, True))


@with_lengths
def cosine_hard_restarts(start: Number, end: Number, steps: Steps, cycles: Number = 1) -> Schedule:
    r"""Returns ``cycles`` half cosines from ``start`` to ``end`` within ``steps``, then ``end``.

    .. math:: f(t) = \begin{cases} b + \frac{a - b}{2} \left(1 + \cos \frac{\pi (c\, t \bmod N)}{N}
        \right) & t < N \\ b & t \ge N \end{cases}

    Args:
        start: The value a at step 0 and at each restart.
        end: The value b that each cycle falls to, and the value from step N on.
        steps: The number of steps N above 0 of all cycles together; a fraction is allowed.
        cycles: The number of cycles c above 0; with a fraction the last one is cut.

    Raises:
        DefinitionError: An argument is not a finite rational number.
        DomainError: ``steps`` or ``cycles`` is not above 0.

    Example:
        >>> swings = cosine_hard_restarts(1, 0, 20, cycles=2)
        >>> [swings.exact(step) for step in (0, 5, 10, 15, 20)]
        [1, 1/2, 1, 1/2, 0]

    Source: ``get_cosine_with_hard_restarts_schedule_with_warmup`` of transformers, without its
    warmup: put ``linear`` before it.
    """
    where = "cosine_hard_restarts"
    number = run_length(steps, "steps", where)
    count = positive_steps(cycles, "cycles", where, "1 is a plain cosine")
    n, c = steps_symbol(number), hyper("cycles", positive=True)
    a, b = hyper("start"), hyper("end")
    swing = along_cosine(a, b, floor_mod(c * t, n) / n)
    return Schedule(
        sp.Piecewise((swing, t < n), (b, True)),
        name=where,
        length=whole_length(n),
        start=start,
        end=end,
        steps=number,
        cycles=count,
    )


@with_lengths
def jagged_restarts(
    schedule: Schedule, every: Count, warmup: Count = 10, anneal: Count = 1, low: Number = 0.001
) -> Schedule:
    r"""Returns a schedule with short falls and new warmups, for a restart of the optimizer.

    .. math:: g(t) = f(t)\, h(t), \qquad h(t) = \begin{cases} 1 & t < R - A \\
        l + (1 - l)\, m / W & m < W \\ l + (1 - l)(R - m) / A & m \ge R - A \\
        1 & \text{else} \end{cases} \qquad m = t \bmod R

    The first warmup is that of the schedule itself.

    Args:
        schedule: The schedule f.
        every: The number of steps R of a period, at least 1.
        warmup: The number of steps W of the warmup of each period but the first, at least 1.
        anneal: The number of steps A of the fall at the end of each period, at least 1; W + A is
            at most R.
        low: The part l of f at each restart.

    Raises:
        DefinitionError: ``low`` is not a finite number.
        DomainError: A count is not such an integer, or the warmup and the fall do not fit.

    Example:
        >>> from closedform.schedules import constant
        >>> lr = jagged_restarts(constant(1), 100, warmup=20, anneal=10, low=0)
        >>> [lr.exact(step) for step in (0, 90, 95, 100, 110, 120)]
        [1, 1, 1/2, 0, 1/2, 1]

    Source: Lialin et al., ReLoRA (2023), section 3; ``jagged_restart`` of axolotl.
    """
    where = "jagged_restarts"
    lengths = {"every": every, "warmup": warmup, "anneal": anneal}
    counts = [whole_number(value, name, where, least=1) for name, value in lengths.items()]
    if counts[1] + counts[2] > counts[0]:
        raise DomainError(
            f"warmup and anneal must fit into every, got {counts[1]} + {counts[2]} > {counts[0]}",
            where=where,
        )
    period, rise, fall = map(sp.Integer, counts)
    factor = jagged_factor(t, period, rise, fall, exact_number(low, f"low of {where}"))
    return product([schedule, Schedule(factor)], name=where)


def jagged_factor(
    step: sp.Expr, period: sp.Expr, rise: sp.Expr, fall: sp.Expr, low: sp.Expr
) -> sp.Expr:
    """Returns the factor h of ``jagged_restarts`` at a step."""
    part = floor_mod(step, period)
    return sp.Piecewise(
        (sp.S.One, sp.Lt(step, period - fall)),
        # After the first branch, so that step 0 begins with the warmup of the schedule itself.
        (along_line(low, sp.S.One, part / rise), sp.Lt(part, rise)),
        (along_line(low, sp.S.One, (period - part) / fall), sp.Ge(part, period - fall)),
        (sp.S.One, True),
        evaluate=False,
    )

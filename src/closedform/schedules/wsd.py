"""Warmup, stable, decay: a long flat stretch, and decays of many shapes at its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.deprecation import renamed_keywords
from closedform.errors import DefinitionError, DomainError
from closedform.language import Schedule, exact_number, hyper, t
from closedform.language.aliases import Count, Number
from closedform.language.arguments import NO_STEPS, choice, whole_number
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct
from closedform.schedules.blends import (
    along_cosine,
    along_geometric,
    along_half_exponential,
    along_line,
)

DecayShape = Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]

SHAPES: Mapping[str, DecayShape] = {
    "linear": along_line,
    "sqrt": lambda a, b, p: b + (a - b) * (1 - sp.sqrt(p)),
    "inverse": lambda a, b, p: a / (1 + (a / b - 1) * p),
    "cosine": along_cosine,
    "square": lambda a, b, p: b + (a - b) * (1 - p**2),
    "exponential": along_geometric,
    "half_exponential": along_half_exponential,
}
"""From the first and last value and the progress to the value of a decay."""

POSITIVE_SHAPES = ("inverse", "exponential")
"""The shapes whose values must be above 0."""


@renamed_keywords(start="warmup_start")
@with_lengths
def wsd(
    peak: Number,
    end: Number,
    steps: Count,
    warmup: Count,
    decay: Count,
    shape: str = "linear",
    warmup_start: Number = 0,
) -> Schedule:
    r"""Returns a linear warmup, a flat stretch at ``peak`` and a decay to ``end``, which it holds.

    .. math:: f(t) = \begin{cases} c + (a - c)\, t / W & t < W \\ a & W \le t < N - D \\
        s(p) & N - D \le t < N \\ b & t \ge N \end{cases}
        \qquad p = \frac{t - (N - D)}{D}

    .. math:: s(p) = \begin{cases} a + (b - a)\, p & \text{linear} \\
        b + (a - b)(1 - \sqrt p) & \text{sqrt} \\
        1 / (p / b + (1 - p) / a) & \text{inverse} \\
        b + (a - b)(1 + \cos \pi p) / 2 & \text{cosine} \\
        b + (a - b)(1 - p^2) & \text{square} \\
        a\, (b / a)^p & \text{exponential} \\
        b + (a - b)(2 \cdot 2^{-p} - 1) & \text{half\_exponential} \end{cases}

    Args:
        peak: The value a of the flat stretch.
        end: The value b from step N on; above 0, as ``peak``, for ``inverse`` and ``exponential``.
        steps: The number of steps N of all three together.
        warmup: The number of steps W of the warmup; 0 for none.
        decay: The number of steps D of the decay, at least 1; W + D is at most N.
        shape: The shape s of the decay.
        warmup_start: The value c at step 0, where there is a warmup.

    Raises:
        DefinitionError: An argument is not a finite number, or the shape is unknown.
        DomainError: ``steps``, ``warmup`` or ``decay`` is not such an integer, the warmup and the
            decay do not fit, or the shape needs values above 0.

    Example:
        >>> lr = wsd(1, 0, 100, warmup=10, decay=20)
        >>> [lr.exact(step) for step in (0, 5, 10, 80, 90, 100)]
        [0, 1/2, 1, 1, 1/2, 0]

    Source: Hu et al., MiniCPM (2024); the shapes of Hägele et al., Scaling laws beyond fixed
    durations (2024), and, inverse, of Wen et al. (2024), as in pytorch-accelerated 0.1.61;
    half_exponential is the ``exponential`` of Megatron-LM.
    """
    number = whole_number(steps, "steps", "wsd", least=1)
    rising = whole_number(warmup, "warmup", "wsd", least=0)
    falling = whole_number(decay, "decay", "wsd", least=1)
    if rising + falling > number:
        raise DomainError(
            f"warmup and decay must fit into steps, got {rising} + {falling} > {number}",
            where="wsd",
        )
    n = hyper("steps", integer=True, positive=True)
    d = hyper("decay", integer=True, positive=True)
    # Clamped in integers, before the division: exactly 0 and 1 at both ends.
    progress = construct(sp.Min, construct(sp.Max, t - (n - d), 0), d) / d
    lengths = {"steps": number, "decay": falling}
    domain = ((hyper("warmup", integer=True, positive=True) if rising else 0) + d <= n,)
    return _with_warmup(
        "wsd", shape, progress, (peak, end, warmup_start), rising, lengths, n, domain
    )


@renamed_keywords(start="warmup_start")
@with_lengths
def trapezoidal(
    peak: Number, end: Number, steps: Count, warmup: Count, decay: Count, warmup_start: Number = 0
) -> Schedule:
    r"""Returns a trapezium: ``wsd`` whose decay is a line.

    .. math:: f(t) = \begin{cases} c + (a - c)\, t / W & t < W \\ a & W \le t < N - D \\
        a + (b - a) (t - N + D) / D & N - D \le t < N \\ b & t \ge N \end{cases}

    Args:
        peak: The value a of the flat stretch.
        end: The value b from step N on.
        steps: The number of steps N of all three together.
        warmup: The number of steps W of the warmup; 0 for none.
        decay: The number of steps D of the decay, at least 1.
        warmup_start: The value c at step 0, where there is a warmup.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: As in ``wsd``.

    Example:
        >>> lr = trapezoidal(1, 0, 10, warmup=2, decay=4)
        >>> [lr.exact(step) for step in (0, 1, 2, 6, 8, 10)]
        [0, 1/2, 1, 1, 1/2, 0]

    Source: Xing et al., A walk with SGD (2018); Zhai et al., Scaling vision transformers (2022).
    """
    return wsd(peak, end, steps, warmup, decay, "linear", warmup_start).rename("trapezoidal")


@renamed_keywords(start="warmup_start")
@with_lengths
def tri_stage(
    peak: Number,
    end: Number,
    warmup: Count,
    hold: Count,
    decay: Count,
    warmup_start: Number = 0,
) -> Schedule:
    r"""Returns a linear warmup, a flat stretch and an exponential decay: ``wsd`` by its stages.

    .. math:: f(t) = \begin{cases} c + (a - c)\, t / W & t < W \\ a & W \le t < W + H \\
        a\, (b / a)^{(t - W - H) / D} & W + H \le t < W + H + D \\ b & t \ge W + H + D
        \end{cases}

    Args:
        peak: The value a of the flat stretch, above 0.
        end: The value b after all stages, above 0; a/100 in the paper.
        warmup: The number of steps W of the warmup; 0 for none.
        hold: The number of steps H at ``peak``, at least 0.
        decay: The number of steps D of the decay, at least 1.
        warmup_start: The value c at step 0, where there is a warmup; a/100 in fairseq.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: A count is not such an integer, or ``peak`` or ``end`` is not above 0.

    Example:
        >>> lr = tri_stage(1, 0.01, warmup=10, hold=30, decay=60)
        >>> [lr.exact(step) for step in (0, 5, 10, 40, 70, 100)]
        [0, 1/2, 1, 1, 1/10, 1/100]

    Source: Park et al., SpecAugment (2019), section 4.1; ``tri_stage`` of fairseq.
    """
    counts = {"warmup": warmup, "hold": hold}
    whole = [whole_number(value, name, "tri_stage", least=0) for name, value in counts.items()]
    falling = whole_number(decay, "decay", "tri_stage", least=1)
    steps = sum(whole) + falling
    return wsd(peak, end, steps, whole[0], falling, "exponential", warmup_start).rename("tri_stage")


@renamed_keywords(start="warmup_start")
@with_lengths
def wsd_checkpoints(
    peak: Number,
    end: Number,
    steps: Count,
    warmup: Count = 0,
    ratio: Number = 0.1,
    checkpoints: Count | Sequence[Count] = 1,
    shape: str = "sqrt",
    warmup_start: Number = 0,
) -> Schedule:
    r"""Returns a flat stretch with a decay before each checkpoint, after which it starts afresh.

    .. math:: f(t) = \begin{cases} c + (a - c)\, t / W & t < W \\ s(p) & c_{i-1} \le t < c_i \\
        b & t \ge c_k \end{cases} \qquad
        p = \max\!\left(0, \frac{t - (c_i - D_i)}{D_i}\right), \quad
        D_i = \lfloor r (c_i - c_{i-1}) \rfloor, \quad c_0 = 0

    The shapes s are as in ``wsd``. At t = c_i the next period has begun, at full height. The
    warmup replaces the values below it.

    Args:
        peak: The value a of the flat stretches.
        end: The value b that each decay falls to, and the value from the last checkpoint on.
        steps: The number of steps N, the last checkpoint.
        warmup: The number of steps W of the warmup; 0 for none, so for a continued run.
        ratio: The part r of each period in which it decays, above 0 and at most 1.
        checkpoints: Their number k: each is at twice the step of the one before,
            c_i = ⌊N / 2^(k-i)⌋. Or the steps themselves, increasing.
        shape: The shape s of the decays.
        warmup_start: The value c at step 0, where there is a warmup.

    Raises:
        DefinitionError: An argument is not a finite number, or the shape is unknown.
        DomainError: A count is not such an integer, ``ratio`` is not in (0, 1], a decay has no
            steps, the checkpoints do not increase up to ``steps``, or the shape needs values above
            0.

    Example:
        >>> lr = wsd_checkpoints(1, 0, 80, ratio=0.5, checkpoints=2, shape="linear")
        >>> [lr.exact(step) for step in (0, 20, 30, 40, 60, 70, 80)]
        [1, 1, 1/2, 1, 1, 1/2, 0]
        >>> wsd_checkpoints(1, 0, 80, ratio=0.5, checkpoints=[40, 80], shape="linear") == lr
        True

    Source: Wen et al., WSD-S (2024); ``WSDLrScheduler`` of pytorch-accelerated 0.1.61 by its
    documents. As implemented its checkpoints are [N//4, N//2, min(4*(N//4), N)] at most: give them.
    """
    where = "wsd_checkpoints"
    number = whole_number(steps, "steps", where, least=1)
    rising = whole_number(warmup, "warmup", where, least=0)
    part = exact_number(ratio, f"ratio of {where}")
    if not part.is_Rational or not 0 < part <= 1:
        raise DomainError(f"ratio must be above 0 and at most 1, got {ratio!r}", where=where)
    marks = _checkpoints(checkpoints, number, where)
    branches = []
    for begin, stop in zip([0, *marks], marks, strict=False):
        falling = int(sp.floor(part * (stop - begin)))
        if falling == 0:
            raise DomainError(
                f"the decay before checkpoint {stop} has no steps: ratio {ratio} of {stop - begin}",
                where=where,
                hint=NO_STEPS if part == 1 else "take a larger ratio",
            )
        first = stop - falling
        branches.extend([(0, t < first)] if first > begin else [])
        branches.append(((t - first) / sp.Integer(falling), t < stop))
    progress = sp.Piecewise(*branches, (1, True))
    length = sp.Integer(marks[-1])
    return _with_warmup(where, shape, progress, (peak, end, warmup_start), rising, {}, length, ())


def _checkpoints(checkpoints: Count | Sequence[Count], steps: int, where: str) -> list[int]:
    """The steps of the checkpoints."""
    if not isinstance(checkpoints, Sequence):
        count = whole_number(checkpoints, "checkpoints", where, least=1)
        # …, N/4, N/2, N: each phase is as long as all phases before it together.
        marks = [steps // 2 ** (count - 1 - index) for index in range(count)]
    elif isinstance(checkpoints, str) or not checkpoints:
        raise DefinitionError(
            f"checkpoints must be a number or a list of steps, got {checkpoints!r}", where=where
        )
    else:
        marks = [whole_number(mark, "checkpoint", where, least=1) for mark in checkpoints]
    for earlier, later in zip([0, *marks], [*marks, steps], strict=True):
        if later < earlier or (later == earlier and later != steps) or marks[0] == 0:
            raise DomainError(
                f"checkpoints must increase from above 0 to at most steps = {steps}, got {marks}",
                where=where,
            )
    return marks


def _with_warmup(
    name: str,
    shape: str,
    progress: sp.Expr,
    values: tuple[Any, Any, Any],
    warmup: int,
    lengths: Mapping[str, int],
    length: sp.Expr,
    domain: tuple[sp.Basic, ...],
) -> Schedule:
    """The shape along a progress, after a linear warmup."""
    choice(shape, "shape", name, tuple(SHAPES))
    peak, end, warmup_start = values
    exact = [exact_number(peak, f"peak of {name}"), exact_number(end, f"end of {name}")]
    exact_number(warmup_start, f"warmup_start of {name}")
    is_positive = True if shape in POSITIVE_SHAPES else None
    if is_positive and min(exact) <= 0:
        raise DomainError(
            f"peak and end must be above 0 for the shape {shape}, got {peak!r} and {end!r}",
            where=name,
            hint="linear, sqrt, cosine and square reach 0",
        )
    a, b = hyper("peak", positive=is_positive), hyper("end", positive=is_positive)
    expr = SHAPES[shape](a, b, progress)
    values_used = {"peak": exact[0], "end": exact[1], **lengths}
    if warmup:
        w = hyper("warmup", integer=True, positive=True)
        expr = sp.Piecewise((along_line(hyper("warmup_start"), a, t / w), t < w), (expr, True))
        values_used |= {"warmup_start": warmup_start, "warmup": warmup}
    return Schedule(expr, name=name, length=length, domain=domain, **values_used)

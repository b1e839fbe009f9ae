"""Schedules whose last steps follow another curve: to a low value, or to 0."""

from __future__ import annotations

import sympy as sp

from closedform.deprecation import renamed_keywords
from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, hyper, t
from closedform.language.aliases import Count, Number, Steps
from closedform.language.arguments import choice, positive_steps, whole_number
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct, values_in
from closedform.schedules.blends import along_cosine, along_inverse_root, along_line
from closedform.schedules.wsd import POSITIVE_SHAPES, SHAPES


@with_lengths
def cosine_linear_tail(
    start: Number, end: Number, steps: Count, tail: Count, final: Number = 0
) -> Schedule:
    r"""Returns half a cosine that a straight line to ``final`` cuts off.

    .. math:: f(t) = v + (c(\min(t, N - D)) - v) \min\!\left(1, \frac{N - \min(t, N)}{D}\right),
        \qquad c(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi t}{N}\right)

    Args:
        start: The value a at step 0.
        end: The value b that the cosine would meet at step N.
        steps: The number of steps N of both together.
        tail: The number of steps D of the line, from 1 to N.
        final: The value v from step N on.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: A count is not such an integer.

    Example:
        >>> lr = cosine_linear_tail(1, 0.1, 100, tail=50)
        >>> [lr.exact(step) for step in (0, 50, 75, 100)]
        [1, 11/20, 11/40, 0]

    Source: ``CosWithWarmupAndLinearDecay`` of OLMo-core, after its warmup.
    """
    where = "cosine_linear_tail"
    number, falling = _with_tail(steps, tail, where)
    n, d = hyper("steps", integer=True, positive=True), hyper("tail", integer=True, positive=True)
    a, b, last = hyper("start"), hyper("end"), hyper("final")
    # The cosine over all N steps, cut off at N - D, where the line begins.
    height = along_cosine(a, b, construct(sp.Min, t, n - d) / n)
    return Schedule(
        along_line(last, height, construct(sp.Min, 1, (n - construct(sp.Min, t, n)) / d)),
        name=where,
        length=n,
        domain=(d <= n,),
        start=start,
        end=end,
        steps=number,
        tail=falling,
        final=final,
    )


@with_lengths
def cosine_constant_tail(start: Number, end: Number, steps: Count, tail: Count) -> Schedule:
    r"""Returns half a cosine that ends before the run does, and its end from there on.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 + \cos \frac{\pi \min(t, N - D)}{N - D}\right)

    Args:
        start: The value a at step 0.
        end: The value b from step N - D on.
        steps: The number of steps N of both together.
        tail: The number of steps D at ``end``, from 1 to N - 1.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: A count is not such an integer.

    Example:
        >>> lr = cosine_constant_tail(1, 0.5, 100, tail=20)
        >>> [lr.exact(step) for step in (0, 40, 80, 100)]
        [1, 3/4, 1/2, 1/2]

    Source: ``cosine_constant_lr_ratio`` of axolotl; Gupta et al., Continual pre-training of large
    language models: how to (re)warm your model? (2023).
    """
    where = "cosine_constant_tail"
    number, flat = _with_tail(steps, tail, where)
    if flat == number:
        raise DomainError(f"tail must be below steps, got {tail!r} of {steps!r}", where=where)
    n, d = hyper("steps", integer=True, positive=True), hyper("tail", integer=True, positive=True)
    return Schedule(
        along_cosine(hyper("start"), hyper("end"), construct(sp.Min, t, n - d) / (n - d)),
        name=where,
        length=n,
        domain=(d < n,),
        start=start,
        end=end,
        steps=number,
        tail=flat,
    )


@renamed_keywords(start="warmup_start")
@with_lengths
def power_with_tail(
    peak: Number,
    exponent: Number,
    steps: Count,
    warmup: Count,
    tail: Count,
    end: Number = 0,
    warmup_start: Number = 0,
    shape: str = "linear",
) -> Schedule:
    r"""Returns a linear warmup, a power law of the time, and a decay to ``end``.

    .. math:: f(t) = \begin{cases} c + (a - c)\, t / W & t < W \\ a\, (t / W)^k & W \le t < N - D \\
        s(p) & N - D \le t < N \\ b & t \ge N \end{cases} \qquad p = \frac{t - (N - D)}{D}

    The shapes s are as in ``wsd``, from the value at step N - D on.

    Args:
        peak: The value a at step W, above 0.
        exponent: The exponent k; about -1/2 in the paper.
        steps: The number of steps N of all three together.
        warmup: The number of steps W of the warmup, at least 1.
        tail: The number of steps D of the decay, at least 1; W + D is at most N.
        end: The value b from step N on; above 0 for ``inverse`` and ``exponential``.
        warmup_start: The value c at step 0.
        shape: The shape s of the decay.

    Raises:
        DefinitionError: An argument is not a finite number, or the shape is unknown.
        DomainError: A count is not such an integer, warmup and decay do not fit, or a value is not
            above 0 where it must be.

    Example:
        >>> lr = power_with_tail(1, -0.5, 500, warmup=100, tail=100)
        >>> [lr.exact(step) for step in (0, 50, 100, 400, 450, 500)]
        [0, 1/2, 1, 1/2, 1/4, 0]

    Source: Shen et al., Power scheduler (2024), with an exponential decay; ``PowerLR`` of
    OLMo-core.
    """
    where = "power_with_tail"
    number, falling = _with_tail(steps, tail, where)
    rising = whole_number(warmup, "warmup", where, least=1)
    if rising + falling > number:
        raise DomainError(
            f"warmup and tail must fit into steps, got {rising} + {falling} > {number}", where=where
        )
    choice(shape, "shape", where, tuple(SHAPES))
    low = exact_number(end, f"end of {where}")
    if shape in POSITIVE_SHAPES and low <= 0:
        raise DomainError(f"end must be above 0 for the shape {shape}, got {end!r}", where=where)
    positive_steps(peak, "peak", where, "the power law is a factor of it")
    n, d, w = (hyper(name, integer=True, positive=True) for name in ("steps", "tail", "warmup"))
    a, k = hyper("peak", positive=True), hyper("exponent")
    b = hyper("end", positive=True if shape in POSITIVE_SHAPES else None)
    # The tail begins at the value of the power law at N - D.
    curve, height = a * (t / w) ** k, a * ((n - d) / w) ** k
    progress = construct(sp.Min, construct(sp.Max, t - (n - d), 0), d) / d
    expr = sp.Piecewise(
        (along_line(hyper("warmup_start"), a, t / w), t < w),
        (curve, t < n - d),
        (SHAPES[shape](height, b, progress), True),
    )
    arguments = {"peak": peak, "exponent": exponent, "steps": number, "warmup": rising}
    return Schedule(
        expr,
        name=where,
        length=n,
        domain=(w + d <= n,),
        **values_in(expr, {**arguments, "tail": falling, "end": low, "warmup_start": warmup_start}),
    )


@with_lengths
def inverse_square_root_cooldown(
    peak: Number,
    steps: Count,
    timescale: Steps,
    warmup: Count = 0,
    cooldown: Count = 0,
    shift: Steps = 0,
    floor: Number = 0,
) -> Schedule:
    r"""Returns a linear warmup, a fall with the inverse root of the time, and a cooldown to 0.

    .. math:: f(t) = \min\!\left(1, \frac{t}{W}\right)
        \min\!\left(1, \frac{N - \min(t, N)}{C}\right)
        \left(b + (a - b) \sqrt{\frac{S}{S + \max(t - W, 0) + h}}\right)

    A factor whose length is 0 is left out.

    Args:
        peak: The value a at the end of the warmup, where ``shift`` is 0.
        steps: The number of steps N, at which the cooldown ends.
        timescale: The time S above 0 of the fall: after 3S it is half way to b.
        warmup: The number of steps W of the warmup; 0 for none.
        cooldown: The number of steps C of the cooldown; 0 for none. W + C is at most N.
        shift: The steps h, at least 0, by which the fall is ahead.
        floor: The value b that the fall tends to.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: A count is not such an integer, they do not fit, ``timescale`` is not above 0,
            or ``shift`` is below 0.

    Example:
        >>> lr = inverse_square_root_cooldown(1, 1000, 100, warmup=100, cooldown=200)
        >>> [lr.exact(step) for step in (0, 50, 100, 400, 1000)]
        [0, 1/2, 1, 1/2, 0]

    Source: Zhai et al., Scaling vision transformers (2022), the schedule ``rsqrt`` of big_vision.
    """
    where = "inverse_square_root_cooldown"
    number = whole_number(steps, "steps", where, least=1)
    rising = whole_number(warmup, "warmup", where, least=0)
    cooling = whole_number(cooldown, "cooldown", where, least=0)
    if rising + cooling > number:
        raise DomainError(
            f"warmup and cooldown must fit into steps, got {rising} + {cooling} > {number}",
            where=where,
        )
    scale = positive_steps(timescale, "timescale", where, "the fall over no steps has no value")
    ahead = exact_number(shift, f"shift of {where}")
    if ahead < 0:
        raise DomainError(f"shift must be at least 0, got {shift!r}", where=where)
    w = hyper("warmup", integer=True, positive=True) if rising else sp.S.Zero
    h = hyper("shift") if ahead else sp.S.Zero
    low = hyper("floor") if exact_number(floor, f"floor of {where}") else sp.S.Zero
    steps_since = (construct(sp.Max, t - w, 0) if rising else t) + h
    expr = along_inverse_root(hyper("peak"), low, steps_since, hyper("timescale", positive=True))
    domain: tuple[sp.Basic, ...] = ()
    n = hyper("steps", integer=True, positive=True)
    if rising:
        expr *= construct(sp.Min, 1, t / w)
    if cooling:
        c = hyper("cooldown", integer=True, positive=True)
        expr *= construct(sp.Min, 1, (n - construct(sp.Min, t, n)) / c)
        domain = (w + c <= n,)
    arguments = {"peak": peak, "steps": number, "timescale": scale, "warmup": rising}
    arguments |= {"cooldown": cooling, "shift": ahead, "floor": floor}
    return Schedule(
        expr,
        name=where,
        length=n if cooling else None,
        domain=domain,
        **values_in(expr, arguments),
    )


def _with_tail(steps: Count, tail: Count, where: str) -> tuple[int, int]:
    """The number of steps and that of the tail, at most as many."""
    number = whole_number(steps, "steps", where, least=1)
    falling = whole_number(tail, "tail", where, least=1)
    if falling > number:
        raise DomainError(f"tail must be at most steps, got {tail!r} of {steps!r}", where=where)
    return number, falling

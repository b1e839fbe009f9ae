"""Falls of other shapes: REX, tanh, hyperbolic, and the slanted triangle."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, hyper, t
from closedform.language.aliases import Count, Number, Steps
from closedform.language.arguments import positive_steps, run_length, whole_number
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct
from closedform.schedules.branches import steps_symbol, whole_length


@with_lengths
def rex(start: Number, end: Number, steps: Steps) -> Schedule:
    r"""Returns a fall that is slow first and fast towards the end, which it holds.

    .. math:: f(t) = b + (a - b) \frac{1 - p}{1/2 + (1 - p)/2}, \qquad p = \frac{\min(t, N)}{N}

    Args:
        start: The value a at step 0; it may be below ``end``.
        end: The value b from step N on; 0 in the paper.
        steps: The number of steps N above 0; a fraction is allowed.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0.

    Example:
        >>> [rex(1, 0, 10).exact(step) for step in (0, 5, 10, 11)]
        [1, 2/3, 0, 0]

    Source: Chen, Wolfe and Kyrillidis, REX (2022), eq. 2.
    """
    number = run_length(steps, "steps", "rex")
    n = steps_symbol(number)
    a, b, progress = hyper("start"), hyper("end"), construct(sp.Min, t, n)
    # (1 - p) / (1/2 + (1 - p)/2), both sides times N: one division of integers.
    expr = b + 2 * (a - b) * (n - progress) / (2 * n - progress)
    return Schedule(expr, name="rex", length=whole_length(n), start=start, end=end, steps=number)


@with_lengths
def tanh_decay(
    start: Number, end: Number, steps: Steps, low: Number = -6, high: Number = 3
) -> Schedule:
    r"""Returns a fall along a hyperbolic tangent, whose last value it holds.

    .. math:: f(t) = b + \frac{a - b}{2} \left(1 - \tanh\!\left(L + (U - L) \frac{\min(t, N)}{N}
        \right)\right)

    computed as :math:`b + (a - b) / (1 + e^{2(\dots)})`, the same.

    Args:
        start: The value a that it falls from: at step 0 it is below by (a - b)(1 + tanh L)/2.
        end: The value b that it falls to: at step N it is above by (a - b)(1 - tanh U)/2.
        steps: The number of steps N above 0; a fraction is allowed.
        low: The argument L of tanh at step 0.
        high: The argument U of tanh at step N, above ``low``.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, or ``high`` not above ``low``.

    Example:
        >>> decay = tanh_decay(1, 0, 9)
        >>> [round(float(decay(step)), 6) for step in (0, 6, 9)]
        [0.999994, 0.5, 0.002473]

    Source: Hsueh, Li and Wu, Stochastic gradient descent with hyperbolic-tangent decay (2019),
    HTD(-6, 3); ``TanhLRScheduler`` of timm has L = -7, U = 3 and b from step N on.
    """
    number = run_length(steps, "steps", "tanh_decay")
    if exact_number(high, "high of tanh_decay") <= exact_number(low, "low of tanh_decay"):
        raise DomainError(f"high must be above low, got {high!r} and {low!r}", where="tanh_decay")
    n = steps_symbol(number)
    a, b, first, last = hyper("start"), hyper("end"), hyper("low"), hyper("high")
    argument = first + (last - first) * construct(sp.Min, t, n) / n
    return Schedule(
        b + (a - b) / (1 + sp.exp(2 * argument)),
        name="tanh_decay",
        length=whole_length(n),
        domain=(first < last,),
        start=start,
        end=end,
        steps=number,
        low=low,
        high=high,
    )


@with_lengths
def hyperbolic(start: Number, infimum: Number, steps: Steps, bound: Steps) -> Schedule:
    r"""Returns a fall along a hyperbola whose first steps hardly depend on the number of steps.

    .. math:: f(t) = a + (a - i)\,(h(\min(t, N)) - h(0)), \qquad
        h(n) = \sqrt{\frac{N - n}{U} \left(2 - \frac{N + n}{U}\right)}

    Args:
        start: The value a at step 0.
        infimum: The value i that it would end at with N = U; with fewer steps it ends above.
        steps: The number of steps N above 0; from then on the value is constant.
        bound: The upper bound U on the number of steps, at least N.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not above 0, or ``bound`` is below it.

    Example:
        >>> [hyperbolic(1, 0, 100, 100).exact(step) for step in (0, 20, 100, 101)]
        [1, 4/5, 0, 0]
        >>> hyperbolic(1, 0, 100, 125).exact(100)
        1 - 2*sqrt(6)/5

    Source: Kim, HyperbolicLR (2024).
    """
    number = run_length(steps, "steps", "hyperbolic")
    most = positive_steps(bound, "bound", "hyperbolic", "give the largest number of steps")
    if most < number:
        raise DomainError(
            f"bound must be at least steps, got {bound!r} and {steps!r}", where="hyperbolic"
        )
    n = steps_symbol(number)
    u = hyper("bound", integer=bool(most.is_Integer), positive=True)
    a, progress = hyper("start"), construct(sp.Min, t, n)
    # U times h: integers under the roots.
    height = sp.sqrt((n - progress) * (2 * u - n - progress)) - sp.sqrt(n * (2 * u - n))
    return Schedule(
        a + (a - hyper("infimum")) * height / u,
        name="hyperbolic",
        length=whole_length(n),
        domain=(n <= u,),
        start=start,
        infimum=infimum,
        steps=number,
        bound=most,
    )


@with_lengths
def slanted_triangular(
    peak: Number, steps: Count, cut: Number = 0.1, ratio: Number = 32
) -> Schedule:
    r"""Returns a short rise to ``peak`` and a long fall back to where it began, which it holds.

    .. math:: f(t) = a\, \frac{1 + p\,(r - 1)}{r}, \qquad p = \begin{cases} t / C & t < C \\
        (N - t)/(N - C) & C \le t < N \\ 0 & t \ge N \end{cases} \qquad C = \lfloor c N \rfloor

    Args:
        peak: The value a at step C.
        steps: The number of steps N, an integer of at least 2.
        cut: The part c of the steps in which it rises, above 0 and below 1.
        ratio: The peak over the lowest value, r above 0.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: ``steps`` is not such an integer, ``cut`` not in (0, 1), cN < 1, or ``ratio``
            is not above 0.

    Example:
        >>> lr = slanted_triangular(32, 100)
        >>> [lr.exact(step) for step in (0, 5, 10, 55, 100)]
        [1, 33/2, 32, 33/2, 1]

    Source: Howard and Ruder, ULMFiT (2018), eq. 3. There the fall is over C(1/c - 1) steps, which
    is N - C where cN is an integer, and passes below the lowest value where it is not.
    """
    where = "slanted_triangular"
    number = whole_number(steps, "steps", where, least=2)
    part = exact_number(cut, f"cut of {where}")
    if not part.is_Rational or not 0 < part < 1:
        raise DomainError(f"cut must be above 0 and below 1, got {cut!r}", where=where)
    if part * number < 1:
        raise DomainError(
            f"cut * steps must be at least 1, got {cut!r} * {steps!r}: the rise has no steps",
            where=where,
            hint="take a larger cut",
        )
    positive_steps(ratio, "ratio", where, "it is the peak over the lowest value")
    n, r = hyper("steps", integer=True, positive=True), hyper("ratio", positive=True)
    c = hyper("cut")
    top = sp.floor(c * n)
    height = construct(sp.Min, t / top, (n - construct(sp.Min, t, n)) / (n - top))
    return Schedule(
        hyper("peak") * (1 + height * (r - 1)) / r,
        name=where,
        length=n,
        domain=(c > 0, c < 1, c * n >= 1),
        peak=peak,
        steps=number,
        cut=part,
        ratio=ratio,
    )

"""The one-cycle policy: up to a peak and down below the start, and its momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.errors import DomainError
from closedform.language import Schedule, exact_number, hyper, t
from closedform.language.aliases import Count, Number, Steps
from closedform.language.arguments import choice, whole_number
from closedform.language.lengths import with_lengths
from closedform.language.settled import construct, values_in
from closedform.schedules.blends import along_cosine, along_line

ANNEALS = {"cos": along_cosine, "linear": along_line}


@with_lengths
def one_cycle(
    start: Number,
    peak: Number,
    end: Number,
    steps: Count,
    rise: Number = 0.3,
    anneal: str = "cos",
    *,
    three_phase: bool = False,
    clamp: bool = True,
) -> Schedule:
    r"""Returns a rise from ``start`` to ``peak`` and a fall to ``end``, met at step N - 1.

    .. math:: f(t) = w_j(p), \quad p = \frac{t - b_{j-1}}{b_j - b_{j-1}}
        \quad\text{for}\quad b_{j-1} < t \le b_j

    with :math:`w_j` half a cosine or a line from the value of phase j to the next one, and

    .. math:: b = \begin{cases} 0,\; rN - 1,\; N - 1 & \text{two phases: start, peak, end} \\
        0,\; rN - 1,\; 2rN - 2,\; N - 1 & \text{three phases: start, peak, start, end}
        \end{cases}

    Args:
        start: The value at step 0.
        peak: The value at step rN - 1; where that is a fraction, the peak is between two steps.
        end: The value at step N - 1.
        steps: The number of steps N of the whole cycle, an integer of at least 1.
        rise: The part r of the steps in which it rises, from 0 to 1. Where rN < 1 it begins in the
            fall; with r = 1 the peak is the last value, and without ``clamp`` there is none after
            it; with three phases and r > 1/2 the third phase begins beyond the end.
        anneal: ``cos`` or ``linear``.
        three_phase: Whether it returns to ``start`` before it goes to ``end``.
        clamp: Whether the value stays at that of step N - 1. Else the last phase goes on: its line
            through zero, its cosine up again.

    Raises:
        DefinitionError: An argument is not a finite number, or ``anneal`` is unknown.
        DomainError: ``steps`` is not an integer of at least 1, ``rise`` is not in [0, 1], or a
            phase that is taken has no length: rN = 1.

    Example:
        >>> cycle = one_cycle(1, 10, 0, 20, anneal="linear")
        >>> [cycle.exact(step) for step in (0, 5, 12, 19, 99)]
        [1, 10, 5, 0, 0]

    Source: Smith and Topin, Super-convergence (2018); ``OneCycleLR`` of torch 2.13, with
    start = max_lr/div_factor and end = start/final_div_factor, and of cerebras.pytorch 2.10.
    """
    places = ["start", "peak", "start", "end"] if three_phase else ["start", "peak", "end"]
    values = {"start": start, "peak": peak, "end": end}
    return _phases("one_cycle", places, values, steps, rise, anneal, clamp=clamp)


@with_lengths
def one_cycle_momentum(
    high: Number,
    low: Number,
    steps: Count,
    rise: Number = 0.3,
    anneal: str = "cos",
    *,
    three_phase: bool = False,
    clamp: bool = True,
) -> Schedule:
    r"""Returns the momentum that goes with ``one_cycle``: down to ``low`` and up again.

    .. math:: f(t) = w_j(p) \quad\text{over the phases of } \texttt{one\_cycle}

    The values between which they go are high, low, high; with three phases the last one holds high.

    Args:
        high: The value at step 0 and at the end.
        low: The value at the peak of the cycle.
        steps: As in ``one_cycle``.
        rise: As in ``one_cycle``.
        anneal: As in ``one_cycle``.
        three_phase: As in ``one_cycle``.
        clamp: As in ``one_cycle``.

    Raises:
        DefinitionError: As in ``one_cycle``.
        DomainError: As in ``one_cycle``.

    Example:
        >>> momentum = one_cycle_momentum(0.95, 0.85, 20)
        >>> [momentum.exact(step) for step in (0, 5, 19)]
        [19/20, 17/20, 19/20]

    Source: ``OneCycleLR`` of torch 2.13 with ``cycle_momentum``, max_momentum first.
    """
    places = ["high", "low", "high", "high"] if three_phase else ["high", "low", "high"]
    values = {"high": high, "low": low}
    return _phases("one_cycle_momentum", places, values, steps, rise, anneal, clamp=clamp)


@dataclass(frozen=True, slots=True)
class Phases:
    """The phases of a cycle that have steps.

    Attributes:
        steps: The number of steps.
        rise: The part of the steps in which it rises.
        last: The number of the last phase.
        is_ended: Whether the phase after it, which would go on past the end, has no steps:
            OneCycleLR of torch divides by zero there, at step N.
    """

    steps: int
    rise: sp.Rational
    last: int
    is_ended: bool


def cycle_phases(
    steps: Steps,
    rise: Number,
    where: str,
    *,
    three_phase: bool,
    clamp: bool,
    names: tuple[str, str] = ("steps", "rise"),
) -> Phases:
    """Returns the phases of a cycle: those that have steps.

    Args:
        steps: As in ``one_cycle``.
        rise: As in ``one_cycle``.
        where: The schedule, for errors.
        three_phase: As in ``one_cycle``.
        clamp: As in ``one_cycle``.
        names: What ``steps`` and ``rise`` are called, for errors.

    Raises:
        DefinitionError: An argument is not a finite number.
        DomainError: As in ``one_cycle``.
    """
    steps_name, rise_name = names
    number = whole_number(steps, steps_name, where, least=1)
    part = exact_number(rise, f"{rise_name} of {where}")
    if not part.is_Rational or not 0 <= part <= 1:
        raise DomainError(
            f"{rise_name} must be a rational number from 0 to 1, got {rise!r}", where=where
        )
    if part * number == 1:
        raise DomainError(
            f"{rise_name} * {steps_name} must not be 1, got {rise} * {steps}: the first phase has "
            "no steps",
            where=where,
            hint="change one of them by a little",
        )
    bounds = _bounds(sp.Integer(number), part, three_phase=three_phase)
    last = max(
        i for i, bound in enumerate(bounds[:-1]) if not clamp or i == 0 or bound < bounds[-1]
    )
    is_ended = bounds[last + 1] == bounds[last] and not (clamp and number == 1)
    return Phases(number, part, last - is_ended, is_ended)


def _bounds(n: sp.Expr, r: sp.Expr, *, three_phase: bool) -> list[sp.Expr]:
    """Where the phases begin, and the last one ends."""
    middle = [2 * r * n - 2] if three_phase else []
    # OneCycleLR of torch counts ``pct_start * total_steps - 1`` steps, a fraction if it is not
    # whole.
    return [sp.Integer(0), r * n - 1, *middle, n - 1]


def _phases(
    name: str,
    places: Sequence[str],
    values: dict[str, Any],
    steps: Count,
    rise: Number,
    anneal: str,
    *,
    clamp: bool,
) -> Schedule:
    """The values at ``places`` one after the other; phases beyond the end are left out."""
    is_three = len(places) == 4
    phases = cycle_phases(steps, rise, name, three_phase=is_three, clamp=clamp)
    last = phases.last
    choice(anneal, "anneal", name, tuple(ANNEALS))
    n, r = hyper("steps", integer=True, positive=True), hyper("rise")
    bounds = _bounds(n, r, three_phase=is_three)
    clock = construct(sp.Min, t, n - 1) if clamp else t
    branches = []
    for index, ((begin, stop), (here, there)) in enumerate(
        zip(pairwise(bounds), pairwise(places), strict=True)
    ):
        if index > last:
            break
        # Only the last phase is clamped: the others end at their conditions.
        time = clock if index == last else t
        progress = (time - begin) / (stop - begin)
        phase_value = ANNEALS[anneal](hyper(here), hyper(there), progress)
        branches.append((phase_value, sp.true if index == last else t <= stop))
    expr = sp.Piecewise(*branches)
    arguments = {**values, "steps": phases.steps, "rise": phases.rise}
    # r n = 1 makes the first phase empty, and torch divides by its length.
    domain = [r >= 0, r <= 1, sp.Ne(r * n, 1)]
    if clamp:
        domain += [bound < n - 1 for bound in bounds[1 : last + 1]]
        domain += [n - 1 <= bound for bound in bounds[last + 1 : -1]]
    else:
        domain.append(sp.Ne(bounds[last], bounds[last + 1]))
    domain = [rule for rule in domain if rule.free_symbols <= expr.free_symbols]
    ending = "ZeroDivisionError: the last phase has no steps" if phases.is_ended else ""
    if phases.is_ended:
        domain += [sp.Eq(bounds[last + 1], bounds[last + 2]), t < n]
    symbols = values_in(expr, arguments)
    return Schedule.of(expr, symbols, name=name, length=n, domain=domain, ending=ending)

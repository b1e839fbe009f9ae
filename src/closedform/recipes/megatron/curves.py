"""The curves of Megatron's ``OptimizerParamScheduler``, which NeMo Automodel shares."""

from __future__ import annotations

from dataclasses import dataclass

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.checks import refuse_unless
from closedform.recipes.intervals import (
    UndefinedError,
    by_intervals,
    first_after,
    power_quotient,
    quotient,
)
from closedform.schedules.blends import along_cosine, along_half_exponential, along_line

STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")
TAILS = ("linear", "cosine", "exponential", "minus_sqrt")


@dataclass(frozen=True, slots=True)
class MegatronNumbers:
    """The numbers of a schedule, lengths in the unit that it counts.

    Attributes:
        style: One of ``STYLES``; another one fails where the warmup ends.
        peak: The largest rate.
        low: The smallest rate.
        first: The rate at the start of the warmup.
        warmup: The length of the warmup.
        total: The length of the schedule.
        tail: The length of the last decay of WSD; None if not given.
        tail_style: One of ``TAILS``; another one fails where the decay begins.
        per_update: How much an update adds.
    """

    style: str
    peak: sp.Expr
    low: sp.Expr
    first: sp.Expr
    warmup: sp.Expr
    total: sp.Expr
    tail: sp.Expr | None
    tail_style: object
    per_update: sp.Expr = sp.S.One


def check(plan: MegatronNumbers, where: str) -> None:
    """Raises DefinitionError if the constructor of the scheduler would refuse the numbers."""
    refuse_unless(plan.low >= 0, f"the minimum must be at least 0, got {plan.low}", where)
    refuse_unless(
        plan.peak >= plan.low,
        f"the minimum {plan.low} must not be above the peak {plan.peak}",
        where,
    )
    refuse_unless(
        plan.first <= plan.peak,
        f"the first rate {plan.first} must not be above the peak {plan.peak}",
        where,
    )
    refuse_unless(plan.total > 0, f"the horizon must be above 0, got {plan.total}", where)
    refuse_unless(
        plan.warmup < plan.total,
        f"the warmup {plan.warmup} must be shorter than the horizon {plan.total}",
        where,
    )
    refuse_unless(
        plan.style != "WSD" or plan.tail is not None, "WSD needs the length of its decay", where
    )


def learning_rate(plan: MegatronNumbers) -> Schedule:
    """Returns the learning rate of a plan that is checked."""
    n = t * plan.per_update
    step = plan.per_update
    rise = plan.first + (plan.peak - plan.first) * n / max(plan.warmup, sp.S.One / 10**9)
    warm = (lambda: rise, first_after(plan.warmup / step) if plan.warmup > 0 else 0)
    if plan.style == "constant":
        return by_intervals("constant", warm, (lambda: plan.peak, None))
    end = first_after(plan.total / step)
    after = (lambda: plan.low, None)
    if plan.style == "WSD":
        tail = plan.tail or sp.S.Zero
        begin = first_after((plan.total - tail) / step)
        flat = (lambda: plan.peak, min(begin, end))
        return by_intervals("WSD", warm, flat, (lambda: _tail(plan, n, tail), end), after)
    return by_intervals(plan.style, warm, (lambda: _decay(plan, n), end), after)


def _decay(plan: MegatronNumbers, n: sp.Expr) -> sp.Expr:
    if plan.style == "inverse-square-root":
        # At n = 0, the root is that of 1 unit: only without a warmup does update 0 reach it.
        root = sp.sqrt(max(plan.warmup, sp.S.One)) / sp.sqrt(sp.Max(n, 1))
        return sp.Max(plan.low, plan.peak * root)
    if plan.style not in STYLES:
        raise UndefinedError(f"the style {plan.style!r} is not one of {', '.join(STYLES)}")
    progress = quotient(n - plan.warmup, plan.total - plan.warmup)
    along = along_line if plan.style == "linear" else along_cosine
    return along(plan.peak, plan.low, progress)


def _tail(plan: MegatronNumbers, n: sp.Expr, length: sp.Expr) -> sp.Expr:
    progress = quotient(n - plan.total + length, length)
    match plan.tail_style:
        case "linear":
            return along_line(plan.peak, plan.low, progress)
        case "cosine":
            return along_cosine(plan.peak, plan.low, progress)
        case "exponential":
            return along_half_exponential(plan.peak, plan.low, progress)
        case "minus_sqrt":
            root = power_quotient(n - plan.total + length, length, sp.S.Half)
            return along_line(plan.peak, plan.low, root)
    raise UndefinedError(f"the decay style {plan.tail_style!r} is not one of {', '.join(TAILS)}")


def weight_decay(
    style: str, first: sp.Expr, last: sp.Expr, total: sp.Expr, per_update: sp.Expr
) -> Schedule:
    """Returns the weight decay of a style: constant, linear or cosine, ``last`` after ``total``."""
    after = (lambda: last, None)
    if style == "constant":
        return by_intervals("constant", after)
    end = first_after(total / per_update)
    progress = t * per_update / total
    if style == "linear":
        return by_intervals("linear", (lambda: along_line(first, last, progress), end), after)
    return by_intervals("cosine", (lambda: along_cosine(first, last, progress), end), after)

"""Gradients clipped (by value, model norm, norms of units), and accumulated."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    GRAD,
    PARAM,
    RANK,
    Schedule,
    Shared,
    State,
    UpdateRule,
    counter,
    global_sum,
    hyper,
    reduce_sum,
    state,
    t,
)
from closedform.language.aliases import Number
from closedform.language.arguments import choice, number_or_schedule, step_count
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.substitution import check_rule, unless, with_gradient, with_states

UNITS = ("first", "last")
FIRST = ("copy", "zero")
_LARGEST_RANK = 6


@with_checked_keywords
def clip_by_value(rule: UpdateRule, value: Number | Schedule) -> UpdateRule:
    r"""Returns a rule whose gradient is clamped to [-v, v], element by element.

    Args:
        rule: The rule.
        value: The bound v >= 0; 0 clamps all gradients to 0.

    Raises:
        DefinitionError: The bound is not a number, or negative.

    Example:
        >>> from closedform import optimizers
        >>> clip_by_value(optimizers.sgd(0.5), 2).definitions
        {'gradient_1': Max(-2, Min(2, grad))}

    Source: ``clip_grad_value_`` of torch 2.13.
    """
    check_rule(rule, "clip_by_value")
    bound = number_or_schedule(value, "value", "clip_by_value", 0)
    return with_gradient(rule, sp.Max(sp.Min(GRAD, bound), -bound))


@with_checked_keywords
def clip_by_global_norm(
    rule: UpdateRule, max_norm: Number | Schedule, eps: Number | Schedule = 1e-6
) -> UpdateRule:
    r"""Returns a rule whose gradients together have at most a norm.

    .. math:: g' = g \min\left(1, \frac{M}{G + \epsilon}\right),
        \quad G = \sqrt{\textstyle\sum g^2} \text{ over all parameters}

    Each tensor's squares are summed in its dtype, as in the frameworks: gradients above 1.8e19 in
    float32 have an infinite norm, and are clipped to 0, or to NaN where they are infinite.

    Args:
        rule: The rule.
        max_norm: The largest norm M >= 0; 0 makes all gradients 0.
        eps: The term ε >= 0: 1e-6 in torch and cerebras, 0 in optax.

    Raises:
        DefinitionError: An argument is not a number, or negative.

    Source: Pascanu et al. (2013); ``clip_grad_norm_`` of torch 2.13, ``clip_by_global_norm`` of
    optax 0.2.8.
    """
    check_rule(rule, "clip_by_global_norm")
    bound = number_or_schedule(max_norm, "max_norm", "clip_by_global_norm", 0)
    small = number_or_schedule(eps, "eps", "clip_by_global_norm", 0)
    norm = sp.sqrt(global_sum(GRAD**2))
    return with_gradient(rule, GRAD * sp.Min(1, bound / (norm + small)))


@with_checked_keywords
def clip_by_unit_norm(
    rule: UpdateRule,
    clipping: Number | Schedule = 0.01,
    eps: Number | Schedule = 1e-3,
    *,
    units: str = "first",
) -> UpdateRule:
    r"""Returns a rule with adaptive gradient clipping (AGC): unit by unit, relative to the weights.

    .. math:: g' = \begin{cases} g & \lVert g \rVert < B \\
        g\, B / \max(\lVert g \rVert, 10^{-6}) & \text{otherwise} \end{cases}, \quad
        B = c \max(\lVert p \rVert, \epsilon)

    with the norms of a unit: the slice at one index of an axis, or all of a vector or scalar.

    Args:
        rule: The rule, for parameters of at most 6 axes.
        clipping: The largest ratio c >= 0 of the norms.
        eps: The least norm ε >= 0 of a unit's weights.
        units: Whether the ``"first"`` axis counts the units (torch) or the ``"last"`` (flax).

    Raises:
        DefinitionError: A number is negative, or the axis is neither of the two.

    Source: Brock et al. (2021), equation 3; ``adaptive_clip_grad`` of timm 1.0,
    ``adaptive_grad_clip`` of optax 0.2.8, which takes (1, n) as a vector, too.
    """
    where = "clip_by_unit_norm"
    check_rule(rule, where)
    ratio, least = (
        number_or_schedule(clipping, "clipping", where, 0),
        number_or_schedule(eps, "eps", where, 0),
    )
    choice(units, "units", where, UNITS)
    bound = ratio * sp.Max(_unit_norm(PARAM, units), least)
    norm = _unit_norm(GRAD, units)
    # ``grad_norm.clamp(min=1e-6)`` of timm, whatever eps is.
    scaled_gradient = GRAD * (bound / sp.Max(norm, sp.Rational(1, 10**6)))
    restricted_rule = replace(rule, requires=sp.And(rule.requires, sp.Le(RANK, _LARGEST_RANK)))
    return with_gradient(
        restricted_rule, sp.Piecewise((GRAD, norm < bound), (scaled_gradient, True))
    )


def _unit_norm(tensor: sp.Expr, units: str) -> sp.Expr:
    """The norm of each unit, with its axis, by the number of axes."""
    # Axes are numbers in a rule, and their count is known with a shape only: a branch for each.
    branches = [(reduce_sum(tensor**2), RANK < 2)]
    for rank in range(2, _LARGEST_RANK + 1):
        axes = tuple(range(1, rank)) if units == "first" else tuple(range(rank - 1))
        is_last = rank == _LARGEST_RANK
        condition = sp.true if is_last else sp.Eq(RANK, rank)
        branches.append((reduce_sum(tensor**2, axes, True), condition))
    return sp.sqrt(sp.Piecewise(*branches))


@with_checked_keywords
def accumulate(rule: UpdateRule, steps: int, *, flush: bool = False) -> UpdateRule:
    r"""Returns a rule that takes one step with the mean of k gradients.

    .. math::
        \bar g &= (a + g) / (i + 1) \\
        i' &= \begin{cases} 0 & i = k - 1 \\ i + 1 & \text{otherwise} \end{cases} \quad
        a' = \begin{cases} 0 & i = k - 1 \\ a + g & \text{otherwise} \end{cases}

    The rule runs with the mean where i = k - 1; elsewhere its parameters, states and the clock
    do not change: t counts steps, not gradients. With ``flush``, it also runs where the
    hyperparameter ``flush`` is above zero, such as after the last batch of an epoch.

    State: ``accumulated`` a, shape of the parameter, initially 0. State of the model:
    ``micro_step`` i, a counter.

    Args:
        rule: The rule.
        steps: The number k >= 1 of gradients to a step; 1 gives the rule back.
        flush: Whether each call has an input ``flush``, a number.

    Raises:
        DefinitionError: It is not such a number, or the rule accumulates already, or has a
            hyperparameter of this name.

    Source: ``MultiSteps`` of optax 0.2.8; in torch ``loss / k`` and ``step()`` after k backward
    passes.
    """
    check_rule(rule, "accumulate")
    count = step_count(steps, "steps", "accumulate")
    if count == 1:
        return rule
    if flush and FLUSH in rule.hyperparameters:
        raise DefinitionError(
            f"the rule has a hyperparameter {FLUSH!r} already",
            where="accumulate",
            hint="leave flush out, or rename it",
        )
    place = counter("micro_step")
    is_last, size = sp.Eq(place, count - 1), count
    if flush:
        is_last, size = sp.Or(is_last, hyper(FLUSH) > 0), place + 1
    total = state("accumulated") + GRAD
    following = Shared(sp.Piecewise((0, is_last), (place + 1, True)), 0, True)
    inputs = (FLUSH,) if flush else ()
    # Before the accumulator is added, which changes at every call.
    conditional_rule = unless(rule, is_last, "accumulate", inputs, micro_step=following)
    accumulator = State(sp.Piecewise((0, is_last), (total, True)))
    extended_rule = with_states(
        conditional_rule, "accumulate", accumulated=State(state("accumulated"))
    )
    stepping_rule = with_gradient(extended_rule, total / size)
    # Only now: with_gradient would write the mean for the gradient in the accumulator, too.
    return replace(stepping_rule, states={**stepping_rule.states, "accumulated": accumulator})


FLUSH = "flush"
"""The hyperparameter above zero at which accumulated gradients are applied before their number."""


@with_checked_keywords
def grokfast(
    rule: UpdateRule,
    alpha: Number | Schedule = 0.98,
    factor: Number | Schedule = 2,
    *,
    first: str = "copy",
) -> UpdateRule:
    r"""Returns a rule whose gradient has its slow part amplified.

    .. math:: s' = \alpha s + (1 - \alpha) g, \qquad g' = g + \lambda s'

    State: ``slow_gradient`` s, shape of the parameter, initially 0.

    Args:
        rule: The rule.
        alpha: The decay rate α of the running mean, in [0, 1].
        factor: The factor λ >= 0 of the slow part; 0 gives the gradient itself.
        first: What the mean is after the first step: ``"copy"`` for g (the authors) or ``"zero"``
            for (1 - α) g (``GrokFastAdamW`` of pytorch_optimizer).

    Raises:
        DefinitionError: A number out of its range, an unknown choice, or the rule is amplified
            already.

    Example:
        >>> from closedform import optimizers
        >>> grokfast(optimizers.sgd(0.5), first="zero").definitions
        {'gradient_1': 26*grad/25 + 49*state.slow_gradient/25}

    Source: Lee et al., Grokfast: accelerated grokking by amplifying slow gradients (2024),
    algorithm 2; ``gradfilter_ema`` of the authors and of pytorch_optimizer 4.1.
    """
    where = "grokfast"
    check_rule(rule, where)
    decay = number_or_schedule(alpha, "alpha", where, 0, 1)
    weight = number_or_schedule(factor, "factor", where, 0)
    slow = state("slow_gradient")
    mean = slow + (1 - decay) * (GRAD - slow)
    if choice(first, "first", where, FIRST) == "copy":
        mean = sp.Piecewise((GRAD, sp.Eq(t, 0)), (mean, True))
    extended_rule = with_states(rule, where, slow_gradient=State(slow))
    amplified_rule = with_gradient(extended_rule, GRAD + weight * mean)
    # Only now: with_gradient would write the amplified gradient into the mean, too.
    return replace(amplified_rule, states={**amplified_rule.states, "slow_gradient": State(mean)})

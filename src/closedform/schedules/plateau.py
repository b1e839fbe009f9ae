"""Driven by a metric: a value that falls where the metric no longer gets better."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy as sp

from closedform.errors import DomainError
from closedform.language import GRAD, PARAM, exact_number, hyper, state
from closedform.language.aliases import Number
from closedform.language.arguments import choice, whole_number

if TYPE_CHECKING:
    from closedform.language import UpdateRule

MODES = ("min", "max")
THRESHOLD_MODES = ("rel", "abs")

# The largest float32: worse than any metric, and finite in every dtype that states are stored in.
_WORST = 2**128 - 2**104


def reduce_on_plateau(
    mode: str = "min",
    factor: Number = 0.1,
    patience: int = 10,
    threshold: Number = 1e-4,
    threshold_mode: str = "rel",
    cooldown: int = 0,
    minimum: Number = 0,
    eps: Number = 1e-8,
) -> UpdateRule:
    r"""Returns the rule that reduces a value after too many steps without a better metric.

    It is not a function of the step but a state machine without control flow: an update rule whose
    parameter is the value v, whose gradient is the metric m, and whose states are the best metric
    b, the number of bad steps n and the rest c of the cooldown. With e the threshold, f the
    factor, P the patience, C the cooldown and l the minimum:

    .. math:: \text{better} = \begin{cases} m < b (1 - e) & \text{min, rel} \\
        m < b - e & \text{min, abs} \\ m > b (1 + e) & \text{max, rel} \\
        m > b + e & \text{max, abs} \end{cases} \qquad
        \text{reduce} = \neg\text{better} \wedge c \le 0 \wedge n + 1 > P

    .. math:: v \leftarrow \begin{cases} \max(f v, l) & \text{reduce} \wedge v - \max(f v, l) >
        \varepsilon \\ v & \text{else} \end{cases} \qquad
        b \leftarrow \begin{cases} m & \text{better} \\ b & \text{else} \end{cases}

    .. math:: n \leftarrow \begin{cases} 0 & \text{better} \vee c > 0 \vee \text{reduce} \\
        n + 1 & \text{else} \end{cases} \qquad
        c \leftarrow \begin{cases} C & \text{reduce} \\ \max(c - 1, 0) & \text{else} \end{cases}

    A metric that is not a number is not better. The best metric begins at the largest float32, or
    its negative: a metric beyond it is not better, either.

    Args:
        mode: ``min`` where a lower metric is better, ``max`` where a higher one is.
        factor: The factor f, at least 0 and below 1.
        patience: The number of bad steps P that change nothing, an integer of at least 0.
        threshold: The least difference e that counts, as a part of the best metric or itself.
        threshold_mode: ``rel`` for a part, ``abs`` for the difference itself.
        cooldown: The number of steps C after a reduction in which bad ones are not counted.
        minimum: The lower bound l on the value.
        eps: A reduction by no more than this is left out; at least 0.

    Raises:
        DefinitionError: An argument is not a finite number, or the name of a mode is unknown.
        DomainError: ``factor`` is not in [0, 1), a count is not such an integer, or ``eps`` below
            0.

    Example:
        >>> rule = reduce_on_plateau(patience=2)
        >>> list(rule.states)
        ['best', 'num_bad_epochs', 'cooldown_counter']

    Source: ``ReduceLROnPlateau`` of torch 2.13.
    """
    from closedform.language import State, UpdateRule

    where = "reduce_on_plateau"
    choice(mode, "mode", where, MODES)
    choice(threshold_mode, "threshold_mode", where, THRESHOLD_MODES)
    if not 0 <= exact_number(factor, f"factor of {where}") < 1:
        raise DomainError(f"factor must be at least 0 and below 1, got {factor!r}", where=where)
    if exact_number(eps, f"eps of {where}") < 0:
        raise DomainError(f"eps must be at least 0, got {eps!r}", where=where)
    numbers = {
        "factor": factor,
        "patience": whole_number(patience, "patience", where, least=0),
        "threshold": threshold,
        "cooldown": whole_number(cooldown, "cooldown", where, least=0),
        "minimum": minimum,
        "eps": eps,
    }
    best, bad, left = state("best"), state("num_bad_epochs"), state("cooldown_counter")
    better = _better(mode, threshold_mode, best)
    is_cooling = left > 0
    # As branches in order, not as a negation: a metric that is not a number compares false, and
    # SymPy would write not(m < b) as m >= b.
    is_over = bad + 1 > hyper("patience")
    lower = sp.Max(PARAM * hyper("factor"), hyper("minimum"))
    is_lower = sp.And(is_over, PARAM - lower > hyper("eps"))
    next_cooldown = sp.Max(left - 1, 0)
    return UpdateRule(
        where,
        sp.Piecewise((PARAM, better), (PARAM, is_cooling), (lower, is_lower), (PARAM, True)),
        {
            "best": State(
                sp.Piecewise((GRAD, better), (best, True)), _WORST if mode == "min" else -_WORST
            ),
            "num_bad_epochs": State(
                sp.Piecewise((0, better), (0, is_cooling), (0, is_over), (bad + 1, True))
            ),
            "cooldown_counter": State(
                sp.Piecewise(
                    (next_cooldown, better),
                    (next_cooldown, is_cooling),
                    (hyper("cooldown"), is_over),
                    (next_cooldown, True),
                )
            ),
        },
        numbers,
    )


def _better(mode: str, threshold_mode: str, best: sp.Symbol) -> sp.Basic:
    threshold = hyper("threshold")
    if mode == "min":
        bound = best * (1 - threshold) if threshold_mode == "rel" else best - threshold
        return GRAD < bound
    bound = best * (1 + threshold) if threshold_mode == "rel" else best + threshold
    return GRAD > bound

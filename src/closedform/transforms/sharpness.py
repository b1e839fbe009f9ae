"""Steps with the gradient of a point nearby: sharpness-aware minimization."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.language import (
    GRAD,
    PARAM,
    Schedule,
    Shared,
    State,
    UpdateRule,
    counter,
    global_sum,
    state,
)
from closedform.language.aliases import Number
from closedform.language.arguments import flag, number_or_schedule
from closedform.language.lengths import with_checked_keywords
from closedform.transforms.substitution import (
    check_rule,
    substitute_symbols,
    unless,
    with_evaluation,
    with_states,
)


@with_checked_keywords
def sam(
    rule: UpdateRule,
    rho: Number | Schedule = 0.05,
    eps: Number | Schedule = 1e-12,
    *,
    adaptive: bool = False,
) -> UpdateRule:
    r"""Returns a rule that takes two gradients to a step, the second one where the loss is worst.

    .. math::
        p' &= p + \frac{\rho\, w^2 g}{\lVert w g \rVert + \epsilon}, \quad w = 1 \text{ or }
        \lvert p \rvert & k &= 0 \\
        p' &= \text{the rule's step from } o \text{ with } g & k &= 1

    The first gradient moves the parameters uphill; the rule then steps from where they were, the
    origin o, with the second one. The norm is over all parameters. States of the rule and the clock
    change only at the second gradient: t counts steps, not gradients.

    State: ``origin`` o, shape of the parameter, initially the parameter; the model is evaluated
    there. State of the model: ``ascent`` k, a counter.

    Args:
        rule: The rule.
        rho: The distance ρ >= 0 of the second gradient.
        eps: The term ε >= 0 of the denominator.
        adaptive: Whether the distance of an element is relative to its size (ASAM).

    Raises:
        DefinitionError: A number is negative, or the rule has such states or is evaluated at a
            separate point.

    Example:
        >>> from closedform import optimizers
        >>> rule = sam(optimizers.sgd(0.1))
        >>> list(rule.states), list(rule.shared), rule.advances
        (['origin'], ['ascent'], Eq(shared.ascent, 1))

    Source: Foret et al., Sharpness-aware minimization (2021), algorithm 1; Kwon et al., ASAM
    (2021); ``SAM`` of pytorch_optimizer 4.1.
    """
    where = "sam"
    check_rule(rule, where)
    distance, least = (
        number_or_schedule(rho, "rho", where, 0),
        number_or_schedule(eps, "eps", where, 0),
    )
    phase, origin = counter("ascent"), state("origin")
    is_step = sp.Eq(phase, 1)
    weight = PARAM**2 if flag(adaptive, "adaptive", where) else sp.Integer(1)
    length = sp.sqrt(global_sum(weight * GRAD**2))
    ascent_point = PARAM + weight * GRAD * (distance / (length + least))
    extended_rule = with_states(rule, where, origin=State(PARAM, PARAM))
    substituted_rule = substitute_symbols(extended_rule, {PARAM: origin})
    following = Shared(sp.Piecewise((0, is_step), (1, True)), 0, True)
    conditional_rule = unless(substituted_rule, is_step, where, ascent=following)
    states = {
        **conditional_rule.states,
        "origin": State(sp.Piecewise((substituted_rule.param, is_step), (PARAM, True)), PARAM),
    }
    param = sp.Piecewise((substituted_rule.param, is_step), (ascent_point, True))
    return with_evaluation(replace(conditional_rule, param=param, states=states), where, origin)

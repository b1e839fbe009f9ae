"""Cautious steps: no element moves against its gradient."""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import GRAD, PARAM, UpdateRule, local, reduce_mean, state
from closedform.language.aliases import Number
from closedform.transforms.substitution import bounded, check_rule, unused_name


def cautious(rule: UpdateRule, least: Number = 1e-3, *, maximize: bool = False) -> UpdateRule:
    r"""Returns a rule that takes only the part of its step that the gradient agrees with.

    .. math:: u' = u \frac{\mu}{\max(\operatorname{mean} \mu, m)}, \quad
        \mu = \begin{cases} 1 & u g > 0 \\ 0 & \text{otherwise} \end{cases}

    for the step u in p' = p - u; the mean is over the elements of the tensor. What of the step
    depends on neither the gradient nor a state, the decoupled weight decay, is not a part of u.

    Args:
        rule: The rule; its next parameter is the parameter less some terms.
        least: The least mean m > 0, which bounds how much a step grows.
        maximize: Whether the rule ascends: then u and g disagree in sign where they agree.

    Raises:
        DefinitionError: The next parameter is not such a sum, or the least mean is not above 0.

    Source: Liang et al. (2024), algorithm 1; ``caution=True`` of the optimizers of timm 1.0.
    """
    check_rule(rule, "cautious")
    floor = bounded(least, "least", "cautious", 0)
    if floor == 0:
        raise DefinitionError(f"least must be above 0, got {least!r}", where="cautious")
    terms = sp.Add.make_args(rule.param)
    if PARAM not in terms:
        raise DefinitionError(
            f"the next parameter of rule {rule.name!r} is not the parameter less a step",
            where="cautious",
            hint="make the rule cautious before other transforms",
        )
    data = {GRAD, *map(state, rule.states), *map(local, rule.definitions)}
    moving = [term for term in terms if term.free_symbols & data]
    step_name, mask_name = unused_name(rule, "step"), unused_name(rule, "mask")
    step, mask = local(step_name), local(mask_name)
    agreement = -step * GRAD if maximize else step * GRAD
    definitions = {
        **rule.definitions,
        step_name: -sp.Add(*moving),
        mask_name: sp.Piecewise((1, agreement > 0), (0, True)),
    }
    taken = step * mask / sp.Max(reduce_mean(mask), floor)
    param = sp.Add(*(term for term in terms if term not in moving)) - taken
    return replace(rule, param=param, definitions=definitions)

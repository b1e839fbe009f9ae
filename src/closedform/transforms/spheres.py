"""Steps on a sphere: weights that keep their norm.

Example:
    >>> from closedform import optimizers
    >>> rule = hyperball(optimizers.sgd(0.1))
    >>> list(rule.definitions), rule.definitions["radius_1"]
    (['step_1', 'radius_1', 'moved_1'], sqrt(ReduceSum(param**2)))
"""

from __future__ import annotations

from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import PARAM, Schedule, UpdateRule, hyper
from closedform.language.aliases import Number
from closedform.language.arguments import number_or_schedule
from closedform.language.lengths import with_checked_keywords
from closedform.optimizers.formulas import norm
from closedform.transforms.substitution import check_rule, split_step, with_definition


@with_checked_keywords
def hyperball(
    rule: UpdateRule,
    radius: Number | Schedule | None = None,
    eps: Number | Schedule = 1e-10,
) -> UpdateRule:
    r"""Returns a rule whose steps have the size η R, and whose weights keep the norm R.

    .. math:: q = p - \eta R \frac{u}{\max(\lVert u \rVert, \epsilon)} - \eta \lambda p, \quad
        p' = R \frac{q}{\max(\lVert q \rVert, \epsilon)}

    for the step u of the rule; the norms are over the elements of the parameter. The size of u, to
    which the learning rate and a scale by the shape belong, has no influence. What of the step
    depends on neither the gradient nor a state, the decoupled weight decay ηλp, is not a part of u.

    Args:
        rule: The rule, with a hyperparameter ``lr``; its next parameter is the parameter less some
            terms.
        radius: The norm R > 0; None for the norm of the parameter before the step, whatever its
            first value is. A parameter of zeros then stays.
        eps: The least norm ε > 0 that is divided by.

    Raises:
        DefinitionError: The next parameter is not such a sum, there is no learning rate, or the
            radius or ε is not above 0.

    Source: Wen et al., Hyperball (2025), as MuonH and NorMuonH of track 3 of modded-nanogpt
    (records/track_3_optimization/results/20260430_muonh, commit f411b3d); with a radius,
    ``MuonHyperball`` of NVIDIA's Emerging-Optimizers (weight_update_hooks/hyperball.py, commit
    fd77292), whose ε is 1e-15.
    """
    where = "hyperball"
    check_rule(rule, where)
    if "lr" not in rule.hyperparameters:
        raise DefinitionError(f"rule {rule.name!r} has no learning rate lr", where=where)
    least = number_or_schedule(eps, "eps", where, 0)
    length = norm(PARAM) if radius is None else number_or_schedule(radius, "radius", where, 0)
    if least == 0 or length == 0:
        raise DefinitionError("radius and eps must be above 0, got 0", where=where)
    decayed_param, step = split_step(rule, where)
    rule, direction = with_definition(rule, "step", step)
    rule, size = with_definition(rule, "radius", length)
    step_of_size = direction * (hyper("lr") * size / sp.Max(norm(direction), least))
    rule, point = with_definition(rule, "moved", decayed_param - step_of_size)
    return replace(rule, param=point * (size / sp.Max(norm(point), least)))

"""Muon with a second moment of each element of the orthogonal direction: AdaMuon."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    State,
    UpdateRule,
    hyper,
    local,
    state,
    t,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    choice,
    hyperparameter,
    hyperparameters,
)
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled_decay,
    rule_of,
    weighted_mean,
)
from closedform.optimizers.muon import (
    COEFFICIENTS,
    COLUMNS,
    ROWS,
    Coefficients,
    checked_iteration,
    matrix_norm,
    orthogonalize,
)

SCALES = ("match_rms_adamw", "original")


@rule_function
def adamuon(
    lr: Hyper = 2e-2,
    betas: Sequence[Hyper] = (0.9, 0.95),
    weight_decay: Hyper = 0,
    ns_steps: int = 5,
    ns_coefficients: Coefficients = COEFFICIENTS,
    eps: Hyper = 1e-10,
    *,
    floor: Hyper = 1e-7,
    maximize: bool = False,
    scale: str = "match_rms_adamw",
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns AdaMuon: the orthogonal direction of Muon, divided by the root of its mean square.

    .. math::
        m' &= m + (1 - \beta_1)(g - m), \quad
        O = \text{the orthogonal direction } X_n \text{ of } m' \text{ by } \texttt{muon} \\
        v' &= \beta_2 v + (1 - \beta_2) O^2, \quad
        U = \frac{O}{\sqrt{v' / c_2} + \epsilon}, \quad c_2 = 1 - \beta_2^{t + 1} \\
        p' &= p - \eta s \sqrt{\min(r, c)} \frac{U}{\lVert U \rVert + \epsilon} - \eta \lambda p,
        \quad s = \tfrac15 \sqrt{\max(r, c)}

    with r rows and c columns: the step has the root mean square 0.2 η. Each matrix of a batch is
    stepped as a separate parameter, and a kernel is one matrix, as by :func:`muon`.

    States, each of the parameter's shape and initially 0: ``m``, ``v``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        ns_steps: The number n >= 0 of iterations; they are unrolled.
        ns_coefficients: As in :func:`muon`.
        eps: The term ε >= 0 of the denominators.
        floor: The least norm of the direction that is made orthogonal.
        maximize: Whether to ascend: the gradient enters with a minus.
        scale: ``"match_rms_adamw"`` as above, or ``"original"`` for s = √max(1, r / c).
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, an unknown choice, or a flag that is not a bool.

    Example:
        >>> list(adamuon().states), list(adamuon(ns_steps=1).for_shape((3, 4)).definitions)[:2]
        (['m', 'v'], ['direction', 'wide'])

    Source: Si et al., AdaMuon: adaptive Muon optimizer (2025), in its form without the sign of the
    momentum; ``AdaMuon`` of pytorch_optimizer 4.1.
    """
    where = "adamuon"
    values = hyperparameters(where, lr=lr, betas=betas, weight_decay=weight_decay)
    values["variance_eps"] = hyperparameter(eps, "eps", where)
    values["eps"] = hyperparameter(floor, "floor", where)
    values |= checked_iteration(ns_steps, ns_coefficients, where)
    choice(scale, "scale", where, SCALES)
    gradient = ascent_or_descent(maximize, where)
    definitions = {
        "direction": blend(state("m"), gradient, hyper("beta1")),
        **orthogonalize(ns_steps, values),
    }
    eps_term, beta2 = hyper("variance_eps"), hyper("beta2")
    definitions["second"] = weighted_mean(state("v"), local("orthogonal") ** 2, beta2)
    root = sp.sqrt(local("second") / (1 - beta2 ** (t + 1)))
    definitions["normalized"] = local("orthogonal") / (root + eps_term)
    if scale == "match_rms_adamw":
        size = sp.sqrt(sp.Max(ROWS, COLUMNS)) / 5
    else:
        size = sp.sqrt(sp.Max(1, ROWS / sp.Max(1, COLUMNS)))
    size = size * sp.sqrt(sp.Min(ROWS, COLUMNS)) / (matrix_norm(local("normalized")) + eps_term)
    param = PARAM - hyper("lr") * (size * local("normalized"))
    param = param - decoupled_decay(values["weight_decay"])
    states = {"m": State(local("direction")), "v": State(local("second"))}
    requires = sp.Ge(RANK, 2)
    rule = rule_of(where, param, states, values, definitions=definitions, requires=requires)
    return partition(rule, partitions)

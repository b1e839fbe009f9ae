"""ADOPT: Adam that scales a gradient by the second moment of those before it."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import (
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    two_betas,
)
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled,
    rule_of,
    weighted,
    with_penalty,
)


def adopt(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.9999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = False,
    *,
    clip_exponent: Hyper = 0.25,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns ADOPT.

    .. math::
        u &= \operatorname{clamp}\left(\frac{g'}{\max(\sqrt{v}, \epsilon)}, -t^c, t^c\right),
        \quad g' = \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(u - m) \\
        p' &= p - \eta\, m' \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2

    At the first step, t = 0, only v' = g'² is set; m and p stay. With ``decoupled_weight_decay``
    the penalty leaves the gradient, and ηλp is taken from p, from the second step on.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The least denominator ε >= 0. With 0, a parameter whose first gradient was 0 is not a
            number after the second step where that gradient is 0, too.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        clip_exponent: The exponent c >= 0 of the clamp; None for no clamp.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> adopt().states["exp_avg_sq"].next
        Piecewise((grad**2, Eq(t, 0)), (beta2*state.exp_avg_sq + grad**2*(1 - beta2), True))

    Source: Taniguchi et al. (2024), algorithm 2 and the authors' code, whose clamp is t^0.25;
    ``Adopt`` of timm 1.0.
    """
    values = hyperparameters(
        "adopt",
        lr=lr,
        **two_betas(betas, "adopt", "(0.9, 0.9999)"),
        eps=eps,
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "adopt")
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "adopt")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    scaled = gradient / sp.Max(sp.sqrt(state("exp_avg_sq")), hyper("eps"))
    if clip_exponent is not None:
        values["clip_exponent"] = hyperparameter(clip_exponent, "clip_exponent", "adopt")
        bound = sp.Integer(1)
        if not is_zero(values["clip_exponent"]):
            bound = t ** hyper("clip_exponent")
        scaled = sp.Max(sp.Min(scaled, bound), -bound)
    mean = blend(state("exp_avg"), scaled, hyper("beta1"))
    moved = PARAM - hyper("lr") * mean
    if is_decoupled:
        moved = moved - decoupled(values["weight_decay"])
    mean_square = weighted(state("exp_avg_sq"), gradient**2, hyper("beta2"))
    states = {
        "exp_avg": State(_from_second(mean, state("exp_avg"))),
        "exp_avg_sq": State(_from_second(mean_square, gradient**2)),
    }
    return rule_of("adopt", _from_second(moved, PARAM), states, values)


def _from_second(value: sp.Expr, first: sp.Expr) -> sp.Expr:
    return sp.Piecewise((first, sp.Eq(t, 0)), (value, True))

"""Sophia: a step clipped where an estimate of the curvature is small."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import (
    GRAD,
    PARAM,
    State,
    UpdateRule,
    floor_mod,
    hyper,
    state,
    t,
    tensor_input,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import hyperparameters, whole
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import blend, decoupled_decay, rule_of


@rule_function
def sophia(
    lr: Hyper = 6e-4,
    betas: Sequence[Hyper] = (0.96, 0.99),
    eps: Hyper = 1e-12,
    weight_decay: Hyper = 0.1,
    *,
    gamma: Hyper = 0.01,
    clip: Hyper = 1,
    update_period: int = 10,
) -> UpdateRule:
    r"""Returns Sophia, for a given estimate of the diagonal of the Hessian.

    .. math::
        m' &= m + (1 - \beta_1)(g - m) \\
        h' &= \begin{cases} h + (1 - \beta_2)(\hat h - h) & t \bmod k = 0 \\
        h & \text{otherwise} \end{cases} \\
        p' &= p - \eta \operatorname{clamp}\left(\frac{m'}{\max(\gamma h', \epsilon)}, -c, c\right)
        - \eta \lambda p

    Input: ``hessian`` ĥ, a tensor of the parameter's shape in addition to the gradient:
    Hutchinson's u ⊙ (Hu), or B g² of Gauss, Newton and Bartlett. Only every k-th step reads it.

    States, each of the parameter's shape and initially 0: ``momentum`` m, ``hessian_moment`` h.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here except the last: a number, a
            Schedule, or None for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The least denominator ε >= 0. With 0, m' = 0 on a curvature of 0 is not a number.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        gamma: The factor γ >= 0 of the curvature: with a small one, more elements are clipped.
        clip: The largest change c >= 0 of a parameter, as a multiple of η.
        update_period: The number k >= 1 of steps from one estimate to the next.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> sophia(update_period=1).states["hessian_moment"].next
        state.hessian_moment + (1 - beta2)*(input.hessian - state.hessian_moment)

    Source: Liu et al. (2023), algorithm 3. ``SophiaH`` of pytorch_optimizer 4.1 has γ = 1 and its
    ``p`` for c; ``sophia`` of optax 0.2.8 corrects m' for its start.
    """
    values = hyperparameters(
        "sophia", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, gamma=gamma, clip=clip
    )
    period = whole(update_period, "update_period", "sophia")
    mean = blend(state("momentum"), GRAD, hyper("beta1"))
    curvature = blend(state("hessian_moment"), tensor_input("hessian"), hyper("beta2"))
    if period > 1:
        is_due = sp.Eq(floor_mod(t, period), 0)
        curvature = sp.Piecewise((curvature, is_due), (state("hessian_moment"), True))
    ratio = mean / sp.Max(hyper("gamma") * curvature, hyper("eps"))
    clipped_ratio = sp.Max(sp.Min(ratio, hyper("clip")), -hyper("clip"))
    param = PARAM - hyper("lr") * clipped_ratio - decoupled_decay(values["weight_decay"])
    states = {"momentum": State(mean), "hessian_moment": State(curvature)}
    return rule_of("sophia", param, states, values, inputs=("hessian",))

"""Steps without their radial part, for weights whose scale has no effect: AdamP, SGDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    SIZE,
    AllBut,
    State,
    UpdateRule,
    all_but,
    axis_size,
    hyper,
    local,
    reduce_max,
    reduce_sum,
    state,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import choice, flag, hyperparameter, hyperparameters
from closedform.language.rule_functions import rule_function
from closedform.optimizers.adam import EPS_ADDED, adam_moments
from closedform.optimizers.formulas import ascent_or_descent, blend, decoupled_decay, rule_of


@rule_function
def adamp(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    delta: Hyper = 0.1,
    wd_ratio: Hyper = 0.1,
    nesterov: bool = False,
    *,
    maximize: bool = False,
    eps_added: str = "after_correction",
) -> UpdateRule:
    r"""Returns AdamP: Adam without the part of the step along the weights.

    .. math::
        d &= \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon}, \quad
        \hat p = \frac{p}{\lVert p \rVert + \epsilon} \\
        q &= \begin{cases} d - \hat p \sum \hat p\, d & \max |\cos(p, g)| < \delta / \sqrt n \\
        d & \text{otherwise} \end{cases} \\
        p' &= p - \eta q - \eta r \lambda p, \quad
        r = \begin{cases} \rho & \text{projected} \\ 1 & \text{otherwise} \end{cases}

    with m', v' and the corrections of :func:`adam`. Norm, cosine and sum are over the n elements at
    one index of the first axis, and the largest cosine decides; where it fails, over the whole
    tensor. A parameter with fewer than two axes is not projected. The states are as in
    :func:`adam`.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominators, and the least norm in a cosine.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        delta: The threshold δ >= 0 of the cosine.
        wd_ratio: The part ρ, in [0, 1], of the weight decay of projected weights.
        nesterov: Whether m' is blended with the gradient once more.
        maximize: Whether to ascend: the gradient enters with a minus.
        eps_added: As in :func:`adam`.

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown choice.

    Example:
        >>> list(adamp().states), list(adamp().for_shape((4,)).definitions)
        (['exp_avg', 'exp_avg_sq'], ['perturb'])

    Source: Heo et al., AdamP: slowing down the slowdown for momentum optimizers on scale-invariant
    weights (2021), algorithm 2; ``AdamP`` of pytorch_optimizer 4.1, which adds ε before the
    correction.
    """
    where = "adamp"
    values = hyperparameters(
        where,
        lr=lr,
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
        delta=delta,
        wd_ratio=hyperparameter(wd_ratio, "wd_ratio", where, at_most=1),
    )
    choice(eps_added, "eps_added", where, EPS_ADDED)
    gradient = ascent_or_descent(maximize, where)
    ratio, states = adam_moments(gradient, amsgrad=False, correct_bias=True, eps_added=eps_added)
    if flag(nesterov, "nesterov", where):
        mean = states["exp_avg"].next
        # The mean is a subexpression of the ratio, so that the corrections stay as they are.
        ratio = ratio.xreplace({mean: blend(mean, gradient, hyper("beta1"))})
    definitions = _projection_definitions(ratio, gradient)
    step = hyper("lr") * _choose_by_rank("projected", "perturb")
    decay = decoupled_decay(values["weight_decay"], rate=hyper("lr") * _decay_factor())
    return rule_of(where, PARAM - step - decay, states, values, definitions=definitions)


@rule_function
def sgdp(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    dampening: Hyper = 0,
    weight_decay: Hyper = 0,
    delta: Hyper = 0.1,
    wd_ratio: Hyper = 0.1,
    nesterov: bool = False,
    eps: Hyper = 1e-8,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns SGDP: momentum without the part of the step along the weights.

    .. math::
        b' &= \mu b + (1 - \tau) g, \quad d = b' \text{ or, with Nesterov, } g + \mu b' \\
        p' &= p - \eta q - \frac{\eta r \lambda}{1 - \mu} p

    with the projection q of d and the ratio r of :func:`adamp`.

    State: ``momentum_buffer`` b, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ in [0, 1).
        dampening: The part τ of the gradient that does not enter the momentum.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        delta: As in :func:`adamp`.
        wd_ratio: As in :func:`adamp`.
        nesterov: Whether to look one step ahead.
        eps: The term ε >= 0 of the norm, and the least norm in a cosine.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(sgdp().states), list(sgdp().for_shape((4,)).definitions)
        (['momentum_buffer'], ['perturb'])

    Source: Heo et al. (2021), algorithm 1; ``SGDP`` of pytorch_optimizer 4.1.
    """
    where = "sgdp"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        dampening=hyperparameter(dampening, "dampening", where, at_least=None),
        weight_decay=weight_decay,
        delta=delta,
        wd_ratio=hyperparameter(wd_ratio, "wd_ratio", where, at_most=1),
        eps=eps,
    )
    gradient = ascent_or_descent(maximize, where)
    mu = hyper("momentum")
    buffer = mu * state("momentum_buffer") + (1 - hyper("dampening")) * gradient
    direction = gradient + mu * buffer if flag(nesterov, "nesterov", where) else buffer
    definitions = _projection_definitions(direction, gradient)
    step = hyper("lr") * _choose_by_rank("projected", "perturb")
    # SGDP of pytorch_optimizer scales the decay by 1 / (1 - momentum).
    rate = hyper("lr") * _decay_factor() / (1 - mu)
    decay = decoupled_decay(values["weight_decay"], rate=rate)
    states = {"momentum_buffer": State(buffer)}
    return rule_of(where, PARAM - step - decay, states, values, definitions=definitions)


_Extent = tuple[AllBut | None, bool]
"""The axes of a reduction, and whether they stay."""

IS_PROJECTED = sp.Ge(RANK, 2)
"""The parameters that are tested for a projection."""


def _choose_by_rank(matrix: str, otherwise: str) -> sp.Expr:
    """One of two definitions, by the number of axes."""
    return sp.Piecewise((local(matrix), IS_PROJECTED), (local(otherwise), True))


def _decay_factor() -> sp.Expr:
    """The part of the weight decay that remains."""
    is_any = sp.Or(local("channel") > 0, local("layer") > 0)
    part = sp.Piecewise((hyper("wd_ratio"), is_any), (1, True))
    return sp.Piecewise((part, IS_PROJECTED), (1, True))


def _projection_definitions(direction: sp.Expr, gradient: sp.Expr) -> Mapping[str, sp.Expr]:
    """Definitions up to ``projected``, the definitions of a matrix only where there is one."""
    channels: _Extent = (all_but(0), True)
    all_axes: _Extent = (None, False)
    is_channel, is_layer = local("channel") > 0, local("layer") > 0
    return {
        "perturb": direction,
        # The mean size of a channel: all of them have the same number of elements.
        "channel": _is_scale_invariant(gradient, channels, SIZE / sp.Max(1, axis_size(0))),
        "layer": _is_scale_invariant(gradient, all_axes, SIZE),
        "radius": sp.Piecewise((_norm(PARAM, channels), is_channel), (_norm(PARAM, all_axes), True))
        + hyper("eps"),
        "unit": PARAM / local("radius"),
        "radial": sp.Piecewise(
            (reduce_sum(local("unit") * local("perturb"), *channels), is_channel),
            (reduce_sum(local("unit") * local("perturb")), True),
        ),
        "projected": sp.Piecewise(
            (
                local("perturb") - local("unit") * local("radial"),
                sp.Or(is_channel, is_layer),
            ),
            (local("perturb"), True),
        ),
    }


def _norm(tensor: sp.Expr, axes: _Extent) -> sp.Expr:
    return sp.sqrt(reduce_sum(tensor**2, *axes))


def _is_scale_invariant(gradient: sp.Expr, axes: _Extent, count: sp.Expr) -> sp.Expr:
    """1 where the largest cosine between weights and gradient is small, else 0."""
    eps = hyper("eps")
    product = reduce_sum(PARAM * gradient, *axes)
    # Each norm is floored, as in torch.nn.functional.cosine_similarity.
    lengths = sp.Max(_norm(PARAM, axes), eps) * sp.Max(_norm(gradient, axes), eps)
    largest = reduce_max(sp.Max(product, -product) / lengths)
    return sp.Piecewise((1, largest < hyper("delta") / sp.sqrt(sp.Max(1, count))), (0, True))

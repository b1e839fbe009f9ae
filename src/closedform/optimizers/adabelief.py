"""AdaBelief: Adam that divides by the spread of the gradient around its mean."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameters, two_betas
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled,
    rule_of,
    square,
    weighted,
    with_penalty,
)


def adabelief(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-16,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = True,
    *,
    eps_root: Hyper = 1e-16,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns AdaBelief.

    .. math::
        m' &= m + (1 - \beta_1)(g' - m), \quad g' = \pm g \\
        s' &= \beta_2 s + (1 - \beta_2)(g' - m')^2 + \epsilon_r \\
        p' &= p - \eta \frac{m' / c_1}{\sqrt{s' / c_2} + \epsilon} - \eta \lambda p,
        \quad c_i = 1 - \beta_i^{t + 1}

    Without ``decoupled_weight_decay`` the last term is gone and λp is added to the gradient.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_var`` s, which
    keeps the ε_r of every step.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two means, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        eps_root: The term ε_r >= 0 that each step adds to the spread.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(adabelief().states)
        ['exp_avg', 'exp_avg_var']

    Source: Zhuang et al. (2020), algorithm 2, with one ε in both places. ``adabelief`` of optax
    0.2.8 (no decay) and ``AdaBelief`` of timm 1.0 and adabelief_pytorch 0.2 with
    ``rectify=False``; with rectification their m' / √s' is that of RAdam.
    """
    values = hyperparameters(
        "adabelief",
        lr=lr,
        **two_betas(betas, "adabelief"),
        eps=eps,
        eps_root=eps_root,
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "adabelief")
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "adabelief")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    spread = weighted(state("exp_avg_var"), square(gradient - mean), hyper("beta2"))
    spread = spread + hyper("eps_root")
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1))
    size = sp.sqrt(spread) / correction + hyper("eps")
    param = PARAM - hyper("lr") * (mean / (1 - hyper("beta1") ** (t + 1)) / size)
    if is_decoupled:
        param = param - decoupled(values["weight_decay"])
    states = {"exp_avg": State(mean), "exp_avg_var": State(spread)}
    return rule_of("adabelief", param, states, values)

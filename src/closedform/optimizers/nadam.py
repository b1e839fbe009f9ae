"""NAdam: Adam with Nesterov momentum and a momentum that warms up."""

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
    weighted,
    with_penalty,
)


def nadam(
    lr: Hyper = 2e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    momentum_decay: Hyper = 4e-3,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
    doubled_factor: bool = False,
) -> UpdateRule:
    r"""Returns NAdam.

    .. math::
        g' &= \pm g + \lambda p \\
        \mu_k &= \beta_1 \left(1 - \tfrac12\, 0.96^{k \psi}\right) \\
        M' &= M \mu_{t+1} \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2 \\
        p' &= p - \eta\, \frac{\frac{\mu_{t+2}}{1 - M' \mu_{t+2}} m'
        + \frac{1 - \mu_{t+1}}{1 - M'} g'}
        {\sqrt{v' / (1 - \beta_2^{t + 1})} + \epsilon}

    With ``decoupled_weight_decay`` the penalty leaves the gradient, and ηλp is taken from p.

    States: ``mu_product`` M, a scalar, initially 1: a product over the steps has no closed form in
    t; ``exp_avg`` m and ``exp_avg_sq`` v, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        momentum_decay: The rate ψ >= 0 at which the momentum rises to β₁; 0 keeps it at β₁/2.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.
        doubled_factor: True for the defect of cerebras, whose 1 - M' μ² takes the momentum of the
            step once more than the formula has it: 1 - M' μ_{t+1} μ_{t+2}.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> rule = nadam()
        >>> rule.states["mu_product"].next, rule.states["mu_product"].initial
        (beta1*state.mu_product*(1 - (24/25)**(momentum_decay*(t + 1))/2), 1)

    Source: Dozat (2016). ``NAdam`` of torch 2.13 and of cerebras.pytorch 2.10 (no ``maximize``, no
    decoupled decay; ``doubled_factor`` as implemented), with one set of defaults.
    """
    values = hyperparameters(
        "nadam",
        lr=lr,
        **two_betas(betas, "nadam"),
        eps=eps,
        weight_decay=weight_decay,
        momentum_decay=momentum_decay,
    )
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "nadam")
    gradient = ascent_or_descent(maximize, "nadam")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    square = weighted(state("exp_avg_sq"), gradient**2, hyper("beta2"))
    now, following = _momentum(t + 1), _momentum(t + 2)
    product = state("mu_product") * now
    ahead = product * following
    if flag(doubled_factor, "doubled_factor", "nadam"):
        ahead = ahead * now
    size = sp.sqrt(square / (1 - hyper("beta2") ** (t + 1))) + hyper("eps")
    direction = following / (1 - ahead) * mean + (1 - now) / (1 - product) * gradient
    param = PARAM - hyper("lr") * direction / size
    if is_decoupled:
        param = param - decoupled(values["weight_decay"])
    states = {
        "mu_product": State(product, 1, "scalar"),
        "exp_avg": State(mean),
        "exp_avg_sq": State(square),
    }
    return rule_of("nadam", param, states, values)


def _momentum(step: sp.Expr) -> sp.Expr:
    """The momentum of a step, counted from 1."""
    power = sp.Rational(96, 100) ** (step * hyper("momentum_decay"))
    return hyper("beta1") * (1 - power / 2)

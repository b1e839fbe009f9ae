"""ASGD: gradient descent with a decaying rate, and the average of its parameters."""

from __future__ import annotations

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameters
from closedform.optimizers.formulas import ascent_or_descent, rule_of, with_penalty


def asgd(
    lr: Hyper = 1e-2,
    lambd: Hyper = 1e-4,
    alpha: Hyper = 0.75,
    t0: Hyper = 1e6,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns averaged stochastic gradient descent.

    .. math::
        g' &= \pm g + \lambda p \\
        \eta_t &= \eta\, (1 + \gamma \eta t)^{-\alpha}, \quad
        \mu_t = \frac{1}{\max(1, t - t_0)} \\
        p' &= p - \eta_t (g' + \gamma p) \\
        a' &= \begin{cases} p' & \mu_t = 1 \\
        a + \mu_t (p' - a) & \text{otherwise} \end{cases}

    State: ``ax`` a, shape of the parameter, initially 0: the average, which no step reads.

    Args:
        lr: The first learning rate η >= 0. As every hyperparameter here: a number or a Schedule.
            None, for an input of the graph, does not compile for lr and lambd: without values
            it is not known that 1 + γηt is above 0.
        lambd: The factor γ >= 0 of the decay of the parameter and of the learning rate.
        alpha: The exponent α >= 0 with which the learning rate decays.
        t0: The step >= 0 after which the average begins.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> rule = asgd(lr=0.1)
        >>> list(rule.states), rule.hyperparameters["t0"]
        (['ax'], 1000000)

    Source: Polyak and Juditsky (1992); Bottou (2010) for the rate. ``ASGD`` of torch 2.13 and of
    cerebras.pytorch 2.10, with one set of defaults. Both keep η_t and μ_t as float32 states ``eta``
    and ``mu``, derived from t here; a scheduled η therefore acts one step later in them, and enters
    with the value of this step here.
    """
    values = hyperparameters(
        "asgd", lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay
    )
    gradient = with_penalty(ascent_or_descent(maximize, "asgd"), values["weight_decay"])
    rate = hyper("lr") / (1 + hyper("lambd") * hyper("lr") * t) ** hyper("alpha")
    # The decay joins the gradient: the factor 1 - lambd*rate, rounded to float32, would err by up
    # to 3e-8 at each step to the same side, and a term of its own would round the parameter twice.
    param = PARAM - rate * (gradient + hyper("lambd") * PARAM)
    since = t - hyper("t0")
    averaged = state("ax") + (param - state("ax")) / sp.Max(1, since)
    average = sp.Piecewise((param, since <= 1), (averaged, True))
    return rule_of("asgd", param, {"ax": State(average)}, values)

"""MARS: a gradient with less variance, corrected by its change since the last step."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, reduce_sum, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import choice, hyperparameters, two_betas
from closedform.optimizers.formulas import decoupled, rule_of, sign, square, weighted

FORMS = ("adamw", "lion")


def mars(
    lr: Hyper = 3e-3,
    betas: Sequence[Hyper] = (0.95, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    gamma: Hyper = 0.025,
    *,
    form: str = "adamw",
) -> UpdateRule:
    r"""Returns MARS, with the step of AdamW or of Lion.

    .. math::
        c &= g + \gamma \frac{\beta_1}{1 - \beta_1} (g - g_{-1}), \quad c = g
        \text{ at the first step} \\
        \tilde c &= c / \max(1, \lVert c \rVert) \\
        m' &= \beta_1 m + (1 - \beta_1) \tilde c \\
        v' &= \beta_2 v + (1 - \beta_2) \tilde c^2 \\
        p' &= p - \eta (u + \lambda p), \quad
        u = \frac{m' / (1 - \beta_1^{t+1})}{\sqrt{v' / (1 - \beta_2^{t+1})} + \epsilon}
        \text{ or } \operatorname{sign} m'

    This is the approximate form, with the gradient of the last step in place of the last
    parameters' gradient on the new batch.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v (not for
    ``"lion"``), ``last_grad``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator, for ``"adamw"``.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        gamma: The strength γ >= 0 of the correction.
        form: ``"adamw"`` or ``"lion"``: the step u.

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown form.

    Example:
        >>> list(mars().states), list(mars(form="lion").states)
        (['exp_avg', 'exp_avg_sq', 'last_grad'], ['exp_avg', 'last_grad'])

    Source: Yuan et al. (2024), algorithms 2 and 3; there the first difference is 0. ``Mars`` of
    timm 1.0 (betas 0.9 and 0.99). Both give vectors to AdamW: that is another rule for their group.
    The authors' code takes the first difference from a gradient of 0.
    """
    values = hyperparameters(
        "mars",
        lr=lr,
        **two_betas(betas, "mars", "(0.95, 0.99)"),
        eps=eps,
        weight_decay=weight_decay,
        gamma=gamma,
    )
    choice(form, "form", "mars", FORMS)
    beta1, beta2 = hyper("beta1"), hyper("beta2")
    strength = hyper("gamma") * beta1 / (1 - beta1)
    change = sp.Piecewise((0, sp.Eq(t, 0)), (GRAD - state("last_grad"), True))
    corrected = GRAD + strength * change
    clipped = corrected / sp.Max(1, sp.sqrt(reduce_sum(square(corrected))))
    mean = weighted(state("exp_avg"), clipped, beta1)
    states = {"exp_avg": State(mean)}
    direction = sign(mean)
    if form == "adamw":
        mean_square = weighted(state("exp_avg_sq"), square(clipped), beta2)
        states["exp_avg_sq"] = State(mean_square)
        size = sp.sqrt(mean_square) / sp.sqrt(1 - beta2 ** (t + 1)) + hyper("eps")
        direction = mean / (1 - beta1 ** (t + 1)) / size
    states["last_grad"] = State(GRAD)
    param = PARAM - hyper("lr") * direction - decoupled(values["weight_decay"])
    return rule_of("mars", param, states, values)

"""Yogi: Adam whose second moment moves by a bounded amount."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper, Number
from closedform.optimizers.arguments import hyperparameters, number, two_betas
from closedform.optimizers.formulas import blend, decoupled, rule_of, sign


def yogi(
    lr: Hyper = 1e-2,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-3,
    weight_decay: Hyper = 0,
    *,
    initial_accumulator: Number = 1e-6,
) -> UpdateRule:
    r"""Returns Yogi.

    .. math::
        m' &= m + (1 - \beta_1)(g - m) \\
        v' &= v - (1 - \beta_2) \operatorname{sign}(v - g^2)\, g^2 \\
        p' &= p - \eta \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon} - \eta \lambda p,
        \quad c_i = 1 - \beta_i^{t + 1}

    States, each of the parameter's shape: ``exp_avg`` m and ``exp_avg_sq`` v, both initially
    ``initial_accumulator``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here except the last: a number, a
            Schedule, or None for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0 of the decoupled decay; the number 0 leaves the term out.
        initial_accumulator: What both moments start from, a number >= 0.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> rule = yogi()
        >>> rule.states["exp_avg_sq"].initial
        1/1000000

    Source: Zaheer et al. (2018), algorithm 2, where the moments start as the reader likes and are
    not corrected. ``yogi`` of optax 0.2.8 and ``Yogi`` of pytorch_optimizer 4.1 correct them and
    start both at 1e-6, as here.
    """
    values = hyperparameters(
        "yogi", lr=lr, **two_betas(betas, "yogi"), eps=eps, weight_decay=weight_decay
    )
    first = number(initial_accumulator, "initial_accumulator", "yogi")
    mean = blend(state("exp_avg"), GRAD, hyper("beta1"))
    previous = state("exp_avg_sq")
    mean_square = previous - (1 - hyper("beta2")) * sign(previous - GRAD**2) * GRAD**2
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1))
    size = sp.sqrt(mean_square) / correction + hyper("eps")
    param = PARAM - hyper("lr") * (mean / (1 - hyper("beta1") ** (t + 1)) / size)
    param = param - decoupled(values["weight_decay"])
    states = {"exp_avg": State(mean, first), "exp_avg_sq": State(mean_square, first)}
    return rule_of("yogi", param, states, values)

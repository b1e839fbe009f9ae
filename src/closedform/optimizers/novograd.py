"""NovoGrad: gradients divided by a running norm of their layer, then momentum."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, local, reduce_sum, state, t
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import flag, hyperparameters, is_zero, two_betas
from closedform.optimizers.formulas import ascent_or_descent, rule_of, weighted


def novograd(
    lr: Hyper = 1e-2,
    betas: Sequence[Hyper] = (0.95, 0.98),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    grad_averaging: bool = False,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns NovoGrad.

    .. math::
        v' &= \begin{cases} \lVert g \rVert^2 & t = 0 \\
        \beta_2 v + (1 - \beta_2) \lVert g \rVert^2 & \text{otherwise} \end{cases} \\
        d &= \frac{g}{\sqrt{v'} + \epsilon} + \lambda p, \quad
        m' = \beta_1 m + d \text{ or, with averaging, } \beta_1 m + (1 - \beta_1) d \\
        p' &= p - \eta\, m'

    The norm is over the whole parameter tensor.

    States, initially 0: ``exp_avg`` m, the parameter's shape; ``exp_avg_sq`` v, a scalar.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a tensor whose gradients were all 0 is not
            a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        grad_averaging: Whether m is a mean and not a sum.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> [(name, spec.shape) for name, spec in novograd().states.items()]
        [('exp_avg', 'param'), ('exp_avg_sq', 'scalar')]

    Source: Ginsburg et al. (2019), algorithm 1.
    """
    values = hyperparameters(
        "novograd",
        lr=lr,
        **two_betas(betas, "novograd", "(0.95, 0.98)"),
        eps=eps,
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "novograd")
    later = weighted(state("exp_avg_sq"), local("square"), hyper("beta2"))
    definitions = {
        "square": reduce_sum(gradient**2),
        "exp_avg_sq": sp.Piecewise((local("square"), sp.Eq(t, 0)), (later, True)),
    }
    direction = gradient / (sp.sqrt(local("exp_avg_sq")) + hyper("eps"))
    if not is_zero(values["weight_decay"]):
        direction = direction + hyper("weight_decay") * PARAM
    if flag(grad_averaging, "grad_averaging", "novograd"):
        moment = weighted(state("exp_avg"), direction, hyper("beta1"))
    else:
        moment = hyper("beta1") * state("exp_avg") + direction
    states = {
        "exp_avg": State(moment),
        "exp_avg_sq": State(local("exp_avg_sq"), shape="scalar"),
    }
    return rule_of(
        "novograd", PARAM - hyper("lr") * moment, states, values, definitions=definitions
    )

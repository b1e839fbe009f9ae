"""Steps from a sum of all gradients and a first point: MADGRAD, FTRL."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import flag, hyperparameter, hyperparameters, is_zero
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled_decay,
    rule_of,
    sign,
    with_penalty,
)


@rule_function
def madgrad(
    lr: Hyper = 1e-2,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0,
    eps: Hyper = 1e-6,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns MADGRAD, momentumized dual averaging with a cube root.

    .. math::
        \alpha &= (\eta + \epsilon) \sqrt{t + 1}, \quad g' = \pm g + \lambda p \\
        \nu' &= \nu + \alpha g'^2, \quad s' = s + \alpha g' \\
        z &= x - \frac{s'}{\sqrt[3]{\nu'} + \epsilon} \\
        p' &= p + (1 - \mu)(z - p)

    A rate of 0 makes α 0, not ε√(t + 1). Without a momentum, x is :math:`p + s / (\sqrt[3]\nu +
    \epsilon)`, and no state. With ``decoupled_weight_decay`` the penalty is gone and (η + ε)λp is
    subtracted from the parameter.

    States, each of the parameter's shape: ``grad_sum_sq`` ν and ``s``, initially 0; with a momentum
    ``x0`` x, the first parameter.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        eps: The term ε >= 0 of the denominator, and of the rate. With 0, a parameter whose
            gradients were all 0 is not a number after the step.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> list(madgrad().states), list(madgrad(momentum=0).states)
        (['grad_sum_sq', 's', 'x0'], ['grad_sum_sq', 's'])

    Source: Defazio and Jelassi, Adaptivity without compromise (2022), algorithm 1; ``MADGRAD`` of
    madgrad 1.3 and of pytorch_optimizer 4.1.
    """
    where = "madgrad"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        weight_decay=weight_decay,
        eps=eps,
    )
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", where)
    gradient = ascent_or_descent(maximize, where)
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    rate = sp.Piecewise((hyper("lr") + hyper("eps"), hyper("lr") > 0), (0, True))
    weight = rate * sp.sqrt(t + 1)
    squares = state("grad_sum_sq") + weight * gradient**2
    total = state("s") + weight * gradient
    states = {"grad_sum_sq": State(squares), "s": State(total)}
    if is_zero(values["momentum"]):
        # p = x0 - s / cbrt(v), solved for x0, so that no state holds it.
        first = PARAM + state("s") / _cube_root(state("grad_sum_sq"))
        param = first - total / _cube_root(squares)
    else:
        states["x0"] = State(state("x0"), PARAM)
        target = state("x0") - total / _cube_root(squares)
        param = PARAM + (1 - hyper("momentum")) * (target - PARAM)
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"], rate=rate)
    return rule_of(where, param, states, values)


def _cube_root(squares: sp.Expr) -> sp.Expr:
    return squares ** sp.Rational(1, 3) + hyper("eps")


@rule_function
def ftrl(
    lr: Hyper = 1e-3,
    beta: Hyper = 0,
    lambda_1: Hyper = 0,
    lambda_2: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns FTRL-Proximal: follow the regularized leader, with sparse parameters.

    .. math::
        n' &= n + g'^2, \quad z' = z + g' - \frac{\sqrt{n'} - \sqrt{n}}{\eta} p, \quad g' = \pm g \\
        p' &= \begin{cases} 0 & |z'| \le \lambda_1 \\
        \frac{\lambda_1 \operatorname{sign}(z') - z'}{(\beta + \sqrt{n'}) / \eta + \lambda_2}
        & \text{otherwise} \end{cases}

    The first parameter is forgotten: with z = 0 the sum has no part of it.

    States, each of the parameter's shape and initially 0: ``z``, ``n``.

    Args:
        lr: The learning rate η above 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        beta: The term β >= 0 of the denominator.
        lambda_1: The factor λ₁ >= 0 of the L1 penalty, which makes parameters 0.
        lambda_2: The factor λ₂ >= 0 of the L2 penalty.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(ftrl().states), list(ftrl().hyperparameters)
        (['z', 'n'], ['lr', 'beta', 'lambda_1', 'lambda_2'])

    Source: McMahan et al., Ad click prediction: a view from the trenches (2013), algorithm 1;
    ``FTRL`` of pytorch_optimizer 4.1 with ``lr_power=-0.5``, ``Ftrl`` of Keras with half of λ₂.
    """
    where = "ftrl"
    values = hyperparameters(where, lr=lr, beta=beta, lambda_1=lambda_1, lambda_2=lambda_2)
    if is_zero(values["lr"]):
        raise DefinitionError("lr must be above 0, got 0", where=where)
    gradient, rate = ascent_or_descent(maximize, where), hyper("lr", positive=True)
    squares = state("n") + gradient**2
    total = state("z") + gradient - (sp.sqrt(squares) - sp.sqrt(state("n"))) / rate * PARAM
    size, least = sp.Max(total, -total), hyper("lambda_1")
    below = (hyper("beta") + sp.sqrt(squares)) / rate + hyper("lambda_2")
    sparse = sp.Piecewise((0, size <= least), ((least * sign(total) - total) / below, True))
    return rule_of(where, sparse, {"z": State(total), "n": State(squares)}, values)

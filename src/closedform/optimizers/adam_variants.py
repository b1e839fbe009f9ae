"""Steps of Adam made of other parts: QHAdam, Grams, AdaBound."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper, Number
from closedform.language.arguments import flag, hyperparameter, hyperparameters, several
from closedform.language.rule_functions import rule_function
from closedform.optimizers.adam import adam_moments
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled_decay,
    rule_of,
    sign,
    weighted_mean,
    with_penalty,
)
from closedform.optimizers.weight_decays import relative_rate


@rule_function
def qhadam(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.995, 0.999),
    nus: Sequence[Hyper] = (0.7, 1.0),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns QHAdam: Adam whose moments are means of themselves and the gradient.

    .. math::
        m' &= m + \frac{1 - \beta_1}{1 - \beta_1^{t + 1}} (g' - m), \quad
        v' = v + \frac{1 - \beta_2}{1 - \beta_2^{t + 1}} (g'^2 - v) \\
        p' &= p - \eta \frac{\nu_1 m' + (1 - \nu_1) g'}
        {\sqrt{\nu_2 v' + (1 - \nu_2) g'^2} + \epsilon}, \quad g' = \pm g + \lambda p

    With ``decoupled_weight_decay`` the penalty is gone and ηλp is subtracted from the parameter.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m and ``exp_avg_sq`` v, which
    hold the corrected moments.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        nus: The parts ν₁ and ν₂ of the two moments, numbers in [0, 1]; with 1 and 1 it is Adam.
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or not two betas or nus.

    Example:
        >>> rule = qhadam()
        >>> list(rule.states), list(rule.hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'nu1', 'nu2', 'eps'])

    Source: Ma and Yarats, Quasi-hyperbolic momentum and Adam for deep learning (2019), eq. 10 to
    12; ``QHAdam`` of qhoptim and of pytorch_optimizer 4.1, which hold the weights of the moments as
    states.
    """
    where = "qhadam"
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    for index, nu in enumerate(several(nus, "nus", where, (0.7, 1.0))):
        values[f"nu{index + 1}"] = hyperparameter(nu, f"nus[{index}]", where, at_most=1)
    # The order of the signature, which is that of the inputs of a graph.
    values = {key: values[key] for key in _QHADAM}
    gradient = ascent_or_descent(maximize, where)
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", where)
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    mean = _correct_bias("exp_avg", gradient, hyper("beta1"))
    square = _correct_bias("exp_avg_sq", gradient**2, hyper("beta2"))
    above = weighted_mean(mean, gradient, hyper("nu1"))
    below = sp.sqrt(weighted_mean(square, gradient**2, hyper("nu2"))) + hyper("eps")
    param = PARAM - hyper("lr") * above / below
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"])
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    return rule_of(where, param, states, values)


_QHADAM = ("lr", "beta1", "beta2", "nu1", "nu2", "eps", "weight_decay")


def _correct_bias(name: str, value: sp.Expr, beta: sp.Expr) -> sp.Expr:
    """The running mean of all values so far, whose weights sum to 1 at each step."""
    return weighted_mean(state(name), value, 1 - (1 - beta) / (1 - beta ** (t + 1)))


@rule_function
def grams(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Grams: steps as large as Adam's, in the direction of the gradient's sign.

    .. math:: p' = p - \eta \left(\operatorname{sign}(g)
        \left|\frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon}\right| + \lambda p\right)

    with m', v' and the corrections of :func:`adam`. The states are the same as in :func:`adam`.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> list(grams().states), list(grams().hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Cao et al., Grams: gradient descent with adaptive momentum scaling (2024), algorithm 1;
    ``Grams`` of pytorch_optimizer 4.1.
    """
    where = "grams"
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    gradient = ascent_or_descent(maximize, where)
    ratio, states = adam_moments(
        gradient, amsgrad=False, correct_bias=True, eps_added="after_correction"
    )
    step = sp.Max(ratio, -ratio) * sign(gradient)
    param = PARAM - hyper("lr") * step - decoupled_decay(values["weight_decay"])
    return rule_of(where, param, states, values)


@rule_function
def adabound(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    final_lr: Hyper = 0.1,
    gamma: Hyper = 1e-3,
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    amsgrad: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    initial_lr: Number | None = None,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns AdaBound: Adam whose rates are clipped to bounds that close in on one rate.

    .. math::
        l &= \eta_f \left(1 - \frac{1}{\gamma (t + 1) + 1}\right), \quad
        u = \eta_f \left(1 + \frac{1}{\gamma (t + 1)}\right), \quad
        \eta_f = \phi \frac{\eta}{\eta_0} \\
        p' &= p - m' \operatorname{clamp}\!\left(
        \frac{\eta \sqrt{c_2} / c_1}{\sqrt{v'} + \epsilon}, l, u\right)

    with m', v' and the corrections of :func:`adam` for the gradient with the L2 penalty.
    With ``decoupled_weight_decay`` the penalty is gone and ηλp is subtracted from the parameter.

    The states are the same as in :func:`adam`.

    Args:
        lr: The learning rate η >= 0 of Adam. As every hyperparameter here: a number, a Schedule,
            or None for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        final_lr: The rate φ >= 0 of SGD that the bounds close in on.
        gamma: How fast they do, γ above 0.
        eps: The term ε >= 0 of the denominator, before the correction.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        amsgrad: Whether to divide by the largest second moment so far (AMSBound).
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        initial_lr: The rate η₀ before the schedule, which then acts on φ, too; None for ``lr``
            itself, which must then be a number.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or no ``initial_lr`` with a
            rate that is not a number.

    Example:
        >>> list(adabound().hyperparameters)
        ['lr', 'beta1', 'beta2', 'final_lr', 'gamma', 'eps']

    Source: Luo et al., Adaptive gradient methods with dynamic bound of learning rate (2019),
    algorithms 2 and 3, as the authors implement it, without the factor 1/√t; ``AdaBound`` of
    pytorch_optimizer 4.1.
    """
    where = "adabound"
    values = hyperparameters(
        where,
        lr=lr,
        betas=betas,
        final_lr=final_lr,
        gamma=gamma,
        eps=eps,
        weight_decay=weight_decay,
    )
    part = relative_rate(values, initial_lr, where)
    gradient = ascent_or_descent(maximize, where)
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", where)
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    _, states = adam_moments(
        gradient,
        amsgrad=flag(amsgrad, "amsgrad", where),
        correct_bias=True,
        eps_added="before_correction",
    )
    largest = states["max_exp_avg_sq" if amsgrad else "exp_avg_sq"].next
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1)) / (1 - hyper("beta1") ** (t + 1))
    rate = hyper("lr") * correction / (sp.sqrt(largest) + hyper("eps"))
    count = hyper("gamma", positive=True) * (t + 1)
    # φ follows the schedule: ``final_lr = group["final_lr"] * group["lr"] / base_lr`` of the
    # authors.
    final = hyper("final_lr") * part
    bound = sp.Min(sp.Max(rate, final * (1 - 1 / (count + 1))), final * (1 + 1 / count))
    param = PARAM - states["exp_avg"].next * bound
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"])
    return rule_of(where, param, states, values)

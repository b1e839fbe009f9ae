"""Adam and its relatives: AdamW, Adamax, NAdam, RAdam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp

from closedform.language import PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import choice, flag, hyperparameters
from closedform.language.rule_functions import rule_function
from closedform.language.settled import construct, product
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled_decay,
    rectification,
    rule_of,
    storage,
    weighted_mean,
    with_penalty,
)

EPS_ADDED = ("after_correction", "before_correction")


@rule_function
def adam(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    correct_bias: bool = True,
    eps_added: str = "after_correction",
) -> UpdateRule:
    r"""Returns Adam, with weight decay as an L2 penalty in the gradient.

    .. math::
        g' &= \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2 \\
        p' &= p - \eta\, \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon},
        \quad c_i = 1 - \beta_i^{t + 1}

    With ``eps_added="before_correction"`` the quotient is √c₂/c₁ · m' / (√v' + ε), the rearranged
    form at the end of section 2 of the paper: its ε acts like ε/√c₂ above, 31.6 times as much at
    the first step for β₂ = 0.999.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v, and with
    ``amsgrad`` ``max_exp_avg_sq``, the largest v' so far, uncorrected, which takes its place in p'.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        amsgrad: Whether to divide by the largest second moment so far.
        maximize: Whether to ascend: the gradient enters with a minus.
        correct_bias: False replaces c₁ and c₂ by 1.
        eps_added: Where ε is added to the root of the second moment: ``"after_correction"`` (torch)
            or ``"before_correction"`` (cerebras).

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown choice.

    Example:
        >>> rule = adam(lr=1e-3, correct_bias=False)
        >>> rule.param
        -lr*(state.exp_avg + (1 - beta1)*(grad - state.exp_avg))/(eps + sqrt(...)) + param
        >>> list(rule.states), list(rule.hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Kingma and Ba (2015), algorithm 1; Reddi et al. (2018) for AMSGrad, which both
        frameworks
    use with bias correction; ``Adam`` of torch 2.13 (eps 1e-8) and of cerebras.pytorch 2.10
    (eps 1e-6, always corrected; its float32 running powers of β are derived from t here).
    """
    values = _check_arguments("adam", lr, betas, eps, weight_decay)
    choice(eps_added, "eps_added", "adam", EPS_ADDED)
    ratio, states = adam_moments(
        with_penalty(ascent_or_descent(maximize, "adam"), values["weight_decay"]),
        amsgrad=flag(amsgrad, "amsgrad", "adam"),
        correct_bias=flag(correct_bias, "correct_bias", "adam"),
        eps_added=eps_added,
    )
    return rule_of("adam", PARAM - hyper("lr") * ratio, states, values)


@rule_function
def adamw(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
    amsgrad: bool = False,
    *,
    maximize: bool = False,
    correct_bias: bool = True,
    eps_added: str = "after_correction",
) -> UpdateRule:
    r"""Returns Adam with decoupled weight decay.

    .. math:: p' = p - \eta \left(\frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon} + \lambda p\right)

    with m', v' and the corrections of :func:`adam` for the bare gradient. The states are as in
    :func:`adam`.

    Args:
        lr: As in :func:`adam`.
        betas: As in :func:`adam`.
        eps: As in :func:`adam`.
        weight_decay: The factor λ >= 0; the parameter shrinks by η λ of itself. The number 0 leaves
            the term out.
        amsgrad: As in :func:`adam`.
        maximize: Whether to ascend; the weight decay shrinks as before.
        correct_bias: As in :func:`adam`.
        eps_added: As in :func:`adam`.

    Raises:
        DefinitionError: As in :func:`adam`.

    Example:
        >>> rule = adamw(lr=None, weight_decay=0.1)
        >>> rule.hyperparameters
        {'lr': None, 'beta1': 9/10, 'beta2': 999/1000, 'eps': 1/100000000, 'weight_decay': 1/10}

    Source: Loshchilov and Hutter (2019); there the decay is multiplied only by the schedule, not
    by η. ``AdamW`` of torch 2.13 (weight decay 1e-2, eps 1e-8; it multiplies p by 1 - ηλ first, the
    same mathematics) and of cerebras.pytorch 2.10 (weight decay 0, eps 1e-6).
    """
    values = _check_arguments("adamw", lr, betas, eps, weight_decay)
    choice(eps_added, "eps_added", "adamw", EPS_ADDED)
    ratio, states = adam_moments(
        ascent_or_descent(maximize, "adamw"),
        amsgrad=flag(amsgrad, "amsgrad", "adamw"),
        correct_bias=flag(correct_bias, "correct_bias", "adamw"),
        eps_added=eps_added,
    )
    param = PARAM - hyper("lr") * ratio - decoupled_decay(values["weight_decay"])
    return rule_of("adamw", param, states, values)


def adam_moments(
    gradient: sp.Expr, *, amsgrad: bool, correct_bias: bool, eps_added: str
) -> tuple[sp.Expr, dict[str, State]]:
    """Returns the step of Adam for a learning rate of 1, and its states.

    Args:
        gradient: The gradient, with a penalty if there is one.
        amsgrad: As in :func:`adam`; so are the others.
        correct_bias: Whether the moments are corrected.
        eps_added: One of ``EPS_ADDED``.
    """
    beta1, beta2, eps = hyper("beta1"), hyper("beta2"), hyper("eps")
    # The first moment is written as a blend: the weights of a blend sum to 1 in float32, too.
    mean = state("exp_avg") + (1 - beta1) * (gradient - state("exp_avg"))
    square = beta2 * state("exp_avg_sq") + (1 - beta2) * gradient**2
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    largest = square
    if amsgrad:
        largest = construct(sp.Max, state("max_exp_avg_sq"), square)
        states["max_exp_avg_sq"] = State(largest)
    if not correct_bias:
        return mean / (sp.sqrt(largest) + eps), states
    correction1 = 1 - beta1 ** (t + 1)
    correction2 = sp.sqrt(1 - beta2 ** (t + 1))
    if eps_added == "before_correction":
        # The scalar factors first: one product with a tensor.
        return correction2 / correction1 * mean / (sp.sqrt(largest) + eps), states
    return mean / correction1 / (sp.sqrt(largest) / correction2 + eps), states


def _check_arguments(
    where: str, lr: Hyper, betas: Sequence[Hyper], eps: Hyper, weight_decay: Hyper
) -> dict[str, Any]:
    return hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


@rule_function
def adamax(
    lr: Hyper = 2e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adamax: Adam with the decayed largest gradient as second moment.

    .. math::
        g' &= \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        n' &= \max(\beta_2 n, |g'| + \epsilon) \\
        p' &= p - \frac{\eta}{1 - \beta_1^{t + 1}} \frac{m'}{n'}

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_inf`` n.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ of the mean and β₂ of the largest gradient, numbers in [0, 1).
        eps: The least value ε >= 0 of n'. With 0, a parameter whose gradients were all 0 is not a
            number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> adamax().states["exp_inf"].next
        Max(beta2*state.exp_inf, eps + Abs(grad))

    Source: Kingma and Ba (2015), algorithm 2, without ε. ``Adamax`` of torch 2.13 (lr 2e-3, eps
    1e-8) and of cerebras.pytorch 2.10 (lr 1e-3, eps 1e-6; its float32 running power of β₁ is
    derived from t here): one formula.
    """
    values = hyperparameters("adamax", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    gradient = with_penalty(ascent_or_descent(maximize, "adamax"), values["weight_decay"])
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    decayed_norm = hyper("beta2") * state("exp_inf")
    # ε inside of the maximum, as torch adds it, so that the divisor is never 0.
    largest = construct(sp.Max, decayed_norm, sp.Abs(gradient) + hyper("eps"))
    rate = hyper("lr") / (1 - hyper("beta1") ** (t + 1))
    states = {"exp_avg": State(mean), "exp_inf": State(largest)}
    return rule_of("adamax", PARAM - rate * mean / largest, states, values)


@rule_function
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
    scalar_states: str | None = None,
) -> UpdateRule:
    r"""Returns NAdam: Adam with Nesterov momentum and a momentum that warms up.

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
        scalar_states: ``"f32"`` to round M and its factors to float32 in graphs of float64, too, as
            torch does where its default dtype is float32; None to keep M in the dtype of the graph.

    Raises:
        DefinitionError: A number out of its range, not two betas, a flag that is not a bool, or
            another dtype than ``"f32"``.

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
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
        momentum_decay=momentum_decay,
    )
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "nadam")
    gradient = ascent_or_descent(maximize, "nadam")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    square = weighted_mean(state("exp_avg_sq"), gradient**2, hyper("beta2"))
    now, following = _momentum(t + 1), _momentum(t + 2)
    store = storage(scalar_states, "nadam")
    # torch stores mu_product as a float32 tensor, which rounds it at each step.
    product = store(state("mu_product") * store(now))
    ahead = product * following
    if flag(doubled_factor, "doubled_factor", "nadam"):
        ahead = ahead * now
    size = sp.sqrt(square / (1 - hyper("beta2") ** (t + 1))) + hyper("eps")
    direction = following / (1 - ahead) * mean + (1 - now) / (1 - product) * gradient
    param = PARAM - hyper("lr") * direction / size
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"])
    states = {
        "mu_product": State(product, 1, "scalar"),
        "exp_avg": State(mean),
        "exp_avg_sq": State(square),
    }
    return rule_of("nadam", param, states, values)


def _momentum(step: sp.Expr) -> sp.Expr:
    """The momentum of a step, counted from 1."""
    # 0.96 of Dozat (2016), a constant in torch, too.
    power = sp.Rational(96, 100) ** (step * hyper("momentum_decay"))
    return hyper("beta1") * (1 - power / 2)


@rule_function
def radam(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns RAdam: Adam that waits until the variance of its denominator is known.

    .. math::
        g' &= \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(g' - m) \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2 \\
        \rho_\infty &= \frac{2}{1 - \beta_2} - 1, \quad
        \rho = \rho_\infty - \frac{2 (t + 1) \beta_2^{t+1}}{1 - \beta_2^{t+1}} \\
        p' &= p - \frac{\eta}{1 - \beta_1^{t+1}}\, m' \begin{cases}
        \sqrt{\frac{(\rho - 4)(\rho - 2) \rho_\infty}
        {(\rho_\infty - 4)(\rho_\infty - 2) \rho}}
        \frac{\sqrt{1 - \beta_2^{t+1}}}{\sqrt{v'} + \epsilon} & \rho > 5 \\
        1 & \text{otherwise} \end{cases}

    The two ρ are scalars from the step; their difference cancels, so in float32 the branch may
    flip at another step: it is computed in the scalar dtype, float64 by default. With
    ``decoupled_weight_decay`` the penalty leaves the gradient, and ηλp is taken from p.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1). With β₂ <= 2/3 the
            branch ρ > 5 is never taken.
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the first rectified step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(radam().states), list(radam().hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Liu et al. (2020), whose threshold is ρ > 4, without ε; both frameworks take 5.
        ``RAdam``
    of torch 2.13 (eps 1e-8) and of cerebras.pytorch 2.10 (eps 1e-6, no ``maximize``, no decoupled
    decay; it computes ρ in float32).
    """
    values = hyperparameters("radam", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "radam")
    gradient = ascent_or_descent(maximize, "radam")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    beta2 = hyper("beta2")
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    square = weighted_mean(state("exp_avg_sq"), gradient**2, beta2)
    correction = 1 - beta2 ** (t + 1)
    length, factor = rectification(beta2, 5)
    size = sp.sqrt(square) + hyper("eps")
    adaptive_scale = product([factor, sp.sqrt(correction), 1 / size])
    scale = sp.Piecewise((adaptive_scale, construct(sp.Gt, length, 5)), (1, True))
    # The length never exceeds 5 then, and the factor would be the root of a quotient that may be
    # negative or 0 / 0.
    if _is_never_rectified(values["beta2"]):
        scale = sp.Integer(1)
    param = PARAM - hyper("lr") / (1 - hyper("beta1") ** (t + 1)) * mean * scale
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"])
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    return rule_of("radam", param, states, values)


def _is_never_rectified(beta2: Hyper) -> bool:
    """Whether the limit of the length is 5 or less."""
    return isinstance(beta2, sp.Expr) and bool(beta2 <= sp.Rational(2, 3))

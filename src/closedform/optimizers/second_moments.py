"""Adam with another second moment: AdaBelief, ACProp, Yogi, LaProp, ADOPT, StableAdamW."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, local, state, t
from closedform.language.aliases import Hyper, Number
from closedform.language.arguments import flag, hyperparameter, hyperparameters, is_zero, number
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled_decay,
    rms,
    rule_of,
    sign,
    square,
    weighted_mean,
    with_penalty,
)


@rule_function
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
    r"""Returns AdaBelief: Adam that divides by the spread of the gradient around its mean.

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
        "adabelief", lr=lr, betas=betas, eps=eps, eps_root=eps_root, weight_decay=weight_decay
    )
    gradient = ascent_or_descent(maximize, "adabelief")
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "adabelief")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    spread = weighted_mean(state("exp_avg_var"), square(gradient - mean), hyper("beta2"))
    spread = spread + hyper("eps_root")
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1))
    size = sp.sqrt(spread) / correction + hyper("eps")
    param = PARAM - hyper("lr") * (mean / (1 - hyper("beta1") ** (t + 1)) / size)
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"])
    states = {"exp_avg": State(mean), "exp_avg_var": State(spread)}
    return rule_of("adabelief", param, states, values)


@rule_function
def acprop(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-16,
    weight_decay: Hyper = 0,
    *,
    eps_root: Hyper = 1e-16,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns ACProp: AdaBelief that divides by the spread before the step.

    .. math::
        m' &= m + (1 - \beta_1)(g' - m), \quad g' = \pm g \\
        s' &= \beta_2 s + (1 - \beta_2)(g' - m)^2 + \epsilon_r \\
        p' &= p - \eta \frac{g'}{\sqrt{\hat s} + \epsilon} - \eta \lambda p, \quad
        \hat s = \begin{cases} 1 & t = 0 \\ s / (1 - \beta_2^t) & \text{otherwise} \end{cases}

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_var`` s, which
    keeps the ε_r of every step.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two means, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        eps_root: The term ε_r >= 0 that each step adds to the spread.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(acprop().states)
        ['exp_avg', 'exp_avg_var']

    Source: Zhuang et al., Momentum centering and asynchronous update for adaptive gradient methods
    (2021), algorithm 2; ``acprop`` of optax.contrib 0.2.8.
    """
    values = hyperparameters(
        "acprop", lr=lr, betas=betas, eps=eps, eps_root=eps_root, weight_decay=weight_decay
    )
    gradient = ascent_or_descent(maximize, "acprop")
    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    spread = weighted_mean(
        state("exp_avg_var"), square(gradient - state("exp_avg")), hyper("beta2")
    )
    correction = sp.Piecewise((1, sp.Eq(t, 0)), (sp.sqrt(1 - hyper("beta2") ** t), True))
    # At t = 0 the spread is its initial 0: without the 1 the first step would be g / ε.
    root = sp.Piecewise((1, sp.Eq(t, 0)), (sp.sqrt(state("exp_avg_var")), True))
    param = PARAM - hyper("lr") * (gradient / (root / correction + hyper("eps")))
    param = param - decoupled_decay(values["weight_decay"])
    states = {"exp_avg": State(mean), "exp_avg_var": State(spread + hyper("eps_root"))}
    return rule_of("acprop", param, states, values)


@rule_function
def yogi(
    lr: Hyper = 1e-2,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-3,
    weight_decay: Hyper = 0,
    *,
    initial_accumulator: Number = 1e-6,
) -> UpdateRule:
    r"""Returns Yogi: Adam whose second moment moves by a bounded amount.

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
    values = hyperparameters("yogi", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    first = number(initial_accumulator, "initial_accumulator", "yogi")
    mean = blend(state("exp_avg"), GRAD, hyper("beta1"))
    previous = state("exp_avg_sq")
    mean_square = previous - (1 - hyper("beta2")) * sign(previous - GRAD**2) * GRAD**2
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1))
    size = sp.sqrt(mean_square) / correction + hyper("eps")
    param = PARAM - hyper("lr") * (mean / (1 - hyper("beta1") ** (t + 1)) / size)
    param = param - decoupled_decay(values["weight_decay"])
    states = {"exp_avg": State(mean, first), "exp_avg_sq": State(mean_square, first)}
    return rule_of("yogi", param, states, values)


@rule_function
def laprop(
    lr: Hyper = 4e-4,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-15,
    weight_decay: Hyper = 0,
) -> UpdateRule:
    r"""Returns LaProp: Adam that takes the mean of the scaled gradient, not the scaled mean.

    .. math::
        v' &= \beta_2 v + (1 - \beta_2) g^2 \\
        m' &= \beta_1 m + (1 - \beta_1) \frac{g}{\sqrt{v' / c_2} + \epsilon} \\
        p' &= (1 - \eta \lambda) \left(p - \eta\, m' / c_1\right), \quad c_i = 1 - \beta_i^{t + 1}

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> list(laprop().states), list(laprop().hyperparameters)
        (['exp_avg', 'exp_avg_sq'], ['lr', 'beta1', 'beta2', 'eps'])

    Source: Ziyin et al. (2020), algorithm 1, with the decay of the authors' code, which shrinks the
    parameter after the step. ``LaProp`` of timm 1.0 keeps η m in its state: the same for a constant
    η, and another trajectory where η is scheduled.
    """
    values = hyperparameters("laprop", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    mean_square = weighted_mean(state("exp_avg_sq"), GRAD**2, hyper("beta2"))
    size = sp.sqrt(mean_square) / sp.sqrt(1 - hyper("beta2") ** (t + 1)) + hyper("eps")
    mean = weighted_mean(state("exp_avg"), GRAD / size, hyper("beta1"))
    param = PARAM - hyper("lr") / (1 - hyper("beta1") ** (t + 1)) * mean
    param = param - decoupled_decay(values["weight_decay"], param)
    states = {"exp_avg": State(mean), "exp_avg_sq": State(mean_square)}
    return rule_of("laprop", param, states, values)


@rule_function
def adopt(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.9999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = False,
    *,
    clip_exponent: Hyper = 0.25,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns ADOPT: Adam that scales a gradient by the second moment of those before it.

    .. math::
        u &= \operatorname{clamp}\left(\frac{g'}{\max(\sqrt{v}, \epsilon)}, -t^c, t^c\right),
        \quad g' = \pm g + \lambda p \\
        m' &= m + (1 - \beta_1)(u - m) \\
        p' &= p - \eta\, m' \\
        v' &= \beta_2 v + (1 - \beta_2) g'^2

    At the first step, t = 0, only v' = g'² is set; m and p stay. With ``decoupled_weight_decay``
    the penalty leaves the gradient, and ηλp is taken from p, from the second step on.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂, numbers in [0, 1).
        eps: The least denominator ε >= 0. With 0, a parameter whose first gradient was 0 is not a
            number after the second step where that gradient is 0, too.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        clip_exponent: The exponent c >= 0 of the clamp; None for no clamp.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> adopt().states["exp_avg_sq"].next
        Piecewise((grad**2, Eq(t, 0)), (beta2*state.exp_avg_sq + grad**2*(1 - beta2), True))

    Source: Taniguchi et al. (2024), algorithm 2 and the authors' code, whose clamp is t^0.25;
    ``Adopt`` of timm 1.0.
    """
    values = hyperparameters("adopt", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    gradient = ascent_or_descent(maximize, "adopt")
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "adopt")
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    # The moment before this gradient: the proof of convergence needs the two to be independent.
    normalized_gradient = gradient / sp.Max(sp.sqrt(state("exp_avg_sq")), hyper("eps"))
    if clip_exponent is not None:
        values["clip_exponent"] = hyperparameter(clip_exponent, "clip_exponent", "adopt")
        bound = sp.Integer(1)
        if not is_zero(values["clip_exponent"]):
            bound = t ** hyper("clip_exponent")
        normalized_gradient = sp.Max(sp.Min(normalized_gradient, bound), -bound)
    mean = blend(state("exp_avg"), normalized_gradient, hyper("beta1"))
    next_param = PARAM - hyper("lr") * mean
    if is_decoupled:
        next_param = next_param - decoupled_decay(values["weight_decay"])
    mean_square = weighted_mean(state("exp_avg_sq"), gradient**2, hyper("beta2"))
    states = {
        "exp_avg": State(_from_second(mean, state("exp_avg"))),
        "exp_avg_sq": State(_from_second(mean_square, gradient**2)),
    }
    return rule_of("adopt", _from_second(next_param, PARAM), states, values)


def _from_second(value: sp.Expr, first: sp.Expr) -> sp.Expr:
    return sp.Piecewise((first, sp.Eq(t, 0)), (value, True))


@rule_function
def stable_adamw(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.99),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 1e-2,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns StableAdamW: AdamW with the update clipping of Adafactor.

    .. math::
        m' &= m + (1 - \hat\beta_1)(g - m), \quad
        v' = \hat\beta_2 v + (1 - \hat\beta_2) g^2, \quad
        \hat\beta_i = \frac{\beta_i - \beta_i^{t+1}}{1 - \beta_i^{t+1}} \\
        r &= \sqrt{\operatorname{mean}\left(\frac{g^2}{\max(v', \epsilon^2)}\right)}, \quad
        \rho = \frac{\eta}{\max(1, r)} \\
        p' &= p - \rho \left(\frac{m'}{\sqrt{v'} + \epsilon} + \lambda p\right)

    The decay rates that depend on the step are the bias correction: the moments are means of what
    there was, at every step. The mean in r is over the whole parameter tensor.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator. With 0, a tensor with an element whose gradients
            were all 0 is not a number after the step.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(stable_adamw().states), list(stable_adamw().definitions)
        (['exp_avg', 'exp_avg_sq'], ['exp_avg', 'exp_avg_sq', 'lag', 'rate'])

    Source: Wortsman et al. (2023), algorithm 2.
    """
    values = hyperparameters("stable_adamw", lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    gradient = ascent_or_descent(maximize, "stable_adamw")
    eps_symbol, mean, square = hyper("eps"), local("exp_avg"), local("exp_avg_sq")
    definitions = {
        "exp_avg": blend(state("exp_avg"), gradient, _corrected_rate("beta1")),
        "exp_avg_sq": weighted_mean(state("exp_avg_sq"), gradient**2, _corrected_rate("beta2")),
    }
    # A quotient is squared, not its parts: they overflow where it does not.
    definitions["lag"] = gradient / sp.sqrt(sp.Max(square, eps_symbol**2))
    definitions["rate"] = hyper("lr") / sp.Max(1, rms(local("lag")))
    param = PARAM - local("rate") * mean / (sp.sqrt(square) + eps_symbol)
    param = param - decoupled_decay(values["weight_decay"], rate=local("rate"))
    states = {"exp_avg": State(mean), "exp_avg_sq": State(square)}
    return rule_of("stable_adamw", param, states, values, definitions=definitions)


def _corrected_rate(beta: str) -> sp.Expr:
    """The decay rate with which a running mean is one of all gradients so far: 0 at first."""
    power = hyper(beta) ** (t + 1)
    # Equal to (β - β^(t+1)) / (1 - β^(t+1)), and exactly 0 at t = 0.
    return 1 - (1 - hyper(beta)) / (1 - power)

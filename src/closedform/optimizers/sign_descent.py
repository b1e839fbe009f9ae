"""Steps by signs: of the gradient (Rprop), or of its running mean (Lion, Signum, Tiger)."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    flag,
    hyperparameter,
    hyperparameters,
    number,
    number_or_zero,
    several,
)
from closedform.language.rule_functions import rule_function
from closedform.language.settled import construct
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled_decay,
    rule_of,
    sign,
    weighted_mean,
    with_penalty,
)


@rule_function
def lion(
    lr: Hyper = 1e-4, betas: Sequence[Hyper] = (0.9, 0.99), weight_decay: Hyper = 0
) -> UpdateRule:
    r"""Returns Lion: the sign of an interpolated momentum, with decoupled weight decay.

    .. math::
        p' &= p - \eta \left(\operatorname{sign}(\beta_1 m + (1 - \beta_1) g)
        + \lambda p\right) \\
        m' &= \beta_2 m + (1 - \beta_2) g

    The sign of 0 is 0, and where the mean is not a number the parameter is not, either. The step
    jumps by 2η where the mean crosses 0: two implementations that round differently may differ by
    that.

    State: ``exp_avg`` m, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rate β₁ of the mean whose sign is taken and β₂ of the mean that is stored,
            numbers in [0, 1).
        weight_decay: The factor λ >= 0; the parameter shrinks by η λ of itself. The number 0 leaves
            the term out.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> rule = lion()
        >>> rule.states["exp_avg"].next
        beta2*state.exp_avg + grad*(1 - beta2)

    Source: Chen et al. (2023), algorithm 2. ``Lion`` of cerebras.pytorch 2.10, which multiplies p
    by 1 - ηλ first, the same mathematics; torch has none.
    """
    values = hyperparameters("lion", lr=lr, betas=betas, weight_decay=weight_decay)
    direction = sign(weighted_mean(state("exp_avg"), GRAD, hyper("beta1")))
    param = PARAM - hyper("lr") * direction - decoupled_decay(values["weight_decay"])
    mean = weighted_mean(state("exp_avg"), GRAD, hyper("beta2"))
    return rule_of("lion", param, {"exp_avg": State(mean)}, values)


@rule_function
def signum(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0,
    decoupled_weight_decay: bool = True,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Signum, sign descent with momentum.

    .. math::
        m' &= \mu m + (1 - \mu) g', \quad g' = \pm g \\
        p' &= p - \eta \operatorname{sign}(m') - \eta \lambda p

    Without ``decoupled_weight_decay`` the last term is gone and λp is added to the gradient.

    State: ``momentum_buffer`` m, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0, the size of every change. As every hyperparameter here: a
            number, a Schedule, or None for an input of the graph.
        momentum: The decay rate μ of the mean, in [0, 1); with 0 it is signSGD.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> signum().states["momentum_buffer"].next
        grad*(1 - momentum) + momentum*state.momentum_buffer

    Source: Bernstein et al. (2018), algorithm 2. ``SignSGD`` of pytorch_optimizer 4.1 (its momentum
    buffer). The sign of 0 is 0, the sign of NaN is NaN.
    """
    values = hyperparameters(
        "signum",
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", "signum", below=1),
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "signum")
    decay = values["weight_decay"]
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", "signum")
    if not is_decoupled:
        gradient = with_penalty(gradient, decay)
    mean = weighted_mean(state("momentum_buffer"), gradient, hyper("momentum"))
    param = PARAM - hyper("lr") * sign(mean) - (decoupled_decay(decay) if is_decoupled else 0)
    return rule_of("signum", param, {"momentum_buffer": State(mean)}, values)


@rule_function
def tiger(lr: Hyper = 1e-3, beta: Hyper = 0.965, weight_decay: Hyper = 0.01) -> UpdateRule:
    r"""Returns Tiger, the tight-fisted optimizer: Signum under its own names.

    .. math::
        m' &= \beta m + (1 - \beta) g \\
        p' &= p - \eta \left(\operatorname{sign}(m') + \lambda p\right)

    State: ``exp_avg`` m, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        beta: The decay rate β of the mean, in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(tiger().states), list(tiger().hyperparameters)
        (['exp_avg'], ['lr', 'beta', 'weight_decay'])

    Source: Su (2023), https://kexue.fm/archives/9512; it is Lion with one β, and Signum with the
    decay of AdamW. ``Tiger`` of pytorch_optimizer 4.1. The rates by kind of layer that Su advises
    are rates of parameter groups.
    """
    values = hyperparameters(
        "tiger",
        lr=lr,
        beta=hyperparameter(beta, "beta", "tiger", below=1),
        weight_decay=weight_decay,
    )
    mean = weighted_mean(state("exp_avg"), GRAD, hyper("beta"))
    param = PARAM - hyper("lr") * sign(mean) - decoupled_decay(values["weight_decay"])
    return rule_of("tiger", param, {"exp_avg": State(mean)}, values)


@rule_function
def rprop(
    lr: Hyper = 1e-2,
    etas: Sequence[Hyper] = (0.5, 1.2),
    step_sizes: Sequence[Hyper] = (1e-6, 50),
    *,
    maximize: bool = False,
    lr_at_first_step: bool = False,
) -> UpdateRule:
    r"""Returns Rprop without backtracking: after a change of sign it waits for one step.

    .. math::
        q &= g' r, \quad g' = \pm g \\
        z' &= \operatorname{clamp}(z k, z_{min}, z_{max}), \quad k = \begin{cases}
        \eta_+ & q > 0 \\ \eta_- & q < 0 \\ 1 & q = 0 \end{cases} \\
        r' &= \begin{cases} 0 & q < 0 \\ g' & \text{otherwise} \end{cases} \\
        p' &= p - \operatorname{sign}(r')\, z'

    States, each of the parameter's shape: ``prev`` r, initially 0; ``step_size`` z, initially η.

    Args:
        lr: The first step size η >= 0, a number: no step reads it. With ``lr_at_first_step`` the
            first step reads it in place of z, and it may be a Schedule or None.
        etas: The factors η₋ and η₊ of the step size, 0 < η₋ < 1 < η₊. As the step sizes: numbers,
            Schedules, or None for inputs of the graph.
        step_sizes: The least and the largest step size, >= 0.
        maximize: Whether to ascend: the gradient enters with a minus.
        lr_at_first_step: Whether the first step reads η, as torch's does, which makes its states
            then: a scheduler may have changed η since the constructor.

    Raises:
        DefinitionError: A number out of its range, not two numbers, or a learning rate that is not
            a number and that the first step does not read.

    Example:
        >>> rule = rprop(lr=0.1)
        >>> rule.states["step_size"].initial
        1/10
        >>> rule.states["prev"].next
        Piecewise((0, grad*state.prev < 0), (grad, True))

    Source: Riedmiller and Braun (1993), in the variant without backtracking of Igel and Hüsken
    (2000). ``Rprop`` of torch 2.13 (lr 1e-2) and of cerebras.pytorch 2.10 (lr 1e-3, no
    ``maximize``; an infinite gradient at a change of sign leaves NaN in its ``prev``, here 0).
    """
    eta_minus, eta_plus = several(etas, "etas", "rprop", (0.5, 1.2))
    smallest, largest = several(step_sizes, "step_sizes", "rprop", (1e-6, 50))
    values = {
        "eta_minus": hyperparameter(eta_minus, "etas[0]", "rprop", below=1),
        "eta_plus": hyperparameter(eta_plus, "etas[1]", "rprop", at_least=1),
        "smallest_step": hyperparameter(smallest, "step_sizes[0]", "rprop"),
        "largest_step": hyperparameter(largest, "step_sizes[1]", "rprop"),
    }
    before = state("step_size")
    if flag(lr_at_first_step, "lr_at_first_step", "rprop"):
        values["lr"] = hyperparameter(lr, "lr", "rprop")
        first = number_or_zero(values["lr"])
        before = sp.Piecewise((hyper("lr"), sp.Eq(t, 0)), (before, True))
    else:
        first = number(lr, "lr", "rprop")
    gradient = ascent_or_descent(maximize, "rprop")
    agreement = gradient * state("prev")
    agrees, turns = construct(sp.Gt, agreement, 0), construct(sp.Lt, agreement, 0)
    # Otherwise the product is 0, or not a number, which then enters the step size.
    factor = sp.Piecewise(
        (hyper("eta_plus"), agrees),
        (hyper("eta_minus"), turns),
        (1 + agreement, True),
    )
    size = construct(sp.Min, before * factor, hyper("largest_step"))
    size = construct(sp.Max, size, hyper("smallest_step"))
    # iRprop-: after a change of sign the step is left out, and the next one compares with 0.
    effective_gradient = sp.Piecewise((0, turns), (gradient, True))
    states = {"prev": State(effective_gradient), "step_size": State(size, first)}
    return rule_of("rprop", PARAM - sign(effective_gradient) * size, states, values)

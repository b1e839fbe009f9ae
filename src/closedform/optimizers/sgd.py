"""Stochastic gradient descent, with momentum or averaging."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import PARAM, Schedule, State, UpdateRule, hyper, local, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    choice,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    number_or_zero,
)
from closedform.language.rule_functions import rule_function
from closedform.language.settled import construct
from closedform.optimizers.formulas import ascent_or_descent, rule_of, storage, with_penalty

FIRST_MOMENTUM = ("gradient", "dampened")


@rule_function
def sgd(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0,
    dampening: Hyper = 0,
    weight_decay: Hyper = 0,
    nesterov: bool = False,
    *,
    maximize: bool = False,
    first_momentum: str = "gradient",
) -> UpdateRule:
    r"""Returns stochastic gradient descent, with momentum where it is not 0.

    .. math::
        g' &= \pm g + \lambda p \\
        b' &= \mu b + (1 - \tau) g' \\
        p' &= p - \eta\, d, \quad d = g',\; b' \text{ or, with Nesterov, } g' + \mu b'

    States: ``momentum_buffer`` b, shape of the parameter, initially 0, only where there is a
    momentum.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ >= 0; with the number 0 there is neither momentum nor state.
        dampening: The part τ of the gradient that does not enter the momentum.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        nesterov: Whether to look one step ahead; it needs a momentum and no dampening.
        maximize: Whether to ascend: the gradient enters with a minus.
        first_momentum: What the momentum is after the first step: ``"gradient"`` for g' (torch),
            ``"dampened"`` for (1 - τ) g' (cerebras). Without dampening the two are the same.

    Raises:
        DefinitionError: A number out of its range, or Nesterov without momentum or with dampening.

    Example:
        >>> sgd(lr=0.1).param
        -grad*lr + param
        >>> sgd(lr=0.1, momentum=0.9).states["momentum_buffer"].next
        grad + momentum*state.momentum_buffer

    Source: Sutskever et al. (2013), with the learning rate outside of the momentum; ``SGD`` of
    torch 2.13 and of cerebras.pytorch 2.10.
    """
    values = {
        "lr": hyperparameter(lr, "lr", "sgd"),
        "momentum": hyperparameter(momentum, "momentum", "sgd"),
        "dampening": hyperparameter(dampening, "dampening", "sgd", at_least=None),
        "weight_decay": hyperparameter(weight_decay, "weight_decay", "sgd"),
    }
    choice(first_momentum, "first_momentum", "sgd", FIRST_MOMENTUM)
    if flag(nesterov, "nesterov", "sgd"):
        check_nesterov(values["momentum"], values["dampening"])
    gradient = with_penalty(ascent_or_descent(maximize, "sgd"), values["weight_decay"])
    states: dict[str, State] = {}
    definitions: dict[str, sp.Expr] = {}
    if nesterov:
        definitions["gradient"] = gradient
        gradient = local("gradient")
    change = hyper("lr") * gradient
    if not is_zero(values["momentum"]):
        is_dampened = not is_zero(values["dampening"])
        buffer = next_momentum(gradient, is_dampened=is_dampened, first=first_momentum)
        states["momentum_buffer"] = State(buffer)
        change = hyper("lr") * buffer
        if nesterov:
            # Of the factors of b, the numbers are multiplied first: it is many times the gradient,
            # and each rounding of it counts.
            definitions["change"] = change * hyper("momentum") + hyper("lr") * gradient
            change = local("change")
    return rule_of("sgd", PARAM - change, states, values, definitions=definitions)


def next_momentum(gradient: sp.Expr, *, is_dampened: bool, first: str) -> sp.Expr:
    """Returns the next momentum of :func:`sgd`.

    It starts at 0, so only a dampened one needs a separate first step.
    """
    momentum_term = hyper("momentum") * state("momentum_buffer")
    if not is_dampened:
        return momentum_term + gradient
    usual = momentum_term + (1 - hyper("dampening")) * gradient
    # torch begins the buffer with the undampened gradient of the first step (``buf =
    # torch.clone(grad)``).
    return sp.Piecewise((gradient, sp.Eq(t, 0)), (usual, True)) if first == "gradient" else usual


def check_nesterov(momentum: Hyper, dampening: Hyper, where: str = "sgd") -> None:
    """Refuses Nesterov without a momentum or with dampening.

    Raises:
        DefinitionError: The momentum is the number 0, or the dampening is not.
    """
    if is_zero(momentum):
        raise DefinitionError(
            "nesterov needs a momentum above 0, got momentum 0", where=where, hint="try 0.9"
        )
    # Nesterov's form assumes the whole gradient in the buffer; torch refuses other dampenings, too.
    if dampening is None or isinstance(dampening, Schedule) or dampening != 0:
        raise DefinitionError(
            f"nesterov needs dampening 0, got dampening {dampening}",
            where=where,
            hint="leave dampening out",
        )


@rule_function
def asgd(
    lr: Hyper = 1e-2,
    lambd: Hyper = 1e-4,
    alpha: Hyper = 0.75,
    t0: Hyper = 1e6,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
    scalar_states: str | None = None,
) -> UpdateRule:
    r"""Returns gradient descent with a decaying rate, and the average of its parameters.

    .. math::
        g' &= \pm g + \lambda p \\
        e &= \begin{cases} \eta & t = 0 \\ \eta_t & \text{otherwise} \end{cases} \\
        p' &= p - e\, (g' + \gamma p) \\
        a' &= \begin{cases} p' & \mu_t = 1 \\
        a + \mu_t (p' - a) & \text{otherwise} \end{cases} \\
        \eta_{t+1} &= \eta\, (1 + \gamma \eta (t + 1))^{-\alpha}, \quad
        \mu_{t+1} = \frac{1}{\max(1, t + 1 - t_0)}

    A step stores the rate and the weight of the next step, so a scheduled η acts one step later
    than in other rules, except at the first step.

    States: ``eta`` η_t, a scalar, initially η where it is a number, and 0 otherwise: the first step
    does not read it; ``mu`` μ_t, a scalar, initially 1; ``ax`` a, shape of the parameter, initially
    0: the average, which no step reads.

    Args:
        lr: The first learning rate η >= 0. As every hyperparameter here: a number or a Schedule.
            None, for an input of the graph, does not compile for lr and lambd: without values
            it is not known that 1 + γη(t + 1) is above 0.
        lambd: The factor γ >= 0 of the decay of the parameter and of the learning rate.
        alpha: The exponent α >= 0 with which the learning rate decays.
        t0: The step >= 0 after which the average begins.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.
        scalar_states: ``"f32"`` to round η_t and μ_t to float32 in graphs of float64, too, as torch
            does where its default dtype is float32; None to keep them in the dtype of the graph.

    Raises:
        DefinitionError: A number out of its range, or another dtype than ``"f32"``.

    Example:
        >>> rule = asgd(lr=0.1)
        >>> list(rule.states), rule.hyperparameters["t0"]
        (['eta', 'mu', 'ax'], 1000000)

    Source: Polyak and Juditsky (1992); Bottou (2010) for the rate. ``ASGD`` of torch 2.13
    (torch/optim/asgd.py writes ``eta`` and ``mu`` after it has used them) and of cerebras.pytorch
    2.10, with one set of defaults; there a scheduler does not change the rate of the first step,
    which is that of the constructor.
    """
    values = hyperparameters(
        "asgd", lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay
    )
    gradient = with_penalty(ascent_or_descent(maximize, "asgd"), values["weight_decay"])
    store = storage(scalar_states, "asgd")
    rate = sp.Piecewise((store(hyper("lr")), sp.Eq(t, 0)), (state("eta"), True))
    # The decay joins the gradient: the factor 1 - lambd*rate, rounded to float32, would err by up
    # to 3e-8 at each step to the same side, and a separate term would round the parameter twice.
    param = PARAM - rate * (gradient + hyper("lambd") * PARAM)
    # The mu of the step before: torch writes eta and mu after it has used them.
    average = state("ax") + state("mu") * (param - state("ax"))
    next_rate = hyper("lr") / (1 + hyper("lambd") * hyper("lr") * (t + 1)) ** hyper("alpha")
    next_weight = 1 / construct(sp.Max, 1, t + 1 - hyper("t0"))
    states = {
        "eta": State(store(next_rate), number_or_zero(values["lr"]), "scalar"),
        "mu": State(store(next_weight), 1, "scalar"),
        "ax": State(sp.Piecewise((param, state("mu") >= 1), (average, True))),
    }
    return rule_of("asgd", param, states, values)

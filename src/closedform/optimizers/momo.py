"""Momentum whose rate is bounded by a model of the loss: MoMo."""

from __future__ import annotations

import sympy as sp

from closedform.language import (
    GRAD,
    PARAM,
    Shared,
    State,
    UpdateRule,
    global_sum,
    hyper,
    shared,
    state,
    t,
)
from closedform.language.aliases import Hyper, Number
from closedform.language.arguments import flag, hyperparameter, hyperparameters, number
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import rule_of

_NO_STEP = sp.Rational(1, 2**52)  # the epsilon of float64, below which optax takes no step


@rule_function
def momo(
    lr: Hyper = 1.0,
    beta: Hyper = 0.9,
    lower_bound: Number = 0,
    weight_decay: Hyper = 0,
    *,
    loss: Hyper = None,
    adapt_lower_bound: bool = False,
) -> UpdateRule:
    r"""Returns MoMo: momentum at the rate at which a model of the loss reaches its lower bound.

    .. math::
        m' &= b m + (1 - b) g, \quad
        f' = b f + (1 - b) L, \quad
        \gamma' = b \gamma + (1 - b) \sum g p,
        \quad b = \begin{cases} 0 & t = 0 \\ \beta & \text{otherwise} \end{cases} \\
        h &= (1 + \eta \lambda)(f' - \gamma') + \sum m' p \\
        \tau &= \min\left(\eta, \frac{\max(h - (1 + \eta \lambda) \ell, 0)}{\sum m'^2}\right) \\
        p' &= p - \tau m' - \frac{\eta \lambda}{1 + \eta \lambda} p

    The sums are over all elements of all parameters; τ is 0 where Σm'² is at most 2⁻⁵². With
    ``adapt_lower_bound`` the bound ℓ is, where h is below (1 + ηλ) ℓ, the larger of half of
    h / (1 + ηλ) and ℓ₀, and ℓ' is the larger of f' - γ' + Σm'p - τ Σm'² / 2 and ℓ₀.

    State of the parameter's shape: ``exp_avg`` m, initially 0. States of the model: ``barf`` f and
    ``gamma`` γ, initially 0; with ``adapt_lower_bound`` ``lb`` ℓ, initially ℓ₀.

    Args:
        lr: The largest rate η >= 0. As the other hyperparameters except ℓ₀: a number, a Schedule,
            or None for an input of the graph.
        beta: The decay rate β of the means, in [0, 1).
        lower_bound: The lower bound ℓ₀ of the loss, a number >= 0.
        weight_decay: The factor λ >= 0.
        loss: The loss L of the batch: None, since each step takes it.
        adapt_lower_bound: Whether the bound is estimated.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> list(momo().shared), momo().hyperparameters["loss"] is None
        (['barf', 'gamma'], True)

    Source: Schaipp et al., MoMo: momentum models for adaptive learning rates (2023), algorithm 1
    with the bounds of its section 4; ``momo`` of optax.contrib 0.2.8.
    """
    where = "momo"
    values = hyperparameters(
        where,
        lr=lr,
        beta=hyperparameter(beta, "beta", where, below=1),
        weight_decay=weight_decay,
        loss=hyperparameter(loss, "loss", where, at_least=None),
    )
    values["lower_bound"] = number(lower_bound, "lower_bound", where)
    is_adapted = flag(adapt_lower_bound, "adapt_lower_bound", where)
    decay = sp.Piecewise((0, sp.Eq(t, 0)), (hyper("beta"), True))

    def mean(before: sp.Expr, new: sp.Expr) -> sp.Expr:
        return decay * before + (1 - decay) * new

    momentum = mean(state("exp_avg"), GRAD)
    loss = mean(shared("barf"), hyper("loss"))
    gamma = mean(shared("gamma"), global_sum(GRAD * PARAM))
    length, product = global_sum(momentum**2), global_sum(momentum * PARAM)
    growth = 1 + hyper("lr") * hyper("weight_decay")
    height = growth * (loss - gamma) + product
    bound = least = hyper("lower_bound")
    if is_adapted:
        lower = sp.Max(height / (2 * growth), least)
        bound = sp.Piecewise((lower, height < growth * shared("lb")), (shared("lb"), True))
    is_moving = length > _NO_STEP
    # The divisor is floored in the branch that is not taken, too: a graph computes both.
    rate = sp.Max(height - growth * bound, 0) / sp.Max(length, _NO_STEP)
    rate = sp.Min(hyper("lr"), sp.Piecewise((rate, is_moving), (0, True)))
    states_of_model = {"barf": Shared(loss), "gamma": Shared(gamma)}
    if is_adapted:
        following = loss + product - gamma - rate * length / 2
        states_of_model["lb"] = Shared(sp.Max(following, least), values["lower_bound"])
    shrinkage = hyper("lr") * hyper("weight_decay") / growth
    return rule_of(
        where,
        PARAM - rate * momentum - shrinkage * PARAM,
        {"exp_avg": State(momentum)},
        values,
        shared=states_of_model,
    )

"""SGD whose rate follows from the distance gone and the gradients so far: DoG, DoWG."""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform.language import (
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
from closedform.language.aliases import Hyper
from closedform.language.arguments import choice, hyperparameters
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import ascent_or_descent, rule_of, with_penalty

FIRST_STEPS = ("heuristic", "distance", "rate")


@rule_function
def dog(
    lr: Hyper = 1.0,
    first_value: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    eps: Hyper = 1e-8,
    *,
    first: str = "heuristic",
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns DoG: SGD at the largest distance so far over the root of all squared gradients.

    .. math::
        r' &= \max\left(r, r_0, \sqrt{\sum (p - p_0)^2}\right), \quad
        G' = G + \sum g^2 \\
        p' &= p - \eta \frac{r'}{\sqrt{G' + \epsilon}} g

    The sums are over all elements of all parameters; λp is added to the gradient g.

    States, of the parameter's shape: ``p0`` p₀, initially the parameter. States of the model,
    initially 0: ``max_dist`` r, ``sum_sq_norm_grads`` G.

    Args:
        lr: The factor η >= 0 of the rate. As every hyperparameter here: a number, a Schedule, or
            None for an input of the graph.
        first_value: The value v >= 0 of the first step, by ``first``.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        eps: The term ε >= 0 of the root. With 0, a first gradient of 0 gives no number.
        first: The meaning of v: ``"heuristic"`` for r₀ = v (1 + √Σp₀²), ``"distance"`` for r₀ = v,
            ``"rate"`` for a first step of rate ηv and r₀ = 0.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or an unknown choice.

    Example:
        >>> list(dog().states), list(dog().shared)
        (['p0'], ['max_dist', 'sum_sq_norm_grads'])

    Source: Ivgi et al. (2023), DoG is SGD's best friend; ``dog`` of optax.contrib 0.2.8. The
    authors advise a weight average, as :func:`closedform.transforms.weight_average`.
    """
    where = "dog"
    choice(first, "first", where, FIRST_STEPS)
    values = hyperparameters(
        where, lr=lr, first_value=first_value, weight_decay=weight_decay, eps=eps
    )
    gradient = with_penalty(ascent_or_descent(maximize, where), values["weight_decay"])
    least: dict[str, sp.Expr] = {
        # ``reps_rel`` of the authors' code.
        "heuristic": hyper("first_value") * (1 + sp.sqrt(global_sum(state("p0") ** 2))),
        "distance": hyper("first_value"),
        "rate": sp.Integer(0),
    }
    distance = sp.Max(shared("max_dist"), least[first], sp.sqrt(_squared_distance()))
    total = shared("sum_sq_norm_grads") + global_sum(gradient**2)
    rate = distance / sp.sqrt(total + hyper("eps"))
    if first == "rate":
        rate = sp.Piecewise((hyper("first_value"), sp.Eq(t, 0)), (rate, True))
    return _sgd_at_rate(
        where, rate, gradient, values, {"max_dist": distance, "sum_sq_norm_grads": total}
    )


@rule_function
def dowg(
    lr: Hyper = 1.0,
    estimate: Hyper = 1e-4,
    weight_decay: Hyper = 0,
    eps: Hyper = 1e-4,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns DoWG: SGD whose rate weighs the squared gradients by the squared distances.

    .. math::
        r' &= \max\left(r, r_0, \sum (p - p_0)^2\right), \quad
        G' = G + r' \sum g^2 \\
        p' &= p - \eta \frac{r'}{\sqrt{G'} + \epsilon} g

    The sums are over all elements of all parameters; λp is added to the gradient g.

    States, of the parameter's shape: ``p0`` p₀, initially the parameter. States of the model,
    initially 0: ``estim_sq_dist`` r, ``weighted_sq_norm_grads`` G.

    Args:
        lr: The factor η >= 0 of the rate. As every hyperparameter here: a number, a Schedule, or
            None for an input of the graph.
        estimate: The first squared distance r₀ >= 0.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        eps: The term ε >= 0 of the denominator. With 0, a first gradient of 0 gives no number.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> list(dowg().shared)
        ['estim_sq_dist', 'weighted_sq_norm_grads']

    Source: Khaled et al. (2023), DoWG unleashed, algorithm 1; ``dowg`` of optax.contrib 0.2.8.
    """
    where = "dowg"
    values = hyperparameters(where, lr=lr, estimate=estimate, weight_decay=weight_decay, eps=eps)
    gradient = with_penalty(ascent_or_descent(maximize, where), values["weight_decay"])
    distance = sp.Max(shared("estim_sq_dist"), hyper("estimate"), _squared_distance())
    total = shared("weighted_sq_norm_grads") + distance * global_sum(gradient**2)
    rate = distance / (sp.sqrt(total) + hyper("eps"))
    return _sgd_at_rate(
        where, rate, gradient, values, {"estim_sq_dist": distance, "weighted_sq_norm_grads": total}
    )


def _squared_distance() -> sp.Expr:
    return global_sum((state("p0") - PARAM) ** 2)


def _sgd_at_rate(
    where: str,
    rate: sp.Expr,
    gradient: sp.Expr,
    values: dict[str, Any],
    sums: dict[str, sp.Expr],
) -> UpdateRule:
    return rule_of(
        where,
        PARAM - hyper("lr") * rate * gradient,
        {"p0": State(state("p0"), PARAM)},
        values,
        shared={name: Shared(following) for name, following in sums.items()},
    )

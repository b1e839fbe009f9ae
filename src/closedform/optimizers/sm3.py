"""SM3: the second moment of a tensor from one number for each index of each axis."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    Schedule,
    State,
    UpdateRule,
    Without,
    all_but,
    hyper,
    local,
    reduce_max,
    state,
)
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import choice, hyperparameter, hyperparameters, is_zero, two
from closedform.optimizers.formulas import ascent_or_descent, rule_of, weighted

FORMS = ("I", "II")
AXES = 8
"""The most axes that a parameter may have."""


def sm3(
    lr: Hyper = 0.1,
    betas: Sequence[Hyper] = (0.9, 1),
    eps: Hyper = 1e-30,
    *,
    form: str = "II",
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns SM3, whose states beside the first moment are as many numbers as the axes are long.

    .. math::
        \nu' &= \min_i \mu_i + g^2 \text{ (II) or } \min_i \mu_i' \text{ (I)} \\
        \mu_i' &= \max_{\ne i} \nu' \text{ (II) or } \mu_i + \max_{\ne i} g^2 \text{ (I)} \\
        m' &= \beta_1 m + (1 - \beta_1) \frac{g}{\sqrt{\nu' + \epsilon}}, \quad
        p' = p - \eta m'

    The sets that cover a tensor are its slices: those of a matrix are its rows (i = 0) and its
    columns (i = 1). The maximum is over all axes but i, and μᵢ is broadcast along them. A vector
    and a scalar have one slice for each element, which is Adagrad. With a β₂ below 1 the squares
    decay: β₂ min μ + (1 - β₂) g² in II, β₂ μ + (1 - β₂) max g² in I.

    States, initially 0: ``accumulator_0`` μ₀, ``accumulator_1`` μ₁ … for each axis, the parameter's
    shape with size 1 along the other axes. With a β₁ ``exp_avg`` m, the parameter's shape.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ of the first moment, in [0, 1), the number 0 for none, and β₂ of
            the squares, in [0, 1]; the number 1 sums them up.
        eps: The term ε >= 0 below the root. The step of an element whose cover saw gradients of 0
            alone is 0 with any ε, 0 included.
        form: ``"II"``, the tighter bound, or ``"I"``.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown form.

    Example:
        >>> rule = sm3()
        >>> {name: rule.state_shape(name, (3, 4)) for name in rule.for_shape((3, 4)).states}
        {'accumulator_0': (3, 1), 'accumulator_1': (1, 4), 'exp_avg': (3, 4)}

    Source: Anil, Gupta, Koren and Singer (2019), algorithms SM3-I and SM3-II; the moment and the
    slices are those of their section 4. ``sm3`` of optax 0.2 (II; ε = 1e-8, β₂) and ``SM3`` of
    pytorch_optimizer 4.1 (II; no first moment by default, its ``beta`` 0 is β₂ = 1 here, another
    keeps the largest μ so far).
    """
    first, second = two(betas, "betas", "sm3", "(0.9, 1)")
    values = hyperparameters(
        "sm3",
        lr=lr,
        beta1=hyperparameter(first, "betas[0]", "sm3", below=1),
        beta2=hyperparameter(second, "betas[1]", "sm3", at_most=1),
        eps=eps,
    )
    is_second = choice(form, "form", "sm3", FORMS) == "II"
    gradient = ascent_or_descent(maximize, "sm3")
    names = [f"accumulator_{axis}" for axis in range(AXES)]
    before = [state(name) for name in names]
    definitions = {"square": gradient**2}
    if is_second:
        definitions["cover"] = _least(before)
        definitions["nu"] = _accumulated(local("cover"), local("square"), values["beta2"])
        after = [_largest("nu", axis) for axis in range(AXES)]
    else:
        grown = [_largest("square", axis) for axis in range(AXES)]
        for name, old, new in zip(names, before, grown, strict=True):
            definitions[name] = _accumulated(old, new, values["beta2"])
        after = [local(name) for name in names]
        definitions["nu"] = _least(after)
    change = _scaled(gradient, local("nu"), values["eps"])
    states = {
        name: State(following, 0, Without(all_but(axis), keepdims=True), exists=_has(axis))
        for axis, (name, following) in enumerate(zip(names, after, strict=True))
    }
    if not is_zero(values["beta1"]):
        change = weighted(state("exp_avg"), change, hyper("beta1"))
        states["exp_avg"] = State(change)
    param = PARAM - hyper("lr") * change
    return rule_of(
        "sm3", param, states, values, definitions=definitions, requires=sp.Le(RANK, AXES)
    )


def _has(axis: int) -> sp.Basic:
    """Whether a parameter has an axis; a scalar counts as having one."""
    return sp.Gt(RANK, axis) if axis else sp.true


def _largest(name: str, axis: int) -> sp.Expr:
    return reduce_max(local(name), all_but(axis), keepdims=True)


def _accumulated(old: sp.Expr, square: sp.Expr, beta2: Hyper) -> sp.Expr:
    return old + square if beta2 == 1 else weighted(old, square, hyper("beta2"))


def _least(accumulators: Sequence[sp.Expr]) -> sp.Expr:
    """The least of the accumulators that a parameter of each rank has."""
    branches = [
        (sp.Min(*accumulators[:rank]), sp.Le(RANK, rank)) for rank in range(1, len(accumulators))
    ]
    return sp.Piecewise(*branches, (sp.Min(*accumulators), True))


def _scaled(gradient: sp.Expr, moment: sp.Expr, eps: Hyper) -> sp.Expr:
    """The gradient over the root; 0 / 0 is 0 where no eps, or none that is known, prevents it."""
    if eps is not None and not is_zero(eps) and not isinstance(eps, Schedule):
        return gradient / sp.sqrt(moment + hyper("eps"))
    below = moment if is_zero(eps) else moment + hyper("eps")
    return sp.Piecewise((0, sp.Eq(below, 0)), (gradient / sp.sqrt(below), True))

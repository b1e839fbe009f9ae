"""Steps divided by the root of summed or averaged squares: Adagrad, Adadelta, RMSprop, SM3."""

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
    t,
)
from closedform.language.aliases import Hyper, Number
from closedform.language.arguments import (
    choice,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    number,
    several,
)
from closedform.language.rule_functions import rule_function
from closedform.language.settled import construct
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    rule_of,
    square,
    weighted_mean,
    with_penalty,
)


@rule_function
def adagrad(
    lr: Hyper = 1e-2,
    lr_decay: Hyper = 0,
    weight_decay: Hyper = 0,
    initial_accumulator_value: Number = 0,
    eps: Hyper = 1e-10,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adagrad: the gradient over the root of the sum of its squares.

    .. math::
        g' &= \pm g + \lambda p \\
        S' &= S + g'^2 \\
        p' &= p - \frac{\eta}{1 + \gamma t} \frac{g'}{\sqrt{S'} + \epsilon}

    State: ``sum`` S, shape of the parameter, initially ``initial_accumulator_value``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here except the initial value: a
            number, a Schedule, or None for an input of the graph.
        lr_decay: The factor γ >= 0 by which the learning rate decays with the step; the number 0
            leaves the division out.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        initial_accumulator_value: The number >= 0 that the sum starts from.
        eps: The term ε >= 0 added to the root. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or an initial value that is not a number.

    Example:
        >>> rule = adagrad(lr=0.1, lr_decay=0.5, initial_accumulator_value=1)
        >>> rule.param
        -grad*lr/((eps + sqrt(grad**2 + state.sum))*(lr_decay*t + 1)) + param
        >>> rule.states["sum"].initial
        1

    Source: Duchi, Hazan and Singer (2011). ``Adagrad`` of torch 2.13 (eps 1e-10) and of
    cerebras.pytorch 2.10 (eps 1e-6, though its docstring says 1e-10): one formula.
    """
    values = hyperparameters(
        "adagrad", lr=lr, lr_decay=lr_decay, weight_decay=weight_decay, eps=eps
    )
    initial = number(initial_accumulator_value, "initial_accumulator_value", "adagrad")
    gradient = with_penalty(ascent_or_descent(maximize, "adagrad"), values["weight_decay"])
    total = state("sum") + gradient**2
    rate = hyper("lr")
    if not is_zero(values["lr_decay"]):
        rate = rate / (1 + hyper("lr_decay") * t)
    param = PARAM - rate * gradient / (sp.sqrt(total) + hyper("eps"))
    return rule_of("adagrad", param, {"sum": State(total, initial)}, values)


@rule_function
def adadelta(
    lr: Hyper = 1.0,
    rho: Hyper = 0.9,
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adadelta: a step sized by the root of the running mean square of the steps.

    .. math::
        g' &= \pm g + \lambda p \\
        q' &= \rho q + (1 - \rho) g'^2 \\
        d &= \frac{\sqrt{a + \epsilon}}{\sqrt{q' + \epsilon}}\, g' \\
        a' &= \rho a + (1 - \rho) d^2 \\
        p' &= p - \eta\, d

    States, each of the parameter's shape and initially 0: ``square_avg`` q, ``acc_delta`` a.

    Args:
        lr: The factor η >= 0, 1 in the paper. As every hyperparameter here: a number, a Schedule,
            or None for an input of the graph.
        rho: The decay rate ρ of both means, a number in [0, 1]; with 1 they stay at 0.
        eps: The term ε >= 0 under both roots. With 0 the parameter never moves, and one whose
            gradients were all 0 is not a number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range.

    Example:
        >>> adadelta().states["square_avg"].next
        grad**2*(1 - rho) + rho*state.square_avg

    Source: Zeiler (2012), algorithm 1. ``Adadelta`` of torch 2.13 and of cerebras.pytorch 2.10: one
    formula and one set of defaults.
    """
    values = hyperparameters(
        "adadelta",
        lr=lr,
        rho=hyperparameter(rho, "rho", "adadelta", at_most=1),
        eps=eps,
        weight_decay=weight_decay,
    )
    eps_symbol, decay = hyper("eps"), hyper("rho")
    gradient = with_penalty(ascent_or_descent(maximize, "adadelta"), values["weight_decay"])
    mean_square = weighted_mean(state("square_avg"), gradient**2, decay)
    # Two roots and not the root of the quotient: the order in which torch rounds.
    ratio = sp.sqrt(state("acc_delta") + eps_symbol) / sp.sqrt(mean_square + eps_symbol)
    change = ratio * gradient
    states = {
        "square_avg": State(mean_square),
        "acc_delta": State(weighted_mean(state("acc_delta"), square(change), decay)),
    }
    return rule_of("adadelta", PARAM - hyper("lr") * change, states, values)


@rule_function
def rmsprop(
    lr: Hyper = 1e-2,
    alpha: Hyper = 0.99,
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0,
    momentum: Hyper = 0,
    centered: bool = False,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns RMSprop: the gradient over the root of its running mean square.

    .. math::
        g' &= \pm g + \lambda p \\
        q' &= \alpha q + (1 - \alpha) g'^2 \\
        a' &= a + (1 - \alpha)(g' - a) \\
        u &= \frac{g'}{\sqrt{q'} + \epsilon}
        \text{ or, centered, } \frac{g'}{\sqrt{q' - a'^2} + \epsilon} \\
        p' &= p - \eta\, u \text{ or, with momentum, }
        p - \eta\, b', \quad b' = \mu b + u

    Centered, the difference under the root is computed as written, as both frameworks do: where the
    gradient hardly changes, rounding can make it negative, and the parameter is then not a number.

    States, each of the parameter's shape and initially 0: ``square_avg`` q, with a momentum
    ``momentum_buffer`` b, centered ``grad_avg`` a.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        alpha: The decay rate α of the means, a number in [0, 1].
        eps: The term ε >= 0 added to the root. With 0, a parameter whose gradients were all 0 is
            not a number after the step.
        weight_decay: The factor λ >= 0 of the L2 penalty; the number 0 leaves the term out.
        momentum: The factor μ >= 0; with the number 0 there is neither momentum nor state.
        centered: Whether to subtract the square of the mean gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> rule = rmsprop(lr=0.1)
        >>> rule.param
        -grad*lr/(eps + sqrt(alpha*state.square_avg + grad**2*(1 - alpha))) + param

    Source: Tieleman and Hinton (2012), lecture 6.5; Graves (2013) for the centered form, with ε
    inside the root. ``RMSprop`` of torch 2.13 and of cerebras.pytorch 2.10, which has no
    ``maximize``: one formula and one set of defaults.
    """
    values = hyperparameters(
        "rmsprop",
        lr=lr,
        alpha=hyperparameter(alpha, "alpha", "rmsprop", at_most=1),
        eps=eps,
        weight_decay=weight_decay,
        momentum=momentum,
    )
    decay = hyper("alpha")
    gradient = with_penalty(ascent_or_descent(maximize, "rmsprop"), values["weight_decay"])
    spread = square = weighted_mean(state("square_avg"), gradient**2, decay)
    states = {"square_avg": State(square)}
    if flag(centered, "centered", "rmsprop"):
        mean = blend(state("grad_avg"), gradient, decay)
        # E g² - (E g)² may be below 0 by rounding, as in torch, whose ``addcmul(value=-1)`` is the
        # same difference.
        spread = square - mean**2
        states["grad_avg"] = State(mean)
    direction = gradient / (sp.sqrt(spread) + hyper("eps"))
    if not is_zero(values["momentum"]):
        direction = hyper("momentum") * state("momentum_buffer") + direction
        states["momentum_buffer"] = State(direction)
    return rule_of("rmsprop", PARAM - hyper("lr") * direction, states, values)


FORMS = ("I", "II")
AXES = 8
"""The most axes that a parameter may have."""


@rule_function
def sm3(
    lr: Hyper = 0.1,
    betas: Sequence[Hyper] = (0.9, 1),
    eps: Hyper = 1e-30,
    *,
    form: str = "II",
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns SM3, with as many numbers in its states as the axes are long.

    .. math::
        \nu' &= \min_i \mu_i + g^2 \text{ (II) or } \min_i \mu_i' \text{ (I)} \\
        \mu_i' &= \max_{\ne i} \nu' \text{ (II) or } \mu_i + \max_{\ne i} g^2 \text{ (I)} \\
        m' &= \beta_1 m + (1 - \beta_1) \frac{g}{\sqrt{\nu' + \epsilon}}, \quad
        p' = p - \eta m'

    The sets that cover a tensor are its slices: for a matrix its rows (i = 0) and its
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
    slices follow their section 4. ``sm3`` of optax 0.2 (II; ε = 1e-8, β₂) and ``SM3`` of
    pytorch_optimizer 4.1 (II; no first moment by default, its ``beta`` 0 is β₂ = 1 here, another
    keeps the largest μ so far).
    """
    first, second = several(betas, "betas", "sm3", (0.9, 1))
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
        definitions["nu"] = _accumulate_square(local("cover"), local("square"), values["beta2"])
        after = [_largest("nu", axis) for axis in range(AXES)]
    else:
        accumulators = [_largest("square", axis) for axis in range(AXES)]
        for name, old, new in zip(names, before, accumulators, strict=True):
            definitions[name] = _accumulate_square(old, new, values["beta2"])
        after = [local(name) for name in names]
        definitions["nu"] = _least(after)
    change = _scale_gradient(gradient, local("nu"), values["eps"])
    states = {
        name: State(following, 0, Without(all_but(axis), keepdims=True), exists=_has(axis))
        for axis, (name, following) in enumerate(zip(names, after, strict=True))
    }
    if not is_zero(values["beta1"]):
        change = weighted_mean(state("exp_avg"), change, hyper("beta1"))
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


def _accumulate_square(old: sp.Expr, square: sp.Expr, beta2: Hyper) -> sp.Expr:
    return old + square if beta2 == 1 else weighted_mean(old, square, hyper("beta2"))


def _least(accumulators: Sequence[sp.Expr]) -> sp.Expr:
    """The least of the accumulators that a parameter of each rank has."""
    # A branch for each rank; for_shape takes one: no graph has accumulators of missing axes.
    least = [construct(sp.Min, *accumulators[: i + 1]) for i in range(len(accumulators))]
    branches = [(minimum, sp.Le(RANK, rank)) for rank, minimum in enumerate(least[:-1], start=1)]
    return sp.Piecewise(*branches, (least[-1], True))


def _scale_gradient(gradient: sp.Expr, moment: sp.Expr, eps: Hyper) -> sp.Expr:
    """The gradient over the root; 0 / 0 is 0 where no eps, or none that is known, prevents it."""
    if eps is not None and not is_zero(eps) and not isinstance(eps, Schedule):
        return gradient / sp.sqrt(moment + hyper("eps"))
    below = moment if is_zero(eps) else moment + hyper("eps")
    # 0 / 0 where all gradients were 0 so far.
    return sp.Piecewise((0, sp.Eq(below, 0)), (gradient / sp.sqrt(below), True))

"""The second moment of a matrix from means of its rows and columns: Adafactor, CAME."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import (
    EPSILON,
    PARAM,
    RANK,
    State,
    UpdateRule,
    hyper,
    local,
    matmul,
    reduce_mean,
    state,
    t,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    choice,
    decay_rates,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    several,
)
from closedform.language.rule_functions import rule_function
from closedform.language.settled import construct
from closedform.optimizers.formulas import (
    IS_FACTORED,
    Factors,
    ascent_or_descent,
    clipped_update,
    decoupled_decay,
    rms,
    rule_of,
    weighted_mean,
)

FLOORS = ("added", "clamped")
DECAYS = ("scaled", "plain")

_STATES = {
    "added": (Factors("exp_avg_sq_row", "exp_avg_sq_col"), "exp_avg_sq"),
    "clamped": (Factors("row_var", "col_var", keepdims=True), "variance"),
}
"""The factors of a matrix and the whole second moment of another parameter, as each form names."""


@rule_function
def adafactor(
    lr: Hyper = 1e-2,
    eps: Sequence[Hyper] = (1e-30, 1e-3),
    clip_threshold: Hyper = 1,
    decay_rate: Hyper = 0.8,
    beta1: Hyper = 0,
    weight_decay: Hyper = 0,
    *,
    scale_parameter: bool = True,
    relative_step: bool = True,
    maximize: bool = False,
    floor: str = "added",
    decay: str = "scaled",
) -> UpdateRule:
    r"""Returns Adafactor, with the second moment of a matrix from means of rows and columns.

    .. math::
        b &= 1 - (t + 1)^{-\gamma}, \quad s = g^2 + \epsilon_1 \\
        R' &= b R + (1 - b) \operatorname{mean}_{-1}(s), \quad
        C' = b C + (1 - b) \operatorname{mean}_{-2}(s) \\
        u &= \frac{g}{\sqrt{R' / \operatorname{mean}_{-1}(R')} \sqrt{C'}}
        \text{ or, with fewer than two axes, }
        \frac{g}{\sqrt{V'}}, \quad V' = b V + (1 - b) s \\
        \hat{u} &= \frac{u}{\max(1, \operatorname{rms}(u) / d)}, \quad
        \alpha = \max(\epsilon_2, \operatorname{rms}(p)) \, \rho, \quad
        \rho = \min\left(\eta, \frac{1}{\sqrt{t + 1}}\right) \\
        p' &= p - \alpha \hat{u} - \alpha \lambda p

    Axes before the last two are batch axes: each of their matrices has separate factors, the
    rms is over the whole tensor. With a β₁, m' = β₁ m + (1 - β₁) α û takes the place of α û.

    With ``floor="clamped"`` (torch) s = g², u = g / √max(V', ε₁²) in both cases, for a matrix from
    V' = (R' / max(mean(R'), ε₁)) C', and R, C keep their axis, with size 1.

    A mean of squares has to fit its dtype. Where the squares of a row or column sum up to more than
    float32 holds (n gradients of 1.8e19 / √n), R or C is infinite, R / mean(R) is inf / inf, and
    the tensor is not a number after the step, as in the frameworks below.

    States, initially 0. A parameter with two axes or more: ``exp_avg_sq_row`` R, its shape without
    the last axis, ``exp_avg_sq_col`` C, without the last but one; another: ``exp_avg_sq`` V, its
    shape. Clamped they are ``row_var``, ``col_var``, ``variance``. With a β₁ ``exp_avg`` m.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        eps: ε₁ >= 0, the floor of the second moment, and ε₂ >= 0, the least scale of a parameter.
            None as ε₁ is the epsilon of the parameter's dtype, 2**-23 for float32. With (0, 0) a
            tensor with an element whose gradients were all 0 is not a number after the step.
        clip_threshold: The root mean square d > 0 of a step that is not scaled down.
        decay_rate: The exponent γ >= 0.
        beta1: The decay rate β₁ of the first moment, a number in [0, 1); with the number 0 there is
            none.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        scale_parameter: False replaces α by ρ.
        relative_step: False replaces ρ by η.
        maximize: Whether to ascend: the gradient enters with a minus.
        floor: Where ε₁ enters: ``"added"`` to the square (the paper) or ``"clamped"`` (torch).
        decay: What the weight decay is multiplied by: ``"scaled"`` for α, ``"plain"`` for η.

    Raises:
        DefinitionError: A number out of its range, not two eps, an unknown choice, or a flag that
            is not a bool.

    Example:
        >>> rule = adafactor(lr=1e-3, relative_step=False)
        >>> list(rule.for_shape((3, 4)).states), list(rule.for_shape((4,)).states)
        (['exp_avg_sq_row', 'exp_avg_sq_col'], ['exp_avg_sq'])

    Source: Shazeer and Stern (2018), algorithms 4 and 5, with sums there in place of means, the
    same ratio. ``Adafactor`` of transformers 5.23, of cerebras.pytorch 2.10 (without the relative
    step) and of torch 2.13 (clamped, η λ p as decay; it divides the product R' C', which overflows
    from gradients of 4e9 on, and then takes no step).
    """
    first, second = several(eps, "eps", "adafactor", (1e-30, 1e-3))
    values = {
        "lr": hyperparameter(lr, "lr", "adafactor"),
        "eps1": sp.Integer(0) if first is None else hyperparameter(first, "eps[0]", "adafactor"),
        "eps2": hyperparameter(second, "eps[1]", "adafactor"),
        "decay_rate": hyperparameter(decay_rate, "decay_rate", "adafactor"),
        "beta1": hyperparameter(beta1, "beta1", "adafactor", below=1),
        "weight_decay": hyperparameter(weight_decay, "weight_decay", "adafactor"),
    }
    choice(floor, "floor", "adafactor", FLOORS)
    choice(decay, "decay", "adafactor", DECAYS)
    gradient = ascent_or_descent(maximize, "adafactor")
    eps1 = EPSILON if first is None else hyper("eps1")
    states, definitions = _second_moment(gradient, eps1, floor)
    values["clip_threshold"], definitions["clipped"] = clipped_update(
        "u", clip_threshold, "adafactor"
    )
    rate = hyper("lr")
    if flag(relative_step, "relative_step", "adafactor"):
        rate = construct(sp.Min, rate, 1 / sp.sqrt(t + 1))
    if flag(scale_parameter, "scale_parameter", "adafactor"):
        definitions["rate"] = construct(sp.Max, hyper("eps2"), rms(PARAM)) * rate
        rate = local("rate")
    change = rate * local("clipped")
    if not is_zero(values["beta1"]):
        # A moment of changes: transformers averages ``update`` after its product with lr.
        change = weighted_mean(state("exp_avg"), change, hyper("beta1"))
        states["exp_avg"] = State(change)
    param = PARAM - change
    factor = rate if decay == "scaled" else hyper("lr")
    param = param - decoupled_decay(values["weight_decay"], rate=factor)
    return rule_of("adafactor", param, states, values, definitions=definitions)


def _second_moment(
    gradient: sp.Expr, eps1: sp.Expr, floor: str
) -> tuple[dict[str, State], dict[str, sp.Expr]]:
    """The states, and definitions of their next values and of the step ``u``."""
    is_added = floor == "added"
    factors, whole = _STATES[floor]
    # At t = 0 it is 0: the first mean is the first square, without a bias correction.
    decay = 1 - (t + 1) ** -hyper("decay_rate")
    square = gradient**2 + eps1 if is_added else gradient**2
    definitions = factors.definitions(square, decay)
    definitions[whole] = weighted_mean(state(whole), square, decay)
    if is_added:
        below = sp.Piecewise((factors.root(), IS_FACTORED), (sp.sqrt(local(whole)), True))
    else:
        row, column = local(factors.row), local(factors.column)
        # The share of a row is at most their number, where a product of two factors would overflow.
        share = row / construct(sp.Max, reduce_mean(row, (-2,), keepdims=True), eps1)
        product = matmul(share, column)
        moment = sp.Piecewise((product, IS_FACTORED), (local(whole), True))
        below = sp.sqrt(construct(sp.Max, moment, eps1**2))
    definitions["u"] = gradient / below
    states = factors.states()
    states[whole] = State(local(whole), exists=sp.Lt(RANK, 2))
    return states, definitions


_MOMENT = Factors("exp_avg_sq_row", "exp_avg_sq_col")
_DOUBT = Factors("exp_avg_res_row", "exp_avg_res_col")


@rule_function
def came(
    lr: Hyper = 2e-4,
    eps: Sequence[Hyper] = (1e-30, 1e-16),
    clip_threshold: Hyper = 1,
    betas: Sequence[Hyper] = (0.9, 0.999, 0.9999),
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns CAME: Adafactor whose step is weighed by how far the last steps agree.

    .. math::
        s &= g^2 + \epsilon_1, \quad
        R' = \beta_2 R + (1 - \beta_2) \operatorname{mean}_{-1}(s), \quad
        C' = \beta_2 C + (1 - \beta_2) \operatorname{mean}_{-2}(s) \\
        u &= \frac{g}{\sqrt{R' C' / \operatorname{mean}(R')}}, \quad
        \hat{u} = \frac{u}{\max(1, \operatorname{rms}(u) / d)}, \quad
        m' = \beta_1 m + (1 - \beta_1) \hat{u} \\
        q &= (\hat{u} - m')^2 + \epsilon_2, \quad
        S' = \beta_3 S + (1 - \beta_3) \operatorname{mean}_{-1}(q), \quad
        D' = \beta_3 D + (1 - \beta_3) \operatorname{mean}_{-2}(q) \\
        p' &= p - \eta \frac{m'}{\sqrt{S' D' / \operatorname{mean}(S')}} - \eta \lambda p

    A parameter with fewer than two axes has V' = β₂ V + (1 - β₂) s, u = g / √V', and m' as its
    step.

    A mean of squares has to fit its dtype. Where the squares of a row or column sum up to more than
    float32 holds (n gradients of 1.8e19 / √n), R or C is infinite, R / mean(R) is inf / inf, and
    the tensor is not a number after the step, as in the published code.

    States, initially 0: ``exp_avg`` m, the parameter's shape. With two axes or more its shape
    without the last axis: ``exp_avg_sq_row`` R, ``exp_avg_res_row`` S, without the last but one:
    ``exp_avg_sq_col`` C, ``exp_avg_res_col`` D; else ``exp_avg_sq`` V, its shape.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        eps: The terms ε₁ and ε₂ >= 0 of the two squares.
        clip_threshold: The root mean square d > 0 of a step that is not scaled down.
        betas: The decay rates β₁, β₂ and β₃, numbers in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two eps or three betas.

    Example:
        >>> list(came().for_shape((3, 4)).states)[:3], list(came().for_shape((4,)).states)
        (['exp_avg', 'exp_avg_sq_row', 'exp_avg_sq_col'], ['exp_avg', 'exp_avg_sq'])

    Source: Luo et al. (2023), algorithm 2, and its published code, which has no default for η; the
    batch axes and the fall-back for fewer axes follow the code.
    """
    first, second = several(eps, "eps", "came", (1e-30, 1e-16))
    values = hyperparameters(
        "came",
        lr=lr,
        eps1=hyperparameter(first, "eps[0]", "came"),
        eps2=hyperparameter(second, "eps[1]", "came"),
        **decay_rates(betas, "came", (0.9, 0.999, 0.9999)),
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "came")
    square = gradient**2 + hyper("eps1")
    change, moment = local("clipped"), local("exp_avg")
    definitions = _MOMENT.definitions(square, hyper("beta2"))
    definitions["exp_avg_sq"] = weighted_mean(state("exp_avg_sq"), square, hyper("beta2"))
    below = sp.Piecewise((_MOMENT.root(), IS_FACTORED), (sp.sqrt(local("exp_avg_sq")), True))
    definitions["u"] = gradient / below
    values["clip_threshold"], definitions["clipped"] = clipped_update("u", clip_threshold, "came")
    definitions["exp_avg"] = weighted_mean(state("exp_avg"), change, hyper("beta1"))
    definitions["apart"] = change - moment
    definitions |= _DOUBT.definitions(local("apart") ** 2 + hyper("eps2"), hyper("beta3"))
    step = sp.Piecewise((moment / _DOUBT.root(), IS_FACTORED), (moment, True))
    param = PARAM - hyper("lr") * step
    param = param - decoupled_decay(values["weight_decay"])
    states = {
        "exp_avg": State(moment),
        **_MOMENT.states(),
        **_DOUBT.states(),
        "exp_avg_sq": State(local("exp_avg_sq"), exists=sp.Lt(RANK, 2)),
    }
    return rule_of("came", param, states, values, definitions=definitions)

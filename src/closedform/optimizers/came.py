"""CAME: Adafactor whose step is weighed by how far the last steps agree."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import PARAM, RANK, State, UpdateRule, hyper, local, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import (
    hyperparameter,
    hyperparameters,
    three_betas,
    two,
)
from closedform.optimizers.formulas import ascent_or_descent, decoupled, rule_of, weighted
from closedform.optimizers.tensor_formulas import IS_FACTORED, Factors, clipped

_MOMENT = Factors("exp_avg_sq_row", "exp_avg_sq_col")
_DOUBT = Factors("exp_avg_res_row", "exp_avg_res_col")


def came(
    lr: Hyper = 2e-4,
    eps: Sequence[Hyper] = (1e-30, 1e-16),
    clip_threshold: Hyper = 1,
    betas: Sequence[Hyper] = (0.9, 0.999, 0.9999),
    weight_decay: Hyper = 0,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns CAME.

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
    batch axes and the fall-back for fewer axes are those of the code.
    """
    first, second = two(eps, "eps", "came", "(1e-30, 1e-16)")
    values = hyperparameters(
        "came",
        lr=lr,
        eps1=hyperparameter(first, "eps[0]", "came"),
        eps2=hyperparameter(second, "eps[1]", "came"),
        **three_betas(betas, "came", "(0.9, 0.999, 0.9999)"),
        weight_decay=weight_decay,
    )
    gradient = ascent_or_descent(maximize, "came")
    square = gradient**2 + hyper("eps1")
    change, moment = local("clipped"), local("exp_avg")
    definitions = _MOMENT.definitions(square, hyper("beta2"))
    definitions["exp_avg_sq"] = weighted(state("exp_avg_sq"), square, hyper("beta2"))
    below = sp.Piecewise((_MOMENT.root(), IS_FACTORED), (sp.sqrt(local("exp_avg_sq")), True))
    definitions["u"] = gradient / below
    values["clip_threshold"], definitions["clipped"] = clipped("u", clip_threshold, "came")
    definitions["exp_avg"] = weighted(state("exp_avg"), change, hyper("beta1"))
    definitions["apart"] = change - moment
    definitions |= _DOUBT.definitions(local("apart") ** 2 + hyper("eps2"), hyper("beta3"))
    step = sp.Piecewise((moment / _DOUBT.root(), IS_FACTORED), (moment, True))
    param = PARAM - hyper("lr") * step
    param = param - decoupled(values["weight_decay"])
    states = {
        "exp_avg": State(moment),
        **_MOMENT.states(),
        **_DOUBT.states(),
        "exp_avg_sq": State(local("exp_avg_sq"), exists=sp.Lt(RANK, 2)),
    }
    return rule_of("came", param, states, values, definitions=definitions)

"""Adam that resets its momentum and clips spikes of the gradient: SPAM."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import PARAM, State, UpdateRule, floor_mod, hyper, local, state, t
from closedform.language.aliases import Hyper
from closedform.language.arguments import hyperparameters, is_zero, whole
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import ascent_or_descent, blend, rule_of, sign, weighted_mean


@rule_function
def spam(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-6,
    weight_decay: Hyper = 0,
    threshold: Hyper = 5000,
    reset: int = 500,
    warmup: int = 50,
    wait: int = 20,
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns SPAM: Adam that clips spikes of the gradient and forgets its moments regularly.

    .. math::
        k &= (t + 1) \bmod R, \quad (m, v) \text{ are } 0 \text{ where } k = 0 \\
        \hat g &= \begin{cases} \operatorname{sign}(g) \sqrt{\theta v}
        & g^2 > \theta v \text{ and } k \ge W_g \\ g & \text{otherwise} \end{cases} \\
        p'' &= p - \eta s \frac{\sqrt{c_2}}{c_1} \frac{m'}{\sqrt{v'} + \epsilon}, \quad
        p' = p'' - \eta \lambda p''

    with m', v' and the corrections of :func:`adam`, which go on. The factor s is 1 before the first
    reset and from k = W on; in the W steps after a reset it is :math:`1 - 0.99 (1 + \cos \pi \frac
    {k + 1}{W + 1}) / 2`.

    States, each of the parameter's shape and initially 0: ``exp_avg`` m, ``exp_avg_sq`` v.

    The sparse form, which updates a random part of each matrix, is not included: a mask drawn at
    random is not an expression. It is the form with density 1.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; it acts on the parameter after the step. The number 0
            leaves the term out.
        threshold: The ratio θ >= 0 above which a squared gradient is clipped; the number 0 leaves
            the clipping out.
        reset: The number of steps R, at least 1, from one reset to the next.
        warmup: The number of steps W >= 0 after a reset with smaller steps.
        wait: The number of steps W_g >= 0 after a reset without clipping.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or not two betas.

    Example:
        >>> list(spam().states), list(spam().definitions)
        (['exp_avg', 'exp_avg_sq'], ['first', 'second', 'square', 'stepped'])

    Source: Huang et al., SPAM: spike-aware Adam with momentum reset for stable LLM training (2025),
    algorithm 1; ``SPAM`` of pytorch_optimizer 4.1 with ``density=1``, whose warmup is one step
    ahead.
    """
    where = "spam"
    values = hyperparameters(
        where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, threshold=threshold
    )
    period = sp.Integer(whole(reset, "reset", where))
    rise = sp.Integer(whole(warmup, "warmup", where, at_least=0))
    quiet = sp.Integer(whole(wait, "wait", where, at_least=0))
    if quiet >= period and not is_zero(values["threshold"]):
        raise DefinitionError(
            f"wait must be below reset, got {wait} and {reset}: no step would clip", where=where
        )
    place = floor_mod(t + 1, period)
    gradient = ascent_or_descent(maximize, where)
    definitions = {
        "first": _forgotten("exp_avg", place),
        "second": _forgotten("exp_avg_sq", place),
    }
    clipped_gradient, clipped_square = gradient, gradient**2
    if not is_zero(values["threshold"]):
        limit = hyper("threshold") * local("second")
        clips = place >= quiet
        root = sign(gradient) * sp.sqrt(limit)
        clipped_gradient = sp.Piecewise(
            (root, sp.And(gradient**2 > limit, clips)), (gradient, True)
        )
        clipped_square = sp.Piecewise((sp.Min(gradient**2, limit), clips), (gradient**2, True))
    mean = blend(local("first"), clipped_gradient, hyper("beta1"))
    definitions["square"] = weighted_mean(local("second"), clipped_square, hyper("beta2"))
    correction = sp.sqrt(1 - hyper("beta2") ** (t + 1)) / (1 - hyper("beta1") ** (t + 1))
    rate = hyper("lr") * correction * _factor(place, period, rise)
    definitions["stepped"] = PARAM - rate * mean / (sp.sqrt(local("square")) + hyper("eps"))
    param = local("stepped")
    if not is_zero(values["weight_decay"]):
        param = param - hyper("lr") * hyper("weight_decay") * param
    states = {"exp_avg": State(mean), "exp_avg_sq": State(local("square"))}
    return rule_of(where, param, states, values, definitions=definitions)


def _forgotten(name: str, place: sp.Expr) -> sp.Expr:
    """A moment, 0 at a reset."""
    return sp.Piecewise((0, sp.Eq(place, 0)), (state(name), True))


def _factor(place: sp.Expr, period: sp.Expr, warmup: sp.Expr) -> sp.Expr:
    """The factor of the rate in the warmup after a reset."""
    if warmup == 0:
        return sp.Integer(1)
    fall = (1 + sp.cos(sp.pi * (place + 1) / (warmup + 1))) / 2
    rise = 1 - sp.Rational(99, 100) * fall
    in_warmup = sp.And(t + 1 >= period, place < warmup)
    return sp.Piecewise((rise, in_warmup), (1, True))

"""Lion: the sign of an interpolated momentum."""

from __future__ import annotations

from collections.abc import Sequence

from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameters, two_betas
from closedform.optimizers.formulas import decoupled, rule_of, sign, weighted


def lion(
    lr: Hyper = 1e-4, betas: Sequence[Hyper] = (0.9, 0.99), weight_decay: Hyper = 0
) -> UpdateRule:
    r"""Returns Lion, with decoupled weight decay.

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
    values = hyperparameters(
        "lion", lr=lr, **two_betas(betas, "lion", "(0.9, 0.99)"), weight_decay=weight_decay
    )
    direction = sign(weighted(state("exp_avg"), GRAD, hyper("beta1")))
    param = PARAM - hyper("lr") * direction - decoupled(values["weight_decay"])
    mean = weighted(state("exp_avg"), GRAD, hyper("beta2"))
    return rule_of("lion", param, {"exp_avg": State(mean)}, values)

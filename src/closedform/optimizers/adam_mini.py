"""Adam with one second moment for each block of a parameter: Adam-mini."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    PARAM,
    SIZE,
    Sizes,
    State,
    UpdateRule,
    Without,
    all_but,
    broadcast_to,
    hyper,
    like_param,
    local,
    reduce_mean,
    reshape,
    state,
    t,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import hyperparameters, whole
from closedform.language.rule_functions import rule_function
from closedform.language.shapes import ShapeRule
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled_decay,
    rule_of,
    weighted_mean,
)

BLOCKS = ("tensor", "row", "element")


@rule_function
def adam_mini(
    lr: Hyper = 1e-3,
    betas: Sequence[Hyper] = (0.9, 0.999),
    eps: Hyper = 1e-8,
    weight_decay: Hyper = 0.1,
    block: str | int = "tensor",
    *,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns Adam-mini: AdamW with one second moment for each block of a parameter.

    .. math::
        m' &= m + (1 - \beta_1)(g - m), \quad
        v' = \beta_2 v + (1 - \beta_2) \operatorname{mean}_{block}(g^2) \\
        p' &= p - \eta \frac{m' / c_1}{\sqrt{v' / c_2} + \epsilon} - \eta \lambda p,
        \quad c_i = 1 - \beta_i^{t + 1}

    States: ``m``, shape of the parameter, and ``v_mean`` v, one number a block, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the two moments, numbers in [0, 1).
        eps: The term ε >= 0 of the denominator.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        block: The block: ``"tensor"``, ``"row"`` for the elements at one index of the first axis
            (a neuron), ``"element"`` for Adam (embeddings and the last layer), or the number of
            blocks of consecutive elements, such as the heads of a query or key.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, not two betas, or an unknown block.

    Example:
        >>> rule = adam_mini(block=2)
        >>> list(rule.states), rule.for_shape((4, 3)).states["v_mean"].shape
        (['m', 'v_mean'], Sizes(sizes=(2, 1)))

    Source: Zhang et al., Adam-mini: use fewer learning rates to gain more (2024), algorithms 1 and
    3; ``AdamMini`` of pytorch_optimizer 4.1, which chooses the block by the name of a parameter.
    """
    where = "adam_mini"
    values = hyperparameters(where, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
    gradient = ascent_or_descent(maximize, where)
    square, shape = _mean_square(gradient, block, where)
    mean = blend(state("m"), gradient, hyper("beta1"))
    second = weighted_mean(state("v_mean"), square, hyper("beta2"))
    states = {"m": State(mean), "v_mean": State(local("second"), 0, shape)}
    root = sp.sqrt(local("second") / (1 - hyper("beta2") ** (t + 1))) + hyper("eps")
    if isinstance(shape, Sizes):
        count = shape.sizes[0]
        root = like_param(broadcast_to(root, (count, SIZE / count)))
    step = mean / (1 - hyper("beta1") ** (t + 1)) / root
    param = PARAM - hyper("lr") * step - decoupled_decay(values["weight_decay"])
    return rule_of(where, param, states, values, definitions={"second": second})


def _mean_square(gradient: sp.Expr, block: str | int, where: str) -> tuple[sp.Expr, ShapeRule]:
    """The mean square of each block, and the shape of the means."""
    if isinstance(block, str):
        if block not in BLOCKS:
            raise DefinitionError(
                f"block must be one of {', '.join(map(repr, BLOCKS))} or a number of blocks, "
                f"got {block!r}",
                where=where,
            )
        if block == "tensor":
            return reduce_mean(gradient**2), "scalar"
        if block == "row":
            return reduce_mean(gradient**2, all_but(0), True), Without(all_but(0), keepdims=True)
        return gradient**2, "param"
    count = sp.Integer(whole(block, "block", where))
    parts = reshape(gradient, (count, SIZE / count))
    return reduce_mean(parts**2, (1,), True), Sizes((count, sp.Integer(1)))

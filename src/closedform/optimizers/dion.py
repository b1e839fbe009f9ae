"""Orthogonal steps of low rank by one step of the power iteration: Dion."""

from __future__ import annotations

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    SIZE,
    Sizes,
    State,
    UpdateRule,
    axis_size,
    hyper,
    local,
    matmul,
    matrices,
    reduce_sum,
    state,
    transpose,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import hyperparameter, hyperparameters, whole
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import ascent_or_descent, decoupled_decay, rule_of


@rule_function
def dion(
    lr: Hyper = 0.01,
    momentum: Hyper = 0.95,
    weight_decay: Hyper = 0.01,
    rank: int = 128,
    eps: Hyper = 1e-8,
    *,
    maximize: bool = False,
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns Dion: steps of rank r with orthonormal factors; the remainder stays in M.

    .. math::
        B &= M + g, \quad P = \operatorname{Q}(B Q), \quad R = B^\top P \\
        M' &= B - (1 - \mu) P R^\top, \quad
        Q'_{\cdot j} = R_{\cdot j} / (\lVert R_{\cdot j} \rVert + \epsilon) \\
        p' &= (1 - \eta \lambda) p - \eta \sqrt{\text{rows} / \text{columns}}\; P Q'^\top

    Q(A) is the orthogonal factor of A with the signs of LAPACK, and B Q one step of the power
    iteration from the last Q. It is for matrices. The first Q is 0, whose orthogonal factor has the
    first columns of the identity: the first step is along the first r rows of the gradient. The
    published code begins with random numbers: to begin as it does, set the state ``Q`` before the
    first step.

    States, initially 0: ``momentum`` M, the parameter's shape; ``Q``, of shape [columns, r], with r
    the smallest of ``rank``, rows and columns.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ, in [0, 1): the share of the step that stays in M.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        rank: The largest r >= 1; QR decompositions are for up to 128 columns.
        eps: The term ε >= 0 of the norms.
        maximize: Whether to ascend: the gradient enters with a minus.
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> rule = dion(rank=2).for_shape((3, 4))
        >>> list(rule.states), rule.hyperparameters["momentum"]
        (['momentum', 'Q'], 19/20)

    Source: Ahn et al., Dion: distributed orthonormalized updates (2025), algorithm 1; ``Dion`` of
    ``dion_simple.py`` of the authors.
    """
    where = "dion"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        weight_decay=weight_decay,
        eps=eps,
    )
    most = whole(rank, "rank", where)
    rows, columns = axis_size(0), axis_size(1)
    size = sp.Min(most, rows, columns)
    definitions: dict[str, sp.Expr] = {
        "sum": state("momentum") + ascent_or_descent(maximize, where),
        "power": matmul(local("sum"), state("Q")),
        "left": matrices.orthogonal_factor(local("power"), rows, size),
        "right": matmul(transpose(local("sum")), local("left")),
    }
    left, right = local("left"), local("right")
    lengths = sp.sqrt(reduce_sum(right**2, (-2,), keepdims=True))
    definitions["basis"] = right / (lengths + hyper("eps"))
    definitions["momentum"] = local("sum") - (1 - hyper("momentum")) * matmul(
        left, transpose(right)
    )
    step = sp.sqrt(rows / columns) * matmul(left, transpose(local("basis")))
    has_elements = SIZE > 0
    moved = PARAM - decoupled_decay(values["weight_decay"]) - hyper("lr") * step
    rule = rule_of(
        where,
        sp.Piecewise((moved, has_elements), (PARAM, True)),
        {
            "momentum": State(local("momentum"), 0, exists=has_elements),
            "Q": State(local("basis"), 0, Sizes((columns, size)), has_elements),
        },
        values,
        definitions=definitions,
        requires=sp.Eq(RANK, 2),
    )
    return partition(rule, partitions)

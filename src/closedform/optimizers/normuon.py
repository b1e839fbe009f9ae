"""Muon with a rate for each row, and caution in its weight decay: NorMuon."""

from __future__ import annotations

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    SIZE,
    Sizes,
    State,
    UpdateRule,
    hyper,
    like_param,
    local,
    reduce_mean,
    reshape,
    state,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    choice,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
)
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled_decay,
    rule_of,
    weighted_mean,
)
from closedform.optimizers.muon import (
    COEFFICIENTS,
    COLUMNS,
    IS_BATCH,
    ROWS,
    Coefficients,
    checked_iteration,
    matrix_norm,
    orthogonalize,
)

SCALES = ("preserve_norm", "match_rms")
DECAYS = ("plain", "cautious")


@rule_function
def normuon(
    lr: Hyper = 2e-2,
    weight_decay: Hyper = 0,
    momentum: Hyper = 0.95,
    beta2: Hyper = 0.95,
    nesterov: bool = True,
    ns_steps: int = 5,
    ns_coefficients: Coefficients = COEFFICIENTS,
    eps: Hyper = 1e-10,
    *,
    maximize: bool = False,
    scale: str = "preserve_norm",
    decay: str = "plain",
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns NorMuon: Muon whose rows are divided by the root of their mean square.

    .. math::
        O &= \text{the orthogonal direction } X_n \text{ of } \texttt{muon} \\
        v' &= \beta_2 v + (1 - \beta_2) \operatorname{mean}_{row}(O^2), \quad
        U = \frac{O}{\sqrt{v'} + \epsilon} \\
        p' &= p - \eta s \frac{\lVert O \rVert}{\lVert U \rVert + \epsilon} U - \eta \lambda d p,
        \quad s = \sqrt{\max(1, \text{rows} / \text{columns})}

    Each matrix of a batch is stepped as a separate parameter, and a kernel is one matrix, as by
    :func:`muon`. With ``decay="cautious"`` d is 1 where the
    product of the parameter and U is at least 0 and 0 elsewhere, else it is 1.

    States, initially 0: ``momentum_buffer`` b, shape of the parameter; ``second_momentum_buffer``
    v, of shape [rows, 1] with the rows of all matrices.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        momentum: The factor μ of the momentum of :func:`muon`, a number in [0, 1).
        beta2: The decay rate β₂ of the mean squares, a number in [0, 1).
        nesterov: Whether to look one step ahead.
        ns_steps: The number of iterations n >= 0; they are unrolled.
        ns_coefficients: As in :func:`muon`.
        eps: The term ε >= 0 of the denominators, and the least norm of the direction.
        maximize: Whether to ascend: the gradient enters with a minus.
        scale: ``"preserve_norm"`` as above, or ``"match_rms"`` for a step of root mean square 0.2:
            s‖O‖ is then 0.2 √size.
        decay: ``"plain"`` or ``"cautious"``.
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, an unknown choice, or a flag that is not a bool.

    Example:
        >>> list(normuon().states)
        ['momentum_buffer', 'second_momentum_buffer']

    Source: Li et al., NorMuon: making Muon more efficient and scalable (2025), algorithm 1;
    ``NorMuon`` of pytorch_optimizer 4.1, whose floor of the direction is 1e-7; the caution is that
    of modded-nanogpt (Chen et al., Cautious weight decay, 2025).
    """
    where = "normuon"
    values = hyperparameters(
        where,
        lr=lr,
        weight_decay=weight_decay,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        beta2=hyperparameter(beta2, "beta2", where, below=1),
        eps=eps,
    )
    values |= checked_iteration(ns_steps, ns_coefficients, where)
    choice(scale, "scale", where, SCALES)
    choice(decay, "decay", where, DECAYS)
    gradient = ascent_or_descent(maximize, where)
    direction = local("buffer")
    if flag(nesterov, "nesterov", where):
        direction = blend(direction, gradient, hyper("momentum"))
    definitions = {
        "buffer": blend(state("momentum_buffer"), gradient, hyper("momentum")),
        "direction": direction,
        **orthogonalize(ns_steps, values),
    }
    # The rows of all matrices of a batch, below each other.
    rows = sp.Piecewise((SIZE / sp.Max(1, COLUMNS), IS_BATCH), (ROWS, True))
    eps_term = hyper("eps")
    definitions["matrix"] = reshape(local("orthogonal"), (rows, COLUMNS))
    square = reduce_mean(local("matrix") ** 2, (1,), True)
    definitions["second"] = weighted_mean(state("second_momentum_buffer"), square, hyper("beta2"))
    definitions["normalized"] = local("matrix") / (sp.sqrt(local("second")) + eps_term)
    matrices, directions = (
        sp.Piecewise((like_param(local(name)), IS_BATCH), (local(name), True))
        for name in ("matrix", "normalized")
    )
    if scale == "preserve_norm":
        size = matrix_norm(matrices) * sp.sqrt(sp.Max(1, ROWS / sp.Max(1, COLUMNS)))
    else:
        # A root mean square of 0.2, that of AdamW's steps (Liu et al., Muon is scalable, 2025).
        size = sp.sqrt(ROWS * COLUMNS) / 5
    length = matrix_norm(directions) + eps_term
    definitions["step"] = like_param(directions * (size / length))
    param = PARAM - hyper("lr") * local("step")
    shrunk = PARAM
    if decay == "cautious" and not is_zero(values["weight_decay"]):
        shrunk = sp.Piecewise((PARAM, PARAM * local("step") >= 0), (0, True))
    param = param - decoupled_decay(values["weight_decay"], shrunk)
    states = {
        "momentum_buffer": State(local("buffer")),
        "second_momentum_buffer": State(local("second"), 0, Sizes((rows, sp.Integer(1)))),
    }
    requires = sp.Ge(RANK, 2)
    rule = rule_of(where, param, states, values, definitions=definitions, requires=requires)
    return partition(rule, partitions)

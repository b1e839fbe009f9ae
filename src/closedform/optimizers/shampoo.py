"""Gradients times inverse roots of sums of their products: Shampoo."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    EPSILON,
    PARAM,
    RANK,
    Sizes,
    State,
    UpdateRule,
    axis_size,
    expand_dims,
    floor_mod,
    hyper,
    like_param,
    local,
    matmul,
    matrices,
    state,
    t,
    transpose,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    MOST_UNROLLED,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    whole,
)
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled_decay,
    rule_of,
    with_penalty,
)

ROUNDINGS = 4
"""The least shift of a matrix in machine epsilons of its norm.

A product of a matrix with its transpose may have eigenvalues below 0 by rounding, from which the
iteration of its roots diverges: up to half an epsilon in float32, for up to 2,000 rows.
"""


@rule_function
def shampoo(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0,
    weight_decay: Hyper = 0,
    matrix_eps: Hyper = 1e-6,
    preconditioning_compute_steps: int = 1,
    decoupled_weight_decay: bool = False,
    *,
    root_steps: int = 32,
    maximize: bool = False,
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns Shampoo: the gradient of a matrix times an inverse fourth root on each side.

    .. math::
        g_1 &= (1 - \mu) g + \mu b \\
        L' &= L + g_1 g_1^\top, \quad R' = R + g_1^\top g_1 \\
        u &= (L' + \epsilon_L I)^{-1/4} g_1 (R' + \epsilon_R I)^{-1/4}, \quad
            \epsilon_A = \max(\epsilon, 4 \epsilon' \|A'\|_\infty) \\
        b' &= u, \quad p' = p - \eta u - \eta \lambda p

    At the first step b is g. The machine epsilon of the numbers is ε': an eigenvalue below it is
    rounding. The step of a vector is u = (L' + ε_L I)^{-1/2} g₁ with the outer product in L'; that
    of a number is its quotient. With ``preconditioning_compute_steps`` k > 1 the roots are from the
    last step t with (t + 1) mod k = 0, and 0 before. Without ``decoupled_weight_decay`` the last
    term is gone and λp is added to g₁.

    The inverse roots come from Newton's coupled iteration, n steps of products of matrices
    (:func:`closedform.language.matrices.inverse_root`): for a condition number κ of L' + ε I the
    rounding of float64 is reached after about ln κ + 6 steps, as in ``root_steps=32`` for κ = 1e10.
    In float32, which holds no κ above 2²⁴, at most 28 steps are made.

    States, initially 0: ``momentum_buffer`` b, the parameter's shape; ``pre_cond_0`` L, of shape
    [rows, rows]; of a matrix ``pre_cond_1`` R, of shape [columns, columns]; with k > 1 the roots
    ``inv_pre_cond_0`` and ``inv_pre_cond_1``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The weight μ of the last step in the gradient, in [0, 1); the number 0 leaves b
            out.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        matrix_eps: The least term ε > 0 of the roots.
        preconditioning_compute_steps: The number k >= 1 of steps from one root to the next.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        root_steps: The number n >= 1 of steps of the iteration; they are unrolled.
        maximize: Whether to ascend: the gradient enters with a minus.
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> rule = shampoo(root_steps=1).for_shape((2, 3))
        >>> list(rule.states), rule.param
        (['pre_cond_0', 'pre_cond_1'], -local.step*lr + param)

    Source: Gupta et al., Shampoo: preconditioned stochastic tensor optimization (2018), algorithm
    1; ``Shampoo`` of pytorch_optimizer 4.1, which takes the roots by singular value decompositions.
    """
    where = "shampoo"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        weight_decay=weight_decay,
        matrix_eps=matrix_eps,
    )
    if is_zero(values["matrix_eps"]):
        raise DefinitionError("matrix_eps must be above 0, got 0", where=where)
    period = whole(preconditioning_compute_steps, "preconditioning_compute_steps", where)
    whole(root_steps, "root_steps", where, at_most=MOST_UNROLLED)
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", where)
    gradient = ascent_or_descent(maximize, where)
    has_momentum = not is_zero(values["momentum"])
    if has_momentum:
        last = sp.Piecewise((gradient, sp.Eq(t, 0)), (state("momentum_buffer"), True))
        gradient = gradient + hyper("momentum") * (last - gradient)
    if not is_decoupled:
        gradient = with_penalty(gradient, values["weight_decay"])
    is_matrix = sp.Eq(RANK, 2)
    definitions: dict[str, sp.Expr] = {"gradient": gradient}
    gradient = local("gradient")
    definitions["matrix"] = sp.Piecewise(
        (gradient, is_matrix),
        (expand_dims(gradient, -1), sp.Eq(RANK, 1)),
        # A number as a matrix of shape [1, 1]: one formula for all ranks.
        (expand_dims(expand_dims(gradient, -1), -1), True),
    )
    matrix = local("matrix")
    outer = (matmul(matrix, transpose(matrix)), matmul(transpose(matrix), matrix))
    roots: list[sp.Expr] = []
    states: dict[str, State] = {}
    if has_momentum:
        states["momentum_buffer"] = State(local("step"))
    is_due = sp.Eq(floor_mod(t + 1, period), 0)
    for side in (0, 1):
        name = f"pre_cond_{side}"
        definitions[name] = state(name) + outer[side]
        norm = matrices.largest_row_sum(local(name))
        shift = sp.Max(hyper("matrix_eps"), ROUNDINGS * EPSILON * norm)
        definitions[f"shifted_{side}"] = local(name) + shift * matrices.identity(local(name))
        positive_matrix = local(f"shifted_{side}")
        fourth = matrices.inverse_root(positive_matrix, 4, f"fourth_{side}", steps=root_steps)
        # Both roots are defined, and ``for_shape`` drops the one that the rank does not take.
        half = matrices.inverse_root(positive_matrix, 2, f"half_{side}", steps=root_steps)
        definitions |= {**fourth, **half}
        root: sp.Expr = sp.Piecewise(
            (matrices.last_name(fourth), is_matrix), (matrices.last_name(half), True)
        )
        size = sp.Piecewise((axis_size(side), sp.Ge(RANK, side + 1)), (1, True))
        shape = Sizes((size, size))
        exists = is_matrix if side else sp.true
        states[name] = State(local(name), 0, shape, exists)
        if period > 1:
            inverse = f"inv_pre_cond_{side}"
            definitions[inverse] = sp.Piecewise((root, is_due), (state(inverse), True))
            states[inverse] = State(local(inverse), 0, shape, exists)
            root = local(inverse)
        roots.append(root)
    left = matmul(roots[0], matrix)
    definitions["step"] = like_param(
        sp.Piecewise((matmul(left, roots[1]), is_matrix), (left, True))
    )
    param = PARAM - hyper("lr") * local("step")
    if is_decoupled:
        param = param - decoupled_decay(values["weight_decay"])
    requires = sp.Le(RANK, 2)
    rule = rule_of(where, param, states, values, definitions=definitions, requires=requires)
    return partition(rule, partitions)

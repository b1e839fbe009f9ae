"""Adam in the eigenbases of Shampoo's second moments: SOAP."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    SIZE,
    Sizes,
    State,
    UpdateRule,
    axis_size,
    floor_mod,
    hyper,
    local,
    matmul,
    matrices,
    reduce_sum,
    state,
    t,
    transpose,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import flag, hyperparameter, hyperparameters, whole
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    blend,
    decoupled_decay,
    rms,
    rule_of,
    weighted_mean,
)

IS_MATRIX = sp.And(sp.Eq(RANK, 2), SIZE > 0)
"""The parameters that have bases; the others take the steps of Adam."""


@rule_function
def soap(
    lr: Hyper = 3e-3,
    betas: Sequence[Hyper] = (0.95, 0.95),
    weight_decay: Hyper = 1e-2,
    precondition_frequency: int | None = 10,
    max_precondition_dim: int = 10000,
    eps: Hyper = 1e-8,
    *,
    shampoo_beta: Hyper = None,
    correct_bias: bool = True,
    normalize_gradient: bool = False,
    maximize: bool = False,
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns SOAP: Adam in the bases of eigenvectors of the mean of g gᵀ and of gᵀ g.

    .. math::
        m' &= m + (1 - \beta_1)(g - m), \quad
        v_1 = \beta_2 v + (1 - \beta_2) (Q_0^\top g\, Q_1)^2 \\
        u &= Q_0 \frac{Q_0^\top m'\, Q_1}{\sqrt{v_1} + \epsilon} Q_1^\top, \quad
        \kappa = \sqrt{1 - \beta_2^t} / (1 - \beta_1^t) \\
        p' &= (p - \eta \kappa u)(1 - \eta \lambda) \\
        G_0' &= G_0 + (1 - \beta_s)(g g^\top - G_0), \quad
        G_1' = G_1 + (1 - \beta_s)(g^\top g - G_1) \\
        Q_i' &= \operatorname{Q}(G_i' Q_i S_i), \quad
        v' = S_0^\top v_1 S_1 \quad \text{where } t \bmod k = 0, t > 0;
        \quad Q_i' = Q_i, v' = v_1 \text{ elsewhere}

    Q(A) is the orthogonal factor of A, and S_i the permutation that sorts the diagonal of
    Q_iᵀ G_i' Q_i, the largest first. The first step moves no parameter and no moment: it makes
    G_i', and Q_i' = Q(G_i'), one step of the power iteration from the identity. The published code
    begins with eigenvectors of G_i', which have no fixed number of operations: to begin as it does,
    set the states ``Q_0`` and ``Q_1`` after the first step.

    An axis longer than ``max_precondition_dim`` has the identity for its basis; a parameter that is
    no matrix has it for all, and is stepped by Adam.

    Both bases are computed at every step, and taken at each k-th. For larger matrices write two
    files of equal states: one with ``precondition_frequency=1`` and one with None, and run the
    first at every k-th step.

    States, initially 0: ``exp_avg`` m, ``exp_avg_sq`` v, the parameter's shape. Of a matrix:
    ``GG_0`` G₀ and ``Q_0``, of shape [rows, rows], ``GG_1`` G₁ and ``Q_1``, of shape [columns,
    columns].

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        betas: The decay rates β₁ and β₂ of the moments, numbers in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        precondition_frequency: The number k >= 1 of steps from one basis to the next, for axes of
            at most 128 elements; None for bases that stay.
        max_precondition_dim: The length of the longest axis with a basis.
        eps: The term ε >= 0 of the denominator.
        shampoo_beta: The decay rate β_s of G₀ and G₁; None for β₂.
        correct_bias: Whether κ is the corrections of Adam, not 1.
        normalize_gradient: Whether u is divided by its root mean square, plus ε.
        maximize: Whether to ascend: the gradient enters with a minus.
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, not two betas, or a flag that is not a bool.

    Example:
        >>> list(soap().states), list(soap().for_shape((4,)).states)
        (['exp_avg', 'exp_avg_sq', 'GG_0', 'Q_0', 'GG_1', 'Q_1'], ['exp_avg', 'exp_avg_sq'])

    Source: Vyas et al., SOAP: improving and stabilizing Shampoo using Adam (2024), algorithm 3;
    ``SOAP`` of pytorch_optimizer 4.1, and of the authors, which have a learning rate of 3e-3.
    """
    where = "soap"
    values = hyperparameters(where, lr=lr, betas=betas, weight_decay=weight_decay, eps=eps)
    shampoo = hyper("beta2")
    if shampoo_beta is not None:
        values["shampoo_beta"] = hyperparameter(shampoo_beta, "shampoo_beta", where, below=1)
        shampoo = hyper("shampoo_beta")
    if precondition_frequency is not None:
        whole(precondition_frequency, "precondition_frequency", where)
    longest = whole(max_precondition_dim, "max_precondition_dim", where)
    gradient = ascent_or_descent(maximize, where)
    is_first = sp.Eq(t, 0)
    sides = (0, 1)

    def has_basis(side: int) -> sp.Basic:
        return sp.And(IS_MATRIX, axis_size(side) <= longest)

    def projected(x: sp.Expr, *, back: bool = False) -> sp.Expr:
        left, right = state("Q_0"), state("Q_1")
        inner = matmul(left if back else transpose(left), x)
        x = sp.Piecewise((inner, has_basis(0)), (x, True))
        outer = matmul(x, transpose(right) if back else right)
        return sp.Piecewise((outer, has_basis(1)), (x, True))

    mean = blend(state("exp_avg"), gradient, hyper("beta1"))
    definitions: dict[str, sp.Expr] = {
        "mean": sp.Piecewise((state("exp_avg"), is_first), (mean, True)),
        "turned": projected(gradient),
        "square": weighted_mean(state("exp_avg_sq"), local("turned") ** 2, hyper("beta2")),
        "ratio": projected(local("mean")) / (sp.sqrt(local("square")) + hyper("eps")),
        "step": projected(local("ratio"), back=True),
    }
    step: sp.Expr = local("step")
    if flag(normalize_gradient, "normalize_gradient", where):
        step = step / (rms(step) + hyper("eps"))
    rate = hyper("lr")
    if flag(correct_bias, "correct_bias", where):
        first, second = (
            sp.Piecewise((1, is_first), (1 - hyper(beta) ** t, True)) for beta in ("beta1", "beta2")
        )
        # At t = 0 both corrections would be 0: 0 / 0, in a branch that only the first step takes.
        rate = rate * sp.sqrt(second) / first
    definitions["moved"] = PARAM - rate * step
    next_param = local("moved")
    param = sp.Piecewise(
        (PARAM, is_first), (next_param - decoupled_decay(values["weight_decay"], next_param), True)
    )
    square: sp.Expr = local("square")
    states: dict[str, State] = {"exp_avg": State(local("mean")), "exp_avg_sq": State(square)}
    is_due: sp.Basic = is_first
    if precondition_frequency is not None:
        is_due = sp.Eq(floor_mod(t, precondition_frequency), 0)
    for side in sides:
        outer = (matmul(gradient, transpose(gradient)), matmul(transpose(gradient), gradient))[side]
        name, basis = f"GG_{side}", state(f"Q_{side}")
        definitions[name] = blend(state(name), outer, shampoo)
        definitions[f"start_{side}"] = sp.Piecewise(
            (matrices.identity(basis), is_first), (basis, True)
        )
        start = local(f"start_{side}")
        definitions[f"power_{side}"] = matmul(local(name), start)
        power = local(f"power_{side}")
        following: sp.Expr = basis
        if precondition_frequency is not None:
            # The diagonal of Qᵀ (G Q) in n² operations, not the n³ of the product.
            definitions[f"values_{side}"] = reduce_sum(start * power, (-2,), keepdims=True)
            definitions |= matrices.descending_order(
                local(f"values_{side}"), power, f"permutation_{side}"
            )
            definitions[f"order_{side}"] = sp.Piecewise(
                (matrices.identity(power), is_first), (local(f"permutation_{side}"), True)
            )
            definitions[f"sorted_{side}"] = matmul(power, local(f"order_{side}"))
            definitions[f"basis_{side}"] = matrices.orthogonal_factor(
                local(f"sorted_{side}"), axis_size(side), axis_size(side)
            )
            following = sp.Piecewise((local(f"basis_{side}"), is_due), (basis, True))
            order = local(f"order_{side}")
            moved_square = (matmul(transpose(order), square), matmul(square, order))[side]
            definitions[f"square_{side}"] = sp.Piecewise(
                (sp.Piecewise((moved_square, is_due), (square, True)), has_basis(side)),
                (square, True),
            )
            square = local(f"square_{side}")
        else:
            following = sp.Piecewise((matrices.identity(basis), is_first), (basis, True))
        shape = Sizes((axis_size(side), axis_size(side)))
        states[name] = State(local(name), 0, shape, has_basis(side))
        states[f"Q_{side}"] = State(following, 0, shape, has_basis(side))
    states["exp_avg_sq"] = State(sp.Piecewise((state("exp_avg_sq"), is_first), (square, True)))
    rule = rule_of(where, param, states, values, definitions=definitions)
    return partition(rule, partitions)

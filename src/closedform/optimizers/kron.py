"""Gradients times Kronecker factors that whiten them: PSGD Kron."""

from __future__ import annotations

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    PARAM,
    RANK,
    SIZE,
    Schedule,
    Shared,
    Sizes,
    State,
    UpdateRule,
    axis_size,
    hyper,
    local,
    matmul,
    matrices,
    positions,
    reduce_max,
    reduce_sum,
    shared,
    state,
    t,
    tensor_input,
    transpose,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import flag, hyperparameter, hyperparameters, is_zero, whole
from closedform.language.rotations import Definitions
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import (
    ascent_or_descent,
    decoupled_decay,
    rms,
    rule_of,
    weighted_mean,
)

# The least divisor, the least normal number of bfloat16; the published code adds it to norms.
_TINY = sp.Rational(1, 2**126)


def falling_probability(
    most: float = 1, least: float = 0.03, decay: float = 1e-3, flat_steps: int = 500
) -> Schedule:
    r"""Returns the published frequency of updates of the factors.

    .. math:: \max(l, \min(1, e^{-\delta (t - T)})\, m)

    Args:
        most: The first frequency m.
        least: The last one l.
        decay: The rate δ.
        flat_steps: The number T of steps of the first frequency.

    Source: ``precond_update_prob_schedule`` of kron_torch.
    """
    most, least, decay = (sp.Rational(str(number)) for number in (most, least, decay))
    fall = most * sp.exp(-decay * sp.Max(0, t - flat_steps))
    return Schedule(sp.Max(least, fall), name="falling_probability")


@rule_function
def kron(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    weight_decay: Hyper = 0,
    update_probability: Hyper = 1,
    max_size_triangular: int = 8192,
    precondition_lr: Hyper = 0.1,
    decoupled_weight_decay: bool = True,
    *,
    momentum_into_precondition_update: bool = True,
    maximize: bool = False,
) -> UpdateRule:
    r"""Returns PSGD with Kronecker factors: the momentum times Q₀ᵀQ₀ and Q₁ᵀQ₁.

    .. math::
        m' &= \mu m + (1 - \mu) g, \quad \hat m = m' / (1 - \mu^{t+1}) \\
        A &= Q_0 \hat m Q_1^\top, \quad B = Q_0^{-\top} V Q_1^{-1} \\
        Q_0' &= Q_0 - \rho \frac{\operatorname{triu}(A A^\top - B B^\top)}
        {\lVert A A^\top + B B^\top \rVert} Q_0, \quad
        Q_1' = Q_1 - \rho \frac{\operatorname{triu}(A^\top A - B^\top B)}
        {\lVert A^\top A + B^\top B \rVert} Q_1 \\
        u &= Q_0'^\top Q_0' \hat m Q_1'^\top Q_1', \quad
        p' = p - \eta \left(\min\left(1, \frac{1.1}{\operatorname{rms}(u) + 10^{-6}}\right) u
        + \lambda p\right)

    The factors are upper triangular and begin as identities. ‖S‖ is the lower bound ‖S x‖ / ‖x‖ of
    the spectral norm, with x the product of S and its longest column. An axis of size 1, or longer
    than ``max_size_triangular``, has a diagonal factor q: of the matrices above the diagonals take
    their place, and the largest element that of the norm. So has a parameter with fewer than two
    axes, which has no weight decay either.

    Factors are updated in the steps in which a counter, which each step raises by 1 and an update
    sets to 0, is at least 1 / π. The published code also balances the norms of the factors in
    random steps, which changes no step but by rounding.

    Input: ``noise`` V, numbers of a normal distribution, a tensor of the parameter's shape that
    each step takes in addition to the gradient.

    States of the parameter's shape: ``momentum_buffer`` m, initially 0; of one with fewer than two
    axes ``q``. Of a matrix: ``Q_0`` of shape [rows, rows] or ``q_0`` of [rows, 1], ``Q_1`` of
    [columns, columns] or ``q_1`` of [1, columns]. The factors are 0 before the first step. State of
    the model, where π is not 0 or 1: ``update_counter``.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ in [0, 1).
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        update_probability: The frequency π of updates, in [0, 1]: 1 for each step, or a Schedule
            such as :func:`falling_probability`, the published one.
        max_size_triangular: The length of the longest axis with a triangular factor.
        precondition_lr: The learning rate ρ >= 0 of the factors.
        decoupled_weight_decay: Whether the decay acts on the parameter, not through the gradient.
        momentum_into_precondition_update: Whether A has the momentum, not the gradient.
        maximize: Whether to ascend: the gradient enters with a minus.

    Raises:
        DefinitionError: A number out of its range, or a flag that is not a bool.

    Example:
        >>> list(kron().for_shape((2, 3)).states), list(kron().for_shape((3,)).states)
        (['momentum_buffer', 'Q_0', 'Q_1'], ['momentum_buffer', 'q'])

    Source: Li, Preconditioned stochastic gradient descent (2015) and its Kronecker form (2024);
    ``Kron`` of kron_torch and of pytorch_optimizer 4.1.
    """
    where = "kron"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        weight_decay=weight_decay,
        precondition_lr=precondition_lr,
        update_probability=hyperparameter(
            update_probability, "update_probability", where, at_most=1
        ),
    )
    if update_probability is None:
        raise DefinitionError(
            "update_probability must be a number or a Schedule, got None",
            where=where,
            hint="it says in which steps noise is needed",
        )
    longest = whole(max_size_triangular, "max_size_triangular", where)
    is_decoupled = flag(decoupled_weight_decay, "decoupled_weight_decay", where)
    is_matrix = sp.Eq(RANK, 2)
    gradient = ascent_or_descent(maximize, where)
    if not is_decoupled and not is_zero(values["weight_decay"]):
        penalty = hyper("weight_decay") * PARAM
        gradient = sp.Piecewise((gradient + penalty, is_matrix), (gradient, True))
    mean = weighted_mean(state("momentum_buffer"), gradient, hyper("momentum"))
    definitions: dict[str, sp.Expr] = {
        "mean": mean,
        "direction": local("mean") / (1 - hyper("momentum") ** (t + 1)),
    }
    direction = local("direction")
    source = (
        direction
        if flag(momentum_into_precondition_update, "momentum_into_precondition_update", where)
        else gradient
    )
    is_due, common = _update_condition(values["update_probability"])
    states: dict[str, State] = {"momentum_buffer": State(local("mean"))}

    is_full = [
        sp.And(is_matrix, axis_size(side) > 1, axis_size(side) <= longest) for side in (0, 1)
    ]
    is_line = [sp.And(is_matrix, sp.Not(condition)) for condition in is_full]

    def by_kind(side: int, full: sp.Expr, line: sp.Expr) -> sp.Expr:
        return sp.Piecewise((full, is_full[side]), (line, True))

    for side in (0, 1):
        full, line = state(f"Q_{side}"), state(f"q_{side}")
        definitions[f"full_{side}"] = sp.Piecewise(
            (matrices.identity(full), sp.Eq(t, 0)), (full, True)
        )
        definitions[f"line_{side}"] = sp.Piecewise((1 + 0 * line, sp.Eq(t, 0)), (line, True))
        definitions[f"inverse_{side}"] = matrices.triangular_inverse(
            local(f"full_{side}"), axis_size(side)
        )
    full_0, full_1, line_0, line_1 = (
        local(f"{kind}_{side}") for kind in ("full", "line") for side in (0, 1)
    )
    noise = tensor_input("noise")
    definitions |= {
        "left": by_kind(0, matmul(full_0, source), line_0 * source),
        "a": by_kind(1, matmul(local("left"), transpose(full_1)), local("left") * line_1),
        "solved": by_kind(0, matmul(transpose(local("inverse_0")), noise), noise / line_0),
        "b": by_kind(1, matmul(local("solved"), local("inverse_1")), local("solved") / line_1),
    }
    # With noise V of unit covariance the factors rest where E[A Aᵀ] = E[B Bᵀ]: there Q Qᵀ whitens.
    a, b = local("a"), local("b")
    step: sp.Expr = direction
    for side in (0, 1):
        first, second = ((matmul(x, transpose(x)), matmul(transpose(x), x))[side] for x in (a, b))
        full, line = local(f"full_{side}"), local(f"line_{side}")
        definitions |= {f"first_{side}": first, f"second_{side}": second}
        first, second = local(f"first_{side}"), local(f"second_{side}")
        definitions |= _norm_bound(first + second, f"norm_{side}")
        change = matrices.upper_triangle(hyper("precondition_lr") * (first - second)) / (
            sp.Max(local(f"norm_{side}"), _TINY)
        )
        definitions[f"change_{side}"] = change
        following = full - matmul(local(f"change_{side}"), full)
        shape = Sizes((axis_size(side), axis_size(side)))
        definitions[f"Q_{side}"] = sp.Piecewise((following, is_due), (full, True))
        states[f"Q_{side}"] = State(local(f"Q_{side}"), 0, shape, is_full[side])
        axes = (-2,) if side else (-1,)
        definitions[f"q_{side}"] = _updated_line(line, a, b, axes, is_due)
        line_shape = (axis_size(0), sp.Integer(1)) if not side else (sp.Integer(1), axis_size(1))
        states[f"q_{side}"] = State(local(f"q_{side}"), 0, Sizes(line_shape), is_line[side])
        factor = local(f"Q_{side}")
        if side:
            product = matmul(matmul(step, transpose(factor)), factor)
        else:
            product = matmul(transpose(factor), matmul(factor, step))
        definitions[f"turned_{side}"] = by_kind(side, product, local(f"q_{side}") ** 2 * step)
        step = local(f"turned_{side}")
    definitions["start"] = sp.Piecewise((1 + 0 * state("q"), sp.Eq(t, 0)), (state("q"), True))
    start = local("start")
    definitions["q"] = _updated_line(start, start * source, noise / start, None, is_due)
    states["q"] = State(local("q"), 0, exists=sp.Lt(RANK, 2))
    definitions["step"] = sp.Piecewise((step, is_matrix), (local("q") ** 2 * direction, True))
    step = local("step")
    clipped = step * sp.Min(1, sp.Rational(11, 10) / (rms(step) + sp.Rational(1, 10**6)))
    param = PARAM - hyper("lr") * clipped
    if is_decoupled and not is_zero(values["weight_decay"]):
        param = sp.Piecewise(
            (param - decoupled_decay(values["weight_decay"]), is_matrix), (param, True)
        )
    return rule_of(
        where,
        param,
        states,
        values,
        definitions=definitions,
        requires=sp.Le(RANK, 2),
        inputs=("noise",),
        shared=common,
    )


def _update_condition(probability: Hyper) -> tuple[sp.Basic, dict[str, Shared]]:
    """The condition of an update of the factors, and the counter that it needs."""
    if probability in (0, 1):
        return sp.true if probability == 1 else sp.false, {}
    count = shared("update_counter") + 1
    is_due = count * hyper("update_probability") >= 1
    return is_due, {"update_counter": Shared(sp.Piecewise((0, is_due), (count, True)))}


def _updated_line(
    line: sp.Expr,
    a: sp.Expr,
    b: sp.Expr,
    axes: tuple[int, ...] | None,
    is_due: sp.Basic,
) -> sp.Expr:
    """A diagonal factor after a step; axes are those that are summed, None for none."""
    first, second = (
        x**2 if axes is None else reduce_sum(x**2, axes, keepdims=True) for x in (a, b)
    )
    largest = sp.Max(reduce_max(first + second), _TINY)
    change = hyper("precondition_lr") * (first - second) * line / largest
    return sp.Piecewise((line - change, is_due), (line, True))


def _norm_bound(x: sp.Expr, prefix: str) -> Definitions:
    """Definitions of ‖A a‖ / ‖a‖ ≤ ‖A‖ of a symmetric A, a its longest column; shape [1, 1]."""
    name = f"{prefix}_of"
    matrix = local(name)
    top = reduce_max(sp.Max(matrix, -matrix), (-2, -1), keepdims=True)
    scaled_matrix, place = local(f"{prefix}_scaled"), local(f"{prefix}_place")
    lengths = local(f"{prefix}_lengths")
    is_longest = lengths >= reduce_max(lengths, (-1,), keepdims=True)
    places = positions(matrix, -1)
    column = local(f"{prefix}_column")

    def length(vector: sp.Expr) -> sp.Expr:
        return sp.sqrt(reduce_sum(vector**2, (-2, -1), keepdims=True))

    return {
        name: x,
        f"{prefix}_top": top,
        # By its largest element, so that no square of an element overflows.
        f"{prefix}_scaled": matrix / sp.Max(local(f"{prefix}_top"), _TINY),
        f"{prefix}_lengths": reduce_sum(scaled_matrix**2, (-2,), keepdims=True),
        # The first of the longest columns.
        f"{prefix}_place": -reduce_max(
            sp.Piecewise((-places, is_longest), (-SIZE, True)), (-1,), keepdims=True
        ),
        f"{prefix}_column": matmul(
            scaled_matrix,
            reduce_sum(
                sp.Piecewise((scaled_matrix, sp.Eq(places, place)), (0, True)), (-1,), keepdims=True
            ),
        ),
        prefix: local(f"{prefix}_top")
        * length(matmul(scaled_matrix, column / sp.Max(length(column), _TINY))),
    }

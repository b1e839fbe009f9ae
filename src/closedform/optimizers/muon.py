"""Muon: momentum made orthogonal by Newton-Schulz iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    PARAM,
    RANK,
    SIZE,
    Schedule,
    State,
    UpdateRule,
    axis_size,
    hyper,
    like_param,
    local,
    matmul,
    reduce_sum,
    reshape,
    rounded,
    state,
    transpose,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    MOST_UNROLLED,
    choice,
    flag,
    hyperparameter,
    hyperparameters,
    is_zero,
    whole,
)
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import ascent_or_descent, blend, decoupled_decay, norm, rule_of

LOOKAHEADS = ("blend", "sum")
SCALES = ("original", "match_rms_adamw")
DECAYS = ("plain", "scaled")
FLOORS = ("clamped", "added")
PRECISIONS = ("parameter", "bf16", "bf16_fused")
MATRIX_AXES = ("last", "first")
COEFFICIENTS = (3.4445, -4.775, 2.0315)

_POLAR = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
)
POLAR_EXPRESS = (
    *((a / 1.01, b / 1.01**3, c / 1.01**5) for a, b, c in _POLAR),
    (1.875, -1.25, 0.375),
)
"""``ns_coefficients`` of Amsel et al., The Polar Express (2025), algorithm 1, with its safety
factor of 1.01."""

Coefficients = Sequence[Hyper] | Sequence[Sequence[Hyper]]
"""The numbers a, b, c of every iteration, or a triple for each iteration; the last one repeats."""

# Convolution kernels [out, in, height, width]; Jordan's code flattens them as ``g.view(len(g),
# -1)``.
IS_KERNEL = sp.Eq(RANK, 4)
_KERNEL_COLUMNS = axis_size(1) * axis_size(2) * axis_size(3)
_IS_TALL = sp.Or(
    sp.And(IS_KERNEL, axis_size(0) > _KERNEL_COLUMNS),
    sp.And(sp.Not(IS_KERNEL), axis_size(-2) > axis_size(-1)),
)
ROWS = sp.Piecewise((axis_size(0), IS_KERNEL), (axis_size(-2), True))
"""The rows of each matrix; axes before the last two are batch axes, but for a kernel."""
FAN_IN = sp.Piecewise((axis_size(1), IS_KERNEL), (axis_size(-1), True))
"""The columns of each matrix, of a kernel at one place of it."""
COLUMNS = sp.Piecewise((SIZE / sp.Max(1, axis_size(0)), IS_KERNEL), (axis_size(-1), True))
"""The columns of each matrix, a kernel being one matrix of its first axis by the others."""
IS_BATCH = sp.And(sp.Gt(RANK, 2), sp.Not(IS_KERNEL))


def matrix_norm(x: sp.Expr) -> sp.Expr:
    """Returns the Frobenius norm of each matrix of a tensor."""
    norms = sp.sqrt(reduce_sum(x**2, (-2, -1), keepdims=True))
    return sp.Piecewise((norms, IS_BATCH), (norm(x), True))


@rule_function
def muon(
    lr: Hyper = 1e-3,
    weight_decay: Hyper = 0.1,
    momentum: Hyper = 0.95,
    nesterov: bool = True,
    ns_steps: int = 5,
    ns_coefficients: Coefficients = COEFFICIENTS,
    eps: Hyper = 1e-7,
    *,
    maximize: bool = False,
    lookahead: str = "blend",
    scale: str = "original",
    decay: str = "plain",
    floor: str = "clamped",
    precision: str = "parameter",
    lost_buffer: bool = False,
    matrix_axes: str = "last",
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns Muon, for parameters of two axes or more.

    .. math::
        b' &= b + (1 - \mu)(g - b), \quad e = b' \text{ or, with Nesterov, } g + \mu (b' - g) \\
        X_0 &= e / \max(\lVert e \rVert_F, \epsilon) \\
        A &= X_k X_k^\top, \quad X_{k+1} = a X_k + (b A + c A A) X_k \\
        p' &= p - \eta s X_n - \eta \lambda p,
        \quad s = \sqrt{\max(1, \text{rows} / \text{columns})}

    The iteration runs on the transposed matrix where there are more rows than columns. The axes
    before the last two are batch axes: each matrix is stepped as a separate parameter. A parameter
    of four axes is a kernel, the matrix of its first axis by the others, with the first two axes as
    rows and columns in s.

    State, the parameter's shape and initially 0: ``momentum_buffer`` b.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        momentum: The factor μ, a number in [0, 1).
        nesterov: Whether to look one step ahead.
        ns_steps: The number n >= 0 of iterations; they are unrolled.
        ns_coefficients: The numbers a, b, c; or three numbers for each iteration, of which the last
            ones repeat, such as ``closedform.optimizers.muon.POLAR_EXPRESS``.
        eps: The least norm ε >= 0. With 0 a zero gradient gives no number.
        maximize: Whether to ascend: the gradient enters with a minus.
        lookahead: Nesterov's e: ``"blend"`` as above (torch, and Jordan's own up to a factor) or
            ``"sum"`` for g + μ b' (cerebras), in which the gradient weighs more.
        scale: ``"original"`` as above, or ``"match_rms_adamw"`` for s = √max(rows, columns) / 5.
        decay: What λ is multiplied by: ``"plain"`` for η, ``"scaled"`` for η s.
        floor: ``"clamped"`` as above, or ``"added"`` for a norm of ‖e‖ + ε.
        precision: Where the iteration is rounded: ``"parameter"`` computes in the parameter's
            dtype, ``"bf16"`` rounds every operation to bf16, ``"bf16_fused"`` every sum of
            products (torch), and 1e-2 of a step is then rounding.
        lost_buffer: Whether b is never written back, the defect of cerebras: there is no momentum.
        matrix_axes: The axes whose sizes are rows and columns in s: ``"last"`` two as above, or
            ``"first"`` two (cerebras), which are batch axes of a tensor of three.
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, an unknown choice, or a flag that is not a bool.

    Example:
        >>> rule = muon(lr=0.02, ns_steps=1)
        >>> list(rule.for_shape((8, 4)).definitions)
        ['buffer', 'direction', 'wide', 'unit', 'gram_1', 'x_1', 'orthogonal']

    Source: Jordan et al. (2024), for hidden layers; ``Muon`` of torch 2.13 and of
    cerebras.pytorch 2.10, whose defaults are lr 0.02 and weight decay 0.01.
    """
    momentum = hyperparameter(momentum, "momentum", "muon", below=1)
    values = hyperparameters("muon", lr=lr, weight_decay=weight_decay, momentum=momentum, eps=eps)
    values |= checked_iteration(ns_steps, ns_coefficients, "muon")
    for name, setting, options in (
        ("lookahead", lookahead, LOOKAHEADS),
        ("scale", scale, SCALES),
        ("decay", decay, DECAYS),
        ("floor", floor, FLOORS),
        ("precision", precision, PRECISIONS),
        ("matrix_axes", matrix_axes, MATRIX_AXES),
    ):
        choice(setting, name, "muon", options)
    gradient = ascent_or_descent(maximize, "muon")
    is_lost = flag(lost_buffer, "lost_buffer", "muon")
    previous = sp.Integer(0) if is_lost else state("momentum_buffer")
    definitions = {"buffer": blend(previous, gradient, hyper("momentum"))}
    direction = local("buffer")
    if flag(nesterov, "nesterov", "muon"):
        if lookahead == "blend":
            # Equal to g + μ (b' - g), with the smaller of the two weights on the rounded term.
            direction = blend(direction, gradient, hyper("momentum"))
        else:
            direction = gradient + hyper("momentum") * direction
    definitions["direction"] = direction
    definitions |= orthogonalize(ns_steps, values, floor=floor, precision=precision)
    # s²: one root is taken below. 1/25 is the 0.2² of Moonlight (Liu et al. 2025), the rms of
    # AdamW's steps.
    is_last = matrix_axes == "last"
    rows, columns = (ROWS, FAN_IN) if is_last else (axis_size(0), axis_size(1))
    size = sp.Max(1, rows / columns) if scale == "original" else sp.Max(rows, columns) / 25
    rate = hyper("lr") * sp.sqrt(size)
    step = rate * local("orthogonal")
    # "bf16" rounds every operation, the scaled step included; "bf16_fused" only sums of products.
    param = PARAM - (rounded(step, "bf16") if precision == "bf16" else step)
    factor = rate if decay == "scaled" else hyper("lr")
    param = param - decoupled_decay(values["weight_decay"], rate=factor)
    buffer = state("momentum_buffer") if is_lost else local("buffer")
    states = {"momentum_buffer": State(buffer)}
    requires = sp.Ge(RANK, 2)
    rule = rule_of("muon", param, states, values, definitions=definitions, requires=requires)
    return partition(rule, partitions)


def checked_iteration(steps: int, coefficients: Coefficients, where: str) -> dict[str, Any]:
    """Returns the hyperparameters ``ns_a``, ``ns_b``, ``ns_c``, or ``ns_a_1`` and so on.

    Raises:
        DefinitionError: They are neither three numbers nor several times three, or the steps are
            not a number that is unrolled.
    """
    whole(steps, "ns_steps", where, at_least=0, at_most=MOST_UNROLLED)
    several: Sequence[Any] = coefficients if isinstance(coefficients, Sequence) else ()
    is_each = bool(several) and all(isinstance(triple, Sequence) for triple in several)
    rows = several if is_each and not isinstance(coefficients, str) else [coefficients]
    values: dict[str, Any] = {}
    for step, row in enumerate(rows, 1):
        if not isinstance(row, Sequence) or len(row) != 3 or isinstance(row, str):
            raise DefinitionError(
                f"ns_coefficients must be three numbers, got {row!r}",
                where=where,
                hint=f"try {COEFFICIENTS}",
            )
        for place, (name, value) in enumerate(zip("abc", row, strict=True)):
            key = f"ns_{name}" if rows[0] is coefficients else f"ns_{name}_{step}"
            label = (
                f"ns_coefficients[{place}]"
                if rows[0] is coefficients
                else (f"ns_coefficients[{step - 1}][{place}]")
            )
            values[key] = hyperparameter(value, label, where, at_least=None)
    return values


def orthogonalize(
    steps: int,
    values: Mapping[str, Any],
    *,
    floor: str = "clamped",
    precision: str = "parameter",
) -> dict[str, sp.Expr]:
    """Returns definitions from ``direction`` to ``orthogonal``, which has the parameter's shape.

    Args:
        steps: The number of iterations.
        values: Hyperparameters, with ``eps`` and the names of ``checked_iteration``.
        floor: One of ``FLOORS``.
        precision: One of ``PRECISIONS``.
    """

    def in_precision(value: sp.Expr) -> sp.Expr:
        return value if precision == "parameter" else rounded(value, "bf16")

    several = sum(key.startswith("ns_a_") for key in values)
    matrix = reshape(local("direction"), (axis_size(0), _KERNEL_COLUMNS))
    direction_matrix = sp.Piecewise((matrix, IS_KERNEL), (local("direction"), True))
    definitions = {
        "wide": in_precision(
            sp.Piecewise((transpose(direction_matrix), _IS_TALL), (direction_matrix, True))
        )
    }
    # The Gram matrix is the smaller one for wide matrices: rows² elements instead of columns².
    wide = local("wide")
    length = in_precision(sp.sqrt(reduce_sum(wide**2, (-2, -1), keepdims=True)))
    is_clamped = floor == "clamped"
    length = in_precision(sp.Max(length, hyper("eps")) if is_clamped else length + hyper("eps"))
    definitions["unit"] = in_precision(wide / length)
    now = local("unit")
    for step in range(1, steps + 1):
        gram = in_precision(matmul(now, transpose(now)))
        definitions[f"gram_{step}"] = gram
        # Steps beyond the last triple repeat it.
        suffix = f"_{min(step, several)}" if several else ""
        definitions |= _polynomial(step, now, precision, values, suffix)
        now = local(f"x_{step}")
    upright = sp.Piecewise((transpose(now), _IS_TALL), (now, True))
    definitions["orthogonal"] = like_param(upright)
    return definitions


def _polynomial(
    step: int, now: sp.Expr, precision: str, values: Mapping[str, Any], suffix: str
) -> dict[str, sp.Expr]:
    """Definitions of a X + (b A + c A A) X, rounded as asked for."""
    gram, result = local(f"gram_{step}"), f"x_{step}"
    a, b, c = (hyper(f"ns_{name}{suffix}") for name in "abc")
    if precision == "parameter":
        return {result: a * now + matmul(b * gram + c * matmul(gram, gram), now)}

    def bf16(value: sp.Expr) -> sp.Expr:
        return rounded(value, "bf16")

    if precision == "bf16":
        inner = bf16(bf16(b * gram) + bf16(matmul(bf16(c * gram), gram)))
        return {result: bf16(bf16(a * now) + bf16(matmul(inner, now)))}
    # Each coefficient is split into the nearest power of two, the product with which is
    # exact, and a rest that weighs little: of the float32 rounding before the sum is rounded to
    # bf16, less then falls to the other side.
    near_a, near_b, near_c = (_power_of_two(values[f"ns_{name}{suffix}"]) for name in "abc")
    names = [f"{part}_{step}" for part in ("square", "most", "rest", "inner", "moved")]
    square, most, rest, inner, update = map(local, names)
    terms = (
        matmul(gram, gram),
        near_b * gram + near_c * square,
        (b - near_b) * gram + (c - near_c) * square,
        bf16(most + rest),
        near_a * now + matmul(inner, now),
    )
    return {**dict(zip(names, terms, strict=True)), result: bf16(update + (a - near_a) * now)}


def _power_of_two(value: Hyper) -> sp.Expr:
    """The power of two next to a number, with its sign; 0 for 0 and for an open value."""
    if value is None or isinstance(value, Schedule) or is_zero(value):
        return sp.Integer(0)
    exponent = round(math.log2(abs(value)))
    return sp.sign(value) * sp.Integer(2) ** exponent

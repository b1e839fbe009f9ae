"""Steps of a fixed norm, each layer in its own: Scion."""

from __future__ import annotations

import sympy as sp

from closedform.language import (
    PARAM,
    RANK,
    State,
    UpdateRule,
    axis_size,
    hyper,
    local,
    reduce_mean,
    reduce_sum,
    state,
)
from closedform.language.aliases import Hyper
from closedform.language.arguments import (
    choice,
    flag,
    hyperparameter,
    hyperparameters,
)
from closedform.language.partitions import Partitions, partition
from closedform.language.rule_functions import rule_function
from closedform.optimizers.formulas import ascent_or_descent, blend, decoupled_decay, rule_of, sign
from closedform.optimizers.muon import (
    COEFFICIENTS,
    COLUMNS,
    FAN_IN,
    IS_KERNEL,
    ROWS,
    Coefficients,
    checked_iteration,
    orthogonalize,
)

NORMS = ("spectral", "sign", "row", "column", "rms")


@rule_function
def scion(
    lr: Hyper = 1e-3,
    momentum: Hyper = 0.9,
    norm: str = "spectral",
    scale: Hyper = 1,
    weight_decay: Hyper = 0,
    constrained: bool = False,
    ns_steps: int = 5,
    ns_coefficients: Coefficients = COEFFICIENTS,
    eps: Hyper = 1e-8,
    *,
    maximize: bool = False,
    partitions: Partitions | None = None,
) -> UpdateRule:
    r"""Returns Scion: steps of one size in the norm of a layer, along a momentum.

    .. math::
        d' &= d + (1 - \mu)(g - d) \\
        p' &= p - \eta \rho\, L(d') - \eta \lambda p

    .. math:: L(d) = \begin{cases} \sqrt{r / c}\, X_n(d) / k & \text{spectral} \\
        \operatorname{sign}(d) / c & \text{sign} \\
        d / (\sqrt c\, \lVert d \rVert_{row} + \epsilon) & \text{row} \\
        d / (\lVert d \rVert_{column} / \sqrt r + \epsilon) & \text{column} \\
        d / (\operatorname{rms}(d) + \epsilon) & \text{rms} \end{cases}

    with the orthogonal direction X of :func:`muon`, r rows and c columns of a matrix, which are the
    last two axes, or output and input of a kernel, k the number of its places (1 for a matrix). The
    spectral norm is for hidden layers and kernels, sign for the first and last layer, rms for
    vectors such as biases.

    With ``constrained`` the parameter shrinks by η of itself and stays in the ball of radius ρ.

    State: ``d``, shape of the parameter, initially 0.

    Args:
        lr: The learning rate η >= 0. As every hyperparameter here: a number, a Schedule, or None
            for an input of the graph.
        momentum: The factor μ in [0, 1); 1 - α of the paper.
        norm: The norm of the layer: ``"spectral"``, ``"sign"``, ``"row"`` and ``"column"`` need two
            axes; ``"rms"`` is over the whole parameter.
        scale: The size ρ >= 0 of a step of rate 1, or the radius.
        weight_decay: The factor λ >= 0; the number 0 leaves the term out.
        constrained: Whether the parameter is kept in the ball; it needs no weight decay.
        ns_steps: The number n >= 0 of iterations; they are unrolled.
        ns_coefficients: As in :func:`muon`.
        eps: The term ε >= 0 of the denominators, and the least norm of X's argument.
        maximize: Whether to ascend: the gradient enters with a minus.
        partitions: The blocks of a parameter that are stepped as separate parameters, by
            :func:`closedform.transforms.partition`: their sizes, their number, or a Partition.

    Raises:
        DefinitionError: A number out of its range, an unknown norm, or a flag that is not a bool.

    Example:
        >>> scion(0.1, norm="rms").param
        -local.change*lr*scale + param

    Source: Pethick et al., Training deep learning models with norm-constrained LMOs (2025),
    algorithms 1 and 2, table 3; ``SCION`` of pytorch_optimizer 4.1, whose ``momentum`` is 1 - μ.
    """
    where = "scion"
    values = hyperparameters(
        where,
        lr=lr,
        momentum=hyperparameter(momentum, "momentum", where, below=1),
        scale=scale,
        weight_decay=weight_decay,
        eps=eps,
    )
    values |= checked_iteration(ns_steps, ns_coefficients, where)
    choice(norm, "norm", where, NORMS)
    is_constrained = flag(constrained, "constrained", where)
    gradient = ascent_or_descent(maximize, where)
    definitions = {"direction": blend(state("d"), gradient, hyper("momentum"))}
    if norm == "spectral":
        definitions |= orthogonalize(ns_steps, values)
    definitions["change"] = _oracle(norm)
    param = PARAM - hyper("lr") * hyper("scale") * local("change")
    if is_constrained:
        param = param - hyper("lr") * PARAM
    else:
        param = param - decoupled_decay(values["weight_decay"])
    rule = rule_of(
        where,
        param,
        {"d": State(local("direction"))},
        values,
        definitions=definitions,
        requires=sp.true if norm == "rms" else sp.Ge(RANK, 2),
    )
    return partition(rule, partitions)


def _oracle(norm: str) -> sp.Expr:
    """The step of size 1 along the direction."""
    direction, eps = local("direction"), hyper("eps")
    match norm:
        case "spectral":
            kernel = COLUMNS / sp.Max(1, FAN_IN)
            return local("orthogonal") * sp.sqrt(ROWS / sp.Max(1, FAN_IN)) / sp.Max(1, kernel)
        case "sign":
            return sign(direction) / sp.Max(1, FAN_IN)
        case "row":
            length = sp.sqrt(reduce_sum(direction**2, (-1,), True))
            return direction / (length * sp.sqrt(axis_size(-1)) + eps)
        case "column":
            of_kernel, of_matrix = (reduce_sum(direction**2, (axis,), True) for axis in (0, -2))
            length = sp.sqrt(sp.Piecewise((of_kernel, IS_KERNEL), (of_matrix, True)))
            return direction / (length / sp.sqrt(sp.Max(1, ROWS)) + eps)
        case _:
            return direction / (sp.sqrt(reduce_mean(direction**2)) + eps)

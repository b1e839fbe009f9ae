"""The library of schedules: one function per schedule, generic in the scheduled quantity.

Each returns a ``Schedule`` whose formula keeps its hyperparameters as symbols;
``reduce_on_plateau``, which is driven by a metric, an ``UpdateRule``.

Example:
    >>> linear(0, 1, 4).then(cosine(1, 0, 4)).exact(6)
    1/2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.language import (
    Schedule,
    chained,
    maximum,
    product,
    repeat,
    sequential,
    splice,
)
from closedform.language.aliases import Number
from closedform.language.lengths import with_lengths
from closedform.schedules.constant import constant, multi_step, piecewise_constant
from closedform.schedules.cosine import (
    cosine,
    cosine_annealing,
    cosine_k_decay,
    cosine_linear_envelope,
    cosine_with_min,
    flat_cosine,
    half_cosine,
)
from closedform.schedules.cyclic import cyclic
from closedform.schedules.decays import hyperbolic, rex, slanted_triangular, tanh_decay
from closedform.schedules.exponential import exponential, multiplicative, step_decay
from closedform.schedules.given import function, table
from closedform.schedules.inverse import inverse_square_root, inverse_time, noam, power
from closedform.schedules.one_cycle import one_cycle, one_cycle_momentum
from closedform.schedules.plateau import reduce_on_plateau
from closedform.schedules.polynomial import fsl, linear, polynomial
from closedform.schedules.refined import refined
from closedform.schedules.restarts import cosine_hard_restarts, jagged_restarts, warm_restarts
from closedform.schedules.stages import stages
from closedform.schedules.sweeps import geometric, range_test
from closedform.schedules.tails import (
    cosine_constant_tail,
    cosine_linear_tail,
    inverse_square_root_cooldown,
    power_with_tail,
)
from closedform.schedules.warmups import log_warmup, quadratic_warmup
from closedform.schedules.wsd import trapezoidal, tri_stage, wsd, wsd_checkpoints

__all__ = [
    "chained",
    "constant",
    "cosine",
    "cosine_annealing",
    "cosine_constant_tail",
    "cosine_hard_restarts",
    "cosine_k_decay",
    "cosine_linear_envelope",
    "cosine_linear_tail",
    "cosine_with_min",
    "cyclic",
    "exponential",
    "flat_cosine",
    "fsl",
    "function",
    "geometric",
    "half_cosine",
    "hyperbolic",
    "inverse_square_root",
    "inverse_square_root_cooldown",
    "inverse_time",
    "jagged_restarts",
    "linear",
    "log_warmup",
    "maximum",
    "multi_step",
    "multiplicative",
    "noam",
    "one_cycle",
    "one_cycle_momentum",
    "piecewise_constant",
    "polynomial",
    "power",
    "power_with_tail",
    "product",
    "quadratic_warmup",
    "range_test",
    "reduce_on_plateau",
    "refined",
    "repeat",
    "rex",
    "scale",
    "sequential",
    "slanted_triangular",
    "splice",
    "stages",
    "step_decay",
    "table",
    "tanh_decay",
    "trapezoidal",
    "tri_stage",
    "warm_restarts",
    "wsd",
    "wsd_checkpoints",
]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)


@with_lengths
def scale(schedule: Schedule, factor: Number) -> Schedule:
    r"""Returns ``factor`` times a schedule.

    .. math:: g(t) = c\, f(t)

    Args:
        schedule: The schedule f.
        factor: The factor c, such as that of a param group.

    Raises:
        DefinitionError: ``factor`` is not a finite number.

    Example:
        >>> scale(linear(0, 1, 10), 0.5).exact(10)
        1/2

    Source: ``ScalePerParamLR`` of cerebras.pytorch 2.10.
    """
    return schedule.scale(factor)

"""The library of schedules: one function per schedule, generic in what it schedules.

Each returns a ``Schedule`` whose formula keeps its hyperparameters as symbols.
"""

from __future__ import annotations

from typing import Any

from closedform.language import Schedule, chained, sequential
from closedform.schedules.constant import constant, multi_step, piecewise_constant
from closedform.schedules.cosine import cosine, cosine_annealing
from closedform.schedules.inverse import inverse_square_root
from closedform.schedules.polynomial import linear, polynomial

__all__ = [
    "chained",
    "constant",
    "cosine",
    "cosine_annealing",
    "inverse_square_root",
    "linear",
    "multi_step",
    "piecewise_constant",
    "polynomial",
    "scale",
    "sequential",
]


def scale(schedule: Schedule, factor: Any) -> Schedule:
    """Returns ``factor`` times a schedule.

    Raises:
        DefinitionError: ``factor`` is no finite number.

    Example:
        >>> scale(linear(0, 1, 10), 0.5).exact(10)
        1/2
    """
    return schedule.scale(factor)

"""Lengths of schedules in units other than updates: tokens, samples, micro-batches, epochs.

A schedule takes them where it takes a number of steps; facts of the run convert them to updates,
see :class:`~closedform.recipes.clock.Facts`.

Example:
    >>> from closedform import schedules, units
    >>> lr = schedules.linear(0, 1e-3, steps=units.tokens(1e6))
    >>> lr.resolve({"tokens_per_update": 50_000}).length
    20
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from closedform.errors import unknown_attribute
from closedform.recipes.clock import epochs, fraction, micro_batches, samples, tokens

__all__ = ["epochs", "fraction", "micro_batches", "samples", "tokens"]


if not TYPE_CHECKING:  # type checkers report unknown names themselves

    def __getattr__(name: str) -> NoReturn:
        raise unknown_attribute(__name__, name, __all__)


def __dir__() -> list[str]:
    return sorted(__all__)

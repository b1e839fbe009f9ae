"""The questions that a front end asks: exact constants, truths on intervals of steps, values.

The prover itself is above the importers; ``closedform.api`` passes one in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import sympy as sp


@dataclass(frozen=True, slots=True)
class ConditionRange:
    """The truth of a condition on the steps ``[first, end)``.

    Attributes:
        first: The first step.
        end: The step after the last one; None if there is no last one.
        truth: The truth at each of these steps; None if it changes, or is not decided.
    """

    first: int
    end: int | None
    truth: bool | None


class Prover(Protocol):
    """The questions of a front end to the prover. An answer is exact, or None."""

    def exact(self, number: float) -> sp.Expr:
        """Returns the number that a float was rounded from.

        It is the decimal that it prints as, or, where that is long, a simple fraction, multiple of
        pi or root nearby.
        """

    def split(self, condition: sp.Basic, first: int, end: int | None) -> list[ConditionRange]:
        """Returns the parts of the steps ``[first, end)`` on which a condition in t has one truth.

        The parts are in order, touch, and cover the steps.
        """

    def decide(self, condition: sp.Basic, facts: Sequence[sp.Basic]) -> bool | None:
        """Returns the truth of a condition wherever the facts hold; None if it is not decided."""

    def value(self, expr: sp.Expr, step: int) -> float | None:
        """Returns the value of an expression in t at a step, rounded; None if undefined."""

    def follows(
        self, expr: sp.Expr, first: sp.Expr, previous: sp.Symbol, following: sp.Expr
    ) -> bool | None:
        """Returns whether a recurrence has the values of an expression in t, by induction.

        Args:
            expr: The expression.
            first: The value at step 0.
            previous: The symbol of the value one step before.
            following: The value at step t >= 1, in ``previous`` and t.
        """


def interval_facts(clock: sp.Symbol, first: int, end: int | None) -> list[sp.Basic]:
    """Returns the facts that a clock is in ``[first, end)``."""
    facts: list[sp.Basic] = []
    if first > 0:
        facts.append(sp.Ge(clock, first, evaluate=False))
    if end is not None:
        facts.append(sp.Lt(clock, end, evaluate=False))
    return facts

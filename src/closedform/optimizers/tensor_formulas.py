"""Expressions that rules on whole tensors share: norms and factored moments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import (
    RANK,
    State,
    Without,
    expand_dims,
    hyper,
    local,
    reduce_mean,
    reduce_sum,
    state,
)
from closedform.language.aliases import Hyper
from closedform.optimizers.arguments import hyperparameter, is_zero
from closedform.optimizers.formulas import weighted

IS_FACTORED = sp.Ge(RANK, 2)
"""A matrix, or a batch of them: its second moment is stored as row and column factors."""


def clipped(name: str, clip_threshold: Hyper, where: str) -> tuple[Any, sp.Expr]:
    """Returns the checked hyperparameter ``clip_threshold``, and a definition scaled down by it.

    Raises:
        DefinitionError: It is a number that is not above 0.
    """
    value = hyperparameter(clip_threshold, "clip_threshold", where)
    if is_zero(value):
        raise DefinitionError("clip_threshold must be above 0, got 0", where=where)
    return value, local(name) / sp.Max(1, rms(local(name)) / hyper("clip_threshold"))


def norm(tensor: sp.Expr) -> sp.Expr:
    """Returns the Euclidean norm of all elements."""
    return sp.sqrt(reduce_sum(tensor**2))


def rms(tensor: sp.Expr) -> sp.Expr:
    """Returns the root of the mean square of all elements."""
    return sp.sqrt(reduce_mean(tensor**2))


@dataclass(frozen=True, slots=True)
class Factors:
    """The states of a factored running mean.

    Attributes:
        row: Name of the means over the last axis.
        column: Name of the means over the last axis but one.
        keepdims: Whether the axes stay, with size 1.
    """

    row: str
    column: str
    keepdims: bool = False

    def states(self) -> dict[str, State]:
        """Returns the two states, for parameters of two axes or more."""
        return {
            name: State(local(name), 0, Without((axis,), self.keepdims), IS_FACTORED)
            for name, axis in ((self.row, -1), (self.column, -2))
        }

    def definitions(self, square: sp.Expr, decay: sp.Expr) -> dict[str, sp.Expr]:
        """Returns their next values, by the names of the states."""
        return {
            name: weighted(state(name), reduce_mean(square, (axis,), self.keepdims), decay)
            for name, axis in ((self.row, -1), (self.column, -2))
        }

    def root(self) -> sp.Expr:
        """Returns the root of R C / mean(R), R and C the next values, in the parameter's shape.

        The roots of the two factors are multiplied, not the factors, which would overflow first.
        """
        row, column = local(self.row), local(self.column)
        row_mean_axis = -2 if self.keepdims else -1
        share = sp.sqrt(row / reduce_mean(row, (row_mean_axis,), keepdims=True))
        if self.keepdims:
            return share * sp.sqrt(column)
        return expand_dims(share, -1) * expand_dims(sp.sqrt(column), -2)

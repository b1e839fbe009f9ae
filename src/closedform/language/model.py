"""Whole-model quantities of a rule: sums over all parameters, and states common to all.

A sum over all elements of all parameters is a scalar: each tensor (or each shard of one) gives its
part, the parts are added, and what follows from the total is computed once. ``global_sum`` is the
total, and may be used wherever a scalar may.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.aliases import Operand
from closedform.language.symbols import exact_number


class GlobalSum(sp.Function):
    """Sum of an expression over all elements of all parameters of the model, a scalar."""

    is_elementwise = False  # see sympy_corrections
    nargs = 1

    def _eval_is_real(self) -> bool:
        return True


class NonFinite(sp.Function):
    """1 where a number is infinite or no number, 0 elsewhere."""

    nargs = 1

    @classmethod
    def eval(cls, x: sp.Expr) -> sp.Expr | None:
        """Is 0 for a number: numbers of expressions are finite."""
        return sp.Integer(0) if x.is_number else None

    def _eval_is_real(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Shared:
    """A state of the whole model: one number, whatever the parameters.

    Attributes:
        next: Its value after the step, an expression in ``t``, hyperparameters, ``shared(name)``
            and ``counter(name)`` symbols and global sums.
        initial: Its value before the first step.
        is_counter: Whether it is an integer >= 0, stored in the dtype of the step; otherwise it is
            stored in the dtype of scalars.
    """

    next: sp.Expr
    initial: Any = 0
    is_counter: bool = False


def shared(name: str) -> sp.Symbol:
    """Returns the symbol of a state of the whole model, before the step."""
    return sp.Symbol(f"shared.{name}", real=True)


def counter(name: str) -> sp.Symbol:
    """Returns the symbol of a state of the whole model that counts, before the step."""
    return sp.Symbol(f"shared.{name}", integer=True, nonnegative=True)


def tensor_input(name: str) -> sp.Symbol:
    """Returns the symbol of a tensor other than the gradient, such as an estimated Hessian."""
    return sp.Symbol(f"input.{name}", real=True)


def global_sum(x: Operand) -> sp.Expr:
    """Returns the sum over all elements of all parameters.

    Args:
        x: An expression in the tensors of a parameter; it may hold global sums itself.

    Raises:
        DefinitionError: It is not an expression in tensors.

    Example:
        >>> from closedform.language import GRAD
        >>> sp.sqrt(global_sum(GRAD**2))
        sqrt(GlobalSum(grad**2))
    """
    if not isinstance(x, sp.Expr) or not x.free_symbols:
        raise DefinitionError(f"global_sum needs an expression in tensors, got {x!r}")
    return GlobalSum(x)


def non_finite(x: Operand) -> sp.Expr:
    """Returns 1 where an expression is infinite or no number, 0 elsewhere."""
    return NonFinite(x if isinstance(x, sp.Expr) else exact_number(x, "argument of non_finite"))

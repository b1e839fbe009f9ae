"""Functions of our own, inert where SymPy's are wrong or too clever.

``floor_div`` and ``floor_mod`` stay as written: SymPy 1.14's ``Mod`` is wrong at construction for
multiples of a ``Mod`` (``Mod(3*Mod(t, 6), 8)``). Tensor functions are no SymPy products, since a
scalar product commutes and a matrix product must not.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform.language.numbers import exact_number


class FloorDiv(sp.Function):
    """Integer quotient ``floor(a / b)`` of two real numbers, b != 0."""

    nargs = 2

    @classmethod
    def eval(cls, a: sp.Expr, b: sp.Expr) -> sp.Expr | None:
        """Computes on rational numbers; anything else stays as it is."""
        if a.is_Rational and b.is_Rational and b != 0:
            return sp.Integer((a / b).__floor__())
        return None

    def _eval_is_integer(self) -> bool:
        return True

    def _eval_is_finite(self) -> bool:
        return True

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        body = rf"\left\lfloor {printer._print(self.args[0] / self.args[1])} \right\rfloor"
        return body if exp is None else f"{body}^{{{exp}}}"


class FloorMod(sp.Function):
    """Remainder ``a - b*floor(a / b)`` of two real numbers, b != 0; it has the sign of b."""

    nargs = 2

    @classmethod
    def eval(cls, a: sp.Expr, b: sp.Expr) -> sp.Expr | None:
        """Computes on rational numbers; anything else stays as it is."""
        if a.is_Rational and b.is_Rational and b != 0:
            return a - b * sp.Integer((a / b).__floor__())
        return None

    def _eval_is_integer(self) -> bool | None:
        return True if all(arg.is_integer for arg in self.args) else None

    def _eval_is_real(self) -> bool | None:
        return True if all(arg.is_real for arg in self.args) else None

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        left, right = (printer._print(arg) for arg in self.args)
        body = rf"\left({left} \bmod {right}\right)"
        return body if exp is None else f"{body}^{{{exp}}}"


class ReduceSum(sp.Function):
    """Sum of a tensor over all its axes, a scalar."""

    nargs = 1

    def _eval_is_real(self) -> bool:
        return True


class MatMul(sp.Function):
    """Matrix product over the last two axes."""

    nargs = 2

    def _eval_is_real(self) -> bool:
        return True


class Transpose(sp.Function):
    """A tensor with its last two axes exchanged."""

    nargs = 1

    def _eval_is_real(self) -> bool:
        return True


def _expression(value: Any, function: str) -> sp.Expr:
    return value if isinstance(value, sp.Expr) else exact_number(value, f"argument of {function}")


def floor_div(a: Any, b: Any) -> sp.Expr:
    """Returns ``floor(a / b)``, inert: SymPy does not rewrite it."""
    return FloorDiv(_expression(a, "floor_div"), _expression(b, "floor_div"))


def floor_mod(a: Any, b: Any) -> sp.Expr:
    """Returns ``a - b*floor(a / b)``, inert: SymPy does not rewrite it."""
    return FloorMod(_expression(a, "floor_mod"), _expression(b, "floor_mod"))


def reduce_sum(x: Any) -> sp.Expr:
    """Returns the sum of all elements of a tensor."""
    return ReduceSum(_expression(x, "reduce_sum"))


def matmul(a: Any, b: Any) -> sp.Expr:
    """Returns the matrix product of two tensors over their last two axes."""
    return MatMul(_expression(a, "matmul"), _expression(b, "matmul"))


def transpose(x: Any) -> sp.Expr:
    """Returns a tensor with its last two axes exchanged."""
    return Transpose(_expression(x, "transpose"))

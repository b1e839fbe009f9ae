"""Integer quotient and remainder, inert where SymPy's are wrong or too clever.

SymPy 1.14's ``Mod`` is wrong at construction for multiples of a ``Mod`` (``Mod(3*Mod(t, 6), 8)``).
"""

from __future__ import annotations

from typing import Any

import sympy as sp
from sympy.printing.precedence import PRECEDENCE

from closedform.language.aliases import Operand
from closedform.language.symbols import operand


class FloorDiv(sp.Function):
    """Integer quotient ``floor(a / b)`` of two real numbers, b != 0."""

    nargs = 2

    @classmethod
    def eval(cls, a: sp.Expr, b: sp.Expr) -> sp.Expr | None:
        """Computes on rational numbers; anything else stays as it is."""
        if a.is_Rational and b.is_Rational and b != 0:
            # On rationals only: for symbols SymPy's floor applies rules about parities (see
            # sympy_corrections).
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
        level = PRECEDENCE["Mul"]
        left = printer.parenthesize(self.args[0], level, strict=True)
        right = printer.parenthesize(self.args[1], level)
        body = rf"\left({left} \bmod {right}\right)"
        return body if exp is None else f"{body}^{{{exp}}}"


def floor_div(a: Operand, b: Operand) -> sp.Expr:
    """Returns ``floor(a / b)``, inert: SymPy does not rewrite it."""
    return FloorDiv(operand(a, "floor_div"), operand(b, "floor_div"))


def floor_mod(a: Operand, b: Operand) -> sp.Expr:
    """Returns ``a - b*floor(a / b)``, inert: SymPy does not rewrite it."""
    return FloorMod(operand(a, "floor_mod"), operand(b, "floor_mod"))


def integer_floor(expr: sp.Expr) -> sp.Expr:
    """Returns the floor of an expression; of a fraction of integers as an integer quotient."""
    if expr.is_integer:
        return expr
    above, below = expr.as_numer_denom()
    return floor_div(above, below) if below.is_Integer and below != 1 else floor_div(expr, 1)

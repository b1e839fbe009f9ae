"""Exact numbers: the value of a Python number in an expression."""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral, Rational, Real

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.aliases import Operand


def exact_number(value: object, name: str = "value") -> sp.Expr:
    """Returns the exact SymPy number of a Python number.

    An int is itself, a float is the decimal that its repr shows (``0.1`` is 1/10), a Fraction and
    a SymPy number are themselves, with SymPy Floats read like Python floats.

    Args:
        value: The number.
        name: What the number is for, named in errors.

    Raises:
        DefinitionError: Not a number, a bool, a string, not finite, or not real.
    """
    if isinstance(value, bool | str) or not isinstance(value, Real | sp.Expr | Fraction):
        raise DefinitionError(
            f"{name} must be a number, got {type(value).__name__} {value!r}",
            hint="give an int, a float, a Fraction or a SymPy number",
        )
    if isinstance(value, sp.Expr):
        return _exact_sympy(value, name)
    if isinstance(value, Integral):
        return sp.Integer(int(value))
    if isinstance(value, Rational):
        return sp.Rational(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise DefinitionError(f"{name} must be finite, got {number}")
    # A float32 or float16 scalar keeps the digits of its repr: str() shows them.
    text = repr(number) if isinstance(value, float) else str(value)
    return sp.Rational(text)


def _exact_sympy(value: sp.Expr, name: str) -> sp.Expr:
    if not value.is_number:
        raise DefinitionError(f"{name} must be a number, got the expression {value}")
    result = rationalize(value)
    if result.is_finite is False or result.is_extended_real is False or result.has(sp.nan):
        raise DefinitionError(f"{name} must be finite and real, got {value}")
    return result


def operand(value: Operand, function: str) -> sp.Expr:
    """Returns an argument of a function: an expression as it is, or the exact number."""
    return value if isinstance(value, sp.Expr) else exact_number(value, f"argument of {function}")


def rationalize(expr: sp.Basic) -> sp.Basic:
    """Returns ``expr`` with each Float replaced by the decimal that its shortest repr shows."""
    floats = {number: sp.Rational(repr(float(number))) for number in expr.atoms(sp.Float)}
    return expr.xreplace(floats) if floats else expr

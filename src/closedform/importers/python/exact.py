"""Constants of a traced function: Python numbers that also know their exact value.

``ExactFloat`` is the float that Python computes, for comparisons and conversions to integers, and
the exact number, for the schedule: ``0.1 * 3`` is the float 0.30000000000000004 and the number
3/10. ``ExactInt`` is an integer whose quotients and roots are exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.place import UserValue
from closedform.language.exact import FINEST
from closedform.magnitude import bits, power_bits

_MOST_BITS = 2000
"""Longer rational numbers are replaced by their floats."""
# A float prints 17 digits at most; one that was computed has nearly always more than 12.
_MOST_DIGITS = 12
"""A float whose decimal has at most so many digits is that decimal."""


class ExactFloat(float):
    """A float and the number that it was rounded from."""

    __slots__ = ("expr",)
    expr: sp.Expr

    def item(self) -> ExactFloat:
        """Returns itself, as a scalar of numpy or torch does."""
        return self


class ExactFloat64(np.float64):
    """A float64 of NumPy and the number that it was rounded from."""

    expr: sp.Expr

    def item(self, *place: Any) -> float:
        """Returns the number as one of Python, with the exact one."""
        return exact_constant(float(self), self.expr)


class ExactInt(int):
    """An integer whose quotients and powers are exact."""

    @property
    def expr(self) -> sp.Expr:
        """The integer in SymPy."""
        return sp.Integer(int(self))

    def item(self) -> ExactInt:
        """Returns itself, as a scalar of numpy or torch does."""
        return self


def exact_constant(value: float, expr: sp.Expr) -> float:
    """Returns a float of the same type with its exact number; the float if that is too long."""
    if not math.isfinite(value):
        return value
    if expr.is_Rational and bits(_fraction(expr)) > _MOST_BITS:
        return value
    constant = ExactFloat64(value) if isinstance(value, np.float64) else ExactFloat(value)
    constant.expr = expr
    return constant


def is_decimal(value: float, digits: int = _MOST_DIGITS) -> bool:
    """Returns whether a float prints as a decimal of few digits."""
    mantissa = repr(float(value)).lower().partition("e")[0]
    return len(mantissa.replace(".", "").strip("-0")) <= digits


def number_of(value: object) -> sp.Expr | None:
    """Returns the exact number of a constant; None where its float may be rounded."""
    if isinstance(value, ExactFloat | ExactFloat64):
        return value.expr
    if isinstance(value, int):
        return sp.Integer(int(value))
    if isinstance(value, float) and math.isfinite(value) and is_decimal(value):
        # repr is the shortest decimal that rounds to the float: 0.1 and not 3602879701896397/2**55.
        return sp.Rational(repr(float(value)))
    return None


def power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr | None:
    """Returns a power of two numbers; None where SymPy would not end, or it is not real."""
    if not exponent.is_Rational or (base.is_Rational and base <= 0 and not exponent.is_Integer):
        return None
    if exponent.q > FINEST or (base == 0 and exponent < 0):
        return None
    if base.is_Rational and power_bits(_fraction(base), _fraction(exponent)) > _MOST_BITS:
        return None
    return base**exponent


def _fraction(number: sp.Rational) -> Fraction:
    return Fraction(int(number.p), int(number.q))


def cosine(angle: sp.Expr) -> sp.Expr:
    """Returns a cosine, not as roots: SymPy makes sqrt(2)/2 of cos(pi/4), and five of cos(pi/60).

    The prover knows the relations of cosines of one unit, and none of radicals with them.
    """
    return _without_roots(sp.cos, angle)


def sine(angle: sp.Expr) -> sp.Expr:
    """Returns a sine, not as roots."""
    return _without_roots(sp.sin, angle)


def _without_roots(function: Callable[..., sp.Expr], angle: sp.Expr) -> sp.Expr:
    value = function(angle)
    is_root = angle.is_number and not value.is_Rational
    return function(angle, evaluate=False) if is_root else value


def _with_expression(value: Any, expr: sp.Expr | None) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if isinstance(value, int):
        return ExactInt(value)
    return value if expr is None else exact_constant(value, expr)


Symbolic = Callable[[sp.Expr, sp.Expr], "sp.Expr | None"]


def _plain(value: Any) -> Any:
    """The number itself, of the builtin type or NumPy's."""
    # A float64 stays one: its division by 0 is an infinity, where that of float raises.
    if isinstance(value, np.float64):
        return np.float64(value)
    return float(value) if isinstance(value, float) else int(value)


def _binary(function: Callable[[Any, Any], Any], symbolic: Symbolic, *, is_swapped: bool) -> Any:
    def method(self: UserValue, operand: UserValue) -> Any:
        if not isinstance(operand, int | float):
            return NotImplemented
        left, right = (operand, self) if is_swapped else (self, operand)
        value = function(_plain(left), _plain(right))
        if isinstance(value, int):
            return ExactInt(value)
        numbers = number_of(left), number_of(right)
        if numbers[0] is None or numbers[1] is None:
            return value
        return _with_expression(value, symbolic(*numbers))

    return method


_OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Symbolic]] = {
    "add": (operator.add, lambda a, b: a + b),
    "sub": (operator.sub, lambda a, b: a - b),
    "mul": (operator.mul, lambda a, b: a * b),
    "truediv": (operator.truediv, lambda a, b: a / b),
    "floordiv": (operator.floordiv, lambda a, b: None),
    "mod": (operator.mod, lambda a, b: None),
    "pow": (operator.pow, power),
}

for _kind in (ExactFloat, ExactFloat64, ExactInt):
    for _name, (_function, _symbolic) in _OPERATIONS.items():
        setattr(_kind, f"__{_name}__", _binary(_function, _symbolic, is_swapped=False))
        setattr(_kind, f"__r{_name}__", _binary(_function, _symbolic, is_swapped=True))


def _float_unary(function: Callable[[Any], Any]) -> Any:
    return lambda self: exact_constant(function(_plain(self)), function(self.expr))


def _plain_ufunc(_: UserValue, ufunc: Any, method: str, *inputs: UserValue, **names: Any) -> Any:
    """A function of NumPy on Python's own numbers: its scalars keep their type next to those."""
    plain = (_plain(arg) if isinstance(arg, ExactFloat | ExactInt) else arg for arg in inputs)
    return getattr(ufunc, method)(*plain, **names)


ExactFloat.__array_ufunc__ = _plain_ufunc  # type: ignore[attr-defined]
ExactInt.__array_ufunc__ = _plain_ufunc  # type: ignore[attr-defined]

for _name, _unary in (("neg", operator.neg), ("abs", abs), ("pos", operator.pos)):
    for _kind in (ExactFloat, ExactFloat64):
        setattr(_kind, f"__{_name}__", _float_unary(_unary))
    setattr(ExactInt, f"__{_name}__", lambda self, unary=_unary: ExactInt(unary(int(self))))

"""Exact values of expressions at one step: branch by branch, in SymPy numbers.

Only the branch that is taken is evaluated, so a pole in another one does no harm. An And or Or has
a value where its arguments that have values decide it, in whatever order they are written: SymPy
sorts them. ``ITE(c, a, b)`` means ``(c & a) | (~c & b)``. The prover and graphs do the same.
"""

from __future__ import annotations

from fractions import Fraction

import sympy as sp
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFunction

from closedform.errors import DomainError

# Digits at which an irrational comparison is decided, and a value is rounded to float64.
_DIGITS = 60
# Rational powers of more bits than this become Floats: (999/1000)**(2**50) would never end.
_MOST_BITS = 100_000
_LONG_DIGITS = 80

# Roots of rational numbers of more bits than this become Floats: SymPy factors the base, which took
# minutes for the roots of RAdam's rectification at t = 300.
_LARGEST_ROOT = 256

# Powers with a finer exponent are Floats, too: 24**(14234567890123457/10**16) would never end in
# SymPy 1.14, which works 3**14234567890123457 out.
FINEST = 10_000
"""The largest denominator of an exponent of which SymPy works powers of numbers out."""


def value_at(expr: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    """Returns the exact value of ``expr`` with each symbol replaced by its number.

    Raises:
        DomainError: No branch of a Piecewise holds, or the value is not finite and real.
    """
    result = _value(expr, values)
    if result.is_finite is False or result.is_extended_real is False or result.has(sp.nan, sp.zoo):
        raise DomainError(f"the value is {result}, not a finite real number", where=_place(values))
    return result


def holds_at(condition: sp.Basic, values: dict[sp.Symbol, sp.Expr]) -> bool:
    """Returns whether a condition of a Piecewise holds at these values.

    Raises:
        DomainError: It has no value there, or is not a comparison.
    """
    if condition in (sp.true, sp.false):
        return bool(condition)
    if isinstance(condition, sp.And | sp.Or):
        return _junction_at(condition, values)
    if isinstance(condition, sp.Not):
        return not holds_at(condition.args[0], values)
    if isinstance(condition, sp.ITE):
        return _choice_at(condition, values)
    if not isinstance(condition, Relational) or isinstance(condition, BooleanFunction):
        raise DomainError(f"{condition} is not a comparison", where=_place(values))
    left, right = (_value(arg, values) for arg in condition.args)
    difference = left - right
    sign = _sign(difference, values)
    return bool(condition.func(sp.Integer(sign), sp.Integer(0)))


def _junction_at(condition: sp.Basic, values: dict[sp.Symbol, sp.Expr]) -> bool:
    """An And or Or; an argument may have no value where another one decides."""
    decisive = isinstance(condition, sp.Or)
    undefined: DomainError | None = None
    for arg in condition.args:
        try:
            if holds_at(arg, values) is decisive:
                return decisive
        except DomainError as error:
            undefined = error
    if undefined is not None:
        raise undefined
    return not decisive


def _choice_at(condition: sp.ITE, values: dict[sp.Symbol, sp.Expr]) -> bool:
    test, yes, no = condition.args
    try:
        is_taken = holds_at(test, values)
    except DomainError:
        if not holds_at(yes, values) and not holds_at(no, values):
            return False
        raise
    return holds_at(yes if is_taken else no, values)


def to_float(value: sp.Expr) -> float:
    """Returns the float64 nearest to an exact number."""
    if value.is_Rational:
        return float(Fraction(int(value.p), int(value.q)))
    return float(sp.N(value, _DIGITS))


def _sign(number: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> int:
    if number.is_Rational:
        return int(sp.sign(number))
    approximate = sp.N(number, _DIGITS)
    if not approximate.is_real:
        raise DomainError(f"cannot compare {number} with 0", where=_place(values))
    return 0 if abs(approximate) < sp.Float(10) ** (-_DIGITS // 2) else int(sp.sign(approximate))


def _value(expr: sp.Expr, values: dict[sp.Symbol, sp.Expr]) -> sp.Expr:
    if isinstance(expr, sp.Symbol):
        if expr not in values:
            raise DomainError(f"{expr} has no value", where=_place(values), hint="bind it first")
        return values[expr]
    if not expr.args:
        return expr
    if isinstance(expr, sp.Piecewise):
        for branch, condition in expr.args:
            if holds_at(condition, values):
                return _value(branch, values)
        raise DomainError("Piecewise has no value", where=_place(values), hint="add a final branch")
    args = [_value(arg, values) for arg in expr.args]
    return _power(*args) if isinstance(expr, sp.Pow) else expr.func(*args)


def _power(base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
    """A power, as a Float of many digits where the exact one would be too long to work out."""
    if base.is_Rational and exponent.is_Rational:
        bits = max(int(base.p).bit_length(), int(base.q).bit_length())
        is_long_root = exponent.q > 1 and bits > _LARGEST_ROOT
        if bits * abs(exponent) > _MOST_BITS or exponent.q > FINEST or is_long_root:
            return sp.Float(base, _LONG_DIGITS) ** exponent
    return base**exponent


def _place(values: dict[sp.Symbol, sp.Expr]) -> str:
    return ", ".join(f"{symbol} = {value}" for symbol, value in values.items())

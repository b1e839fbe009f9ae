"""An evaluator of SymPy expressions that shares no code with the library: Fraction and mpmath.

Rational operations are exact; transcendental ones have 60 digits, so that comparing against a
float64 result loses nothing.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import mpmath
import sympy as sp
from sympy.core.relational import Relational

from closedform.language import FloorDiv, FloorMod

mpmath.mp.dps = 60

Number = Fraction | Any


class UndefinedError(ValueError):
    """The expression has no finite real value at this point."""


def evaluate_exactly(expr: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> Number:
    """Returns the value as a Fraction where it is rational by arithmetic, else as an mpf."""
    if isinstance(expr, sp.Symbol):
        return values[expr]
    if expr.is_Rational:
        return Fraction(int(expr.p), int(expr.q))
    if expr == sp.pi:
        return mpmath.mpf(mpmath.pi)
    if expr == sp.E:
        return mpmath.mpf(mpmath.e)
    if isinstance(expr, sp.Piecewise):
        for value, condition in expr.args:
            if holds_exactly(condition, values):
                return evaluate_exactly(value, values)
        raise UndefinedError(f"no branch of {expr}")
    args = [evaluate_exactly(arg, values) for arg in expr.args]
    return _apply(expr, args)


def holds_exactly(condition: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> bool:
    """Returns whether a condition holds."""
    if condition in (sp.true, sp.false):
        return bool(condition)
    if isinstance(condition, sp.And):
        return all(holds_exactly(arg, values) for arg in condition.args)
    if isinstance(condition, sp.Or):
        return any(holds_exactly(arg, values) for arg in condition.args)
    if isinstance(condition, sp.Not):
        return not holds_exactly(condition.args[0], values)
    if isinstance(condition, sp.ITE):
        test, yes, no = condition.args
        return holds_exactly(yes if holds_exactly(test, values) else no, values)
    assert isinstance(condition, Relational), condition
    left, right = (mpf(evaluate_exactly(arg, values)) for arg in condition.args)
    table = {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}
    table |= {"==": left == right, "!=": left != right}
    return bool(table[condition.rel_op])


def mpf(number: Number) -> Any:
    """Returns a number as an mpf."""
    if isinstance(number, Fraction):
        return mpmath.mpf(number.numerator) / number.denominator
    return number


def _apply(expr: sp.Basic, args: list[Number]) -> Number:
    if isinstance(expr, sp.Add):
        return _sum(args)
    if isinstance(expr, sp.Mul):
        product: Number = Fraction(1)
        for arg in args:
            product = product * arg if _both(product, arg) else mpf(product) * mpf(arg)
        return product
    if isinstance(expr, sp.Pow):
        return _power(*args)
    if isinstance(expr, sp.Min):
        return min(args, key=mpf)
    if isinstance(expr, sp.Max):
        return max(args, key=mpf)
    if isinstance(expr, sp.Abs):
        return abs(args[0])
    if isinstance(expr, sp.floor | sp.ceiling):
        rounding = math.floor if isinstance(expr, sp.floor) else math.ceil
        return Fraction(rounding(args[0]))
    if isinstance(expr, FloorDiv | FloorMod | sp.Mod):
        return _division(expr, *args)
    return _transcendental(expr, args[0])


def _both(a: Number, b: Number) -> bool:
    return isinstance(a, Fraction) and isinstance(b, Fraction)


def _sum(args: list[Number]) -> Number:
    rational = sum((arg for arg in args if isinstance(arg, Fraction)), Fraction(0))
    others = [arg for arg in args if not isinstance(arg, Fraction)]
    return rational if not others else mpf(rational) + mpmath.fsum(others)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        if base == 0 and exponent < 0:
            raise UndefinedError("0 to a negative power")
        small = abs(exponent.numerator) <= 64
        return base**exponent.numerator if small else mpf(base) ** int(exponent)
    if mpf(base) < 0 or (mpf(base) == 0 and mpf(exponent) < 0):
        raise UndefinedError(f"{base} to the power of {exponent}")
    return mpf(base) ** mpf(exponent)


def _division(expr: sp.Basic, a: Number, b: Number) -> Number:
    if b == 0:
        raise UndefinedError("division by zero")
    quotient = Fraction(math.floor(a / b if _both(a, b) else mpf(a) / mpf(b)))
    if isinstance(expr, FloorDiv):
        return quotient
    return a - b * quotient if _both(a, b) else mpf(a) - mpf(b) * mpf(quotient)


def _transcendental(expr: sp.Basic, arg: Number) -> Number:
    if isinstance(expr, sp.log) and mpf(arg) <= 0:
        raise UndefinedError(f"log of {arg}")
    functions = {sp.log: mpmath.log, sp.exp: mpmath.exp, sp.cos: mpmath.cos, sp.sin: mpmath.sin}
    functions |= {sp.tan: mpmath.tan, sp.tanh: mpmath.tanh, sp.atan: mpmath.atan}
    functions |= {sp.re: lambda x: x}  # all are real
    return functions[expr.func](mpf(arg))

"""An enclosure around the value that float64 arithmetic may return, by python-flint's arb.

Evaluating at 46 bits gives an enclosure that holds the exact value and every value that an
evaluation in 53 bits can reach whose single operations are off by up to 64 ulp together: seven bits
are the slack for the ops whose engines are off by a few ulp (see the op table) and for other orders
of operation. Where a comparison or a floor cannot be decided within the enclosure,
float64 may fall on either side, and the point is undecided.
"""

import functools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import sympy as sp
from sympy.core.relational import Relational

from closedform.language import FloorDiv, FloorMod
from closedform.lowering.safe_operand import SafeOperand

BITS = 46


class UndecidedError(ValueError):
    """Rounding decides which branch is taken, or whether the value is defined."""


@dataclass(frozen=True)
class Number:
    """An enclosure, and the exact value where the compiler promises exact decisions.

    That is for rational multiples of integers; their comparisons and floors are done in integers.
    """

    enclosure: Any
    exact: Fraction | None = None


def enclosure(expr: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> Any:
    """Returns an arb enclosure of the value of ``expr``."""
    before = flint.ctx.prec
    flint.ctx.prec = BITS
    try:
        result = _evaluate(expr, values).enclosure
        # One rounding of the result itself, also where all before was exact.
        result = result + flint.arb(0, abs(result).upper() * flint.arb(2) ** -BITS)
    finally:
        flint.ctx.prec = before
    if not result.is_finite():
        raise UndecidedError(f"the enclosure of {expr} is {result}")
    return result


def _number(exact: Fraction) -> Number:
    return Number(flint.arb(flint.fmpq(exact.numerator, exact.denominator)), exact)


def _evaluate(expr: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> Number:
    if isinstance(expr, sp.Symbol):
        return _number(values[expr])
    if expr.is_Rational:
        return _number(Fraction(int(expr.p), int(expr.q)))
    if expr in (sp.pi, sp.E):
        return Number(flint.arb.pi() if expr == sp.pi else flint.arb(1).exp())
    if isinstance(expr, SafeOperand):
        return _evaluate(expr.piecewise, values)
    if isinstance(expr, sp.Piecewise):
        return _evaluate(taken(expr, values), values)
    args = [_evaluate(arg, values) for arg in expr.args]
    exacts = [arg.exact for arg in args if arg.exact is not None]
    is_exact = len(exacts) == len(args)
    if isinstance(expr, sp.Mul):
        is_exact = is_exact and sum(1 for arg in expr.args if arg.free_symbols) <= 1
    rule = _EXACT.get(expr.func)
    exact = rule(exacts) if rule is not None and is_exact else None
    if isinstance(expr, sp.floor | sp.ceiling | FloorDiv | FloorMod | sp.Mod):
        return _rounded(expr, args, exact)
    return Number(_ENCLOSURES[expr.func]([arg.enclosure for arg in args]), exact)


def taken(expr: sp.Piecewise, values: Mapping[sp.Symbol, Fraction]) -> sp.Expr:
    """Returns the value of the branch that is taken."""
    for value, condition in expr.args:
        if _holds(condition, values):
            return value
    raise UndecidedError("no branch")


def _rounded(expr: sp.Basic, args: list[Number], exact: Fraction | None) -> Number:
    if exact is not None:
        return _number(exact)
    if not isinstance(expr, sp.floor):
        raise UndecidedError(f"{expr.func} of an inexact number")
    low, high = args[0].enclosure.lower().floor(), args[0].enclosure.upper().floor()
    if not (low.is_finite() and low == high):
        raise UndecidedError(f"floor of {args[0].enclosure}")
    return _number(Fraction(int(low.unique_fmpz())))


def _power(args: list[Any]) -> Any:
    base, exponent = args
    if exponent.is_exact() and exponent.is_integer():
        return base ** int(exponent.unique_fmpz())
    if exponent == flint.arb(1) / 2:
        return base.sqrt()
    return flint.arb(0) if base == 0 else base**exponent


def _fold(combine: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Any]:
    return lambda args: functools.reduce(combine, args)


_EXACT: Mapping[Any, Callable[[list[Fraction]], Fraction]] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.Min: min,
    sp.Max: max,
    sp.Abs: lambda args: abs(args[0]),
    sp.floor: lambda args: Fraction(math.floor(args[0])),
    sp.ceiling: lambda args: Fraction(math.ceil(args[0])),
    FloorDiv: lambda args: Fraction(math.floor(args[0] / args[1])),
    FloorMod: lambda args: args[0] % args[1],
    sp.Mod: lambda args: args[0] % args[1],
}

_ENCLOSURES: Mapping[Any, Callable[[list[Any]], Any]] = {
    sp.Add: _fold(operator.add),
    sp.Mul: _fold(operator.mul),
    sp.Min: _fold(lambda a, b: a.min(b)),
    sp.Max: _fold(lambda a, b: a.max(b)),
    sp.Abs: lambda args: abs(args[0]),
    sp.re: lambda args: args[0],  # SymPy's Abs(2**x) is 2**re(x); all values are real
    sp.Pow: _power,
    sp.exp: lambda args: args[0].exp(),
    sp.log: lambda args: args[0].log(),
    sp.cos: lambda args: args[0].cos(),
    sp.sin: lambda args: args[0].sin(),
    sp.atan: lambda args: args[0].atan(),
    sp.tanh: lambda args: args[0].tanh(),
}


def _holds(condition: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> bool:
    if condition in (sp.true, sp.false):
        return bool(condition)
    if isinstance(condition, sp.And | sp.Or):
        return _junction(condition, values)
    if isinstance(condition, sp.Not):
        return not _holds(condition.args[0], values)
    if isinstance(condition, sp.ITE):
        test, yes, no = condition.args
        return _holds(yes if _holds(test, values) else no, values)
    assert isinstance(condition, Relational), condition
    left, right = (_evaluate(arg, values) for arg in condition.args)
    if left.exact is not None and right.exact is not None:
        sign = (left.exact > right.exact) - (left.exact < right.exact)
    else:
        difference = left.enclosure - right.enclosure
        if difference.contains(0) or not difference.is_finite():
            raise UndecidedError(f"{condition}")
        sign = (difference > 0) - (difference < 0)
    table = {"<": sign < 0, "<=": sign <= 0, ">": sign > 0, ">=": sign >= 0}
    return bool({**table, "==": sign == 0, "!=": sign != 0}[condition.rel_op])


def _junction(condition: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> bool:
    """An And or Or; an argument may be undecided where another one decides."""
    decisive = isinstance(condition, sp.Or)
    outcomes: list[bool | None] = []
    for arg in condition.args:
        try:
            outcomes.append(_holds(arg, values))
        except UndecidedError:
            outcomes.append(None)
    if decisive in outcomes:
        return decisive
    if None in outcomes:
        raise UndecidedError(str(condition))
    return not decisive

"""Calls of SymPy's constructors, without the work of those that leave their operands unchanged.

``Min(a, b)`` asks SymPy whether one operand is never above the other, ``a < b`` whether it always
holds, ``cos(a)`` whether a is a multiple of pi: through the signs and parities of differences,
factors and derivatives, 1 to 20 ms in each case. The answer is usually no, and two numbers of the
clock show it in microseconds: one at which a is below b, and one at which it is above. SymPy, which
decides nothing that is wrong, then returns the expression that it returns with ``evaluate=False``.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy as sp

from closedform.language.symbols import t

_LARGEST_POWER = 4
_MOST_MARKS = 8

_POSITIVE_INTEGER = sp.Symbol("n", integer=True, positive=True).assumptions0
_CLOCK = {t}

_STEPS = (0, 1, 2, 30, 1000, 10**6, 2**45)
"""Numbers of the clock: the operands of a schedule cross between two of them."""

_EXTREMA = (sp.Min, sp.Max)
_ORDERS = (sp.Lt, sp.Le, sp.Gt, sp.Ge)


def made(func: type[sp.Basic], *operands: sp.Basic | int) -> Any:
    """Returns ``func(*operands)``.

    Example:
        >>> from closedform.language.symbols import t
        >>> from sympy import Integer, Min
        >>> made(Min, t, Integer(100))
        Min(100, t)
        >>> made(Min, t, t + 1)
        t
    """
    args = [sp.Integer(each) if isinstance(each, int) else each for each in operands]
    try:
        if func is sp.cos:
            angle = _reduced(args[0])
            return func(args[0]) if angle is None else func(angle, evaluate=False)
        if (func in _EXTREMA and _is_flat(func, args)) or func in _ORDERS:
            return func(*args, evaluate=not _has_no_order(args))
    except _UnknownError:
        pass
    return func(*args)


def _is_flat(func: type[sp.Basic], args: Sequence[sp.Basic]) -> bool:
    """Whether at most one operand of a Min or Max is a Max or Min, and shares no operand."""
    nested = [arg for arg in args if isinstance(arg, _EXTREMA)]
    if len(nested) > 1 or any(isinstance(arg, func) for arg in nested):
        return False
    parts = {part for arg in nested for part in sp.preorder_traversal(arg)}
    return not any(arg in parts for arg in args if arg not in nested)


def _has_no_order(args: Sequence[sp.Basic]) -> bool:
    """Whether each of two operands is above the other one somewhere."""
    undecided = set(itertools.combinations(range(len(args)), 2))
    orders: dict[tuple[int, int], bool] = {}
    for values in _samples(args):
        for pair in tuple(undecided):
            one, other = (values[index] for index in pair)
            if one != other and orders.setdefault(pair, one < other) is not (one < other):
                undecided.discard(pair)
        if not undecided:
            return True
    return False


def _reduced(angle: sp.Basic) -> sp.Expr | None:
    """An angle pi*x as a cosine holds it; None if x may be half an integer at each step.

    The factor of x is in (0, 2): SymPy takes whole turns off, and negative angles.
    """
    if not isinstance(angle, sp.Mul) or angle.args.count(sp.pi) != 1 or angle.is_number:
        return None
    parts = [arg for arg in angle.args if arg is not sp.pi]
    if isinstance(parts[0], sp.Rational) and not 0 < parts[0] < 2:
        return None
    turns = sp.Mul(*parts)
    if all((2 * values[0]).denominator == 1 for values in _samples((turns,))):
        return None
    return sp.pi * turns


class _UnknownError(Exception):
    """A value is not rational, or is not looked into."""


def _samples(exprs: Sequence[sp.Basic]) -> Iterator[list[Fraction]]:
    """Values of expressions at some numbers of their symbols."""
    symbols = set().union(*(expr.free_symbols for expr in exprs)) - _CLOCK
    if not all(symbol.assumptions0.items() <= _POSITIVE_INTEGER.items() for symbol in symbols):
        raise _UnknownError
    names = sorted(symbols, key=str)
    marks = {int(one.p) for expr in exprs for one in expr.atoms(sp.Integer)}
    near = [mark + 1 for mark in sorted(marks)[:_MOST_MARKS] if mark > 0]
    for index, step in enumerate((*_STEPS, *near)):
        # Positive integers; of two symbols, each is the larger one in some sample.
        values = {one: Fraction(1 + 7 ** (index * (i + 1) % 5)) for i, one in enumerate(names)}
        values[t] = Fraction(step)
        try:
            yield [_value(expr, values) for expr in exprs]
        except ZeroDivisionError:
            continue


def _value(expr: sp.Basic, values: Mapping[sp.Symbol, Fraction]) -> Fraction:
    if isinstance(expr, sp.Rational):
        return Fraction(int(expr.p), int(expr.q))
    if isinstance(expr, sp.Symbol):
        return values[expr]
    if isinstance(expr, sp.Pow):
        base, exponent = expr.args
        if exponent.is_Integer and abs(exponent) <= _LARGEST_POWER:
            return _value(base, values) ** int(exponent)
        raise _UnknownError
    if not isinstance(expr, sp.Add | sp.Mul | sp.Min | sp.Max):
        raise _UnknownError
    parts = [_value(part, values) for part in expr.args]
    if isinstance(expr, sp.Add):
        return sum(parts, Fraction(0))
    if isinstance(expr, sp.Mul):
        return functools.reduce(operator.mul, parts)
    return min(parts) if isinstance(expr, sp.Min) else max(parts)

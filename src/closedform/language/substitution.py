"""Substitution at a cost linear in the nodes, also in a Piecewise of 10,000 branches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.language.settled import made, product, square_root


def substituted(expr: sp.Basic, values: Mapping[sp.Symbol, sp.Expr]) -> sp.Basic:
    """Returns ``expr.xreplace(values)``.

    SymPy re-evaluates each condition of a Piecewise whenever it is rebuilt, 5 ms a branch. A
    condition in which nothing is replaced has been asked already, so here it is not asked again.

    Example:
        >>> from closedform.language.symbols import t
        >>> from sympy import Integer, Piecewise, Symbol
        >>> a = Symbol("a")
        >>> substituted(Piecewise((a, t < 3), (0, True)), {a: Integer(2)})
        Piecewise((2, t < 3), (0, True))
    """
    return Substitution(values)(expr) if values else expr


class Substitution:
    """``substituted(expr, values)`` for many expressions: what they share is rebuilt once.

    Args:
        values: The value of each symbol.
    """

    def __init__(self, values: Mapping[sp.Symbol, sp.Expr]) -> None:
        self._known: dict[sp.Basic, sp.Basic] = dict(values)
        self._powers = _Powers()

    def __call__(self, expr: sp.Basic) -> sp.Basic:
        """Returns ``expr.xreplace(values)``."""
        results = self._known
        if expr in results:
            return results[expr]
        result = expr
        if expr.args:
            args = [self(arg) for arg in expr.args]
            if any(new is not old for new, old in zip(args, expr.args, strict=True)):
                result = _made_again(expr, args, self._powers)
        results[expr] = result
        return result


def _made_again(part: sp.Basic, args: list[sp.Basic], powers: _Powers) -> sp.Basic:
    if isinstance(part, sp.Piecewise):
        branches = [_with_clock_first(branch) for branch in args]
        if _is_settled(part, branches):
            return sp.Piecewise(*branches, evaluate=False)
    if isinstance(part, sp.Pow) and isinstance(args[0], sp.Rational) and args[1].is_Integer:
        return powers.power(args[0], args[1])
    if isinstance(part, sp.Pow) and args[1] is sp.S.Half:
        return square_root(args[0])
    if isinstance(part, sp.Mul) and all(isinstance(arg, sp.Rational) for arg in args):
        return math.prod(args[1:], start=args[0])
    if isinstance(part, sp.Mul):
        return product(args)
    return made(part.func, *args)


class _Powers:
    """Powers of rational numbers, each from the one before: thousands have long numbers."""

    def __init__(self) -> None:
        self._last: dict[sp.Rational, tuple[int, sp.Rational]] = {}

    def power(self, base: sp.Rational, exponent: sp.Integer) -> sp.Expr:
        """Returns ``base**exponent``."""
        target = int(exponent)
        last, value = self._last.get(base, (0, sp.S.One))
        if target < last or base in (0, 1, -1):
            return base**exponent
        further = base ** sp.Integer(target - last)
        # Powers of coprime integers are coprime.
        power_value = sp.Rational.from_coprime_ints(value.p * further.p, value.q * further.q)
        self._last[base] = (target, power_value)
        return power_value


def _is_settled(piecewise: sp.Piecewise, branches: list[sp.Basic]) -> bool:
    """Whether SymPy would leave these branches unchanged: nothing to drop, merge or flatten."""
    return (
        _have_settled_conditions(piecewise, branches)
        and not any(
            value.args and value.has(sp.Piecewise)
            for value, _ in (branch.args for branch in branches)
        )
        and all(one.args[0] != next_one.args[0] for one, next_one in pairwise(branches))
    )


def _with_clock_first(branch: sp.Basic) -> sp.Basic:
    """A branch whose condition ``2000 > t`` is written ``t < 2000``, as SymPy writes it."""
    value, condition = branch.args
    is_reversed = isinstance(condition, sp.Gt | sp.Ge) and condition.lhs.is_Rational
    return branch.func(value, condition.reversed) if is_reversed else branch


def _have_settled_conditions(piecewise: sp.Piecewise, branches: list[sp.Basic]) -> bool:
    """Whether conditions are as before, or comparisons of a symbol with different numbers."""
    conditions = [new.args[1] for new in branches]
    if all(new is old.args[1] for new, old in zip(conditions, piecewise.args, strict=True)):
        return True
    *tests, last = conditions
    return (
        all(
            isinstance(test, sp.Lt | sp.Le) and test.lhs.is_Symbol and test.rhs.is_Rational
            for test in tests
        )
        and last == sp.true
        and len(set(tests)) == len(tests)
    )


def values_in(expr: sp.Basic, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values, by name, of symbols that an expression has."""
    names = {symbol.name for symbol in expr.free_symbols}
    return {name: value for name, value in values.items() if name in names}

"""Parts of expressions that the schedules share: symbols of steps, and values between marks.

stepwise([a, b], [10])   →   Piecewise((a, t < 10), (b, True))
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from closedform.language import FloorDiv, FloorMod, hyper, t


def steps_symbol(number: sp.Rational) -> sp.Symbol:
    """Returns the symbol of a number of steps, an integer one where the number is."""
    return hyper("steps", integer=bool(number.is_Integer), positive=True)


def whole_length(steps: sp.Expr) -> sp.Expr:
    """Returns the first integer step at or after ``steps``: there the shape is complete."""
    return steps if isinstance(steps, sp.Symbol) and steps.is_integer else sp.ceiling(steps)


def stepwise(values: Sequence[sp.Expr], marks: Sequence[sp.Expr]) -> sp.Expr:
    """Returns ``values[i]`` from ``marks[i - 1]`` on and before ``marks[i]``.

    Args:
        values: One more than there are marks.
        marks: Increasing numbers; at those up to 0 the next value holds from the start.
    """
    branches: list[tuple[sp.Expr, sp.Basic]] = []
    for value, following, mark in zip(values, values[1:], marks, strict=False):
        if mark > 0 and value != following:
            # Not `t < mark`, nor an evaluated Piecewise: SymPy takes 3 ms for each to find that it
            # cannot decide it (1.14).
            branches.append((value, sp.Lt(t, mark, evaluate=False)))
    return sp.Piecewise(*branches, (values[-1], True), evaluate=False) if branches else values[-1]


def hold_last(value: sp.Expr, last: int) -> sp.Expr:
    """Returns a value that is defined at all steps: a partial formula keeps that of step ``last``.

    Example:
        >>> hold_last(1 / (7 - t), 6), hold_last(t / 7, 6)
        (1/(7 - Min(6, t)), t/7)
    """
    parts = value.atoms(sp.Pow, sp.log, FloorDiv, FloorMod)
    return value.xreplace({t: sp.Min(t, last)}) if any(map(_is_partial, parts)) else value


def _is_partial(expr: sp.Basic) -> bool:
    """Whether an expression may have no value at some step."""
    if isinstance(expr, sp.Pow):
        return t in expr.base.free_symbols and not (expr.exp.is_Integer and expr.exp >= 0)
    operand_place = 0 if isinstance(expr, sp.log) else 1
    return t in expr.args[operand_place].free_symbols

"""Comparisons of floats as conditions: with infinities and NaN, which expressions do not have.

SymPy decides ``x == x`` and ``x < oo`` for real symbols. The elements of a tensor may be infinite
or NaN, and code that compares so asks for that.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from closedform.language.elementary import angle
from closedform.language.model import non_finite
from closedform.language.symbols import GRAD, PARAM

_PREFIXES = ("state.", "shared.", "local.", "other.", "input.")


def is_of_data(expr: sp.Basic) -> bool:
    """Returns whether an expression depends on parameters, gradients or states."""
    return any(
        symbol in (PARAM, GRAD)
        or (symbol.name.startswith(_PREFIXES) and not symbol.name.startswith("other.shape"))
        for symbol in expr.free_symbols
    )


def is_nan(x: sp.Expr) -> sp.Basic:
    """Returns whether a number is NaN: it is not finite, and the smaller of it and 1 is not 1."""
    return sp.And(sp.Eq(non_finite(x), 1), sp.Ne(sp.Min(sp.Abs(x), 1), 1))


def is_not_nan(x: sp.Expr) -> sp.Basic:
    """Returns whether a number is finite or infinite."""
    return sp.Or(sp.Eq(non_finite(x), 0), sp.Eq(sp.Min(sp.Abs(x), 1), 1))


def is_finite(x: sp.Expr) -> sp.Basic:
    """Returns whether a number is neither NaN nor an infinity."""
    return sp.Eq(non_finite(x), 0)


def is_infinite(x: sp.Expr) -> sp.Basic:
    """Returns whether a number is an infinity."""
    return sp.And(sp.Eq(non_finite(x), 1), sp.Eq(sp.Min(sp.Abs(x), 1), 1))


def comparison(kind: Callable[..., sp.Basic], x: sp.Expr, y: sp.Expr) -> sp.Basic:
    """Returns the condition of a comparison of floats.

    Args:
        kind: The comparison: ``sp.Eq``, ``sp.Ne``, ``sp.Lt``, ``sp.Le``, ``sp.Gt`` or ``sp.Ge``.
        x: The left number; one of the two may be an infinity or NaN.
        y: The right number.
    """
    if sp.nan in (x, y):
        return sp.true if kind is sp.Ne else sp.false
    if not is_of_data(x) and not is_of_data(y):
        return kind(x, y)
    if x in (sp.oo, -sp.oo):
        return comparison(_REFLECTED.get(kind, kind), y, x)
    if y in (sp.oo, -sp.oo):
        return _compared_with_infinity(kind, x, is_positive=y is sp.oo)
    if x == y and kind is sp.Ne:
        return is_nan(x)
    condition = sp.true if x == y and kind in (sp.Eq, sp.Le, sp.Ge) else kind(x, y)
    if condition == sp.true and kind is not sp.Ne:
        numbers = [number for number in dict.fromkeys((x, y)) if is_of_data(number)]
        return sp.And(*map(is_not_nan, numbers))
    return condition


def copysign(x: sp.Expr, y: sp.Expr) -> sp.Expr:
    """Returns the size of a number with the sign of another one, which a zero has, too."""
    return sp.Piecewise((-sp.Abs(x), _has_minus(y)), (sp.Abs(x), True))


def atan2(y: sp.Expr, x: sp.Expr) -> sp.Expr:
    """Returns the angle of the point (x, y) as floats have it: with infinities, and signs of zeros.

    Two infinities have the angle of a diagonal, and a zero is on its side of an axis.
    """
    if not is_of_data(y) and not is_of_data(x):
        return angle(y, x)
    right = sp.pi / 2
    half_turn = sp.Piecewise((-sp.pi, _has_minus(y)), (sp.pi, True))
    at_origin = sp.Piecewise((y + half_turn, 1 / x < 0), (y, True)) if is_of_data(x) else y
    on_axis = sp.Piecewise((right, y > 0), (-right, y < 0), (at_origin, True))
    # Infinities of one sign are equal, and their quotient would be NaN.
    shallow = sp.atan(sp.Piecewise((1, sp.Eq(y, x)), (-1, sp.Eq(y, -x)), (y / x, True)))
    turned = sp.Piecewise((shallow + half_turn, x < 0), (shallow, True))
    return sp.Piecewise((on_axis, sp.Eq(x, 0)), (turned, True))


def _has_minus(x: sp.Expr) -> sp.Basic:
    """Whether a number is below 0, or a zero with that sign."""
    return sp.Or(x < 0, sp.And(sp.Eq(x, 0), 1 / x < 0)) if is_of_data(x) else x < 0


def _compared_with_infinity(
    kind: Callable[..., sp.Basic], x: sp.Expr, *, is_positive: bool
) -> sp.Basic:
    size = sp.Min(sp.Abs(x), 1)
    side = x > 0 if is_positive else x < 0
    is_it = sp.And(sp.Eq(non_finite(x), 1), sp.Eq(size, 1), side)
    # An infinity that is not this one has the other sign.
    opposite = x < 0 if is_positive else x > 0
    is_other = sp.Or(sp.Eq(non_finite(x), 0), sp.And(sp.Eq(size, 1), opposite))
    if kind is sp.Eq:
        return is_it
    if kind is sp.Ne:
        return sp.Or(is_other, is_nan(x))
    if kind in (sp.Le, sp.Ge):
        return is_not_nan(x) if (kind is sp.Le) == is_positive else is_it
    return is_other if (kind is sp.Lt) == is_positive else sp.false


_REFLECTED = {sp.Lt: sp.Gt, sp.Le: sp.Ge, sp.Gt: sp.Lt, sp.Ge: sp.Le}
"""The comparison with the operands in the other order, where it is another one."""

"""Definitions of an update rule, and its static structure resolved for a shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.settled import substitute
from closedform.language.shapes import SHAPE_SYMBOLS
from closedform.language.symbols import local

Substitutions = Mapping[sp.Symbol, sp.Expr]


def replace_shape_symbols(
    expr: sp.Basic, values: Substitutions, where: str, *, is_final: bool = True
) -> sp.Basic:
    """Returns an expression with the symbols of the shape replaced.

    Args:
        expr: The expression.
        values: Numbers of those symbols.
        where: What it belongs to, for errors.
        is_final: Whether every symbol of the shape must have a number.

    Raises:
        DefinitionError: A symbol that must has none, or the expression divides by a size of 0.
    """
    try:
        result = substitute(expr, values)
    except ValueError:  # SymPy's, of a Max of complex infinity
        result = sp.nan
    if result.has(sp.nan, sp.zoo):
        raise DefinitionError(
            "a formula divides by a size, and the shape has an axis of size 0",
            where=where,
            hint="leave empty parameters out, or give them another rule",
        )
    left = sorted(symbol.name for symbol in result.free_symbols & SHAPE_SYMBOLS)
    if left and is_final:
        raise DefinitionError(
            f"the shape has no number for {left[0]}",
            where=where,
            hint="give sizes as integers, or make the expression a branch of a Piecewise on RANK",
        )
    return result


def holds(condition: sp.Basic, values: Substitutions, where: str) -> bool:
    """Returns whether a condition on the shape holds.

    Raises:
        DefinitionError: It asks for a number that the shape does not have.
    """
    return bool(replace_shape_symbols(condition, values, where))


def taken_by(results: Iterable[sp.Basic], definitions: Mapping[str, sp.Expr]) -> dict[str, sp.Expr]:
    """Returns the definitions that expressions need, directly or through others, in order.

    Example:
        >>> a, b = local("a"), local("b")
        >>> taken_by([b + 1], {"a": sp.Symbol("x"), "b": a**2, "c": a})
        {'a': x, 'b': local.a**2}
    """
    symbols = {symbol for expr in results for symbol in expr.free_symbols}
    used_definitions: dict[str, sp.Expr] = {}
    # From the last one on: a definition refers to earlier ones only, so one pass is enough.
    for name, expr in reversed(list(definitions.items())):
        if local(name) in symbols:
            used_definitions[name] = expr
            symbols |= expr.free_symbols
    return dict(reversed(list(used_definitions.items())))

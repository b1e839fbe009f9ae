"""Sizes and conditions on them in a trace as text, in the names of the free sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from torch.utils._sympy.functions import (
    CeilToInt,
    CleanDiv,
    FloorDiv,
    FloorToInt,
    IntTrueDiv,
    Mod,
    PythonMod,
    TruncToInt,
)


class UnwrittenError(Exception):
    """An expression has no text: it is not made of sums, products, quotients and remainders."""


def formula(expression: sp.Basic, names: Mapping[str, str]) -> str:
    """Returns the text of a size, as ``feeds.size_value`` reads it.

    Args:
        expression: The size.
        names: Names of free sizes by their symbols in the trace.

    Raises:
        UnwrittenError: It has another operation, or another symbol.
    """

    def term(part: Any) -> str:
        text = formula(part, names)
        return text if part.is_Symbol or (part.is_Integer and part >= 0) else f"({text})"

    match expression:
        case sp.Integer():
            return str(expression) if expression >= 0 else f"0 - {-expression}"
        case sp.Symbol() if str(expression) in names:
            return names[str(expression)]
        case sp.Add():
            positive = [part for part in expression.args if not _is_negative(part)]
            negative = [-part for part in expression.args if _is_negative(part)]
            return " - ".join(
                (" + ".join(map(term, positive)) or "0", *(term(part) for part in negative))
            )
        case sp.Mul() if _is_negative(expression):
            return f"0 - {term(-expression)}"
        case sp.Mul():
            return " * ".join(map(term, expression.args))
        case sp.Pow(exp=sp.Integer() as power) if power > 0:
            return " * ".join([term(expression.base)] * int(power))
        case Mod() | PythonMod():
            return " % ".join(map(term, expression.args))
        case FloorDiv() | CleanDiv():
            return " // ".join(map(term, expression.args))
        # Sizes are not negative: truncating a quotient is floor division.
        case FloorToInt(args=(IntTrueDiv() as ratio,)) | TruncToInt(args=(IntTrueDiv() as ratio,)):
            return " // ".join(map(term, ratio.args))
        # ceil(a/b) = (a + b − 1) // b for integers and b > 0, as sizes are.
        case CeilToInt(args=(IntTrueDiv(args=(size, divisor)),)):
            return f"{term(size + divisor - 1)} // {term(divisor)}"
        case _:
            raise UnwrittenError(_text_of(expression, names))


def relation(condition: sp.Basic, names: Mapping[str, str]) -> tuple[str, str, str]:
    """Returns the two sides of a condition on sizes, with the relation between them.

    Args:
        condition: The condition.
        names: As in ``formula``.

    Raises:
        UnwrittenError: It is another condition.
    """
    if not isinstance(condition, sp.core.relational.Relational):
        raise UnwrittenError(_text_of(condition, names))
    # torch writes -n <= -3 for n >= 3.
    if all(_is_negative(side) for side in condition.args):
        condition = condition.reversedsign
    left, right = condition.args
    return formula(left, names), str(condition.rel_op), formula(right, names)


def _is_negative(part: sp.Basic) -> bool:
    return bool(part.is_Number and part < 0) or (
        isinstance(part, sp.Mul) and bool(part.args[0].is_Number and part.args[0] < 0)
    )


def _text_of(expression: sp.Basic, names: Mapping[str, str]) -> str:
    symbols = {s: sp.Symbol(names.get(str(s), str(s))) for s in expression.free_symbols}
    return str(expression.xreplace(symbols))

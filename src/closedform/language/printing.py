"""Formulas as people read them: comparisons with the clock on their left."""

from __future__ import annotations

import sympy as sp
from sympy.core.relational import Relational
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from closedform.language.symbols import t


def _clock_first(comparison: Relational) -> Relational:
    """SymPy orders ``t < steps`` by name, as ``steps > t``; this turns it round again."""
    left, right = comparison.args
    is_turned = t in right.free_symbols and t not in left.free_symbols
    return comparison.reversed if is_turned else comparison


class _Latex(LatexPrinter):  # type: ignore[misc]
    def _print_Relational(self, expr: Relational) -> str:
        return str(super()._print_Relational(_clock_first(expr)))

    def _print_Symbol(self, expr: sp.Symbol, style: str = "plain") -> str:
        """A name of several letters is one word, not a product of its letters."""
        printed = str(super()._print_Symbol(expr, style=style))
        name = expr.name.removeprefix("state.")
        if len(name) == 1 or printed.startswith("\\"):
            return printed
        return rf"\mathit{{{name.replace('_', chr(92) + '_')}}}"


class _Text(StrPrinter):  # type: ignore[misc]
    def _print_Relational(self, expr: Relational) -> str:
        return str(super()._print_Relational(_clock_first(expr)))


def latex(expr: sp.Basic) -> str:
    """Returns an expression in LaTeX."""
    return str(_Latex().doprint(expr))


def text(expr: sp.Basic) -> str:
    """Returns an expression in one line of text."""
    return str(_Text().doprint(expr))

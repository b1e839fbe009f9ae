"""Formulas as people read them: comparisons with the clock on their left."""

from __future__ import annotations

import sympy as sp
from sympy.core.relational import Relational
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from closedform.language.integers import FloorDiv, FloorMod
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
        symbol_text = str(super()._print_Symbol(expr, style=style))
        name = expr.name.removeprefix("state.")
        if len(name) == 1 or symbol_text.startswith("\\"):
            return symbol_text
        return rf"\mathit{{{name.replace('_', chr(92) + '_')}}}"


class _Text(StrPrinter):  # type: ignore[misc]
    def _print_Relational(self, expr: Relational) -> str:
        return str(super()._print_Relational(_clock_first(expr)))


class _Code(StrPrinter):  # type: ignore[misc]
    """Expressions in Python's syntax, with ``where`` for choices."""

    def _print_Piecewise(self, expr: sp.Piecewise) -> str:
        *branches, last = expr.args
        text_so_far = str(self._print(last.expr))
        # The nested where() evaluates its last argument for all steps that no condition takes.
        if last.cond != sp.true:
            raise ValueError("a branch for all other steps is missing")
        for branch in reversed(branches):
            condition = self._print(branch.cond)
            text_so_far = f"where({condition}, {self._print(branch.expr)}, {text_so_far})"
        return text_so_far

    def _print_Relational(self, expr: Relational) -> str:
        return f"{self.parenthesize(expr.lhs, 0)} {expr.rel_op} {self.parenthesize(expr.rhs, 0)}"

    def _print_And(self, expr: sp.And) -> str:
        return " and ".join(f"({self._print(part)})" for part in expr.args)

    def _print_Or(self, expr: sp.Or) -> str:
        return " or ".join(f"({self._print(part)})" for part in expr.args)

    def _print_Not(self, expr: sp.Not) -> str:
        return f"not ({self._print(expr.args[0])})"

    def _print_FloorDiv(self, expr: FloorDiv) -> str:
        # Python's // and % round to minus infinity, as FloorDiv and FloorMod do; C's do not.
        return "(({}) // ({}))".format(*map(self._print, expr.args))

    def _print_FloorMod(self, expr: FloorMod) -> str:
        return "(({}) % ({}))".format(*map(self._print, expr.args))

    def _print_Function(self, expr: sp.Function) -> str:
        # Max and Min of SymPy are max and min.
        return str(super()._print_Function(expr)).lower()

    def _print_Max(self, expr: sp.Max) -> str:
        return self._print_Function(expr)

    def _print_Min(self, expr: sp.Min) -> str:
        return self._print_Function(expr)


def latex(expr: sp.Basic) -> str:
    """Returns an expression in LaTeX."""
    # A thin space, as names of several letters run together without one.
    return str(_Latex({"mul_symbol": r" \, "}).doprint(expr))


def text(expr: sp.Basic) -> str:
    """Returns an expression in one line of text."""
    return str(_Text().doprint(expr))


def code(expr: sp.Basic) -> str:
    """Returns an expression in the language that ``recipes.expressions`` reads.

    Raises:
        ValueError: A choice has no branch for all other steps.
    """
    return str(_Code().doprint(expr))

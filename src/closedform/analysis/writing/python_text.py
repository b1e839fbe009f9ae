"""The closed form of a schedule as the text of a Python function of the update.

The text is of the small language of :mod:`closedform.recipes.expressions`, which reads it back for
the proof: nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy as sp
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import Boolean
from sympy.printing.pycode import PythonCodePrinter

from closedform.errors import LoweringError
from closedform.language import Schedule
from closedform.language.integers import FloorDiv, FloorMod
from closedform.recipes.expressions import parse_function

FUNCTIONS = ("cos", "exp", "log", "pi", "sqrt")
"""The names of ``math`` that a text may have."""


class _Printer(PythonCodePrinter):  # type: ignore[misc]
    """Prints the expressions of schedules, and refuses all others; SymPy calls it by class name."""

    def _call_text(self, name: str, expr: sp.Expr) -> str:
        return f"{name}({', '.join(self._print(arg) for arg in expr.args)})"

    def _print_cos(self, expr: sp.Expr) -> str:
        return self._call_text("cos", expr)

    def _print_exp(self, expr: sp.Expr) -> str:
        return self._call_text("exp", expr)

    def _print_log(self, expr: sp.Expr) -> str:
        return self._call_text("log", expr)

    def _print_Min(self, expr: sp.Expr) -> str:  # noqa: N802
        return self._call_text("min", expr)

    def _print_Max(self, expr: sp.Expr) -> str:  # noqa: N802
        return self._call_text("max", expr)

    def _print_Pi(self, expr: sp.Expr) -> str:  # noqa: N802
        del expr
        return "pi"

    def _print_Exp1(self, expr: sp.Expr) -> str:  # noqa: N802
        del expr
        return "exp(1)"

    def _print_Pow(self, expr: sp.Expr, **options: Any) -> str:  # noqa: N802
        del options
        if expr.exp == sp.S.Half:
            return f"sqrt({self._print(expr.base)})"
        if expr.exp == -sp.S.Half:
            return f"(1 / sqrt({self._print(expr.base)}))"
        return f"(({self._print(expr.base)}) ** ({self._print(expr.exp)}))"

    def _print_FloorDiv(self, expr: sp.Expr) -> str:  # noqa: N802
        return f"(({self._print(expr.args[0])}) // ({self._print(expr.args[1])}))"

    def _print_FloorMod(self, expr: sp.Expr) -> str:  # noqa: N802
        return f"(({self._print(expr.args[0])}) % ({self._print(expr.args[1])}))"

    def _print_Abs(self, expr: sp.Expr) -> str:  # noqa: N802
        inner = self._print(expr.args[0])
        return f"max({inner}, -({inner}))"

    def _print_Rational(self, expr: sp.Rational) -> str:  # noqa: N802
        return f"{expr.p} / {expr.q}"


_KNOWN = (
    *(sp.Add, sp.Mul, sp.Pow, sp.Piecewise, sp.Min, sp.Max, sp.Abs, sp.cos, sp.exp, sp.log),
    *(FloorDiv, FloorMod, sp.Number, sp.Symbol, sp.NumberSymbol, ExprCondPair, Relational, Boolean),
)


def python_expression(expr: sp.Expr) -> str:
    """Returns an expression in ``t`` as Python writes it, with the names of :data:`FUNCTIONS`.

    Raises:
        LoweringError: A function in it is not one of the text.

    Example:
        >>> from closedform.language import t
        >>> python_expression(sp.Piecewise((t / 3, t < 4), (sp.sqrt(t), True)))
        '(((1 / 3)*t) if (t < 4) else (sqrt(t)))'
    """
    for node in sp.preorder_traversal(expr):
        if not isinstance(node, _KNOWN):
            raise LoweringError(
                f"{type(node).__name__} has no text in Python", where=str(expr)[:60]
            )
    text: str = _Printer({"fully_qualified_modules": False}).doprint(expr)
    return text


def branches(schedule: Schedule) -> Iterator[tuple[sp.Basic, sp.Expr]]:
    """Yields the conditions of a schedule with its values, the last one being always true."""
    factor, rest = schedule.bound.as_coeff_Mul()
    if isinstance(rest, sp.Piecewise):
        yield from ((condition, factor * value) for value, condition in rest.args)
    else:
        yield sp.true, schedule.bound


def python_function(schedule: Schedule, name: str) -> str:
    """Returns the source of a function from the update to the value.

    Example:
        >>> from closedform.schedules import linear
        >>> print(python_function(linear(0, 1, 4), "learning_rate"), end="")
        def learning_rate(t):
            if t < 4:
                return (1 / 4)*t
            return 1
    """
    lines = [f"def {name}(t):\n"]
    for condition, value in branches(schedule):
        text = python_expression(value)
        if condition == sp.true:
            lines.append(f"    return {text}\n")
            break
        lines.append(f"    if {python_expression(condition).strip('()')}:\n        return {text}\n")
    return "".join(lines)


def read_back(schedule: Schedule) -> Schedule:
    """Returns the schedule that the texts of the branches are read as.

    Raises:
        DefinitionError: A text is not one of the language, or too long.
    """
    read = [
        (_read_back(value), condition if condition == sp.true else _condition(condition))
        for condition, value in branches(schedule)
    ]
    return Schedule(sp.Piecewise(*read), name=schedule.name)


def _read_back(value: sp.Expr) -> sp.Expr:
    return parse_function({"expr": python_expression(value)}, "the function")


def _condition(condition: sp.Basic) -> sp.Basic:
    text = f"where({python_expression(condition)}, 1, 0)"
    read = parse_function({"expr": text}, "the function")
    return read.args[0][1] if isinstance(read, sp.Piecewise) else sp.true

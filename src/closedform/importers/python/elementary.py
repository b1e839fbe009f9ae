"""The elementary functions of one traced number, and their exact values at constants.

Example:
    >>> sorted(EXACT), "tanh" in VALUES
    (['cos', 'exp', 'log', 'sin', 'sqrt'], True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.importers.python.decider import Comparison, Decider
from closedform.importers.python.exact import cosine, sine
from closedform.importers.python.number import Number, run_operand
from closedform.language.elementary import ELEMENTARY, Elementary


def _elementary(function: Elementary) -> Callable[[Decider, Any], Number]:
    def value(run: Decider, x: Any) -> Number:
        number = run_operand(run, x)
        if function.margin is not None:
            # ValueError for the log of 0 and the root of -1, as math raises.
            check_domain(function.margin(number), sp.Lt if function.has_end else sp.Le)
        return Number(run, function.form(number.expr))

    return value


VALUES = {name: _elementary(function) for name, function in ELEMENTARY.items()}
"""Name -> the function of a run and a traced number."""

EXACT: Mapping[str, Callable[[sp.Expr], sp.Expr]] = {
    "sqrt": sp.sqrt,
    "cos": cosine,
    "sin": sine,
    "exp": sp.exp,
    "log": sp.log,
}
"""The operations that make the exact value of a constant."""


def check_domain(number: Number, is_outside: Comparison) -> None:
    """Raises the exception of math where a number compares so with 0."""
    if number.run.raises(is_outside, number):
        raise ValueError("math domain error")

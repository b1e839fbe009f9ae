"""Types of the arguments that schedules and optimizers take.

They are checked when a schedule or a rule is built, and the error names the argument. SymPy is not
typed, so these names also document what mypy cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import sympy as sp

if TYPE_CHECKING:
    from closedform.language.lengths import Length
    from closedform.language.schedule import Schedule

Number: TypeAlias = int | float | Fraction | sp.Expr
"""A finite real number, exact: a float is the decimal that it prints as (``0.1`` is 1/10)."""

Steps: TypeAlias = "Number | Length"
"""A number of optimizer steps, rational, or a length such as ``tokens(300e9)``."""

Count: TypeAlias = "int | Length"
"""A whole number of optimizer steps, or a length that is one when it is converted."""

Operand: TypeAlias = Number
"""An operand of an expression: an expression, or a number."""

Hyper: TypeAlias = "Number | Schedule | None"
"""A hyperparameter: a number, a schedule of the step, or None for an input of the graph."""

Arguments: TypeAlias = Mapping[str, Any]
"""Arguments by name, as a config or a caller gives them: plain values, unchecked."""

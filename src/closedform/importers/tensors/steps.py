"""Values of scalar expressions at many steps in float64, to choose steps at which to trace.

Only choices rest on them: which way through the branches of a step can be taken, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp
from sympy.core.relational import Relational

from closedform.errors import TraceError
from closedform.language.symbols import t
from closedform.lowering.numpy_functions import NUMPY_FUNCTIONS

Values = Any

STEPS = np.unique(
    np.concatenate([np.arange(0, 300), np.round(1.05 ** np.arange(115, 300)).astype(np.int64)])
)
"""Every step up to 300, then steps 5 % apart."""


def values_at(expr: sp.Basic, steps: Values, numbers: Mapping[sp.Symbol, Any]) -> Values:
    """Returns the values of an expression or condition at steps, in float64.

    Args:
        expr: An expression in ``t`` and the symbols of ``numbers``.
        steps: The steps.
        numbers: Values of the other symbols.

    Raises:
        TraceError: It holds another symbol or function.
    """
    values: dict[sp.Basic, Values] = {t: steps.astype(np.float64), sp.true: True, sp.false: False}
    values |= {symbol: float(number) for symbol, number in numbers.items()}

    def visit(part: sp.Basic) -> Values:
        if part not in values:
            values[part] = compute(part)
        return values[part]

    def compute(part: sp.Basic) -> Values:
        if isinstance(part, sp.Expr) and part.is_number:
            return float(part)
        if isinstance(part, sp.Piecewise):
            result: Values = np.nan
            for value, condition in reversed(part.args):
                result = np.where(visit(condition), visit(value), result)
            return result
        function = NUMPY_FUNCTIONS.get(part.func)
        if function is None or (not part.args and not isinstance(part, Relational)):
            raise TraceError(f"{part} has no value at a step")
        return function(*map(visit, part.args))

    with np.errstate(all="ignore"):
        return np.broadcast_to(visit(expr), steps.shape)

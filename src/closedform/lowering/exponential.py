"""The exponential of a sum that SymPy leaves as it is.

SymPy makes ``x**40 * exp(-t)`` of ``exp(40*log(x) - t)``: a product of a number that overflows and
one that is zero. This function is inert until it is lowered.
"""

from __future__ import annotations

import sympy as sp


class Exponential(sp.Function):
    """``exp(exponent)``."""

    nargs = 1

    def _eval_is_positive(self) -> bool:
        return True

"""The safe operand of a partial function inside a condition.

SymPy folds a ``Piecewise`` out of a comparison, into an ``ITE`` in which both sides lose what the
guard added. This function is inert: SymPy leaves it in place until it is lowered.
"""

from __future__ import annotations

import sympy as sp


class SafeOperand(sp.Function):
    """``operand`` where ``condition`` holds, 1 elsewhere."""

    nargs = 2

    @classmethod
    def eval(cls, operand: sp.Expr, condition: sp.Basic) -> sp.Expr | None:
        """Folds only when the condition is decided."""
        if condition in (sp.true, sp.false):
            return operand if condition == sp.true else sp.Integer(1)
        return None

    def _eval_is_real(self) -> bool | None:
        return True if self.args[0].is_real else None

    def _eval_is_integer(self) -> bool | None:
        return True if self.args[0].is_integer else None

    @property
    def piecewise(self) -> sp.Piecewise:
        """The same value as a Piecewise."""
        return sp.Piecewise((self.args[0], self.args[1]), (1, True))

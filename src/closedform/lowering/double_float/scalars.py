"""The scalars of a rule in pairs of float32: each is rounded once, where it meets a tensor."""

from __future__ import annotations

from typing import Any

import sympy as sp

from closedform.ir.graph import Value
from closedform.ir.ops import Op
from closedform.ir.types import DType
from closedform.language.model import NonFinite
from closedform.lowering.analysis.annotate import interval
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.context import Lowering
from closedform.lowering.double_float.context import DoubleFloat
from closedform.lowering.double_float.lower import HANDLERS
from closedform.lowering.lower import RULES
from closedform.lowering.pair_arithmetic import Number


class PairLowering(Lowering):
    """A lowering of scalars to float32 values that are computed in pairs and rounded once.

    The value of a symbol may be a pair (:meth:`adopt`): a schedule is not rounded before the
    scalars that it is a factor of.

    Args:
        *args: Those of ``Lowering``, after the rules.
        **options: Those of ``Lowering``, without the dtype of scalars.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(RULES, *args, scalar=DType.F32, **options)
        self._pairs = DoubleFloat(self, {**HANDLERS, NonFinite: _non_finite})
        self.rules = self._pairs.low.rules

    def adopt(self, symbol: sp.Symbol, expr: sp.Expr, domain: Domain, place: str) -> None:
        """Gives a symbol the pair of an expression that is lowered by itself."""
        lowering = PairLowering(self.builder, self.step, place)
        self._pairs.symbols[symbol] = lowering._pairs.number(expr, domain)

    def _real(self, expr: sp.Expr, domain: Domain) -> Value:
        if expr.is_number:
            return self.constant(expr)
        largest = interval(expr, domain).absolute().high
        return self._pairs.math.rounded(
            self._pairs.number(expr, domain), is_bounded=largest < 2**126
        )


def _non_finite(low: DoubleFloat, expr: sp.Expr, domain: Domain) -> Number:
    """The high part decides; of infinities and NaN the low part is NaN."""
    value = low.math.rounded(low.number(expr.args[0], domain))
    largest = low.math.single(float(sp.Float(2) ** 128 * (1 - sp.Rational(1, 2**24))))
    is_finite = low.math.emit(Op.LE, low.math.emit(Op.ABS, value), largest)
    return Number(low.math.cast(low.math.emit(Op.NOT, is_finite), DType.F32))

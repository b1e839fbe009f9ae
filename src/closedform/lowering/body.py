"""The lowering of one tensor's step: scalars are computed outside and come in as inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import sympy as sp

from closedform.ir import naming
from closedform.ir.graph import Role, Value
from closedform.ir.ops import Op
from closedform.ir.types import Shape
from closedform.lowering.analysis.domain import Domain
from closedform.lowering.context import Lowering


class BodyLowering(Lowering):
    """A graph of one tensor under construction.

    Invariant: nothing that depends only on the clock and hyperparameters is computed in it. Such
    a value is lowered by ``outer``; a constant is repeated here, another becomes an input.

    Args:
        outer: The lowering of scalars.
        size_of: Returns a named size as a scalar of it; None if there is no such input.
        *args: Those of ``Lowering``; the clock is that of ``outer`` and is not a node here.
        **options: Those of ``Lowering``.
    """

    def __init__(
        self,
        outer: Lowering,
        *args: Any,
        size_of: Callable[[str], Value] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.outer = outer
        self._size_of = size_of
        self.taken: dict[Value, Value] = {}

    def define(self, symbol: sp.Symbol, value: Value) -> None:
        """Gives a symbol its value."""
        self.symbols[symbol] = value

    def real(self, expr: sp.Expr, domain: Domain) -> Value:
        """Lowers an expression to a float value; a scalar one outside."""
        if self.is_tensor(expr):
            return super().real(expr, domain)
        prepared_expr = expr if self.outer.prepare is None else self.outer.prepare(expr, domain)
        return self._from_outside(self.outer.real(prepared_expr, domain))

    def tensor_value(self, expr: sp.Expr, domain: Domain) -> Value:
        """Lowers an expression to the tensor dtype; a scalar one outside, rounded once."""
        if self.is_tensor(expr):
            return super().real(expr, domain)
        return self._from_outside(self.outer.tensor_value(expr, domain))

    def condition(self, condition: sp.Basic, domain: Domain) -> Value:
        """Lowers a condition; a scalar one outside."""
        if self.is_tensor(condition):
            return super().condition(condition, domain)
        return self._from_outside(self.outer.condition(condition, domain))

    def element_count(self, shape: Shape) -> Value | None:
        """Returns the product of sizes, at least 1; None if one is named and no input.

        The product is computed outside and rounded once to the tensor dtype.
        """
        names = [size for size in shape if isinstance(size, str)]
        if not names:
            return super().element_count(shape)
        if self._size_of is None:
            return None
        known_sizes = self.outer.constant(
            sp.Integer(math.prod(size for size in shape if isinstance(size, int)))
        )
        count = self.outer.fold(Op.MUL, [known_sizes, *map(self._size_of, names)])
        count = self.outer.emit(Op.MAX, count, self.outer.constant(sp.Integer(1)))
        return self._from_outside(self.outer.cast(count, self.tensor))

    def _from_outside(self, value: Value) -> Value:
        node = self.outer.builder.node(value)
        if node.op is Op.CONST:
            return self.builder.const(node.array(), node.type.dtype)
        if value not in self.taken:
            name = naming.scalar(len(self.taken))
            self.taken[value] = self.builder.input(name, node.type, Role.HYPER)
        return self.taken[value]

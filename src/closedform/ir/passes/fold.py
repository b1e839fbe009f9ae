"""Constant folding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from closedform.ir.evaluate import evaluate_node
from closedform.ir.graph import Graph, Node, Value
from closedform.ir.ops import Op
from closedform.ir.passes.rewrite import Rewriter, rewrite


@dataclass(frozen=True, slots=True)
class Fold:
    """Replaces computations on constants by their values.

    1. A node all of whose operands are constants becomes a constant, computed by the evaluator.
       Side condition: the result has at most ``limit`` elements, or no more than its largest
       operand. A NaN becomes the usual one.

    It never folds a broadcast that makes a small constant a large one, and nothing by assumption:
    ``x * 0`` stays, since x may be NaN.

    Attributes:
        limit: Number of elements up to which a constant may grow.
    """

    limit: int = 64
    name: str = "fold"

    def __call__(self, graph: Graph) -> Graph:
        """Returns the folded graph; the same object if nothing folds."""
        return rewrite(graph, self._rule)

    def _rule(self, rewriter: Rewriter, node: Node, operands: tuple[Value, ...]) -> Value | None:
        sources = tuple(rewriter.node(operand) for operand in operands)
        if not sources or any(source.op is not Op.CONST for source in sources):
            return None
        largest = max(_count(source) for source in sources)
        if _count(node) > max(self.limit, largest):
            return None
        result = evaluate_node(node, tuple(source.array() for source in sources))
        if node.type.dtype.is_float:
            result = np.where(np.isnan(result), np.asarray(np.nan, result.dtype), result)
        return rewriter.const(result, node.type)


def _count(node: Node) -> int:
    return math.prod(int(dim) for dim in node.type.shape)

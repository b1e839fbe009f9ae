"""Sums of a tensor and of a few rows: the rows are added to the tensor, not to zeros before it.

The gradient of an embedding is zeros to which rows are added. Where the weight is used once more
(an output layer that shares it, a second look-up), autograd adds two tensors as large as the
weight; with 50257 x 768 elements these are two further arrays of 154 MB.
"""

from __future__ import annotations

from typing import Any

import torch

from closedform.training.tracing.operators import ATEN

_WIDE = frozenset({torch.float32, torch.float64})
"""In 16 bits a sum of rows is computed in float32 and rounded once."""

_ZEROS = frozenset({ATEN.full.default, ATEN.full_like.default, ATEN.new_full.default})
"""Operators whose last operand is a number, after decomposition."""


def add_rows_to_sums(graph_module: torch.fx.GraphModule) -> None:
    """Rewrites ``x + zeros.index_put(places, rows, True)`` in place, as ``index_put`` to x."""
    for node in graph_module.graph.find_nodes(op="call_function", target=ATEN.add.Tensor):
        if node.kwargs or len(node.args) != 2:
            continue
        for rows, whole in (node.args, node.args[::-1]):
            if _is_of_rows(rows) and _is_like(node, rows) and _is_like(node, whole):
                node.target = ATEN.index_put.default
                node.args = (whole, *rows.args[1:])
                break
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()


def _is_of_rows(node: Any) -> bool:
    """Whether a value, used once, is zeros to which rows are added."""
    if not isinstance(node, torch.fx.Node) or node.target is not ATEN.index_put.default:
        return False
    if len(node.args) != 4 or node.args[3] is not True or len(node.users) != 1:
        return False
    zeros: Any = node.args[0]
    is_full = isinstance(zeros, torch.fx.Node) and zeros.target in _ZEROS
    return is_full and zeros.args[-1] == 0


def _is_like(node: torch.fx.Node, operand: Any) -> bool:
    """Whether an operand is a tensor of the shape and the dtype of a result."""
    value = operand.meta.get("val") if isinstance(operand, torch.fx.Node) else None
    result = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    return value.dtype == result.dtype and result.dtype in _WIDE and value.shape == result.shape

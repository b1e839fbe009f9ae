"""Sums of rows at places that may repeat, such as the gradient of an embedding: one decision.

``ScatterND`` with a reduction is not written: its kernel in onnxruntime (1.31, 1.32) adds rows from
several threads without a lock, so that rows of one place are lost. See
docs/decisions/sums_of_rows.md for the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from closedform.training.to_onnx.operators import ATEN

Tensor = torch.Tensor

_WIDE = frozenset({torch.float32, torch.float64})
"""In 16 bits a sum of rows is computed in float32 and rounded once."""

_ZEROS = frozenset({ATEN.full.default, ATEN.full_like.default, ATEN.new_full.default})
"""Operators whose last operand is a number, after decomposition."""


def add_at_places(
    value: Tensor, indices: Sequence[Tensor | None], source: Tensor, accumulate: bool = False
) -> Any:
    """Returns ``value.index_put(indices, source, accumulate=True)``.

    It is ``scatter_add`` along one axis, in ONNX ``ScatterElements``, whose kernel adds on one
    thread in the order of the rows, as torch does.

    Masks are left to torch's exporter: their places are distinct. So are replacements, which torch
    leaves undefined for repeated places.
    """
    tensors = [index for index in indices if index is not None]
    if not accumulate or any(index.dtype in (torch.bool, torch.uint8) for index in tensors):
        return NotImplemented
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    first, last = axes[0], axes[-1]
    if last - first + 1 == len(axes):
        return _add_along(value, first, tensors, source)
    # torch puts the axes of separated indices first.
    order = [*axes, *(axis for axis in range(value.dim()) if axis not in axes)]
    inverse = [order.index(axis) for axis in range(value.dim())]
    return _add_along(value.permute(order), 0, tensors, source).permute(inverse)


def _add_along(value: Tensor, axis: int, indices: Sequence[Tensor], source: Tensor) -> Tensor:
    """Adds rows at the places of adjacent axes."""
    outer, sizes = value.shape[:axis], value.shape[axis : axis + len(indices)]
    inner = value.shape[axis + len(indices) :]
    places = _flat_places(indices, sizes)
    rows = source.expand((*outer, *places.shape, *inner))
    # A view is written only where it changes a shape: add_rows_to_sums looks for the sum.
    if places.dim() != 1:
        rows = rows.reshape(*outer, places.numel(), *inner)
        places = places.reshape(-1)
    table = value if len(sizes) == 1 else value.reshape(*outer, math.prod(sizes), *inner)
    spread = places.view(-1, *[1] * len(inner)).expand(rows.shape)
    total = table.scatter_add(axis, spread, rows)
    return total if len(sizes) == 1 else total.reshape(value.shape)


def _flat_places(indices: Sequence[Tensor], sizes: Sequence[Any]) -> Tensor:
    """The places of entries of several axes in one flat axis."""
    if len(indices) == 1:
        # ScatterElements counts negative places from the end, as index_put does.
        return indices[0].long()
    places = torch.zeros((), dtype=torch.int64)
    for index, size in zip(indices, sizes, strict=True):
        places = places * size + torch.where(index < 0, index + size, index)
    return places


def add_rows_to_sums(graph_module: torch.fx.GraphModule) -> None:
    """Rewrites ``x + zeros.scatter_add(axis, places, rows)`` in place, as ``scatter_add`` to x.

    The gradient of an embedding is zeros to which rows are added. Where the weight is used once
    more (an output layer that shares it, a second look-up), autograd adds two tensors as large as
    the weight; with 50257 x 768 elements these are two further arrays of 154 MB.
    """
    for node in graph_module.graph.find_nodes(op="call_function", target=ATEN.add.Tensor):
        if node.kwargs or len(node.args) != 2:
            continue
        for rows, whole in (node.args, node.args[::-1]):
            if _is_of_rows(rows) and _is_like(node, rows) and _is_like(node, whole):
                node.target = ATEN.scatter_add.default
                node.args = (whole, *rows.args[1:])
                break
    graph_module.graph.eliminate_dead_code()
    graph_module.recompile()


def _is_of_rows(node: Any) -> bool:
    """Whether a value, used once, is zeros to which rows are added."""
    if not isinstance(node, torch.fx.Node) or node.target is not ATEN.scatter_add.default:
        return False
    zeros: Any = node.args[0]
    is_full = isinstance(zeros, torch.fx.Node) and zeros.target in _ZEROS
    return is_full and zeros.args[-1] == 0 and len(node.users) == 1


def _is_like(node: torch.fx.Node, operand: Any) -> bool:
    """Whether an operand is a tensor of the shape and the dtype of a result."""
    value = operand.meta.get("val") if isinstance(operand, torch.fx.Node) else None
    result = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(result, torch.Tensor):
        return False
    return value.dtype == result.dtype and result.dtype in _WIDE and value.shape == result.shape

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

from closedform.training.tracing.operators import ATEN

Tensor = torch.Tensor

_MOST_PLACES = 512
"""Above, a product with the matrix of places is slower than ``ScatterElements`` for any width."""

_PLACES_PER_COLUMN = 4
"""A product takes time for each place, ``ScatterElements`` for each column: with 8 columns, it is
faster from 32 places on."""

_WIDE = frozenset({torch.float32, torch.float64})
"""In 16 bits a sum of rows is computed in float32 and rounded once."""

_ZEROS = frozenset({ATEN.full.default, ATEN.full_like.default, ATEN.new_full.default})
"""Operators whose last operand is a number, after decomposition."""


def add_at_places(
    value: Tensor, indices: Sequence[Tensor | None], source: Tensor, accumulate: bool = False
) -> Any:
    """Returns ``value.index_put(indices, source, accumulate=True)``.

    1. In a backward, for few places, the rows are multiplied by the matrix that has a 1 where a row
       is for a place. An infinite gradient makes the gradients of all places NaN.
    2. Otherwise ``scatter_add`` along one axis, which is ``ScatterElements``: its kernel runs on
       one thread, in the order of the rows.

    Masks are left to torch's exporter: their places are distinct. So are replacements, which torch
    leaves undefined for repeated places.
    """
    tensors = [index for index in indices if index is not None]
    if not accumulate or any(index.dtype in (torch.bool, torch.uint8) for index in tensors):
        return NotImplemented
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    first, last = axes[0], axes[-1]
    if last - first + 1 != len(axes):
        # torch puts the axes of separated indices first.
        order = [*axes, *(axis for axis in range(value.dim()) if axis not in axes)]
        inverse = [order.index(axis) for axis in range(value.dim())]
        moved_sum = add_at_places(value.permute(order), tensors, source, True)
        if moved_sum is NotImplemented:
            moved_sum = value.permute(order).index_put(tensors, source, accumulate=True)
        return moved_sum.permute(inverse)
    sizes = value.shape[first : last + 1]
    places = _flat_places(tensors, sizes)
    shape = (*value.shape[:first], *places.shape, *value.shape[last + 1 :])
    rows = source.expand(shape)
    # One axis of places in the rows and in the table.
    if places.dim() != 1:
        rows = rows.reshape(*shape[:first], places.numel(), *value.shape[last + 1 :])
        places = places.reshape(-1)
    if len(axes) == 1:
        return _add_along(value, first, places, rows)
    table = value.reshape(*value.shape[:first], math.prod(sizes), *value.shape[last + 1 :])
    return _add_along(table, first, places, rows).reshape(value.shape)


def _add_along(table: Tensor, axis: int, places: Tensor, rows: Tensor) -> Tensor:
    if _is_product_faster(table, axis):
        return table + _product(table, places, rows)
    spread = places.view(-1, *[1] * (table.dim() - axis - 1)).expand(rows.shape)
    return table.scatter_add(axis, spread, rows)


def _flat_places(indices: Sequence[Tensor], sizes: Sequence[Any]) -> Tensor:
    """The places of entries of several axes in one flat axis."""
    indices = torch.broadcast_tensors(*(index.long() for index in indices))
    if len(indices) == 1:
        return indices[0]
    places = torch.zeros((), dtype=torch.int64)
    for index, size in zip(indices, sizes, strict=True):
        places = places * size + torch.where(index < 0, index + size, index)
    return places


def _is_product_faster(table: Tensor, axis: int) -> bool:
    count, width = table.shape[0], table.shape[1:].numel()
    is_known = isinstance(count, int) and isinstance(width, int)
    # A graph task is torch's backward. In a forward infinite rows are ordinary values.
    if axis or not is_known or torch._C._current_graph_task_id() < 0:
        return False
    is_narrow = count <= min(_MOST_PLACES, _PLACES_PER_COLUMN * width)
    return is_narrow and table.dtype is torch.float32


def _product(table: Tensor, places: Tensor, rows: Tensor) -> Tensor:
    count = table.shape[0]
    places = torch.where(places < 0, places + count, places)
    matrix = (torch.arange(count).unsqueeze(1) == places).to(rows.dtype)
    return (matrix @ rows.flatten(1)).view(table.shape)


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

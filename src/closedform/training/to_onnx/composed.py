"""Operators of torch that read sizes as numbers, written with those that take symbols.

torch 2.13 composes these in C++, or their gradients, by ``sizes()`` and not ``sym_sizes()``: a free
size would be fixed to that of the example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from closedform.training.to_onnx.operators import ATEN

Tensor = torch.Tensor


def take_along(value: Tensor, index: Tensor, axis: int | None = None) -> Tensor:
    """Returns the entries at indices along an axis; the other axes are broadcast."""
    if axis is None:
        return value.flatten().gather(0, index.flatten())
    axis %= value.dim()

    def shape_with(size: Any, sizes: Sequence[Any]) -> list[Any]:
        return [*sizes[:axis], size, *sizes[axis + 1 :]]

    sizes = torch.broadcast_shapes(shape_with(1, value.shape), shape_with(1, index.shape))
    entries = value.expand(shape_with(value.shape[axis], sizes))
    return entries.gather(axis, index.expand(shape_with(index.shape[axis], sizes)))


def signs(value: Tensor) -> Tensor:
    """Returns x/|x|, and 0 for 0: the signs of real numbers, and the directions of complex ones."""
    if not value.is_complex():
        return torch.sign(value)
    size = value.abs()
    return value / torch.where(size == 0, 1.0, size)


def product_of_matrices(matrices: Sequence[Tensor]) -> Tensor:
    """Returns the product of matrices, from the left; the first or last one may be a vector."""
    return functools.reduce(torch.matmul, matrices)


def powers(value: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803 - as torch names it
    """Returns x⁰ to xⁿ⁻¹ for n powers along a new axis, as products; as many as entries if None."""
    count = value.shape[-1] if N is None else N
    column = value.unsqueeze(-1)
    factors = column.expand(*value.shape, count - 1)
    return torch.cat([torch.ones_like(column), factors], -1).cumprod(-1)


def slopes(
    value: Tensor,
    *,
    spacing: float | Sequence[float] | None = None,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> list[Tensor]:
    """Returns the central differences along axes, with one-sided ones of an order at their ends.

    Between the ends they are (f(x + h) − f(x − h))/2h.
    """
    if dim is None:
        dim = range(value.dim())
    axes = [dim] if isinstance(dim, int) else list(dim)
    steps = spacing if isinstance(spacing, Sequence) else [spacing or 1.0] * len(axes)
    return [_slope(value, axis, h, edge_order) for axis, h in zip(axes, steps, strict=True)]


def _slope(value: Tensor, axis: int, step: float, edge_order: int) -> Tensor:
    count = value.shape[axis]
    inner = (value.narrow(axis, 2, count - 2) - value.narrow(axis, 0, count - 2)) / (2 * step)

    def edge(places: Sequence[int]) -> Tensor:
        """The slope at the first of these places, by the others."""
        first, second, *third = (value.select(axis, place).unsqueeze(axis) for place in places)
        if edge_order == 1:
            return (second - first) / step
        return (2 * second - 1.5 * first - 0.5 * third[0]) / step

    length = edge_order + 1
    last = edge(range(-1, -1 - length, -1))
    return torch.cat([edge(range(length)), inner, -last], axis)


def fill_diagonal_(value: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Writes a number to the places i, i, … of a tensor, and returns the tensor.

    With ``wrap``, the diagonal of a matrix with n columns begins again at each row k (n + 1).
    """
    # The places along each axis, as tensors that broadcast to the shape of the value.
    first, *later = (
        torch.arange(size).view(-1, *[1] * (value.dim() - 1 - axis))
        for axis, size in enumerate(value.shape)
    )
    if wrap and value.dim() == 2:
        first = torch.remainder(first, value.shape[1] + 1)
    is_on = functools.reduce(torch.logical_and, (first == places for places in later))
    return value.masked_fill_(is_on, fill_value)


COMPOSED: Mapping[Any, Callable[..., Any]] = {
    ATEN.take_along_dim.default: take_along,
    ATEN.sgn.default: signs,
    ATEN.fill_diagonal_.default: fill_diagonal_,
    ATEN.linalg_multi_dot.default: product_of_matrices,
    ATEN.linalg_vander.default: powers,
    ATEN.gradient.scalarint: slopes,
    ATEN.gradient.scalararray: slopes,
    ATEN.gradient.array: slopes,
    ATEN.gradient.scalarrayint: slopes,
    ATEN.gradient.scalarrayarray: slopes,
}
"""Forms by the operator that they replace."""

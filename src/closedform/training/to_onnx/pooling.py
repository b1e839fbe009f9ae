"""Poolings whose backward torch does not decompose, as products of matrices and gathered windows.

The mean of windows of two of four values is their product with the columns (½, ½, 0, 0) and
(0, 0, ½, ½). ``POOLING`` has the form of each operator.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from closedform.training.to_onnx.operators import ATEN


def static_size(size: Any) -> int:
    """Returns a size that is a number; a symbol is fixed, which the trace reports by its name."""
    return int(size)


def adaptive_average(value: Tensor, sizes: Sequence[int]) -> Tensor:
    """Returns the means of windows that partition each of the last axes, as products of matrices.

    Window i of n over k values is [floor(i·k/n), ceil((i + 1)·k/n)).
    """
    for axis, size in zip(range(-len(sizes), 0), sizes, strict=True):
        length = static_size(value.shape[axis])
        windows = _windows(length, size)
        # The entries of a column are 1 / (end − start) within a window: the matrix is [length,
        # size].
        table = [[(s <= i < e) / (e - s) for s, e in windows] for i in range(length)]
        weights = torch.tensor(table, dtype=value.dtype)
        value = (value.movedim(axis, -1) @ weights).movedim(-1, axis)
    return value


def pool(value: Tensor, sizes: Sequence[int]) -> Tensor:
    """Returns ``adaptive_average``; for one window a mean.

    torch's own operator also sets the strides of the result for images with their channels
    last (``as_strided_``), if the value has them; neither changes a number.
    """
    axes = list(range(-len(sizes), 0))
    if all(isinstance(size, int) and size == 1 for size in sizes):
        return value.mean(axes, keepdim=True)
    return adaptive_average(value, sizes)


def _windows(length: int, size: int) -> list[tuple[int, int]]:
    # −((−(i + 1)·k) // n) is the ceiling in integers, which a float quotient misses for large
    # sizes.
    return [(i * length // size, -((-(i + 1) * length) // size)) for i in range(size)]


def adaptive_maximum(value: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the maxima of the windows of ``adaptive_average``, and their places."""
    lengths = [static_size(size) for size in value.shape[-len(sizes) :]]
    along = [
        [list(range(start, end)) for start, end in _windows(length, size)]
        for length, size in zip(lengths, sizes, strict=True)
    ]
    return _maxima(value, lengths, along)


def max_pool(
    value: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of windows, and their places."""
    # torch decomposes the backward of pooling in two axes (max_pool2d_with_indices), not in three.
    axes = 3
    kernel, padding, dilation = (_repeat(of, axes) for of in (kernel, padding, dilation))
    stride = _repeat(stride or kernel, axes)
    lengths = [static_size(size) for size in value.shape[-axes:]]
    along = [
        [
            [place for place in window if 0 <= place < length]
            for window in _pool_windows(length, *geometry, ceil_mode=ceil_mode)
        ]
        for length, *geometry in zip(lengths, kernel, stride, padding, dilation, strict=True)
    ]
    return _maxima(value, lengths, along)


def max_pool1d(
    value: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the maxima of windows of one axis, and their places.

    torch's own operator reads the length as a number, which a free one is not.
    """
    result = ATEN.max_pool2d_with_indices.default(
        value.unsqueeze(-2),
        [1, *kernel],
        [1, *(stride or kernel)],
        [0, *padding],
        [1, *dilation],
        ceil_mode,
    )
    return result[0].squeeze(-2), result[1].squeeze(-2)


def _repeat(sizes: Sequence[int], axes: int) -> list[int]:
    return list(sizes) if len(sizes) == axes else list(sizes) * axes


def _pool_windows(
    length: int, kernel: int, stride: int, pad: int, spread: int, *, ceil_mode: bool
) -> list[list[int]]:
    """The places of each window of a pooling, those in the padding included."""
    span = length + 2 * pad - spread * (kernel - 1) - 1
    # ATen/native/Pool.h, pooling_output_shape_pad_lr (torch 2.13): the last window has to begin
    # within the values or the padding in front.
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (count - 1) * stride >= length + pad:
        count -= 1  # the last window begins in the padding on the right
    return [[i * stride - pad + spread * k for k in range(kernel)] for i in range(count)]


def _maxima(
    value: Tensor, lengths: Sequence[int], along: Sequence[Sequence[Sequence[int]]]
) -> tuple[Tensor, Tensor]:
    """The maxima of windows that are products of places along the axes; the first of equal ones."""
    axes = len(lengths)
    # Places count row-major over the pooled axes, as torch's indices do.
    steps = [math.prod(lengths[axis + 1 :]) for axis in range(axes)]
    places = [
        [sum(map(int.__mul__, place, steps)) for place in itertools.product(*window)]
        for window in itertools.product(*along)
    ]
    most = max(map(len, places))
    # The first place again: a repeated value changes neither the maximum nor the first place.
    table = torch.tensor([[*window, *[window[0]] * (most - len(window))] for window in places])
    flat = value.flatten(-axes)
    window_values = flat.index_select(-1, table.flatten()).unflatten(-1, table.shape)
    top, places_in_window = window_values.max(-1)
    sizes = [len(windows) for windows in along]
    index = torch.gather(
        table.expand(*places_in_window.shape, most), -1, places_in_window.unsqueeze(-1)
    ).squeeze(-1)
    return top.unflatten(-1, sizes), index.unflatten(-1, sizes)


def average_pool(
    value: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    axes: int,
) -> Tensor:
    """Returns the means of windows, as a product of matrices for each axis."""
    kernel, padding = _repeat(kernel, axes), _repeat(padding, axes)
    stride = _repeat(stride or kernel, axes)
    # The number of values in a window is a product over the axes, as the windows are boxes.
    counts: Any = torch.ones((), dtype=value.dtype)
    for place, axis in enumerate(range(-axes, 0)):
        length, pad = static_size(value.shape[axis]), padding[place]
        windows = _pool_windows(length, kernel[place], stride[place], pad, 1, ceil_mode=ceil_mode)
        table = [[float(i in window) for window in windows] for i in range(length)]
        weights = torch.tensor(table, dtype=value.dtype)
        # count_include_pad counts the padding within length + pad, not the part beyond it that
        # ceil_mode reads.
        first, last = (-pad, length + pad) if count_include_pad else (0, length)
        sizes = [sum(first <= i < last for i in window) for window in windows]
        size = torch.tensor(sizes, dtype=value.dtype)
        value = (value.movedim(axis, -1) @ weights).movedim(-1, axis)
        counts = counts.unsqueeze(-1) * size
    return value / (counts if divisor_override is None else float(divisor_override))


def average_pool2d(
    value: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Returns ``average_pool`` where windows have unequal counts, else the operator of torch."""
    options = kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
    if ceil_mode or (any(padding) and not count_include_pad):
        return average_pool(value, *options, axes=2)
    # The operator itself is called without its form, which would call this function again.
    operator = ATEN.avg_pool2d.default
    form = operator.py_kernels.copy()
    operator.py_kernels.clear()
    # torch caches which kernel a call dispatches to; the cache is not told of a changed table.
    operator._dispatch_cache.clear()
    try:
        result: Tensor = operator(value, *options)
    finally:
        operator.py_kernels.update(form)
        operator._dispatch_cache.clear()
    return result


POOLING: Mapping[Any, Callable[..., Any]] = {
    ATEN.adaptive_avg_pool2d.default: pool,
    ATEN.adaptive_avg_pool3d.default: pool,
    ATEN._adaptive_avg_pool2d.default: adaptive_average,
    ATEN._adaptive_avg_pool3d.default: adaptive_average,
    ATEN.adaptive_max_pool2d.default: adaptive_maximum,
    ATEN.adaptive_max_pool3d.default: adaptive_maximum,
    ATEN.max_pool1d.default: lambda *arguments, **options: max_pool1d(*arguments, **options)[0],
    ATEN.max_pool1d_with_indices.default: max_pool1d,
    ATEN.max_pool3d_with_indices.default: max_pool,
    ATEN.avg_pool2d.default: average_pool2d,
    ATEN.avg_pool3d.default: partial(average_pool, axes=3),
}
"""Forms by the operator that they replace."""

"""The backward of convolutions, in terms of operators that ONNX has.

The gradient in the weight has several forms, whose times differ by up to a factor of ten; a table
of measurements selects the form for a shape.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping

import torch

from closedform.training.to_onnx.arrays import NARROW
from closedform.training.to_onnx.convolution_costs import FASTEST, shape_class
from closedform.training.to_onnx.operators import ATEN


def convolution_backward(
    grad: torch.Tensor,
    value: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    output_mask: list[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Returns the gradients of a convolution in its input, its weight and its bias.

    The input's is the transposed convolution of ``grad`` with the weight. The weight's is the
    correlation of the input with ``grad``. A transposed convolution is its own mirror image.
    """
    del bias_sizes, output_padding
    geometry = stride, padding, dilation, groups
    # A transposed convolution is the backward of a convolution: its input and output change roles.
    wide, narrow = (grad, value) if transposed else (value, grad)
    in_input = in_weight = in_bias = None
    if output_mask[0]:
        in_input = (
            _convolve(grad, weight, geometry)
            if transposed
            else unconvolve(grad, weight, value, geometry)
        )
    if output_mask[1]:
        in_weight = weight_gradient(wide, narrow, weight, geometry)
    if output_mask[2]:
        # The bias is added at each place of each image.
        in_bias = grad.sum([0, *range(2, grad.dim())])
    return in_input, in_weight, in_bias


Geometry = tuple[list[int], list[int], list[int], int]
"""Stride, padding, dilation and groups of a convolution."""


def _convolve(value: torch.Tensor, weight: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    *along, groups = geometry
    none = [0] * len(geometry[0])
    result: torch.Tensor = ATEN.convolution(value, weight, None, *along, False, none, groups)
    return result


def unconvolve(
    grad: torch.Tensor, weight: torch.Tensor, like: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the transposed convolution whose result has the size of ``like``.

    Without strides, it is the convolution with the mirrored weight: twice as fast as ONNX's
    transposed convolution in onnxruntime for a kernel of one place, 1.6 times for one channel a
    group.
    """
    *along, groups = geometry
    stride, padding, dilation = along
    kernel = [int(size) for size in weight.shape[2:]]
    rest = [far * (of - 1) - pad for of, far, pad in zip(kernel, dilation, padding, strict=True)]
    is_thin = weight.shape[1] == 1 and weight.shape[0] == groups > 1
    if set(stride) == {1} and min(rest) >= 0 and (set(kernel) == {1} or is_thin):
        kernels = weight.flip([*range(2, weight.dim())]) if set(kernel) != {1} else weight
        if not is_thin:
            outputs, inputs = weight.shape[:2]
            parts = kernels.reshape(groups, outputs // groups, inputs, *kernel).transpose(1, 2)
            kernels = parts.reshape(groups * inputs, outputs // groups, *kernel)
        return _convolve(grad, kernels, (stride, rest, dilation, groups))
    missing = []
    for axis, (step, pad, spread) in enumerate(zip(*along, strict=True), 2):
        reach = (grad.shape[axis] - 1) * step - 2 * pad + spread * (weight.shape[axis] - 1) + 1
        missing.append(like.shape[axis] - reach)
    if not any(isinstance(size, torch.SymInt) for size in missing):
        result: torch.Tensor = ATEN.convolution(grad, weight, None, *along, True, missing, groups)
        return result
    # ONNX has no padding of a free size here: the largest one, which is cut to the size.
    largest = [step - 1 for step in stride]
    result = ATEN.convolution(grad, weight, None, *along, True, largest, groups)
    for axis in range(2, like.dim()):
        result = result.narrow(axis, 0, like.shape[axis])
    return result


def weight_gradient(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the gradient of a convolution in its weight, in the form for its shape.

    Args:
        wide: The input of the convolution.
        narrow: The gradient in its output.
        weight: The weight.
        geometry: Stride, padding, dilation and groups.
    """
    sizes = (*wide.shape[1:], *narrow.shape[1:])
    if any(isinstance(size, torch.SymInt) for size in sizes) or wide.dtype in NARROW:
        return by_correlation(wide, narrow, weight, geometry)
    of = shape_class(wide.shape, narrow.shape, weight.shape, geometry[0])
    return FORMS[FASTEST.get(of, "correlated")](wide, narrow, weight, geometry)


def by_correlation(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the gradient as the convolution of the input with ``grad``.

    Batch and channels are exchanged, stride and dilation are exchanged, and the result is cut to
    the size of the weight. The channels of all groups form one batch.
    """
    stride, padding, dilation, groups = geometry
    batch, channels, *space = wide.shape
    per_group = channels // groups
    wide_rows = wide.reshape(batch, groups, per_group, *space).transpose(0, 2)
    wide_rows = wide_rows.reshape(per_group, groups * batch, *space)
    # ∂w[o, i, k] = Σ over b and p of x[b, i, p·stride + k·dilation]·g[b, o, p].
    result = _convolve(wide_rows, narrow.transpose(0, 1), (dilation, padding, stride, groups))
    for axis, size in enumerate(weight.shape[2:], 2):
        if isinstance(result.shape[axis], torch.SymInt):
            # A view of a free size: torch would ask whether it is the whole, and so fix the size.
            result = result.index_select(axis, torch.arange(size))
        else:
            result = result.narrow(axis, 0, size)
    return result.transpose(0, 1)


def _shifted_views(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry, first: int
) -> list[torch.Tensor]:
    """The part of the input that each place of the kernel multiplies; ``first`` is an axis."""
    stride, padding, dilation, _ = geometry
    source = wide
    if any(padding):
        behind = [0] * 2 * (wide.dim() - first - len(padding))
        around = [pad for pad in reversed(padding) for _ in range(2)]
        source = ATEN.constant_pad_nd(wide, [*behind, *around])
    parts = [source]
    # The last axis first: its slices are copied in small parts, so that there should be few.
    for axis in reversed(range(len(stride))):
        spans = [
            (place * dilation[axis], stride[axis] * (narrow.shape[axis + 2] - 1) + 1)
            for place in range(weight.shape[axis + 2])
        ]
        if spans == [(0, source.shape[axis + first])] and stride[axis] == 1:
            continue  # the whole of it, which onnxruntime would copy
        parts = [
            ATEN.slice(part, axis + first, start, start + length, stride[axis])
            for start, length in spans
            for part in parts
        ]
    return parts


def by_products(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the gradient as products of matrices, for each image and each place of the kernel."""
    groups = geometry[3]
    batch, outputs, *space = narrow.shape
    inputs, positions = wide.shape[1], math.prod(space)
    of_grad = narrow.reshape(batch, groups, outputs // groups, positions)
    places = []
    views = _shifted_views(wide, narrow, weight, geometry, 2)
    # The factor on the right is transposed, a copy: once for all, or of a single smaller one.
    if len(views) == 1 and inputs < outputs:
        value = views[0].reshape(batch, groups, inputs // groups, positions)
        return (of_grad @ value.transpose(2, 3)).sum(0).reshape(weight.shape)
    on_right = of_grad.transpose(2, 3)
    for part in views:
        value = part.reshape(batch, groups, inputs // groups, positions)
        places.append((value @ on_right).sum(0))
    kernel_products = torch.stack(places, -1)  # groups, inputs, outputs, kernel
    return kernel_products.transpose(1, 2).reshape(weight.shape)


def by_shifts(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the gradient without strides and groups as products of matrices for each image.

    For each place of the kernel, ``grad`` with channels last is moved, in whole rows, to the
    positions of the input that it multiplies.
    """
    _, padding, dilation, _ = geometry
    batch, inputs, *space = wide.shape
    outputs = narrow.shape[1]
    value = wide.reshape(batch, inputs, math.prod(space))
    narrow_last = narrow.movedim(1, -1)
    places = []
    for place in itertools.product(*map(range, weight.shape[2:])):
        around = [0, 0]
        for axis in reversed(range(len(place))):
            before = place[axis] * dilation[axis] - padding[axis]
            around += [before, space[axis] - narrow.shape[axis + 2] - before]
        shifted_narrow = ATEN.constant_pad_nd(narrow_last, around) if any(around) else narrow_last
        places.append((value @ shifted_narrow.reshape(batch, -1, outputs)).sum(0))
    return torch.stack(places, -1).transpose(0, 1).reshape(weight.shape)


def channels_last(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the gradient as one product of matrices over all images, channels last."""
    batch, outputs, *space = narrow.shape
    inputs, count = wide.shape[1], batch * math.prod(space)
    views = _shifted_views(wide.movedim(1, -1), narrow, weight, geometry, 1)
    wide_rows = torch.cat(views, -1) if len(views) > 1 else views[0]
    rows = wide_rows.reshape(count, len(views) * inputs)
    product = narrow.transpose(0, 1).reshape(outputs, count) @ rows
    return product.reshape(outputs, len(views), inputs).transpose(1, 2).reshape(weight.shape)


def diagonals(
    wide: torch.Tensor, narrow: torch.Tensor, weight: torch.Tensor, geometry: Geometry
) -> torch.Tensor:
    """Returns the gradient of two-dimensional convolutions with one channel a group.

    For each channel and each row of the kernel, the product of the columns of ``grad`` with those
    of the input, over all images and rows; its sums along diagonals are the places of the row.
    """
    stride, padding, dilation, _ = geometry
    rows, places = weight.shape[2:]
    channels, high, across = narrow.shape[1:]
    height, width = wide.shape[2:]
    columns = wide.permute(1, 2, 0, 3)  # channels, rows, images, columns
    narrow_matrices = narrow.permute(1, 2, 0, 3).reshape(channels, -1, across).transpose(1, 2)
    products = []
    for row in range(rows):
        shift = row * dilation[0] - padding[0]
        part, before, after = columns, -shift, shift + high - height
        if stride[0] > 1:
            before = min(high, max(0, -(shift // stride[0])))
            end = max(before, min(high, (height - 1 - shift) // stride[0] + 1))
            start = before * stride[0] + shift
            stop = start + stride[0] * (end - before)
            part, after = ATEN.slice(columns, 1, start, stop, stride[0]), high - end
        if before or after:
            part = ATEN.constant_pad_nd(part, [0] * 4 + [before, after])
        products.append(narrow_matrices @ part.reshape(channels, -1, width))
    # Behind its end, a row of a product has the first places of the next one.
    reach = (places - 1) * dilation[1] + 1
    behind = (across - 1) * stride[1] + reach - padding[1] - width
    product = ATEN.constant_pad_nd(torch.cat(products), [padding[1], behind])
    length = width + padding[1] + behind
    flat = product.reshape(rows * channels, across * length)
    longer = ATEN.constant_pad_nd(flat, [0, across * stride[1]])
    along = longer.reshape(rows * channels, across, length + stride[1])
    sums: torch.Tensor = ATEN.slice(along, 2, 0, reach, dilation[1]).sum(1)
    return sums.reshape(rows, channels, places).transpose(0, 1).reshape(weight.shape)


Form = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Geometry], torch.Tensor]

FORMS: Mapping[str, Form] = {
    "correlated": by_correlation,
    "summed": by_products,
    "shifted": by_shifts,
    "channels_last": channels_last,
    "diagonals": diagonals,
}
"""Forms of the gradient in the weight by name."""

"""Operators whose backward torch does not decompose, in terms of operators with simple gradients.

A form replaces an operator before its gradient is recorded, so it needs no separate backward. The
sizes that it loops over or indexes by must be static.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._C import DispatchKey
from torch._decomp.decompositions import affine_grid_generator, grid_sampler_2d

from closedform.training.tables import union
from closedform.training.to_onnx.alignment import ctc_loss
from closedform.training.to_onnx.attention import attention
from closedform.training.to_onnx.composed import COMPOSED
from closedform.training.to_onnx.matrices import (
    matrix_exponential,
    product_of_reflections,
    product_with_reflections,
    real,
)
from closedform.training.to_onnx.operators import ATEN
from closedform.training.to_onnx.pooling import POOLING, static_size
from closedform.training.to_onnx.selections import SELECTIONS, sampled_volume

Tensor = torch.Tensor


def product(value: Tensor, axis: int, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Returns the product along an axis by halves, whose gradient needs no division."""
    value = _summable(value, dtype)
    if not static_size(value.shape[axis]):
        # A product of nothing is 1; ones_like of the sum has the shape without asking for it.
        return torch.ones_like(value.sum(axis, keepdim))  # it has no gradient
    while (count := static_size(value.shape[axis])) > 1:
        # A tree of products: the gradient of each product is the other factor, also where one is 0.
        half = count // 2
        rest = value.narrow(axis, 2 * half, count - 2 * half)
        value = torch.cat(
            [value.narrow(axis, 0, half) * value.narrow(axis, half, half), rest], axis
        )
    result: Tensor = value if keepdim else value.squeeze(axis)
    return result


def _summable(value: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A tensor in the dtype of its product: int64 for integers and booleans, as torch has it."""
    if dtype is None and not (value.is_floating_point() or value.is_complex()):
        dtype = torch.int64
    return value if dtype is None else value.to(dtype)


def product_of_all(value: Tensor, *, dtype: Any = None) -> Tensor:
    """Returns the product of all values."""
    return product(value.flatten(), 0, dtype=dtype)


def cumulative_product(value: Tensor, axis: int, *, dtype: Any = None) -> Tensor:
    """Returns the products of the first values along an axis, in log2(n) steps."""
    value = _summable(value, dtype)
    # Hillis and Steele: after step k each entry is the product of up to 2^k values.
    count, distance = static_size(value.shape[axis]), 1
    while distance < count:
        left = count - distance
        later = value.narrow(axis, distance, left) * value.narrow(axis, 0, left)
        value = torch.cat([value.narrow(axis, 0, distance), later], axis)
        distance *= 2
    return value


def _extremes(is_later: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """A cumulative maximum or minimum with its places, in log2(n) steps.

    Of equal values the last one counts, as torch has it.
    """

    def cumulate(value: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        if not value.dim():
            # torch's cummax takes a number as a vector of one.
            return value.clone(), torch.zeros((), dtype=torch.int64)
        count, distance = static_size(value.shape[axis]), 1
        sizes = [1] * value.dim()
        sizes[axis] = count
        place = torch.arange(count).view(sizes).expand(value.shape)
        # Places are found on values without a gradient; the gradient passes through the gather at
        # the end.
        extrema = value.detach()
        while distance < count:
            left = count - distance
            pairs = [
                (t.narrow(axis, distance, left), t.narrow(axis, 0, left)) for t in (extrema, place)
            ]
            # Hillis and Steele's scan: after each step, an entry covers twice as many predecessors.
            is_own = is_later(*pairs[0])
            extrema, place = (
                torch.cat(
                    [t.narrow(axis, 0, distance), torch.where(is_own, current, earlier)], axis
                )
                for t, (current, earlier) in zip((extrema, place), pairs, strict=True)
            )
            # torch.ge and torch.le prefer the later of equal values.
            distance *= 2
        return value.gather(axis, place), place

    return cumulate


def kth_smallest(
    value: Tensor, k: int, axis: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the k-th smallest values along an axis, and their places."""
    if not value.dim():
        return value.clone(), torch.zeros((), dtype=torch.int64)
    # sort() has a decomposition and an ONNX form (TopK); kthvalue has neither.
    places = value.detach().sort(axis)[1].narrow(axis, k - 1, 1)
    values = value.gather(axis, places)
    return (values, places) if keepdim else (values.squeeze(axis), places.squeeze(axis))


def median(value: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the lower medians along an axis, and their places."""
    count = static_size(value.shape[axis]) if value.dim() else 1
    # torch's median of an even number of values is the lower one, not the mean.
    return kth_smallest(value, (count + 1) // 2, axis, keepdim)


def median_of_all(value: Tensor) -> Tensor:
    """Returns the lower median of all values."""
    return median(value.flatten(), 0)[0]


def take(value: Tensor, index: Tensor) -> Tensor:
    """Returns values by their places in the flattened tensor."""
    flat = value.flatten()
    # Negative places count from the end, as in torch's take.
    places = torch.where(index < 0, index + flat.shape[0], index).flatten()
    return flat.index_select(0, places).view(index.shape)


def masked_select(value: Tensor, mask: Tensor) -> Tensor:
    """Returns the values where a mask is true, in their order."""
    value, mask = torch.broadcast_tensors(value, mask)
    selection: Tensor = value[mask]
    return selection


def put(value: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Returns a tensor with values at places of the flattened tensor."""
    flat = value.flatten()
    places = torch.where(index < 0, index + flat.shape[0], index).flatten()
    return flat.index_put([places], source.flatten(), accumulate).view(value.shape)


def trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sum_axes: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Returns a sum of products of three tensors over axes, as an Einstein sum.

    Each tensor lacks the axes that it is expanded by.
    """
    del unroll_dim
    axes = range(first.dim() + len(expand1))
    # axes of the operands counted together: "expand" names those that an operand lacks.
    letters = [
        "".join(chr(ord("a") + axis) for axis in axes if axis not in left_out)
        for left_out in (expand1, expand2, expand3, sum_axes)
    ]
    *operands, result = letters
    contraction: Tensor = torch.einsum(f"{','.join(operands)}->{result}", first, second, third)
    return contraction


def distances(first: Tensor, second: Tensor, p: float, mode: int | None = None) -> Tensor:
    """Returns the p-norms of the differences of rows; the gradient at 0 is 0, as torch has it."""
    del mode
    apart = (first.unsqueeze(-2) - second.unsqueeze(-3)).abs()
    # 0-norm: the number of entries that differ.
    if p == 0:
        # The second term has no value, but ties the result to its operands for autograd.
        return (apart != 0).to(first.dtype).sum(-1) + 0 * apart.sum(-1)
    if p == 1:
        return apart.sum(-1)
    if math.isinf(p):
        return apart.amax(-1)
    # A product in place of a Pow, whose gradient is another Pow.
    total = (apart * apart if p == 2 else apart**p).sum(-1)
    # The slope of a root is infinite at 0; torch defines the gradient there as 0.
    is_apart = total > 0
    root = torch.where(is_apart, total, 1.0) ** (1 / p)
    return torch.where(is_apart, root, 0.0)


def distances_of_pairs(value: Tensor, p: float = 2.0) -> Tensor:
    """Returns the p-norms of the differences of each row and the later ones."""
    count = static_size(value.shape[0])
    # torch.pdist lists the pairs (i, j) with i < j row by row.
    places = [i * count + j for i, j in itertools.combinations(range(count), 2)]
    return (
        distances(value, value, p)
        .flatten()
        .index_select(0, torch.tensor(places, dtype=torch.int64))
    )


def weight_norm(direction: Tensor, scale: Tensor, axis: int = 0) -> tuple[Tensor, Tensor]:
    """Returns scale · v / |v|, with norms over all axes but one, and the norms."""
    # dim of weight_norm is the axis that keeps its norms apart.
    other_axes = [i for i in range(direction.dim()) if i != axis]
    norm = (direction * direction).sum(other_axes, keepdim=True).sqrt()
    return direction * (scale / norm), norm


def unfold(
    value: Tensor,
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Returns the windows of images as columns."""
    padded_value = torch.nn.functional.pad(value, [padding[1], padding[1], padding[0], padding[0]])
    table, _ = _columns([static_size(n) for n in padded_value.shape[-2:]], kernel, dilation, stride)
    columns = padded_value.flatten(-2).index_select(-1, table.flatten()).unflatten(-1, table.shape)
    result: Tensor = columns.flatten(-3, -2)
    return result


def fold(
    value: Tensor,
    size: Sequence[int],
    kernel: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Returns images whose windows add up the columns: the transpose of ``unfold``."""
    lengths = [n + 2 * pad for n, pad in zip(size, padding, strict=True)]
    table, _ = _columns(lengths, kernel, dilation, stride)
    # col2im lists the kernel places of one channel one after the other.
    channels = static_size(value.shape[-2]) // math.prod(kernel)
    columns = value.unflatten(-2, (channels, math.prod(kernel))).flatten(-2)
    # An expanded 0: the size of the batch may be free.
    image: Tensor = torch.zeros((), dtype=value.dtype)
    image = image.expand(*columns.shape[:-1], math.prod(lengths))
    # index_add sums what windows share.
    image = image.index_add(-1, table.flatten(), columns).unflatten(-1, lengths)
    for axis, (length, pad) in enumerate(zip(size, padding, strict=True), -2):
        image = image.narrow(axis, pad, length)
    return image


def _columns(
    lengths: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> tuple[Tensor, list[int]]:
    """The places of each window of flattened images: kernel places × windows."""
    rows, columns = (
        [
            [i * step + spread * k for i in range((n - spread * (of - 1) - 1) // step + 1)]
            for k in range(of)
        ]
        for n, of, spread, step in zip(lengths, kernel, dilation, stride, strict=True)
    )
    places = [
        [r * lengths[1] + c for r in row for c in column] for row in rows for column in columns
    ]
    return torch.tensor(places), [len(rows[0]), len(columns[0])]


def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns sums (mode 0), means (1) or maxima (2) of rows of a table over bags of indices.

    Raises:
        NotImplementedError: The gradient is to be scaled by frequencies.
    """
    del sparse
    if scale_grad_by_freq:
        raise NotImplementedError("embedding_bag with scale_grad_by_freq")
    if include_last_offset:
        offsets = offsets[:-1]
    places = torch.arange(indices.shape[0])
    # The bag of index i is the number of offsets up to i, less 1: an empty bag shares its offset
    # with the next one.
    bag = (places.unsqueeze(1) >= offsets.unsqueeze(0)).sum(1) - 1
    rows = weight.index_select(0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    is_counted = (indices != padding_idx).to(weight.dtype)
    # A product of a matrix of 0 and 1 in place of sums over parts of unknown length: bags ×
    # indices.
    members = (bag.unsqueeze(0) == torch.arange(offsets.shape[0]).unsqueeze(1)).to(weight.dtype)
    # Rows with padding_idx count neither in the sum nor in the divisor of the mean.
    members = members * is_counted
    sizes = members.sum(1)
    if mode == 2:
        # Not −∞: 0·∞ in the gradient of the maximum would be NaN.
        low = torch.finfo(weight.dtype).min
        inside = torch.where(members.unsqueeze(-1) > 0, rows.unsqueeze(0), low)
        result = inside.max(1)[0]
        result = torch.where(sizes.unsqueeze(1) > 0, result, 0.0)
    else:
        result = members @ rows
        if mode == 1:
            result = result / sizes.clamp(min=1).unsqueeze(1)
    return result, bag, sizes.to(indices.dtype), offsets


def _padding(is_reflection: bool) -> Callable[..., Tensor]:
    """A padding with values of the border: each axis by its places."""

    def pad(value: Tensor, padding: Sequence[int]) -> Tensor:
        for place in range(len(padding) // 2):
            axis = -1 - place
            length = value.shape[axis]
            before, after = padding[2 * place : 2 * place + 2]
            if isinstance(length, torch.SymInt):
                index = source(torch.arange(-before, length + after), length)
            else:  # as one constant of the graph
                index = torch.tensor(source(np.arange(-before, length + after), length))
            value = value.index_select(axis, index)
        return value

    def source(places: Any, length: Any) -> Any:
        """The places that the values come from, as an array or a tensor."""
        if is_reflection:
            # Reflected at 0, then at the last place, neither of which is repeated.
            return length - 1 - abs(length - 1 - abs(places))
        return places.clip(0, length - 1)

    return pad


def grid_sampler(value: Tensor, grid: Tensor, *how: Any) -> Tensor:
    """Returns values of images at places between pixels, with torch's own decomposition."""
    if value.dim() != 4:
        return sampled_volume(value, grid, *how)
    result: Tensor = grid_sampler_2d(value, grid, *how)
    return result


def grouped_product(
    first: Tensor,
    second: Tensor,
    ends: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Returns the products of groups of rows with a matrix each, as mixtures of experts have them.

    Each matrix multiplies all rows, and a mask selects its own.

    Raises:
        NotImplementedError: The groups are not groups of rows of the first operand.
    """
    if ends is None or first.dim() != 2 or second.dim() != 3:
        raise NotImplementedError("grouped_mm with groups that are not of rows")
    rows = torch.arange(first.shape[0]).unsqueeze(1)
    # The group of a row is the number of ends up to it.
    group = (rows >= ends).sum(1, keepdim=True)
    total: Any = 0.0
    for index, matrix in enumerate(second.unbind(0)):
        product = first @ matrix if bias is None else first @ matrix + bias[index]
        total = total + torch.where(group == index, product, 0.0)
    result: Tensor = total if out_dtype is None else total.to(out_dtype)
    return result


def fake_quantized(
    value: Tensor, scale: float, zero_point: int, least: int, largest: int
) -> tuple[Tensor, Tensor]:
    """Returns values rounded to a grid, and the mask of those that the grid reaches.

    The gradient passes to these unchanged, as torch defines it. As in the kernels of
    torch, the distance of the grid and its inverse are float32.
    """
    distance = np.float32(scale)
    return _on_grid(value, float(distance), float(1 / distance), zero_point, (least, largest))


def fake_quantized_channels(
    value: Tensor, scale: Tensor, zero_point: Tensor, axis: int, least: int, largest: int
) -> tuple[Tensor, Tensor]:
    """Returns ``fake_quantized`` with a grid for each place of an axis."""
    shape = [1] * value.dim()
    shape[axis] = -1
    distance = scale.detach().reshape(shape)
    places = zero_point.detach().reshape(shape).to(distance.dtype)
    return _on_grid(value, distance, 1 / distance, places, (least, largest))


def _on_grid(
    value: Tensor, distance: Any, inverse: Any, zero_point: Any, limits: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    # round() takes halves to even, as the kernel's nearbyint.
    place = torch.round(value * inverse + zero_point)
    mask = (place >= limits[0]) & (place <= limits[1])
    grid_value = ((place.clamp(*limits) - zero_point) * distance).to(value.dtype).detach()
    # x − x is 0 with the gradient of x.
    return grid_value + torch.where(mask, value - value.detach(), 0.0), mask.detach()


_FORMS: Mapping[Any, Callable[..., Any]] = {
    ATEN.ctc_loss.IntList: ctc_loss,
    ATEN.ctc_loss.Tensor: ctc_loss,
    ATEN._grouped_mm.default: grouped_product,
    ATEN.scaled_dot_product_attention.default: attention,
    ATEN.prod.dim_int: product,
    ATEN.prod.default: product_of_all,
    ATEN.cumprod.default: cumulative_product,
    ATEN.cummax.default: _extremes(torch.ge),
    ATEN.cummin.default: _extremes(torch.le),
    ATEN.kthvalue.default: kth_smallest,
    ATEN.median.dim: median,
    ATEN.median.default: median_of_all,
    ATEN.take.default: take,
    ATEN.masked_select.default: masked_select,
    ATEN.put.default: put,
    ATEN._trilinear.default: trilinear,
    ATEN._cdist_forward.default: distances,
    ATEN._pdist_forward.default: distances_of_pairs,
    ATEN._weight_norm_interface.default: weight_norm,
    ATEN.im2col.default: unfold,
    ATEN.col2im.default: fold,
    ATEN._embedding_bag.default: embedding_bag,
    ATEN._embedding_bag_forward_only.default: embedding_bag,
    ATEN.grid_sampler.default: grid_sampler,
    ATEN.grid_sampler_2d.default: grid_sampler,
    ATEN.affine_grid_generator.default: affine_grid_generator,
    ATEN.fake_quantize_per_tensor_affine_cachemask.default: fake_quantized,
    ATEN.fake_quantize_per_channel_affine_cachemask.default: fake_quantized_channels,
    ATEN.linalg_matrix_exp.default: real(matrix_exponential, "matrix_exp"),
    ATEN.linalg_householder_product.default: real(product_of_reflections, "householder_product"),
    ATEN.ormqr.default: real(product_with_reflections, "ormqr"),
    ATEN.reflection_pad1d.default: _padding(True),
    ATEN.reflection_pad2d.default: _padding(True),
    ATEN.reflection_pad3d.default: _padding(True),
    ATEN.replication_pad1d.default: _padding(False),
    ATEN.replication_pad2d.default: _padding(False),
    ATEN.replication_pad3d.default: _padding(False),
}

FORMS: Mapping[Any, Callable[..., Any]] = union(_FORMS, POOLING, SELECTIONS, COMPOSED)
"""Forms by the operator that they replace."""

# At these keys the dispatcher asks for the form before autograd records the operator.
_KEYS = (DispatchKey.AutogradCPU, DispatchKey.AutogradMeta)


@contextlib.contextmanager
def forms_of_operators() -> Iterator[None]:
    """Has torch's Python dispatcher call the forms instead of the operators."""
    saved_kernels = {operator: dict(operator.py_kernels) for operator in FORMS}
    try:
        for operator, form in FORMS.items():
            operator.py_kernels.update(dict.fromkeys(_KEYS, form))
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, kernels in saved_kernels.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()

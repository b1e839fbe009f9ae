"""Operators that select by a mask, by indices or by order, with results of static sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from closedform.training.to_onnx.operators import ATEN

Tensor = torch.Tensor


def masked_scatter(value: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Returns a tensor whose entries under a mask are the first ones of a source, in their order.

    A source that is too short is an error of the index, as in torch.
    """
    value, mask = torch.broadcast_tensors(value, mask)
    # The place of an entry in the source is the number of true entries before it.
    places = torch.cumsum(mask.flatten().to(torch.int64), 0) - 1
    values = source.flatten().index_select(0, places.clamp(min=0)).view(value.shape)
    return torch.where(mask, values, value)


def index_reduce(
    value: Tensor,
    axis: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """Returns the products, means or extremes of rows with an index, as a reduction by entries."""
    if not value.dim():
        row = index_reduce(
            value.reshape(1), 0, index, source.reshape(-1), reduce, include_self=include_self
        )
        return row.reshape(())
    sizes = [1] * source.dim()
    sizes[axis] = -1
    entries = index.to(torch.int64).view(sizes).expand(source.shape)
    return value.scatter_reduce(axis, entries, source, reduce, include_self=include_self)


def combinations(value: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Returns the combinations of r entries of a vector, as rows."""
    places = range(int(value.shape[0]))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    table = torch.tensor(list(choose(places, r)), dtype=torch.int64).reshape(-1, r)
    return value.index_select(0, table.flatten()).view(table.shape)


def median_of_numbers(value: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the lower medians of the entries that are not NaN, and their places."""
    if not value.dim():
        return value.clone(), torch.zeros((), dtype=torch.int64)
    values = value.detach()
    is_number = ~values.isnan()
    # NaN sorts as ∞, behind all numbers: the median counts numbers only.
    order = torch.where(is_number, values, math.inf).sort(dim=axis, stable=True)[1]
    last = (is_number.to(torch.int64).sum(axis, keepdim=True) - 1).clamp(min=0)
    places = order.gather(axis, torch.div(last, 2, rounding_mode="floor"))
    medians = value.gather(axis, places)
    return (medians, places) if keepdim else (medians.squeeze(axis), places.squeeze(axis))


def median_of_all_numbers(value: Tensor) -> Tensor:
    """Returns the lower median of all entries that are not NaN."""
    return median_of_numbers(value.flatten(), 0)[0]


def covariance(
    value: Tensor,
    *,
    correction: int = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor:
    """Returns the covariances of rows; torch also looks at the weights, of which none is negative.

    The divisor is Σw − correction·Σwa/Σw for weights w of frequencies times importances a.
    """
    rows = value.reshape(1, -1) if value.dim() < 2 else value
    weights: Tensor | None = fweights
    if aweights is not None:
        weights = aweights if fweights is None else fweights * aweights
    if weights is None:
        mean = rows.mean(1, keepdim=True)
        divisor: Any = torch.sym_max(rows.shape[1] - correction, 0)
    else:
        total = weights.sum()
        mean = (rows * weights).sum(1, keepdim=True) / total
        excess = correction if aweights is None else correction * (weights * aweights).sum() / total
        divisor = (total - excess).to(rows.dtype).clamp(min=0)
    centred_rows = rows - mean
    weighted_rows = centred_rows if weights is None else centred_rows * weights
    # A divisor of 0 gives infinities, as in torch.
    product: Tensor = weighted_rows @ centred_rows.mT / divisor
    return product.squeeze()


def places_in_order(
    sequence: Tensor,
    values: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Returns how many numbers of a sorted sequence are below each value, or not above it (right).

    As in torch, all numbers of the sequence are below NaN.
    """
    if sorter is not None:
        sequence = sequence.gather(-1, sorter)
    rows = sequence if sequence.dim() == 1 else sequence.unsqueeze(-2)
    column = torch.as_tensor(values).unsqueeze(-1)
    is_behind = rows > column if right or side == "right" else rows >= column
    return (~is_behind).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def margins_of_labels(value: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Returns the loss of lists of labels, and the mask of the classes that are in them.

    The loss of a row is Σ max(0, 1 − x_y + x_j)/C over its labels y, up to the first −1, and the
    other ones j of C classes. The decomposition of torch 2.13 takes each −1 for the label 0.
    """
    rows, labels = torch.atleast_2d(value), torch.atleast_2d(target)
    count = rows.shape[1]
    places = torch.arange(count)
    ends = torch.where(labels == -1, places, count).amin(1, keepdim=True)
    is_label = (places < ends).unsqueeze(2)
    # A replaced −1 is not an index, of which the labels of a batch are checked.
    index = labels.masked_fill(labels == -1, 0)
    is_target = ((index.unsqueeze(2) == places) & is_label).any(1)
    margins = 1 - rows.gather(1, index).unsqueeze(2) + rows.unsqueeze(1)
    # relu: unlike clamp, and as in the kernel, a margin of 0 has no gradient.
    losses = torch.where(is_label & ~is_target.unsqueeze(1), torch.relu(margins), 0.0)
    loss = losses.sum((1, 2)) / count
    mask = is_target.to(value.dtype).view(target.shape)
    if reduction == 0:
        return loss.view(target.shape[:-1]), mask
    return (loss.mean() if reduction == 1 else loss.sum()), mask


def antialiasing(order: int) -> Callable[..., Tensor]:
    """A resampling of images with a kernel as wide as the pixels of the smaller image.

    Args:
        order: 1 for the linear kernel, 3 for Keys's cubic one with a = −1/2.
    """

    def resample(
        value: Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Tensor:
        for axis, size, factor in zip((-2, -1), output_size, (scales_h, scales_w), strict=True):
            weights = _weights(
                int(value.shape[axis]), int(size), factor, order, align_corners=align_corners
            )
            table = torch.tensor(weights, dtype=value.dtype)
            value = (value.movedim(axis, -1) @ table).movedim(-1, axis)
        return value

    return resample


def _weights(
    length: int, size: int, factor: float | None, order: int, *, align_corners: bool
) -> list[list[float]]:
    """The weight of each pixel in each of the pixels of the result, of which each adds up to 1."""
    if align_corners:
        scale = (length - 1) / (size - 1) if size > 1 else 0.0
    else:
        scale = 1 / factor if factor else length / size
    stretch = max(scale, 1.0)
    support = (order + 1) / 2 * stretch
    columns = []
    for i in range(size):
        # Pixels are ½ off their index unless corners are aligned; torch adds it in both cases.
        centre = scale * (i + 0.5)
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), length)
        column = [0.0] * length
        for place in range(first, last):
            column[place] = _kernel((place - centre + 0.5) / stretch, order)
        total = sum(column)
        columns.append([weight / total for weight in column] if total else column)
    return [list(row) for row in zip(*columns, strict=True)]


def _kernel(distance: float, order: int) -> float:
    # Keys, Cubic convolution interpolation for digital image processing (1981); PIL has the same a.
    x, a = abs(distance), -0.5
    if order == 1:
        return max(1 - x, 0.0)
    if x < 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((x - 5) * x + 8) * x * a - 4 * a if x < 2 else 0.0


def sampled_volume(
    value: Tensor, grid: Tensor, mode: int = 0, padding: int = 0, align_corners: bool = False
) -> Tensor:
    """Returns values of volumes at places between voxels: linear (mode 0) or the nearest (1).

    Outside are zeros (padding 0), the border (1) or reflections (2).
    """
    sizes = [int(size) for size in value.shape[-3:]]
    places = [
        _place(grid[..., 2 - axis], size, padding, align_corners=align_corners)
        for axis, size in enumerate(sizes)
    ]
    if mode == 1:
        corners: list[list[tuple[Tensor, Any]]] = [[(place.round(), 1.0)] for place in places]
    else:
        # A floor has no slope: the gradient of a place comes from its shares only.
        low = [place.detach().floor() for place in places]
        corners = [
            [(first, 1 - (place - first)), (first + 1, place - first)]
            for place, first in zip(places, low, strict=True)
        ]
    flat = value.flatten(-3)
    total: Any = 0.0
    for corner in itertools.product(*corners):
        index: Any = 0
        weight: Any = 1.0
        for (place, share), size in zip(corner, sizes, strict=True):
            inside = (place >= 0) & (place <= size - 1)
            weight = weight * share * inside.to(value.dtype)
            index = index * size + place.clamp(0, size - 1).to(torch.int64)
        indices = index.flatten(1).unsqueeze(1).expand(-1, value.shape[1], -1)
        samples = flat.gather(-1, indices).view(*value.shape[:2], *grid.shape[1:4])
        total = total + samples * weight.unsqueeze(1)
    result: Tensor = total
    return result


def _place(numbers: Tensor, size: int, padding: int, *, align_corners: bool) -> Tensor:
    """Places in [−1, 1] as indices of an axis."""
    if align_corners:
        place = (numbers + 1) / 2 * (size - 1)
        low, width = 0.0, float(size - 1)
    else:
        place = ((numbers + 1) * size - 1) / 2
        low, width = -0.5, float(size)
    if padding == 2:
        if not width:
            return torch.zeros_like(place)
        distance = (place - low).abs()
        # A triangular wave: on even turns forwards, on odd ones backwards.
        turns = torch.floor(distance.detach() / width)
        rest = distance - turns * width
        is_even = torch.floor(turns / 2) * 2 == turns
        place = torch.where(is_even, rest + low, width - rest + low)
    return place.clamp(0, size - 1) if padding else place


SELECTIONS: Mapping[Any, Callable[..., Any]] = {
    ATEN.masked_scatter.default: masked_scatter,
    ATEN.index_reduce.default: index_reduce,
    ATEN.combinations.default: combinations,
    ATEN.nanmedian.dim: median_of_numbers,
    ATEN.nanmedian.default: median_of_all_numbers,
    ATEN.cov.default: covariance,
    ATEN.searchsorted.Tensor: places_in_order,
    ATEN.searchsorted.Scalar: places_in_order,
    ATEN.multilabel_margin_loss_forward.default: margins_of_labels,
    ATEN._upsample_bilinear2d_aa.default: antialiasing(1),
    ATEN._upsample_bicubic2d_aa.default: antialiasing(3),
    ATEN.grid_sampler_3d.default: sampled_volume,
}
"""Forms by the operator that they replace."""

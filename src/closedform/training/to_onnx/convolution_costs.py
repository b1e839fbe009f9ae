"""The fastest form of the gradient of a convolution in its weight, by measurements.

``python -m benchmarks.convolution_gradients`` measures each form in onnxruntime on one thread, with
16 images, and writes the table of this file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CHANNELS = (8, 48, 96)
"""Limits of the classes of channels; the smaller number of inputs and outputs of a group counts,
and for one channel a group, all channels."""

POSITIONS = (24, 128, 512)
"""Limits of the classes of positions in the output of an image."""


class ShapeClass(NamedTuple):
    """Convolutions for which one form is the fastest.

    Attributes:
        kind: ``dense``, ``grouped``, or ``depthwise`` (in two dimensions) for one channel a group.
        is_pointwise: Whether the kernel has one place.
        is_strided: Whether a stride is above 1.
        channels: The index of the class of channels.
        positions: The index of the class of positions.
    """

    kind: str
    is_pointwise: bool
    is_strided: bool
    channels: int
    positions: int


def shape_class(
    inputs: Sequence[int], outputs: Sequence[int], weight: Sequence[int], stride: Sequence[int]
) -> ShapeClass:
    """Returns the class of a convolution, by the shapes of its input, output and weight."""
    groups = inputs[1] // weight[1]
    per_group = min(weight[1], outputs[1] // groups)
    kind = "dense" if groups == 1 else "grouped"
    channels = per_group
    if groups > 1 and inputs[1] == outputs[1] == groups and len(weight) == 4:
        kind, channels = "depthwise", groups
    return ShapeClass(
        kind,
        math.prod(weight[2:]) == 1,
        max(stride) > 1,
        _index(channels, CHANNELS),
        _index(math.prod(outputs[2:]), POSITIONS),
    )


def _index(size: int, limits: Sequence[int]) -> int:
    return sum(size > limit for limit in limits)


_TABLE = """\
dense     1 1 0  summed        channels_last channels_last channels_last
dense     1 1 1  channels_last summed        summed        summed
dense     1 1 2  channels_last channels_last channels_last summed
dense     1 1 3  channels_last channels_last channels_last summed
dense     1 2 0  channels_last summed        summed        summed
dense     1 2 1  channels_last channels_last channels_last summed
dense     1 2 2  channels_last channels_last summed        summed
dense     1 2 3  channels_last channels_last summed        summed
dense     3 1 0  correlated    channels_last summed        summed
dense     3 1 1  channels_last channels_last shifted       shifted
dense     3 1 2  channels_last shifted       shifted       shifted
dense     3 1 3  channels_last channels_last shifted       shifted
dense     3 2 0  correlated    correlated    correlated    correlated
dense     3 2 1  channels_last channels_last summed        summed
dense     3 2 2  channels_last channels_last summed        summed
dense     3 2 3  channels_last channels_last summed        summed
grouped   1 1 0  summed        summed        summed        summed
grouped   1 1 1  summed        summed        summed        summed
grouped   1 1 2  summed        summed        summed        summed
grouped   1 1 3  summed        summed        summed        summed
grouped   1 2 0  summed        summed        summed        summed
grouped   1 2 1  summed        summed        summed        summed
grouped   1 2 2  summed        summed        summed        summed
grouped   1 2 3  correlated    summed        summed        summed
grouped   3 1 0  correlated    correlated    summed        summed
grouped   3 1 1  correlated    summed        summed        summed
grouped   3 1 2  correlated    summed        summed        summed
grouped   3 1 3  correlated    summed        summed        summed
grouped   3 2 0  correlated    correlated    correlated    summed
grouped   3 2 1  correlated    correlated    summed        summed
grouped   3 2 2  correlated    summed        summed        summed
grouped   3 2 3  correlated    summed        summed        summed
depthwise 3 1 0  diagonals     diagonals     diagonals     diagonals
depthwise 3 1 1  diagonals     diagonals     diagonals     diagonals
depthwise 3 1 2  diagonals     diagonals     diagonals     diagonals
depthwise 3 1 3  diagonals     diagonals     diagonals     diagonals
depthwise 3 2 0  diagonals     diagonals     diagonals     diagonals
depthwise 3 2 1  diagonals     diagonals     diagonals     diagonals
depthwise 3 2 2  diagonals     diagonals     diagonals     diagonals
depthwise 3 2 3  diagonals     diagonals     diagonals     diagonals
"""

FASTEST: Mapping[ShapeClass, str] = {
    ShapeClass(kind, kernel == "1", stride == "2", int(channels), index): form
    for kind, kernel, stride, channels, *forms in map(str.split, _TABLE.splitlines())
    for index, form in enumerate(forms)
}
"""Names of forms by class."""

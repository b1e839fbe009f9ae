"""Work items: tiles of the flat bucket of an elementwise rule, and whole tensors of other rules.

The parameters of an elementwise rule are stored consecutively in one flat array, the bucket, and so
is each state. One graph with a dynamic size runs over tiles of the bucket, however many tensors the
model has; an element gets the same bits whatever tensor and tile it belongs to. Other rules run
tensor by tensor, with one session for each rule and shape.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.types import Shape
from closedform.language import PARAM, UpdateRule
from closedform.runtime.workers import ANY_PARAM, ItemSessions, Scratch, Tensors, WorkItem

SMALLEST_TILE = 2**14
"""The least number of elements of a tile that outweighs the overhead of a run (20 µs)."""

LARGEST_TILE_BYTES = 2**18

TILE_WITH_SUMS = 2**17
"""Elements of a tile of a rule that takes sums: fixed, so that sums agree on every machine."""


@dataclass(frozen=True, slots=True)
class ParamGroup:
    """The parameters of one rule, by name."""

    rule: UpdateRule
    params: Mapping[str, Array]


def largest_tile_bytes() -> int:
    """Returns the largest size of a tile in bytes: half of the L2 cache, at most 256 KiB.

    An operator's operand and result of this size fit the cache. In a cache of 1 MiB, tiles of half
    its size take 20 % longer than those of 256 KiB; smaller ones lose more to the overhead of runs
    than they gain.
    """
    try:
        # sysconf has 0 where the size is not known, as in some virtual machines.
        return min(max(os.sysconf("SC_LEVEL2_CACHE_SIZE") // 2, 2**17), LARGEST_TILE_BYTES)
    except (AttributeError, ValueError, OSError):  # not on every system
        return LARGEST_TILE_BYTES


def tile_size(count: int, workers: int, itemsize: int) -> int:
    """Returns the number of elements of a tile that gives all workers the same load.

    Args:
        count: The total number of elements.
        workers: The number of tiles that are updated concurrently.
        itemsize: Bytes per element.
    """
    largest = largest_tile_bytes() // itemsize
    # -(-a // b) rounds up. As many rounds as the cache demands, then equal tiles.
    rounds = max(-(-count // (workers * largest)), 1)
    return max(-(-count // (workers * rounds)), SMALLEST_TILE)


@dataclass(frozen=True, slots=True)
class TileSegment:
    """The intersection of a tile with one parameter.

    Attributes:
        param: The name of the parameter.
        first: The index of its first element within the parameter.
        start: The index of its first element within the tile.
        count: The number of elements.
    """

    param: str
    first: int
    start: int
    count: int


class Tile:
    """A contiguous range of a bucket: see ``WorkItem``.

    Args:
        sessions: The models of a vector of any size.
        flats: The arrays of the bucket by input name.
        first: The index of the tile's first element within the bucket.
        segments: The tile's segments in order.
    """

    def __init__(
        self,
        sessions: ItemSessions,
        flats: Mapping[str, Array],
        first: int,
        segments: Sequence[TileSegment],
    ) -> None:
        self.sessions = sessions
        self._segments = tuple(segments)
        count = sum(segment.count for segment in segments)
        self.current: Mapping[str, Array] = {
            name: flat[first:][:count] for name, flat in flats.items()
        }

    def gather(self, port: str, tensors: Tensors, scratch: Scratch) -> Array:
        """Returns the elements of an input: a view if one tensor covers the tile, else a copy."""
        sources = [(tensors[port.replace(ANY_PARAM, s.param, 1)], s) for s in self._segments]
        if len(sources) == 1:
            tensor, only = sources[0]
            if tensor is not None:
                return tensor.reshape(-1)[only.first :][: only.count]
        tile = scratch.array(port, self.current[naming.param(ANY_PARAM)])
        for tensor, s in sources:
            # Without a gradient the tile computes with 0, and commit() leaves the parameter out.
            flat = 0 if tensor is None else tensor.reshape(-1)[s.first :][: s.count]
            tile[s.start :][: s.count] = flat
        return tile

    def commit(self, results: Mapping[str, Array], tensors: Tensors) -> None:
        """Copies results into place, except for parameters without a gradient."""
        if all(tensors[naming.grad(s.param)] is not None for s in self._segments):
            for name, array in self.current.items():
                np.copyto(array, results[name])
            return
        for s in self._segments:
            if tensors[naming.grad(s.param)] is not None:
                for name, array in self.current.items():
                    array[s.start :][: s.count] = results[name][s.start :][: s.count]


class WholeTensor:
    """One parameter with its states: see ``WorkItem``.

    Args:
        sessions: The models of a parameter of this shape.
        param: The name of the parameter.
        current: Its arrays by the input name of the parameter ``ANY_PARAM``.
    """

    def __init__(self, sessions: ItemSessions, param: str, current: Mapping[str, Array]) -> None:
        self.sessions = sessions
        self._param = param
        self.current = current

    def gather(self, port: str, tensors: Tensors, scratch: Scratch) -> Array:
        """Returns the gradient or other tensor of an input; zeros if there is none."""
        tensor = tensors[port.replace(ANY_PARAM, self._param, 1)]
        if tensor is not None:
            return tensor
        zeros = scratch.array(port, self.current[naming.param(ANY_PARAM)])
        zeros[...] = 0
        return zeros

    def commit(self, results: Mapping[str, Array], tensors: Tensors) -> None:
        """Copies results into place if the parameter has a gradient."""
        if tensors[naming.grad(self._param)] is not None:
            for name, array in self.current.items():
                np.copyto(array, results[name])


def bucket_tiles(
    group: ParamGroup, sessions: ItemSessions, size: int
) -> tuple[dict[str, Array], list[WorkItem]]:
    """Returns the arrays of a group's parameters and states by input name, and its tiles.

    Args:
        group: An elementwise rule and its parameters.
        sessions: The models of a vector of any size.
        size: The largest number of elements of a tile.
    """
    rule, params = group.rule, group.params
    flat = np.concatenate([array.reshape(-1) for array in params.values()])
    flats = {naming.param(ANY_PARAM): flat}
    for label, spec in rule.states.items():
        # Schedule-free methods and weight averages begin with the parameter.
        starts_from_param = spec.initial == PARAM
        start = flat.copy() if starts_from_param else np.full_like(flat, float(spec.initial))
        flats[naming.state(ANY_PARAM, label)] = start
    # With sums, the size of tiles is the order of the addition, and so the bits of the total.
    tiles = _tiles(params, TILE_WITH_SUMS if sessions.stages else size)
    # One empty tile for parameters without elements: a worker has at least one item.
    items = [Tile(sessions, flats, first, segments) for first, segments in tiles or [(0, [])]]
    return dict(_views(flats, params)), [*items]


def _views(flats: Mapping[str, Array], params: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    first = 0
    for name, array in params.items():
        for port, flat in flats.items():
            view = flat[first:][: array.size].reshape(array.shape)
            yield port.replace(f".{ANY_PARAM}", f".{name}", 1), view
        first += array.size


def _tiles(params: Mapping[str, Array], size: int) -> list[tuple[int, list[TileSegment]]]:
    """The first element and the segments of each tile of at most ``size`` elements."""
    tiles: list[tuple[int, list[TileSegment]]] = []
    first, length = 0, 0
    segments: list[TileSegment] = []
    for name, array in params.items():
        offset = 0
        while offset < array.size:
            count = min(array.size - offset, size - length)
            segments.append(TileSegment(name, offset, length, count))
            offset += count
            length += count
            if length == size:
                tiles.append((first, segments))
                first, length, segments = first + length, 0, []
    if segments:
        tiles.append((first, segments))
    return tiles


def whole_tensors(
    group: ParamGroup, sessions: Mapping[Shape, ItemSessions]
) -> tuple[dict[str, Array], list[WorkItem]]:
    """Returns the arrays of a group's parameters and states by input name, and its tensors.

    Args:
        group: A rule and its parameters.
        sessions: The models by shape.
    """
    arrays: dict[str, Array] = {}
    items: list[WorkItem] = []
    for name, array in group.params.items():
        rule = group.rule.for_shape(array.shape, name)
        current = {naming.param(ANY_PARAM): array.copy()}
        for label, spec in rule.states.items():
            shape = tuple(int(size) for size in rule.state_shape(label, array.shape))
            current[naming.state(ANY_PARAM, label)] = (
                array.copy()
                if spec.initial == PARAM
                else np.full(shape, float(spec.initial), array.dtype)
            )
        items.append(WholeTensor(sessions[array.shape], name, current))
        arrays |= {port.replace(f".{ANY_PARAM}", f".{name}", 1): a for port, a in current.items()}
    return arrays, items

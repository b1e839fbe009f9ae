"""Elementwise rules over flat buckets: one small graph, however many tensors a model has.

The parameters of a rule lie one behind the other in one array, and so does each state. The graph
has one free size and runs over pieces of these arrays; an element gets the same bits whatever
tensor or piece it lies in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.language import PARAM
from closedform.runtime.buffers import Array
from closedform.runtime.in_place import Member
from closedform.runtime.lanes import ALL, Memory, Part, Sessions, Tensors
from closedform.runtime.layout import STATE

SMALLEST = 2**14
"""Elements of a piece, at the least, that outweigh what a run of onnxruntime costs (20 µs)."""

PIECE_OF_SUMS = 2**17
"""Elements of a piece of a rule that takes sums: the same on every machine, as sums then are."""


def piece_bytes() -> int:
    """Returns the bytes of a piece, at the most: half of a core's own cache, or of 1 MiB.

    With pieces of this size an operator's operand and result stay there; with smaller ones, runs
    cost more than the cache gives.
    """
    try:
        return max(os.sysconf("SC_LEVEL2_CACHE_SIZE"), 2**18) // 2
    except (AttributeError, ValueError, OSError):  # not on every system
        return 2**19


def piece_size(count: int, lanes: int, itemsize: int) -> int:
    """Returns the elements of a piece, such that lanes have as much to do.

    Args:
        count: Elements in all.
        lanes: How many pieces step at the same time.
        itemsize: Bytes of an element.
    """
    largest = piece_bytes() // itemsize
    rounds = max(-(-count // (lanes * largest)), 1)
    return max(-(-count // (lanes * rounds)), SMALLEST)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a piece that lies in one parameter.

    Attributes:
        param: Its name.
        first: Its first element within the parameter.
        start: Its first element within the piece.
        count: The number of elements.
    """

    param: str
    first: int
    start: int
    count: int


class Piece:
    """A piece of a bucket: see ``Part``."""

    def __init__(
        self,
        sessions: Sessions,
        flats: Mapping[str, Array],
        first: int,
        segments: Sequence[Segment],
    ) -> None:
        self.sessions = sessions
        self._segments = tuple(segments)
        count = sum(segment.count for segment in segments)
        self.current: Mapping[str, Array] = {
            name: flat[first:][:count] for name, flat in flats.items()
        }

    def taken(self, port: str, tensors: Tensors, memory: Memory) -> Array:
        """Returns the elements of an input, where they lie if that is one tensor; else a copy."""
        parts = [(tensors[port.replace(ALL, s.param, 1)], s) for s in self._segments]
        if len(parts) == 1:
            whole, only = parts[0]
            if whole is not None:
                return whole.reshape(-1)[only.first :][: only.count]
        gathered = memory.array(port, self.current[f"param.{ALL}"])
        for tensor, s in parts:
            flat = 0 if tensor is None else tensor.reshape(-1)[s.first :][: s.count]
            gathered[s.start :][: s.count] = flat
        return gathered

    def commit(self, results: Mapping[str, Array], tensors: Tensors) -> None:
        """Copies the results into place, but those of parameters without a gradient."""
        if all(tensors[f"grad.{s.param}"] is not None for s in self._segments):
            for name, array in self.current.items():
                np.copyto(array, results[name])
            return
        for s in self._segments:
            if tensors[f"grad.{s.param}"] is not None:
                for name, array in self.current.items():
                    array[s.start :][: s.count] = results[name][s.start :][: s.count]


def bucket_parts(
    member: Member, sessions: Sessions, piece: int
) -> tuple[dict[str, Array], list[Part]]:
    """Returns the arrays of a rule's parameters and states by input name, and its pieces.

    Args:
        member: An elementwise rule and its parameters.
        sessions: Those of a vector of any size.
        piece: Elements of a piece, at the most.
    """
    rule, params = member.rule, member.params
    flat = np.concatenate([array.reshape(-1) for array in params.values()])
    flats = {f"param.{ALL}": flat}
    for label, spec in rule.states.items():
        starts_from_param = spec.initial == PARAM
        filled = flat.copy() if starts_from_param else np.full_like(flat, float(spec.initial))
        flats[f"{STATE}{ALL}.{label}"] = filled
    size = PIECE_OF_SUMS if sessions.stages else piece
    pieces = list(_pieces(params, size)) or [(0, [])]
    parts = [Piece(sessions, flats, first, segments) for first, segments in pieces]
    return dict(_views(flats, params)), [*parts]


def _views(flats: Mapping[str, Array], params: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    first = 0
    for name, array in params.items():
        for port, flat in flats.items():
            part = flat[first:][: array.size].reshape(array.shape)
            yield port.replace(f".{ALL}", f".{name}", 1), part
        first += array.size


def _pieces(params: Mapping[str, Array], size: int) -> Iterator[tuple[int, list[Segment]]]:
    """First element and segments of each piece of at most ``size`` elements."""
    first, filled = 0, 0
    segments: list[Segment] = []
    for name, array in params.items():
        done = 0
        while done < array.size:
            count = min(array.size - done, size - filled)
            segments.append(Segment(name, done, filled, count))
            done += count
            filled += count
            if filled == size:
                yield first, segments
                first, filled, segments = first + filled, 0, []
    if segments:
        yield first, segments

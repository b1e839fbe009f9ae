"""Elementwise rules over flat buckets: one small graph, however many tensors a model has.

The parameters of a rule lie one behind the other in one array, and so does each state. The graph
has one free size and runs over pieces of these arrays; an element gets the same bits whatever
tensor or piece it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.language import PARAM
from closedform.runtime.buffers import Array
from closedform.runtime.in_place import ALL, Member, Part, Sessions, Tensors
from closedform.runtime.layout import STATE

PIECE = 2**18
"""Elements of a piece: 1 MiB of float32, so that what a step computes stays in the cache."""


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


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The parameters of one rule.

    Attributes:
        flats: The flat arrays by input name for the parameter ``all``.
        scratch: Memory of the results of a piece by input name.
        gathered: Memory of pieces of gradients and other inputs that lie in several tensors.
    """

    flats: dict[str, Array]
    scratch: dict[str, Array]
    gathered: dict[str, Array]

    def memory(self, port: str) -> Array:
        """Returns memory for a piece of an input."""
        if port not in self.gathered:
            self.gathered[port] = np.empty_like(self.scratch[f"param.{ALL}"])
        return self.gathered[port]


class Piece:
    """A piece of a bucket: see ``Part``."""

    def __init__(
        self, sessions: Sessions, bucket: _Bucket, first: int, segments: Sequence[Segment]
    ) -> None:
        self.sessions = sessions
        self.params = tuple(segment.param for segment in segments)
        self._bucket = bucket
        self._segments = tuple(segments)
        count = sum(segment.count for segment in segments)
        self._current = {name: flat[first:][:count] for name, flat in bucket.flats.items()}
        self._scratch = {name: array[:count] for name, array in bucket.scratch.items()}

    def current(self) -> Mapping[str, Array]:
        """Returns what the run reads of parameters and states, by input name."""
        return self._current

    def scratch(self) -> Mapping[str, Array]:
        """Returns the memory of what replaces them."""
        return self._scratch

    def taken(self, port: str, tensors: Tensors) -> Array:
        """Returns the elements of an input, where they lie if that is one tensor; else a copy."""
        parts = [(tensors[port.replace(ALL, s.param, 1)], s) for s in self._segments]
        if len(parts) == 1:
            whole, only = parts[0]
            if whole is not None:
                return whole.reshape(-1)[only.first :][: only.count]
        memory = self._bucket.memory(port)[: self._scratch[f"param.{ALL}"].size]
        for tensor, s in parts:
            flat = 0 if tensor is None else tensor.reshape(-1)[s.first :][: s.count]
            memory[s.start :][: s.count] = flat
        return memory

    def commit(self, tensors: Tensors) -> None:
        """Copies the results into place, but those of parameters without a gradient."""
        for s in self._segments:
            if tensors[f"grad.{s.param}"] is not None:
                for name, array in self._current.items():
                    array[s.start :][: s.count] = self._scratch[name][s.start :][: s.count]


def bucket_parts(
    member: Member, sessions: Sessions, piece: int = PIECE
) -> tuple[dict[str, Array], list[Part]]:
    """Returns the arrays of a rule's parameters and states by input name, and its pieces.

    Args:
        member: An elementwise rule and its parameters.
        sessions: Those of a vector of any size.
        piece: Elements of a piece.
    """
    rule, params = member.rule, member.params
    flat = np.concatenate([array.reshape(-1) for array in params.values()])
    flats = {f"param.{ALL}": flat}
    for label, spec in rule.states.items():
        starts_from_param = spec.initial == PARAM
        filled = flat.copy() if starts_from_param else np.full_like(flat, float(spec.initial))
        flats[f"{STATE}{ALL}.{label}"] = filled
    size = min(piece, flat.size)
    bucket = _Bucket(flats, {name: np.empty(size, flat.dtype) for name in flats}, {})
    pieces = list(_pieces(params, piece)) or [(0, [])]
    parts = [Piece(sessions, bucket, first, segments) for first, segments in pieces]
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

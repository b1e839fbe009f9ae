"""Ranges of the integer inputs of a step: a table that is part of its file.

ONNX counts negative indices from the end, and a label below 0 or a token past the end would train
a wrong row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import BATCH
from closedform.training.feeds import size_value

METADATA = "closedform.indices"
"""The key of the table in the metadata of a file."""

Cut = tuple[int, int | None, int | None, int]
"""A slice: axis, start, stop, step."""


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The values of a part of an integer input that an operator reads as indices or labels.

    Attributes:
        input: The tensor of the batch.
        size: The values are below it: a number, or a formula of the free sizes.
        low: The least value.
        is_from_end: Whether values down to −size count from the end.
        free: Further values, such as the ``ignore_index`` of a loss.
        cuts: The slices, one after the other, whose result is read.
    """

    input: str
    size: str
    low: int = 0
    is_from_end: bool = False
    free: tuple[int, ...] = ()
    cuts: tuple[Cut, ...] = ()


def metadata_of(ranges: Sequence[IndexRange]) -> dict[str, str]:
    """Returns the metadata of ranges."""
    return {METADATA: json.dumps([asdict(entry) for entry in ranges])} if ranges else {}


def read(metadata: Mapping[str, str]) -> tuple[IndexRange, ...]:
    """Returns the ranges in the metadata of a file."""
    return tuple(
        IndexRange(
            entry["input"],
            entry["size"],
            entry["low"],
            entry["is_from_end"],
            tuple(entry["free"]),
            tuple((axis, start, stop, step) for axis, start, stop, step in entry["cuts"]),
        )
        for entry in json.loads(metadata.get(METADATA, "[]"))
    )


def check(
    ranges: Sequence[IndexRange],
    arrays: Mapping[str, Array],
    sizes: Mapping[str, int],
    where: str,
) -> None:
    """Raises SessionError at the first value out of its range, with its place.

    Args:
        ranges: The ranges.
        arrays: The batch by the names of the inputs.
        sizes: The free sizes by name.
        where: The model, named in errors.
    """
    for entry in ranges:
        array = arrays[f"{BATCH}{entry.input}"]
        values = _cut(array, entry.cuts)
        size = size_value(entry.size, sizes, entry.input, where)
        low = -size if entry.is_from_end else entry.low
        if not values.size or (values.min() >= low and values.max() < size):
            continue
        is_wrong = (values < low) | (values >= size)
        if entry.free:
            is_wrong &= ~np.isin(values, entry.free)
        if not is_wrong.any():
            continue
        # The same slices of the places tell where in the input a wrong value is.
        places = _cut(np.arange(array.size).reshape(array.shape), entry.cuts)
        place = np.unravel_index(int(places[is_wrong][0]), array.shape)
        bounds = " or ".join((f"in {low}..{size - 1}", *map(str, entry.free)))
        row = f"row {place[0]}" if place else "the batch"
        at = f" (at {list(map(int, place))})" if len(place) > 1 else ""
        raise SessionError(
            f"{entry.input!r} must have values {bounds}, got {array[place]} in {row}{at}",
            where=where,
            hint="they are labels or indices of the model; TrainSession(…, check=False) leaves "
            "this out",
        )


def _cut(array: Array, cuts: Sequence[Cut]) -> Array:
    for axis, start, stop, step in cuts:
        array = array[(slice(None),) * axis + (slice(start, stop, step),)]
    return array

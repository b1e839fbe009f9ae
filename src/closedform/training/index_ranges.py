"""Ranges of the integer inputs of a step: a table that is part of its file.

ONNX counts negative indices from the end, and a label below 0 or a token past the end would train
a wrong row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import BATCH
from closedform.training.feeds import size_tree, size_value

METADATA = "closedform.indices"
"""The key of the table in the metadata of a file."""

Cut = tuple[int, int | None, int | None, int]
"""A slice: axis, start, stop, step."""

Step = tuple[str, int]
"""A monotone function of the values with a number: add, multiply, floor_divide, clip_low or
clip_high."""

Interval = tuple[float, float]
"""The least and the greatest integer, which may be infinite."""


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The values of a part of an integer input that an operator reads as indices or labels.

    Attributes:
        input: The tensor of the batch.
        size: The values are below it: a number, or a formula of the free sizes.
        low: The least value.
        is_from_end: Whether values down to −size count from the end.
        free: Further values of the input, such as the ``ignore_index`` of a loss.
        cuts: The slices, one after the other, whose result is read.
        steps: The arithmetic, one step after the other, whose result is read.
    """

    input: str
    size: str
    low: int = 0
    is_from_end: bool = False
    free: tuple[int, ...] = ()
    cuts: tuple[Cut, ...] = ()
    steps: tuple[Step, ...] = ()


def preimage(interval: Interval, steps: Sequence[Step]) -> Interval:
    """Returns the integers whose results of the steps are in an interval."""
    low, high = interval
    for kind, number in reversed(steps):
        match kind:
            case "add":
                low, high = low - number, high - number
            case "multiply":
                low, high = sorted((low / number, high / number))
                low, high = _whole(math.ceil, low), _whole(math.floor, high)
            case "floor_divide":
                low, high = low * number, high * number + number - 1
            case "clip_low":
                low = -math.inf if low <= number else low
                high = high if number <= high else -math.inf
            case "clip_high":
                high = math.inf if number <= high else high
                low = low if low <= number else math.inf
            case _:
                raise ValueError(f"{kind!r} is not a step of index ranges")
    return low, high


def _whole(function: Callable[[float], int], bound: float) -> float:
    return bound if math.isinf(bound) else function(bound)


def metadata_of(ranges: Sequence[IndexRange]) -> dict[str, str]:
    """Returns the metadata of ranges."""
    return {METADATA: json.dumps([asdict(entry) for entry in ranges])} if ranges else {}


def without_formulas(ranges: Sequence[IndexRange]) -> list[dict[str, Any]]:
    """Returns ranges as JSON for hosts that parse no formulas.

    A size is a number, the name of a free size, or a list of an operator (add, subtract,
    multiply, floor_divide or modulo) and two sizes.
    """
    return [{**asdict(entry), "size": size_tree(entry.size)} for entry in ranges]


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
            # Files written before arithmetic was followed have no steps.
            tuple((kind, number) for kind, number in entry.get("steps", ())),
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
        least = -size if entry.is_from_end else entry.low
        low, high = preimage((least, size - 1), entry.steps)
        if not values.size or (values.min() >= low and values.max() <= high):
            continue
        is_wrong = (values < low) | (values > high)
        if entry.free:
            is_wrong &= ~np.isin(values, entry.free)
        if not is_wrong.any():
            continue
        # The same slices of the places tell where in the input a wrong value is.
        places = _cut(np.arange(array.size).reshape(array.shape), entry.cuts)
        place = np.unravel_index(int(places[is_wrong][0]), array.shape)
        bounds = " or ".join((_text((low, high)), *map(str, entry.free)))
        row = f"row {place[0]}" if place else "the batch"
        at = f" (at {list(map(int, place))})" if len(place) > 1 else ""
        raise SessionError(
            f"{entry.input!r} must have values {bounds}, got {array[place]} in {row}{at}",
            where=where,
            hint="they are labels or indices of the model; TrainSession(…, check=False) leaves "
            "this out",
        )


def _text(interval: Interval) -> str:
    match interval:
        case (low, high) if math.isinf(low):
            return f"<= {high}"
        case (low, high) if math.isinf(high):
            return f">= {low}"
        case (low, high):
            return f"in {low}..{high}"


def _cut(array: Array, cuts: Sequence[Cut]) -> Array:
    for axis, start, stop, step in cuts:
        array = array[(slice(None),) * axis + (slice(start, stop, step),)]
    return array

"""The memory that a session writes: an array that overlaps it would change under its owner."""

from __future__ import annotations

import bisect
from collections.abc import Iterable

from numpy.lib.array_utils import byte_bounds

from closedform.ir.graph import Array


class Memory:
    """The memory of arrays that do not overlap each other."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        bounds = sorted(byte_bounds(array) for array in arrays if array.size)
        self._starts, self._ends = [start for start, _ in bounds], [end for _, end in bounds]

    def overlaps(self, array: Array) -> bool:
        """Returns whether an array has memory in common with one of them."""
        if array.size == 0:
            return False
        start, end = byte_bounds(array)
        place = bisect.bisect_left(self._ends, start + 1)
        return place < len(self._starts) and self._starts[place] < end

"""The tensors of several calls in one list, and where each call finds its own there.

The numbers of a group (its hyperparameters, and states of rank 0 such as the counters of steps)
lie one behind the other in memory, so that they are read and written as vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from closedform.ir.naming import NEXT
from closedform.torch.engine.bound_program import Call

Source = tuple[int, int]
"""The place of a tensor in a list, and of a number in it; -1 for the tensor itself."""

Write = tuple[Source, int]
"""Where a result is written to, and which of its numbers; -1 for all of it."""


@dataclass(frozen=True, slots=True)
class Member:
    """The tensors of a call by name.

    Attributes:
        sources: Where inputs come from.
        targets: Where outputs are written to.
    """

    sources: dict[str, Source]
    targets: dict[str, list[Source]]


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of several calls.

    Attributes:
        tensors: What calls read and write, one call after the other; then vectors of numbers.
        numbers: The places of numbers that are in vectors, and where they are there.
    """

    tensors: list[Tensor]
    numbers: dict[int, Source]

    @staticmethod
    def of(calls: Sequence[Call]) -> Layout:
        """Returns the layout of calls."""
        tensors: list[Tensor] = []
        for _, reads, writes, _ in calls:
            tensors += reads
            for targets in writes:
                tensors += targets
        places: dict[int, list[int]] = {}
        for place, tensor in enumerate(tensors):
            if not tensor.dim():
                places.setdefault(id(tensor), []).append(place)
        numbers: dict[int, Source] = {}
        for run in _runs([tensors[found[0]] for found in places.values()]):
            for row, number in enumerate(run):
                numbers |= dict.fromkeys(places[id(number)], (len(tensors), row))
            tensors.append(run[0].as_strided((len(run),), (1,)))
        return Layout(tensors, numbers)

    def members(self, calls: Sequence[Call]) -> list[Member]:
        """Returns where each call finds its tensors; one that is read and written has one place."""
        found = []
        shared: dict[int, int] = {}
        start = 0
        for program, reads, writes, hypers in calls:
            places = dict(zip(program.input_names, range(start, start + len(reads)), strict=True))
            known = dict(zip(program.input_names, reads, strict=True))
            start += len(reads)
            targets: dict[str, list[Source]] = {}
            for label, group in zip(program.output_names, writes, strict=True):
                targets[label] = [(place, -1) for place in range(start, start + len(group))]
                start += len(group)
                name = label.removeprefix(NEXT)
                if name in known and known[name] is group[0]:
                    targets[label][0] = self._source(places[name])
            for name, tensor in known.items():
                if any(tensor is value for value in hypers.values()):
                    places[name] = shared.setdefault(id(tensor), places[name])
            sources = {name: self._source(place) for name, place in places.items()}
            found.append(Member(sources, targets))
        return found

    def _source(self, place: int) -> Source:
        return self.numbers.get(place, (place, -1))


def _runs(numbers: Sequence[Tensor]) -> list[list[Tensor]]:
    """Numbers of which each lies behind the one before it in the same memory, two or more."""
    runs: list[list[Tensor]] = []
    for number in sorted(numbers, key=Tensor.data_ptr):
        if runs and _follows(runs[-1][-1], number):
            runs[-1].append(number)
        else:
            runs.append([number])
    return [run for run in runs if len(run) > 1]


def _follows(one: Tensor, other: Tensor) -> bool:
    return (
        other.data_ptr() == one.data_ptr() + one.element_size()
        and other.dtype == one.dtype
        and other.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
    )


def line_up(states: Iterable[dict[str, Tensor]]) -> None:
    """Puts the states of rank 0 of several parameters one behind the other in memory."""
    columns: dict[tuple[str, torch.dtype], list[dict[str, Tensor]]] = {}
    for one in states:
        for name, value in one.items():
            if not value.dim():
                columns.setdefault((name, value.dtype), []).append(one)
    for (name, _), owners in columns.items():
        vector = torch.stack([one[name] for one in owners])
        for one, number in zip(owners, vector.unbind(), strict=True):
            one[name] = number


def column_of(sources: Sequence[Source], tensors: Sequence[Tensor]) -> Sequence[Source]:
    """Returns one source where all are the same, or are all the numbers of a vector in order."""
    place, row = sources[0]
    if all(source == sources[0] for source in sources):
        return sources[:1]
    is_whole = row == 0 and place < len(tensors) and len(tensors[place]) == len(sources)
    in_order = list(sources) == [(place, row) for row in range(len(sources))]
    return [(place, -1)] if is_whole and in_order else sources


def writes_of(rows: Sequence[Sequence[Source]], tensors: Sequence[Tensor]) -> list[Write]:
    """Returns where a result goes that has one number for each of several members.

    Args:
        rows: Where each member wants its own.
        tensors: The tensors.
    """
    if len(rows) > 1 and all(len(targets) == 1 for targets in rows):
        column = column_of([targets[0] for targets in rows], tensors)
        if len(column) == 1:
            return [(column[0], -1)]
    is_alone = len(rows) == 1
    return [
        (target, -1 if is_alone else row) for row, targets in enumerate(rows) for target in targets
    ]


def read(values: Sequence[Tensor], column: Sequence[Source]) -> Tensor:
    """Returns a tensor, or several numbers as a vector."""
    found = [_entry(values[place], row) for place, row in column]
    return found[0] if len(found) == 1 else torch.stack(found)


def write(values: Sequence[Tensor], writes: Sequence[Write], result: Tensor) -> None:
    """Writes a result, or each of its numbers, where it goes."""
    for (place, row), number in writes:
        _entry(values[place], row).copy_(_entry(result, number))


def _entry(value: Tensor, row: int) -> Tensor:
    """A number of a vector, or a number that all have."""
    return value[row] if row >= 0 and value.dim() else value

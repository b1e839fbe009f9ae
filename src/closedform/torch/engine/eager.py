"""Steps of many parameters without a compiler: lists of tensors, in pieces that a cache holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from closedform.exporters.torch_module import GraphProgram
from closedform.ir.graph import Graph
from closedform.ir.naming import NEXT
from closedform.ir.ops import Op
from closedform.torch.engine.batching import Part, prepared_with, run_steps, steps_of
from closedform.torch.engine.bound_program import Function, Preparer
from closedform.torch.engine.foreach import ListProgram
from closedform.torch.engine.inplace import Memory
from closedform.torch.engine.tensor_table import Layout, Member, Source
from closedform.torch.engine.tiles import PieceProgram

PIECE = 2**18
"""The most elements that are stepped at once on a CPU: what is between stays in its cache."""

LARGE = 2**14
"""Elements of a tensor that is stepped by itself on a CPU: the ops cost more than their calls."""

BATCH = 2**26
"""Elements that are stepped at once elsewhere: a device is busy, and no copy of a model is made."""


def listed() -> Preparer:
    """Returns what makes calls ready as ops on lists of tensors."""
    known: dict[object, _Programs] = {}
    return prepared_with(partial(_function, known))


Entries = Mapping[Source, Tensor]
"""Tensors, and the numbers of vectors."""

Batch = Callable[[Entries], None]
"""What steps some members."""


def _function(
    known: MutableMapping[object, _Programs],
    layout: Layout,
    numbers: Sequence[Part],
    tensors: Sequence[Part],
) -> Function:
    """Returns what does the steps on the tensors of a layout.

    Args:
        known: What was made of programs before; it grows.
        layout: The tensors.
        numbers: What is computed of numbers.
        tensors: What is computed of tensors.
    """
    steps, _ = steps_of(layout, numbers)
    alike: dict[object, tuple[GraphProgram, list[_Row]]] = {}
    for program, (member,) in tensors:
        row = _Row.of(program, member)
        kind = _alike(program.source), tuple(row.kept(program).items())
        alike.setdefault(kind, (program, []))[1].append(row)
    batches: list[Batch] = []
    for key, (program, rows) in alike.items():
        if key not in known:
            known[key] = _Programs(program, rows[0].kept(program))
        batches += _batches(known[key], rows, layout.tensors)
    wanted = sorted({source for _, rows in alike.values() for row in rows for source in row.all})

    def run(tensors: list[Tensor]) -> None:
        values = list(tensors)
        run_steps(values, steps)
        entries = _entries(values, wanted)
        for batch in batches:
            batch(entries)

    return run


def _entries(values: Sequence[Tensor], wanted: Iterable[Source]) -> Entries:
    """The tensors at some places; each vector of numbers is taken apart once."""
    found: dict[Source, Tensor] = {}
    vectors: dict[int, Sequence[Tensor]] = {}
    for source in wanted:
        place, row = source
        if row >= 0 and values[place].dim():
            if place not in vectors:
                vectors[place] = values[place].unbind()
            found[source] = vectors[place][row]
        else:
            found[source] = values[place]
    return found


def _alike(graph: Graph) -> object:
    """What graphs have in common whose programs may run as one, on members of several shapes.

    Where all tensors of a graph have one shape, it may be any of that rank.
    """
    if len({node.type.shape for node in graph.nodes if node.type.rank}) > 1:
        return graph
    nodes = tuple(
        (
            node.op,
            node.operands,
            node.type.dtype,
            node.type.rank,
            None if node.op is Op.INPUT else node.attributes,
        )
        for node in graph.nodes
    )
    return nodes, tuple(output.index for output in graph.outputs)


@dataclass(frozen=True, slots=True)
class _Row:
    """Where a member finds the inputs of a program, and puts its outputs."""

    sources: list[Source]
    targets: list[list[Source]]

    @staticmethod
    def of(program: GraphProgram, member: Member) -> _Row:
        """Returns the row of a member."""
        return _Row(
            [member.sources[name] for name in program.input_names],
            [member.targets[name] for name in program.output_names],
        )

    def kept(self, program: GraphProgram) -> dict[int, int]:
        """Returns the output that each input is written over by, if any."""
        names = [name.removeprefix(NEXT) for name in program.output_names]
        return {
            place: names.index(name)
            for place, name in enumerate(program.input_names)
            if name in names and self.targets[names.index(name)] == [self.sources[place]]
        }

    @property
    def all(self) -> list[Source]:
        """All that the member reads and writes."""
        return [*self.sources, *(target for targets in self.targets for target in targets)]


class _Programs:
    """A program, for lists and for pieces.

    Args:
        program: The program.
        kept: The output that each input is written over by.
    """

    def __init__(self, program: GraphProgram, kept: Mapping[int, int]) -> None:
        self.graph = program.source
        self.memory = Memory(program, kept)
        self.lists = ListProgram(self.memory)

    @cached_property
    def pieces(self) -> PieceProgram:
        """The program for pieces, with its buffers."""
        return PieceProgram(self.memory, PIECE)


def _batches(
    programs: _Programs, rows: Sequence[_Row], tensors: Sequence[Tensor]
) -> Iterator[Batch]:
    """Members of one program, as many at once as their elements allow."""
    is_cpu = tensors[0].device.type == "cpu"
    is_cut = is_cpu and programs.memory.is_elementwise
    limit = PIECE if is_cpu else BATCH
    batch: list[_Row] = []
    count = 0
    for row in rows:
        size = max(tensors[place].numel() for place, _ in row.sources if place < len(tensors))
        if is_cut and size >= LARGE:
            yield _Alone(programs, row).run
            continue
        if batch and count + size > limit:
            yield _Together(programs.lists, batch).run
            batch, count = [], 0
        batch.append(row)
        count += size
    if batch:
        yield _Together(programs.lists, batch).run


class _Together:
    """Members that are stepped as lists.

    Args:
        program: The program of each member.
        rows: The members.
    """

    def __init__(self, program: ListProgram, rows: Sequence[_Row]) -> None:
        self._program = program
        self._columns = list(zip(*(row.sources for row in rows), strict=True))
        self._targets = list(zip(*(row.targets for row in rows), strict=True))

    def run(self, entries: Entries) -> None:
        """Does the steps."""
        columns = [[entries[source] for source in column] for column in self._columns]
        for results, rows in zip(self._program.run(columns), self._targets, strict=True):
            pairs = [
                (entries[target], result)
                for result, targets in zip(results, rows, strict=True)
                for target in targets
                if entries[target] is not result
            ]
            if pairs:
                written, made = zip(*pairs, strict=True)
                torch._foreach_copy_(written, made)


class _Alone:
    """A large member that is stepped by pieces, if its tensors lie alike in memory of the CPU.

    Args:
        programs: Its program.
        row: The member.
    """

    def __init__(self, programs: _Programs, row: _Row) -> None:
        self._program, self._whole = programs.pieces, _Together(programs.lists, [row])
        graph = programs.graph
        read = zip(graph.inputs, ([source] for source in row.sources), strict=True)
        nodes = (graph.nodes[output.index] for output in graph.outputs)
        both = [*read, *zip(nodes, row.targets, strict=True)]
        large = {one: None for node, sources in both if node.type.rank for one in sources}
        self._all = list(large | dict.fromkeys(row.all))
        self._count = len(large)
        places = {source: place for place, source in enumerate(self._all)}
        self._reads = [places[source] for source in row.sources]
        self._writes = [[places[target] for target in targets] for targets in row.targets]

    def run(self, entries: Entries) -> None:
        """Does the step."""
        own = [entries[source] for source in self._all]
        large = own[: self._count]
        shape = large[0].shape
        if not all(one.shape == shape and one.is_cpu and one.is_contiguous() for one in large):
            self._whole.run(entries)
            return
        numbers = own[self._count :]
        flat = [one.view(-1) for one in large]
        count = -(-flat[0].numel() // PIECE)
        for pieces in (
            [flat] if count == 1 else zip(*(one.chunk(count) for one in flat), strict=True)
        ):
            self._step([*pieces, *numbers])

    def _step(self, own: Sequence[Tensor]) -> None:
        results = self._program.run([own[place] for place in self._reads])
        for result, places in zip(results, self._writes, strict=True):
            for place in places:
                if own[place] is not result:
                    own[place].copy_(result)

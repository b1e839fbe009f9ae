"""Calls in parts: what each program computes of numbers, for all its calls at once, and of tensors.

What depends on no tensor is computed first, for the parameters of one group and rule as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.ir.hoist import hoist
from closedform.torch.engine.bound_program import Call, Function, Prepared, Preparer, results_of
from closedform.torch.engine.tensor_table import (
    Layout,
    Member,
    Source,
    Write,
    column_of,
    read,
    write,
    writes_of,
)

Part = tuple[GraphProgram, list[Member]]
"""A program and the calls that it serves at once."""

MOST = 64
"""How many sequences of programs are remembered."""

Maker = Callable[[Layout, Sequence[Part], Sequence[Part]], Function]
"""From a layout, and what is computed of numbers and of tensors, to what does the steps."""


def prepared_with(make: Maker, patterns: int | None = None) -> Preparer:
    """Returns what makes calls ready; it keeps what it made for each sequence of programs.

    Args:
        make: Makes the function of a sequence.
        patterns: How many sequences of two programs or more are made; those after them are stepped
            one by one. With None, the oldest of ``MOST`` is made again.
    """
    halves: dict[int, tuple[GraphProgram, _Halves]] = {}
    known: dict[tuple[Any, ...], Function] = {}

    def prepare(calls: Sequence[Call]) -> list[Prepared]:
        layout = Layout.of(calls)
        groups: dict[int, int] = {}
        programs = tuple(
            (id(call.program), groups.setdefault(id(call.hypers), len(groups))) for call in calls
        )
        key = programs, tuple(layout.numbers.items())
        if key not in known:
            count = sum(len(other) > 1 for other, _ in known)
            if len(calls) > 1 and patterns is not None and count >= patterns:
                return [one for call in calls for one in prepare([call])]
            if len(known) >= MOST and patterns is None:
                del known[next(iter(known))]
            for program, *_ in calls:  # kept alive, so that the id stays its own
                halves.setdefault(id(program), (program, _halves(program)))
            parts = _parts(calls, layout, [halves[place][1] for place, _ in programs])
            known[key] = make(layout, *parts)
        return [Prepared(layout.tensors, known[key])]

    return prepare


@dataclass(frozen=True, slots=True)
class _Halves:
    """A program in two.

    Attributes:
        numbers: What it computes of numbers; None if nothing.
        tensors: What it computes of tensors; None if nothing.
        is_for_vectors: Whether the numbers of several parameters may be computed as vectors.
    """

    numbers: GraphProgram | None
    tensors: GraphProgram | None
    is_for_vectors: bool


def _halves(program: GraphProgram) -> _Halves:
    first, second = hoist(program.source)
    return _Halves(
        to_module(first) if first.outputs else None,
        to_module(second) if second.outputs else None,
        all(not node.type.shape for node in first.nodes),
    )


def _parts(
    calls: Sequence[Call], layout: Layout, halves: Sequence[_Halves]
) -> tuple[list[Part], list[Part]]:
    members = layout.members(calls)
    numbers: dict[Any, Part] = {}
    tensors: list[Part] = []
    for index, (call, half) in enumerate(zip(calls, halves, strict=True)):
        if half.numbers is not None:
            key = (half.numbers.source, id(call.hypers)) if half.is_for_vectors else index
            numbers.setdefault(key, (half.numbers, []))[1].append(members[index])
        if half.tensors is not None:
            tensors.append((half.tensors, [members[index]]))
    return list(numbers.values()), tensors


class Step(NamedTuple):
    """A program on the tensors of a layout.

    Attributes:
        program: The program.
        columns: The sources of each input: one for all members, or one for each.
        outputs: Where each output is written to; what is written nowhere is put behind the tensors.
    """

    program: GraphProgram
    columns: list[Sequence[Source]]
    outputs: list[list[Write]]


def steps_of(
    layout: Layout, parts: Sequence[Part], is_apart: Callable[[Tensor], bool] = lambda _: False
) -> tuple[list[Step], dict[int, list[Write]]]:
    """Returns the steps of parts, and what must be written from behind the tensors after them.

    What is written nowhere is a number for later programs: their members know it from here on.

    Args:
        layout: The tensors.
        parts: The programs.
        is_apart: Whether a tensor cannot be written within the steps.
    """
    tensors, place = layout.tensors, len(layout.tensors)
    steps: list[Step] = []
    apart: dict[int, list[Write]] = {}
    for program, members in parts:
        columns = [[member.sources[name] for member in members] for name in program.input_names]
        outputs = []
        for name in program.output_names:
            writes = writes_of([member.targets.get(name, []) for member in members], tensors)
            if any(row < 0 and is_apart(tensors[target]) for (target, row), _ in writes):
                apart[place], writes = writes, []
            if not writes:
                for row, member in enumerate(members):
                    member.sources[name] = place, row if len(members) > 1 else -1
                place += 1
            outputs.append(writes)
        steps.append(Step(program, [column_of(one, tensors) for one in columns], outputs))
    return steps, apart


def run_steps(values: list[Tensor], steps: Sequence[Step]) -> None:
    """Does steps on tensors, and puts their numbers behind them."""
    for program, columns, outputs in steps:
        results = results_of(program, [read(values, column) for column in columns])
        for writes, result in zip(outputs, results, strict=True):
            if writes:
                write(values, writes, result)
            else:
                values.append(result)

"""Steps of many parameters as two compiled functions: first their numbers, then their tensors.

Inductor fuses what it can into the loop over the elements, and would compute a power of a decay
rate, or a schedule, again for every vector of 16. So what depends on no tensor is computed before,
in a function of its own (``ir/hoist.py``). In the second function all tensors are read and written
once, where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType, MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.ir.hoist import hoist
from closedform.ir.ops import Op
from closedform.ir.program import NEXT as NEXT

PATTERNS = 8
"""How many sets of parameters are compiled as a whole; more are stepped one by one."""


class Call(NamedTuple):
    """A program on tensors.

    Attributes:
        program: The program.
        reads: What it reads, in its order.
        writes: What each result is written to.
        hypers: Those of what it reads that calls of one group share.
    """

    program: GraphProgram
    reads: Sequence[Tensor]
    writes: Sequence[Sequence[Tensor]]
    hypers: Mapping[str, Tensor] = MappingProxyType({})


Runner = Callable[[Sequence[Call]], None]
"""What does the steps of several parameters."""


def run_torch(calls: Sequence[Call]) -> None:
    """Does the steps of several parameters."""
    for program, reads, writes, _ in calls:
        for targets, result in zip(writes, results_of(program, reads), strict=True):
            for target in targets:
                target.copy_(result)


def results_of(program: GraphProgram, reads: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Returns what a program computes of tensors, which may be stored in other dtypes."""
    given = (
        value if value.dtype is dtype else value.to(dtype)
        for value, dtype in zip(reads, program.input_dtypes, strict=True)
    )
    found = program(*given)
    return found if isinstance(found, tuple) else (found,)


def run_traced(calls: Sequence[Call]) -> None:
    """Does what ``run_torch`` does, within a trace; outside of it where its graph loses results."""
    targets = [target for call in calls for group in call.writes for target in group]
    is_apart = any(map(_is_lost, targets))
    (_run_apart if is_apart else run_torch)(calls)


def _is_lost(target: Tensor) -> bool:
    """Whether a compiled graph of torch 2.13 loses what is written: a float64 of rank 0 on the CPU.

    Dynamo takes such a tensor for a Python number.
    """
    return target.dim() == 0 and target.dtype == torch.float64 and target.device.type == "cpu"


@torch.compiler.disable  # type: ignore[untyped-decorator] # nothing of it may be traced
def _run_apart(calls: Sequence[Call]) -> None:
    """Does what ``run_torch`` does, outside of any trace."""
    run_torch(calls)


def compiled(owner: str) -> Runner:
    """Returns ``run_torch`` compiled, a pair of functions for each sequence of programs.

    Args:
        owner: A name for the functions.
    """
    halves: dict[int, tuple[GraphProgram, _Halves]] = {}
    known: dict[tuple[tuple[int, int], ...], _Fused] = {}

    def run(calls: Sequence[Call]) -> None:
        groups: dict[int, int] = {}
        key = tuple(
            (id(call.program), groups.setdefault(id(call.hypers), len(groups))) for call in calls
        )
        fused = known.get(key)
        if fused is None:
            if len(calls) > 1 and sum(len(other) > 1 for other in known) >= PATTERNS:
                for call in calls:
                    run([call])
                return
            for program, *_ in calls:  # kept alive, so that the id stays its own
                halves.setdefault(id(program), (program, _halves(program)))
            parts = [halves[place][1] for place, _ in key]
            known[key] = fused = _Fused(f"{owner}_{len(known)}", calls, parts)
        fused.run(calls)

    return run


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


_LIGHT = frozenset({Op.INPUT, Op.CONST, Op.CAST, Op.ADD, Op.SUB, Op.MUL, Op.MIN, Op.MAX})
"""Ops of numbers that cost less in the loop than a second function does (SGD of 1 M: 13 %)."""


def _halves(program: GraphProgram) -> _Halves:
    first, second = hoist(program.source)
    if all(node.op in _LIGHT for node in first.nodes):
        return _Halves(None, program, is_for_vectors=False)
    return _Halves(
        to_module(first) if first.outputs else None,
        to_module(second) if second.outputs else None,
        all(not node.type.shape for node in first.nodes),
    )


class _Fused:
    """The steps of parameters that run together, on the tensors of all calls in one list.

    Numbers are handed over behind these tensors. Parameters of one group and rule have vectors of
    them, whatever their shapes; what is the same for all is one number.

    Args:
        title: A name for the functions.
        calls: The first calls; later ones are of the same programs.
        halves: The halves of each program.
    """

    def __init__(self, title: str, calls: Sequence[Call], halves: Sequence[_Halves]) -> None:
        tensors, members = _tensors(calls), _members(calls)
        groups: dict[Any, _Part] = {}
        for index, (call, half) in enumerate(zip(calls, halves, strict=True)):
            if half.numbers is not None:
                key = (half.numbers.source, id(call.hypers)) if half.is_for_vectors else index
                groups.setdefault(key, (half.numbers, []))[1].append(members[index])
        parts = [
            (half.tensors, [member])
            for half, member in zip(halves, members, strict=True)
            if half.tensors is not None
        ]
        self._numbers = _function(f"{title}_numbers", tensors, list(groups.values()))
        self._steps = _function(f"{title}_tensors", tensors, parts)

    def run(self, calls: Sequence[Call]) -> None:
        """Does the steps."""
        tensors = _tensors(calls)
        self._numbers(tensors)
        self._steps(tensors)


def _tensors(calls: Sequence[Call]) -> list[Tensor]:
    """What calls read and write, one call after the other."""
    found: list[Tensor] = []
    for _, reads, writes, _ in calls:
        found += reads
        for targets in writes:
            found += targets
    return found


_Source = tuple[int, int]
"""The place of a tensor in a list, and of a number in it; -1 for the tensor itself."""


@dataclass(frozen=True, slots=True)
class _Member:
    """The tensors of a call by name.

    Attributes:
        sources: Where inputs come from.
        targets: The places that outputs are written to; a tensor that is read has one place.
    """

    sources: dict[str, _Source]
    targets: dict[str, list[int]]


_Part = tuple[GraphProgram, list[_Member]]
"""A program and the calls that it serves at once."""


def _members(calls: Sequence[Call]) -> list[_Member]:
    found = []
    shared: dict[int, int] = {}
    start = 0
    for program, reads, writes, hypers in calls:
        places = dict(zip(program.input_names, range(start, start + len(reads)), strict=True))
        known = dict(zip(program.input_names, reads, strict=True))
        start += len(reads)
        targets: dict[str, list[int]] = {}
        for label, group in zip(program.output_names, writes, strict=True):
            targets[label] = list(range(start, start + len(group)))
            start += len(group)
            name = label.removeprefix(NEXT)
            if name in known and known[name] is group[0]:
                targets[label][0] = places[name]
        for name, tensor in known.items():
            if any(tensor is value for value in hypers.values()):
                places[name] = shared.setdefault(id(tensor), places[name])
        found.append(_Member({name: (place, -1) for name, place in places.items()}, targets))
    return found


_Step = tuple[GraphProgram, list[list[_Source]], list[list[list[int]]]]
"""A program; the sources of each input, one for all members or one for each; and the targets of
each output, by member."""


def _function(
    title: str, tensors: Sequence[Tensor], parts: Sequence[_Part]
) -> Callable[[list[Tensor]], None]:
    """Returns a compiled function; it appends its numbers to the tensors, and members know them."""
    steps: list[_Step] = []
    lost: dict[int, list[list[int]]] = {}
    numbers: list[int] = []
    count = 0
    for program, members in parts:
        columns = [[member.sources[name] for member in members] for name in program.input_names]
        writes = []
        for name in program.output_names:
            rows = [member.targets.get(name, []) for member in members]
            if not any(rows):
                for row, member in enumerate(members):
                    place = len(tensors) + len(numbers)
                    member.sources[name] = place, row if len(members) > 1 else -1
                numbers.append(count)
            elif any(_is_lost(tensors[place]) for row in rows for place in row):
                lost[count], rows = rows, []
            writes.append(rows)
            count += 1
        steps.append((program, [_column(column) for column in columns], writes))
    if not steps:
        return lambda tensors: None
    used, steps = _compact(steps)
    traced = _compiled(title, steps, [*lost, *numbers])

    def run(tensors: list[Tensor]) -> None:
        results = traced(*[tensors[place] for place in used])
        for rows, result in zip(lost.values(), results, strict=False):
            _write(tensors, rows, result)
        tensors += results[len(lost) :]

    return run


def _column(sources: list[_Source]) -> list[_Source]:
    """One source where all are the same."""
    return sources[:1] if sources.count(sources[0]) == len(sources) else sources


def _compact(steps: Sequence[_Step]) -> tuple[list[int], list[_Step]]:
    """The places that steps use, and the steps with places among these."""
    used = {place for _, columns, _ in steps for column in columns for place, _ in column}
    used |= {place for *_, writes in steps for rows in writes for row in rows for place in row}
    order = {place: index for index, place in enumerate(sorted(used))}
    moved = [
        (
            program,
            [[(order[place], row) for place, row in column] for column in columns],
            [[[order[place] for place in row] for row in rows] for rows in writes],
        )
        for program, columns, writes in steps
    ]
    return list(order), moved


def _compiled(
    title: str, steps: Sequence[_Step], returned: Sequence[int]
) -> Callable[..., list[Tensor]]:
    """Returns a compiled function of tensors; the steps are in it, and never change.

    torch counts the compilations of a code object, whoever asked for them, and stops at a few: so
    each function has a code object of its own.
    """

    def traced(*tensors: Tensor) -> list[Tensor]:
        made: list[Tensor] = []
        for program, columns, writes in steps:
            results = results_of(program, [_read(tensors, column) for column in columns])
            for rows, result in zip(writes, results, strict=True):
                _write(tensors, rows, result)
            made += results
        return [made[place] for place in returned]

    code = traced.__code__.replace(co_name=title)
    own = FunctionType(code, traced.__globals__, title, None, traced.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": _is_of_tensors, "size_asserts": False}
    found: Callable[..., list[Tensor]]
    found = torch.compile(own, fullgraph=True, dynamic=False, options=options)
    return found


def _read(tensors: Sequence[Tensor], column: Sequence[_Source]) -> Tensor:
    found = [_entry(tensors[place], row) for place, row in column]
    return found[0] if len(found) == 1 else torch.stack(found)


def _write(tensors: Sequence[Tensor], rows: Sequence[Sequence[int]], result: Tensor) -> None:
    for row, targets in enumerate(rows):
        for target in targets:
            tensors[target].copy_(_entry(result, row) if len(rows) > 1 else result)


def _entry(value: Tensor, row: int) -> Tensor:
    """A number of a vector, or a number that all have."""
    return value[row] if row >= 0 and value.dim() else value


def _is_of_tensors(guards: Sequence[Any]) -> list[bool]:
    """Which guards of a function must be asked: of its tensors and of torch, not of its steps."""
    return [not guard.name or guard.name.startswith("tensors") for guard in guards]

"""Steps of many parameters as two compiled functions: first their numbers, then their tensors.

Inductor fuses what it can into the loop over the elements, and would compute a power of a decay
rate, or a schedule, again for every vector of 16. So what depends on no tensor is computed before,
in a function of its own (``ir/hoist.py``). In the second function all tensors are read and written
once, where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.ir.hoist import hoist
from closedform.ir.program import NEXT

PATTERNS = 8
"""How many sets of parameters are compiled as a whole; more are stepped one by one."""

Call = tuple[GraphProgram, list[Tensor], list[tuple[Tensor, ...]]]
"""A program, what it reads and what it writes, in its order."""

Runner = Callable[[Sequence[Call]], None]
"""What does the steps of several parameters."""


def run_torch(calls: Sequence[Call]) -> None:
    """Does the steps of several parameters."""
    for program, reads, writes in calls:
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
    is_apart = any(_is_lost(target) for *_, writes in calls for group in writes for target in group)
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
    known: dict[tuple[int, ...], _Fused] = {}

    def run(calls: Sequence[Call]) -> None:
        key = tuple(id(program) for program, _, _ in calls)
        fused = known.get(key)
        if fused is None:
            if len(calls) > 1 and sum(len(other) > 1 for other in known) >= PATTERNS:
                for call in calls:
                    run([call])
                return
            for program, _, _ in calls:  # kept alive, so that the id stays its own
                halves.setdefault(id(program), (program, _halves(program)))
            parts = [halves[place][1] for place in key]
            known[key] = fused = _Fused(f"{owner}_{len(known)}", calls, parts)
        fused.run(calls)

    return run


_Halves = tuple[GraphProgram | None, GraphProgram | None]
"""The program of numbers and that of tensors; None where there is nothing to compute."""

_Step = tuple[GraphProgram, tuple[int, ...], tuple[tuple[int, ...], ...]]
"""A program, the places of what it reads, and of what each result is written to.

A result that is written nowhere is returned.
"""


def _halves(program: GraphProgram) -> _Halves:
    first, second = hoist(program.source)
    return (
        to_module(first) if first.outputs else None,
        to_module(second) if second.outputs else None,
    )


class _Fused:
    """The steps of parameters that run together, on the tensors of all calls in one list.

    Args:
        name: A name for the functions.
        calls: The first calls; later ones are of the same programs.
        halves: The halves of each program.
    """

    def __init__(self, name: str, calls: Sequence[Call], halves: Sequence[_Halves]) -> None:
        tensors = _tensors(calls)
        numbers, steps = _Half(tensors), _Half(tensors)
        start, place = 0, len(tensors)
        for call, (early, late) in zip(calls, halves, strict=True):
            inputs, targets = _places(call, start)
            start += len(_tensors([call]))
            if early is not None:
                for output in early.output_names:
                    if output not in targets:
                        inputs[output], place = place, place + 1
                numbers.add(early, inputs, targets)
            if late is not None:
                steps.add(late, inputs, targets)
        self._numbers = numbers.compiled(f"{name}_numbers")
        self._steps = steps.compiled(f"{name}_tensors")

    def run(self, calls: Sequence[Call]) -> None:
        """Does the steps."""
        tensors = _tensors(calls)
        self._numbers(tensors)
        self._steps(tensors)


def _tensors(calls: Sequence[Call]) -> list[Tensor]:
    """What calls read and write, one call after the other."""
    found: list[Tensor] = []
    for _, reads, writes in calls:
        found += reads
        for targets in writes:
            found += targets
    return found


def _places(call: Call, first: int) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """The places of inputs and targets by name; a target that is read has one place."""
    program, reads, writes = call
    inputs = {name: first + place for place, name in enumerate(program.input_names)}
    start = first + len(reads)
    targets: dict[str, tuple[int, ...]] = {}
    for name, group in zip(program.output_names, writes, strict=True):
        places = list(range(start, start + len(group)))
        start += len(group)
        read = inputs.get(name.removeprefix(NEXT))
        if read is not None and reads[read - first] is group[0]:
            places[0] = read
        targets[name] = tuple(places)
    return inputs, targets


class _Half:
    """The programs of one function.

    Args:
        tensors: What calls read and write, for the dtypes.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._steps: list[_Step] = []
        self._returned: list[tuple[int, ...]] = []

    def add(
        self,
        program: GraphProgram,
        inputs: Mapping[str, int],
        targets: Mapping[str, tuple[int, ...]],
    ) -> None:
        """Adds a program; what no target takes is appended to the tensors."""
        writes: list[tuple[int, ...]] = []
        for name in program.output_names:
            places = targets.get(name, ())
            if not places or any(_is_lost(self._tensors[place]) for place in places):
                self._returned.append(places)
                places = ()
            writes.append(places)
        reads = tuple(inputs[name] for name in program.input_names)
        self._steps.append((program, reads, tuple(writes)))

    def compiled(self, name: str) -> Callable[[list[Tensor]], None]:
        """Returns the function; without programs it does nothing."""
        if not self._steps:
            return lambda tensors: None
        places = {place for _, reads, writes in self._steps for place in chain(reads, *writes)}
        used = sorted(places)
        order = {place: index for index, place in enumerate(used)}
        steps = [
            (
                program,
                tuple(order[place] for place in reads),
                tuple(tuple(order[place] for place in group) for group in writes),
            )
            for program, reads, writes in self._steps
        ]
        traced = _compiled(name, steps)
        returned = tuple(self._returned)

        def run(tensors: list[Tensor]) -> None:
            results = traced(*[tensors[place] for place in used])
            for targets, result in zip(returned, results, strict=True):
                if not targets:
                    tensors.append(result)
                for target in targets:
                    tensors[target].copy_(result)

        return run


def _compiled(name: str, steps: Sequence[_Step]) -> Callable[..., list[Tensor]]:
    """Returns a compiled function of tensors; the steps are in it, and never change.

    torch counts the compilations of a code object, whoever asked for them, and stops at a few: so
    each function has a code object of its own.
    """

    def traced(*tensors: Tensor) -> list[Tensor]:
        returned = []
        for program, reads, writes in steps:
            results = results_of(program, [tensors[place] for place in reads])
            for targets, result in zip(writes, results, strict=True):
                if not targets:
                    returned.append(result)
                for target in targets:
                    tensors[target].copy_(result)
        return returned

    code = traced.__code__.replace(co_name=name)
    own = FunctionType(code, traced.__globals__, name, None, traced.__closure__)
    options: dict[str, Any] = {"guard_filter_fn": _is_of_tensors, "size_asserts": False}
    found: Callable[..., list[Tensor]]
    found = torch.compile(own, fullgraph=True, dynamic=False, options=options)
    return found


def _is_of_tensors(guards: Sequence[Any]) -> list[bool]:
    """Which guards of a function must be asked: of its tensors and of torch, not of its steps."""
    return [not guard.name or guard.name.startswith("tensors") for guard in guards]

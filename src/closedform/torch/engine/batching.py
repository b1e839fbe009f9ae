"""The steps of several parameters as one function of one list of tensors.

Each program is split into two: a scalar program, which depends on no parameter tensor (bias
corrections, schedules), and a tensor program. The scalar programs of one group and rule run first,
once for all parameters, on vectors. For this, the scalars of a group (its hyperparameters, and
states of rank 0 such as step counters) are contiguous in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from closedform.exporters.torch_module import GraphProgram, to_module
from closedform.ir.graph import Graph
from closedform.ir.naming import NEXT
from closedform.ir.program import hoist
from closedform.torch.engine.programs import (
    BatchedStep,
    Batcher,
    BoundProgram,
    StepFunction,
    outputs_of,
)

Ref = tuple[int, int]
"""A tensor of a table, by index, and one element of it; element -1 is the whole tensor."""

Store = tuple[Ref, int]
"""Where a result is stored, and which of its elements; -1 for the whole result."""

MAX_CACHED = 64
"""How many sequences of programs a batcher remembers."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a program finds its tensors in a table.

    Attributes:
        inputs: The source of each input, by name.
        outputs: The targets of each output, by name.
    """

    inputs: dict[str, Ref]
    outputs: dict[str, list[Ref]]


ProgramGroup = tuple[GraphProgram, list[Binding]]
"""A program and the bindings that it runs on at once."""

StepBuilder = Callable[
    ["TensorTable", Sequence[ProgramGroup], Sequence[ProgramGroup]], StepFunction
]
"""Builds the function of a step from a table, its scalar programs and its tensor programs."""


@dataclass(frozen=True, slots=True)
class TensorTable:
    """All tensors of several programs.

    Attributes:
        tensors: Inputs and outputs, program by program, then one vector for each run of scalars
            that are contiguous in memory.
        elements: The element of a vector that a scalar is, by the index of the scalar.
    """

    tensors: list[Tensor]
    elements: dict[int, Ref]

    @staticmethod
    def of(programs: Sequence[BoundProgram]) -> TensorTable:
        """Returns the table of some programs."""
        tensors: list[Tensor] = []
        for _, reads, writes, _ in programs:
            tensors += reads
            for targets in writes:
                tensors += targets
        indices: dict[int, list[int]] = {}
        for index, tensor in enumerate(tensors):
            if not tensor.dim():
                # By identity: the same scalar, such as a learning rate, is an input of many
                # programs.
                indices.setdefault(id(tensor), []).append(index)
        elements: dict[int, Ref] = {}
        for run in _contiguous_runs([tensors[copies[0]] for copies in indices.values()]):
            for row, scalar in enumerate(run):
                elements |= dict.fromkeys(indices[id(scalar)], (len(tensors), row))
            # One vector over all of them, in their memory: it is read and written without stack and
            # copies.
            tensors.append(run[0].as_strided((len(run),), (1,)))
        return TensorTable(tensors, elements)

    def bindings(self, programs: Sequence[BoundProgram]) -> list[Binding]:
        """Returns the binding of each program; a tensor that is read and written has one Ref."""
        bindings = []
        first_index: dict[int, int] = {}
        start = 0
        for program, reads, writes, hypers in programs:
            indices = dict(zip(program.input_names, range(start, start + len(reads)), strict=True))
            read = dict(zip(program.input_names, reads, strict=True))
            start += len(reads)
            outputs: dict[str, list[Ref]] = {}
            for label, group in zip(program.output_names, writes, strict=True):
                outputs[label] = [(index, -1) for index in range(start, start + len(group))]
                start += len(group)
                name = label.removeprefix(NEXT)
                if name in read and read[name] is group[0]:
                    outputs[label][0] = self._ref(indices[name])
            for name, tensor in read.items():
                if any(tensor is value for value in hypers.values()):
                    indices[name] = first_index.setdefault(id(tensor), indices[name])
            bindings.append(Binding({name: self._ref(i) for name, i in indices.items()}, outputs))
        return bindings

    def _ref(self, index: int) -> Ref:
        return self.elements.get(index, (index, -1))


def _contiguous_runs(scalars: Sequence[Tensor]) -> list[list[Tensor]]:
    """Groups of two or more scalars that are adjacent in one storage, in the order of the first.

    Not in the order of memory, which differs between equal optimizers.
    """
    runs: list[list[Tensor]] = []
    for scalar in sorted(scalars, key=Tensor.data_ptr):
        if runs and _is_next(runs[-1][-1], scalar):
            runs[-1].append(scalar)
        else:
            runs.append([scalar])
    place = {id(scalar): number for number, scalar in enumerate(scalars)}
    long_runs = [run for run in runs if len(run) > 1]
    return sorted(long_runs, key=lambda run: min(place[id(scalar)] for scalar in run))


def _is_next(scalar: Tensor, successor: Tensor) -> bool:
    return (
        successor.data_ptr() == scalar.data_ptr() + scalar.element_size()
        and successor.dtype == scalar.dtype
        and successor.untyped_storage().data_ptr() == scalar.untyped_storage().data_ptr()
    )


def pack_scalars(states: Iterable[dict[str, Tensor]]) -> None:
    """Makes the states of rank 0 of several parameters contiguous in memory."""
    columns: dict[tuple[str, torch.dtype], list[dict[str, Tensor]]] = {}
    for owner in states:
        for name, value in owner.items():
            if not value.dim():
                columns.setdefault((name, value.dtype), []).append(owner)
    for (name, _), owners in columns.items():
        vector = torch.stack([owner[name] for owner in owners])
        for owner, scalar in zip(owners, vector.unbind(), strict=True):
            owner[name] = scalar


def batcher(build: StepBuilder, max_compiled: int | None = None) -> Batcher:
    """Returns a batcher that remembers the function of each sequence of programs.

    Args:
        build: Builds the function of a sequence.
        max_compiled: How many sequences of two programs or more are built; later ones run program
            by program. With None, the oldest of ``MAX_CACHED`` is forgotten instead.
    """
    splits: dict[int, tuple[GraphProgram, _Split]] = {}
    functions: dict[tuple[Any, ...], StepFunction] = {}

    def batch(programs: Sequence[BoundProgram]) -> list[BatchedStep]:
        table = TensorTable.of(programs)
        groups: dict[int, int] = {}
        # Equal sequences of programs and hyperparameters, with equal layouts of scalars, share a
        # function: the tensors are its arguments.
        sequence = tuple(
            (id(bound.program), groups.setdefault(id(bound.hypers), len(groups)))
            for bound in programs
        )
        # Positions instead of ids of hyperparameters: a new optimizer of the same shape finds the
        # function.
        key = sequence, tuple(table.elements.items())
        if key not in functions:
            # A set of parameters with gradients may change in every step, and compiling takes
            # seconds.
            count = sum(len(earlier) > 1 for earlier, _ in functions)
            if len(programs) > 1 and max_compiled is not None and count >= max_compiled:
                return [step for bound in programs for step in batch([bound])]
            if len(functions) >= MAX_CACHED and max_compiled is None:
                # dicts keep the order of insertion: the first is the oldest.
                del functions[next(iter(functions))]
            for program, *_ in programs:  # holding the program keeps its id unique
                if id(program) not in splits:
                    splits[id(program)] = program, _split(program)
            parts = _group_programs(programs, table, [splits[place][1] for place, _ in sequence])
            functions[key] = build(table, *parts)
        return [BatchedStep(table.tensors, functions[key])]

    return batch


@dataclass(frozen=True, slots=True)
class _Split:
    """A program in two parts.

    Attributes:
        scalars: The part that depends on scalars only; None if it is empty.
        tensors: The part that depends on tensors; None if it is empty.
        is_vectorizable: Whether the scalars of several parameters may be computed as vectors.
    """

    scalars: GraphProgram | None
    tensors: GraphProgram | None
    is_vectorizable: bool


def _split(program: GraphProgram) -> _Split:
    first, second = hoist(program.source)
    return _Split(
        to_module(first) if first.outputs else None,
        to_module(second) if second.outputs else None,
        all(not node.type.shape for node in first.nodes),
    )


def _group_programs(
    programs: Sequence[BoundProgram], table: TensorTable, splits: Sequence[_Split]
) -> tuple[list[ProgramGroup], list[ProgramGroup]]:
    """The scalar programs, one for all parameters that share it, and the tensor programs."""
    bindings = table.bindings(programs)
    scalars: dict[Any, ProgramGroup] = {}
    sources: dict[Graph, int] = {}
    places = {
        number: sources.setdefault(split.scalars.source, len(sources))
        for number, split in {id(split): split for split in splits}.items()
        if split.scalars is not None
    }
    tensors: list[ProgramGroup] = []
    for index, (bound, split) in enumerate(zip(programs, splits, strict=True)):
        if split.scalars is not None:
            # One hyperparameter is one number for all bindings; another group has another one.
            key = (places[id(split)], id(bound.hypers)) if split.is_vectorizable else index
            scalars.setdefault(key, (split.scalars, []))[1].append(bindings[index])
        if split.tensors is not None:
            tensors.append((split.tensors, [bindings[index]]))
    return list(scalars.values()), tensors


class BatchedProgram(NamedTuple):
    """A program on the tensors of a table.

    Attributes:
        program: The program.
        inputs: The refs of each input: one for all bindings, or one for each.
        outputs: Where each output is stored; without a place, it is appended to the tensors.
    """

    program: GraphProgram
    inputs: list[Sequence[Ref]]
    outputs: list[list[Store]]


def batched_programs(
    table: TensorTable,
    groups: Sequence[ProgramGroup],
    is_deferred: Callable[[Tensor], bool] = lambda _: False,
) -> tuple[list[BatchedProgram], dict[int, list[Store]]]:
    """Returns the programs of some groups, and the stores that must be done after them.

    An output that is not stored is a scalar for later programs, whose bindings are updated here.

    Args:
        table: The tensors.
        groups: The programs with their bindings.
        is_deferred: Whether a tensor cannot be written by the programs themselves.

    Returns:
        The programs; and the deferred stores, by the index of the result among the tensors.
    """
    tensors, end = table.tensors, len(table.tensors)
    programs: list[BatchedProgram] = []
    late_stores: dict[int, list[Store]] = {}
    for program, bindings in groups:
        inputs = [[binding.inputs[name] for binding in bindings] for name in program.input_names]
        outputs = []
        for name in program.output_names:
            stores = _stores([binding.outputs.get(name, []) for binding in bindings], tensors)
            if any(row < 0 and is_deferred(tensors[index]) for (index, row), _ in stores):
                late_stores[end], stores = stores, []
            if not stores:
                for row, binding in enumerate(bindings):
                    binding.inputs[name] = end, row if len(bindings) > 1 else -1
                end += 1
            outputs.append(stores)
        programs.append(
            BatchedProgram(program, [_merge_refs(refs, tensors) for refs in inputs], outputs)
        )
    return programs, late_stores


def _merge_refs(refs: Sequence[Ref], tensors: Sequence[Tensor]) -> Sequence[Ref]:
    """One ref if all are equal, or if they are all elements of a vector in order."""
    index, row = refs[0]
    if all(ref == refs[0] for ref in refs):
        return refs[:1]
    # A vector whose elements are all asked for in order needs no stack.
    is_whole = row == 0 and index < len(tensors) and len(tensors[index]) == len(refs)
    in_order = list(refs) == [(index, row) for row in range(len(refs))]
    return [(index, -1)] if is_whole and in_order else refs


def _stores(targets: Sequence[Sequence[Ref]], tensors: Sequence[Tensor]) -> list[Store]:
    """The stores of a result that has one element for each binding, given the targets of each.

    The whole result is stored at once where the targets are one tensor, or a vector in order.
    """
    if len(targets) > 1 and all(len(refs) == 1 for refs in targets):
        common_refs = _merge_refs([refs[0] for refs in targets], tensors)
        if len(common_refs) == 1:
            return [(common_refs[0], -1)]
    is_single = len(targets) == 1
    return [(ref, -1 if is_single else row) for row, refs in enumerate(targets) for ref in refs]


def run_batched(values: list[Tensor], programs: Sequence[BatchedProgram]) -> None:
    """Runs programs on tensors, and appends the outputs that are not stored."""
    for program, inputs, outputs in programs:
        results = outputs_of(program, [_load(values, refs) for refs in inputs])
        for stores, result in zip(outputs, results, strict=True):
            if stores:
                store(values, stores, result)
            else:
                values.append(result)


def _load(values: Sequence[Tensor], refs: Sequence[Ref]) -> Tensor:
    """A tensor, or several scalars as a vector."""
    elements = [_element(values[index], row) for index, row in refs]
    return elements[0] if len(elements) == 1 else torch.stack(elements)


def store(values: Sequence[Tensor], stores: Sequence[Store], result: Tensor) -> None:
    """Copies a result, or each of its elements, to its places."""
    for (index, row), element in stores:
        _element(values[index], row).copy_(_element(result, element))


def _element(value: Tensor, row: int) -> Tensor:
    """An element of a vector, or a scalar that all bindings share."""
    return value[row] if row >= 0 and value.dim() else value

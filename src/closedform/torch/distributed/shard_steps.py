"""Steps of parameters in shards: their parts of sums, one all_reduce a stage, then the step.

A step is a program of stages (``ir/program.py``), compiled for the shapes of the parts that lie
here and split into a graph for each parameter and stage. A stage writes nothing but parts of sums;
they are added over the processes, for all parameters and sums at once, and the totals are inputs
of what follows. A rule that must have a whole tensor runs on the tensor gathered, in every
process, and each keeps its part of the result. What each process decides here depends on what all
know alike (rules, whole shapes, placements), so that all come to the same collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from closedform.compiler import compile_assignments
from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import NEXT, TOTAL
from closedform.ir.program import split
from closedform.options import GraphOptions
from closedform.runtime.onnx_session import open_session
from closedform.torch.distributed.partial_sums import Divided, members_of, own_sums
from closedform.torch.distributed.shards import (
    Span,
    local,
    part_of,
    span_of,
    whole,
)
from closedform.torch.engine import kernels
from closedform.torch.engine.bound_program import run_torch
from closedform.torch.engine.compiled import compiled
from closedform.torch.engine.kernels import NAME, Job

EVALUATION = "evaluation"
"""What a graph writes that gives the point of evaluation: into the parameter."""

Engine = Callable[[Job], None]
"""What runs a graph."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A graph of one parameter: its parts of some sums, or its step.

    Attributes:
        graph: The graph.
        engine: What runs it.
    """

    graph: Graph
    engine: Engine

    def run(self, values: Mapping[str, Tensor], writes: Mapping[str, Tensor]) -> None:
        """Computes the outputs into tensors."""
        reads = {name: values[name] for name in input_names(self.graph)}
        self.engine(Job(reads, {name: (target,) for name, target in writes.items()}))

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [output.name for output in self.graph.outputs]


@dataclass(frozen=True, slots=True)
class ShardKernel:
    """The step of one parameter, in parts.

    Attributes:
        stages: Its part in each stage; None where it has none.
        step: Its step, which takes the totals.
        own: Names of the sums that are over this parameter alone.
        is_gathered: Whether it runs on the whole tensor.
    """

    stages: tuple[Piece | None, ...]
    step: Piece
    own: frozenset[str]
    is_gathered: bool


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What the kernel of a parameter works on.

    Attributes:
        param: The parameter.
        grad: Its gradient, placed as the parameter is.
        states: Its states.
        hypers: The hyperparameters.
    """

    param: Tensor
    grad: Tensor
    states: Mapping[str, Tensor]
    hypers: Mapping[str, Tensor]


def engines(backend: str, providers: Sequence[str] | None) -> Callable[[Graph], Engine]:
    """Returns what makes the engine of a graph in a backend.

    Args:
        backend: One of ``BACKENDS``.
        providers: Those of onnxruntime.
    """

    def in_torch(graph: Graph) -> Engine:
        program = to_module(graph)
        if backend == "eager":
            return lambda job: run_torch([job.call(program)])
        ready = compiled()

        def run(job: Job) -> None:
            for one in ready([job.call(program)]):
                one.run()

        return run

    def in_onnxruntime(graph: Graph) -> Engine:
        made: list[kernels.OnnxKernel] = []

        def run(job: Job) -> None:
            if not made:
                wanted = kernels.providers_for(job.reads["step"].device, providers)
                session = open_session(graph, providers=wanted)
                made.append(kernels.bound_kernel(session, graph.name, job, providers))
            made[0].run(job)
            made[0].bindings.clear()  # The tensors of a stage are not those of the next one.

        return run

    return in_onnxruntime if backend == "onnxruntime" else in_torch


Work = Sequence[tuple[ShardKernel, ShardJob]]


def shard_kernels(
    name: str,
    cut: Sequence[Divided],
    params: Sequence[Tensor],
    engine: Callable[[Graph], Engine],
    known: MutableMapping[Any, Any],
) -> list[ShardKernel]:
    """Returns the kernels of parameters that step together, or of one.

    Args:
        name: What graphs are called.
        cut: The rule of each parameter.
        params: The parameters; one that is not sharded takes part as a whole tensor.
        engine: Makes what runs a graph.
        known: What was made of the same rule before, by what it depends on.
    """
    shapes = [
        tuple((param if one.is_gathered else local(param)).shape)
        for param, one in zip(params, cut, strict=True)
    ]
    dtype = kernels.COMPUTED[params[0].dtype]
    key = ("kernels", dtype, tuple((one.shape, one.is_gathered) for one in cut), tuple(shapes))
    if key not in known:
        known[key] = _compiled(name, cut, shapes, dtype, engine, known)
    made: list[ShardKernel] = known[key]
    return made


def _compiled(
    name: str,
    cut: Sequence[Divided],
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    engine: Callable[[Graph], Engine],
    known: MutableMapping[Any, Any],
) -> list[ShardKernel]:
    labels = [f"{NAME}{number}" for number in range(len(cut))]
    members = members_of(cut, dict(zip(labels, shapes, strict=True)))
    program = compile_assignments(name, members, GraphOptions(dtype=kernels.WORDS[dtype]))
    own = own_sums(members)

    def piece(graph: Graph) -> Piece:
        if graph not in known:
            known[graph] = Piece(graph, engine(graph))
        made: Piece = known[graph]
        return made

    made = []
    for label, one in zip(labels, cut, strict=True):
        parts = split(program, label, f"{NAME}0")
        stages = tuple(None if graph is None else piece(graph) for graph in parts[:-1])
        (step,) = (piece(graph) for graph in parts[-1:] if graph is not None)
        made.append(ShardKernel(stages, step, own, one.is_gathered))
    return made


@torch.compiler.disable  # type: ignore[untyped-decorator] # collectives stand outside of traces
def run_shards(work: Work) -> None:
    """Does the steps of parameters in shards."""
    totals: list[dict[str, Tensor]] = [{} for _ in work]
    for stage in range(max(len(kernel.stages) for kernel, _ in work)):
        parts = [
            _parts(kernel, job, stage, known)
            for (kernel, job), known in zip(work, totals, strict=True)
        ]
        _add_up(work, parts, totals)
    for (kernel, job), known in zip(work, totals, strict=True):
        _finish(kernel, job, known)


def _parts(
    kernel: ShardKernel, job: ShardJob, stage: int, totals: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What a parameter's part that lies here adds to the sums of a stage."""
    piece = kernel.stages[stage] if stage < len(kernel.stages) else None
    if piece is None:
        return {}
    made = {name: _scalar(job) for name in piece.outputs}
    piece.run(_values(kernel, job, piece, totals), made)
    return made


def _add_up(
    work: Work, parts: Sequence[Mapping[str, Tensor]], totals: Sequence[dict[str, Tensor]]
) -> None:
    """Adds the parts over parameters and processes, and gives each parameter its totals."""
    entries: dict[Span, dict[tuple[int, str], Tensor]] = {}
    for number, ((kernel, job), found) in enumerate(zip(work, parts, strict=True)):
        span = Span() if kernel.is_gathered else span_of(job.param)
        for name, part in found.items():
            place = (number if name in kernel.own else -1, name)
            group = entries.setdefault(span, {})
            group[place] = group[place] + part if place in group else part
    common: dict[str, Tensor] = {}
    for span, group in entries.items():
        sums = span.add_up(torch.stack(list(group.values()))).unbind()
        for (number, name), total in zip(group, sums, strict=True):
            known = common if number < 0 else totals[number]
            known[name] = known[name] + total if name in known else total
    for known in totals:
        known.update(common)


def _finish(kernel: ShardKernel, job: ShardJob, totals: Mapping[str, Tensor]) -> None:
    """Writes the step of a parameter."""
    values = _values(kernel, job, kernel.step, totals)
    owners = _owners(job)
    targets = {}
    for name in kernel.step.outputs:
        read = name.removeprefix(NEXT)
        targets[name] = local(owners[read])
        if kernel.is_gathered:
            targets[name] = values[read] if read in values else whole(owners[read]).clone()
    kernel.step.run(values, targets)
    if kernel.is_gathered:
        for name, full in targets.items():
            owner = owners[name.removeprefix(NEXT)]
            local(owner).copy_(part_of(full, owner))


def _owners(job: ShardJob) -> dict[str, Tensor]:
    """The tensors of a parameter as its graphs name them."""
    found = {f"param.{NAME}0": job.param, f"grad.{NAME}0": job.grad}
    found[f"{EVALUATION}.{NAME}0"] = job.param
    for name, value in job.states.items():
        found[kernels.state_label(name)] = value
    return found


def _values(
    kernel: ShardKernel, job: ShardJob, piece: Piece, totals: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What a graph reads: parts, or whole tensors where they are gathered.

    A graph may name totals of other parameters, which it does not use.
    """
    owners = _owners(job)
    seen = whole if kernel.is_gathered else local
    values = {}
    for name in input_names(piece.graph):
        if name.startswith(TOTAL):
            values[name] = totals[name] if name in totals else _scalar(job)
        elif name in owners:
            values[name] = seen(owners[name])
        else:
            values[name] = job.hypers[name]
    return values


def _scalar(job: ShardJob) -> Tensor:
    return torch.zeros((), dtype=torch.float64, device=local(job.param).device)

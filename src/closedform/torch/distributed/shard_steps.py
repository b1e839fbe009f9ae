"""Steps of sharded parameters: partial sums, one all_reduce for each stage, then the step.

A step is a program of stages (``ir/program.py``), compiled for the local shapes and split into a
graph for each parameter and stage. A stage writes only partial sums; they are reduced across
processes, for all parameters and sums at once, and the totals are inputs of later stages. A rule
that needs a full tensor runs on the gathered tensor in every process, and each keeps its part of
the result. All decisions depend on what every process knows (rules, global shapes, placements), so
all processes issue the same collectives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from closedform.compiler import compile_assignments
from closedform.exporters.torch_module import to_module
from closedform.exporters.torch_ops import uniform
from closedform.ir import naming
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import NEXT, TOTAL
from closedform.ir.program import split
from closedform.options import GraphOptions
from closedform.torch.distributed.partial_sums import ShardRule, distinct_rules, own_sums
from closedform.torch.engine.compiled import compiling_batcher
from closedform.torch.engine.kernels import (
    COMPUTE_DTYPES,
    GRAPH_DTYPES,
    LABEL,
    NamedArguments,
    state_label,
)
from closedform.torch.engine.programs import outside_traces, run_programs
from closedform.torch.shards import ShardMesh, full_tensor, local, local_part, shard_mesh

GraphRunner = Callable[[NamedArguments], None]
"""Runs a graph on tensors by name."""

RunnerFactory = Callable[[Graph, int], GraphRunner]
"""Makes the runner of a graph, for local elements from a place in the full tensor on."""


@dataclass(frozen=True, slots=True)
class StageGraph:
    """A graph of one parameter: its partial sums in one stage, or its step.

    Attributes:
        graph: The graph.
        runner: Runs it.
    """

    graph: Graph
    runner: GraphRunner

    def run(self, values: Mapping[str, Tensor], writes: Mapping[str, Tensor]) -> None:
        """Writes the outputs to tensors."""
        reads = {name: values[name] for name in input_names(self.graph)}
        self.runner(NamedArguments(reads, {name: (target,) for name, target in writes.items()}))

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [output.name for output in self.graph.outputs]


@dataclass(frozen=True, slots=True)
class ShardKernel:
    """The step of one parameter, in stages.

    Attributes:
        stages: Its partial sums in each stage; None if it has none there.
        step: Its step, which takes the totals.
        own_names: The names of the sums over this parameter only.
        is_gathered: Whether it runs on the full tensor.
    """

    stages: tuple[StageGraph | None, ...]
    step: StageGraph
    own_names: frozenset[str]
    is_gathered: bool


@dataclass(frozen=True, slots=True)
class ShardTensors:
    """The tensors of one parameter's step.

    Attributes:
        param: The parameter.
        grad: Its gradient, with the placements of the parameter; None if it takes no step.
        states: Its states.
        hypers: The hyperparameters.
    """

    param: Tensor
    grad: Tensor | None
    states: Mapping[str, Tensor]
    hypers: Mapping[str, Tensor]


def graph_runners(backend: str) -> RunnerFactory:
    """Returns what makes the runner of a graph in a backend.

    It is given the place of the first local element in the full tensor, too.

    Args:
        backend: One of ``BACKENDS``.
    """

    def in_torch(graph: Graph, place: int) -> GraphRunner:
        program = to_module(graph)
        if place:
            for node in program.graph.find_nodes(op="call_function", target=uniform):
                node.update_kwarg("first", place)
            program.recompile()
        if backend == "eager":
            return lambda arguments: run_programs([arguments.bind(program)])
        batch = compiling_batcher()

        def run(arguments: NamedArguments) -> None:
            for step in batch([arguments.bind(program)]):
                step.run()

        return run

    return in_torch


ShardWork = Sequence[tuple[ShardKernel, ShardTensors]]


def shard_kernels(
    name: str,
    rules: Sequence[ShardRule],
    params: Sequence[Tensor],
    make_runner: RunnerFactory,
    cache: MutableMapping[Any, Any],
) -> list[ShardKernel]:
    """Returns the kernels of parameters that step together, or of one.

    Args:
        name: The name of the graphs.
        rules: The rule of each parameter.
        params: The parameters; one that is not sharded takes part as a full tensor.
        make_runner: Makes the runner of a graph.
        cache: Results for the same rule.
    """
    # Local shapes differ among processes where a size does not divide; the graphs are per process.
    shapes = [
        tuple((param if rule.is_gathered else local(param)).shape)
        for param, rule in zip(params, rules, strict=True)
    ]
    dtype = COMPUTE_DTYPES[params[0].dtype]
    forms = tuple((rule.shape, rule.is_gathered, rule.first_place) for rule in rules)
    key = ("kernels", dtype, forms, tuple(shapes))
    if key not in cache:
        cache[key] = _compile(name, rules, shapes, dtype, make_runner, cache)
    kernels: list[ShardKernel] = cache[key]
    return kernels


def _compile(
    name: str,
    rules: Sequence[ShardRule],
    shapes: Sequence[tuple[int, ...]],
    dtype: torch.dtype,
    make_runner: RunnerFactory,
    cache: MutableMapping[Any, Any],
) -> list[ShardKernel]:
    labels = [f"{LABEL}{number}" for number in range(len(rules))]
    distinct = distinct_rules(rules, dict(zip(labels, shapes, strict=True)))
    program = compile_assignments(name, distinct, GraphOptions(dtype=GRAPH_DTYPES[dtype]))
    own_names = own_sums(distinct)

    def stage_graph(graph: Graph, place: int) -> StageGraph:
        if (graph, place) not in cache:
            cache[graph, place] = StageGraph(graph, make_runner(graph, place))
        stage: StageGraph = cache[graph, place]
        return stage

    kernels = []
    for label, shard_rule in zip(labels, rules, strict=True):
        *sums, last = split(program, label, f"{LABEL}0")
        place = shard_rule.first_place
        stages = tuple(None if graph is None else stage_graph(graph, place) for graph in sums)
        (step,) = (stage_graph(graph, place) for graph in (last,) if graph is not None)
        kernels.append(ShardKernel(stages, step, own_names, shard_rule.is_gathered))
    return kernels


@outside_traces  # collectives are not traced
def run_shards(work: ShardWork, *, has_failed: bool = False) -> None:
    """Performs the steps of sharded parameters.

    Args:
        work: All sharded parameters of an optimizer, also those that take no step: all processes
            send as many sums.
        has_failed: Whether this process has raised an error and only tells the others.

    Raises:
        StateError: The processes do not step the same parameters, or one has raised an error; no
            parameter is changed.
    """
    totals: list[dict[str, Tensor]] = [{} for _ in work]
    numbers: dict[ShardMesh, list[int]] = {}
    for number, (kernel, tensors) in enumerate(work):
        if kernel.is_gathered or kernel.stages:
            numbers_of_mesh = numbers.setdefault(shard_mesh(tensors.param), [])
            numbers_of_mesh += [] if tensors.grad is None else [number]
    guards = {
        mesh: _guard(numbers_of_mesh, has_failed)
        for mesh, numbers_of_mesh in numbers.items()
        if mesh.axes
    }
    for stage in range(max(1, *(len(kernel.stages) for kernel, _ in work))):
        sums = [
            _partial_sums(kernel, tensors, stage, totals_of_param)
            for (kernel, tensors), totals_of_param in zip(work, totals, strict=True)
        ]
        _reduce(work, sums, totals, {} if stage else guards)
    for (kernel, tensors), totals_of_param in zip(work, totals, strict=True):
        if tensors.grad is not None:
            _step(kernel, tensors, totals_of_param)


def _guard(numbers: Sequence[int], has_failed: bool) -> Tensor:
    """A checksum of the parameters that step, and no failure: all processes must send the same.

    Numbers are equal exactly if the mean of their squares is the square of their mean.
    """
    checksum = hash(tuple(numbers)) % 2**20  # squares of 8,000 processes are exact in float64
    return torch.tensor([checksum, checksum**2, has_failed], dtype=torch.float64)


def _partial_sums(
    kernel: ShardKernel, tensors: ShardTensors, stage: int, totals: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The contribution of a parameter's local part to the sums of a stage."""
    graph = kernel.stages[stage] if stage < len(kernel.stages) else None
    if graph is None:
        return {}
    sums = {name: _zero(tensors) for name in graph.outputs}
    if tensors.grad is None:
        return sums
    graph.run(_inputs(kernel, tensors, graph, totals), sums)
    return sums


def _reduce(
    work: ShardWork,
    sums: Sequence[Mapping[str, Tensor]],
    totals: Sequence[dict[str, Tensor]],
    guards: Mapping[ShardMesh, Tensor],
) -> None:
    """Adds partial sums over parameters and processes, and gives each parameter its totals."""
    entries: dict[ShardMesh, dict[tuple[int, str], Tensor]] = {mesh: {} for mesh in guards}
    for number, ((kernel, tensors), sums_of_param) in enumerate(zip(work, sums, strict=True)):
        mesh = ShardMesh() if kernel.is_gathered else shard_mesh(tensors.param)
        for name, value in sums_of_param.items():
            # -1: a sum over all parameters, such as the global norm, has one entry.
            key = (number if name in kernel.own_names else -1, name)
            group = entries.setdefault(mesh, {})
            group[key] = group[key] + value if key in group else value
    common: dict[str, Tensor] = {}
    for mesh, group in entries.items():
        # One collective for all sums of a mesh: its latency does not grow with the number of sums.
        group_totals = mesh.all_reduce(list(group.values()), guards.get(mesh))
        for (number, name), total in zip(group, group_totals, strict=True):
            totals_of_param = common if number < 0 else totals[number]
            totals_of_param[name] = (
                totals_of_param[name] + total if name in totals_of_param else total
            )
    for totals_of_param in totals:
        totals_of_param.update(common)


def _step(kernel: ShardKernel, tensors: ShardTensors, totals: Mapping[str, Tensor]) -> None:
    """Writes the results of a parameter's step."""
    values = _inputs(kernel, tensors, kernel.step, totals)
    owners = _owners(tensors)
    targets = {}
    for name in kernel.step.outputs:
        read = name.removeprefix(NEXT)
        targets[name] = local(owners[read])
        if kernel.is_gathered:
            # A clone: full_tensor of a replicated DTensor may be its memory.
            targets[name] = values[read] if read in values else full_tensor(owners[read]).clone()
    kernel.step.run(values, targets)
    if kernel.is_gathered:
        for name, full in targets.items():
            owner = owners[name.removeprefix(NEXT)]
            # Each process has computed the whole tensor, and keeps its shard.
            local(owner).copy_(local_part(full, owner))


def _owners(tensors: ShardTensors) -> dict[str, Tensor]:
    """The tensors of a parameter by their names in its graphs."""
    label = f"{LABEL}0"
    owners = {naming.param(label): tensors.param, naming.evaluation(label): tensors.param}
    if tensors.grad is not None:
        owners[naming.grad(label)] = tensors.grad
    for name, value in tensors.states.items():
        owners[state_label(name)] = value
    return owners


def _inputs(
    kernel: ShardKernel, tensors: ShardTensors, graph: StageGraph, totals: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The inputs of a graph: local parts, or full tensors if they are gathered.

    A graph may name totals of other parameters; it does not use them.
    """
    owners = _owners(tensors)
    read_part = full_tensor if kernel.is_gathered else local
    values = {}
    for name in input_names(graph.graph):
        if name.startswith(TOTAL):
            values[name] = totals[name] if name in totals else _zero(tensors)
        elif name in owners:
            values[name] = read_part(owners[name])
        else:
            values[name] = tensors.hypers[name]
    return values


def _zero(tensors: ShardTensors) -> Tensor:
    # float64: sums of many shards keep the digits of float32 terms.
    return torch.zeros((), dtype=torch.float64, device=local(tensors.param).device)

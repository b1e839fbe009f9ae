"""Steps of sharded parameters: partial sums, one all_reduce for each stage, then the step.

A step is a program of stages (``ir/program.py``), compiled for the local shapes and split into a
graph for each parameter and stage. A stage writes only partial sums; they are reduced across
processes, for all parameters and sums at once, and the totals are inputs of later stages. A rule
that needs a full tensor has three graphs (``owners.py``), of which one runs on the full tensor: in
the process that owns the parameter if it is sharded by rows, otherwise in every process. All
decisions depend on what every process knows (rules, global shapes, placements), so all processes
issue the same collectives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from closedform.compiler import compile_assignments
from closedform.errors import StateError
from closedform.exporters.torch_module import to_module
from closedform.exporters.torch_ops import TORCH_DTYPES, uniform
from closedform.ir import naming
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import NEXT, TOTAL
from closedform.ir.program import split
from closedform.ir.types import Shape
from closedform.options import GraphOptions
from closedform.torch.distributed.owners import (
    RETURNED,
    Cut,
    assign_owners,
    local_sums,
    split_for_owner,
    work_of,
)
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
from closedform.torch.shards import (
    ShardMesh,
    dtensor_like,
    full_tensor,
    local,
    local_part,
    row_shards,
    shard_mesh,
)

GraphRunner = Callable[[NamedArguments], None]
"""Runs a graph on tensors by name."""

RunnerFactory = Callable[[Graph, int], GraphRunner]
"""Makes the runner of a graph, for local elements from a place in the full tensor on."""


@dataclass(frozen=True, slots=True)
class StageGraph:
    """A graph of one parameter: its partial sums in one stage, its step, or a part of that.

    Attributes:
        graph: The graph.
        runner: Runs it.
        is_whole: Whether it runs on the full tensor.
    """

    graph: Graph
    runner: GraphRunner
    is_whole: bool = False

    def run(self, values: Mapping[str, Tensor], writes: Mapping[str, Tensor]) -> None:
        """Writes the outputs to tensors."""
        reads = {name: values[name] for name in input_names(self.graph)}
        self.runner(NamedArguments(reads, {name: (target,) for name, target in writes.items()}))

    def results(self, device: torch.device | str) -> dict[str, Tensor]:
        """Returns tensors for the outputs, on a device."""
        types = {output.name: self.graph.nodes[output.index].type for output in self.graph.outputs}
        return {
            name: torch.empty(
                tuple(map(int, type_.shape)), dtype=TORCH_DTYPES[type_.dtype], device=device
            )
            for name, type_ in types.items()
        }

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs."""
        return [output.name for output in self.graph.outputs]


@dataclass(frozen=True, slots=True)
class ShardKernel:
    """The step of one parameter, in stages.

    Attributes:
        stages: Its partial sums in each stage; None if it has none there.
        before: What its owner needs of the local part.
        whole: What its owner computes; None if the step needs no full tensor.
        work: How much that is.
        step: Its step, which takes the totals, and results of the owner.
        own_names: The names of the sums over this parameter only.
    """

    stages: tuple[StageGraph | None, ...]
    before: StageGraph | None
    whole: StageGraph | None
    work: int
    step: StageGraph
    own_names: frozenset[str]

    def stage(self, number: int) -> StageGraph | None:
        """Returns the partial sums in a stage, if there are any."""
        return self.stages[number] if number < len(self.stages) else None


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

    @property
    def by_name(self) -> dict[str, Tensor]:
        """The tensors by their names in the graphs of the parameter."""
        label = f"{LABEL}0"
        by_name = {naming.param(label): self.param, naming.evaluation(label): self.param}
        if self.grad is not None:
            by_name[naming.grad(label)] = self.grad
        return by_name | {state_label(name): value for name, value in self.states.items()}


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


def _run_nothing(_: NamedArguments) -> None:
    """Runs a graph without outputs."""


ShardWork = Sequence[tuple[ShardKernel, ShardTensors]]


@dataclass(frozen=True, slots=True)
class ShardCompiler:
    """Makes kernels, each once.

    Attributes:
        make_runner: Makes the runner of a graph.
        cache: Kernels and runners for the same rule.
    """

    make_runner: RunnerFactory
    cache: MutableMapping[Any, Any]

    def kernels(
        self, name: str, rules: Sequence[ShardRule], params: Sequence[Tensor]
    ) -> list[ShardKernel]:
        """Returns the kernels of parameters that step together, or of one.

        Args:
            name: The name of the graphs.
            rules: The rule of each parameter.
            params: The parameters; one that is not sharded takes part as a full tensor.
        """
        # Local shapes differ among processes where a size does not divide; so do the graphs.
        parts = [tuple(local(param).shape) for param in params]
        dtype = COMPUTE_DTYPES[params[0].dtype]
        forms = tuple((rule.shape, rule.is_gathered, rule.first_place) for rule in rules)
        key = ("kernels", dtype, forms, tuple(parts))
        if key not in self.cache:
            labels = [f"{LABEL}{number}" for number in range(len(rules))]
            shapes = map(graph_shape, rules, parts)
            distinct = distinct_rules(rules, dict(zip(labels, shapes, strict=True)))
            program = compile_assignments(name, distinct, GraphOptions(dtype=GRAPH_DTYPES[dtype]))
            own_names = own_sums(distinct)
            self.cache[key] = [
                self.kernel(sums, step, rule, part, own_names)
                for label, rule, part in zip(labels, rules, parts, strict=True)
                for *sums, step in [split(program, label, f"{LABEL}0")]
                if step is not None
            ]
        kernels: list[ShardKernel] = self.cache[key]
        return kernels

    def kernel(
        self,
        sums: Sequence[Graph | None],
        step: Graph,
        rule: ShardRule,
        part: tuple[int, ...],
        own_names: frozenset[str] = frozenset(),
    ) -> ShardKernel:
        """Returns the kernel of a parameter.

        Args:
            sums: Its partial sums in each stage, if it has any.
            step: Its step.
            rule: Its rule.
            part: The shape of the local part.
            own_names: The names of the sums over this parameter only.
        """
        if not rule.is_gathered:
            stages = [None if graph is None else self._stage(graph, rule) for graph in sums]
            return ShardKernel(tuple(stages), None, None, 0, self._stage(step, rule), own_names)
        cut = Cut(rule.shape, part, rule.first_place is not None, rule.count)
        stages = []
        for graph in sums:
            part_sums = None if graph is None else local_sums(graph, cut)
            sum_graph = part_sums or graph
            is_whole = part_sums is None
            stages.append(
                None if sum_graph is None else self._stage(sum_graph, rule, is_whole=is_whole)
            )
        split_graphs = split_for_owner(step, cut)
        before = whole = None
        if split_graphs.whole.outputs:
            before = self._stage(split_graphs.before, rule)
            whole = self._stage(split_graphs.whole, rule, is_whole=True)
        after, work = self._stage(split_graphs.after, rule), work_of(split_graphs.whole)
        return ShardKernel(tuple(stages), before, whole, work, after, own_names)

    def _stage(self, graph: Graph, rule: ShardRule, *, is_whole: bool = False) -> StageGraph:
        key = graph, 0 if is_whole else rule.first_place or 0, is_whole
        if key not in self.cache:
            runner = self.make_runner(graph, key[1]) if graph.outputs else _run_nothing
            self.cache[key] = StageGraph(graph, runner, is_whole)
        stage: StageGraph = self.cache[key]
        return stage


def graph_shape(rule: ShardRule, part: tuple[int, ...]) -> Shape:
    """Returns the shape of a parameter in its graphs before they are split: full or local."""
    return rule.shape if rule.is_gathered else part


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
        if kernel.whole or kernel.stages:
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
        _reduce(work, stage, sums, totals, {} if stage else guards)
    returned_parts: list[dict[str, Tensor]] = [{} for _ in work]
    for mesh, numbers_of_mesh in numbers.items():
        matrices = [
            _Matrix(
                kernel.before,
                kernel.whole,
                kernel.work,
                tensors,
                totals[number],
                returned_parts[number],
            )
            for number in numbers_of_mesh
            for kernel, tensors in [work[number]]
            if kernel.before and kernel.whole
        ]
        by_rows = [matrix for matrix in matrices if row_shards(matrix.tensors.param)]
        if by_rows:
            _compute_at_owners(by_rows, mesh)
        for matrix in matrices:
            if matrix not in by_rows:
                _compute_everywhere(matrix)
    for (kernel, tensors), *values in zip(work, totals, returned_parts, strict=True):
        if tensors.grad is not None:
            _step(kernel, tensors, *values)


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
    graph = kernel.stage(stage)
    if graph is None:
        return {}
    sums = {name: _zero(tensors) for name in graph.outputs}
    if tensors.grad is not None:
        graph.run(_inputs(tensors, graph, totals), sums)
    return sums


def _reduce(
    work: ShardWork,
    stage: int,
    sums: Sequence[Mapping[str, Tensor]],
    totals: Sequence[dict[str, Tensor]],
    guards: Mapping[ShardMesh, Tensor],
) -> None:
    """Adds partial sums over parameters and processes, and gives each parameter its totals."""
    entries: dict[ShardMesh, dict[tuple[int, str], Tensor]] = {mesh: {} for mesh in guards}
    for number, ((kernel, tensors), sums_of_param) in enumerate(zip(work, sums, strict=True)):
        graph = kernel.stage(stage)
        mesh = ShardMesh() if graph and graph.is_whole else shard_mesh(tensors.param)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Matrix:
    """The step of a parameter that needs full tensors.

    Attributes:
        before, whole, work: Those of its kernel.
        tensors: The tensors of the parameter.
        totals: The sums over parameters and processes.
        returned_parts: Local parts of the results of ``whole``, which are added here.
    """

    before: StageGraph
    whole: StageGraph
    work: int
    tensors: ShardTensors
    totals: Mapping[str, Tensor]
    returned_parts: dict[str, Tensor]

    def run(self, graph: StageGraph, more_inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the results of a graph of the kernel."""
        results = graph.results(local(self.tensors.param).device)
        graph.run(_inputs(self.tensors, graph, self.totals, more_inputs), results)
        return results

    def send(self) -> dict[str, Tensor]:
        """Returns the local parts of the tensors that are needed in full."""
        by_name = self.tensors.by_name
        names = [name for name in input_names(self.whole.graph) if name in by_name]
        # A state of rank 0 is a number that all processes have.
        parts = {name: local(by_name[name]) for name in names if by_name[name].dim()}
        return self.run(self.before, {}) | parts

    def like(self, name: str) -> Tensor:
        """Returns a tensor of the shape of one that is sent, or of a result that is sharded."""
        return self.tensors.by_name.get(name.removeprefix(NEXT), self.tensors.param)

    def is_sharded(self, name: str, result: Tensor) -> bool:
        """Returns whether a result lies in shards, and is not a number for all processes."""
        return not name.startswith(RETURNED) or result.shape == self.tensors.param.shape


def _compute_everywhere(matrix: _Matrix) -> None:
    """Computes the results of full tensors in every process."""
    param, by_name = matrix.tensors.param, matrix.tensors.by_name
    full = {
        name: full_tensor(by_name[name] if name in by_name else dtensor_like(part, param))
        for name, part in matrix.send().items()
    }
    for name, result in matrix.run(matrix.whole, full).items():
        is_sharded = matrix.is_sharded(name, result)
        matrix.returned_parts[name] = (
            local_part(result, matrix.like(name)) if is_sharded else result
        )


def _compute_at_owners(matrices: Sequence[_Matrix], mesh: ShardMesh) -> None:
    """Computes the results of full tensors, each matrix in one process of a mesh.

    Raises:
        StateError: Another process raised an error.
    """
    owners = assign_owners([matrix.work for matrix in matrices], mesh.size)
    pairs = list(zip(matrices, owners, strict=True))
    sent_parts = [
        (matrix, name, part, owner)
        for matrix, owner in pairs
        for name, part in matrix.send().items()
    ]
    full = mesh.gather(
        [(part, matrix.like(name).shape, owner) for matrix, name, part, owner in sent_parts]
    )
    inputs: dict[_Matrix, dict[str, Tensor]] = {matrix: {} for matrix in matrices}
    for (matrix, name, *_), value in zip(sent_parts, full, strict=True):
        if value is not None:
            inputs[matrix][name] = value
    del sent_parts, full
    failure: Exception | None = None
    entries = []
    for matrix, owner in pairs:
        results = matrix.whole.results("meta")
        if owner == mesh.rank:
            try:
                results = matrix.run(matrix.whole, inputs.pop(matrix))
            except Exception as error:  # the others wait for results, and get a failure with them
                failure = error
                results = matrix.whole.results(mesh.mesh.device_type)
                for result in results.values():
                    result.fill_(math.nan if result.is_floating_point() else 0)
        entries += [(matrix, name, result, owner) for name, result in results.items()]
    status = torch.tensor(math.nan if failure else 0.0, device=mesh.mesh.device_type)
    parts = mesh.scatter(
        [(status, place, False) for place in range(mesh.size)]
        + [(value, owner, matrix.is_sharded(name, value)) for matrix, name, value, owner in entries]
    )
    if failure is not None:
        raise failure
    for place, status in enumerate(parts[: mesh.size]):
        # No step waits for a device: the results are NaN.
        if status.is_cpu and status.isnan():
            raise StateError(
                f"process {place} of mesh {mesh.mesh} has raised an error in its share of the step",
                hint="its own error says more",
            )
    for (matrix, name, *_), part in zip(entries, parts[mesh.size :], strict=True):
        matrix.returned_parts[name] = part


def _step(
    kernel: ShardKernel,
    tensors: ShardTensors,
    totals: Mapping[str, Tensor],
    returned_parts: Mapping[str, Tensor],
) -> None:
    """Writes the results of a parameter's step."""
    by_name = tensors.by_name
    targets = {name: local(by_name[name.removeprefix(NEXT)]) for name in kernel.step.outputs}
    kernel.step.run(_inputs(tensors, kernel.step, totals, returned_parts), targets)
    for name, value in returned_parts.items():
        if not name.startswith(RETURNED):
            local(by_name[name.removeprefix(NEXT)]).copy_(value)


def _inputs(
    tensors: ShardTensors,
    graph: StageGraph,
    totals: Mapping[str, Tensor],
    more_inputs: Mapping[str, Tensor] = MappingProxyType({}),
) -> dict[str, Tensor]:
    """The inputs of a graph: local parts, or full tensors if it needs them, and others.

    A graph may name totals of other parameters; it does not use them.
    """
    by_name = tensors.by_name
    read_part = full_tensor if graph.is_whole else local
    values = {}
    for name in input_names(graph.graph):
        if name in more_inputs:
            values[name] = more_inputs[name]
        elif name.startswith(TOTAL):
            values[name] = totals[name] if name in totals else _zero(tensors)
        elif name in by_name:
            values[name] = read_part(by_name[name])
        else:
            values[name] = tensors.hypers[name]
    return values


def _zero(tensors: ShardTensors) -> Tensor:
    # float64: sums of many shards keep the digits of float32 terms.
    return torch.zeros((), dtype=torch.float64, device=local(tensors.param).device)

"""Matrices that are sharded by rows: each is computed by one process, from the fewest bytes."""

import itertools
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import sympy as sp
import torch
import torch.distributed as dist
from torch import Tensor

import closedform as cf
from closedform.compiler import compile_assignments, compile_step
from closedform.errors import StateError
from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Graph, input_names
from closedform.ir.naming import NEXT
from closedform.ir.program import split
from closedform.language import PARAM, SIZE, Sizes, State, UpdateRule, all_but, reduce_max, reshape
from closedform.language.functions import positions
from closedform.language.groups import Assignment
from closedform.options import GraphOptions, ModelSpec
from closedform.torch.distributed import owners, shard_steps
from closedform.torch.distributed.owners import Cut, local_sums, smallest_cut, split_for_owner
from closedform.torch.shards import ShardMesh, row_counts
from tests.support.rules import accepts
from tests.torch.engines import LIBRARY
from tests.torch.processes import (
    Collectives,
    advance,
    begin,
    difference,
    mesh_of,
    params_of,
    together,
    whole,
)

STEPS = 3
SHAPE = (64, 64)
RULES: Mapping[str, tuple[UpdateRule, int]] = {
    "muon": (cf.optimizers.muon(lr=0.1), 2),
    "normuon": (cf.optimizers.normuon(lr=0.1), 2),
    # The mean square of the orthogonal matrix, from which a norm is taken, is sent, too.
    "adamuon": (cf.optimizers.adamuon(lr=0.1), 3),
    "scion": (cf.optimizers.scion(lr=0.1), 2),
    "dion": (cf.optimizers.dion(lr=0.1), 3),
    "shampoo": (cf.optimizers.shampoo(lr=0.01, matrix_eps=1e-2, momentum=0.9), 2),
    "soap": (cf.optimizers.soap(lr=0.01), 5),
}
"""Rules, and how many tensors of a matrix travel, besides states of other shapes."""

MATRICES = ((8, 4),) * 8 + ((4, 8),) * 8 + ((4, 4),) * 8


def simulated(graph: Graph, cut: Cut, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of a step whose tensors are in parts of rows, and are joined for its owner."""
    count = cut.count or -(-int(cut.shape[0]) // int(cut.part[0]))
    counts = row_counts(int(cut.shape[0]), count)
    cuts = [Cut(cut.shape, (rows, *cut.shape[1:]), True, cut.count) for rows in counts]
    graphs = [split_for_owner(graph, part) for part in cuts]
    parts = [
        {
            name: value.split(row_counts(len(value), count))[place] if value.dim() else value
            for name, value in inputs.items()
        }
        for place in range(count)
    ]
    sent = [ran(step.before, part) for step, part in zip(graphs, parts, strict=True)]
    joined = {name: torch.cat([values[name] for values in sent]) for name in sent[0]}
    full = {**inputs, **joined}
    results = ran(graphs[0].whole, full)
    outputs = []
    for place, (step, part) in enumerate(zip(graphs, parts, strict=True)):
        rows = {
            name: value.split(row_counts(len(value), count))[place]
            for name, value in results.items()
            if value.dim() and (not name.startswith("returned.") or value.shape == cut.shape)
        }
        outputs.append(ran(step.after, part | results | rows) | rows)
    names = [output.name for output in graph.outputs]
    return {
        name: torch.cat([values[name] for values in outputs])
        if outputs[0][name].dim()
        else outputs[0][name]
        for name in names
        if name in outputs[0]
    }


def ran(graph: Graph, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The outputs of a graph by name."""
    if not graph.outputs:
        return {}
    program = to_module(graph)
    results = program(*(inputs[name] for name in input_names(graph)))
    results = results if isinstance(results, tuple) else (results,)
    return dict(zip(program.output_names, results, strict=True))


def drawn_inputs(graph: Graph) -> dict[str, Tensor]:
    """Positive numbers for the inputs of a graph, at step 3."""
    generator = torch.Generator().manual_seed(1)
    inputs = {}
    for node in graph.inputs:
        name, shape = node.attribute("name"), [int(size) for size in node.type.shape]
        value = torch.rand(shape, generator=generator)
        inputs[name] = torch.tensor(3) if name == "step" else value
        if str(node.type.dtype) == "i8":
            inputs[name] = (value * 15).to(torch.int8)
    return inputs


def coded(name: str, bits: int) -> UpdateRule | None:
    """A rule of the library with coded states; None if it has none to code."""
    rule = LIBRARY[name]()
    names = [key for key, spec in rule.states.items() if spec.shape == "param" and not spec.initial]
    if not names or any(rule.states[key].exists != sp.true for key in names):
        return None
    transforms = {8: cf.transforms.eight_bit_states, 4: cf.transforms.four_bit_states}
    return transforms[bits](rule, names, (), block=16, least_size=16)


SPLIT = {
    **{name: make() for name, make in LIBRARY.items()},
    **{
        f"{name}, {bits} bits": rule
        for name, bits in itertools.product(LIBRARY, (8, 4))
        if (rule := coded(name, bits)) is not None
    },
}


@pytest.mark.sample(every=8)
@pytest.mark.parametrize("shape", [(8, 6), (8, 8)])
@pytest.mark.parametrize("name", SPLIT)
def test_three_graphs_on_parts_are_the_step(name: str, shape: tuple[int, int]) -> None:
    rule = SPLIT[name]
    if not accepts(rule, shape):
        return
    graph = compile_step(ModelSpec(rule, {"w": shape}))
    inputs = drawn_inputs(graph)
    expected = ran(graph, inputs)
    for cut in (Cut(shape, (3, shape[1])), Cut(shape, (4, shape[1]), count=2)):
        outputs = simulated(graph, cut, inputs)
        for key, value in outputs.items():
            assert torch.equal(value.nan_to_num(7), expected[key].nan_to_num(7)), (key, cut)
        for key in expected.keys() - outputs.keys():
            assert torch.equal(expected[key], inputs[key.removeprefix(NEXT)]), key


@pytest.mark.parametrize("name", RULES)
def test_the_fewest_tensors_travel(name: str) -> None:
    rule, count = RULES[name]
    graph = compile_step(ModelSpec(rule, {"w": (12, 8)}))
    graphs = split_for_owner(graph, Cut((12, 8), (6, 8), count=2))
    sent = [node for node in graphs.whole.inputs if node.type.shape == (12, 8)]
    ends = [graphs.whole.nodes[output.index] for output in graphs.whole.outputs]
    assert len(sent) + sum(node.type.shape == (12, 8) for node in ends) == count
    names = {output.name for output in graphs.after.outputs}
    assert {f"{NEXT}param.w", f"{NEXT}step"} <= names


def has_owner(rule: UpdateRule, rows: int, count: int = 2) -> bool:
    """Whether a matrix of 64 columns in shards of so many rows needs an owner."""
    graph = compile_step(ModelSpec(rule, {"w": SHAPE}))
    return bool(split_for_owner(graph, Cut(SHAPE, (rows, 64), count=count)).whole.outputs)


def scaled_rule(scale: Any, sizes: tuple[Any, ...], evaluation: Any = None) -> UpdateRule:
    """SGD with a state of some sizes, whose next value is given."""
    rule = cf.optimizers.sgd(lr=0.1)
    return replace(rule, states={"scale": State(scale, 0, Sizes(sizes))}, evaluation=evaluation)


def test_blocks_need_no_owner_where_each_process_has_whole_ones() -> None:
    blocks = reshape(PARAM, (SIZE / 256, 256))
    sizes = (SIZE / 256, 1)
    own = reduce_max(blocks, (1,), True)
    assert not has_owner(scaled_rule(own, sizes), 32)
    assert has_owner(scaled_rule(own, sizes), 24, 0)

    def row_maximum(value: Any) -> Any:
        return reduce_max(value, (1,), True)

    across = row_maximum(reduce_max(blocks, (0,), True))
    row = reshape(reduce_max(PARAM, (1,), True), (4, 16))
    places = positions(blocks, 0)
    scales = [own * across, own + reduce_max(places, (1,), True), own * reduce_max(PARAM)]
    scales += [
        own * row_maximum(reduce_max(blocks, axes, True)) for axes in ((-2,), (0, 1), all_but(1))
    ]
    scales += [own * reduce_max(reshape(row, (1, 64)), (1,), True)]
    for scale in scales:
        assert has_owner(scaled_rule(scale, sizes), 32), scale
    assert not has_owner(scaled_rule(reduce_max(blocks, (-1,), True), sizes), 32)
    # As many blocks as elements in one: without the axis, a maximum meets those of other blocks.
    square = reshape(PARAM, (SIZE / 64, 64))
    for keeps in (True, False):
        scale = reduce_max(square * reduce_max(square, (1,), keeps), (1,), True)
        assert has_owner(scaled_rule(scale, (SIZE / 64, 1)), 32) != keeps
    for name in ("adafactor", "muon"):
        assert has_owner(LIBRARY[name](), 32), name


def test_a_cut_is_the_smallest() -> None:
    draw = random.Random(1)
    for _ in range(200):
        count = 7
        weights = {node: draw.randint(1, 4) for node in range(count)}
        edges = {
            node: [after for after in range(node + 1, count) if draw.random() < 0.4]
            for node in range(count)
        }
        cut = smallest_cut(edges, weights, [0, 1], [5, 6])

        def is_cut(nodes: set[int], edges: Mapping[int, list[int]] = edges) -> bool:
            reached = [node for node in (0, 1) if node not in nodes]
            for node in reached:
                reached += [after for after in edges[node] if after not in nodes]
            return reached == [] or not {5, 6} & {*reached}

        assert is_cut(cut)
        best = min(
            sum(weights[node] for node in nodes)
            for size in range(count + 1)
            for nodes in itertools.combinations(range(count), size)
            if is_cut({*nodes})
        )
        assert sum(weights[node] for node in cut) == best


def test_sums_over_the_model_are_sums_of_parts() -> None:
    rule = cf.transforms.clip_by_global_norm(cf.optimizers.muon(), 1).for_shape((8, 6))
    program = compile_assignments("step", [Assignment(rule, {"w": (8, 6)})], GraphOptions())
    graph, step = split(program, "w", "w")
    assert graph is not None
    assert step is not None
    part = local_sums(graph, Cut((8, 6), (3, 6)))
    assert part is not None
    assert [node.type.shape for node in part.inputs if node.type.rank] == [(3, 6)]
    # The step has outputs other than sums; a sum of products of matrices is one of the owner.
    assert local_sums(step, Cut((8, 6), (3, 6))) is None


# --- processes ---------------------------------------------------------------------------------


runs: list[bool] = []
"""Whether each graph that was run is one of full tensors."""
compute = shard_steps._Matrix.run


def counted(matrix: Any, graph: Any, others: Any) -> Any:
    runs.append(graph.is_whole)
    return compute(matrix, graph, others)


def run(rank: int, world: int) -> None:
    from torch.distributed.tensor import Shard

    mesh = mesh_of(world)
    for name, (rule, _) in RULES.items():
        optimizer = begin(rule, mesh, [Shard(0)], MATRICES)
        plain = begin(rule, shapes=MATRICES)
        advance(optimizer, 0, STEPS)
        with Collectives() as collectives, patch.object(shard_steps._Matrix, "run", counted):
            runs.clear()
            advance(optimizer, STEPS, STEPS + 1)
        advance(plain, 0, STEPS + 1)
        assert difference(params_of(optimizer), params_of(plain)) == 0, name
        for ours, theirs in zip(optimizer.state.values(), plain.state.values(), strict=True):
            assert all(torch.equal(whole(ours[key]), theirs[key]) for key in theirs), name
        total = torch.tensor([sum(runs)])
        dist.all_reduce(total)
        assert int(total) == len(MATRICES), (name, total)
        # Each process has a part of all of them, and owns as many.
        ideal = bytes_of(optimizer) * (world - 1) / world**2
        received = collectives.bytes["recv"]
        assert 0.9 * ideal <= received <= 1.1 * ideal, (name, received, ideal)
        assert collectives.counts["all_gather"] == 0
    check_mixed(rank, world)
    check_failures(rank, world)


def bytes_of(optimizer: Any) -> int:
    """The bytes of the tensors that owners need, and of their results."""
    nodes = [
        node
        for kernel in optimizer._compiled[0].kernels
        for graph in [kernel.whole.graph]
        for node in (*graph.inputs, *(graph.nodes[output.index] for output in graph.outputs))
    ]
    return sum(
        node.type.dtype.numpy.itemsize * math.prod(node.type.shape)
        for node in nodes
        if node.type.rank
    )


def check_mixed(rank: int, world: int) -> None:
    """Fewer matrices than processes, uneven rows, vectors beside them, and a missing gradient."""
    from torch.distributed.tensor import Shard

    rule = cf.transforms.clip_by_global_norm(cf.optimizers.adafactor(lr=0.05), 1)
    shapes = ((7, 5), (5,), (1, 3))
    for each, sizes in ((rule, shapes), (cf.optimizers.muon(lr=0.1), ((7, 5), (1, 3), (2, 3, 4)))):
        optimizer, plain = begin(each, mesh_of(world), [Shard(0)], sizes), begin(each, shapes=sizes)
        for one in (optimizer, plain):
            advance(one, 0, 1)
        if each is not rule:  # a norm over all needs all gradients
            for one in (optimizer, plain):
                one.param_groups[0]["params"][0].grad = None
                one.step()
        for one in (optimizer, plain):
            advance(one, 1, STEPS)
        assert difference(params_of(optimizer), params_of(plain)) <= 2e-6


def check_failures(rank: int, world: int) -> None:
    """An error of an owner is one of all processes, and changes nothing."""
    from torch.distributed.tensor import Shard

    optimizer = begin(cf.optimizers.muon(lr=0.1), mesh_of(world), [Shard(0)], MATRICES[:4])
    advance(optimizer, 0, 1)
    before = params_of(optimizer)
    states = [whole(state["momentum_buffer"]) for state in optimizer.state.values()]

    def failing(matrix: Any, graph: Any, *args: Any) -> Any:
        if graph.is_whole and rank == 1:
            raise ArithmeticError("planted")
        return compute(matrix, graph, *args)

    with (
        patch.object(shard_steps._Matrix, "run", failing),
        pytest.raises(ArithmeticError if rank == 1 else StateError) as caught,
    ):
        optimizer.step()
    assert rank == 1 or "process 1 of mesh" in str(caught.value)
    assert difference(before, params_of(optimizer)) == 0
    after = [whole(state["momentum_buffer"]) for state in optimizer.state.values()]
    assert difference(states, after) == 0
    advance(optimizer, 1, 2)


def planted(rank: int, fault: str) -> None:
    """Each fault changes the bits, or the number of computations."""
    from torch.distributed.tensor import Shard

    rule = RULES["muon"][0]
    plain = begin(rule, shapes=MATRICES)
    advance(plain, 0, 2)
    scatter, gather = ShardMesh.scatter, ShardMesh.gather

    def exchanged(mesh: ShardMesh, tensors: Any) -> list[Tensor]:
        results = scatter(mesh, tensors)
        matrices = [value for value in results if value.dim() == 2]
        return [matrices.pop() if value.dim() == 2 else value for value in results]

    faults: Mapping[str, Any] = {
        "results of another matrix": exchanged,
        "rows in another order": lambda self, parts: [
            None if value is None else value.flip(0) for value in gather(self, parts)
        ],
    }
    with patch.object(ShardMesh, "scatter" if "results" in fault else "gather", faults[fault]):
        optimizer = begin(rule, mesh_of(2), [Shard(0)], MATRICES[:4])
        advance(optimizer, 0, 2)
    assert difference(params_of(optimizer), params_of(plain)[:4]) > 1e-3


@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.exhaustive), 4])
def test_each_matrix_is_computed_once_with_the_bits_of_one_process(world: int) -> None:
    together(run, world, world)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["rows in another order", "results of another matrix"])
def test_planted_faults_are_seen(fault: str) -> None:
    together(planted, 2, fault)


def test_owners_share_the_work() -> None:
    works = [random.Random(1).randint(1, 9) for _ in range(24)]
    assigned = owners.assign_owners(works, 4)
    loads = [sum(w for w, o in zip(works, assigned, strict=True) if o == k) for k in range(4)]
    # Graham: the largest first is at most 4/3 of the best.
    assert max(loads) <= 4 / 3 * sum(works) / 4

"""The eager step: lists of members and pieces of large ones, beside each parameter by itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import closedform as cf
from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Builder, Graph, Role
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.language import UpdateRule
from closedform.torch import Optimizer, optim
from closedform.torch.engine import batching as parts
from closedform.torch.engine import eager
from closedform.torch.engine.bound_program import Call, Prepared, run_torch
from closedform.torch.engine.foreach import ListProgram
from closedform.torch.engine.inplace import Memory
from closedform.torch.engine.tiles import PieceProgram
from tests.torch.engines import LIBRARY, shapes_of
from tests.torch.training import largest_difference, parameters, steps


def one_by_one(calls: Sequence[Call]) -> list[Prepared]:
    """Each parameter by itself, as torch writes a program of torch.fx: no lists, no vectors."""
    return [Prepared([], lambda _: run_torch(calls))]


def plain(params: Any, rule: UpdateRule) -> Optimizer:
    """An optimizer that steps its parameters one by one."""
    optimizer = Optimizer(params, rule)
    optimizer._ready = one_by_one
    return optimizer


def both(rule: UpdateRule, shapes: Sequence[tuple[int, ...]], count: int) -> list[Optimizer]:
    """An optimizer after some steps, and one that steps its parameters one by one."""
    made = []
    for make in (Optimizer, plain):
        params = parameters(shapes)
        optimizer = make(params, rule)
        steps(optimizer, params, count)
        made.append(optimizer)
    return made


def tensors(optimizer: Optimizer) -> list[Tensor]:
    """Parameters and states."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return [*params, *(value for param in params for value in optimizer.state[param].values())]


def apart(optimizers: Sequence[Optimizer]) -> tuple[float, float]:
    """The largest difference of two optimizers, and what it may be.

    The tensors go through the same kernels of torch, and here all bits are the same. Numbers are
    computed as vectors, whose powers a kernel may round in another last bit of float64, so that the
    float32 of it is another one at times.
    """
    mine, plain = ([value.detach().double() for value in tensors(one)] for one in optimizers)
    assert [one.shape for one in mine] == [one.shape for one in plain]
    largest = max((float(one.abs().max()) for one in plain if one.numel()), default=1.0)
    return largest_difference(mine, plain), 20 * 6e-8 * max(1.0, largest)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", LIBRARY)
def test_every_rule_in_lists(name: str) -> None:
    rule = LIBRARY[name]()
    shapes = [shape for shape in shapes_of(rule) for _ in range(2)]
    found, bound = apart(both(rule, shapes, 4))
    assert found <= bound


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", LIBRARY)
def test_every_rule_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "LARGE", 2)
    monkeypatch.setattr(eager, "PIECE", 7)  # 24 elements in four pieces of 6, 12 in two
    rule = LIBRARY[name]()
    found, bound = apart(both(rule, shapes_of(rule), 4))
    assert found <= bound


def test_sizes_of_one_are_no_other_sizes() -> None:
    def graph(rows: int, vectors: int) -> Graph:
        """y*x with x repeated along y, which has the same shape where there is one row."""
        builder = Builder("graph")
        x = builder.input("x", TensorType(DType.F32, (vectors, 3)), Role.PARAM)
        y = builder.input("y", TensorType(DType.F32, (rows, 3)), Role.GRAD)
        builder.output("z", builder.emit(Op.MUL, builder.emit(Op.EXP, x), y))
        return builder.build()

    assert eager._alike(graph(1, 1)) != eager._alike(graph(4, 1))
    assert eager._alike(graph(1, 1)) == eager._alike(graph(4, 4))
    one = graph(1, 1)
    other = replace(one, outputs=(replace(one.outputs[0], index=0),))  # x itself
    assert eager._alike(one) != eager._alike(other)
    first, second = (to_module(graph(rows, 1)) for rows in (1, 4))
    x, y = torch.zeros(1, 3), torch.ones(4, 3)
    assert len(Memory(first, {}).overwritten) == 1  # exp(x)
    (found,) = ListProgram(Memory(second, {})).run([[x], [y]])
    assert torch.equal(found[0], y)


def test_every_set_of_gradients_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST", 3)
    made = []
    for make in (Optimizer, plain):
        params = parameters([(3,), (3,), (2, 2)])
        optimizer = make(params, cf.optimizers.nadam(lr=0.1))
        for chosen in (7, 3, 5, 6, 1, 2, 4, 7, 3, 5):
            for number, param in enumerate(params):
                wanted = chosen >> number & 1
                param.grad = torch.full_like(param, 0.5 + number) if wanted else None
            optimizer.step()
        made.append(optimizer)
    found, bound = apart(made)
    assert found <= bound


def test_pieces_are_taken_where_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = []
    run = PieceProgram.run

    def watched(self: PieceProgram, given: Sequence[Tensor]) -> list[Tensor]:
        lengths.append(max(len(value) for value in given if value.dim()))
        return run(self, given)

    monkeypatch.setattr(PieceProgram, "run", watched)
    large = eager.PIECE + 2
    params = parameters([(3,), (2, large // 2), (eager.LARGE,), (eager.LARGE - 1,)])
    steps(optim.AdamW(params), params, 1)
    assert sorted(lengths) == [eager.LARGE, large // 2, large // 2]
    # Whose elements lie in another order than those of the states is stepped whole.
    lengths.clear()
    turned = nn.Parameter(torch.randn(2**8, 2**7).t())
    turned.grad = torch.ones(2**7, 2**8)
    optim.AdamW([turned]).step()
    assert lengths == []


def test_a_large_parameter_may_move_to_another_device() -> None:
    param = nn.Parameter(torch.zeros(eager.LARGE))
    optimizer = optim.AdamW([param])
    param.grad = torch.ones_like(param)
    with torch.no_grad():
        (prepared,) = optimizer._ready(optimizer._calls())
        prepared.run()
        prepared.tensors[:] = [one.to("meta") if one.dim() else one for one in prepared.tensors]
        prepared.run()
    assert int(optimizer.state[param]["step"]) == 2


def test_a_large_parameter_makes_no_tensor_of_its_size() -> None:
    param = nn.Parameter(torch.zeros(4 * eager.PIECE))
    optimizer = optim.AdamW([param])
    param.grad = torch.ones_like(param)
    optimizer.step()
    with torch.profiler.profile(profile_memory=True) as profile:
        optimizer.step()
    taken = max(event.self_cpu_memory_usage for event in profile.events())
    assert taken <= 1024  # numbers


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float64])
def test_members_of_several_dtypes(stored: torch.dtype) -> None:
    rule = cf.optimizers.adamw()
    made = []
    for make in (Optimizer, plain):
        params = [*parameters([(3,), (3,)]), *parameters([(3,), (3,)], dtype=stored, seed=1)]
        optimizer = make(params, rule)
        steps(optimizer, params, 3)
        made.append(optimizer)
    found, bound = apart(made)
    assert found <= bound
    assert [param.dtype for param in made[0].param_groups[0]["params"][1:3]] == [
        torch.float32,
        stored,
    ]


# --- memory --------------------------------------------------------------------------------------

VECTOR = TensorType(DType.F32, (4,))


def graph_of(name: str) -> tuple[Graph, dict[int, int]]:
    """A graph of inputs x, y and outputs, and which output an input may be written over by."""
    builder = Builder(name)
    x = builder.input("x", VECTOR, Role.PARAM)
    y = builder.input("y", VECTOR, Role.GRAD)
    double = builder.emit(Op.ADD, x, x)
    match name:
        case "chain":  # (x*y + y)*y: all three over x
            value = builder.emit(Op.MUL, x, y)
            for op in (Op.ADD, Op.MUL):
                value = builder.emit(op, value, y)
            builder.output("first", value)
        case "old and new":  # x is read again behind its next value
            value = builder.emit(Op.MUL, x, y)
            builder.output("first", value)
            builder.output("second", builder.emit(Op.SUB, value, x))
        case "own":  # sqrt(|x+x|) + (x+x): x+x is still wanted when |x+x| is made
            root = builder.emit(Op.SQRT, builder.emit(Op.ABS, double))
            builder.output("first", builder.emit(Op.ADD, root, double))
        case "view":  # the sum of x+x by its transpose, of which it is a view
            turned = builder.emit(Op.TRANSPOSE, double, permutation=(0,))
            value = builder.emit(Op.MUL, double, y)
            builder.output("first", builder.emit(Op.ADD, value, turned))
        case "no order":  # y - x: a difference is written over its first operand alone
            builder.output("first", builder.emit(Op.SUB, y, x))
        case "twice":  # x + x
            builder.output("first", double)
    return builder.build(), {0: 0}


OVERWRITTEN = {
    "chain": ["mul", "add", "mul"],
    "old and new": [],
    "own": ["sqrt", "add"],
    "view": ["add"],
    "no order": [],
    "twice": [],
}
"""The ops that write over an operand."""


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_memory_is_used_again_where_nobody_wants_it(name: str) -> None:
    graph, kept = graph_of(name)
    program = to_module(graph)
    memory = Memory(program, kept)
    given = [torch.tensor([1.0, -2, 3, 0.5]), torch.tensor([-1.0, 4, 2, 3])]
    wanted = program(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    names = [node.target.__name__ for node in memory.ops if node in memory.overwritten]
    assert names == OVERWRITTEN[name]
    copies = [[value.clone(), value.clone()] for value in given]
    listed = ListProgram(memory).run(copies)
    for found, result in zip(listed, wanted, strict=True):
        assert all(torch.equal(one, result) for one in found)
    assert (listed[0][0] is copies[0][0]) == (name == "chain")
    assert torch.equal(copies[1][0], given[1])
    if memory.is_elementwise:
        pieces = PieceProgram(memory, 8)
        for _ in range(2):  # the buffers of the first call are there for the second one
            again = pieces.run([value.clone() for value in given])
            assert all(map(torch.equal, again, wanted))

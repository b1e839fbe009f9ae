"""The eager step on lists and tiles, compared with a step of each parameter by itself."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import closedform as cf
from closedform.exporters.torch_module import to_module
from closedform.ir.graph import Builder, Graph, Role
from closedform.ir.ops import Op
from closedform.ir.types import DType, TensorType
from closedform.language import UpdateRule
from closedform.torch import Optimizer
from closedform.torch.engine import batching, foreach
from closedform.torch.engine.foreach import ForeachProgram
from closedform.torch.engine.programs import BatchedStep, BoundProgram, run_programs
from closedform.torch.engine.tensor_program import InplaceProgram
from tests.torch.engines import LIBRARY, shapes_of
from tests.torch.training import largest_difference, parameters, steps


def one_by_one(programs: Sequence[BoundProgram]) -> list[BatchedStep]:
    """Each parameter by itself, by its torch.fx program: no lists, no vectors."""
    return [BatchedStep([], lambda _: run_programs(programs))]


def plain(params: Any, rule: UpdateRule) -> Optimizer:
    """An optimizer that steps its parameters one by one."""
    optimizer = Optimizer(params, rule)
    optimizer._batch, optimizer._flat_steps = one_by_one, dict  # type: ignore[method-assign]
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
    """The largest difference of two optimizers, and its bound.

    Scalars are computed as vectors, whose powers may differ in the last bit of float64, and then
    sometimes round to another float32; a product and a sum as one op round once instead of twice.
    """
    mine, plain = ([value.detach().double() for value in tensors(one)] for one in optimizers)
    assert [one.shape for one in mine] == [one.shape for one in plain]
    largest = max((float(one.abs().max()) for one in plain if one.numel()), default=1.0)
    return largest_difference(mine, plain), 20 * 6e-8 * max(1.0, largest)


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", LIBRARY)
def test_every_rule_on_lists(name: str) -> None:
    rule = LIBRARY[name]()
    shapes = [shape for shape in shapes_of(rule) for _ in range(2)]
    found, bound = apart(both(rule, shapes, 4))
    assert found <= bound


def test_a_size_of_one_differs_from_other_sizes() -> None:
    def graph(rows: int, vectors: int) -> Graph:
        """y*x with x repeated along y, which has the same shape where there is one row."""
        builder = Builder("graph")
        x = builder.input("x", TensorType(DType.F32, (vectors, 3)), Role.PARAM)
        y = builder.input("y", TensorType(DType.F32, (rows, 3)), Role.GRAD)
        builder.output("z", builder.emit(Op.MUL, builder.emit(Op.EXP, x), y))
        return builder.build()

    assert foreach._signature(graph(1, 1)) != foreach._signature(graph(4, 1))
    assert foreach._signature(graph(1, 1)) == foreach._signature(graph(4, 4))
    one = graph(1, 1)
    other = replace(one, outputs=(replace(one.outputs[0], index=0),))  # x itself
    assert foreach._signature(one) != foreach._signature(other)
    first, second = (to_module(graph(rows, 1)) for rows in (1, 4))
    x, y = torch.zeros(1, 3), torch.ones(4, 3)
    assert len(InplaceProgram(first, {}).overwritten) == 1  # exp(x)
    (found,) = ForeachProgram(InplaceProgram(second, {})).run([[x], [y]])
    assert torch.equal(found[0], y)


def test_any_subset_of_parameters_may_have_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_CACHED", 3)
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


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float64])
def test_parameters_of_several_dtypes(stored: torch.dtype) -> None:
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


# --- in place -----------------------------------------------------------------------------------

VECTOR = TensorType(DType.F32, (4,))


def graph_of(name: str) -> tuple[Graph, dict[int, int]]:
    """A graph of inputs x, y and its outputs, and the output that may overwrite each input."""
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
        case "old and new":  # x is read again after its next value
            value = builder.emit(Op.MUL, x, y)
            builder.output("first", value)
            builder.output("second", builder.emit(Op.SUB, value, x))
        case "own":  # sqrt(|x+x|) + (x+x): x+x is still needed when |x+x| is computed
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
"""The ops that run in place."""


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_ops_run_in_place_where_the_operand_is_not_needed(name: str) -> None:
    graph, overwritable = graph_of(name)
    program = to_module(graph)
    inplace = InplaceProgram(program, overwritable)
    given = [torch.tensor([1.0, -2, 3, 0.5]), torch.tensor([-1.0, 4, 2, 3])]
    wanted = program(*given)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    names = [node.target.__name__ for node in inplace.ops if node in inplace.overwritten]
    assert names == OVERWRITTEN[name]
    copies = [[value.clone(), value.clone()] for value in given]
    results = ForeachProgram(inplace).run(copies)
    for found, result in zip(results, wanted, strict=True):
        assert all(torch.equal(one, result) for one in found)
    assert (results[0][0] is copies[0][0]) == (name == "chain")
    assert torch.equal(copies[1][0], given[1])

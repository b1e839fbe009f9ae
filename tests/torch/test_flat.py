"""The eager step of elementwise rules as vectors, compared with one parameter at a time."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import closedform as cf
from closedform.exporters.torch_module import FxProgram, to_fx
from closedform.ir.graph import Graph
from closedform.torch import Optimizer, optim
from closedform.torch.engine import flat
from closedform.torch.engine.flat import FlatStep, segments
from closedform.torch.engine.specialize import specializer
from closedform.torch.engine.tensor_program import TensorProgram
from tests.torch.engines import LIBRARY, shapes_of
from tests.torch.test_foreach import apart, both, plain
from tests.torch.training import largest_difference, parameters, steps


def flat_steps(optimizer: Optimizer) -> list[FlatStep]:
    """The steps as vectors of the last step."""
    captured = optimizer._captured
    assert captured is not None
    return [one for one in captured._steps if isinstance(one, FlatStep)]


def test_segments_join_small_parameters_in_order() -> None:
    small, large, limit = 5, flat.SMALL + 1, flat.JOINED
    assert segments([]) == []
    assert segments([small, small]) == [range(2)]
    assert segments([small, large, large, small]) == [
        range(1),
        range(1, 2),
        range(2, 3),
        range(3, 4),
    ]
    many = segments([flat.SMALL] * 7)
    assert [len(run) * flat.SMALL for run in many] == [limit, 7 * flat.SMALL - limit]
    assert segments([0, 0, large]) == [range(2), range(2, 3)]


@pytest.mark.parametrize("shapes", [[(5,), ()], [(), (5,)], [(2, 3), (4, 3)], [(0,), ()]])
def test_vectors_and_numbers_are_stepped_together(shapes: list[tuple[int, ...]]) -> None:
    ours, theirs = parameters(shapes), parameters(shapes)
    steps(optim.AdamW(ours, lr=0.1), ours, 3)
    steps(torch.optim.AdamW(theirs, lr=0.1), theirs, 3)
    assert largest_difference(ours, theirs) <= 3 * 10 * 6e-8  # ten roundings a step


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("name", LIBRARY)
def test_every_rule_on_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flat, "SMALL", 4)  # 5 elements and more are stepped alone
    monkeypatch.setattr(flat, "TILE", 7)  # 24 elements in four tiles of 6, 12 in two
    rule = LIBRARY[name]()
    found, bound = apart(both(rule, shapes_of(rule), 4))
    assert found <= bound


RULES = {
    "adamw": cf.optimizers.adamw(lr=0.1, amsgrad=True),
    "nadam": cf.optimizers.nadam(lr=0.1),
    "radam": cf.optimizers.radam(lr=0.1),
    "rprop": cf.optimizers.rprop(lr=0.1),
    "sgd": cf.optimizers.sgd(lr=0.1, momentum=0.9, dampening=0.1),
}
"""Rules with and without numbers of their own for each parameter."""


def with_missing(optimizer: Optimizer, params: Sequence[nn.Parameter], count: int) -> None:
    """Steps in which a third of the gradients are missing, others in each step."""
    generator = torch.Generator().manual_seed(3)
    for number in range(count):
        for index, param in enumerate(params):
            param.grad = torch.randn(param.shape, generator=generator)
            if (index + number) % 3 == 0:
                param.grad = None
        optimizer.step()


@pytest.mark.parametrize("name", RULES)
def test_parameters_without_gradients_are_left_as_they_are(name: str) -> None:
    made = []
    for make in (Optimizer, plain):
        params = parameters([(3,), (2, 2), (), (0,), (4, 1), (flat.SMALL + 1,), (5,)])
        optimizer = make(params, RULES[name])
        steps(optimizer, params, 2)
        with_missing(optimizer, params, 5)
        made.append(optimizer)
    assert len(flat_steps(made[0])) == 1
    found, bound = apart(made)
    assert found <= bound
    counts = [[int(one["step"]) for one in optimizer.state.values()] for optimizer in made]
    assert counts[0] == counts[1]
    params = made[0].param_groups[0]["params"]
    before = [value.clone() for one in made[0].state.values() for value in one.values()]
    for param in params:
        param.grad = None
    values = [param.detach().clone() for param in params]
    params[0].grad = torch.ones(3)
    made[0].step()
    assert largest_difference(params[1:], values[1:]) == 0
    after = [value for one in made[0].state.values() for value in one.values()]
    width = len(made[0].state[params[0]])
    assert all(map(torch.equal, before[width:], after[width:]))
    assert int(made[0].state[params[0]]["step"]) == int(before[0]) + 1


def test_the_pattern_of_missing_gradients_compiles_and_captures_nothing() -> None:
    params = parameters([(3,), (2, 2), (flat.SMALL + 1,), (4,)])
    optimizer = optim.AdamW(params)
    steps(optimizer, params, 1)
    captured = optimizer._captured
    with_missing(optimizer, params, 6)
    assert captured is not None
    assert optimizer._captured is captured


def test_states_are_parts_of_one_vector_and_may_be_replaced() -> None:
    params, apart_ones = parameters([(3,), (2, 2), (4,)]), parameters([(3,), (2, 2), (4,)])
    mine, other = optim.Adam(params, lr=0.1), optim.Adam(apart_ones, lr=0.1)
    for optimizer, listed in ((mine, params), (other, apart_ones)):
        steps(optimizer, listed, 2)
    storages = {mine.state[p]["exp_avg"].untyped_storage().data_ptr() for p in params}
    assert len(storages) == 1
    for states in other.state.values():
        states.update({name: value.clone() for name, value in states.items()})
    before = [states["exp_avg"] for states in other.state.values()]
    for optimizer, listed in ((mine, params), (other, apart_ones)):
        steps(optimizer, listed, 2, seed=5)
    assert largest_difference(params, apart_ones) == 0
    after = [states["exp_avg"] for states in other.state.values()]
    assert all(one is two for one, two in zip(before, after, strict=True))
    assert largest_difference(before, [mine.state[p]["exp_avg"] for p in params]) == 0


def test_large_parameters_are_tiled(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run, step = TensorProgram.run, TensorProgram.step

    def watched(self: TensorProgram, start: Any, given: Sequence[Tensor | None]) -> list[Tensor]:
        sizes.append(max(one.numel() for one in given if one is not None))
        return run(self, start, given)

    def watched_step(self: TensorProgram, given: list[Tensor]) -> None:
        sizes.append(max(one.numel() for one in given))
        step(self, given)

    monkeypatch.setattr(TensorProgram, "run", watched)
    monkeypatch.setattr(TensorProgram, "step", watched_step)
    params = parameters([(3,), (4,), (2, flat.TILE // 2 + 1), (flat.TILE,)])
    steps(optim.SGD(params, lr=0.1, momentum=0.9, foreach=False), params, 1)
    half = flat.TILE // 2 + 1
    assert sizes[1:] == [7, half, half, flat.TILE]


def test_a_large_parameter_allocates_no_tensor_of_its_size() -> None:
    param = nn.Parameter(torch.zeros(4 * flat.TILE))
    optimizer = optim.AdamW([param])
    param.grad = torch.ones_like(param)
    optimizer.step()
    with torch.profiler.profile(profile_memory=True) as profile:
        optimizer.step()
    taken = max(event.self_cpu_memory_usage for event in profile.events())
    assert taken <= 4 * flat.TILE  # a tile of float32


@pytest.mark.parametrize("shape", [(2**8, 2**7), (3, 5)])
def test_a_parameter_whose_memory_has_another_order(shape: tuple[int, int]) -> None:
    found = []
    for make in (Optimizer, plain):
        drawn = parameters([shape])[0].detach()
        param = nn.Parameter(drawn.t())
        optimizer = make([param, *parameters([(3,)])], RULES["adamw"])
        for _ in range(3):
            param.grad = torch.ones(shape).t()
            optimizer.step()
        param.data = param.data.t().contiguous().t()
        found.append(param)
        assert not optimizer.state[param]["exp_avg"].is_contiguous()
    assert largest_difference([found[0]], [found[1]]) <= 3 * 4 * 6e-8  # roundings


def test_a_product_that_is_added_is_rounded_once() -> None:
    """p - ηg with one rounding is as near to its exact value as with two, or nearer."""
    params = parameters([(4096,)], seed=2)
    exact = [param.detach().double() for param in params]
    other = parameters([(4096,)], seed=2)
    mine, theirs = (
        make([p], cf.optimizers.sgd(lr=0.1)) for make, (p,) in ((Optimizer, params), (plain, other))
    )
    for optimizer, (param,) in ((mine, params), (theirs, other)):
        param.grad = torch.full_like(param, 0.3)
        optimizer.step()
    wanted = exact[0] - float(torch.tensor(0.1)) * float(torch.tensor(0.3))
    errors = [float((one[0].detach().double() - wanted).abs().sum()) for one in (params, other)]
    assert errors[0] <= errors[1]


STARTS: dict[str, dict[str, Any]] = {
    "Adagrad": {"initial_accumulator_value": 0.1},
    "Adam": {},
    "ASGD": {},
    "Rprop": {},
}


@pytest.mark.parametrize("name", STARTS)
def test_states_of_small_parameters_are_one_vector_whatever_their_start(name: str) -> None:
    params = parameters([(3, 2), (4,), (5,)])
    optimizer = optim.OPTIMIZERS[name](params, **STARTS[name])
    for state in optimizer.state[params[0]]:
        assert flat.adjacent([optimizer.state[param][state] for param in params]) is not None


@pytest.mark.parametrize("name", ["AdamW", "SGD"])
def test_a_first_step_makes_each_program_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Graph] = []

    def counted(graph: Graph) -> FxProgram:
        graphs.append(graph)
        return to_fx(graph)

    monkeypatch.setattr(flat, "to_fx", counted)
    flat.flat_kernel.cache_clear()
    specializer.cache_clear()
    params = parameters([(3, 2), (4,)])
    steps(optim.OPTIMIZERS[name](params, lr=0.1), params, 2)
    assert 1 <= len(graphs) == len(set(graphs))

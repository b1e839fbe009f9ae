"""The compiled step: compiled once, for any set of parameters with gradients, in any group."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import closedform as cf
from closedform.torch import Optimizer, optim
from closedform.torch.engine import compiled, flat, inductor
from tests.torch.training import COMPILING, SHAPES, largest_difference, parameters, steps

pytestmark = pytest.mark.filterwarnings(COMPILING)


def compilations() -> int:
    """How many functions inductor has compiled, or found in its cache, so far."""
    return sum(counters["inductor"][f"fxgraph_cache_{how}"] for how in ("hit", "miss", "bypass"))


def test_ten_thousand_steps_with_schedules_inside_are_compiled_once() -> None:
    warm = cf.schedules.linear(0, 1e-2, 500).then(cf.schedules.cosine(1e-2, 1e-3, 9_500))
    decay = cf.schedules.multi_step(0.1, 0.5, [100, 3_000, 7_000])  # a table of milestones
    rule = cf.optimizers.adamw(lr=warm, weight_decay=decay)
    shapes = [(3,), (2, 2)]
    ours, theirs = parameters(shapes), parameters(shapes)
    mine, other = Optimizer(ours, rule, backend="compile"), Optimizer(theirs, rule)
    steps(mine, ours, 1)
    before = compilations()
    assert before
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(9_999):
            mine.step()
    assert compilations() == before
    assert [int(mine.state[param]["step"]) for param in ours] == [10_000] * 2
    # The last ten steps again, from the same point.
    other.load_state_dict(mine.state_dict())
    for one, two in zip(ours, theirs, strict=True):
        two.data.copy_(one.data)
    steps(mine, ours, 10, seed=3)
    steps(other, theirs, 10, seed=3)
    assert largest_difference(ours, theirs) <= 10 * 4 * 6e-8  # roundings of float32


def step_some(
    optimizer: torch.optim.Optimizer, params: Sequence[nn.Parameter], chosen: int
) -> None:
    """A step in which the parameters have gradients whose bit is set."""
    for number, param in enumerate(params):
        param.grad = torch.full_like(param, 0.5 + number) if chosen >> number & 1 else None
    optimizer.step()


@pytest.mark.parametrize("rule", [cf.optimizers.nadam, cf.optimizers.lamb])
def test_parameters_with_gradients_may_change_from_step_to_step(
    rule: Callable[..., cf.UpdateRule], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "MAX_COMPILED", 1)  # further sets of LAMB step one by one
    shapes = [(3,), (3,), (2, 2)]
    ours, theirs = parameters(shapes), parameters(shapes)
    mine = Optimizer(ours, rule(lr=1e-2), backend="compile")
    other = Optimizer(theirs, rule(lr=1e-2))
    for chosen in (0b111, 0b011, 0b101, 0b110, 0b001, 0b111):
        step_some(mine, ours, chosen)
        step_some(other, theirs, chosen)
    counts = [[int(o.state[p]["step"]) for p in o.param_groups[0]["params"]] for o in (mine, other)]
    assert counts[0] == counts[1] == [5, 4, 4]
    assert largest_difference(ours, theirs) <= 6 * 4 * 6e-8  # roundings, as above


@pytest.mark.parametrize("rule", [cf.optimizers.sgd, cf.optimizers.lars])
def test_one_set_of_programs_serves_other_groups(rule: Callable[..., cf.UpdateRule]) -> None:
    def grouped() -> tuple[list[nn.Parameter], list[dict[str, object]]]:
        made = parameters([(3,), (3,), (3,)])
        return made, [{"params": made[:2], "lr": 0.5}, {"params": made[2:], "lr": 0.001}]

    (ours, first), (theirs, second) = grouped(), grouped()
    mine = Optimizer(first, rule(momentum=0.9), backend="compile")
    other = Optimizer(second, rule(momentum=0.9))
    for chosen in (0b011, 0b101, 0b110):  # one group, then two: the same kernels, other rates
        step_some(mine, ours, chosen)
        step_some(other, theirs, chosen)
    assert largest_difference(ours, theirs) <= 3 * 4 * 6e-8 * 4  # roundings of numbers up to 4


def test_an_equal_optimizer_takes_the_compiled_function_of_another() -> None:
    def made(shapes: list[tuple[int, ...]], rate: float) -> list[nn.Parameter]:
        params = parameters(shapes)
        rule = cf.optimizers.lars(lr=rate, momentum=0.9)
        steps(Optimizer(params, rule, backend="compile"), params, 2)
        return params

    made([(3,), (5,)], 0.5)
    before = compilations()
    ours, theirs = made([(3,), (5,)], 0.25), parameters([(3,), (5,)])
    assert compilations() == before
    steps(Optimizer(theirs, cf.optimizers.lars(lr=0.25, momentum=0.9)), theirs, 2)
    assert largest_difference(ours, theirs) <= 2 * 4 * 6e-8  # roundings
    made([(3,), (6,)], 0.25)  # another shape
    assert compilations() > before


@pytest.mark.parametrize("name", ["AdamW", "SGD", "RAdam"])
def test_an_elementwise_rule_is_compiled_once_for_all_shapes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flat, "SMALL", 16)  # the largest parameter is stepped alone
    made = optim.OPTIMIZERS[name]
    first = parameters([(3,), (4, 5)])
    steps(made(first, lr=1e-2, backend="compile"), first, 2)
    before = compilations()
    assert before
    for shapes in (SHAPES, [(1,)], [(), ()], [(1, 17), (300,)], [(7,)] * 20):
        ours, theirs = parameters(shapes), parameters(shapes)
        mine, other = made(ours, lr=1e-2, backend="compile"), made(theirs, lr=1e-2)
        steps(mine, ours, 2)
        steps(other, theirs, 2)
        assert largest_difference(ours, theirs) <= 2 * 8 * 6e-8  # roundings
    assert compilations() == before


def test_parameters_whose_steps_differ_are_stepped_as_one_vector() -> None:
    ours, theirs = parameters(), parameters()
    mine, other = optim.AdamW(ours, lr=0.1, backend="compile"), optim.AdamW(theirs, lr=0.1)
    for chosen in (0b11111, 0b01011, 0b11111, 0b10100, 0b11111):
        step_some(mine, ours, chosen)
        step_some(other, theirs, chosen)
    assert [int(mine.state[param]["step"]) for param in ours] == [4, 4, 4, 4, 4]
    assert largest_difference(ours, theirs) <= 5 * 10 * 6e-8  # ten roundings a step


@pytest.mark.parametrize("shapes", [[(40_000,)], [(20_000,), (30_000,)]])
def test_vectors_are_stepped_by_all_threads_of_torch(shapes: list[tuple[int, ...]]) -> None:
    before, threads = compilations(), torch.get_num_threads()
    ours, theirs = parameters(shapes), parameters(shapes)
    mine = optim.AdamW(ours, lr=0.1, backend="compile")
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            steps(mine, ours, 1, seed=3)
    finally:
        torch.set_num_threads(threads)
    assert compilations() - before <= 4  # numbers, short vectors, and long ones by 1 or 2 threads
    other = optim.AdamW(theirs, lr=0.1)
    for _ in range(3):
        steps(other, theirs, 1, seed=3)
    assert largest_difference(ours, theirs) <= 3 * 10 * 6e-8  # ten roundings a step


@pytest.mark.parametrize("size", [3, flat.SMALL + 1])
def test_autograd_sees_that_a_parameter_has_changed(size: int) -> None:
    (param,) = params = parameters([(size,)])
    mine = optim.SGD(params, lr=0.1, momentum=0.9, backend="compile")
    steps(mine, params, 2)
    loss = (param * param).sum()
    steps(mine, params, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("size", [3, flat.SMALL + 1])
def test_a_parameter_of_another_length_is_refused(size: int) -> None:
    params = parameters([(size,), (size,)])
    mine = optim.SGD(params, lr=0.1, momentum=0.9, backend="compile")
    steps(mine, params, 2)
    params[0].grad = None
    params[0].data = params[0].data[:2].clone()
    with pytest.raises((cf.errors.StateError, RuntimeError)):
        steps(mine, params, 1)


def test_a_parameter_of_another_dtype_is_stepped_as_before() -> None:
    ours, theirs = parameters([(flat.SMALL + 1,)]), parameters([(flat.SMALL + 1,)])
    mine = optim.SGD(ours, lr=0.1, momentum=0.9, backend="compile")
    other = optim.SGD(theirs, lr=0.1, momentum=0.9)
    for one, params in ((mine, ours), (other, theirs)):
        steps(one, params, 2)
        params[0].grad = None
        params[0].data = params[0].data.double()
        steps(one, params, 2)
    assert ours[0].dtype == torch.float64
    assert largest_difference(ours, theirs) <= 4 * 4 * 6e-8  # roundings of float32 states


def test_a_loop_over_other_memory_is_refused() -> None:
    from closedform.torch.engine.kernels import ANY_SHAPE, step_graph

    graph = step_graph(cf.optimizers.sgd(lr=0.5, momentum=0.9), (ANY_SHAPE,), torch.float32)
    kernel = compiled.compiled_kernel(graph, "p0")
    assert kernel is not None
    program = kernel.single
    assert isinstance(program, compiled.CompiledProgram)
    right = [torch.ones(8 if "p0" in name else ()) for name in program.input_names]
    program.step(right.copy())
    for wrong in (
        torch.ones(7),
        torch.ones(8).double(),
        torch.ones(16)[::2],
        torch.ones(8).to("meta"),
    ):
        with pytest.raises(cf.errors.StateError, match="contiguous vectors of one length"):
            program.step([wrong, *right[1:]])


def test_numbers_of_which_any_may_be_one_for_each_parameter() -> None:
    from closedform.torch.engine.kernels import ANY_SHAPE, step_graph

    graph = step_graph(cf.optimizers.adamw(lr=None), (ANY_SHAPE,), torch.float32)
    kernel = compiled.compiled_kernel(graph, "p0")
    assert kernel is not None
    program = kernel.scalars
    assert isinstance(program, compiled.CompiledProgram)
    single = [torch.full((1,), 2.0).to(dtype) for dtype in program.input_dtypes]
    assert len(single) > 1
    wanted = program.run([None] * len(single), single)
    for index, one in enumerate(single):
        longer = [*single[:index], one.expand(3).clone(), *single[index + 1 :]]
        for result, value in zip(program.run([None] * len(single), longer), wanted, strict=True):
            assert torch.equal(result, value.expand(result.shape))


def test_a_parameter_may_be_given_other_memory() -> None:
    ours, theirs = parameters([(flat.SMALL + 1,)]), parameters([(flat.SMALL + 1,)])
    mine = optim.SGD(ours, lr=0.1, momentum=0.9, backend="compile")
    other = optim.SGD(theirs, lr=0.1, momentum=0.9)
    for one, params in ((mine, ours), (other, theirs)):
        steps(one, params, 2)
        params[0].data = params[0].data.flip(0).clone()
        steps(one, params, 2)
    assert largest_difference(ours, theirs) <= 4 * 4 * 6e-8  # roundings


def test_a_function_of_vectors_takes_any_length() -> None:
    def scaled(vector: Tensor, number: Tensor) -> list[Tensor]:
        vector.copy_(vector * number)
        return [vector + 1]

    def swapped(one: Tensor, other: Tensor) -> list[Tensor]:
        first, second = other * 1, one * 1
        one.copy_(first)
        other.copy_(second)
        return []

    pair = [torch.arange(20.0), torch.ones(20)]
    inductor.compiled_function(swapped, pair, [0, 1], 1)(pair.copy())
    assert torch.equal(pair[0], torch.ones(20))
    assert torch.equal(pair[1], torch.arange(20.0))
    number = torch.tensor(2.0)
    made = inductor.compiled_function(scaled, [torch.ones(5), number], [0], 1)
    for count in (0, 1, 2, 15, 16, 17, 1000):
        vector = torch.arange(count, dtype=torch.float32)
        (above,) = made([vector, number])
        assert torch.equal(vector, 2 * torch.arange(count))
        assert torch.equal(above, 2 * torch.arange(count) + 1)


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_compiled_as_they_are_stepped(dtype: torch.dtype) -> None:
    ours, theirs = parameters(dtype=dtype), parameters(dtype=dtype)
    steps(optim.NAdam(ours, lr=1e-2, backend="compile"), ours, 5)
    steps(optim.NAdam(theirs, lr=1e-2), theirs, 5)

    def doubled(values: list[nn.Parameter]) -> list[Tensor]:
        return [value.detach().double() for value in values]

    # bfloat16: computed in float32, which may round to the other of two neighbours, 2**-8 apart.
    bound = 5 * 4 * 1.2e-16 if dtype == torch.float64 else 2.0**-7
    assert largest_difference(doubled(ours), doubled(theirs)) <= bound


def test_a_cycle_of_numbers_under_a_trace_makes_two_graphs_at_most() -> None:
    """As torch does: one graph for the first rate and momentum, one for all others."""
    params, others = parameters([(3,), (2,)]), parameters([(3,), (2,)])
    mine = optim.SGD(params, lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(others, lr=0.1, momentum=0.9)
    driving = [
        torch.optim.lr_scheduler.OneCycleLR(one, 0.1, total_steps=40) for one in (mine, theirs)
    ]
    torch._dynamo.reset()
    counters.clear()
    compiled_step = torch.compile(lambda: mine.step(), backend="aot_eager")
    for number in range(12):
        for param in (*params, *others):
            param.grad = torch.full_like(param, 0.5 - number % 3)
        compiled_step()
        theirs.step()
        for scheduler in driving:
            scheduler.step()
    assert counters["stats"]["unique_graphs"] <= 2
    assert not counters["recompile_limit"]
    assert largest_difference(params, others) <= 12 * 4 * 6e-8  # roundings

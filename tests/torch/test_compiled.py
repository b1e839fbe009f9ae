"""The compiled step: compiled once, for any set of parameters with gradients, in any group."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import closedform as cf
from closedform.torch import Optimizer, optim
from closedform.torch.engine import compiled
from tests.torch.training import COMPILING, largest_difference, parameters, steps

pytestmark = pytest.mark.filterwarnings(COMPILING)


def compilations() -> int:
    """How many graphs torch.compile has made so far."""
    return int(counters["stats"]["unique_graphs"])


def test_ten_thousand_steps_with_schedules_inside_are_compiled_once() -> None:
    warm = cf.schedules.linear(0, 1e-2, 500).then(cf.schedules.cosine(1e-2, 1e-3, 9_500))
    decay = cf.schedules.multi_step(0.1, 0.5, [100, 3_000, 7_000])  # a table of milestones
    rule = cf.optimizers.adamw(lr=warm, weight_decay=decay)
    shapes = [(3,), (2, 2)]
    ours, theirs = parameters(shapes), parameters(shapes)
    mine, other = Optimizer(ours, rule, backend="compile"), Optimizer(theirs, rule)
    steps(mine, ours, 1)
    before = compilations()
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


def test_parameters_with_gradients_may_change_from_step_to_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "MAX_COMPILED", 1)  # further sets step one by one
    shapes = [(3,), (3,), (2, 2)]
    ours, theirs = parameters(shapes), parameters(shapes)
    mine = optim.NAdam(ours, lr=1e-2, backend="compile")
    other = optim.NAdam(theirs, lr=1e-2)
    for chosen in (0b111, 0b011, 0b101, 0b110, 0b001, 0b111):
        step_some(mine, ours, chosen)
        step_some(other, theirs, chosen)
    counts = [[int(o.state[p]["step"]) for p in o.param_groups[0]["params"]] for o in (mine, other)]
    assert counts[0] == counts[1] == [5, 4, 4]
    assert largest_difference(ours, theirs) <= 6 * 4 * 6e-8  # roundings, as above


def test_one_set_of_programs_serves_other_groups() -> None:
    def grouped() -> tuple[list[nn.Parameter], list[dict[str, object]]]:
        made = parameters([(3,), (3,), (3,)])
        return made, [{"params": made[:2], "lr": 0.5}, {"params": made[2:], "lr": 0.001}]

    (ours, first), (theirs, second) = grouped(), grouped()
    mine = Optimizer(first, cf.optimizers.sgd(momentum=0.9), backend="compile")
    other = Optimizer(second, cf.optimizers.sgd(momentum=0.9))
    for chosen in (0b011, 0b101, 0b110):  # one group, then two: the same kernels, other rates
        step_some(mine, ours, chosen)
        step_some(other, theirs, chosen)
    assert largest_difference(ours, theirs) <= 3 * 4 * 6e-8 * 4  # roundings of numbers up to 4


def test_an_equal_optimizer_takes_the_compiled_function_of_another() -> None:
    def made(shapes: list[tuple[int, ...]], rate: float) -> list[nn.Parameter]:
        params = parameters(shapes)
        steps(optim.SGD(params, lr=rate, momentum=0.9, backend="compile"), params, 2)
        return params

    made([(3,), (5,)], 0.5)
    before = compilations()
    ours, theirs = made([(3,), (5,)], 0.25), parameters([(3,), (5,)])
    assert compilations() == before
    steps(optim.SGD(theirs, lr=0.25, momentum=0.9), theirs, 2)
    assert largest_difference(ours, theirs) <= 2 * 4 * 6e-8  # roundings
    made([(3,), (6,)], 0.25)  # another shape
    assert compilations() > before


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

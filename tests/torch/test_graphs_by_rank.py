"""One graph serves the parameters of one rank, if the rule looks at sizes through means alone."""

import copy
from collections.abc import Sequence

import pytest
import sympy as sp
import torch
from torch import Tensor

from closedform import frameworks
from closedform.errors import GraphError
from closedform.language import GRAD, PARAM, MatMul, UpdateRule
from closedform.optimizers import adafactor, adam, lamb, muon
from closedform.torch import Optimizer, optim
from closedform.torch.engine import kernels, specialize
from closedform.torch.engine.kernels import TorchKernel, has_graph_by_rank, step_graph

SHAPES = (
    (3, 4),
    (5, 2),
    (1, 6),
    (6, 1),
    (3, 4),
    (64, 64),
    (7,),
    (128,),
    (1,),
    (),
    (2, 3, 4),
    (4, 1, 3),
)
EMPTY = ((0, 3), (3, 0), (0,))


def _parameters(shapes: tuple[tuple[int, ...], ...]) -> list[torch.nn.Parameter]:
    source = torch.Generator().manual_seed(3)
    return [torch.nn.Parameter(torch.randn(shape, generator=source)) for shape in shapes]


def _stepped(
    optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter], *, is_reloaded: bool = False
) -> list[Tensor]:
    """The parameters after 12 steps; the state is loaded into a new optimizer on the way."""
    source = torch.Generator().manual_seed(4)
    for number in range(12):
        for param in params:
            param.grad = torch.randn(param.shape, generator=source)
        if is_reloaded and number == 5:
            saved = copy.deepcopy(optimizer.state_dict())
            optimizer = optim.Adafactor(params, lr=0.5)
            optimizer.load_state_dict(saved)
        optimizer.step()
    return [param.detach().clone() for param in params]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing that was compiled before is used."""
    specialize.specializer.cache_clear()
    return monkeypatch


def _kernels(optimizer: optim.Adafactor) -> set[int]:
    """The graphs that an optimizer runs."""
    return {id(one.graph) for group in optimizer._compiled.values() for one in group.kernels}


def test_adafactor_has_a_graph_for_each_rank_and_steps_as_torch() -> None:
    ours, theirs = _parameters(SHAPES), _parameters(SHAPES)
    optimizer = optim.Adafactor(ours, lr=1e-2)
    found = _stepped(optimizer, ours, is_reloaded=True)
    expected = _stepped(torch.optim.Adafactor(theirs, lr=1e-2), theirs)
    assert len(_kernels(optimizer)) == len({len(shape) for shape in SHAPES})
    for shape, one, other in zip(SHAPES, found, expected, strict=True):
        # The order of the sums is torch's in both; rows times columns are multiplied in another.
        torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-7, msg=str(shape))


def test_graphs_by_rank_give_the_values_of_graphs_by_shape(fresh: pytest.MonkeyPatch) -> None:
    shapes = SHAPES + EMPTY
    ours = _parameters(shapes)
    optimizer = optim.Adafactor(ours, lr=1e-2, weight_decay=0.1)
    found = _stepped(optimizer, ours)
    fresh.setattr(specialize, "has_graph_by_rank", lambda _: False)
    specialize.specializer.cache_clear()
    others = _parameters(shapes)
    by_shape = optim.Adafactor(others, lr=1e-2, weight_decay=0.1)
    expected = _stepped(by_shape, others)
    assert len(_kernels(optimizer)) < len(_kernels(by_shape)) == len(set(shapes))
    assert all(map(torch.equal, found, expected))


def test_each_parameter_has_its_own_sizes(fresh: pytest.MonkeyPatch) -> None:
    """A planted fault: with the sizes of another shape, the steps are not torch's."""
    sizes = kernels._size_tensors
    fresh.setattr(
        kernels, "_size_tensors", lambda param: sizes(param.new_empty((9,) * param.dim()))
    )
    ours, theirs = _parameters(SHAPES), _parameters(SHAPES)
    found = _stepped(optim.Adafactor(ours, lr=1e-2), ours)
    expected = _stepped(torch.optim.Adafactor(theirs, lr=1e-2), theirs)
    assert not all(
        torch.allclose(one, other, rtol=1e-3) for one, other in zip(found, expected, strict=True)
    )


def test_first_states_are_those_of_the_compiled_start(fresh: pytest.MonkeyPatch) -> None:
    params = _parameters((*SHAPES, *EMPTY, (2, 3, 4, 5)))
    params[-1].data = params[-1].data.to(memory_format=torch.channels_last)
    rule = optim.Adafactor(params, lr=1e-2)._rule_of(0)
    found = list(map(kernels.state_maker(rule), params))
    fresh.setattr(kernels, "has_graph_by_rank", lambda _: False)
    expected = list(map(kernels.state_maker(rule), params))
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert all(one[name].stride() == other[name].stride() for name in one)
        assert all(one[name].dtype is other[name].dtype for name in one)


def test_a_step_in_a_trace_takes_the_sizes() -> None:
    shapes = ((3, 4), (5, 2), (7,))
    ours, theirs = _parameters(shapes), _parameters(shapes)
    optimizer, plain = optim.Adafactor(ours, lr=1e-2), optim.Adafactor(theirs, lr=1e-2)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = other.grad = torch.ones_like(one)
        step()
        plain.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_a_rule_that_needs_equal_sizes_has_a_graph_for_each_shape() -> None:
    """The square of the gradient exists for square matrices; the rate may change all the same."""
    rule = UpdateRule(
        "squares",
        param=PARAM - sp.Symbol("lr", real=True) * MatMul(GRAD, GRAD),
        hyperparameters={"lr": sp.Rational(1, 8)},
    )
    params = _parameters(((4, 4), (3, 3), (4, 4)))
    optimizer = Optimizer(params, rule)
    expected = [param.detach().clone() for param in params]
    for rate in (0.125, 0.25, 0.5):
        optimizer.param_groups[0]["lr"] = rate
        for index, param in enumerate(params):
            param.grad = torch.full_like(param, 0.5)
            expected[index] -= rate * param.grad @ param.grad
        optimizer.step()
    for one, other in zip(params, expected, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=1e-6, atol=1e-6)
    found = {id(one.graph) for group in optimizer._compiled.values() for one in group.kernels}
    assert len(found) == 2
    specialization = optimizer._compiled[0].specialization
    assert [name for name, *_ in specialization.inputs] == ["lr"]
    flawed = Optimizer(_parameters(((3, 4),)), rule)
    flawed.param_groups[0]["params"][0].grad = torch.ones(3, 4)
    with pytest.raises(GraphError, match="common inner size"):
        flawed.step()


@pytest.mark.parametrize("is_traced", [False, True])
def test_the_sizes_of_few_shapes_are_stored(fresh: pytest.MonkeyPatch, *, is_traced: bool) -> None:
    fresh.setattr(kernels, "MAX_SHAPES", 2)
    shapes = (*((3, size) for size in range(1, 6)), (7,))
    ours, theirs = _parameters(shapes), _parameters(shapes)
    optimizer, reference = optim.Adafactor(ours, lr=1e-2), torch.optim.Adafactor(theirs, lr=1e-2)
    step = torch.compile(optimizer.step, backend="eager") if is_traced else optimizer.step
    for number in range(4):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            is_missing = not is_traced and index % 3 == number % 3
            one.grad = other.grad = None if is_missing else torch.ones_like(one)
        step()  # type: ignore[no-untyped-call, unused-ignore]
        reference.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-6, atol=2e-7)
    used = {id(one): one for group in optimizer._compiled.values() for one in group.kernels}
    stored = sorted(len(one.sizes or {}) for one in used.values() if isinstance(one, TorchKernel))
    assert stored == [1, 2]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (frameworks.optimizer("torch", "Adafactor", {"lr": 1e-2}), True),
        (lamb(lr=1e-2), True),
        (adam(lr=1e-2), True),
        (adafactor(lr=1e-2), False),
        (muon(lr=1e-2), False),
    ],
    ids=lambda value: value.name if isinstance(value, UpdateRule) else "",
)
def test_which_rules_have_a_graph_by_rank(rule: UpdateRule, *, expected: bool) -> None:
    assert has_graph_by_rank(rule) is expected
    if expected:
        assert step_graph(rule, (("n0", "n1"),), torch.float32).outputs


def test_states_of_a_rank_are_complete_without_those_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = _parameters(((3, 4), (7,)))
    optimizer = optim.Adafactor(params, lr=1e-2)
    made: list[int] = []
    make_states = optimizer._make_states

    def counted(index: int, params: Sequence[tuple[int, Tensor]]) -> None:
        made.append(index)
        make_states(index, params)

    monkeypatch.setattr(optimizer, "_make_states", counted)
    for param in params:
        param.grad = torch.ones_like(param)
    for _ in range(2):
        optimizer.step()
    assert made == [0]
    del optimizer.state[params[0]]["row_var"]
    optimizer.step()
    assert made == [0, 0]
    assert optimizer.state[params[0]]["row_var"].shape == (3, 1)

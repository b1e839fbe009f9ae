"""Input that an optimizer rejects: errors name group and parameter, and nothing is changed."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

import closedform as cf
from closedform.errors import (
    ArgumentError,
    ClosedFormError,
    DefinitionError,
    StateError,
    UnknownNameError,
)
from closedform.language import GRAD, PARAM, UpdateRule, hyper
from closedform.torch import Optimizer, cerebras, optim
from tests.torch.training import parameters, steps, values

ADAMW = cf.optimizers.adamw(lr=1e-2)
OPEN = UpdateRule("open", PARAM - hyper("rate") * GRAD, {}, {"rate": None})


def plain(shape: tuple[int, ...], **options: Any) -> nn.Parameter:
    return nn.Parameter(torch.zeros(shape, **options))


def bad_groups() -> list[tuple[Any, type[ClosedFormError], tuple[str, ...]]]:
    good = plain((2,))
    return [
        (
            [good, plain((4,), dtype=torch.float8_e5m2)],
            ArgumentError,
            ("param group 0", "parameter 1", "[4]", "got torch.float8_e5m2", "torch.float32"),
        ),
        (
            [{"params": [good]}, {"params": [plain((3,)), plain((5,), device="meta")]}],
            ArgumentError,
            ("param group 1", "parameter 1", "[5]", "one device", "meta after cpu"),
        ),
        (
            [("body.weight", good), ("head.weight", plain((4,), dtype=torch.float8_e5m2))],
            ArgumentError,
            ("parameter 'head.weight'", "float8_e5m2"),
        ),
        (
            [{"params": [good]}, {"params": [plain((3,))], "lr": -0.5}],
            DefinitionError,
            ("param group 1", "lr must be >= 0, got -0.5"),
        ),
        (
            [{"params": [good], "lr": "fast"}],
            DefinitionError,
            ("param group 0", "lr", "must be a number", "'fast'"),
        ),
    ]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("kind", ["rule", "class"])
def test_groups_are_checked_before_anything_is_created(number: int, kind: str) -> None:
    groups, error, parts = bad_groups()[number]
    make: Any = cerebras.AdamW if kind == "class" else lambda given: Optimizer(given, ADAMW)
    with pytest.raises(error) as caught:
        make(groups)
    for part in parts:
        assert part in str(caught.value)


def test_a_range_of_the_class_is_checked_in_each_group() -> None:
    groups: Any = [
        {"params": parameters([(2,)])},
        {"params": parameters([(3,)]), "betas": (0.9, 1.5)},
    ]
    with pytest.raises(DefinitionError, match=r"AdamW, param group 1.*|betas\[1\]") as caught:
        optim.AdamW(groups)
    assert "param group 1" in str(caught.value)
    assert "betas[1] must be in [0, 1), got 1.5" in str(caught.value)


def test_a_missing_entry_names_the_group() -> None:
    first, second = plain((2,)), plain((3,))
    groups: list[dict[str, Any]] = [{"params": [first], "rate": 1.0}, {"params": [second]}]
    with pytest.raises(UnknownNameError) as caught:
        Optimizer(groups, OPEN)
    for part in ("param group 1", "no value for 'rate'", "rule 'open' needs rate"):
        assert part in str(caught.value)


def test_a_rejected_group_leaves_no_trace() -> None:
    params = parameters([(2,)])
    optimizer = Optimizer(params, ADAMW)
    steps(optimizer, params, 2)
    before = copy.deepcopy(optimizer.state_dict())
    for group in (
        {"params": [plain((3,), dtype=torch.float8_e5m2)]},
        {"params": [plain((3,))], "lr": -1.0},
        {"params": [plain((3,), device="meta")]},
    ):
        with pytest.raises(ClosedFormError, match="param group 1"):
            optimizer.add_param_group(group)
        assert len(optimizer.param_groups) == len(optimizer._group_sources) == 1
        assert list(optimizer.state) == params
    assert str(optimizer.state_dict()) == str(before)
    steps(optimizer, params, 1)


def test_a_sparse_gradient_stops_the_step_before_any_parameter() -> None:
    first, second = parameters([(2,), (3, 2)])
    optimizer = cerebras.AdamW([{"params": [first]}, {"params": [second]}])
    first.grad = torch.ones(2)
    second.grad = torch.eye(3, 2).to_sparse()
    before, state = values([first, second]), copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ArgumentError) as caught:
        optimizer.step()
    for part in ("AdamW", "param group 1", "parameter 0", "[3, 2]", "sparse_coo", "sparse=False"):
        assert part in str(caught.value)
    for one, two in zip(before, values([first, second]), strict=True):
        assert torch.equal(one, two)
    assert str(state) == str(optimizer.state_dict())


def saved(**changes: Any) -> dict[str, Any]:
    """A state dict of AdamW for parameters of shapes (2,) and (3,), with changes to the second."""
    params = parameters([(2,), (3,)])
    optimizer = Optimizer(params, ADAMW)
    steps(optimizer, params, 2)
    state = copy.deepcopy(optimizer.state_dict())
    for name, value in changes.items():
        if value is None:
            del state["state"][1][name]
        else:
            state["state"][1][name] = value
    return state


FOREIGN: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"exp_avg": None}, ("parameter 1", "[3]", "'exp_avg' is missing")),
    ({"exp_avg_sq": torch.zeros(4)}, ("'exp_avg_sq' must have shape [3], got [4]",)),
    ({"momentum_buffer": torch.zeros(3)}, ("unknown state 'momentum_buffer'",)),
    ({"step": None}, ("'step' is missing", "depends on the number of steps")),
    ({"step": torch.zeros(3)}, ("'step' must be one number",)),
]


@pytest.mark.parametrize(("changes", "parts"), FOREIGN)
def test_a_foreign_state_is_rejected(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    params = parameters([(2,), (3,)], seed=8)
    optimizer = Optimizer(params, ADAMW)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(StateError) as caught:
        optimizer.load_state_dict(saved(**changes))
    for part in ("Optimizer, param group 0, parameter 1", *parts):
        assert part in str(caught.value)
    assert str(optimizer.state_dict()) == str(before)
    steps(optimizer, params, 1)


def test_groups_of_a_foreign_state_are_rejected() -> None:
    params = parameters([(2,), (3,)])
    optimizer = Optimizer(params, ADAMW)
    good = saved()
    (group,) = good["param_groups"]
    lacking = {key: value for key, value in group.items() if key != "eps"}
    for state, said in (
        ({**good, "param_groups": [group, group]}, "2 param groups, the optimizer has 1"),
        (
            {**good, "param_groups": [{**group, "params": [0]}]},
            "1 parameters, the optimizer's group",
        ),
        ({**good, "param_groups": [lacking]}, "the saved group has no 'eps'"),
        ({**good, "param_groups": [{**group, "lr": -1}]}, "lr must be >= 0, got -1"),
        ({"model": 1}, "'state' and 'param_groups', got"),
    ):
        with pytest.raises(ClosedFormError, match=said):
            optimizer.load_state_dict(state)
    theirs = torch.optim.SGD(parameters([(2,), (3,)]), momentum=0.9)
    with pytest.raises(StateError, match="no 'beta1'"):
        optimizer.load_state_dict(theirs.state_dict())


def test_backends_are_checked() -> None:
    with pytest.raises(ArgumentError, match="eager, compile, got 'onnxruntime'") as caught:
        Optimizer(parameters(), ADAMW, backend="onnxruntime")
    assert "OptimizerSession steps in onnxruntime" in str(caught.value)
    with pytest.raises(ArgumentError, match="did you mean 'compile'"):
        Optimizer(parameters(), ADAMW, backend="compiled")
    with pytest.raises(ArgumentError, match="must be an UpdateRule, got Schedule"):
        Optimizer(parameters(), cf.schedules.constant(1))  # type: ignore[arg-type]


def test_arguments_of_a_class_are_its_own() -> None:
    with pytest.raises(ArgumentError, match="unknown argument 'wd'"):
        cerebras.AdamW(parameters(), wd=0.1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="'lr' is given twice"):
        cerebras.AdamW(parameters(), 0.1, lr=0.2)  # type: ignore[misc]
    with pytest.raises(ArgumentError, match="at most 7 arguments, got 8"):
        cerebras.SGD(parameters(), 0.1, 0, 0, 0, False, False, 1)  # type: ignore[call-arg,arg-type]
    with pytest.raises(ArgumentError, match="missing argument 'lr'"):
        cerebras.SGD(parameters())  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="did you mean 'AdamW'"):
        optim.AdamWW  # type: ignore[attr-defined]  # noqa: B018
    assert "AdamW" in dir(optim)


def test_a_tensor_where_the_rule_needs_a_number() -> None:
    with pytest.raises(DefinitionError, match="'lr' must be a number, got a tensor") as caught:
        cerebras.Rprop(parameters(), lr=torch.tensor(0.1))
    assert "param group 0" in str(caught.value)


def test_steps_are_counted_only_on_request() -> None:
    class Bare(cerebras.Optimizer):
        def preinitialize(self) -> None:
            pass

        def step(self, closure: Any = None) -> Any:
            pass

        def state_names_to_sparsify(self) -> list[str]:
            return []

    (param,) = parameters([(2,)])
    with pytest.raises(ArgumentError, match=r"does not count steps.*enable_global_step=True"):
        Bare([param], {}).increment_global_step(param)


def test_a_shape_without_a_rule_is_named_with_its_parameter() -> None:
    matrix, vector = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(7))
    optimizer = Optimizer([("m", matrix)], cf.optimizers.muon())
    steps(optimizer, [matrix], 1)
    with pytest.raises(DefinitionError) as caught:
        optimizer.add_param_group({"params": [("kernel", matrix.detach().clone()), ("b", vector)]})
    assert "the rule is only for shapes with shape.rank >= 2" in str(caught.value)
    assert "Optimizer, param group 1, parameter 'b' of shape [7]: rule 'muon'" in str(caught.value)
    assert len(optimizer.param_groups) == len(optimizer.state) == 1


def test_foreach_and_fused_together_are_rejected_as_in_torch() -> None:
    with pytest.raises(ArgumentError, match=r"foreach and fused cannot both be True"):
        optim.AdamW([plain((2,))], foreach=True, fused=True)
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        torch.optim.AdamW([plain((2,))], foreach=True, fused=True)

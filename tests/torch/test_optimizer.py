"""Optimizer: what torch's own optimizers do, with states that the first step makes."""

import copy
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import sympy as sp
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode

import closedform as cf
from closedform.language import GRAD, PARAM, State, UpdateRule, hyper, state
from closedform.torch import Optimizer, ParamScheduler, cerebras, optim
from closedform.torch.engine.specialize import specializer
from tests.torch.training import (
    COMPILING,
    SHAPES,
    largest_difference,
    parameters,
    steps,
    values,
)

ADAMW = cf.optimizers.adamw(lr=1e-2)


class NoReads(TorchDispatchMode):
    """Fails where a value of a tensor is read back to the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a tensor was read"
        return func(*args, **(kwargs or {}))


def as_on_a_device(optimizer: Optimizer) -> None:
    """Steps parameters as on a device: on a CPU, the eager step reads numbers, which is free."""
    optimizer._flat_steps = dict  # type: ignore[method-assign]


@contextmanager
def no_new_state(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    def found() -> dict[int, dict[str, int]]:
        return {
            id(param): {name: id(value) for name, value in states.items()}
            for param, states in optimizer.state.items()
        }

    before = found()
    yield
    assert found() == before


# --- the mathematics ------------------------------------------------------------------------------

TORCH_CLASSES = [name for name in optim.OPTIMIZERS if name not in ("Muon", "Adafactor")]


@pytest.mark.sample(every=2)
@pytest.mark.parametrize("name", TORCH_CLASSES)
def test_a_class_trains_as_torchs_own(name: str) -> None:
    ours, theirs = parameters(), parameters()
    mine = getattr(optim, name)(ours)
    other = getattr(torch.optim, name)(theirs)
    steps(mine, ours, 20)
    steps(other, theirs, 20)
    # float32 parameters of about 1: 20 steps, each with some roundings of 6e-8.
    assert largest_difference(ours, theirs) <= 20 * 4 * 6e-8


def test_every_dtype_trains_in_its_own() -> None:
    for dtype, bound in ((torch.float64, 1e-13), (torch.bfloat16, 0.03)):
        ours, theirs = parameters(dtype=dtype), parameters(dtype=torch.float64)
        steps(Optimizer(ours, ADAMW), ours, 10)
        steps(torch.optim.AdamW(theirs, lr=1e-2), theirs, 10)
        assert ours[0].dtype == dtype
        # bfloat16 has 8 bits: an ulp of 2 is 0.016, rounded once a step.
        assert largest_difference([p.double() for p in ours], theirs) <= bound
    low = parameters([(3,)], dtype=torch.bfloat16)
    optimizer = Optimizer(low, ADAMW)
    steps(optimizer, low, 1)
    assert optimizer.state[low[0]]["exp_avg"].dtype == torch.float32


def test_strided_parameters_are_written_in_their_own_memory() -> None:
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    param = nn.Parameter(base.clone().t())
    param.data = base.clone().t()
    address = param.data_ptr()
    plain = nn.Parameter(base.t().contiguous())
    steps(Optimizer([param], ADAMW), [param], 3)
    steps(Optimizer([plain], ADAMW), [plain], 3)
    assert not param.is_contiguous()
    assert param.data_ptr() == address
    torch.testing.assert_close(param, plain, rtol=1e-6, atol=1e-6)  # one ulp a step


# --- the step ---------------------------------------------------------------------------------


def test_the_first_step_makes_the_states_and_none_reads_a_tensor() -> None:
    params = parameters()
    optimizer = Optimizer(params, ADAMW)
    as_on_a_device(optimizer)
    assert not optimizer.state
    with NoReads():  # type: ignore[no-untyped-call]
        steps(optimizer, params, 1)
    assert sorted(optimizer.state[params[0]]) == ["exp_avg", "exp_avg_sq", "step"]
    addresses = [param.data_ptr() for param in params]
    with no_new_state(optimizer), NoReads():  # type: ignore[no-untyped-call]
        steps(optimizer, params, 3)
    assert [param.data_ptr() for param in params] == addresses
    assert [int(states["step"]) for states in optimizer.state.values()] == [4] * 5
    assert {states["step"].dtype for states in optimizer.state.values()} == {torch.int64}


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned() -> None:
    (param,) = parameters([(3,)])
    optimizer = Optimizer([param], cf.optimizers.sgd(lr=0.5))

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (param**2).sum()
        loss.backward()
        return loss

    before = float((param.detach() ** 2).sum())
    assert float(optimizer.step(closure).detach()) == pytest.approx(before)
    assert float(param.detach().abs().max()) == 0  # p - 0.5 * 2p


def test_a_parameter_without_gradient_is_left_alone_with_its_step() -> None:
    first, second = parameters([(2,), (3,)])
    optimizer = Optimizer([first, second], ADAMW)
    before = second.detach().clone()
    first.grad = torch.ones(2)
    optimizer.step()
    torch.testing.assert_close(second.detach(), before, rtol=0, atol=0)
    assert list(optimizer.state) == [first]
    assert int(optimizer.state[first]["step"]) == 1
    assert list(optimizer.state_dict()["state"]) == [0]
    Optimizer(parameters([(2,)]), ADAMW).step()  # no gradient at all


def test_hooks_around_step_and_zero_grad() -> None:
    (param,) = parameters([(3,)])
    optimizer = cerebras.AdamW([param])
    seen: list[str] = []

    def has_grad() -> str:
        return "grad" if param.grad is not None and bool(param.grad.any()) else "none"

    optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    before = optimizer.register_zero_grad_pre_hook(lambda *_: seen.append(f"before {has_grad()}"))
    optimizer.register_zero_grad_post_hook(lambda *_: seen.append(f"after {has_grad()}"))
    param.grad = torch.ones(3)
    optimizer.step()
    optimizer.zero_grad()
    assert seen == ["pre", "post", "before grad", "after none"]
    before.remove()
    optimizer.register_zero_grad_pre_hook(lambda *_: ((), {"set_to_none": False}))
    param.grad = torch.ones(3)
    optimizer.zero_grad()
    assert torch.equal(param.grad, torch.zeros(3))
    assert seen[4:] == ["after none"]
    optimizer.register_zero_grad_pre_hook(lambda *_: "wrong")  # type: ignore[arg-type]
    with pytest.raises(cf.ClosedFormError, match=r"None or \(args, kwargs\), got 'wrong'"):
        optimizer.zero_grad()


# --- groups -------------------------------------------------------------------------------------


def test_groups_have_their_own_numbers_schedules_and_tags() -> None:
    first, second, third = parameters([(3,), (3,), (3,)], seed=3)
    second.data.copy_(first.data)
    third.data.copy_(first.data)
    rate = cf.schedules.linear(1, 0, 10)
    groups: list[dict[str, Any]] = [
        {"params": [first], "tags": {"b", "a"}},
        {"params": [second], "lr": 0.5},
        {"params": [third], "lr": rate},
    ]
    optimizer = Optimizer(groups, cf.optimizers.sgd(lr=0.1))
    start = first.detach().clone()
    for _ in range(2):
        for param in (first, second, third):
            param.grad = torch.ones(3)
        optimizer.step()
    assert optimizer.param_groups[0]["tags"] == ["a", "b"]
    assert "lr" not in optimizer.param_groups[2]
    for param, moved in ((first, 0.2), (second, 1.0), (third, 1.9)):
        torch.testing.assert_close(param.detach(), start - moved, rtol=0, atol=1e-6)  # 2 roundings


def test_a_group_added_in_mid_run_makes_its_states_in_its_first_step() -> None:
    first, second = parameters([(2,), (3,)])
    optimizer = Optimizer([first], ADAMW)
    steps(optimizer, [first], 2)
    optimizer.add_param_group({"params": [second], "lr": 0.5})
    assert list(optimizer.state) == [first]
    steps(optimizer, [first, second], 1)
    with no_new_state(optimizer):
        steps(optimizer, [first, second], 1)
    assert [int(optimizer.state[p]["step"]) for p in (first, second)] == [4, 2]


def test_schedulers_of_any_kind_drive_it_without_compiling_again() -> None:
    ours, theirs = parameters(), parameters()
    mine = Optimizer(ours, ADAMW)
    other = torch.optim.AdamW(theirs, lr=1e-2)
    kernels = [made.kernels for made in mine._group_sources[0].specializer.made]
    made = [dict(known) for known in kernels]
    first = torch.optim.lr_scheduler.ExponentialLR(mine, 0.9)
    second = torch.optim.lr_scheduler.ExponentialLR(other, 0.9)
    beta1 = ParamScheduler(mine, cf.schedules.linear(0.9, 0.5, 20), key="beta1")
    betas = ParamScheduler(other, (cf.schedules.linear(0.9, 0.5, 20), None), key="betas")
    steps(mine, ours, 20, after=lambda: (first.step(), beta1.step()))  # type: ignore[func-returns-value]
    steps(other, theirs, 20, after=lambda: (second.step(), betas.step()))  # type: ignore[func-returns-value]
    assert largest_difference(ours, theirs) <= 20 * 4 * 6e-8  # roundings, as above
    assert [made.kernels for made in mine._group_sources[0].specializer.made] == made


def test_a_number_that_changes_the_rule_makes_another_graph_once() -> None:
    specializer.cache_clear()
    ours, theirs = parameters(), parameters()
    mine = optim.SGD(ours, lr=0.1)
    other = torch.optim.SGD(theirs, lr=0.1)
    for optimizer, params in ((mine, ours), (other, theirs)):
        steps(optimizer, params, 2)
        optimizer.param_groups[0]["weight_decay"] = 0.5
        steps(optimizer, params, 2)
        optimizer.param_groups[0]["weight_decay"] = 0.25
        steps(optimizer, params, 2)
    assert len(mine._group_sources[0].specializer.made) == 2
    assert largest_difference(ours, theirs) <= 6 * 4 * 6e-8  # roundings, as above


def test_a_number_out_of_the_range_of_the_graph_has_one_of_its_own() -> None:
    ours, theirs = parameters([(3,)]), parameters([(3,)])
    mine, other = optim.ASGD(ours, lr=0.5), torch.optim.ASGD(theirs, lr=0.5)
    for optimizer, params in ((mine, ours), (other, theirs)):
        steps(optimizer, params, 3)
        optimizer.param_groups[0]["alpha"] = -0.25
        steps(optimizer, params, 3)
    assert largest_difference(ours, theirs) <= 6 * 4 * 6e-8  # roundings, as above


def test_a_tensor_rate_is_read_on_the_device() -> None:
    ours, theirs = parameters(), parameters()
    rate = torch.tensor(1e-2)
    mine = optim.AdamW(ours, lr=rate)
    as_on_a_device(mine)
    with NoReads():  # type: ignore[no-untyped-call]
        steps(mine, ours, 2)
        rate.fill_(0.5)
        steps(mine, ours, 2)
    other = torch.optim.AdamW(theirs, lr=1e-2)
    steps(other, theirs, 2)
    other.param_groups[0]["lr"] = 0.5
    steps(other, theirs, 2)
    assert largest_difference(ours, theirs) <= 1e-6  # the float32 of 0.01 is off by 2e-8 of it


@pytest.mark.parametrize("shape", [(1,), (1, 1, 1)])
def test_a_tensor_of_one_element_is_a_number(shape: tuple[int, ...]) -> None:
    ours, theirs = parameters(), parameters()
    rate, beta = torch.full(shape, 1e-2), torch.full(shape, 0.9)
    steps(optim.AdamW(ours, lr=rate, betas=(beta, 0.99)), ours, 3)  # type: ignore[arg-type]
    steps(torch.optim.AdamW(theirs, lr=1e-2, betas=(0.9, 0.99)), theirs, 3)
    assert [param.shape for param in ours] == [param.shape for param in theirs]
    assert largest_difference(ours, theirs) <= 1e-6  # the float32 of 0.01 is off by 2e-8 of it


def test_a_schedule_in_the_rule_is_driven_by_the_parameters_own_step() -> None:
    rate = cf.schedules.linear(0, 1e-2, 5).then(cf.schedules.cosine(1e-2, 0, 20))
    ours, theirs = parameters(), parameters()
    mine = Optimizer(ours, cf.optimizers.adamw(lr=rate))
    other = torch.optim.AdamW(theirs, lr=1e-2)
    scheduler = ParamScheduler(other, rate)
    steps(mine, ours, 25)
    steps(other, theirs, 25, after=scheduler.step)
    assert largest_difference(ours, theirs) <= 25 * 4 * 6e-8  # roundings, as above
    assert "lr" not in mine.param_groups[0]


# --- saving, loading, copying ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "state_dict"])
def test_a_copy_goes_on_as_the_original(how: str) -> None:
    params = parameters()
    optimizer = cerebras.AdamW(params, lr=1e-2, weight_decay=0.1)
    steps(optimizer, params, 5)
    if how == "state_dict":
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        others = [nn.Parameter(param.detach().clone()) for param in params]
        other: Any = cerebras.AdamW(others)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert other.param_groups[0]["weight_decay"] == 0.1
    else:
        other = copy.deepcopy(optimizer)
        if how == "pickle":
            other = pickle.loads(pickle.dumps(optimizer))
        others = other.param_groups[0]["params"]
    assert type(other) is cerebras.AdamW
    steps(optimizer, params, 5, seed=9)
    steps(other, others, 5, seed=9)
    assert all(torch.equal(a, b) for a, b in zip(values(params), values(others), strict=True))
    assert int(other.state[others[0]]["step"]) == 10


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", TORCH_CLASSES)
def test_states_go_to_torch_and_back(name: str) -> None:
    def twins() -> tuple[list[nn.Parameter], torch.optim.Optimizer, list[nn.Parameter], Any]:
        one, two = parameters(), parameters()
        theirs = getattr(torch.optim, name)(one, lr=0.05)
        return one, theirs, two, getattr(optim, name)(two, lr=0.05)

    one, theirs, two, ours = twins()
    steps(theirs, one, 4)
    for param, other in zip(two, one, strict=True):
        param.data.copy_(other.data)
    ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
    steps(theirs, one, 4, seed=5)
    steps(ours, two, 4, seed=5)
    bound = 8 * 4 * 6e-8  # roundings, as above
    assert largest_difference(one, two) <= bound

    one, theirs, two, ours = twins()
    steps(ours, two, 4)
    for param, other in zip(one, two, strict=True):
        param.data.copy_(other.data)
    theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
    steps(theirs, one, 4, seed=5)
    steps(ours, two, 4, seed=5)
    assert largest_difference(one, two) <= bound


def test_torchs_asgd_is_taken_over_with_the_rate_of_its_next_step() -> None:
    one, two = parameters(), parameters()
    theirs = torch.optim.ASGD(one, lr=0.05)
    steps(theirs, one, 4)
    for param, other in zip(two, one, strict=True):
        param.data.copy_(other.data)
    ours = optim.ASGD(two)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state[two[0]]) == list(theirs.state[one[0]])
    steps(theirs, one, 4, seed=5)
    steps(ours, two, 4, seed=5)
    assert largest_difference(one, two) <= 8 * 4 * 6e-8  # roundings, as above


def test_a_step_beyond_float32_still_counts() -> None:
    params = parameters([(2,)])
    optimizer = Optimizer(params, ADAMW)
    steps(optimizer, params, 1)
    assert optimizer.state_dict()["state"][0]["step"].dtype == torch.float32
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = torch.tensor(2**24)
    optimizer.load_state_dict(saved)
    for count in (2**24, 2**24 + 1, 2**24 + 2):
        step = optimizer.state_dict()["state"][0]["step"]
        assert (step.dtype, step.item()) == (torch.float64, count)
        optimizer.load_state_dict(optimizer.state_dict())
        assert int(optimizer.state[params[0]]["step"]) == count
        steps(optimizer, params, 1)
    theirs = torch.optim.AdamW(params, lr=1e-2, foreach=True)
    group = {**theirs.state_dict()["param_groups"][0], "params": [0]}
    theirs.load_state_dict({**optimizer.state_dict(), "param_groups": [group]})
    steps(theirs, params, 1)
    assert theirs.state[params[0]]["step"].item() == 2**24 + 4


def test_loading_hooks_run_before_the_check() -> None:
    params = parameters([(2,)])
    optimizer = Optimizer(params, ADAMW)
    steps(optimizer, params, 1)
    saved = optimizer.state_dict()
    renamed = {"mean" if name == "exp_avg" else name: v for name, v in saved["state"][0].items()}

    def rename(_: Any, given: dict[str, Any]) -> dict[str, Any]:
        back = {"exp_avg" if name == "mean" else name: v for name, v in given["state"][0].items()}
        return {**given, "state": {0: back}}

    optimizer.register_load_state_dict_pre_hook(rename)
    seen: list[str] = []
    optimizer.register_load_state_dict_post_hook(lambda _: seen.append("post"))
    optimizer.register_state_dict_pre_hook(lambda _: seen.append("saved"))
    optimizer.load_state_dict({**saved, "state": {0: renamed}})
    optimizer.state_dict()
    assert seen == ["post", "saved"]


# --- the API of cerebras -----------------------------------------------------------------------


def test_states_are_visited_counted_and_named() -> None:
    params = parameters([(2,), (3,)])
    optimizer = cerebras.NAdam(params)
    assert optimizer.state_names_to_sparsify() == ["exp_avg", "exp_avg_sq"]
    optimizer.visit_state(lambda value: value + 1)
    states = optimizer.state[params[1]]
    assert [float(states[name].reshape(-1)[0]) for name in states] == [1, 2, 1, 1]
    optimizer.visit_state(lambda value: None)
    assert float(states["mu_product"]) == 2
    counted = optimizer.increment_global_step(params[0])
    assert (counted.item(), counted.dtype) == (2, torch.float32)
    assert optimizer.apply(lambda given: given is optimizer)
    assert cerebras.SGD(params, lr=0.1).state_names_to_sparsify() == []


class SignOfMean(cerebras.Optimizer):
    """As the documents of the reference system write one, with torch operations."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr}, enable_global_step=True)

    def preinitialize(self) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["mean"] = torch.zeros_like(param)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for param in group["params"]:
                self.increment_global_step(param)
                self.state[param]["mean"].lerp_(param.grad, 0.5)
                param.sub_(group["lr"] * self.state[param]["mean"].sign())

    def state_names_to_sparsify(self) -> list[str]:
        return ["mean"]


def test_an_optimizer_of_your_own_by_torch_or_as_a_rule() -> None:
    mean = (state("mean") + GRAD) / 2
    rule = UpdateRule(
        "sign_of_mean",
        PARAM - hyper("lr") * sp.Piecewise((1, mean > 0), (-1, mean < 0), (0, True)),
        {"mean": State(mean)},
        {"lr": 0.1},
    )
    one, two = parameters(), parameters()
    first, second = SignOfMean(one), Optimizer(two, rule)
    steps(first, one, 5)
    steps(second, two, 5)
    assert set(first.state[one[0]]) == set(second.state[two[0]]) == {"mean", "step"}
    assert largest_difference(one, two) <= 5 * 6e-8 * 4  # roundings of numbers of up to 4
    assert float(first.state[one[0]]["step"]) == 5
    restored = pickle.loads(pickle.dumps(first))
    restored.zero_grad()


# --- torch's tools --------------------------------------------------------------------------------


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.filterwarnings("ignore:.*record_function.*")
def test_a_compiled_step_of_ours_is_compiled_once_and_right() -> None:
    schedule = cf.schedules.linear(0, 1e-2, 20).then(cf.schedules.cosine(1e-2, 0, 80))
    ours, theirs = parameters([(3,), (2, 2)]), parameters([(3,), (2, 2)])
    mine = optim.AdamW(ours, lr=torch.tensor(1e-2))
    other = optim.AdamW(theirs, lr=torch.tensor(1e-2))
    driving = [ParamScheduler(optimizer, schedule) for optimizer in (mine, other)]
    torch._dynamo.reset()
    compiled = torch.compile(mine.step, backend="aot_eager", fullgraph=True)
    generator = torch.Generator().manual_seed(0)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(100):
            for param, beside in zip(ours, theirs, strict=True):
                param.grad = torch.randn(param.shape, generator=generator)
                beside.grad = param.grad.clone()
            compiled()
            other.step()
            for scheduler in driving:
                scheduler.step()
    assert all(torch.equal(a, b) for a, b in zip(values(ours), values(theirs), strict=True))


@pytest.mark.filterwarnings(COMPILING)
@pytest.mark.filterwarnings("ignore:.*record_function.*")
def test_a_step_that_ran_outside_may_be_traced_afterwards() -> None:
    ours, theirs = parameters([(3,), (2, 2)]), parameters([(3,), (2, 2)])
    mine, other = optim.AdamW(ours, lr=0.1), optim.AdamW(theirs, lr=0.1)
    torch._dynamo.reset()
    traced = torch.compile(mine.step, backend="eager")
    for run in (mine.step, traced, traced, mine.step, traced):
        for param, beside in zip(ours, theirs, strict=True):
            param.grad, beside.grad = param.detach().clone(), beside.detach().clone()
        run()
        other.step()
    for one, wanted in zip(values(ours), values(theirs), strict=True):
        torch.testing.assert_close(one, wanted, rtol=1e-6, atol=0)  # the vector has an addcmul


@pytest.mark.parametrize("is_profiled", [False, True])
def test_hooks_run_with_a_profiler_and_without(is_profiled: bool) -> None:
    params = parameters([(3,)])
    optimizer = optim.SGD(params, lr=0.1)
    seen: list[str] = []
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append("before")),
        optimizer.register_step_post_hook(lambda *_: seen.append("after")),
        register_optimizer_step_post_hook(lambda *_: seen.append("any")),
    ]
    with torch.profiler.profile() if is_profiled else nullcontext() as profile:
        steps(optimizer, params, 1)
        for handle in handles:
            handle.remove()
        steps(optimizer, params, 1)
    assert seen == ["before", "after", "any"]
    if profile is not None:
        records = [event.name for event in profile.events()]
        assert records.count("Optimizer.step#SGD.step") == 2


def test_the_functional_step_is_exported() -> None:
    params = parameters([(3,)])
    optimizer = Optimizer(params, ADAMW)
    steps(optimizer, params, 1)
    ((kernel, hypers, stepped),) = optimizer._work_of(0)
    program, reads, writes, _ = kernel.bind(hypers, list(map(optimizer._tensors, stepped)))
    assert len(writes) == 4
    exported = torch.export.export(program, tuple(reads)).module()
    for one, two in zip(exported(*reads), program(*reads), strict=True):
        assert torch.equal(one, two)


def test_autocast_leaves_the_step_alone() -> None:
    ours, theirs = parameters(), parameters()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        steps(Optimizer(ours, ADAMW), ours, 3)
    steps(Optimizer(theirs, ADAMW), theirs, 3)
    assert all(torch.equal(a, b) for a, b in zip(values(ours), values(theirs), strict=True))


def test_a_step_skipped_by_the_scaler_leaves_everything() -> None:
    params = parameters()
    optimizer = Optimizer(params, ADAMW)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    steps(optimizer, params, 2)
    before = copy.deepcopy(optimizer.state_dict()), values(params)
    loss = sum(((param * torch.inf).sum() for param in params if param.numel()), torch.zeros(()))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 4
    after = optimizer.state_dict(), values(params)
    for one, two in zip(before[1], after[1], strict=True):
        assert torch.equal(one, two)
    for index, states in before[0]["state"].items():
        for name, value in states.items():
            assert torch.equal(value, after[0]["state"][index][name])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_step_is_captured_in_a_cuda_graph() -> None:
    params = [nn.Parameter(param.detach().cuda()) for param in parameters()]
    others = [nn.Parameter(param.detach().clone()) for param in params]
    mine = optim.AdamW(params, lr=torch.tensor(1e-2, device="cuda"))
    beside = optim.AdamW(others, lr=1e-2)
    for param, other in zip(params, others, strict=True):
        param.grad, other.grad = torch.ones_like(param), torch.ones_like(other)
    mine.step()  # makes the states
    beside.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mine.step()
    for _ in range(5):
        graph.replay()
        beside.step()
    assert largest_difference(params, others) <= 1e-6  # the float32 of 0.01


def test_the_shapes_of_the_issue_are_the_ones_tested() -> None:
    assert SHAPES == ((), (0,), (5,), (3, 4), (2, 3, 4))


def test_a_rate_beyond_the_bound_of_the_graph_is_not_clamped() -> None:
    specializer.cache_clear()
    params = parameters([(2,)], dtype=torch.float64)
    optimizer = optim.Adam(params, lr=0.5)
    steps(optimizer, params, 1)
    assert len(optimizer._group_sources[0].specializer.made) == 1
    nearly_one = 1 - 2.0**-45  # above the largest number that is an input of the first graph
    optimizer.param_groups[0]["betas"] = (0.9, nearly_one)
    before = optimizer.state[params[0]]["exp_avg_sq"].clone()
    steps(optimizer, params, 1, seed=5)
    assert len(optimizer._group_sources[0].specializer.made) == 2
    grad = params[0].grad
    assert grad is not None
    wanted = nearly_one * before + (1 - nearly_one) * grad**2
    # float64: clamped to 1 - 2**-40, the change of the state would be 32 times as large.
    torch.testing.assert_close(
        optimizer.state[params[0]]["exp_avg_sq"] - before, wanted - before, rtol=0.1, atol=0
    )


def test_a_loaded_state_is_a_copy_in_the_dtype_of_the_state() -> None:
    params = parameters([(2,)])
    optimizer = Optimizer(params, ADAMW)
    steps(optimizer, params, 1)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["exp_avg"] = torch.ones(2, dtype=torch.float64)
    optimizer.load_state_dict(saved)
    moment = optimizer.state[params[0]]["exp_avg"]
    assert moment.dtype == torch.float32
    given = saved["state"][0]["exp_avg_sq"]
    given.fill_(7)
    assert float(optimizer.state[params[0]]["exp_avg_sq"].max()) < 7

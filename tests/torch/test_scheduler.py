"""ParamScheduler: what torch's schedulers do, and what a closed form adds."""

import copy
import io
import math
import pickle
import subprocess
import sys
import time
import timeit
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
import torch
from torch.optim.lr_scheduler import LRScheduler, SequentialLR, StepLR

import closedform as cf
from closedform import t
from closedform.errors import (
    ArgumentError,
    ClosedFormError,
    DefinitionError,
    DomainError,
    StateError,
    UnknownNameError,
)
from closedform.torch import ParamScheduler, lr_scheduler
from closedform.torch.schedule_values import BLOCK
from tests.torch.training import COMPILING, parameters, steps, two_groups

WARMUP_COSINE = cf.schedules.linear(0, 3e-4, 200).then(cf.schedules.cosine(3e-4, 3e-5, 2800))
FALLING = cf.schedules.linear(0.1, 0, 10)


def advance(scheduler: ParamScheduler, count: int) -> None:
    for _ in range(count):
        scheduler.optimizer.step()
        scheduler.step()


def test_every_step_has_the_value_of_the_schedule() -> None:
    scheduler = ParamScheduler(two_groups(), WARMUP_COSINE)
    assert isinstance(scheduler, LRScheduler)
    for step in range(3 * BLOCK):
        assert scheduler.last_epoch == step
        assert scheduler.get_last_lr() == [WARMUP_COSINE(step)] * 2
        assert [group["lr"] for group in scheduler.optimizer.param_groups] == [
            WARMUP_COSINE(step)
        ] * 2
        advance(scheduler, 1)


@pytest.mark.parametrize("step", [BLOCK - 1, BLOCK, 7 * BLOCK + 5, 2**31, 2**50])
def test_any_step_can_be_jumped_to(step: int) -> None:
    scheduler = ParamScheduler(two_groups(), cf.schedules.inverse_square_root(1, 10))
    scheduler.step(step)
    assert scheduler.last_epoch == step
    assert scheduler.get_last_lr()[0] == scheduler.schedules[0](step)


def test_the_first_value_is_set_by_the_constructor_and_the_base_is_saved() -> None:
    optimizer = two_groups()
    scheduler = ParamScheduler(optimizer, FALLING.scale(4))
    assert [group["lr"] for group in optimizer.param_groups] == [0.4, 0.4]
    assert [group["initial_lr"] for group in optimizer.param_groups] == [0.1, 0.2]
    assert scheduler.base_lrs == [0.1, 0.2]
    assert scheduler.get_lr() == scheduler._get_closed_form_lr() == [0.4, 0.4]


def test_last_epoch_resumes_one_step_later_as_torch_does() -> None:
    torch_optimizer = two_groups()
    for group in torch_optimizer.param_groups:
        group["initial_lr"] = 0.1
    theirs = StepLR(torch_optimizer, 1, last_epoch=4)
    ours = ParamScheduler(two_groups(), FALLING, last_epoch=4)
    assert theirs.last_epoch == ours.last_epoch == 5
    assert ours.get_last_lr() == [0.05, 0.05]


def test_one_schedule_for_each_group_and_none_for_one_left_as_it_is() -> None:
    optimizer = two_groups()
    scheduler = ParamScheduler(optimizer, [None, cf.schedules.constant(7)])
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 7.0]
    assert scheduler.get_last_value() == [None, 7.0]
    assert scheduler.get_last_lr() == [0.1, 7.0]


@pytest.mark.parametrize(
    ("tags", "driven"), [("body", [0]), (["body"], [0]), ([None], [1]), (["body", None], [0, 1])]
)
def test_tags_choose_the_groups(tags: Any, driven: list[int]) -> None:
    scheduler = ParamScheduler(two_groups(), cf.schedules.constant(7), tags=tags)
    found = [index for index, value in enumerate(scheduler.get_last_value()) if value is not None]
    assert found == driven


def test_several_schedulers_drive_several_keys() -> None:
    optimizer = torch.optim.AdamW(parameters([(2,)]), lr=0.1)
    rate = ParamScheduler(optimizer, FALLING)
    decay = ParamScheduler(optimizer, cf.schedules.linear(0, 1, 10), key="weight_decay")
    betas = ParamScheduler(optimizer, (cf.schedules.linear(0.5, 0.9, 10), 0.99), key="betas")
    partial = ParamScheduler(optimizer, (None, cf.schedules.constant(0.9)), key="betas")
    for scheduler in (rate, decay, betas):
        optimizer.step()
        scheduler.step()
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (0.09, 0.1)
    assert group["betas"] == pytest.approx((0.54, 0.99), rel=1e-15)  # one rounding of each
    assert betas.get_last_value("betas") == [group["betas"]]
    assert partial.base_lrs == [(0.9, 0.999)]
    assert group["initial_betas"] == (0.9, 0.999)


def test_a_tensor_is_filled_in_place_and_shares_no_memory() -> None:
    rate = torch.tensor(0.1)
    first, second = torch.tensor(0.9), torch.tensor(0.999)
    optimizer = torch.optim.AdamW(
        parameters([(2,)]), lr=rate, betas=(first, second), foreach=False, capturable=False
    )
    scheduler = ParamScheduler(optimizer, FALLING.scale(4))
    betas = ParamScheduler(optimizer, (cf.schedules.constant(0.5), None), key="betas")
    (group,) = optimizer.param_groups
    assert group["lr"] is rate
    assert group["betas"][0] is first
    assert (rate.item(), first.item()) == (pytest.approx(0.4), 0.5)  # float32 of 0.4
    assert group["initial_lr"].item() == pytest.approx(0.1)
    (last,) = scheduler.get_last_lr()
    last.fill_(9)
    scheduler.base_lrs[0].fill_(9)
    assert rate.item() == pytest.approx(0.4)
    assert group["initial_lr"].item() == pytest.approx(0.1)
    assert betas.get_last_value()[0][0].item() == 0.5
    advance(scheduler, 3)
    assert group["lr"] is rate
    assert rate.item() == pytest.approx(0.28)


@pytest.mark.filterwarnings(COMPILING)
def test_a_compiled_step_with_a_tensor_rate_is_compiled_once() -> None:
    params = parameters([(3,), (2, 2)])
    optimizer = torch.optim.AdamW(params, lr=torch.tensor(0.1), foreach=False)
    scheduler = ParamScheduler(optimizer, WARMUP_COSINE)
    reference = parameters([(3,), (2, 2)])
    torch._dynamo.reset()
    compiled = torch.compile(optimizer.step, backend="eager")
    eager = torch.optim.AdamW(reference, lr=torch.tensor(0.1), foreach=False)
    beside = ParamScheduler(eager, WARMUP_COSINE)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(1000):
            for param, other in zip(params, reference, strict=True):
                param.grad, other.grad = torch.ones_like(param), torch.ones_like(other)
            compiled()
            scheduler.step()
            eager.step()
            beside.step()
    for param, other in zip(params, reference, strict=True):
        # Compiled, torch takes its capturable form, whose bias corrections are float32: 1e-7 each,
        # over 1,000 steps.
        torch.testing.assert_close(param, other, rtol=0, atol=1e-5)


def test_state_is_plain_and_loads_with_weights_only() -> None:
    scheduler = ParamScheduler(two_groups(), WARMUP_COSINE)
    advance(scheduler, 42)
    file = io.BytesIO()
    torch.save(scheduler.state_dict(), file)
    file.seek(0)
    resumed = ParamScheduler(two_groups(), WARMUP_COSINE)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed.last_epoch == 42
    assert [group["lr"] for group in resumed.optimizer.param_groups] == [WARMUP_COSINE(42)] * 2
    advance(resumed, 1)
    assert resumed.get_last_lr() == [WARMUP_COSINE(43)] * 2


def test_another_schedule_is_refused_with_both_formulas_or_continued() -> None:
    saved = ParamScheduler(two_groups(), cf.schedules.linear(0.5, 0, 20))
    advance(saved, 4)
    ours = ParamScheduler(two_groups(), FALLING)
    with pytest.raises(StateError) as caught:
        ours.load_state_dict(saved.state_dict())
    for part in ("another schedule", "1/2 - t/40", "1/10 - t/100", 'on_mismatch="continue"'):
        assert part in str(caught.value)
    assert ours.last_epoch == 0
    ours.load_state_dict(saved.state_dict(), on_mismatch="continue")
    assert ours.last_epoch == 4
    assert ours.get_last_lr() == [FALLING(4)] * 2


def test_torchs_own_state_is_continued_on_request() -> None:
    theirs = StepLR(two_groups(), 3)
    theirs.optimizer.step()
    theirs.step()
    ours = ParamScheduler(two_groups(), FALLING)
    with pytest.raises(StateError, match="no 'key'"):
        ours.load_state_dict(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict(), on_mismatch="continue")
    assert ours.last_epoch == 1


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "import torch, closedform as cf\n"
        "from tests.torch.test_scheduler import DIGESTED\n"
        "from tests.torch.training import two_groups\n"
        "from closedform.torch import ParamScheduler\n"
        "print(ParamScheduler(two_groups(), DIGESTED).state_dict()['digest'])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == ParamScheduler(two_groups(), DIGESTED).state_dict()["digest"]


DIGESTED = cf.Schedule(
    sp.Piecewise(
        (t / 100, sp.And(t < 50, sp.Or(t > 3, t < 2))),
        (sp.cos(t) ** 2 + sp.exp(-t / 7) + sp.Max(0, 5 - t), True),
    )
)


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copies_go_their_own_way(how: str) -> None:
    scheduler = ParamScheduler(two_groups(), WARMUP_COSINE)
    advance(scheduler, 3)
    other: ParamScheduler = (
        pickle.loads(pickle.dumps(scheduler)) if how == "pickle" else copy.deepcopy(scheduler)
    )
    advance(other, 2)
    assert (scheduler.last_epoch, other.last_epoch) == (3, 5)
    assert other.optimizer is not scheduler.optimizer
    assert other.get_last_lr() == [WARMUP_COSINE(5)] * 2
    assert other.optimizer.param_groups[0]["lr"] == WARMUP_COSINE(5)
    assert other.state_dict()["digest"] == scheduler.state_dict()["digest"]


def test_a_wrong_order_warns_once_as_torch_does() -> None:
    scheduler = ParamScheduler(two_groups(), FALLING)
    with pytest.warns(UserWarning, match=r"called before the first optimizer\.step"):
        scheduler.step()
    scheduler.step()  # only the first time


def test_the_order_is_seen_with_torchs_scheduler_beside() -> None:
    optimizer = two_groups()
    theirs = StepLR(optimizer, 3)
    ours = ParamScheduler(optimizer, FALLING, key="momentum")
    optimizer.step()
    theirs.step()
    ours.step()
    optimizer = two_groups()
    ours = ParamScheduler(optimizer, FALLING, key="momentum")
    theirs = StepLR(optimizer, 3)
    optimizer.step()
    ours.step()
    theirs.step()


def test_torchs_sequential_takes_ours() -> None:
    optimizer = two_groups()
    members: list[LRScheduler] = [
        ParamScheduler(optimizer, cf.schedules.linear(0, 1, 4)),
        ParamScheduler(optimizer, cf.schedules.linear(1, 0, 4)),
    ]
    row = SequentialLR(optimizer, members, [4])
    seen = []
    for _ in range(9):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        row.step()
    assert seen == [0, 0.25, 0.5, 0.75, 1, 0.75, 0.5, 0.25, 0]


def test_a_schedule_with_a_last_step() -> None:
    optimizer = two_groups()
    scheduler = ParamScheduler(optimizer, cf.Schedule(1 - t / 10, domain=(t <= 10,)))
    advance(scheduler, 10)
    assert optimizer.param_groups[0]["lr"] == 0
    with pytest.raises(DomainError, match="its last step is 10"):
        scheduler.step()


def test_step_costs_no_more_than_the_cheapest_of_torchs() -> None:
    schedulers = torch.optim.lr_scheduler
    entries: dict[str, LRScheduler] = {
        "ours": ParamScheduler(two_groups(), WARMUP_COSINE),
        "StepLR": schedulers.StepLR(two_groups(), 10**9),
        "ExponentialLR": schedulers.ExponentialLR(two_groups(), 0.99999),
        "LambdaLR": schedulers.LambdaLR(two_groups(), lambda step: 1.0),
        "CosineAnnealingLR": schedulers.CosineAnnealingLR(two_groups(), 10**6),
    }
    for scheduler in entries.values():
        scheduler.optimizer.step()
    # In turn and in short runs, so that whatever else the machine does falls on all of them; the
    # shortest run of each is that without a disturbance.
    cost = dict.fromkeys(entries, math.inf)
    for _ in range(100):
        for name, scheduler in entries.items():
            seconds = timeit.timeit(scheduler.step, number=100, timer=time.process_time)
            cost[name] = min(cost[name], seconds)
    ours = cost.pop("ours")
    # Measured 0.7 of the cheapest, StepLR or ExponentialLR.
    assert ours <= min(cost.values()), {name: ours / value for name, value in cost.items()}


BAD: list[tuple[dict[str, Any], type[ClosedFormError], tuple[str, ...]]] = [
    ({"optimizer": "sgd"}, ArgumentError, ("torch optimizer", "str", "'lr'")),
    ({"schedule": 0.1}, DefinitionError, ("must be a Schedule", "0.1")),
    ({"schedule": (0.1, "x")}, DefinitionError, ("must be a number", "'x'")),
    ({"schedule": (None, None)}, DefinitionError, ("must be a Schedule", "(None, None)")),
    ({"schedule": [FALLING]}, DefinitionError, ("a list of 2 schedules", "got 1")),
    ({"schedule": [FALLING, 3]}, DefinitionError, ("param group 1", "got 3")),
    ({"schedule": cf.Schedule(cf.expr.hyper("peak") * t)}, DefinitionError, ("no value for peak",)),
    ({"key": "weigth_decay"}, UnknownNameError, ("param group 0", "did you mean 'weight_decay'")),
    (
        {"key": "nesterov"},
        DefinitionError,
        ("param group 0", "'nesterov'", "only numbers", "False"),
    ),
    ({"tags": "head"}, DefinitionError, ("['head'] match no param group", "['None', 'body']")),
    ({"tags": []}, DefinitionError, ("at least one tag",)),
    ({"last_epoch": -2}, DefinitionError, ("last_epoch", ">= -1", "-2")),
    ({"last_epoch": 1.0}, DefinitionError, ("last_epoch", "1.0")),
    ({"schedule": (FALLING, 1)}, DefinitionError, ("tuple of 2", "0.1")),
]


@pytest.mark.parametrize(("changes", "kind", "parts"), BAD)
def test_bad_arguments_are_named_and_nothing_is_written(
    changes: dict[str, Any], kind: type[ClosedFormError], parts: tuple[str, ...]
) -> None:
    optimizer = two_groups()
    before = copy.deepcopy([{**group, "params": 0} for group in optimizer.param_groups])
    with pytest.raises(kind) as caught:
        ParamScheduler(**{"optimizer": optimizer, "schedule": FALLING, **changes})
    for part in parts:
        assert part in str(caught.value)
    assert [{**group, "params": 0} for group in optimizer.param_groups] == before


def test_tensors_and_tuples_that_do_not_fit_are_named() -> None:
    optimizer = two_groups()
    optimizer.param_groups[1]["lr"] = torch.tensor([0.1, 0.2])
    with pytest.raises(DefinitionError, match=r"one floating-point number, got torch.float32 of"):
        ParamScheduler(optimizer, FALLING)
    optimizer = torch.optim.AdamW(parameters([(2,)]))
    with pytest.raises(DefinitionError, match="one schedule cannot drive 2 values"):
        ParamScheduler(optimizer, FALLING, key="betas")
    with pytest.raises(DefinitionError, match="tuple of 3 schedules"):
        ParamScheduler(optimizer, (FALLING, 1, None), key="betas")


def test_a_later_group_and_foreign_states_are_refused() -> None:
    scheduler = ParamScheduler(two_groups(), FALLING)
    scheduler.optimizer.step()
    scheduler.optimizer.add_param_group({"params": parameters([(4,)])})
    with pytest.raises(DefinitionError, match="3 param groups, but had 2 when"):
        scheduler.step()
    scheduler = ParamScheduler(two_groups(), FALLING)
    for state in ({}, {"last_epoch": "3"}, {"last_epoch": -5}, {"last_epoch": True}):
        with pytest.raises(StateError, match="integer 'last_epoch' >= -1"):
            scheduler.load_state_dict(state)
    with pytest.raises(ArgumentError, match="'error' or 'continue', got 'ignore'"):
        scheduler.load_state_dict(scheduler.state_dict(), on_mismatch="ignore")
    with pytest.raises(UnknownNameError, match="does not drive 'weight_decay'"):
        scheduler.get_last_value("weight_decay")


def test_training_with_ours_is_training_with_torchs() -> None:
    ours, theirs = parameters(), parameters()
    one = torch.optim.SGD(ours, lr=0.1, momentum=0.9)
    two = torch.optim.SGD(theirs, lr=0.1, momentum=0.9)
    mine = ParamScheduler(one, cf.schedules.linear(0.1, 0.01, 30))
    other = torch.optim.lr_scheduler.LinearLR(two, 1, 0.1, 30)
    steps(one, ours, 40, after=mine.step)
    steps(two, theirs, 40, after=other.step)
    for param, beside in zip(ours, theirs, strict=True):
        # torch's rate is a recursion, off by some 1e-15; float32 parameters of about 1.
        torch.testing.assert_close(param, beside, rtol=0, atol=2e-6)


def test_a_scheduler_prints_its_class_and_its_rates() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    assert repr(ParamScheduler(optimizer, cf.schedules.linear(0.1, 0, 10))) == (
        "ParamScheduler(lr = 0.1 at step 0)"
    )
    one_cycle = lr_scheduler.OneCycleLR(optimizer, max_lr=1, total_steps=10)
    assert repr(one_cycle).startswith("OneCycleLR(lr = ")


def test_a_class_in_the_wrong_place_is_near_to_a_name() -> None:
    with pytest.raises(AttributeError, match="did you mean 'Optimizer'"):
        getattr(cf.torch, "Optimiser")  # noqa: B009

"""The scheduler classes of torch beside torch's own: values of others, fractions, ends, members."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import EPOCH_DEPRECATION_WARNING

from closedform.errors import DefinitionError, StateError
from closedform.torch import lr_scheduler
from tests.torch.training import parameters, two_groups

THEIRS: Any = torch.optim.lr_scheduler
OURS: Any = lr_scheduler

Make = Callable[[Any, torch.optim.Optimizer], Any]

RECURSIVE: dict[str, Make] = {
    "StepLR": lambda of, optimizer: of.StepLR(optimizer, 2, gamma=0.5),
    "MultiStepLR": lambda of, optimizer: of.MultiStepLR(optimizer, [2, 3, 7], gamma=0.3),
    "ConstantLR": lambda of, optimizer: of.ConstantLR(optimizer, 0.1, total_iters=3),
    "LinearLR": lambda of, optimizer: of.LinearLR(optimizer, 0.1, 0.7, total_iters=4),
    "ExponentialLR": lambda of, optimizer: of.ExponentialLR(optimizer, 0.9),
    "PolynomialLR": lambda of, optimizer: of.PolynomialLR(optimizer, 20, power=2),
    "CosineAnnealingLR": lambda of, optimizer: of.CosineAnnealingLR(optimizer, 5, 0.01),
    "MultiplicativeLR": lambda of, optimizer: of.MultiplicativeLR(optimizer, lambda t: 0.9),
}
"""Classes that torch defines by a recursion."""


def _optimizer(rate: float | torch.Tensor = 0.1) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [{"params": parameters([(2,)])}]
    return torch.optim.SGD([*groups, {"params": parameters([(3,)]), "lr": 0.4}], lr=rate)


def _rates(optimizer: torch.optim.Optimizer, step: Callable[[int], object]) -> list[list[float]]:
    found = []
    for count in range(14):
        optimizer.step()
        step(count)
        found.append([float(group["lr"]) for group in optimizer.param_groups])
    return found


def _close(got: Any, wanted: Any, rel: float = 1e-12) -> None:
    """14 recursions of float64, of a few roundings each."""
    assert torch.tensor(got).shape == torch.tensor(wanted).shape
    flat = torch.tensor(wanted, dtype=torch.float64)
    torch.testing.assert_close(torch.tensor(got, dtype=torch.float64), flat, rtol=rel, atol=1e-300)


@pytest.mark.parametrize("other", RECURSIVE)
def test_two_schedulers_on_one_key_act_on_the_current_value(other: str) -> None:
    def run(of: Any, second: Any) -> Any:
        optimizer = _optimizer()
        both = [RECURSIVE["StepLR"](of, optimizer), RECURSIVE[other](second, optimizer)]
        rates = _rates(optimizer, lambda _: [one.step() for one in both])
        return [*rates, *(one.get_last_lr() for one in both)]

    wanted = run(THEIRS, THEIRS)
    _close(run(OURS, OURS), wanted)
    _close(run(OURS, THEIRS), wanted)
    _close(run(THEIRS, OURS), wanted)


@pytest.mark.parametrize("name", RECURSIVE)
def test_torchs_chain_takes_ours(name: str) -> None:
    def run(of: Any, chain: Any) -> Any:
        optimizer = _optimizer()
        members = [RECURSIVE[name](of, optimizer), RECURSIVE["ExponentialLR"](of, optimizer)]
        scheduler = chain(members)
        rates = _rates(optimizer, lambda _: scheduler.step())
        return [*rates, *(one.get_last_lr() for one in (*members, scheduler))]

    wanted = run(THEIRS, THEIRS.ChainedScheduler)
    _close(run(OURS, THEIRS.ChainedScheduler), wanted)
    if name != "CosineAnnealingLR":  # a product of factors here, with eta_min a recursion there
        _close(run(OURS, OURS.ChainedScheduler), wanted)


@pytest.mark.parametrize("name", RECURSIVE)
@pytest.mark.parametrize("kind", ["number", "tensor"])
def test_a_value_set_by_hand_is_moved_on(name: str, kind: str) -> None:
    def run(of: Any) -> Any:
        optimizer = _optimizer(0.1 if kind == "number" else torch.tensor(0.1, dtype=torch.float64))
        scheduler = RECURSIVE[name](of, optimizer)

        def step(count: int) -> None:
            if count == 4:
                if kind == "number":
                    optimizer.param_groups[0]["lr"] = 5.0
                else:
                    optimizer.param_groups[0]["lr"].fill_(5.0)
            scheduler.step()

        return _rates(optimizer, step)

    _close(run(OURS), run(THEIRS))


@pytest.mark.parametrize("name", sorted(RECURSIVE.keys() - {"MultiplicativeLR"}))
def test_a_group_that_is_added_is_moved_by_the_same_factors(name: str) -> None:
    def run(of: Any) -> Any:
        optimizer = _optimizer()
        scheduler = RECURSIVE[name](of, optimizer)
        _rates(optimizer, lambda _: scheduler.step())
        optimizer.add_param_group({"params": parameters([(4,)]), "lr": 0.7})
        if name == "CosineAnnealingLR":  # torch's raises at the end of its next half period
            scheduler.step()
            return [float(group["lr"]) for group in optimizer.param_groups]
        return _rates(optimizer, lambda _: scheduler.step())

    _close(run(OURS), run(THEIRS))


def test_a_group_that_is_added_needs_a_base_value_in_other_classes() -> None:
    optimizer = _optimizer()
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda t: 1.0)
    optimizer.step()
    optimizer.add_param_group({"params": parameters([(4,)])})
    with pytest.raises(DefinitionError, match="3 param groups, but had 2"):
        scheduler.step()


def test_values_that_nobody_changes_stay_those_of_the_closed_form() -> None:
    for rate in (0.1, torch.tensor(0.1, dtype=torch.float64)):
        optimizer = _optimizer(rate)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
        for count in range(1, 40):
            optimizer.step()
            if count == 20:
                optimizer, scheduler = copy.deepcopy((optimizer, scheduler))
            scheduler.step()
            value = scheduler.schedules[0](count)
            assert float(optimizer.param_groups[0]["lr"]) == float(value)


def test_one_cycle_ends_as_torchs_does() -> None:
    for of in (OURS, THEIRS):
        optimizer = torch.optim.SGD(parameters([(2,)]), lr=0.1, momentum=0.9)
        scheduler = of.OneCycleLR(optimizer, 1.0, epochs=5, steps_per_epoch=1)
        optimizer.step()
        for _ in range(5):
            scheduler.step()
        before = optimizer.param_groups[0]["lr"]
        with pytest.raises(ValueError, match="step"):
            scheduler.step()
        assert optimizer.param_groups[0]["lr"] == before


@pytest.mark.parametrize("factor", [1, 2])
def test_warm_restarts_take_fractions_of_epochs(factor: int) -> None:
    def run(of: Any) -> Any:
        optimizer = _optimizer()
        scheduler = of.CosineAnnealingWarmRestarts(optimizer, 3, factor, eta_min=0.01)
        found = []
        for count in range(60):
            optimizer.step()
            scheduler.step(*([count / 4] if count % 8 < 7 else []))
            rates = [group["lr"] for group in optimizer.param_groups]
            clock = [scheduler.T_cur, scheduler.T_i, scheduler.last_epoch]
            found.append([float(value) for value in (*rates, *scheduler.get_last_lr(), *clock)])
        return found

    # A phase of up to 12 epochs is rounded by 2e-15, and 1 + cos is as small as 0.01 near its end.
    _close(run(OURS), run(THEIRS), rel=1e-11)


def test_warm_restarts_save_the_fraction() -> None:
    optimizer, other = _optimizer(), _optimizer()
    scheduler: Any = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3)
    scheduler.step(1.25)
    copied: Any = lr_scheduler.CosineAnnealingWarmRestarts(other, 3)
    copied.load_state_dict(scheduler.state_dict())
    assert copied.get_last_lr() == scheduler.get_last_lr()
    assert copied.T_cur == 1.25
    with pytest.raises(DefinitionError, match=r"epoch must be >= 0, got -0\.5"):
        copied.step(-0.5)


def test_members_of_a_sequence_follow() -> None:
    def run(of: Any) -> Any:
        optimizer = _optimizer()
        members = [RECURSIVE[name](of, optimizer) for name in ("ConstantLR", "ExponentialLR")]
        scheduler = of.SequentialLR(optimizer, members, milestones=[3])
        found = []
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            clocks = [float(one.last_epoch) for one in members]
            active = members[scheduler.last_epoch >= 3]
            found.append([*active.get_last_lr(), *scheduler.get_last_lr(), *clocks])
        return found

    _close(run(OURS), run(THEIRS))


def test_warnings_are_those_that_users_of_torch_depend_on() -> None:
    optimizer = _optimizer()
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match="how-to-adjust-learning-rate"):
        scheduler.step()
    with pytest.warns(UserWarning, match="epoch parameter") as caught:
        scheduler.step(3)
    assert [str(warning.message) for warning in caught] == [EPOCH_DEPRECATION_WARNING]
    changed = _optimizer()
    scheduler = lr_scheduler.StepLR(changed, 2)
    changed.step = lambda closure=None: None  # type: ignore[method-assign, assignment]
    with pytest.warns(UserWarning, match=r"`optimizer.step\(\)` has been overridden"):
        scheduler.step()


OTHER_ARGUMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "StepLR": ({"gamma": 0.1, "step_size": 3}, {"gamma": 0.005, "step_size": 1}),
    "MultiStepLR": ({"milestones": [2, 5, 9]}, {"milestones": [1, 4, 6], "gamma": 0.01}),
    "ExponentialLR": ({"gamma": 0.1}, {"gamma": 0.01}),
    "CosineAnnealingLR": ({"T_max": 10, "eta_min": 1e-3}, {"T_max": 5}),
    "CosineAnnealingWarmRestarts": ({"T_0": 10, "T_mult": 2}, {"T_0": 100}),
    "OneCycleLR": ({"max_lr": 0.5, "total_steps": 30}, {"max_lr": 0.2, "total_steps": 15}),
}
"""The arguments of a scheduler, and those of another one that loads its state."""


@pytest.mark.parametrize("name", OTHER_ARGUMENTS)
def test_a_state_brings_the_arguments_of_its_scheduler(name: str) -> None:
    arguments, others = OTHER_ARGUMENTS[name]
    found = []
    for library in (OURS, THEIRS):
        optimizer = two_groups()
        scheduler = getattr(library, name)(optimizer, **arguments)
        for _ in range(7):
            optimizer.step()
            scheduler.step()
        other = two_groups()
        copy_of = getattr(library, name)(other, **others)
        saved = pickle.loads(pickle.dumps(scheduler.state_dict()))
        if library is OURS:
            with pytest.warns(UserWarning, match=f"{name} has other arguments, which replace"):
                copy_of.load_state_dict(saved)
            assert copy_of.state_dict() == scheduler.state_dict()
            assert getattr(copy_of, next(iter(arguments)), None) == next(iter(arguments.values()))
        else:
            copy_of.load_state_dict(saved)
        other.load_state_dict(optimizer.state_dict())
        rates = []
        for _ in range(5):
            other.step()
            copy_of.step()
            rates.append([group["lr"] for group in other.param_groups])
        found.append(rates)
    for mine, theirs in zip(*found, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)  # roundings of recursions of twelve steps


def test_a_state_with_arguments_of_another_kind_changes_nothing() -> None:
    optimizer = two_groups()
    step = OURS.StepLR(optimizer, step_size=3)
    before = step.state_dict()
    with pytest.raises(StateError, match="another schedule"):
        step.load_state_dict(OURS.ExponentialLR(two_groups(), 0.5).state_dict())
    bases = OURS.StepLR(two_groups(lr=0.3), step_size=4).state_dict()
    with pytest.raises(StateError, match="another schedule"):
        step.load_state_dict(bases)
    step.load_state_dict(bases, on_mismatch="continue")
    assert step.state_dict() == before

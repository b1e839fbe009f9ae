"""Classes of other systems: signatures, values of the records, members, functions, own classes."""

import copy
import inspect
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform import frameworks, t
from closedform.errors import ArgumentError, DefinitionError, UnknownNameError
from closedform.torch import ParamScheduler, cerebras, lr_scheduler, pytorch_accelerated
from tests.recipes.test_schedule_records import COMPARED, RECORDS, TOLERANCE, numbers, values_of
from tests.torch.training import parameters, two_groups

MODULES: dict[str, Any] = {
    "cerebras": cerebras,
    "torch": lr_scheduler,
    "pytorch_accelerated": pytorch_accelerated,
}
KNOWN = {
    *cerebras.SCHEDULERS,
    *lr_scheduler.SCHEDULERS,
    "CosineLrScheduler",
    "WSDLrScheduler",
}


def is_stepped(row: dict[str, Any]) -> bool:
    """Not the generic classes, and not what the clock of a first run decides."""
    is_generic = row["system"] == "cerebras" and row["key"] == "momentum"
    is_resumed = "continuation" in row or "sequential_last_epoch" in row["flags"]
    return row["class"] in KNOWN and not is_generic and not is_resumed


SAMPLED = [key for key in COMPARED if is_stepped(RECORDS[key])][::6]


def optimizer_of(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    made = [
        {"momentum": 0.9, **group, "params": [param]}
        for group, param in zip(groups, parameters([(1,)] * len(groups)), strict=True)
    ]
    return torch.optim.Optimizer(made, {})


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("key", SAMPLED)
@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
def test_a_class_steps_through_the_values_of_its_record(key: str) -> None:
    row = RECORDS[key]
    cls = getattr(MODULES[row["system"]], row["class"])
    optimizer = optimizer_of(copy.deepcopy(row["param_groups"]))
    kwargs = dict(row["kwargs"])
    last_epoch = kwargs.pop("last_epoch", -1) if row["system"] == "torch" else -1
    if last_epoch >= 0:
        kwargs["last_epoch"] = last_epoch
    if "Chained" in row["class"]:
        scheduler = cls(**kwargs, optimizer=optimizer, as_implemented=True)
    else:
        scheduler = cls(optimizer, **kwargs, as_implemented=True)
    first = scheduler.last_epoch
    wanted = values_of(row)
    bound = TOLERANCE * np.abs(numbers([v for group in wanted for v in group])).max()
    for place, step in enumerate(row["steps"]):
        scheduler.step(step + max(first, 0))
        for group, found in enumerate(wanted):
            value = optimizer.param_groups[group].get(row["key"])
            if value is None:
                value = optimizer.param_groups[group]["betas"][0]
            assert value == pytest.approx(float(found[place]), rel=0, abs=bound)


def test_enough_records_are_stepped_through() -> None:
    systems = [RECORDS[key]["system"] for key in SAMPLED]
    print({system: systems.count(system) for system in MODULES})
    assert len(SAMPLED) >= 60
    assert set(systems) == set(MODULES)


@pytest.mark.parametrize("name", [n for n in lr_scheduler.SCHEDULERS if n != "ReduceLROnPlateau"])
def test_the_signature_is_torchs(name: str) -> None:
    ours = inspect.signature(getattr(lr_scheduler, name)).parameters.values()
    theirs = inspect.signature(getattr(torch.optim.lr_scheduler, name)).parameters.values()
    shown = [(p.name, p.default) for p in ours if p.name != "as_implemented"]
    assert shown == [(p.name, p.default) for p in theirs]


def test_every_class_of_torch_is_there() -> None:
    kinds = {
        name
        for name, cls in vars(torch.optim.lr_scheduler).items()
        if isinstance(cls, type) and issubclass(cls, torch.optim.lr_scheduler.LRScheduler)
    }
    assert kinds - {"LRScheduler", "_LRScheduler"} == set(lr_scheduler.SCHEDULERS)
    with pytest.raises(DefinitionError, match="driven by a metric"):
        lr_scheduler.ReduceLROnPlateau(two_groups())


@pytest.mark.parametrize("momentum", ["momentum", "betas"])
def test_one_cycle_moves_the_momentum_or_the_first_beta_beside(momentum: str) -> None:
    def optimizer() -> torch.optim.Optimizer:
        params = parameters([(2,)])
        if momentum == "betas":
            return torch.optim.AdamW(params, lr=0.1)
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)

    ours, theirs = optimizer(), optimizer()
    mine = lr_scheduler.OneCycleLR(ours, max_lr=0.5, total_steps=30, three_phase=True)
    other = torch.optim.lr_scheduler.OneCycleLR(
        theirs, max_lr=0.5, total_steps=30, three_phase=True
    )
    for _ in range(29):
        (one,), (two,) = ours.param_groups, theirs.param_groups
        # float64 of both: a few roundings of numbers of about 1.
        assert one["lr"] == pytest.approx(two["lr"], rel=1e-14, abs=1e-15)
        assert one[momentum] == pytest.approx(two[momentum], rel=1e-14)
        ours.step()
        mine.step()
        theirs.step()
        other.step()
    with pytest.raises(DefinitionError, match="neither 'momentum' nor 'betas' to cycle"):
        lr_scheduler.OneCycleLR(torch.optim.Adagrad(parameters([(2,)])), max_lr=0.5, total_steps=30)


def test_members_are_objects_or_specs() -> None:
    optimizer = two_groups()
    rise = cerebras.LinearLR(optimizer, 0, 1, 5)
    fall = {
        "class": "CosineDecayLR",
        "kwargs": {"initial_learning_rate": 1, "end_learning_rate": 0, "total_iters": 10},
    }
    own = ParamScheduler(optimizer, cf.schedules.constant(0.25))
    row = cerebras.SequentialLR(optimizer, [rise, fall, own], [5, 15])
    schedule = row.schedules[0]
    assert [schedule(step) for step in (0, 2, 5, 10, 15)] == [0, 0.4, 1, 0.5, 0.25]
    product = cerebras.ChainedLR(
        [
            cerebras.LinearLR(optimizer, 2, 0, 4),
            rise.spec
            | {
                "class": "ExponentialLR",
                "kwargs": {"initial_learning_rate": 1, "total_iters": 1, "decay_rate": 0.5},
            },
        ]
    )
    assert [product.schedules[0](step) for step in range(3)] == [2, 0.75, 0.25]
    scaled = optimizer_of([{"lr": 1.0, "adjust_learning_rate": 0.5}, {"lr": 1.0}])
    half = cerebras.ScalePerParamLR(scaled, cerebras.ConstantLR(scaled, 3))
    assert half.get_last_lr() == [1.5, 3]


def test_names_attributes_and_copies() -> None:
    optimizer = two_groups(weight_decay=0.5)
    scheduler: Any = cerebras.CosineDecayLR(
        optimizer, 1e-3, end_learning_rate=1e-4, total_iters=100
    )
    assert issubclass(type(scheduler), cerebras.LRScheduler)
    assert (scheduler.initial_learning_rate, scheduler.initial_val) == (1e-3, 1e-3)
    assert (scheduler.end_val, scheduler.total_iters) == (1e-4, 100)
    for other in (pickle.loads(pickle.dumps(scheduler)), copy.deepcopy(scheduler)):
        assert type(other) is cerebras.CosineDecayLR
        assert other.get_last_lr() == [1e-3, 1e-3]
    decay = cerebras.LinearWD(optimizer, 0.5, 0.1, 10, param_group_tags="body")
    assert decay.get_last_value() == decay.get() == [0.5, None]
    assert isinstance(decay, cerebras.WeightDecayScheduler)
    decay.increment_last_epoch()
    assert optimizer.param_groups[0]["weight_decay"] == 0.5
    decay.update_last_value()
    assert optimizer.param_groups[0]["weight_decay"] == 0.46
    decay.update_groups([0.25, None])
    assert optimizer.param_groups[0]["weight_decay"] == 0.25
    with pytest.raises(AttributeError, match="did you mean 'CosineDecayLR'"):
        cerebras.CosinDecayLR  # type: ignore[attr-defined]  # noqa: B018
    assert "CosineDecayLR" in dir(cerebras)
    assert "OneCycleLR" in dir(lr_scheduler)
    with pytest.raises(AttributeError, match="did you mean 'OneCycleLR'"):
        lr_scheduler.OneCycle  # type: ignore[attr-defined]  # noqa: B018


def test_a_generic_class_takes_its_key_from_a_subclass() -> None:
    class CosineMomentum(cerebras.CosineDecayScheduler):
        param_group_key = "momentum"

    scheduler = CosineMomentum(two_groups(), 0.9, 0.5, 10)
    assert scheduler.get_last_value("momentum") == pytest.approx([0.9, 0.9], rel=1e-15)
    with pytest.raises(ArgumentError, match="the class is generic"):
        cerebras.CosineDecayScheduler(two_groups(), 0.9, 0.5, 10)


@pytest.mark.parametrize(
    "function",
    [lambda step: 0.95**step, 0.95**t, cf.Schedule(0.95**t), {"expr": "0.95**t"}],
    ids=["python", "sympy", "schedule", "text"],
)
def test_functions_of_the_step(function: Any) -> None:
    scheduler = lr_scheduler.LambdaLR(two_groups(), function)
    assert scheduler.schedules[1] == cf.Schedule(sp.Rational(1, 5) * sp.Rational(19, 20) ** t)
    two = lr_scheduler.LambdaLR(two_groups(), [lambda step: 1, function])
    assert two.get_last_lr() == [0.1, 0.2]


@pytest.mark.parametrize(
    "function",
    [
        lambda step: 1 if step < 5 else 0.5,
        lambda step: math.cos(step),
        lambda step: min(1.0, (step + 1) / 5) * 0.9 ** (step // 3),
    ],
)
def test_python_functions_are_read(function: Any) -> None:
    ours = lr_scheduler.LambdaLR(two_groups(), function)
    theirs = torch.optim.lr_scheduler.LambdaLR(two_groups(), function)
    assert all(isinstance(schedule, cf.Schedule) for schedule in ours.schedules)
    for _ in range(12):
        # Each rounds once or twice a step.
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-14)
        for scheduler in (ours, theirs):
            scheduler.optimizer.step()
            scheduler.step()


def drawn(step: int) -> float:
    """A function that cannot be traced, with the same values each time."""
    return random.Random(step).random()


def until_ten(step: int) -> float:
    if step > 10:
        raise ValueError(step)
    return 0.5**step


@pytest.mark.parametrize(
    ("name", "function", "reason"),
    [
        ("LambdaLR", drawn, "draws random numbers"),
        ("LambdaLR", until_ten, "from step 11 on"),
        ("MultiplicativeLR", drawn, "draws random numbers"),
        ("MultiplicativeLR", math.cos, r"the product of cos\(t\) has no closed form"),
    ],
)
def test_a_function_that_cannot_be_read_is_called(name: str, function: Any, reason: str) -> None:
    with pytest.warns(UserWarning, match=f"{name} calls the Python function.*{reason}") as warned:
        ours = getattr(lr_scheduler, name)(two_groups(), function)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    theirs = getattr(torch.optim.lr_scheduler, name)(two_groups(), function)
    assert ours.schedules == [None, None]
    for _ in range(10):
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-14)
        for scheduler in (ours, theirs):
            scheduler.optimizer.step()
            scheduler.step()
    state = ours.state_dict()
    assert f"the Python function {function.__qualname__}" in state["expression"][0]
    with pytest.warns(UserWarning, match="calls the Python function"):
        again = getattr(lr_scheduler, name)(two_groups(), function)
    again.load_state_dict(state)
    assert again.get_last_lr() == ours.get_last_lr()


def test_another_class_refuses_a_function_that_cannot_be_read() -> None:
    with pytest.raises(ArgumentError, match=r"must be traceable: random.Random draws random"):
        cerebras.LambdaLR(two_groups(), 0.1, [drawn, drawn])


def test_arguments_are_those_of_the_class() -> None:
    optimizer = two_groups()
    with pytest.raises(ArgumentError, match=r"unknown argument 'gama'.*did you mean 'gamma'"):
        lr_scheduler.StepLR(optimizer, 3, gama=0.1)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="'step_size' is given twice"):
        lr_scheduler.StepLR(optimizer, 3, step_size=4)  # type: ignore[misc]
    with pytest.raises(ArgumentError, match="at most 4 arguments, got 5"):
        lr_scheduler.StepLR(optimizer, 3, 0.1, -1, 5)  # type: ignore[call-arg,arg-type]
    with pytest.raises(ArgumentError, match="missing argument 'optimizer'"):
        lr_scheduler.StepLR()  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match="none of the sub-schedules is a scheduler"):
        cerebras.ChainedLR([{"class": "ConstantLR", "kwargs": {"learning_rate": 1}}])
    with pytest.raises(UnknownNameError, match="no 'initial_lr'"):
        lr_scheduler.StepLR(optimizer_of([{"lr": 0.1}]), 3, last_epoch=4)
    varied = ParamScheduler(optimizer, [cf.schedules.constant(1), cf.schedules.constant(2)])
    with pytest.raises(ArgumentError, match="must be the same for all groups"):
        cerebras.SequentialLR(optimizer, [varied, varied], [4])


def test_a_resumed_class_goes_on() -> None:
    optimizer = two_groups()
    for group in optimizer.param_groups:
        group["initial_lr"] = 0.8
    scheduler = lr_scheduler.StepLR(optimizer, 2, gamma=0.5, last_epoch=3)
    assert scheduler.last_epoch == 4
    assert scheduler.get_last_lr() == [0.2, 0.2]
    assert scheduler.base_lrs == [0.8, 0.8]


class HalfLife(cerebras.LRScheduler):
    """As the documents of the reference system write one: with ``last_epoch`` as the step."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, initial: float, steps: int, last_epoch: int = -1
    ) -> None:
        self.initial = initial
        self.steps = steps
        super().__init__(optimizer, total_iters=None, last_epoch=last_epoch)

    def _get_closed_form_lr(self) -> Any:
        return self.initial * sp.Rational(1, 2) ** (self.last_epoch / sp.Integer(self.steps))


class Floor(cerebras.Scheduler):
    param_group_key = "momentum"

    def _get_closed_form(self) -> Any:
        return cf.schedules.linear(0.9, 0.5, 4)


def test_classes_of_your_own() -> None:
    scheduler = HalfLife(two_groups(), 0.5, 10)
    assert scheduler.get_last_lr() == [0.5, 0.5]
    assert scheduler.last_epoch == 0
    scheduler.step(20)
    assert scheduler.get_last_lr() == [0.125, 0.125]
    assert HalfLife(two_groups(), 0.5, 10, last_epoch=9).get_last_lr() == [0.25, 0.25]
    assert Floor(two_groups()).get_last_value() == [0.9, 0.9]
    copied = pickle.loads(pickle.dumps(scheduler))
    assert copied.get_last_lr() == [0.125, 0.125]


def test_classes_of_your_own_that_give_no_expression() -> None:
    class Nothing(cerebras.LRScheduler):
        pass

    class Tensor(cerebras.LRScheduler):
        def _get_closed_form(self) -> Any:
            return torch.tensor(0.1)

    class Keyless(cerebras.Scheduler):
        def _get_closed_form(self) -> Any:
            return 1

    for cls, said in (
        (Nothing, "does not override _get_closed_form"),
        (Tensor, "SymPy expression, got Tensor"),
        (Keyless, "does not set param_group_key"),
    ):
        with pytest.raises(ArgumentError, match=said):
            cls(two_groups())
    with pytest.raises(ArgumentError, match="torch optimizer, got str"):
        HalfLife("sgd", 1, 2)  # type: ignore[arg-type]


def test_pytorch_accelerated_has_its_clock_and_methods() -> None:
    optimizer = two_groups()
    scheduler = pytorch_accelerated.WSDLrScheduler(optimizer, total_steps=100, num_checkpoints=2)
    assert scheduler.get_checkpoint_steps() == scheduler.checkpoint_steps == [25, 50]
    assert scheduler.get_decay_info()[1]["pre_decay_step"] == 48
    assert scheduler.get_phase_info(25)["period_end"] == 25
    assert (scheduler.get_current_step(), scheduler.total_steps) == (-1, 100)
    scheduler.step()
    assert scheduler.get_current_step() == 0
    assert scheduler.get_current_phase_info()["period_start"] == 0
    scheduler.step_update(49)
    assert optimizer.param_groups[0]["lr"] == scheduler.get_updated_values(49)[0] < 0.1
    assert scheduler.base_lr_values == [0.1, 0.2]
    state = scheduler.state_dict()
    again = pytorch_accelerated.WSDLrScheduler(two_groups(), total_steps=100, num_checkpoints=2)
    again.load_state_dict(state)
    assert again.get_current_step() == 0


def test_a_continuation_of_another_run_begins_anew_and_its_own_state_resumes_it() -> None:
    first = pytorch_accelerated.WSDLrScheduler(two_groups(), total_steps=40, num_warmup_steps=4)
    for _ in range(30):
        first.step()
    arguments: dict[str, Any] = {
        "total_steps": 20,
        "num_warmup_steps": 4,
        "is_continuation_from_checkpoint": True,
    }
    more = pytorch_accelerated.WSDLrScheduler(two_groups(), **arguments)
    more.load_state_dict(first.state_dict())
    assert more.get_current_step() == -1
    assert more.optimizer.param_groups[0]["lr"] == 0.1  # no warmup
    for _ in range(20):
        more.step()
    resumed = pytorch_accelerated.WSDLrScheduler(two_groups(), **arguments)
    resumed.load_state_dict(more.state_dict())
    assert resumed.get_current_step() == 19
    assert resumed.optimizer.param_groups[0]["lr"] == more.optimizer.param_groups[0]["lr"] < 0.1


def test_functions_for_the_trainer_of_pytorch_accelerated() -> None:
    make = pytorch_accelerated.CosineLrScheduler.create_scheduler_fn(num_warmup_epochs=1)
    assert make.keywords["total_num_epochs"].name == "NUM_EPOCHS"
    filled = {"total_num_epochs": 4, "num_update_steps_per_epoch": 5}
    assert make(two_groups(), **filled).schedules[0](5) == 0.1
    make = pytorch_accelerated.WSDLrScheduler.create_scheduler_fn(num_warmup_epochs=2)
    name = make.keywords["num_update_steps_per_epoch"].name
    assert name == "PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH"
    made = make(two_groups(), num_epochs=4, num_update_steps_per_epoch=5)
    assert (made.total_steps, made.num_warmup_steps) == (20, 10)


def test_a_class_is_the_schedule_of_the_framework() -> None:
    kwargs: dict[str, Any] = {"initial_learning_rate": 0.1, "T_0": 4}
    for as_implemented in (False, True):
        made = cerebras.CosineAnnealingWarmRestarts(
            two_groups(), **kwargs, as_implemented=as_implemented
        )
        wanted = frameworks.schedule(
            "cerebras", "CosineAnnealingWarmRestarts", kwargs, as_implemented=as_implemented
        )
        assert made.schedules == [wanted, wanted]

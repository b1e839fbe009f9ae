"""Schedulers of torch as schedules: equal to the library's by proof, and to torch's values."""

import copy
import math
import random
import warnings
from collections.abc import Callable
from typing import Any, Literal

import pytest
import sympy as sp
import torch
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiplicativeLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

import closedform as cf
from closedform.errors import ArgumentError, TraceError
from closedform.importers.python.prover import Prover
from closedform.importers.recurrence import closed_form
from closedform.importers.torch_scheduler import schedules_of
from closedform.language import Schedule
from closedform.verify.tracing import TracingProver

Make = Callable[[torch.optim.Optimizer], Any]


def optimizer_of(*rates: float) -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def values_of(make: Make, steps: int, rate: float = 0.1) -> list[float]:
    """The values that the scheduler sets, step by step."""
    optimizer = optimizer_of(rate)
    scheduler = make(optimizer)
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            values.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            scheduler.step()
    return values


LIBRARY: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 30, "gamma": 0.1}),
    ("MultiStepLR", {"milestones": [30, 80, 80], "gamma": 0.1}),
    ("ConstantLR", {"factor": 0.3, "total_iters": 5}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.9, "total_iters": 20}),
    ("ExponentialLR", {"gamma": 0.95}),
    ("PolynomialLR", {"total_iters": 50, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 50, "eta_min": 0.001}),
    ("CosineAnnealingWarmRestarts", {"T_0": 10, "eta_min": 1e-4}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 20}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 20, "mode": "triangular2"}),
    (
        "CyclicLR",
        {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 8, "step_size_down": 24, "gamma": 0.99}
        | {"mode": "exp_range"},
    ),
]
RECURSIVE = {"StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR"} | {
    "CosineAnnealingLR"
}


@pytest.mark.parametrize(("name", "kwargs"), LIBRARY, ids=lambda value: str(value)[:24])
def test_the_schedule_of_a_class_is_that_of_the_library(name: str, kwargs: dict[str, Any]) -> None:
    traced = cf.from_torch(getattr(torch.optim.lr_scheduler, name)(optimizer_of(0.1), **kwargs))
    assert isinstance(traced, Schedule)
    library = cf.frameworks.schedule("torch", name, kwargs, base=0.1, as_implemented=True)
    assert cf.claims.equal(traced, library).verify().proved


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_one_cycle_has_a_last_step(strategy: str) -> None:
    kwargs = {"max_lr": 0.5, "total_steps": 100, "anneal_strategy": strategy}
    scheduler = OneCycleLR(optimizer_of(0.1), **kwargs)  # type: ignore[arg-type]
    traced = cf.from_torch(scheduler)
    assert isinstance(traced, Schedule)
    library = cf.frameworks.schedule("torch", "OneCycleLR", kwargs, base=0.1)
    assert cf.claims.equal(traced, library, where=cf.t <= 100).verify().proved
    with pytest.raises(cf.errors.DomainError, match="the schedule has no value at t = 101"):
        traced.exact(101)


def linear_warmup(step: int) -> float:
    return min(1.0, (step + 1) / 10)


COMPOSED: dict[str, Make] = {
    "lambda": lambda o: LambdaLR(o, lambda step: 0.5 * (1 + math.cos(math.pi * step / 100))),
    "multiplicative": lambda o: MultiplicativeLR(o, lambda step: 0.95),
    "multiplicative_at_milestones": lambda o: MultiplicativeLR(
        o, lambda step: 0.5 if step in (10, 20) else 1.0
    ),
    "restarts_that_grow": lambda o: CosineAnnealingWarmRestarts(o, 10, 2, 1e-4),
    "sequence": lambda o: SequentialLR(
        o, [LinearLR(o, 0.1, 1.0, 10), CosineAnnealingLR(o, 90)], [10]
    ),
    "sequence_of_three": lambda o: SequentialLR(
        o, [LinearLR(o, 0.1, 1.0, 10), ConstantLR(o, 1.0, 1), ExponentialLR(o, 0.9)], [10, 40]
    ),
    "sequence_with_equal_milestones": lambda o: SequentialLR(
        o, [LinearLR(o, 0.1, 1.0, 10), StepLR(o, 3), ExponentialLR(o, 0.9)], [10, 10]
    ),
    "nested_sequence": lambda o: SequentialLR(
        o, [SequentialLR(o, [StepLR(o, 5), ExponentialLR(o, 0.9)], [20]), LinearLR(o)], [30]
    ),
    "chain": lambda o: ChainedScheduler([ConstantLR(o, 0.1, 20), ExponentialLR(o, 0.9)]),
    "chain_in_a_sequence": lambda o: SequentialLR(
        o, [ChainedScheduler([ConstantLR(o, 0.1, 20), ExponentialLR(o, 0.9)]), StepLR(o, 5)], [30]
    ),
    "lambdas_in_a_sequence": lambda o: SequentialLR(
        o, [LambdaLR(o, linear_warmup), LambdaLR(o, lambda step: 0.99**step)], [10]
    ),
}


# torch warns of what its own constructors do.
@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_schedulers_have_the_values_of_torch(name: str) -> None:
    schedule = cf.from_torch(COMPOSED[name](optimizer_of(0.1)))
    assert isinstance(schedule, Schedule)
    expected = values_of(COMPOSED[name], 70)
    # torch's recurrences round once or twice a step, relative to values up to 0.1.
    assert [schedule(step) for step in range(70)] == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_each_param_group_has_its_schedule() -> None:
    schedules = cf.from_torch(StepLR(optimizer_of(0.1, 0.01), 10))
    assert isinstance(schedules, list)
    assert [each.exact(10) for each in schedules] == [
        cf.schedules.constant(v).exact(0) for v in (0.01, 0.001)
    ]
    assert isinstance(cf.from_torch(StepLR(optimizer_of(0.1, 0.1), 10)), Schedule)


def test_the_scheduler_is_not_changed() -> None:
    optimizer = optimizer_of(0.1)
    scheduler = ExponentialLR(optimizer, 0.5)
    optimizer.step()
    scheduler.step()
    before = ({**vars(scheduler)}, {**optimizer.param_groups[0]})
    first = cf.from_torch(scheduler)
    assert ({**vars(scheduler)}, {**optimizer.param_groups[0]}) == before
    assert isinstance(first, Schedule)
    assert first.exact(0) == sp.Rational(1, 10)


# --- recurrences ---------------------------------------------------------------------------------


class Recurrence(LRScheduler):
    """A class of users: the value from the value before."""

    def get_lr(self) -> list[Any]:
        groups = self.optimizer.param_groups
        if self.last_epoch == 0:
            return [group["lr"] for group in groups]
        return [self.following(group["lr"], self.last_epoch) for group in groups]

    def following(self, before: Any, step: int) -> Any:
        raise NotImplementedError


class TowardsFloor(Recurrence):
    def following(self, before: Any, step: int) -> Any:
        return before * 0.9 + 0.001


class Falling(Recurrence):
    def following(self, before: Any, step: int) -> Any:
        return before - 0.001 * step if step < 10 else before


class InverseTime(Recurrence):
    def following(self, before: Any, step: int) -> Any:
        return before * (step + 9) / (step + 10)


class EveryTenth(Recurrence):
    def following(self, before: Any, step: int) -> Any:
        return before * 0.5 if step % 10 == 0 else before


class Logistic(Recurrence):
    def following(self, before: Any, step: int) -> Any:
        return before * (1 - before)


SOLVED = [TowardsFloor, Falling, InverseTime, EveryTenth]


@pytest.mark.parametrize("kind", SOLVED)
def test_the_closed_form_of_a_recurrence_is_proved(kind: type[Recurrence]) -> None:
    schedule = cf.from_torch(kind(optimizer_of(0.1)))
    assert isinstance(schedule, Schedule)
    # One rounding a step.
    assert [schedule(step) for step in range(60)] == pytest.approx(
        values_of(kind, 60), rel=1e-12, abs=1e-15
    )


def test_a_recurrence_without_a_closed_form_is_shown() -> None:
    with pytest.raises(TraceError) as found:
        cf.from_torch(Logistic(optimizer_of(0.1)))
    assert "no known closed form: it is 1/10 at t = 0" in found.value.what
    assert "previous*(1 - previous)" in found.value.what
    assert found.value.where == "Logistic"


class Doubtful(TracingProver):
    """Proves no induction."""

    def follows(self, *_: Any) -> bool | None:
        return None


def test_a_closed_form_that_is_not_proved_is_not_returned() -> None:
    prover: Prover = Doubtful()
    with pytest.raises(TraceError, match="no known closed form"):
        schedules_of(StepLR(optimizer_of(0.1), 10), prover)


def test_a_wrong_closed_form_is_not_proved() -> None:
    class Wrong(StepLR):
        def _get_closed_form_lr(self) -> list[Any]:
            return [0.5**self.last_epoch for _ in self.base_lrs]

    # The closed form of the class is refuted, and the one of its recurrence is found.
    schedule = cf.from_torch(Wrong(optimizer_of(0.1), 10))
    assert isinstance(schedule, Schedule)
    assert schedule.exact(20) == sp.Rational(1, 1000)


def test_no_candidate_for_a_product_of_values() -> None:
    from closedform.importers.python.join import ValueRange

    previous = cf.expr.hyper("previous")
    assert closed_form([ValueRange(1, None, previous**2)], previous * 0 + 1, previous) is None


# --- classes with a method of the number of updates ----------------------------------------------


class Updates:
    """The protocol of pytorch-accelerated, as its documentation shows it."""

    def __init__(self, optimizer: torch.optim.Optimizer, field: str = "lr") -> None:
        self.optimizer = optimizer
        self.param_group_field = field
        for group in optimizer.param_groups:
            group.setdefault(f"initial_{field}", group[field])

    def get_updated_values(self, num_updates: int) -> Any:
        raise NotImplementedError


class MilestoneLrScheduler(Updates):
    def __init__(self, optimizer: torch.optim.Optimizer, gamma: float = 0.5) -> None:
        super().__init__(optimizer)
        self.milestones = {100 * milestone for milestone in (2, 4, 5)}
        self.gamma = gamma

    def get_updated_values(self, num_updates: int) -> Any:
        if num_updates in self.milestones:
            lr_values = [group[self.param_group_field] for group in self.optimizer.param_groups]
            return [lr * self.gamma for lr in lr_values]
        return None


class StepWdScheduler(Updates):
    def __init__(self, optimizer: torch.optim.Optimizer, n: int = 100, gamma: float = 1.1) -> None:
        super().__init__(optimizer, field="weight_decay")
        self.n = n
        self.gamma = gamma

    def get_updated_values(self, num_updates: int) -> Any:
        if num_updates % self.n == 0 and num_updates > 0:
            wd_values = [group[self.param_group_field] for group in self.optimizer.param_groups]
            return [wd * self.gamma for wd in wd_values]
        return None


class WarmupOfAll(Updates):
    def get_updated_values(self, num_updates: int) -> Any:
        return min(1.0, num_updates / 10)


def with_weight_decay() -> torch.optim.Optimizer:
    optimizer = optimizer_of(0.1)
    optimizer.param_groups[0]["weight_decay"] = 0.01
    return optimizer


@pytest.mark.parametrize(
    ("kind", "library"),
    [
        (MilestoneLrScheduler, cf.schedules.multi_step(0.1, 0.5, [200, 400, 500])),
        (StepWdScheduler, cf.schedules.step_decay(0.01, 1.1, 100)),
        (WarmupOfAll, cf.schedules.linear(0, 1, 10)),
    ],
)
def test_methods_of_the_number_of_updates(kind: type[Updates], library: Schedule) -> None:
    scheduler: Any = kind(with_weight_decay())
    traced = cf.from_torch(scheduler)
    assert isinstance(traced, Schedule)
    assert cf.claims.equal(traced, library).verify().proved


# --- refused -------------------------------------------------------------------------------------


class OwnStep(LRScheduler):
    def step(self) -> None:  # type: ignore[override]
        self.last_epoch += 1


REFUSED: dict[str, tuple[Make, str]] = {
    "plateau": (ReduceLROnPlateau, "the value depends on a metric"),
    "sequence_after_another": (
        lambda o: SequentialLR(
            o,
            [
                LinearLR(o, 0.1, 1.0, 10),
                SequentialLR(o, [StepLR(o, 5), ExponentialLR(o, 0.9)], [20]),
            ],
            [10],
        ),
        "a SequentialLR follows another scheduler, where torch raises NotImplementedError",
    ),
    "own_step": (OwnStep, "overrides step() with a method that does not take the number"),
    "overwritten_member": (
        lambda o: ChainedScheduler([ExponentialLR(o, 0.9), OneCycleLR(o, 0.5, total_steps=500)]),
        "the schedule differs from the scheduler",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, what = REFUSED[name]
    with pytest.raises(TraceError) as found:
        cf.from_torch(make(optimizer_of(0.1)))
    assert what in found.value.what
    assert found.value.where


def test_what_is_not_a_scheduler_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a scheduler or an optimizer, got int"):
        cf.from_torch(3)  # type: ignore[call-overload]


# --- every period --------------------------------------------------------------------------------

# First those whose cosine of one step SymPy writes as a number, as roots or as powers of -1.
LENGTHS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 60, *range(7, 201)]


@pytest.mark.sample(every=27)
@pytest.mark.parametrize("length", LENGTHS)
def test_cosine_annealing_of_every_length_is_the_cosine(length: int) -> None:
    rate, least = [(0.1, 0.0), (3e-4, 1e-5), (1.0, 0.01)][length % 3]
    schedule = cf.from_torch(CosineAnnealingLR(optimizer_of(rate), length, eta_min=least))
    assert isinstance(schedule, Schedule)
    expected = values_of(lambda o: CosineAnnealingLR(o, length, eta_min=least), 3 * length, rate)
    # Exact values of nested roots take milliseconds each: 90 steps at most, in all three periods.
    for step, value in list(enumerate(expected))[:: max(1, length // 30)]:
        exact = least + (rate - least) * (1 + math.cos(math.pi * step / length)) / 2
        assert float(schedule.exact(step)) == pytest.approx(exact, rel=1e-13, abs=1e-16)
        assert value == pytest.approx(exact, rel=1e-9, abs=1e-12)  # torch rounds once a step


@pytest.mark.parametrize("least", [0.0, 0.01])
@pytest.mark.parametrize("rate", [0.1, 0.3])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_cosine_annealing_over_a_few_steps_is_followed(
    length: int, rate: float, least: float
) -> None:
    schedule = cf.from_torch(CosineAnnealingLR(optimizer_of(rate), length, eta_min=least))
    assert isinstance(schedule, Schedule)
    for step in range(3 * length):
        exact = least + (rate - least) * (1 + math.cos(math.pi * step / length)) / 2
        assert float(schedule.exact(step)) == pytest.approx(exact, rel=1e-13, abs=1e-16)


def drawn_schedulers(seed: int) -> list[Make]:
    """Schedulers with arguments of their whole range."""
    rng = random.Random(seed)
    length = rng.randint(1, 60)
    modes: list[Literal["triangular", "triangular2", "exp_range"]]
    modes = ["triangular", "triangular2", "exp_range"]
    mode = rng.choice(modes)
    return [
        lambda o: SequentialLR(
            o,
            [LinearLR(o, 0.1, total_iters=length), CosineAnnealingLR(o, length, 1e-3)],
            [length],
        ),
        lambda o: CosineAnnealingWarmRestarts(o, length, rng.randint(1, 4), rng.choice([0, 1e-4])),
        lambda o: CyclicLR(o, 1e-3, 0.1, length, rng.choice([None, 7]), mode, 0.99),
        lambda o: OneCycleLR(
            o,
            0.1,
            total_steps=length + 1,
            pct_start=rng.uniform(0.05, 0.95),
            anneal_strategy=rng.choice(["cos", "linear"]),
            three_phase=rng.random() < 0.3,
        ),
    ]


@pytest.mark.sample(every=9)
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("place", range(4))
def test_drawn_arguments(place: int, seed: int) -> None:
    # from_torch compares the schedule with the scheduler at its first 160 steps and later ones.
    schedule = cf.from_torch(drawn_schedulers(seed)[place](optimizer_of(0.1)))
    assert isinstance(schedule, Schedule)


# --- the present state ---------------------------------------------------------------------------


def next_rates(scheduler: Any, steps: int) -> list[list[float]]:
    """The rates that torch sets from the present step on."""
    twin = copy.deepcopy(scheduler)
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            rates.append([float(group["lr"]) for group in twin.optimizer.param_groups])
            twin.optimizer.step()
            try:
                twin.step()
            except ValueError:  # OneCycleLR, after its last step
                break
    return rates


def assert_goes_on(scheduler: Any, steps: int = 220) -> None:
    """The schedule has the rates that a copy of the scheduler sets next, for all groups."""
    result = cf.from_torch(scheduler)
    count = len(scheduler.optimizer.param_groups)
    schedules = result if isinstance(result, list) else [result] * count
    is_chain = isinstance(scheduler, ChainedScheduler)
    first = (scheduler._schedulers[0] if is_chain else scheduler).last_epoch
    rates = next_rates(scheduler, steps)
    for schedule, column in zip(schedules, zip(*rates, strict=True), strict=True):
        # The float call is what ships; torch rounds once a step.
        values = schedule(list(range(first, first + len(rates))))
        assert values == pytest.approx(column, rel=1e-8, abs=1e-12 * max(map(abs, column)))


Families = dict[str, Callable[..., Any]]


def families_of(rng: random.Random) -> Families:
    """Schedulers with drawn arguments; those of torch that can be built with ``last_epoch``."""
    length, gamma = rng.randint(2, 60), rng.choice([0.5, 0.9, 0.1, 0.97])
    least, growth = rng.choice([0.0, 1e-4]), rng.choice([1, 3])
    milestones = sorted({length, 2 * length, length + 5})
    return {
        "exponential": lambda o, **k: ExponentialLR(o, gamma, **k),
        "step": lambda o, **k: StepLR(o, length, gamma, **k),
        "multistep": lambda o, **k: MultiStepLR(o, milestones, gamma, **k),
        "cosine": lambda o, **k: CosineAnnealingLR(o, length, least, **k),
        "linear": lambda o, **k: LinearLR(o, gamma, total_iters=length, **k),
        "constant": lambda o, **k: ConstantLR(o, gamma, length, **k),
        "polynomial": lambda o, **k: PolynomialLR(o, length, growth, **k),
        "lambda": lambda o, **k: LambdaLR(o, lambda step: gamma**step, **k),
        "multiplicative": lambda o, **k: MultiplicativeLR(o, lambda step: gamma, **k),
        "restarts": lambda o, **k: CosineAnnealingWarmRestarts(o, length, growth, least, **k),
        "cyclic": lambda o, **k: CyclicLR(o, 1e-4, 1e-2, length, cycle_momentum=False, **k),
    }


def composites_of(rng: random.Random) -> Families:
    length, gamma = rng.randint(2, 60), rng.choice([0.5, 0.9, 0.97])
    return {
        "sequence": lambda o: SequentialLR(
            o,
            [LinearLR(o, 0.1, total_iters=length), ExponentialLR(o, gamma), StepLR(o, 7)],
            [length, length + 20],
        ),
        "chain": lambda o: ChainedScheduler(
            [LinearLR(o, 0.1, total_iters=length), ExponentialLR(o, gamma)]
        ),
        "one cycle": lambda o: OneCycleLR(o, 0.1, total_steps=length + 70),
    }


EDITS = ("none", "rate", "groups", "gamma", "base_lrs", "state dict", "state dict of one")
ARGUMENTS = {"gamma": 0.8, "T_max": 17, "total_iters": 9, "power": 2}


def edited_scheduler(make: Callable[..., Any], edit: str, rng: random.Random) -> Any:
    """A scheduler after some steps, whose state was edited or loaded."""
    rates = (1e-3, 5e-3) if edit == "groups" else (1e-3,)
    scheduler = make(optimizer_of(*rates))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rng.randint(0, 70)):
            scheduler.optimizer.step()
            scheduler.step()
    match edit:
        case "rate" | "groups":
            for group in scheduler.optimizer.param_groups:
                group["lr"] *= rng.choice([0.1, 2, 0.37])
        case "gamma":
            name = next((name for name in ARGUMENTS if hasattr(scheduler, name)), None)
            if name is not None:
                setattr(scheduler, name, ARGUMENTS[name])
        case "base_lrs" if hasattr(scheduler, "base_lrs"):
            scheduler.base_lrs = [0.02 for _ in scheduler.base_lrs]
        case "state dict" | "state dict of one":
            other = make(optimizer_of(*rates))
            other.load_state_dict(copy.deepcopy(scheduler.state_dict()))
            if edit == "state dict":
                other.optimizer.load_state_dict(copy.deepcopy(scheduler.optimizer.state_dict()))
            return other
    return scheduler


@pytest.mark.sample(every=17)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("family", [*families_of(random.Random(0)), "sequence", "chain"])
def test_a_scheduler_goes_on_from_its_present_state(family: str, edit: str, seed: int) -> None:
    rng = random.Random(seed)
    make = {**families_of(rng), **composites_of(rng)}[family]
    assert_goes_on(edited_scheduler(make, edit, rng))


@pytest.mark.sample(every=5)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("family", families_of(random.Random(0)))
def test_a_scheduler_that_is_built_again_goes_on_from_the_rate_of_its_group(
    family: str, seed: int
) -> None:
    """With ``last_epoch``, torch takes the rate of the group, whatever the schedule has there."""
    rng = random.Random(seed)
    optimizer = optimizer_of(rng.choice([1e-3, 2e-4]))
    optimizer.param_groups[0]["initial_lr"] = 1e-3
    assert_goes_on(families_of(rng)[family](optimizer, last_epoch=rng.randint(0, 60)))


def test_a_resumed_schedule_is_not_the_ideal_one() -> None:
    optimizer = optimizer_of(1e-3)
    optimizer.param_groups[0]["initial_lr"] = 1e-3
    schedule = cf.from_torch(ExponentialLR(optimizer, 0.9, last_epoch=9))
    assert isinstance(schedule, Schedule)
    assert [float(schedule.exact(step)) for step in (10, 11)] == pytest.approx([1e-3, 9e-4])


def test_a_state_without_a_closed_form_is_refused_with_both_rates() -> None:
    """At the bottom of a cosine torch adds to the rate, and multiplies it from there on."""
    scheduler = CosineAnnealingLR(optimizer_of(0.1), 30, 1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(30):
            scheduler.optimizer.step()
            scheduler.step()
    scheduler.optimizer.param_groups[0]["lr"] = 0.5
    with pytest.raises(TraceError) as caught:
        cf.from_torch(scheduler)
    assert str(caught.value) == (
        "at step 30 the rate is 0.5, and that from the initial rate on is 0.0001: the values that "
        "follow have no known closed form (CosineAnnealingLR, param group 0): import the scheduler "
        "before its first step, or set the rate of the group to the value of the schedule"
    )


class EndsEarly(LRScheduler):
    """A rule of the epoch whose own clock is behind: a value that no attribute of torch shows."""

    behind = 0

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        for group in self.optimizer.param_groups:
            group["lr"] = 1 / (10 + self.last_epoch - (self.behind if epoch is None else 0))
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]


def test_what_a_copy_does_next_is_compared() -> None:
    scheduler = EndsEarly(optimizer_of(0.1))
    assert_goes_on(scheduler, 20)
    scheduler.step()
    scheduler.step()
    scheduler.behind = 1
    with pytest.raises(TraceError) as caught:
        cf.from_torch(scheduler)
    assert str(caught.value).startswith(
        "the schedule differs from the scheduler in its present state: at step 2 the rate is "
    )


def test_the_scheduler_is_not_changed_by_its_copy() -> None:
    scheduler = MultiStepLR(optimizer_of(0.1), [3, 5])
    before = copy.deepcopy(scheduler.state_dict()), scheduler.optimizer.param_groups[0]["lr"]
    cf.from_torch(scheduler)
    assert (scheduler.state_dict(), scheduler.optimizer.param_groups[0]["lr"]) == before

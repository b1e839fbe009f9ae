"""The library checked by its sources: installed packages, traced, and proved equal to its forms.

Not collected with the tests, since the packages are not development dependencies; `make compare`
runs it, and prints a table with a line for each entry of torch, transformers, timm,
pytorch-accelerated and optax: proved; known difference, with its name; compared numerically,
where the prover has no theory of what the step does; or not traceable, and why.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch

import closedform as cf
from closedform import frameworks
from closedform.errors import ClosedFormError, TraceError
from closedform.importers.tensors.check import relative_gap, without_rounding
from closedform.language import Schedule, UpdateRule, state, t
from tests.importers.test_torch_scheduler import LIBRARY as TORCH
from tests.recipes.compare_packages import BASE, HUGGINGFACE, OPTAX, TIMM
from tests.recipes.installed import timm_scheduler
from tests.support.trajectories import trajectory

pytestmark = pytest.mark.packages()
Row = tuple[str, float, str]

ROUNDED = {
    ("timm", "TanhLRScheduler"): "its constructor computes the warmup's slope in float64",
}
ROUNDING = 1e-15
"""Of values up to 0.25: the slope of five steps, rounded."""

PYTORCH_ACCELERATED: list[tuple[str, dict[str, Any]]] = [
    ("CosineLrScheduler", {"total_num_epochs": 10, "num_update_steps_per_epoch": 7}),
    (
        "CosineLrScheduler",
        {"total_num_epochs": 10, "num_update_steps_per_epoch": 7, "num_warmup_epochs": 2}
        | {"k_decay": 1.5, "num_cooldown_epochs": 1},
    ),
    ("WSDLrScheduler", {"total_steps": 1000, "num_warmup_steps": 100}),
    (
        "WSDLrScheduler",
        {"total_steps": 1000, "num_warmup_steps": 100, "num_checkpoints": 3}
        | {"use_inverse_sqrt_decay": False},
    ),
]
NOT_TRACEABLE: Mapping[str, str] = {
    "torch:ReduceLROnPlateau": "depends on a metric",
    "torch:LambdaLR": "is what its functions are: tests/importers/test_torch_scheduler.py",
    "torch:MultiplicativeLR": "is what its functions are: tests/importers/test_torch_scheduler.py",
    "torch:SequentialLR": "is what its parts are: tests/importers/test_torch_scheduler.py",
    "torch:ChainedScheduler": "is what its parts are: tests/importers/test_torch_scheduler.py",
    "huggingface:reduce_lr_on_plateau": "depends on a metric",
    "timm:PlateauLRScheduler": "depends on a metric",
    "pytorch_accelerated:StatefulSchedulerBase:Milestone": "is a base class",
    "pytorch_accelerated:StatefulSchedulerBase:StepWd": "is a base class",
}


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[list[Row]]:
    rows: list[Row] = []
    yield rows
    rows += [(name, 0.0, f"not traceable: {why}") for name, why in NOT_TRACEABLE.items()]
    print()
    for name, seconds, found in sorted(rows):
        print(f"{name:52} {1000 * seconds:6.0f} ms  {found}")


def traced_in(make: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return make(), time.process_time() - began


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1)], lr=BASE, momentum=0.9)


def check(
    system: str,
    name: str,
    kwargs: dict[str, Any],
    traced: tuple[Schedule, float],
    rows: list[Row],
    where: Any = True,
) -> None:
    """The schedule is that of the library, by proof."""
    schedule, seconds = traced
    library = frameworks.schedule(system, name, kwargs, base=BASE, as_implemented=True)
    verdict = cf.claims.equal(schedule, library, where=where).verify()
    found = verdict.status.value
    if not verdict.proved and (system, name) in ROUNDED:
        difference = Schedule(schedule.bound - library.bound)
        verdict = cf.claims.bounded(difference, -ROUNDING, ROUNDING).verify()
        found = f"{verdict.status.value} within {ROUNDING}: {ROUNDED[system, name]}"
    rows.append((f"{system}:{name}", seconds, found))
    assert verdict.proved, (kwargs, verdict)


@pytest.mark.parametrize(("name", "kwargs"), TORCH, ids=str)
def test_torch(name: str, kwargs: dict[str, Any], table: list[Row]) -> None:
    kind = getattr(torch.optim.lr_scheduler, name)
    check(
        "torch", name, kwargs, traced_in(lambda: cf.from_torch(kind(optimizer(), **kwargs))), table
    )


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_one_cycle(strategy: str, table: list[Row]) -> None:
    kwargs = {"max_lr": 0.5, "total_steps": 100, "anneal_strategy": strategy}
    kind: Any = torch.optim.lr_scheduler.OneCycleLR
    traced = traced_in(lambda: cf.from_torch(kind(optimizer(), **kwargs)))
    # torch raises an exception after the last step.
    check("torch", "OneCycleLR", kwargs, traced, table, where=t <= 100)


@pytest.mark.parametrize(("name", "kwargs"), HUGGINGFACE, ids=str)
def test_transformers(name: str, kwargs: dict[str, Any], table: list[Row]) -> None:
    optimization = pytest.importorskip("transformers.optimization")
    make = optimization.TYPE_TO_SCHEDULER_FUNCTION[optimization.SchedulerType(name)]
    scheduler = make(optimizer(), **kwargs)
    check("huggingface", name, kwargs, traced_in(lambda: cf.from_torch(scheduler)), table)


@pytest.mark.parametrize(("name", "kwargs"), TIMM, ids=str)
def test_timm(name: str, kwargs: dict[str, Any], table: list[Row]) -> None:
    scheduler = getattr(timm_scheduler(), name)(optimizer(), **kwargs)
    check("timm", name, kwargs, traced_in(lambda: cf.from_torch(scheduler)), table)


@pytest.mark.parametrize(("name", "kwargs"), PYTORCH_ACCELERATED, ids=str)
def test_pytorch_accelerated(name: str, kwargs: dict[str, Any], table: list[Row]) -> None:
    schedulers = pytest.importorskip("pytorch_accelerated.schedulers")
    scheduler = getattr(schedulers, name)(optimizer(), **kwargs)
    check("pytorch_accelerated", name, kwargs, traced_in(lambda: cf.from_torch(scheduler)), table)


@pytest.mark.parametrize(("name", "kwargs"), OPTAX, ids=str)
def test_optax(name: str, kwargs: dict[str, Any], table: list[Row]) -> None:
    optax = pytest.importorskip("optax")
    made = getattr(optax, name)(**kwargs)
    check("optax", name, kwargs, traced_in(lambda: cf.from_optax(made)), table)


def test_the_join_of_optax(table: list[Row]) -> None:
    optax = pytest.importorskip("optax")
    kwargs = {"init_value": 0.0, "end_value": 1.0, "transition_steps": 10}
    part = {"class": "linear_schedule", "kwargs": kwargs}
    made = optax.join_schedules([optax.linear_schedule(**kwargs)] * 2, [8])
    config = {"schedules": [part, part], "boundaries": [8]}
    check("optax", "join_schedules", config, traced_in(lambda: cf.from_optax(made)), table)


def test_every_schedule_has_a_line(table: list[Row]) -> None:
    known = {name for name, _, _ in table} | set(NOT_TRACEABLE)
    systems = ("torch", "huggingface", "timm", "pytorch_accelerated", "optax")
    entries = {f"{one}:{name}" for one in systems for name in frameworks.names(one).schedules}
    assert entries <= known


# --- optimizers ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """An optimizer and the rule of the library.

    Attributes:
        name: The entry.
        make: The optimizer or transformation.
        library: The rule.
        states: The state of the library's rule by name: a state of the traced rule, or its value.
        known: The name of the difference, if there is one.
        is_numeric: Whether it is compared numerically: the prover has no theory of sums or
            products of matrices.
        invariants: Conditions on states of the traced rule that hold before every step.
    """

    name: str
    make: Callable[[], Any]
    library: Callable[[], UpdateRule]
    states: Mapping[str, Any] = field(default_factory=dict)
    known: str = ""
    is_numeric: bool = False
    invariants: tuple[sp.Basic, ...] = ()


def of_torch(name: str, **options: Any) -> Case:
    def make() -> Any:
        shapes = ((4, 3), (5, 2)) if name in ("Adafactor", "Muon") else ((4, 3), (5,))
        params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
        return getattr(torch.optim, name)(params, lr=0.01)

    def library() -> UpdateRule:
        return frameworks.optimizer("torch", name, {"lr": 0.01}, as_implemented=True)

    return Case(f"torch:{name}", make, library, **options)


def of_optax(name: str, library: Callable[[], UpdateRule], **options: Any) -> Case:
    def make() -> Any:
        import optax

        return getattr(optax, name)(0.01)

    return Case(f"optax:{name}", make, library, **options)


def above(*names: str) -> tuple[sp.Basic, ...]:
    return tuple(state(name) >= 0 for name in names)


MOMENTS = {"exp_avg": "mu", "exp_avg_sq": "nu"}
NU = above("nu")
CASES = [
    of_torch("SGD"),
    of_torch("Adam", invariants=above("exp_avg_sq")),
    of_torch("AdamW", invariants=above("exp_avg_sq")),
    of_torch("RMSprop", invariants=above("square_avg")),
    of_torch("Adagrad", invariants=above("sum")),
    of_torch("Adamax", invariants=above("exp_inf")),
    of_torch("NAdam", is_numeric=True),
    of_torch("RAdam", invariants=above("exp_avg_sq")),
    of_torch("Adadelta", invariants=above("square_avg", "acc_delta")),
    of_torch("Rprop", is_numeric=True),
    of_torch("ASGD", is_numeric=True),
    of_torch("Adafactor", is_numeric=True),
    of_torch("Muon", is_numeric=True),
    of_optax("sgd", lambda: cf.optimizers.sgd(0.01)),
    of_optax("adam", lambda: cf.optimizers.adam(0.01), states=MOMENTS, invariants=NU),
    of_optax(
        "adamw", lambda: cf.optimizers.adamw(0.01, weight_decay=1e-4), states=MOMENTS, invariants=NU
    ),
    of_optax(
        "adamax",
        lambda: cf.optimizers.adamax(0.01),
        states={"exp_avg": "mu", "exp_inf": "nu"},
        invariants=NU,
    ),
    of_optax("adabelief", lambda: cf.optimizers.adabelief(0.01), is_numeric=True),
    of_optax(
        "adagrad",
        lambda: cf.optimizers.adagrad(0.01),
        is_numeric=True,
        known="begins at 0.1, adds eps inside of the root, and does not divide by 0",
    ),
    of_optax(
        "rmsprop",
        lambda: cf.optimizers.rmsprop(0.01, alpha=0.9, eps=1e-8),
        is_numeric=True,
        known="eps inside of the root",
    ),
    of_optax("lion", lambda: cf.optimizers.lion(0.01, weight_decay=1e-3), states={"exp_avg": "mu"}),
    of_optax("sign_sgd", lambda: cf.optimizers.signum(0.01, 0, 0), is_numeric=True),
    of_optax("yogi", lambda: cf.optimizers.yogi(0.01), is_numeric=True),
    of_optax("sm3", lambda: cf.optimizers.sm3(0.01, (0.9, 1.0), 1e-8), is_numeric=True),
    of_optax(
        "radam",
        lambda: cf.optimizers.radam(0.01),
        is_numeric=True,
        known="eps beside the corrected root",
    ),
    of_optax(
        "nadam", lambda: cf.optimizers.nadam(0.01), is_numeric=True, known="no momentum decay"
    ),
]
# Some dozen roundings of 1.1e-16 in each of 30 steps.
EQUAL = 1e-12


def gap_of(one: UpdateRule, other: UpdateRule) -> float:
    """The largest relative difference of parameters in 30 steps."""
    rng = np.random.default_rng(2)
    shapes = {"a": (4, 3), "b": (5, 2)}
    start = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    gradients = [{k: rng.normal(size=v.shape) for k, v in start.items()} for _ in range(30)]
    pairs = zip(
        trajectory(without_rounding(one), start, gradients),
        trajectory(without_rounding(other), start, gradients),
        strict=True,
    )
    return max(relative_gap(a[f"param.{k}"], b[f"param.{k}"]) for a, b in pairs for k in start)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_optimizers(case: Case, table: list[Row]) -> None:
    if case.name.startswith("optax:"):
        pytest.importorskip("optax")
    read = cf.from_optax if case.name.startswith("optax:") else cf.from_torch
    traced, seconds = traced_in(lambda: read(case.make()))
    library = case.library()
    if not case.is_numeric:
        claim = cf.claims.same_rule(traced, library, states=case.states, invariants=case.invariants)
        verdict = claim.verify()
        found = verdict.status.value
        if case.known:
            assert not verdict.proved
            gap = gap_of(traced, library)
            found = f"known difference ({gap:.1e} in 30 steps): {case.known}"
        table.append((case.name, seconds, found))
        assert verdict.proved or case.known, verdict
        return
    gap = gap_of(traced, library)
    found = f"known difference: {case.known}; " if case.known else ""
    table.append((case.name, seconds, f"{found}{gap:.1e} apart in 30 steps"))
    assert gap <= EQUAL or case.known


def test_every_optimizer_of_torch_has_a_line() -> None:
    named = {case.name.removeprefix("torch:") for case in CASES}
    assert set(frameworks.names("torch").optimizers) <= named


def test_what_is_not_traceable_says_so() -> None:
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer())
    with pytest.raises((TraceError, ClosedFormError), match="metric"):
        cf.from_torch(plateau)

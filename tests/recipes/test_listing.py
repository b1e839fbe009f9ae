"""The schedules that each class is said to build: traced, or shown by equal values."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from inspect import unwrap
from types import FrameType
from typing import Any

import numpy as np
import pytest

from closedform import frameworks, schedules
from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.recipes.formulas import FORMULAS
from tests.recipes.compare_packages import OPTAX
from tests.reference.records import Row, other_system_records, schedule_records

STEPS = range(60)
# The functions of the library by their code, to know them in a trace.
LIBRARY = {unwrap(getattr(schedules, name)).__code__: name for name in schedules.__all__}

KERAS: list[tuple[str, dict[str, Any]]] = [
    ("ExponentialDecay", {"initial_learning_rate": 1, "decay_steps": 9, "decay_rate": 0.5}),
    ("PiecewiseConstantDecay", {"boundaries": [5], "values": [1, 0.5]}),
    ("PolynomialDecay", {"initial_learning_rate": 1, "decay_steps": 9}),
    ("InverseTimeDecay", {"initial_learning_rate": 1, "decay_steps": 9, "decay_rate": 0.5}),
    ("CosineDecay", {"initial_learning_rate": 1, "decay_steps": 9}),
    ("CosineDecayRestarts", {"initial_learning_rate": 1, "first_decay_steps": 9}),
]
LINE = {"class": "linear_schedule", "kwargs": dict(OPTAX[1][1])}
JOINED = {"schedules": [LINE, LINE], "boundaries": [8]}


def rows() -> Iterable[Row]:
    yield from schedule_records()
    yield from other_system_records()
    for system, examples in (("keras", KERAS), ("optax", [("join_schedules", JOINED)])):
        for name, kwargs in examples:
            yield {"system": system, "class": name, "kwargs": kwargs, "base": 1}


def called(build: Callable[[], object]) -> set[str]:
    """The functions of the library that are called while something is built."""
    seen = set()

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code in LIBRARY:
            seen.add(LIBRARY[frame.f_code])

    sys.setprofile(look)
    try:
        build()
    except ClosedFormError:
        return set()
    finally:
        sys.setprofile(None)
    return seen


def build(row: Row) -> Schedule | list[Schedule | None]:
    if "param_groups" not in row:
        return frameworks.schedule(
            row["system"], row["class"], row["kwargs"], base=row["base"], as_implemented=False
        )
    groups = [{**group, "adjust_learning_rate": 0.5} for group in row["param_groups"]]
    return frameworks.schedules(
        row["system"],
        row["class"],
        row["kwargs"],
        groups,
        key=row["key"],
        as_implemented=False,
    )


# (system, class, arguments, the same of the library, up to which step): formulas that a class
# writes down itself, since it has more arguments than the library. The base value is 1.
SAME: list[tuple[str, str, dict[str, Any], Callable[[], Schedule], int]] = [
    (
        "torch",
        "ChainedScheduler",
        {
            "schedulers": [
                {"class": "ExponentialLR", "kwargs": {"gamma": 0.9}},
                {"class": "CosineAnnealingLR", "kwargs": {"T_max": 7}},
            ]
        },
        lambda: schedules.chained(
            [schedules.multiplicative(1, 0.9), schedules.cosine_annealing(1, 0, 7)]
        ),
        60,
    ),
    (
        "torch",
        "MultiplicativeLR",
        {"lr_lambda": {"expr": "0.9"}},
        lambda: schedules.multiplicative(1, 0.9),
        60,
    ),
    (
        "huggingface",
        "warmup_stable_decay",
        {
            "num_warmup_steps": 5,
            "num_decay_steps": 9,
            "num_training_steps": 40,
            "decay_type": "linear",
            "min_lr_ratio": 0.1,
        },
        lambda: schedules.wsd(1, 0.1, 40, 5, 9, warmup_start=0.1),
        60,
    ),
    (
        "keras",
        "CosineDecayRestarts",
        {"initial_learning_rate": 1, "first_decay_steps": 5},
        lambda: schedules.warm_restarts(1, 0, 5, multiplier=2),
        60,
    ),
    (
        "timm",
        "CosineLRScheduler",
        {"t_initial": 40, "lr_min": 0.1, "k_decay": 1.5},
        lambda: schedules.cosine_k_decay(1, 0.1, 40, 1.5),
        60,
    ),
    (
        "timm",
        "CosineLRScheduler",
        {"t_initial": 5, "lr_min": 0.1, "cycle_mul": 2, "cycle_limit": 3},
        lambda: schedules.warm_restarts(1, 0.1, 5, multiplier=2, restarts=2),
        60,
    ),
    (
        "timm",
        "TanhLRScheduler",
        {"t_initial": 40},
        lambda: schedules.tanh_decay(1, 0, 40, -7, 3),
        40,  # from there on timm jumps to lr_min
    ),
    (
        "timm",
        "PolyLRScheduler",
        {"t_initial": 40, "power": 2, "lr_min": 0.1},
        lambda: schedules.polynomial(1, 0.1, 40, 2),
        60,
    ),
    (
        "timm",
        "WSDLRScheduler",
        {"t_initial": 40, "decay_t": 15, "warmup_t": 5, "decay_fn": "linear", "lr_min": 0.1},
        lambda: schedules.wsd(1, 0.1, 45, 5, 15),
        60,
    ),
]


@pytest.mark.parametrize("index", range(len(SAME)))
def test_formula_of_a_class_is_that_of_the_library(index: int) -> None:
    system, name, kwargs, library, until = SAME[index]
    computed = frameworks.schedule(system, name, kwargs, base=1)
    known = library()
    assert [computed.exact(n) - known.exact(n) for n in range(until)] == [0] * until


@pytest.mark.parametrize("system", frameworks.FRAMEWORKS)
def test_classes_build_what_they_say(system: str) -> None:
    entries = frameworks.FRAMEWORKS[system].schedules
    # By builder: the lr, wd and generic classes of cerebras share one.
    seen: dict[Any, set[str]] = {entry.build: set() for entry in entries.values()}
    for other, name, _, library, _ in SAME:
        if other == system:
            seen[entries[name].build] |= called(library)
    for row in rows():
        if row["system"] != system or row["class"] not in entries:
            continue
        entry = entries[row["class"]]
        if not set(entry.builds) <= seen[entry.build]:
            seen[entry.build] |= called(partial(build, row))
    for name, entry in entries.items():
        traced = seen[entry.build]
        if entry.rule is not None:
            traced = called(partial(frameworks.metric_rule, system, name, {}))
        assert set(entry.builds) <= traced, name


def test_listing_is_derived_from_the_entries() -> None:
    built = frameworks.known_as("cosine")
    assert {name: built[name] for name in ("cerebras", "keras", "optax")} == {
        "cerebras": ("CosineDecayLR", "CosineDecayWD", "CosineDecayScheduler"),
        "keras": ("CosineDecay",),
        "optax": (
            "cosine_decay_schedule",
            "cosine_onecycle_schedule",
            "warmup_cosine_decay_schedule",
            "sgdr_schedule",
        ),
    }
    assert frameworks.known_as("one_cycle_momentum") == {"torch": ("OneCycleLR",)}
    assert frameworks.known_as("hyperbolic") == {}


def test_formulas_that_readers_write_out_are_named() -> None:
    for schedule, found in FORMULAS.items():
        assert schedule in schedules.__all__
        for framework, classes in found.items():
            assert set(classes) <= set(frameworks.names(framework).schedules), framework
    assert frameworks.known_as("tri_stage") == {"fairseq": ("tri_stage",)}


def test_sources_are_names_in_their_frameworks() -> None:
    """A class that the docstring of a schedule names is found under that framework."""
    for name in FORMULAS:
        source = (inspect.getdoc(getattr(schedules, name)) or "").partition("Source:")[2]
        known = {each for found in frameworks.known_as(name).values() for each in found}
        named = set(re.findall(r"``(\w+)`` of (?:fairseq|OLMo|OLMo-core|axolotl)\b", source))
        assert named <= known | {"lr_quadratic_warmup", "cosine_constant_lr_ratio"}, name


def test_tri_stage_of_fairseq_is_that_of_the_library() -> None:
    built = frameworks.schedule(
        "fairseq",
        "tri_stage",
        {
            "lr_scheduler": {
                "_name": "tri_stage",
                "warmup_steps": 10,
                "hold_steps": 30,
                "decay_steps": 60,
                "init_lr_scale": 0.01,
                "final_lr_scale": 0.05,
            },
            "optimization": {"lr": [2.0], "max_update": 100},
        },
    )
    ours = schedules.tri_stage(2, 0.1, warmup=10, hold=30, decay=60, warmup_start=0.02)
    steps = np.arange(101)
    np.testing.assert_allclose(built(steps), ours(steps), rtol=1e-14)

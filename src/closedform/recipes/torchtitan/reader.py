"""The reader of torchtitan's configs: TOML sections, or a ``Trainer.Config(…)`` in Python.

A TOML config belongs to the commits that have its keys: ``training.warmup_steps`` until March
2025, ``training.batch_size`` until June 2025, ``lr_scheduler.lr_min`` until July 2025.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.document import Document
from closedform.recipes.documents.python_text import literal
from closedform.recipes.documents.values import Call, Unresolved
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, ParamGroup, Recipe
from closedform.recipes.section import Section, calls, whole
from closedform.recipes.torchtitan.schedules import SCHEDULES, VERSIONS

NEWEST, WITH_LR_MIN, WITH_BATCH_SIZE, _, WITHOUT_SECTION, _ = VERSIONS

_TOP = ("optimizer", "lr_scheduler")
_OPTIMIZER = (
    "name",
    "lr",
    "beta1",
    "beta2",
    "eps",
    "weight_decay",
    "implementation",
    "fused",
    "early_step_in_backward",
)
_SCHEDULER = (
    "warmup_steps",
    "total_steps",
    "decay_ratio",
    "decay_type",
    "lr_min",
    "min_lr_factor",
)
_CONTAINER = ("param_groups", "implementation", "optimizer_factory_kwargs_by_name")
_NAMES = ("AdamW", "Adam", "DistMuon")
_STEPS = 10_000
_NOTES: Mapping[str, tuple[str, str]] = {
    NEWEST: ("last-update-above-minimum", "the last update stops one step short of the minimum"),
    WITH_BATCH_SIZE: (
        "one-update-more",
        "the divisors of the warmup and the decay are one update longer than these",
    ),
    WITHOUT_SECTION: (
        "one-update-more",
        "the divisor of the warmup is one update longer than it, and the rate jumps at its end",
    ),
}


def _matches(document: Document) -> bool:
    if document.python is not None:
        return any(_trainers(document)) or "config.optimizer" in document.content
    training = document.content.get("training")
    has_keys = isinstance(training, dict) and "steps" in training
    return has_keys and bool({"optimizer", "lr_scheduler"} & set(document.content))


def _read(reading: Reading) -> Recipe:
    if reading.document.python is not None:
        return _from_python(reading)
    config = whole(reading.document)
    config.check_related(_TOP)
    optimizer, training = config.section("optimizer"), config.section("training")
    optimizer.check(_OPTIMIZER)
    group = _from_section(optimizer)
    return _recipe(reading, training, config.section("lr_scheduler"), [(group, {})])


def _from_section(optimizer: Section) -> ClassOptimizer:
    """The optimizer by the fields of the time before param groups."""
    name = optimizer.text("name", "AdamW")
    if name not in ("AdamW", "Adam"):
        raise optimizer.error(
            f"the optimizer must be Adam or AdamW, got {name!r}", "name", nearest(name, _NAMES)
        )
    betas = (optimizer.number("beta1", 0.9), optimizer.number("beta2", 0.95))
    defaults = {"lr": 8e-4, "betas": betas, "eps": 1e-8, "weight_decay": 0.1}
    return class_optimizer(
        optimizer,
        name,
        ("name", "beta1", "beta2", "implementation", "early_step_in_backward"),
        defaults,
    )


def _version(training: Section, scheduler: Section, version: str) -> str:
    """The version that has the keys of a config; the one that is asked for where it has them."""
    if version != NEWEST:
        return version
    if "warmup_steps" in training:
        return WITHOUT_SECTION
    if "batch_size" in training:
        return WITH_BATCH_SIZE
    return WITH_LR_MIN if "lr_min" in scheduler else NEWEST


def _recipe(
    reading: Reading,
    training: Section,
    scheduler: Section,
    groups: list[tuple[ClassOptimizer, dict[str, Any]]],
) -> Recipe:
    training.check_related(("warmup_steps",))
    scheduler.check(_SCHEDULER)
    version = _version(training, scheduler, reading.version)
    total = training.integer("steps", _STEPS)
    made: list[ParamGroup] = []
    for optimizer, named in groups:
        rate = _rate(training, scheduler, version, int(total), optimizer.lr)
        made.append(optimizer.group(rate, **named))
    name, note = _NOTES.get(
        WITH_BATCH_SIZE if version in VERSIONS[2:4] else version, _NOTES[NEWEST]
    )
    return Recipe(
        reading.document.name,
        "torchtitan",
        tuple(made),
        horizon=int(total),
        version=version,
        source=reading.document.source,
        facts=reading.facts,
        clipping=Clipping(training.number("max_norm", 1.0)),
        notes={name: note},
        derived={"total_updates": int(total)},
    )


def _rate(training: Section, scheduler: Section, version: str, total: int, base: Any) -> Schedule:
    place = training if version in VERSIONS[4:] else scheduler
    if "lr_min" in scheduler and "min_lr_factor" in scheduler:
        raise scheduler.error("lr_min and min_lr_factor are two names of one value", "lr_min")
    decay = scheduler.text("decay_type", "linear")
    lowest = scheduler.number("min_lr_factor", scheduler.number("lr_min", 0.0))
    arguments = {
        "warmup_steps": place.number("warmup_steps", 200),
        "decay_ratio": scheduler.number("decay_ratio", None),
        "decay_type": decay,
        "min_lr_factor": lowest,
        "total_steps": scheduler.integer("total_steps", None),
    }
    name = f"lr_scheduler-{decay}"
    if name not in SCHEDULES:
        known = [one.removeprefix("lr_scheduler-") for one in SCHEDULES]
        raise scheduler.error(
            f"there is no decay_type {decay!r}", "decay_type", nearest(decay, known)
        )
    facts = {"training_steps": total, "optimizer_lr": base}
    with scheduler.located():
        return built("torchtitan", SCHEDULES, name, arguments, facts=facts, version=version)


def _trainers(document: Document) -> list[Call]:
    return [
        one
        for one in calls(document.values)
        if one.name.endswith("Config") and {"optimizer", "lr_scheduler"} & set(one.kwargs)
    ]


def _from_python(reading: Reading) -> Recipe:
    document = reading.document
    trainers = _trainers(document)
    if len(trainers) > 1:
        names = ", ".join(one.name for one in trainers)
        raise document.error(f"one Trainer.Config must be in the file, got {names}", "")
    if not trainers:
        raise document.error(
            "the file changes a config that is made elsewhere, which has the schedule and the run",
            "",
            hint="give the file of the whole Trainer.Config",
        )
    content = {**trainers[0].kwargs}
    for key, value in content.items():
        content[key] = _attribute(value, document)
    plain = replace(document, content=content)
    config = whole(plain)
    config.check_related(_TOP)
    groups = _groups(config, content.get("optimizer"))
    return _recipe(reading, config.section("training"), config.section("lr_scheduler"), groups)


def _attribute(value: Any, document: Document) -> Any:
    """A call whose arguments may be the ``.param_groups`` of another call."""
    if not isinstance(value, Call):
        return value
    kwargs = dict(value.kwargs)
    given = kwargs.get("param_groups")
    if isinstance(given, Unresolved) and given.text.endswith(".param_groups"):
        text = given.text.removesuffix(".param_groups")
        try:
            kwargs["param_groups"] = literal(
                ast.parse(text, mode="eval").body, document.content, document.source
            )
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return value
    return replace(value, kwargs=kwargs)


def _groups(config: Section, given: Any) -> list[tuple[ClassOptimizer, dict[str, Any]]]:
    """The optimizers of the param groups, the one of all other parameters first."""
    made = given.kwargs.get("param_groups") if isinstance(given, Call) else None
    if isinstance(made, Call):
        given = made
    if given is None or (isinstance(given, Call) and given.name.endswith("default_adamw")):
        kwargs = {} if given is None else dict(given.kwargs)
        if given is not None and given.args:
            kwargs["lr"] = given.args[0]
        content = Section(config.document, kwargs, "optimizer")
        defaults = {"lr": 8e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
        return [(class_optimizer(content, "AdamW", (), defaults), {})]
    section = config.section("optimizer")
    if "param_groups" not in section:
        section.check((*_OPTIMIZER, *_CONTAINER))
        return [(_from_section(section), {})]
    section.check(_CONTAINER)
    found = []
    for one in section.sections("param_groups"):
        one.check(("pattern", "optimizer_name", "optimizer_kwargs"))
        pattern, name = one.text("pattern"), one.text("optimizer_name")
        arguments = one.section("optimizer_kwargs")
        is_rest = pattern == ".*"
        named = {"name": "" if is_rest else pattern, "patterns": (pattern,)}
        found.append((class_optimizer(arguments, name), named))
    return sorted(found, key=lambda one: one[1]["name"] != "")


READER = Reader(_read, _matches)

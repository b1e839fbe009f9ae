"""The reader of torchtune's YAML configs: ``optimizer``, ``lr_scheduler`` and the run's length."""

from __future__ import annotations

from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.document import Document, interpolated
from closedform.recipes.optimizer_classes import class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, Recipe
from closedform.recipes.section import Section, whole
from closedform.recipes.torchtune.schedules import SCHEDULES

_TOP = ("lr_scheduler", "optimizer", "optimizer_in_bwd")
_SCHEDULER = ("_component_", "num_warmup_steps", "num_cycles", "last_epoch")
_NOTES = {"cosine-climbs": "the cosine rises again after the run"}


def _matches(document: Document) -> bool:
    section = document.content.get("optimizer")
    return isinstance(section, dict) and "_component_" in section


def _read(reading: Reading) -> Recipe:
    document = interpolated(reading.document)
    config = whole(document)
    config.check_related(_TOP)
    optimizer = config.section("optimizer")
    made = class_optimizer(optimizer, optimizer.text("_component_"), ("_component_",))
    scheduler = config.section("lr_scheduler")
    rate = _rate(scheduler, made.lr, reading) if scheduler.content else None
    threshold = config.value("clip_grad_norm")
    return Recipe(
        document.name,
        "torchtune",
        (made.group(rate),),
        horizon=_total(config, reading),
        version=reading.version,
        source=document.source,
        facts=reading.facts,
        clipping=None if threshold is None else Clipping(threshold),
        accumulation=config.integer("gradient_accumulation_steps", None),
        notes=_NOTES if scheduler.content else {},
    )


def _rate(scheduler: Section, base: Any, reading: Reading) -> Schedule:
    component = scheduler.text("_component_")
    package, _, name = component.rpartition(".")
    if name not in SCHEDULES or package not in _PACKAGES:
        raise scheduler.error(
            f"torchtune passes num_training_steps and last_epoch, which {component!r} is not known "
            "to take",
            "_component_",
            nearest(component, [f"{_PACKAGES[0]}.{one}" for one in SCHEDULES]),
        )
    scheduler.check(_SCHEDULER)
    total = _total(whole(scheduler.document), reading)
    if total is None:
        (total,) = reading.facts.require("total_updates", where=reading.document.source)
    arguments = {
        "num_warmup_steps": scheduler.integer("num_warmup_steps"),
        "num_training_steps": int(total),
        "num_cycles": scheduler.number("num_cycles", 0.5),
    }
    with scheduler.located():
        return built("torchtune", SCHEDULES, name, arguments, base=base)


_PACKAGES = ("torchtune.training.lr_schedulers", "torchtune.training", "torchtune.modules")
"""The modules that have had the schedule; the last one until 2024."""


def _total(config: Section, reading: Reading) -> int | None:
    """The updates of the run: those of the facts, or epochs times their updates, at most a cap."""
    if reading.facts.total_updates is not None:
        return reading.facts.total_updates
    epochs, length = config.integer("epochs", None), reading.facts.updates_per_epoch
    if epochs is None or length is None:
        return None
    most = config.integer("max_steps_per_epoch", None)
    return int(epochs) * (int(length) if most is None else min(int(length), int(most)))


READER = Reader(_read, _matches)

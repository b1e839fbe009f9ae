"""The reader of Ultralytics' training arguments: YAML, or ``key=value`` words of a command line.

The facts are ``updates_per_epoch``, the micro-batches of an epoch here as the trainer counts them,
and ``dataset_size``, the images, where the optimizer is ``auto``.
"""

from __future__ import annotations

import math
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.document import Document
from closedform.recipes.entries import Context, build_schedule
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.recipes.ultralytics.schedules import (
    DEFAULTS,
    OPTIMIZERS,
    SCHEDULES,
    read_run,
)

_FRAMEWORK = "ultralytics"
_TEXTS, _FLAGS, _WHOLE = ("optimizer",), ("cos_lr",), ("epochs", "batch", "nbs")
_OWN = ("lr0", "lrf", "warmup_epochs", "warmup_bias_lr", "nbs")
_NOTES = {
    "warmup-to-current-epoch": "the warmup rises to the rate of the current epoch",
    "auto-ignores-lr0": "optimizer=auto ignores lr0, momentum and warmup_bias_lr",
    "decay-scaled": "the weight decay is scaled by batch * accumulate / nbs",
}


def matches(document: Document) -> bool:
    """Returns whether a config has keys that only Ultralytics has."""
    return sum(key in document.content for key in _OWN) >= 2


def read(reading: Reading) -> Recipe:
    """Returns the recipe of training arguments.

    Raises:
        ConfigError: A key is unknown, or a value is not valid.
        ArgumentError: The micro-batches of an epoch are missing, or the images for ``auto``.
    """
    top = whole(reading.document)
    top.check_related(DEFAULTS)
    given = {key: _value(top, key, default) for key, default in DEFAULTS.items()}
    names = {one.lower(): one for one in OPTIMIZERS}
    if str(given["optimizer"]).lower() not in names:
        raise top.error(
            f"there is no optimizer {given['optimizer']!r}",
            "optimizer",
            nearest(str(given["optimizer"]), OPTIMIZERS),
        )
    given["optimizer"] = names[str(given["optimizer"]).lower()]
    facts = _facts(reading, top, given)
    name = "cos_lr" if given["cos_lr"] else "linear"

    def schedule(key: str, group: str) -> Schedule:
        context = Context(
            _FRAMEWORK,
            SCHEDULES,
            key=key,
            as_implemented=reading.as_implemented,
            facts={**facts, "param_group": group},
            version=reading.version,
        )
        with top.located():
            return build_schedule(name, given, context)

    with top.located():
        run = read_run(given, Context(_FRAMEWORK, SCHEDULES, path=(name,), facts=facts))
    keys = ["lr", "weight_decay"]
    keys += ["momentum"] if run.optimizer in ("RMSprop", "SGD", "MuSGD") else []
    plan = _plan(run.optimizer, run.momentum, top)
    groups = [
        ParamGroup({key: schedule(key, group) for key in keys}, plan, role, name)
        for group, role, name in _GROUPS
    ]
    notes = ["decay-scaled"]
    notes += ["warmup-to-current-epoch"] if run.warmup else []
    notes += ["auto-ignores-lr0"] if given["optimizer"] == "auto" else []
    return Recipe(
        name=reading.document.name,
        framework=_FRAMEWORK,
        param_groups=tuple(groups),
        horizon=_updates(schedule("accumulate", "weight"), run.batches * run.epochs),
        version=reading.version,
        source=reading.document.source,
        clock=Clock(Unit.MICRO_BATCH),
        clipping=Clipping(10.0),
        accumulation=run.accumulate,
        notes={one: _NOTES[one] for one in notes},
    )


_GROUPS = (
    ("weight", Role.DEFAULT, ""),
    ("bn", Role.NORM, "bn"),
    ("bias", Role.BIAS, "bias"),
)
"""The groups of the trainer, their roles, and their names here."""


def _value(top: Section, key: str, default: Any) -> Any:
    if key in _TEXTS:
        return top.text(key, default)
    if key in _FLAGS:
        return top.flag(key, default)
    return (top.integer if key in _WHOLE else top.number)(key, default)


def _facts(reading: Reading, top: Section, given: dict[str, Any]) -> dict[str, Any]:
    """The numbers of the run: the micro-batches of an epoch, and the images."""
    facts, where = reading.facts, reading.document.source
    batches = facts.updates_per_epoch
    if batches is None:
        (images,) = facts.require("dataset_size", where=where)
        batches = math.ceil(images / given["batch"])
    images = facts.dataset_size
    if images is None and given["optimizer"] == "auto":
        (images,) = facts.require("dataset_size", where=where)
    found: dict[str, Any] = {"batches_per_epoch": int(batches)}
    if images is not None:
        found["images"] = int(images)
    classes = top.integer("nc", None)
    return found if classes is None else {**found, "nc": classes}


def _updates(needed: Schedule, batches: int) -> int:
    """The updates of the run: each takes as many micro-batches as are accumulated at that time.

    After the warmup the number does not change, so that only updates of the warmup are counted.
    """
    last = int(needed.exact(10**9))
    seen, updates = 0, 0
    while seen < batches:
        each = int(needed.exact(updates))
        if each == last:
            return updates + (batches - seen) // each
        seen += each
        updates += 1
    return updates


def _plan(name: str, momentum: Any, top: Section) -> OptimizerPlan:
    place = top.document.place(top.at("optimizer"))
    if name in ("SGD", "MuSGD"):
        rule = "sgd" if name == "SGD" else name
        return planned(rule, {"momentum": momentum, "nesterov": True}, where=place)
    if name == "RMSprop":
        return planned("rmsprop", {"momentum": momentum}, where=place)
    return planned(name, {"betas": (momentum, 0.999)}, where=place)


READER = Reader(read, matches)

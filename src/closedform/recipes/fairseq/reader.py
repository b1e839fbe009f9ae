"""The reader of fairseq's configs: Hydra files with their defaults merged, and command lines.

``optimization``, ``optimizer`` and ``lr_scheduler`` are read. The groups of a composite optimizer
have schedulers of their own. A group's rate is ``lr_float``, or else that of ``optimization``: its
``lr`` is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform import optimizers
from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.clock import Clock
from closedform.recipes.document import Document, Form, interpolated
from closedform.recipes.documents.values import Unresolved
from closedform.recipes.entries import REQUIRED
from closedform.recipes.fairseq.schedules import CLASSES, SCHEDULES
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

_FRAMEWORK = "fairseq"
_PASS_THROUGH = "pass_through"
_OPTIMIZATION = (
    "lr",
    "max_update",
    "max_epoch",
    "stop_time_hours",
    "clip_norm",
    "sentence_avg",
    "update_freq",
    "stop_min_lr",
    "use_bmuf",
    "skip_remainder_batch",
    "debug_param_names",
)
_OPTIMIZERS: Mapping[str, tuple[str, ...]] = {
    "adam": ("adam_betas", "adam_eps", "use_old_adam", "fp16_adam_stats", "tpu", "amsgrad"),
    "cpu_adam": ("adam_betas", "adam_eps", "fp16_adam_stats"),
    "adamax": ("adamax_betas", "adamax_eps", "no_bias_correction"),
    "adadelta": ("adadelta_rho", "adadelta_eps", "anneal_eps"),
    "adagrad": (),
    "adafactor": (
        "adafactor_eps",
        "clip_threshold",
        "decay_rate",
        "beta1",
        "scale_parameter",
        "relative_step",
        "warmup_init",
    ),
    "lamb": ("lamb_betas", "lamb_eps"),
    "nag": ("momentum",),
    "sgd": ("momentum",),
}
"""The optimizers with their own options."""
_COMMON = ("_name", "weight_decay", "lr")
_GROUP = ("lr", "lr_float", "optimizer", "lr_scheduler")
_NOTES = {
    "group-rate-ignored": "lr of a group has no effect: lr_float, or else optimization.lr, counts",
    "cosine-restarts": "after its period the cosine restarts, lower by lr_shrink",
    "zero-rate": "the rate is 0 in every update",
}


def matches(document: Document) -> bool:
    """Returns whether a config has the sections or the flags of fairseq."""
    found = document.content
    if document.form is Form.ARGUMENTS:
        return "lr-scheduler" in found and ("max-update" in found or "max-epoch" in found)
    return isinstance(found.get("optimization"), Mapping) and "optimizer" in found


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown or missing, or a value is not valid.
        ArgumentError: A fact is missing.
    """
    document = interpolated(reading.document)
    if document.form is Form.ARGUMENTS:
        document = _from_flags(document)
    top = whole(document)
    for key in ("optimization", "optimizer", "lr_scheduler"):
        if key not in top:
            raise top.error(
                f"{key} is missing", hint="merge the defaults of Hydra into the file first"
            )
    optimization = _determined(top.section("optimization"), ("max_update", "max_epoch"))
    optimization.check(_OPTIMIZATION)
    optimizer, scheduler = _named(top, "optimizer"), _named(top, "lr_scheduler")
    notes: dict[str, str] = {}
    if optimizer.text("_name", "") == "composite":
        groups = _composite(reading, optimization, optimizer, scheduler, notes)
    else:
        groups = (_group(reading, optimization, optimizer, scheduler, ""),)
    if any(group.schedules["lr"].bound == 0 for group in groups):
        notes["zero-rate"] = _NOTES["zero-rate"]
    accumulation = optimization.numbers("update_freq", (1,))
    threshold = optimization.number("clip_norm", 0.0)
    return Recipe(
        name=document.name,
        framework=_FRAMEWORK,
        param_groups=groups,
        horizon=_horizon(reading, optimization),
        version=reading.version,
        source=document.source,
        clock=Clock(),
        clipping=Clipping(threshold) if threshold else None,
        accumulation=int(accumulation[0]),
        notes=notes,
    )


def _determined(section: Section, keys: tuple[str, ...]) -> Section:
    """A section without those of some entries that the file leaves open, as ``???``."""
    known = {
        key: value
        for key, value in section.content.items()
        if key not in keys or not isinstance(value, Unresolved)
    }
    return Section(section.document, known, section.path)


def _named(outer: Section, key: str) -> Section:
    """A section that may be its name alone."""
    value = outer.value(key)
    if isinstance(value, str):
        return Section(outer.document, {"_name": value}, outer.at(key))
    return outer.section(key)


def _horizon(reading: Reading, optimization: Section) -> int | None:
    updates = optimization.integer("max_update", 0)
    epochs, length = optimization.integer("max_epoch", 0), reading.facts.updates_per_epoch
    ends = [updates] if updates else []
    ends += [int(epochs * length)] if epochs and length else []
    return min(ends) if ends else reading.facts.total_updates


def _composite(
    reading: Reading,
    optimization: Section,
    optimizer: Section,
    scheduler: Section,
    notes: dict[str, str],
) -> tuple[ParamGroup, ...]:
    """The groups of a composite optimizer, with the scheduler of each."""
    optimizer.check((*_COMMON, "groups", "dynamic_groups"))
    name = scheduler.text("_name", _PASS_THROUGH)
    if name != _PASS_THROUGH:
        raise scheduler.error(
            f"the groups of a composite optimizer need the scheduler pass_through, got {name!r}",
            "_name",
        )
    groups = optimizer.section("groups")
    if not groups.content:
        raise optimizer.error("a composite optimizer must have groups", "groups")
    made = []
    for label in groups.content:
        group = groups.section(label)
        group.check(_GROUP)
        own = _named(group, "optimizer")
        if "lr_float" in group:
            own = Section(own.document, {**own.content, "lr": group.number("lr_float")}, own.path)
        elif "lr" in group:
            notes["group-rate-ignored"] = _NOTES["group-rate-ignored"]
        inner = _named(group, "lr_scheduler")
        made.append(_group(reading, optimization, own, inner, str(label)))
    return tuple(made)


def _group(
    reading: Reading, optimization: Section, optimizer: Section, scheduler: Section, label: str
) -> ParamGroup:
    schedules = {
        "lr": _rate(reading, optimization, optimizer, scheduler),
        "weight_decay": constant(optimizer.number("weight_decay", 0.0)),
    }
    return ParamGroup(schedules, _plan(optimizer), Role.of(label), label)


def _rate(
    reading: Reading, optimization: Section, optimizer: Section, scheduler: Section
) -> Schedule:
    name = scheduler.text("_name", REQUIRED)
    if name not in SCHEDULES:
        raise scheduler.error(
            f"fairseq has no scheduler {name!r}", "_name", hint=nearest(name, SCHEDULES)
        )
    defaults = CLASSES[name][1]
    scheduler.check(("_name", "lr", "max_update", *defaults))
    # The rates of a group are those of its optimizer, and by default those of all.
    rates = optimization.numbers("lr", (0.25,))
    for section in (optimizer, scheduler):
        rates = section.numbers("lr", rates)
    total = scheduler.number("max_update", optimization.number("max_update", 0))
    given = {
        key: scheduler.value(key) if isinstance(default, str) else _of_type(scheduler, key)
        for key, default in defaults.items()
        if key in scheduler
    }
    config = {
        "lr_scheduler": {"_name": name, **given},
        "optimization": {"lr": list(rates), "max_update": total or _total(reading, name, given)},
    }
    facts = {"updates_per_epoch": reading.facts.updates_per_epoch}
    with scheduler.located():
        return built(_FRAMEWORK, SCHEDULES, name, config, facts=facts)


def _total(reading: Reading, name: str, given: Mapping[str, Any]) -> Any:
    """The updates of the run, where the scheduler needs them and ``max_update`` is not given."""
    is_needed = (
        (name == "polynomial_decay" and "total_num_update" not in given)
        or (name == "cosine" and given.get("lr_period_updates", -1) <= 0)
        or (name == "tri_stage" and "phase_ratio" in given)
    )
    if not is_needed:
        return 0
    where = reading.document.place("optimization.max_update")
    (found,) = reading.facts.require("total_updates", where=where)
    return int(found)


def _of_type(section: Section, key: str) -> Any:
    if key == "phase_ratio":
        return list(section.numbers(key))
    if key == "shrink_min":
        return section.flag(key)
    return section.number(key)


def _plan(optimizer: Section) -> OptimizerPlan:
    name = optimizer.text("_name", REQUIRED)
    place = optimizer.document.place(optimizer.path)
    if name not in _OPTIMIZERS:
        raise optimizer.error(
            f"fairseq has no optimizer {name!r}", "_name", hint=nearest(name, _OPTIMIZERS)
        )
    optimizer.check((*_COMMON, *_OPTIMIZERS[name]))
    if name in ("adam", "cpu_adam"):
        arguments = {
            "betas": optimizer.numbers("adam_betas", (0.9, 0.999)),
            "eps": optimizer.number("adam_eps", 1e-8),
        }
        # fairseq's Adam decays the parameters, not the gradients.
        return planned(name, arguments, optimizers.adamw, place)
    arguments = {
        key.removeprefix(f"{name}_"): value
        for key, value in optimizer.content.items()
        if key not in _COMMON and value is not None
    }
    return planned(name, arguments, where=place)


def _from_flags(document: Document) -> Document:
    """The sections of the flags of ``fairseq-train``; those of other parts are left out."""
    flags = {key.replace("-", "_"): value for key, value in document.content.items()}
    scheduler = flags.get("lr_scheduler", "fixed")
    name = flags.get("optimizer")
    sections = {
        "optimization": _OPTIMIZATION,
        "optimizer": (*_OPTIMIZERS.get(str(name), ()), "weight_decay"),
        "lr_scheduler": tuple(CLASSES.get(str(scheduler), ({}, {}))[1]),
    }
    content: dict[str, Any] = {
        section: {key: flags[key] for key in keys if key in flags}
        for section, keys in sections.items()
    }
    content["lr_scheduler"]["_name"] = scheduler
    if name is None:
        del content["optimizer"]
    else:
        content["optimizer"]["_name"] = name
    known = {key for keys in sections.values() for key in keys}
    Section(document, flags).check_related({*known, "lr_scheduler", "optimizer"})
    return Document(content, document.source, document.form)


READER = Reader(read, matches)

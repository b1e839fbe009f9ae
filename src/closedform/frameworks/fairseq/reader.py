"""The reader of fairseq's configs: Hydra files with their defaults merged, and command lines.

``optimization``, ``optimizer`` and ``lr_scheduler`` are read. The groups of a composite optimizer
have schedulers of their own. A group's rate is ``lr_float``, or else that of ``optimization``: its
``lr`` is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from closedform import optimizers
from closedform.errors import nearest
from closedform.frameworks.fairseq.schedules import CLASSES, Optimization, Scheduler
from closedform.recipes import kit
from closedform.schedules import constant

_PASS_THROUGH = "pass_through"
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


def matches(document: kit.Document) -> bool:
    """Returns whether a config has the sections or the flags of fairseq."""
    found = document.content
    if document.syntax is kit.Syntax.ARGUMENTS:
        return "lr-scheduler" in found and ("max-update" in found or "max-epoch" in found)
    return isinstance(found.get("optimization"), Mapping) and "optimizer" in found


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown or missing, or a value is not valid.
        ArgumentError: A fact is missing.
    """
    document = kit.interpolate(reading.document)
    if document.syntax is kit.Syntax.ARGUMENTS:
        document = _from_flags(document)
    top = kit.document_section(document)
    for key in ("optimization", "optimizer", "lr_scheduler"):
        if key not in top:
            raise top.error(
                f"{key} is missing", hint="merge the defaults of Hydra into the file first"
            )
    optimization = Optimization.read(top.section("optimization"))
    optimizer, scheduler = _named(top, "optimizer"), _named(top, "lr_scheduler")
    if optimizer.text("_name", "") == "composite":
        members = _members(optimizer, scheduler)
    else:
        members = [("", optimizer, scheduler, False)]
    groups, schedulers = [], []
    for label, inner, place, _ in members:
        values = _scheduler(place)
        schedulers.append(values)
        groups.append(_group(reading, optimization, inner, values, label))
    is_zero = any(group.schedules["lr"].bound == 0 for group in groups)
    return reading.recipe(
        groups,
        horizon=_horizon(reading, optimization),
        clipping=kit.Clipping(optimization.clip_norm) if optimization.clip_norm else None,
        accumulation=optimization.update_freq[0],
        values=(schedulers, any(is_ignored for *_, is_ignored in members), is_zero),
    )


def _named(outer: kit.RawSection, key: str) -> kit.RawSection:
    """A section that may be only its name."""
    value = outer.value(key)
    if isinstance(value, str):
        return kit.RawSection(outer.document, {"_name": value}, outer.at(key))
    return outer.section(key)


def _horizon(reading: kit.Reading, optimization: Optimization) -> int | None:
    updates, epochs = optimization.max_update, optimization.max_epoch
    length = reading.facts.updates_per_epoch
    ends = [int(updates)] if updates else []
    ends += [int(epochs * length)] if epochs and length else []
    return min(ends) if ends else reading.facts.total_updates


def _members(
    optimizer: kit.RawSection, scheduler: kit.RawSection
) -> list[tuple[str, kit.RawSection, kit.RawSection, bool]]:
    """The groups of a composite optimizer: label, optimizer, scheduler, and a rate not in use."""
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
    members = []
    for label in groups.content:
        group = groups.section(label)
        group.check(_GROUP)
        inner = _named(group, "optimizer")
        has_rate = "lr_float" in group
        if has_rate:
            rate = {"lr": group.number("lr_float")}
            inner = kit.RawSection(inner.document, {**inner.content, **rate}, inner.path)
        is_ignored = "lr" in group and not has_rate
        members.append((str(label), inner, _named(group, "lr_scheduler"), is_ignored))
    return members


def _scheduler(place: kit.RawSection) -> Scheduler:
    name = place.text("_name", kit.REQUIRED)
    if name not in CLASSES:
        raise place.error(f"fairseq has no scheduler {name!r}", "_name", nearest(name, CLASSES))
    return CLASSES[name][1].read(place)


def _group(
    reading: kit.Reading,
    optimization: Optimization,
    optimizer: kit.RawSection,
    scheduler: Scheduler,
    label: str,
) -> kit.ParamGroup:
    # The rates of a group are those of its optimizer, and by default those of all.
    rates = kit.numbers().read(optimizer, "lr", None) if "lr" in optimizer else optimization.lr
    name = scheduler._name
    context = replace(reading.context, path=(name,))
    with scheduler.origin.locate_errors():
        rate = CLASSES[name][0](context, scheduler, optimization.replace(lr=rates))
    schedules = {"lr": rate, "weight_decay": constant(optimizer.number("weight_decay", 0.0))}
    return kit.ParamGroup(schedules, _plan(optimizer), kit.Role.of(label), label)


def _plan(optimizer: kit.RawSection) -> kit.OptimizerPlan:
    name = optimizer.text("_name", kit.REQUIRED)
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
        return kit.plan_optimizer(name, arguments, optimizers.adamw, place)
    arguments = {
        key.removeprefix(f"{name}_"): value
        for key, value in optimizer.content.items()
        if key not in _COMMON and value is not None
    }
    return kit.plan_optimizer(name, arguments, where=place)


def _from_flags(document: kit.Document) -> kit.Document:
    """The sections of the flags of ``fairseq-train``; those of other parts are left out."""
    flags = {key.replace("-", "_"): value for key, value in document.content.items()}
    scheduler = flags.get("lr_scheduler", "fixed")
    name = flags.get("optimizer")
    sections = {
        "optimization": tuple(Optimization.keys),
        "optimizer": (*_OPTIMIZERS.get(str(name), ()), "weight_decay"),
        "lr_scheduler": () if scheduler not in CLASSES else tuple(CLASSES[scheduler][1].keys),
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
    kit.RawSection(document, flags).check_related({*known, "lr_scheduler", "optimizer"})
    return replace(document, content=content)


READER = kit.Reader(read, matches)

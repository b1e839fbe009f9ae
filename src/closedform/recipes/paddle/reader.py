"""The reader of PaddleClas' YAML configs, whose schedules are classes of ``paddle.optimizer.lr``.

``Optimizer`` and ``Global.epochs`` are read. The lengths are epochs; the fact ``updates_per_epoch``
makes updates of them. With ``by_epoch`` the scheduler is stepped after each epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule, floor_div, t
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.document import Document
from closedform.recipes.entries import REQUIRED
from closedform.recipes.paddle.schedules import SCHEDULES
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import (
    Clipping,
    ClippingKind,
    OptimizerPlan,
    ParamGroup,
    Recipe,
    Role,
)
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

BEFORE_BASE = "37f9b41baa5a"
"""A commit of PaddleClas before its rates had a base class; the newest read is 0776f1c70030."""

_SHARED = ("name", "warmup_epoch", "warmup_start_lr", "last_epoch", "by_epoch", "verbose")
_RATES: Mapping[str, tuple[str, ...]] = {
    "Constant": ("learning_rate",),
    "Linear": ("learning_rate", "end_lr", "power", "cycle"),
    "Cosine": ("learning_rate", "eta_min"),
    "Step": ("learning_rate", "step_size", "gamma"),
    "Piecewise": ("learning_rate", "decay_epochs", "values"),
    "MultiStepDecay": ("learning_rate", "milestones", "gamma"),
}
"""The rates, with their own options; those of PiecewiseDecay come from its values."""
_OPTIMIZERS: Mapping[str, tuple[str, ...]] = {
    "Momentum": ("momentum", "use_nesterov", "no_weight_decay_name"),
    "SGD": (),
    "Adam": ("beta1", "beta2", "epsilon"),
    "AdamW": ("beta1", "beta2", "epsilon", "no_weight_decay_name", "one_dim_param_no_weight_decay"),
    "RMSProp": ("momentum", "rho", "epsilon"),
}
_NAMES = {"Momentum": "sgd", "SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "RMSProp": "rmsprop"}
_COMMON = ("name", "lr", "regularizer", "weight_decay", "clip_norm", "multi_precision")
_NOTES = {
    "warmup-in-updates": "without by_epoch the warmup of warmup_epoch epochs is as many updates",
    "decay-starts-anew": "after the warmup, the decay begins at its own start",
}


def matches(document: Document) -> bool:
    """Returns whether a config has the sections of PaddleClas."""
    found = document.content.get("Optimizer")
    return isinstance(found, Mapping) and isinstance(found.get("lr"), Mapping)


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A key or class is unknown, or a value is not valid.
        ArgumentError: The fact ``updates_per_epoch`` is missing.
    """
    top = whole(reading.document)
    optimizer = top.section("Optimizer")
    name = optimizer.text("name", REQUIRED)
    if name not in _OPTIMIZERS:
        raise optimizer.error(
            f"PaddleClas has no optimizer {name!r}", "name", nearest(name, _OPTIMIZERS)
        )
    optimizer.check((*_COMMON, *_OPTIMIZERS[name]))
    (length,) = reading.facts.require("updates_per_epoch", where=reading.document.source)
    epochs = top.section("Global").integer("epochs")
    section = optimizer.section("lr")
    rate, by_epoch = _rate(section, int(epochs), int(length), reading.version)
    decay = _decay(optimizer)
    plan = _plan(name, optimizer)
    groups = [ParamGroup({"lr": rate, "weight_decay": constant(decay)}, plan, Role.DEFAULT)]
    spared = optimizer.value("no_weight_decay_name", None)
    if spared:
        groups.append(groups[0].without_decay(str(spared).split()))
    threshold = optimizer.number("clip_norm", None)
    has_warmup = section.number("warmup_epoch", 0) > 0
    notes = ["decay-starts-anew"] if has_warmup else []
    if has_warmup and not by_epoch and reading.version != BEFORE_BASE:
        notes += [] if section.text("name", "") == "Linear" else ["warmup-in-updates"]
    return Recipe(
        name=reading.document.name,
        framework="paddle",
        param_groups=tuple(groups),
        horizon=int(epochs) * int(length),
        version=reading.version,
        source=reading.document.source,
        clock=Clock(Unit.EPOCH if by_epoch else Unit.UPDATE),
        clipping=None if threshold is None else Clipping(threshold, ClippingKind.PARAM_NORM),
        notes={one: _NOTES[one] for one in notes},
    )


def _rate(section: Section, epochs: int, length: int, version: str) -> tuple[Schedule, bool]:
    """The rate in updates, and whether its scheduler is stepped after each epoch."""
    if "name" not in section:
        section.check(("learning_rate",))
        return constant(section.number("learning_rate")), False
    name = section.text("name")
    if name not in _RATES:
        raise section.error(f"PaddleClas has no rate {name!r}", "name", nearest(name, _RATES))
    section.check((*_SHARED, *_RATES[name]))
    by_epoch = section.flag("by_epoch", False) if version != BEFORE_BASE else False
    warmup = section.number("warmup_epoch", 0)
    if version != BEFORE_BASE:
        warmup = min(warmup, epochs)
    each = 1 if by_epoch else length
    class_name, arguments, rate = _curve(section, name, epochs, warmup, each, version)
    is_scaled = version == BEFORE_BASE or by_epoch or name == "Linear"
    steps = round(warmup * length) if is_scaled else int(warmup)
    with section.located():
        if class_name is None:
            made: Schedule = constant(rate)
        else:
            made = built("paddle", SCHEDULES, class_name, arguments)
        if steps > 0:
            first = section.number("warmup_start_lr", 0.0) if version != BEFORE_BASE else 0.0
            inner = rate if class_name is None else {"type": class_name, **arguments}
            made = built(
                "paddle",
                SCHEDULES,
                "LinearWarmup",
                {
                    "learning_rate": inner,
                    "warmup_steps": steps,
                    "start_lr": first,
                    "end_lr": rate,
                },
            )
    if by_epoch:
        made = Schedule(made.bound.xreplace({t: floor_div(t, length)}), name=made.name)
    return made, by_epoch


def _curve(
    section: Section, name: str, epochs: int, warmup: Any, each: int, version: str
) -> tuple[str | None, dict[str, Any], Any]:
    """The class of paddle with its arguments, None for a constant rate, and the peak."""
    if name == "Piecewise":
        values = list(section.numbers("values"))
        marks = [int(mark * each) for mark in section.numbers("decay_epochs")]
        return "PiecewiseDecay", {"boundaries": marks, "values": values}, values[0]
    rate = section.number("learning_rate")
    shared = {"learning_rate": rate}
    rest = epochs - warmup if version != BEFORE_BASE else epochs
    duration = int(rest * each)
    match name:
        case "Linear" if duration > 0:
            line = {
                "decay_steps": duration,
                "end_lr": section.number("end_lr", 0.0),
                "power": section.number("power", 1.0),
                "cycle": section.flag("cycle", False),
            }
            return "PolynomialDecay", {**shared, **line}, rate
        case "Cosine" if duration > 0:
            low = section.number("eta_min", 0.0) if version != BEFORE_BASE else 0.0
            return "CosineAnnealingDecay", {**shared, "T_max": duration, "eta_min": low}, rate
        case "Step":
            steps = {"step_size": section.integer("step_size") * each}
            return "StepDecay", {**shared, **steps, "gamma": section.number("gamma")}, rate
        case "MultiStepDecay":
            marks = [int(mark * each) for mark in section.numbers("milestones")]
            gamma = section.number("gamma", 0.1)
            return "MultiStepDecay", {**shared, "milestones": marks, "gamma": gamma}, rate
        case _:
            return None, {}, rate


def _decay(optimizer: Section) -> Any:
    """The weight decay: that of the regularizer goes before ``weight_decay``."""
    section = optimizer.section("regularizer")
    if not section.content:
        return optimizer.number("weight_decay", 0.0)
    section.check(("name", "coeff"))
    kind = section.text("name")
    if kind != "L2":
        raise section.error(f"the regularizer must be L2, got {kind!r}", "name")
    return section.number("coeff", 0.0)


def _plan(name: str, optimizer: Section) -> OptimizerPlan:
    place = optimizer.document.place(optimizer.path)
    arguments: dict[str, Any] = {}
    if name == "Momentum":
        arguments["momentum"] = optimizer.number("momentum", REQUIRED)
        arguments["nesterov"] = optimizer.flag("use_nesterov", False)
    elif name in ("Adam", "AdamW"):
        betas = (optimizer.number("beta1", 0.9), optimizer.number("beta2", 0.999))
        arguments = {"betas": betas, "eps": optimizer.number("epsilon", 1e-8)}
    elif name == "RMSProp":
        arguments = {
            "momentum": optimizer.number("momentum", 0.0),
            "alpha": optimizer.number("rho", 0.95),
            "eps": optimizer.number("epsilon", 1e-6),
        }
    return planned(_NAMES[name], arguments, where=place)


READER = Reader(read, matches)

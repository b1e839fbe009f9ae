"""LazyConfigs of detectron2: Python files of calls, of which none is run.

``optimizer``, ``lr_multiplier`` and ``train.max_iter`` are read. The files of detectron2 that most
LazyConfigs import are known: ``common/optim.py``, ``common/coco_schedule.py``, ``common/train.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.language import Schedule, exact_number
from closedform.recipes.detectron2.schedules import (
    Curve,
    Warmup,
    equal_steps,
    steps_at,
    warmed_up,
)
from closedform.recipes.document import Document
from closedform.recipes.documents.values import Call, Reference, Unresolved
from closedform.recipes.reader import Reading
from closedform.recipes.recipe import ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant
from closedform.schedules.blends import along_cosine, along_line

_FRAMEWORK = "detectron2"

_OPTIMIZERS: Mapping[str, Call] = {
    "SGD": Call("L(torch.optim.SGD)", (), {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4}),
    "AdamW": Call(
        "L(torch.optim.AdamW)", (), {"lr": 1e-4, "betas": (0.9, 0.999), "weight_decay": 0.1}
    ),
}
"""The optimizers of ``common/optim.py``; norms have no weight decay."""
_COMMON = re.compile(r"common[./](optim|coco_schedule|train)(?:\.py)?['\"]?\)?\.(\w+)$")
_PERIODS = re.compile(r"lr_multiplier_(\d+)x")
_PERIOD = 90_000
_WRAPPED = re.compile(r"(?:L|LazyCall)\((.+)\)")


def _known(value: Any) -> Any:
    """The value of an import from one of detectron2's common files; others are unchanged."""
    text = value.name if isinstance(value, Reference) else str(value)
    if not isinstance(value, Reference | Unresolved):
        return value
    found = _COMMON.search(text)
    if found is None:
        return value
    file, name = found.groups()
    periods = _PERIODS.fullmatch(name)
    if file == "optim":
        return _OPTIMIZERS.get(name, value)
    if file == "coco_schedule" and periods is not None:
        return _coco_schedule(int(periods.group(1)))
    return {"max_iter": _PERIOD} if file == "train" and name == "train" else value


def _coco_schedule(periods: int) -> Call:
    """The multiplier of ``common/coco_schedule.py``."""
    total = periods * _PERIOD
    ends = [60_000, 80_000, 90_000] if periods <= 2 else [total - 60_000, total - 20_000, total]
    steps = Call("L(MultiStepParamScheduler)", (), {"values": [1.0, 0.1, 0.01], "milestones": ends})
    more = {"warmup_length": 1000 / total, "warmup_factor": 0.001}
    return Call("L(WarmupParamScheduler)", (), {"scheduler": steps, **more})


def _root(document: Document, name: str) -> dict[str, Any]:
    """The arguments of a root of the LazyConfig, with those that the file sets, and its class."""
    top = whole(document)
    value = _known(document.content.get(name))
    changes = {
        key.partition(".")[2]: item
        for key, item in document.content.items()
        if key.startswith(f"{name}.")
    }
    if isinstance(value, Reference):
        raise top.error(
            f"{name} is imported from {value.name}, which is not read",
            name,
            hint="give the file that it is in, with the changes of this one",
        )
    if value is not None and not isinstance(value, Call | Mapping):
        raise top.error(f"{name} is not a call of LazyCall: {value!s:.60}", name)
    made = dict(value.kwargs if isinstance(value, Call) else value or {})
    if isinstance(value, Call):
        made[_CLASS] = value.name
    for key, item in changes.items():
        made = _changed(made, key.split("."), item)
    return made


_CLASS = "_target_"
_WARMUP = (
    _CLASS,
    "scheduler",
    "warmup_factor",
    "warmup_length",
    "warmup_method",
    "rescale_interval",
)


def _changed(outer: Mapping[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    if len(keys) == 1:
        return {**outer, keys[0]: value}
    inner = outer.get(keys[0], {})
    known = {**inner.kwargs, _CLASS: inner.name} if isinstance(inner, Call) else dict(inner or {})
    return {**outer, keys[0]: _changed(known, keys[1:], value)}


def _class_of(value: Mapping[str, Any]) -> str:
    """The class of a LazyCall, without its module."""
    name = str(value.get(_CLASS, ""))
    found = _WRAPPED.fullmatch(name)
    return (found.group(1) if found else name).rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Lazy:
    """A part of a LazyConfig that is a call."""

    section: Section
    kind: str


def _lazy(document: Document, value: Any, path: str) -> _Lazy:
    if isinstance(value, Call):
        value = {**value.kwargs, _CLASS: value.name}
    if not isinstance(value, Mapping):
        raise whole(document).error(f"a scheduler must be a call, got {value!s:.60}", path)
    return _Lazy(Section(document, value, path), _class_of(value))


def read_lazy(reading: Reading) -> Recipe:
    """Returns the recipe of a LazyConfig, as the reader of detectron2 does."""
    document = reading.document
    top = whole(document)
    optimizer = Section(document, _root(document, "optimizer"), "optimizer")
    train = Section(document, _root(document, "train"), "train")
    for name, section in (("optimizer", optimizer), ("lr_multiplier", top)):
        if (name == "lr_multiplier" and name not in top) or not section.content:
            raise top.error(f"{name} is missing", hint=f"the LazyConfig must have {name}")
    total = train.integer("max_iter", None)
    if total is None:
        (given,) = reading.facts.require("total_updates", where=document.place("train.max_iter"))
        total = int(given)
    if total < 1:
        raise train.error(f"max_iter must be above 0, got {total}", "max_iter")
    multiplier = _lazy(document, _root(document, "lr_multiplier"), "lr_multiplier")
    rate = optimizer.number("lr")
    decay = optimizer.number("weight_decay", 0)
    left_out = ("params", "lr", "weight_decay", _CLASS)
    arguments = {key: v for key, v in optimizer.content.items() if key not in left_out}
    kind = _class_of(optimizer.content)
    plan = planned(kind, arguments, where=document.place("optimizer"))

    def group(label: str, own: Any, weight_decay: Any, *patterns: str) -> ParamGroup:
        made = _multiplied(multiplier, exact_number(own), sp.Integer(total))
        schedules = {"lr": made, "weight_decay": constant(weight_decay)}
        return ParamGroup(schedules, plan, Role.of(label), label, patterns)

    groups = [group("", rate, decay)]
    params = optimizer.section("params")
    # The common optimizers do not decay norms.
    groups.append(group("norm", rate, params.number("weight_decay_norm", 0.0)))
    overrides = params.section("overrides")
    for name in overrides.content:
        own = overrides.section(name)
        groups.append(group(name, own.number("lr", rate), own.number("weight_decay", decay), name))
    notes = {}
    if "lr_factor_func" in params:
        notes["rates-by-layer"] = "lr_factor_func gives every layer its own factor of the rate"
    return Recipe(
        name=document.name,
        framework=_FRAMEWORK,
        param_groups=tuple(groups),
        horizon=total,
        version=reading.version,
        source=document.source,
        accumulation=1,
        notes=notes,
        derived={"lr": rate},
    )


def _multiplied(multiplier: _Lazy, rate: sp.Expr, total: sp.Expr) -> Schedule:
    """The rate times a multiplier of the part of the run that is done."""
    section = multiplier.section
    warmup = Warmup(sp.S.Zero, sp.S.Zero, "linear", False)
    with section.located():
        if multiplier.kind == "WarmupParamScheduler":
            section.check(_WARMUP)
            warmup = Warmup(
                exact_number(section.number("warmup_length")),
                exact_number(section.number("warmup_factor")),
                section.text("warmup_method", "linear"),
                section.flag("rescale_interval", False),
            )
            path = section.at("scheduler")
            multiplier = _lazy(section.document, section.value("scheduler"), path)
        curve = _curve(multiplier)
        return warmed_up(multiplier.kind, rate, total, curve, warmup, _FRAMEWORK)


def _curve(lazy: _Lazy) -> Curve:
    """The curve of a scheduler of fvcore."""
    section = lazy.section
    if lazy.kind not in _CURVES:
        raise section.error(f"unknown scheduler {lazy.kind!r}", hint=nearest(lazy.kind, _CURVES))
    made, keys = _CURVES[lazy.kind]
    section.check((_CLASS, *keys))
    return made(section)


def _numbers(section: Section, *keys: str) -> list[sp.Expr]:
    return [exact_number(section.number(key), section.at(key)) for key in keys]


def _constant(section: Section) -> Curve:
    (value,) = _numbers(section, "value")
    reason = "RuntimeError: the position in the schedule must be in [0, 1]"
    return Curve(((lambda x: value, None),), sp.S.One, with_end=True, reason=reason)


def _cosine(section: Section) -> Curve:
    start, end = _numbers(section, "start_value", "end_value")
    return Curve(((lambda x: along_cosine(start, end, x), None),))


def _linear(section: Section) -> Curve:
    start, end = _numbers(section, "start_value", "end_value")
    return Curve(((lambda x: along_line(start, end, x), None),))


def _exponential(section: Section) -> Curve:
    start, decay = _numbers(section, "start_value", "decay")
    return Curve(((lambda x: start * decay**x, None),))


def _polynomial(section: Section) -> Curve:
    base, power = _numbers(section, "base_value", "power")
    reason = "the power of a negative number"
    if power.is_Integer and power >= 0:
        return Curve(((lambda x: base * (1 - x) ** power, None),))
    return Curve(((lambda x: base * sp.Max(0, 1 - x) ** power, None),), sp.S.One, reason=reason)


def _steps(section: Section) -> Curve:
    return equal_steps([exact_number(value) for value in section.numbers("values")])


def _fixed_gamma(section: Section) -> Curve:
    base, gamma = _numbers(section, "base_value", "gamma")
    return equal_steps([base * gamma**k for k in range(section.integer("num_decays") + 1)])


def _milestones(section: Section) -> Curve:
    values = [exact_number(value) for value in section.numbers("values")]
    marks = section.numbers("milestones", None)
    updates = section.number("num_updates", None)
    if marks is None:
        width = sp.ceiling(exact_number(section.number("num_updates")) / len(values))
        marks = [width * (index + 1) for index in range(len(values) - 1)]
    if len(marks) != len(values) - (updates is not None):
        raise section.error(
            f"milestones must be {len(values) - (updates is not None)}, got {len(marks)}",
            "milestones",
        )
    if updates is None:
        updates, marks = marks[-1], marks[:-1]
    total = exact_number(updates)
    parts = [exact_number(mark) / total for mark in marks]
    if parts != sorted(set(parts)) or (parts and not 0 < parts[0] <= parts[-1] < 1):
        raise section.error(
            f"milestones must increase from above 0 to below {updates}, got {list(marks)}",
            "milestones",
        )
    return steps_at(values, parts)


_CURVES: Mapping[str, tuple[Callable[[Section], Curve], tuple[str, ...]]] = {
    "ConstantParamScheduler": (_constant, ("value",)),
    "CosineParamScheduler": (_cosine, ("start_value", "end_value")),
    "ExponentialParamScheduler": (_exponential, ("start_value", "decay")),
    "LinearParamScheduler": (_linear, ("start_value", "end_value")),
    "MultiStepParamScheduler": (_milestones, ("values", "milestones", "num_updates")),
    "PolynomialDecayParamScheduler": (_polynomial, ("base_value", "power")),
    "StepParamScheduler": (_steps, ("values", "num_updates")),
    "StepWithFixedGammaParamScheduler": (
        _fixed_gamma,
        ("base_value", "num_decays", "gamma", "num_updates"),
    ),
}

"""LazyConfigs of detectron2: Python files of calls, of which none is run.

``optimizer``, ``lr_multiplier`` and ``train.max_iter`` are read. The files of detectron2 that most
LazyConfigs import are known: ``common/optim.py``, ``common/coco_schedule.py``, ``common/train.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sympy as sp

from closedform.errors import nearest
from closedform.frameworks.detectron2 import curves
from closedform.frameworks.detectron2.schedules import (
    MultiplierCurve,
    Warmup,
    warmed_up,
)
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

_OPTIMIZERS: Mapping[str, kit.ConfigCall] = {
    "SGD": kit.ConfigCall(
        "L(torch.optim.SGD)", (), {"lr": 0.02, "momentum": 0.9, "weight_decay": 1e-4}
    ),
    "AdamW": kit.ConfigCall(
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
    text = value.name if isinstance(value, kit.Reference) else str(value)
    if not isinstance(value, kit.Reference | kit.Unresolved):
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


def _coco_schedule(periods: int) -> kit.ConfigCall:
    """The multiplier of ``common/coco_schedule.py``."""
    total = periods * _PERIOD
    ends = [60_000, 80_000, 90_000] if periods <= 2 else [total - 60_000, total - 20_000, total]
    steps = kit.ConfigCall(
        "L(MultiStepParamScheduler)", (), {"values": [1.0, 0.1, 0.01], "milestones": ends}
    )
    more = {"warmup_length": 1000 / total, "warmup_factor": 0.001}
    return kit.ConfigCall("L(WarmupParamScheduler)", (), {"scheduler": steps, **more})


def _root(document: kit.Document, name: str) -> dict[str, Any]:
    """The arguments of a root of the LazyConfig, with those that the file sets, and its class."""
    top = kit.document_section(document)
    value = _known(document.content.get(name))
    changes = {
        key.partition(".")[2]: item
        for key, item in document.content.items()
        if key.startswith(f"{name}.")
    }
    if isinstance(value, kit.Reference):
        if _SUFFICIENT.get(name) not in changes:
            raise top.error(
                f"{name} is imported from {value.name}, which is not read",
                name,
                hint="give the file that it is in, with the changes of this one",
            )
        value = kit.ConfigCall(value.name, (), {})
    if value is not None and not isinstance(value, kit.ConfigCall | Mapping):
        raise top.error(f"{name} is not a call of LazyCall: {value!s:.60}", name)
    arguments = dict(value.kwargs if isinstance(value, kit.ConfigCall) else value or {})
    if isinstance(value, kit.ConfigCall):
        arguments[_CLASS] = value.name
    for key, item in changes.items():
        arguments = _changed(arguments, key.split("."), item)
    return arguments


_CLASS = "_target_"
_SUFFICIENT = {"optimizer": "lr", "train": "max_iter"}
"""The entry that the curves need of a root: one imported from elsewhere, with it set, is enough."""


class Params(kit.OpenSection, irrelevant="lr_factor_func"):
    overrides: Any = None
    weight_decay_norm: kit.WeightDecay = 0.0


class Train(kit.OpenSection):
    max_iter: kit.Steps | None = None


class WarmupScheduler(kit.Section, irrelevant="_target_"):
    scheduler: Any
    warmup_factor: kit.RateRatio
    warmup_length: kit.Number
    warmup_method: Literal["linear", "constant"] = "linear"
    rescale_interval: bool = False


def _changed(outer: Mapping[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    if len(keys) == 1:
        return {**outer, keys[0]: value}
    inner = outer.get(keys[0], {})
    known = (
        {**inner.kwargs, _CLASS: inner.name}
        if isinstance(inner, kit.ConfigCall)
        else dict(inner or {})
    )
    return {**outer, keys[0]: _changed(known, keys[1:], value)}


def _class_of(value: Mapping[str, Any]) -> str:
    """The class of a LazyCall, without its module."""
    name = str(value.get(_CLASS, ""))
    found = _WRAPPED.fullmatch(name)
    return (found.group(1) if found else name).rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Lazy:
    """A part of a LazyConfig that is a call."""

    section: kit.RawSection
    kind: str


def _lazy(document: kit.Document, value: Any, path: str) -> _Lazy:
    if isinstance(value, kit.ConfigCall):
        value = {**value.kwargs, _CLASS: value.name}
    if not isinstance(value, Mapping):
        raise kit.document_section(document).error(
            f"a scheduler must be a call, got {value!s:.60}", path
        )
    return _Lazy(kit.RawSection(document, value, path), _class_of(value))


def read_lazy(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a LazyConfig, as the reader of detectron2 does."""
    document = reading.document
    top = kit.document_section(document)
    optimizer = kit.RawSection(document, _root(document, "optimizer"), "optimizer")
    train = Train.read(kit.RawSection(document, _root(document, "train"), "train"))
    for name, section in (("optimizer", optimizer), ("lr_multiplier", top)):
        if (name == "lr_multiplier" and name not in top) or not section.content:
            raise top.error(f"{name} is missing", hint=f"the LazyConfig must have {name}")
    total = reading.value_or_fact(train.max_iter, "total_updates")
    if total < 1:
        raise train.error(f"max_iter must be above 0, got {total}", "max_iter")
    multiplier = _lazy(document, _root(document, "lr_multiplier"), "lr_multiplier")
    is_read = not isinstance(_known(document.content.get("optimizer")), kit.Reference)
    rate = optimizer.number("lr")
    decay = optimizer.number("weight_decay", 0)
    left_out = ("params", "lr", "weight_decay", _CLASS)
    arguments = {key: v for key, v in optimizer.content.items() if key not in left_out}
    kind = _class_of(optimizer.content) if is_read else optimizer.content[_CLASS]
    plan = kit.plan_optimizer(kind, arguments, where=document.place("optimizer"))

    def group(label: str, base: Any, weight_decay: Any, *patterns: str) -> kit.ParamGroup:
        schedule = _multiplied(multiplier, exact_number(base), sp.Integer(total))
        schedules = {"lr": schedule}
        if is_read or "weight_decay" in optimizer:
            schedules["weight_decay"] = constant(weight_decay)
        return kit.ParamGroup(schedules, plan, kit.Role.of(label), label, patterns)

    params = Params.read(optimizer.section("params"))
    groups = [group("", rate, decay)]
    if is_read:
        # The common optimizers do not decay norms.
        groups.append(group("norm", rate, params.weight_decay_norm))
    overrides = params.origin.section("overrides")
    for name in overrides.content:
        override = overrides.section(name)
        base, weight_decay = override.number("lr", rate), override.number("weight_decay", decay)
        groups.append(group(name, base, weight_decay, name))
    return reading.recipe(
        groups,
        horizon=total,
        clipping=None,
        accumulation=1,
        values=(None, params),
        derived={"lr": rate},
    )


def _multiplied(multiplier: _Lazy, rate: sp.Expr, total: sp.Expr) -> Schedule:
    """The rate times a multiplier of the part of the run that is done."""
    warmup = Warmup(sp.S.Zero, sp.S.Zero, "linear", False)
    section = multiplier.section
    with section.locate_errors():
        if multiplier.kind == "WarmupParamScheduler":
            values = WarmupScheduler.read(section)
            warmup = Warmup(
                values.warmup_length,
                values.warmup_factor,
                values.warmup_method,
                values.rescale_interval,
            )
            multiplier = _lazy(section.document, values.scheduler, section.at("scheduler"))
        return warmed_up(multiplier.kind, rate, total, _curve(multiplier), warmup)


def _curve(lazy: _Lazy) -> MultiplierCurve:
    """The curve of a scheduler of fvcore."""
    section = lazy.section
    if lazy.kind not in _CURVES:
        raise section.error(f"unknown scheduler {lazy.kind!r}", hint=nearest(lazy.kind, _CURVES))
    build, keys = _CURVES[lazy.kind]
    return build(keys.read(section))


def _of_numbers(function: kit.CurveFunction) -> Callable[[kit.Section], MultiplierCurve]:
    return lambda values: (
        function,
        {name: getattr(values, name) for name in values.keys if name != _CLASS},
    )


def _polynomial(values: PolynomialDecayParamScheduler) -> MultiplierCurve:
    is_whole = values.power.is_Integer and values.power >= 0
    numbers = {"base_value": values.base_value, "power": values.power, "is_whole": is_whole}
    return curves.polynomial, numbers


def _fixed_gamma(values: StepWithFixedGammaParamScheduler) -> MultiplierCurve:
    base, decays = values.base_value, values.num_decays
    levels = [base * values.gamma**index for index in range(decays + 1)]
    return curves.equal_steps, {"values": levels}


def _milestones(values: MultiStepParamScheduler) -> MultiplierCurve:
    levels, updates = values.values, values.num_updates
    marks = list(values.milestones or ())
    if values.milestones is None:
        width = sp.ceiling(values.require("num_updates") / len(levels))
        marks = [width * (index + 1) for index in range(len(levels) - 1)]
    expected = len(levels) - (updates is not None)
    if len(marks) != expected:
        raise values.error(f"milestones must be {expected}, got {len(marks)}", "milestones")
    if updates is None:
        updates, marks = marks[-1], marks[:-1]
    parts = [mark / updates for mark in marks]
    if parts != sorted(set(parts)) or (parts and not 0 < parts[0] <= parts[-1] < 1):
        raise values.error(
            f"milestones must increase from above 0 to below {updates}, got {list(marks)}",
            "milestones",
        )
    return curves.milestones, {"values": levels, "marks": parts}


class _Scheduler(kit.Section, irrelevant="_target_"):
    pass


class _Levels(_Scheduler):
    start_value: kit.Number
    end_value: kit.Number


class ConstantParamScheduler(_Scheduler):
    value: kit.Number


class ExponentialParamScheduler(_Scheduler):
    start_value: kit.Number
    decay: kit.Number


class MultiStepParamScheduler(_Scheduler):
    values: kit.Numbers
    milestones: kit.Numbers | None = None
    num_updates: kit.RealSteps | None = None


class PolynomialDecayParamScheduler(_Scheduler):
    base_value: kit.Number
    power: kit.Power


class StepParamScheduler(_Scheduler, irrelevant="num_updates"):
    values: kit.Numbers


class StepWithFixedGammaParamScheduler(_Scheduler, irrelevant="num_updates"):
    base_value: kit.Number
    num_decays: int
    gamma: kit.Number


_CURVES: Mapping[str, tuple[Callable[..., MultiplierCurve], type[kit.Section]]] = {
    "ConstantParamScheduler": (_of_numbers(curves.constant), ConstantParamScheduler),
    "CosineParamScheduler": (_of_numbers(curves.cosine), _Levels),
    "ExponentialParamScheduler": (_of_numbers(curves.exponential), ExponentialParamScheduler),
    "LinearParamScheduler": (_of_numbers(curves.linear), _Levels),
    "MultiStepParamScheduler": (_milestones, MultiStepParamScheduler),
    "PolynomialDecayParamScheduler": (_polynomial, PolynomialDecayParamScheduler),
    "StepParamScheduler": (_of_numbers(curves.equal_steps), StepParamScheduler),
    "StepWithFixedGammaParamScheduler": (_fixed_gamma, StepWithFixedGammaParamScheduler),
}

"""YOLOX: the learning rate of its experiments, Python classes or mappings of their attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)

KINDS = ("yoloxwarmcos", "warmcos", "cos", "multistep")


class Experiment(kit.OpenSection):
    basic_lr_per_img: kit.Rate = sp.Rational(1, 6400)
    gamma: kit.Number = 0.1
    max_epoch: kit.Epochs = kit.integer(300, least=1)
    milestones: kit.Numbers | None = None
    min_lr_ratio: kit.RateRatio = 0.05
    momentum: kit.Momentum = 0.9
    no_aug_epochs: kit.RealEpochs = 15
    scheduler: str = kit.choice(*KINDS, default="yoloxwarmcos")
    warmup_epochs: kit.RealEpochs = 5
    warmup_lr: kit.StartRate = 0
    weight_decay: kit.WeightDecay = 5e-4


DEFECTS: Mapping[str, kit.Note[[Experiment]]] = {
    "first-rate-of-the-optimizer": kit.Defect(
        "update 0 has the rate that the optimizer is made with, which is warmup_lr where there is "
        "a warmup_epochs, also for schedules without a warmup",
        "yolox/exp/yolox_base.py:258",
        lambda experiment: (
            experiment.scheduler in ("cos", "multistep") and experiment.warmup_epochs > 0
        ),
        documented="the schedule at update 0 as well",
        classes=("cos", "multistep"),
    ),
    "minimum-without-effect": kit.Convention(
        "min_lr_ratio and no_aug_epochs have an effect with yoloxwarmcos only",
        "yolox/utils/lr_scheduler.py:37",
        lambda experiment: experiment.scheduler != "yoloxwarmcos" and "min_lr_ratio" in experiment,
        classes=("cos", "warmcos", "multistep"),
    ),
    "milestones-of-a-class": kit.Convention(
        "the experiment does not pass milestones to the scheduler: get_lr_scheduler must be its "
        "own",
        "yolox/exp/yolox_base.py:287",
        lambda experiment: experiment.scheduler == "multistep",
        classes=("multistep",),
    ),
}


def _rate(context: kit.Context, experiment: Experiment) -> Schedule:
    updates, samples = context.numbers.require(
        "updates_per_epoch", "global_batch_size", where=context.where
    )
    kind, peak = experiment.scheduler, experiment.basic_lr_per_img * samples
    start, total = experiment.warmup_lr, updates * experiment.max_epoch
    first = start if experiment.warmup_epochs > 0 else peak
    has_warmup = kind in ("warmcos", "yoloxwarmcos")
    warmup = updates * experiment.warmup_epochs if has_warmup else sp.S.Zero
    is_quick = kind == "yoloxwarmcos"
    low = peak * experiment.min_lr_ratio if is_quick else sp.S.Zero
    flat = updates * experiment.no_aug_epochs if is_quick else sp.S.Zero
    marks: list[int] = []
    if kind == "multistep":
        places, message = experiment.milestones, "multistep needs milestones"
        kit.refuse_unless(places is not None, message, context.where)
        # int(total * milestone / epochs), in floats.
        marks = [int(int(total) * _float(mark) / experiment.max_epoch) for mark in places or ()]
    has_first, gamma = context.as_implemented or has_warmup, experiment.gamma

    def value(n: float) -> Any:
        if has_first and n < 1:
            return first  # the rate is set after each update, for the next one
        if kind == "multistep":
            return peak * gamma ** sum(n >= mark for mark in marks)
        if 0 < warmup and n <= warmup:
            return along_line(start, peak, (n / warmup) ** 2 if is_quick else n / warmup)
        if is_quick and n >= total - flat:
            return low
        return along_cosine(peak, low, (n - warmup) / (total - warmup - flat))

    return kit.curve(kind, value)


def _float(value: sp.Expr) -> float | int:
    return int(value) if value.is_Integer else float(value)


def _attributes(document: kit.Document) -> Mapping[str, Any] | None:
    """The attributes that the constructor of an experiment sets; None for another document."""
    if document.python is None:
        return document.content
    constructor = kit.python_text.run_function(document.python, "Exp.__init__", document.source)
    if constructor is None:
        return None
    attributes = (name.partition(".") for name in constructor.names if name.startswith("self."))
    return {name: constructor.names[f"self.{name}"] for _, _, name in attributes if "." not in name}


_TYPICAL = {"basic_lr_per_img", "no_aug_epochs"}


def _matches(document: kit.Document) -> bool:
    if document.python is None:
        return not _TYPICAL.isdisjoint(document.content)
    is_imported = not {"yolox.exp", "yolox.exp.yolox_base"}.isdisjoint(
        kit.python_text.imported_modules(document.python)
    )
    return is_imported and bool(kit.python_text.defined_names(document.python, "Exp"))


def _read(reading: kit.Reading) -> kit.Recipe:
    document = reading.document
    attributes = _attributes(document)
    if attributes is None:
        raise document.error("there is no class Exp with a constructor", "")
    if document.python is not None:
        for name in ("get_lr_scheduler", "get_optimizer"):
            if name in kit.python_text.defined_names(document.python, "Exp"):
                raise document.error(f"{name} is the experiment's own, and is not run", "Exp")
    experiment = Experiment.read_whole(replace(document, content=dict(attributes)))
    with experiment.origin.locate_errors():
        rate = _rate(reading.context, experiment)
    plan = kit.plan_optimizer(
        "SGD",
        {"momentum": experiment.momentum, "nesterov": True},
        "sgd",
        document.place("momentum"),
    )
    decay = constant(experiment.weight_decay)
    group = kit.ParamGroup({"lr": rate, "weight_decay": decay}, plan, kit.Role.DEFAULT)
    plain = group.without_decay()
    return reading.recipe(
        [group, *(replace(plain, role=role, name=role) for role in (kit.Role.NORM, kit.Role.BIAS))],
        horizon=experiment.max_epoch * int(reading.facts.require("updates_per_epoch")[0]),
        clipping=None,
        accumulation=1,
        values=(experiment,),
        derived={"weight_decay": experiment.weight_decay},
    )


FRAMEWORK = kit.Framework(
    "yolox",
    kit.section_entries(
        dict.fromkeys(KINDS, _rate),
        {"": Experiment},
        style=lambda experiment: str(experiment.scheduler),
        defects=DEFECTS,
    ),
    versions=("6ddff4824372",),
    repository="https://github.com/Megvii-BaseDetection/YOLOX",
    upstream="yolox/utils/lr_scheduler.py, yolox/exp/yolox_base.py, yolox/core/trainer.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
)

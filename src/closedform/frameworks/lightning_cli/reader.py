"""The reader of LightningCLI's configs.

A scheduler next to the model is stepped after every epoch, LightningCLI's default. The module
decides when a scheduler within the model is stepped: ModelGenerator's modules step it after every
update; other modules are not known, and are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from closedform.errors import nearest
from closedform.frameworks import torch
from closedform.frameworks.lightning_cli.schedules import CURVES, Arguments, rate, warmup_updates
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

_BLOCK = ("class_path", "init_args", "dict_kwargs")
_MODULES = "modelgenerator."
"""The package whose modules step their schedulers after every update."""
_METRIC = "ReduceLROnPlateau"


class Trainer(kit.OpenSection):
    accumulate_grad_batches: kit.Accumulation = 1
    gradient_clip_val: kit.Norm = 0
    gradient_clip_algorithm: Literal["norm", "value"] = "norm"
    max_steps: kit.Steps = -1
    max_epochs: kit.Epochs = -1


CLOCKS = {"update": kit.Clock(kit.Unit.UPDATE), "epoch": kit.Clock(kit.Unit.EPOCH)}
"""The clocks of a scheduler within the model, and of one next to it."""

DEFECTS: Mapping[str, kit.Note[[Any, kit.Clock, Any]]] = {
    "by-epoch": kit.Convention(
        "the scheduler is stepped after every epoch, whatever the unit of its arguments is",
        "src/lightning/pytorch/cli.py: LightningCLI.configure_optimizers",
        lambda name, clock, rate: clock.unit is kit.Unit.EPOCH and not kit.is_constant(rate),
        classes=(),
    ),
    "rises-again": kit.Convention(
        "the cosine rises again after T_max epochs",
        "torch/optim/lr_scheduler.py: CosineAnnealingLR",
        lambda name, clock, rate: name == "CosineAnnealingLR",
        classes=(),
    ),
}


def matches(document: kit.Document) -> bool:
    """Returns whether a config has a block with ``class_path`` for its optimizer."""
    top = kit.document_section(document)
    if not any(isinstance(top.content.get(key), Mapping) for key in ("trainer", "model")):
        return False
    return any(
        isinstance(content.get(key), Mapping) and "class_path" in content[key]
        for content in (top.content, _inner(top).content)
        for key in ("optimizer", "lr_scheduler")
    )


def _inner(top: kit.RawSection) -> kit.RawSection:
    """The arguments of the model, empty where there are none."""
    model = top.content.get("model")
    if not isinstance(model, Mapping):
        return kit.RawSection(top.document, {}, "model")
    arguments = model.get("init_args")
    if isinstance(arguments, Mapping):
        return kit.RawSection(top.document, arguments, "model.init_args")
    return kit.RawSection(top.document, model, "model")


def _updates(reading: kit.Reading, trainer: Trainer) -> int | None:
    """The updates of the run."""
    steps, epochs = trainer.max_steps, trainer.max_epochs
    length = reading.facts.updates_per_epoch
    # -1 is Lightning's value for no limit; the run ends at the first limit.
    ends = [steps] if steps > 0 else []
    ends += [math.ceil(epochs * length)] if epochs > 0 and length else []
    return min(ends) if ends else reading.facts.total_updates


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A class or key is unknown, or it is not known when a scheduler is stepped.
        ArgumentError: A fact is missing.
    """
    top = kit.document_section(kit.interpolate(reading.document))
    trainer = Trainer.read(top.section("trainer"))
    # Next to the model a scheduler is stepped after every epoch, within it as its module decides.
    by_epoch = "optimizer" in top
    outer = top if by_epoch else _inner(top)
    if "optimizer" not in outer:
        raise top.error(
            "there is no optimizer", hint="LightningCLI has it in optimizer or model.init_args"
        )
    optimizer = outer.section("optimizer")
    total = _updates(reading, trainer)
    plan, base, decay = _optimizer(optimizer)
    config_facts: dict[str, Any] = {"lr": base}
    schedule, clock, name = constant(base), CLOCKS["update"], ""
    if "lr_scheduler" in outer:
        block = outer.section("lr_scheduler")
        block.check(_BLOCK)
        if not by_epoch and not _steps_each_update(top, block):
            raise block.error(
                "the module decides when its scheduler is stepped, and this one is not known",
                hint="put optimizer and lr_scheduler next to the model, or write it in updates",
            )
        clock, name = CLOCKS["epoch" if by_epoch else "update"], _class(block)
        if name in CURVES:
            total = reading.value_or_fact(total, "total_updates")
            values = Arguments.read(block.section("init_args"))
            config_facts["warmup_updates"] = warmup_updates(values, total)
            context = reading.context.with_facts(total_updates=total)
            with block.locate_errors():
                schedule = rate(replace(context, base=base), values, name)
        else:
            schedule = _of_torch(reading, block, base, by_epoch)
    group = kit.ParamGroup(
        {"lr": schedule, "weight_decay": constant(decay)}, plan, kit.Role.DEFAULT
    )
    threshold = trainer.gradient_clip_val
    return reading.recipe(
        [group],
        clock=clock,
        horizon=total,
        clipping=kit.Clipping(threshold, kit.ClippingKind(trainer.gradient_clip_algorithm))
        if threshold
        else None,
        accumulation=trainer.accumulate_grad_batches,
        values=(name, clock, schedule),
        derived=config_facts,
    )


def _class(block: kit.RawSection) -> str:
    """The class of a block, without its module."""
    return str(block.text("class_path")).rpartition(".")[2]


def _steps_each_update(top: kit.RawSection, block: kit.RawSection) -> bool:
    """Whether the model is a module of ModelGenerator."""
    model = top.content.get("model")
    path = model.get("class_path", "") if isinstance(model, Mapping) else ""
    return any(str(name).startswith(_MODULES) for name in (path, block.text("class_path")))


def _optimizer(block: kit.RawSection) -> tuple[kit.OptimizerPlan, Any, Any]:
    """The optimizer, its rate and its weight decay, with the defaults of torch."""
    block.check(_BLOCK)
    name = _class(block)
    init_args = block.section("init_args")
    entry = torch.FRAMEWORK.optimizers.get(name)
    # The optimizer's rate is the base of the scheduler, so the default of the class counts.
    defaults = {} if entry is None else {p.name: p.default for p in entry.parameters}
    rate = init_args.number("lr", *[defaults["lr"]] if "lr" in defaults else [])
    decay = init_args.number("weight_decay", defaults.get("weight_decay", 0))
    left_out = ("lr", "weight_decay", "foreach", "fused", "capturable", "differentiable")
    arguments = {
        key: value
        for key, value in init_args.content.items()
        if key not in left_out and value is not None
    }
    return kit.plan_optimizer(name, arguments, where=block.document.place(block.path)), rate, decay


def _of_torch(reading: kit.Reading, block: kit.RawSection, base: Any, by_epoch: bool) -> Schedule:
    """The rate under one of torch's schedulers, in updates."""
    name, inner = _class(block), block.section("init_args")
    if name == _METRIC:
        raise block.error(
            f"{name} is driven by a metric: its value is not a function of the update",
            hint="closedform.frameworks.metric_rule('torch', 'ReduceLROnPlateau', …) has its rule",
        )
    classes = torch.FRAMEWORK.schedules
    if name not in classes:
        hint = nearest(name, [*classes, *CURVES])
        raise block.error(f"there is no scheduler {name!r}", "class_path", hint=hint)
    arguments = {key: inner.value(key) for key in inner.content if key in inner}
    # An argument of older versions of torch, without effect on the rate.
    arguments.pop("verbose", None)
    with block.locate_errors():
        schedule = kit.class_schedule("torch", classes, name, arguments, base=base)
    if not by_epoch or kit.is_constant(schedule):
        return schedule
    facts, place = reading.facts, block.document.place(block.path)
    if facts.updates_per_epoch is None and facts.dataset_size is not None:
        (size,) = facts.require("global_batch_size", where=place)
        # torch's DataLoader keeps the last, smaller batch by default.
        return kit.hold(schedule, math.ceil(facts.dataset_size / size))
    (length,) = facts.require("updates_per_epoch", where=place)
    return kit.hold(schedule, int(length))


READER = kit.Reader(read, matches)

"""torchtune: its cosine schedule with a warmup, and the YAML configs of its recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.frameworks.transformers.schedules import Cosine, ScheduleNumbers, schedule_by_name
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
COSINE = "get_cosine_schedule_with_warmup"
PACKAGES = ("torchtune.training.lr_schedulers", "torchtune.training", "torchtune.modules")
"""The modules that have had the schedule; the last one until 2024."""


def _component(scheduler: kit.RawSection, key: str, default: object) -> str:
    """The schedule, by its dotted path."""
    component = str(scheduler.text(key, default))
    package, _, name = component.rpartition(".")
    if name != COSINE or package not in PACKAGES:
        raise scheduler.error(
            f"torchtune passes num_training_steps and last_epoch, which {component!r} is not known "
            "to take",
            key,
            nearest(component, [f"{PACKAGES[0]}.{COSINE}"]),
        )
    return component


class Arguments(Cosine):
    num_training_steps: kit.Steps
    num_warmup_steps: kit.Steps


class Scheduler(Cosine, irrelevant="last_epoch"):
    _component_: str = kit.read_by(_component)
    num_warmup_steps: kit.Steps


class Config(kit.OpenSection, irrelevant="optimizer_in_bwd"):
    optimizer: kit.RawSection
    lr_scheduler: Scheduler | None
    clip_grad_norm: kit.Norm | None = None
    gradient_accumulation_steps: kit.Accumulation | None = None
    epochs: kit.Epochs | None = None
    max_steps_per_epoch: int | None = None


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "cosine-climbs": kit.Convention(
        "the cosine rises again after the run",
        "torchtune/training/lr_schedulers.py:80",
        lambda config: config.lr_scheduler is not None,
    ),
}


def _rate(context: kit.Context, scheduler: Arguments | Scheduler, total: int) -> Schedule:
    rate, warmup = exact_number(context.base, "lr"), sp.Integer(scheduler.num_warmup_steps)
    run = ScheduleNumbers(rate, rate, warmup, sp.Integer(total), context)
    kwargs = {"num_cycles": scheduler.num_cycles}
    return schedule_by_name(
        "cosine", kit.document_section(kit.Document(kwargs, context.where)), run
    )


def _class_rate(context: kit.Context, arguments: Arguments) -> Schedule:
    return _rate(context, arguments, arguments.num_training_steps)


def _matches(document: kit.Document) -> bool:
    optimizer = document.content.get("optimizer")
    return isinstance(optimizer, dict) and "_component_" in optimizer


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(kit.interpolate(reading.document))
    optimizer = kit.class_optimizer(
        config.optimizer, config.optimizer.text("_component_"), ("_component_",)
    )
    total = _length(config, reading.facts)
    scheduler = config.lr_scheduler
    rate = None if scheduler is None else _build_schedule(reading, scheduler, optimizer, total)
    threshold = config.clip_grad_norm
    return reading.recipe(
        [optimizer.group(rate)],
        horizon=total,
        clipping=None if threshold is None else kit.Clipping(threshold),
        accumulation=config.gradient_accumulation_steps,
        values=(config,),
    )


def _build_schedule(
    reading: kit.Reading, scheduler: Any, optimizer: kit.ClassOptimizer, total: int | None
) -> Schedule:
    length = reading.value_or_fact(total, "total_updates")
    with scheduler.origin.locate_errors():
        context = replace(reading.context, base=optimizer.lr)
        return _rate(context, scheduler, length)


def _length(config: Config, facts: kit.Facts) -> int | None:
    """The updates of the run: those of the facts, or epochs times their updates, at most a cap."""
    if facts.total_updates is not None:
        return facts.total_updates
    epochs, length, most = config.epochs, facts.updates_per_epoch, config.max_steps_per_epoch
    if epochs is None or length is None:
        return None
    return int(epochs * (length if most is None else min(length, most)))


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    """Its one schedule is a cosine over the run."""
    if form.curve not in (kit.CurveName.COSINE, kit.CurveName.CONSTANT) or form.has_plateau:
        return
    component = {"_component_": f"torch.optim.{optimizer.class_name}"}
    config: dict[str, Any] = {
        "optimizer": {**component, **optimizer.keywords(form.peak)},
        "epochs": 1,
    }
    config |= optimizer.clip("clip_grad_norm")
    if form.curve is kit.CurveName.CONSTANT and form.rise is None:
        yield config
        return
    warmup = kit.nearest_integer(form.warmup())
    scheduler: dict[str, Any] = {
        "_component_": f"{PACKAGES[0]}.{COSINE}",
        "num_warmup_steps": warmup,
    }
    if form.curve is kit.CurveName.COSINE and kit.nearest_integer(form.end) != form.total:
        scheduler["num_cycles"] = kit.native((form.total - warmup) / (2 * (form.end - form.begin)))
    yield {**config, "lr_scheduler": scheduler}


FRAMEWORK = kit.Framework(
    "torchtune",
    kit.section_entries({COSINE: _class_rate}, {"": Arguments}),
    versions=("bd2a0fc7c",),
    repository="https://github.com/pytorch/torchtune",
    tier=kit.Tier.FROZEN,
    upstream="torchtune/training/lr_schedulers.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {"total_updates": kit.RUN}, ("adam", "adamw", "sgd")),
)

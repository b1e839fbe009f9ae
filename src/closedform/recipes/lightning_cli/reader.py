"""The reader of LightningCLI's configs.

A scheduler beside the model is stepped after every epoch, LightningCLI's default. A scheduler
within the model is stepped as the module asks for: after every update in those of ModelGenerator;
other modules are not known, and refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes import torch
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Unit, hold
from closedform.recipes.defects import Defect, Kind
from closedform.recipes.document import Document, interpolated
from closedform.recipes.keys import OpenKeys, Values, choice, integer, number
from closedform.recipes.lightning_cli.schedules import SCHEDULES, warmup_updates
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import (
    Clipping,
    ClippingKind,
    OptimizerPlan,
    ParamGroup,
    Recipe,
    Role,
    is_constant,
)
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

_FRAMEWORK = "lightning-cli"
_BLOCK = ("class_path", "init_args", "dict_kwargs")
_MODULES = "modelgenerator."
"""The package whose modules step their schedulers after every update."""
_METRIC = "ReduceLROnPlateau"
TRAINER = OpenKeys(
    accumulate_grad_batches=integer(1),
    gradient_clip_val=number(0),
    gradient_clip_algorithm=choice("norm", "value", default="norm"),
    max_steps=integer(-1),
    max_epochs=integer(-1),
)
CLOCKS = {"update": Clock(Unit.UPDATE), "epoch": Clock(Unit.EPOCH)}
"""The clocks of a scheduler within the model, and of one next to it."""

DEFECTS = {
    "by-epoch": Defect(
        "the scheduler is stepped after every epoch, whatever the unit of its arguments is",
        "src/lightning/pytorch/cli.py: LightningCLI.configure_optimizers",
        lambda name, clock, rate: clock.unit is Unit.EPOCH and not is_constant(rate),
        kind=Kind.CONVENTION,
        classes=(),
    ),
    "rises-again": Defect(
        "the cosine rises again after T_max epochs",
        "torch/optim/lr_scheduler.py: CosineAnnealingLR",
        lambda name, clock, rate: name == "CosineAnnealingLR",
        kind=Kind.CONVENTION,
        classes=(),
    ),
}


def matches(document: Document) -> bool:
    """Returns whether a config has a block with ``class_path`` for its optimizer."""
    top = whole(document)
    if not any(isinstance(top.content.get(key), Mapping) for key in ("trainer", "model")):
        return False
    return any(
        isinstance(found.get(key), Mapping) and "class_path" in found[key]
        for found in (top.content, _inner(top).content)
        for key in ("optimizer", "lr_scheduler")
    )


def _inner(top: Section) -> Section:
    """The arguments of the model, empty where there are none."""
    model = top.content.get("model")
    if not isinstance(model, Mapping):
        return Section(top.document, {}, "model")
    arguments = model.get("init_args")
    if isinstance(arguments, Mapping):
        return Section(top.document, arguments, "model.init_args")
    return Section(top.document, model, "model")


@dataclass(frozen=True, slots=True)
class _Run:
    """The length of the run, in updates and epochs, where they are known."""

    reading: Reading
    trainer: Values

    def updates(self) -> int | None:
        """Returns the updates of the run."""
        steps, epochs = self.trainer.max_steps, self.trainer.max_epochs
        length = self.reading.facts.updates_per_epoch
        ends = [steps] if steps > 0 else []
        ends += [math.ceil(epochs * length)] if epochs > 0 and length else []
        return min(ends) if ends else self.reading.facts.total_updates

    def required(self, path: str) -> int:
        """Returns the updates of the run, or raises ArgumentError."""
        found = self.updates()
        if found is None:
            place = self.reading.document.place(path)
            (given,) = self.reading.facts.require("total_updates", where=place)
            found = int(given)
        return found


def read(reading: Reading) -> Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A class or key is unknown, or it is not known when a scheduler is stepped.
        ArgumentError: A fact is missing.
    """
    top = whole(interpolated(reading.document))
    trainer, outer = TRAINER.read(top.section("trainer")), top
    is_within = "optimizer" not in top
    if is_within:
        outer = _inner(top)
    if "optimizer" not in outer:
        raise top.error(
            "there is no optimizer", hint="LightningCLI has it in optimizer or model.init_args"
        )
    optimizer = outer.section("optimizer")
    run = _Run(reading, trainer)
    plan, rate, decay = _optimizer(optimizer)
    derived: dict[str, Any] = {"lr": rate}
    schedule, clock, name = constant(rate), CLOCKS["update"], ""
    if "lr_scheduler" in outer:
        block = outer.section("lr_scheduler")
        block.check(_BLOCK)
        by_epoch = not is_within
        if is_within and not _steps_each_update(top, block):
            raise block.error(
                "the module decides when its scheduler is stepped, and this one is not known",
                hint="put optimizer and lr_scheduler beside the model, or write it in updates",
            )
        schedule = _scheduled(run, block, rate, by_epoch, derived)
        clock, name = CLOCKS["epoch" if by_epoch else "update"], _class(block)
    group = ParamGroup({"lr": schedule, "weight_decay": constant(decay)}, plan, Role.DEFAULT)
    threshold = trainer.gradient_clip_val
    return reading.recipe(
        [group],
        clock=clock,
        horizon=run.updates(),
        clipping=Clipping(threshold, ClippingKind(trainer.gradient_clip_algorithm))
        if threshold
        else None,
        accumulation=trainer.accumulate_grad_batches,
        values=(name, clock, schedule),
        derived=derived,
    )


def _class(block: Section) -> str:
    """The class of a block, without its module."""
    return str(block.text("class_path")).rpartition(".")[2]


def _steps_each_update(top: Section, block: Section) -> bool:
    """Whether the model is a module of ModelGenerator."""
    model = top.content.get("model")
    path = model.get("class_path", "") if isinstance(model, Mapping) else ""
    return any(str(one).startswith(_MODULES) for one in (path, block.text("class_path")))


def _optimizer(block: Section) -> tuple[OptimizerPlan, Any, Any]:
    """The optimizer, its rate and its weight decay, with the defaults of torch."""
    block.check(_BLOCK)
    name = _class(block)
    given = block.section("init_args")
    known = torch.FRAMEWORK.optimizers.get(name)
    defaults = {} if known is None else {p.name: p.default for p in known.parameters}
    rate = given.number("lr", *[defaults["lr"]] if "lr" in defaults else [])
    decay = given.number("weight_decay", defaults.get("weight_decay", 0))
    left_out = ("lr", "weight_decay", "foreach", "fused", "capturable", "differentiable")
    arguments = {
        key: value
        for key, value in given.content.items()
        if key not in left_out and value is not None
    }
    return planned(name, arguments, where=block.document.place(block.path)), rate, decay


def _scheduled(
    run: _Run, block: Section, rate: Any, by_epoch: bool, derived: dict[str, Any]
) -> Schedule:
    """The rate under the scheduler of a block, in updates."""
    name, given = _class(block), block.section("init_args")
    if name == _METRIC:
        raise block.error(
            f"{name} is driven by a metric: its value is not a function of the update",
            hint="closedform.frameworks.metric_rule('torch', 'ReduceLROnPlateau', …) has its rule",
        )
    arguments = {key: given.value(key) for key in given.content if key in given}
    if name in SCHEDULES:
        total = run.required(block.path)
        with block.located():
            full = {"num_warmup_steps": None, "warmup_ratio": None, **arguments}
            derived["warmup_updates"] = warmup_updates(full, total, _FRAMEWORK)
            return built(
                _FRAMEWORK,
                SCHEDULES,
                name,
                arguments,
                base=rate,
                facts={"num_training_steps": total},
            )
    known = torch.FRAMEWORK.schedules
    if name not in known:
        hint = nearest(name, [*known, *SCHEDULES])
        raise block.error(f"there is no scheduler {name!r}", "class_path", hint=hint)
    arguments.pop("verbose", None)
    with block.located():
        made = built("torch", known, name, arguments, base=rate)
    if not by_epoch or is_constant(made):
        return made
    facts = run.reading.facts
    length = facts.updates_per_epoch
    if length is None and facts.dataset_size is not None:
        place = block.document.place(block.path)
        (size,) = facts.require("global_batch_size", where=place)
        length = math.ceil(facts.dataset_size / size)
    if length is None:
        place = block.document.place(block.path)
        (given_length,) = facts.require("updates_per_epoch", where=place)
        length = int(given_length)
    return hold(made, length)


READER = Reader(read, matches)

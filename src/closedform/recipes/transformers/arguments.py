"""The reader of TrainingArguments, and of the configs that hold them under the same names.

The schedule is that of ``get_scheduler``. Its updates are ``max_steps``, or else follow from the
epochs and the size of the data set, which are facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from closedform.errors import ArgumentError
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.clock import Facts
from closedform.recipes.document import Document, Form
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, calls, whole
from closedform.recipes.transformers.optimizers import optimizer_plan
from closedform.recipes.transformers.schedules import NOTES, SCHEDULES, V4
from closedform.schedules import constant

NO_DECAY = (
    "bias",
    "layernorm",
    "rmsnorm",
    r"(?:^|\.)norm(?:$|\.)",
    r"_norm(?:$|\.)",
)
"""The patterns of the Trainer on names of parameters without weight decay; LayerNorms as well."""

KNOWN = frozenset(
    {
        "adafactor",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "beta",
        "deepspeed",
        "gradient_accumulation_steps",
        "learning_rate",
        "lr_scheduler_kwargs",
        "lr_scheduler_type",
        "max_grad_norm",
        "max_steps",
        "num_train_epochs",
        "optim",
        "optim_args",
        "optim_target_modules",
        "per_device_train_batch_size",
        "warmup_ratio",
        "warmup_steps",
        "weight_decay",
    }
)
"""The keys that decide the schedules, and others that a search for such keys finds."""

_OF_LOSS = ("reduce_lr_on_plateau", "greedy")
_TYPICAL = ("learning_rate", "lr_scheduler_type", "per_device_train_batch_size", "warmup_ratio")


@dataclass(frozen=True, slots=True)
class Variant:
    """A program that takes TrainingArguments, with its own defaults.

    Attributes:
        name: The framework.
        matches: Whether a section of unknown origin is one of this framework.
        known: The keys of its own whose names concern the optimizer.
        rate: The default of ``learning_rate``, from the section and its class; None if it has to
            be given.
        scheduler: The default of ``lr_scheduler_type``.
        weight_decay: The default of ``weight_decay``.
        beta2: The default of ``adam_beta2``.
        group_rates: Keys with a learning rate of their own for a part of the model.
        switches: Flags of the program that choose another optimizer than ``optim``.
    """

    name: str
    matches: Callable[[Section], bool]
    known: Collection[str] = ()
    rate: Callable[[Section, str], float | None] = lambda section, name: 5e-5
    scheduler: str = "linear"
    weight_decay: float = 0.0
    beta2: float = 0.999
    group_rates: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


def is_plain(section: Section) -> bool:
    """Returns whether the schedule is the same for each program that takes these arguments.

    The programs have defaults of their own: the rate has to be given, and on a command line, which
    ms-swift has as well, the scheduler.
    """
    is_line = section.document.form is Form.ARGUMENTS
    return "learning_rate" in section and (not is_line or "lr_scheduler_type" in section)


def reader_of(variant: Variant, *, is_general: bool = False) -> Reader:
    """Returns the reader of a variant."""

    def matches(document: Document) -> bool:
        section, class_name = arguments_of(document)
        is_typical = class_name or any(key in section for key in _TYPICAL)
        return bool(is_typical) and variant.matches(section)

    return Reader(lambda reading: read_arguments(reading, variant), matches, is_general)


def arguments_of(document: Document) -> tuple[Section, str]:
    """Returns the section with the arguments, and the class that a Python file constructs.

    In a Python file it is the call of a class ``…Config`` or ``…Arguments`` with the most
    arguments that are known.
    """
    if document.form is not Form.PYTHON or document.python is None:
        return whole(document), ""
    values = (*document.python.expressions, *document.content.values())
    found = [
        call
        for value in values
        for call in calls(value)
        if call.name.endswith(("Config", "Arguments"))
    ]
    if not found:
        return whole(document), ""
    best = max(found, key=lambda call: len(KNOWN & call.kwargs.keys()))
    return Section(document, best.kwargs, best.name), best.name.rpartition(".")[2]


def read_arguments(reading: Reading, variant: Variant) -> Recipe:
    """Returns the recipe of TrainingArguments.

    Raises:
        ConfigError: A key near the optimizer is unknown, or a value is not valid.
        ArgumentError: The number of updates is not determined.
    """
    section, class_name = arguments_of(reading.document)
    section.check_related({*KNOWN, *variant.known, *variant.group_rates, *variant.switches})
    facts = reading.facts
    name = section.text("lr_scheduler_type", variant.scheduler)
    rate = base_rate(section, facts, variant.rate(section, class_name))
    total = horizon(section, facts)
    warmup, notes = _warmup(section, total, reading.version)
    decay = section.number("weight_decay", variant.weight_decay)
    plan = _plan(section, variant)
    if name in _OF_LOSS:
        raise section.error(f"{name} is a function of the loss", "lr_scheduler_type")

    def schedule(peak: Any) -> Schedule:
        kwargs = dict(section.section("lr_scheduler_kwargs").content)
        config = {
            "learning_rate": peak,
            "warmup_steps": warmup,
            "lr_scheduler_type": name,
            "lr_scheduler_kwargs": _numbers(kwargs),
        }
        with section.located("lr_scheduler_type"):
            return built(
                "transformers",
                SCHEDULES,
                name,
                config,
                facts={"num_training_steps": total},
                version=reading.version,
            )

    rates = {
        "": rate,
        **{key: section.number(key) for key in variant.group_rates if key in section},
    }
    groups = []
    for own, peak in rates.items():
        lr = schedule(peak)
        schedules = {"lr": lr, "weight_decay": constant(decay)}
        group = ParamGroup(schedules, plan, Role.of(own), own)
        groups += [group, group.without_decay(NO_DECAY)]
    if "deepspeed" in section:
        notes["deepspeed-scheduler"] = (
            "a scheduler or optimizer in the DeepSpeed config takes the place of this one"
        )
    notes.update({f"{name}-{index}": text for index, text in enumerate(NOTES.get(name, ()), 1)})
    norm = section.number("max_grad_norm", 1.0)
    return Recipe(
        name=reading.document.name,
        framework=variant.name,
        version=reading.version,
        source=reading.document.source,
        param_groups=tuple(groups),
        horizon=total,
        clipping=Clipping(norm) if norm > 0 else None,
        accumulation=_count(section, "gradient_accumulation_steps"),
        notes=notes,
        derived={"lr": rate, "warmup_updates": warmup, "weight_decay": decay},
    )


def base_rate(section: Section, facts: Facts, default: float | None) -> Any:
    """Returns the learning rate of a section: its own, the default, or that of the facts.

    Raises:
        ArgumentError: None of them is known.
    """
    if "learning_rate" in section:
        return section.number("learning_rate")
    if facts.lr is not None:
        return facts.lr
    if default is None:
        raise ArgumentError(
            "missing facts: lr",
            where=section.document.place(section.at("learning_rate")),
            hint="the config has no learning_rate, and the default depends on the program",
        )
    return default


def horizon(
    section: Section,
    facts: Facts,
    epochs_key: str = "num_train_epochs",
    epochs_default: float = 3.0,
    micro_batch_key: str = "per_device_train_batch_size",
    accumulation: int | None = None,
) -> int:
    """Returns the updates of the run as the Trainer counts them.

    ``max_steps`` wins over the epochs. An epoch has ``ceil(samples / (batch size * processes))``
    micro-batches, and an update for each ``gradient_accumulation_steps`` of them or a part.

    Raises:
        ArgumentError: Facts are missing; the message lists them.
    """
    steps = section.integer("max_steps", -1)
    if steps > 0:
        return int(steps)
    if facts.total_updates is not None:
        return facts.total_updates
    epochs = section.number(epochs_key, epochs_default)
    if facts.updates_per_epoch is not None:
        updates: int = math.ceil(epochs * facts.updates_per_epoch)
        return updates
    where = section.document.place(section.at("max_steps"))
    if facts.dataset_size is None or facts.world_size is None:
        raise ArgumentError(
            "missing facts: total_updates",
            where=where,
            hint="give total_updates, or updates_per_epoch, or dataset_size and world_size",
        )
    size = facts.micro_batch_size or section.integer(micro_batch_key, 8)
    per_update = accumulation or section.integer("gradient_accumulation_steps", 1)
    batches = math.ceil(facts.dataset_size / (size * facts.world_size))
    of_samples: int = math.ceil(epochs * max(1, -(-batches // per_update)))
    return of_samples


def warmup_updates(steps: Any, ratio: Any, total: int) -> int:
    """Returns the updates of the warmup: ``steps`` from 1 on, else a fraction of the run.

    Example:
        >>> warmup_updates(0.03, 0, 50), warmup_updates(0, 0.1, 50), warmup_updates(7, 0.1, 50)
        (2, 5, 7)
    """
    if steps >= 1:
        return int(steps)
    updates: int = math.ceil(total * (steps if steps > 0 else ratio))
    return updates


def _warmup(section: Section, total: int, version: str) -> tuple[Any, dict[str, str]]:
    """The updates of the warmup, and notes."""
    steps, ratio = section.number("warmup_steps", 0), section.number("warmup_ratio", 0)
    if steps < 0:
        raise section.error(f"warmup_steps must not be negative, got {steps}", "warmup_steps")
    if not 0 <= ratio <= 1:
        raise section.error(f"warmup_ratio must be in [0, 1], got {ratio}", "warmup_ratio")
    notes = {}
    if "warmup_ratio" in section and version != V4:
        notes["warmup-ratio"] = (
            "transformers 5 replaces warmup_ratio by a warmup_steps below 1; read as before"
        )
    if version == V4 and steps > 0:
        return steps, notes
    return warmup_updates(steps, ratio, total), notes


def _plan(section: Section, variant: Variant) -> OptimizerPlan:
    for key in variant.switches:
        if section.flag(key, False):
            where = section.document.place(section.at(key))
            return planned(key.removeprefix("use_"), {}, None, where, by_name=False)
    return optimizer_plan(section, variant.beta2, variant.weight_decay)


def _count(section: Section, key: str) -> int | None:
    """An integer, None where it is not determined, such as "auto"."""
    found = section.content.get(key, 1)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _numbers(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a scheduler, numbers in texts as the Trainer converts them."""
    made: dict[str, Any] = {}
    for key, value in kwargs.items():
        try:
            made[key] = float(value) if isinstance(value, str) else value
        except ValueError:
            made[key] = value
    return made

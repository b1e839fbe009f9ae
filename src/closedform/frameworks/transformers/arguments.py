"""The reader of TrainingArguments, and of the configs that hold them under the same names.

The schedule is that of ``get_scheduler``. Its updates are ``max_steps``, or else follow from the
epochs and the size of the data set, which are facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from closedform.frameworks.transformers import schedules
from closedform.frameworks.transformers.optimizers import Adam, Optimizer, optimizer_plan
from closedform.frameworks.transformers.schedules import CLOCK, DEFECTS, OF_LOSS, V4, Scheduler
from closedform.frameworks.transformers.writer import WRITER
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

VERSIONS = ("5.23.0", V4)
UPSTREAM = (
    "src/transformers/optimization.py, src/transformers/training_args.py, "
    "src/transformers/trainer.py"
)
NO_DECAY = (
    "bias",
    "layernorm",
    "rmsnorm",
    r"(?:^|\.)norm(?:$|\.)",
    r"_norm(?:$|\.)",
)
"""The patterns of the Trainer on names of parameters without weight decay; LayerNorms as well."""


def _micro_batches(section: kit.RawSection, key: str, default: int) -> int | None:
    """The micro-batches of an update, None where they are not determined, such as "auto"."""
    value = section.content.get(key)
    is_determined = not kit.is_open(value) and value != "auto"
    return int(section.integer(key, default)) if is_determined else None


class Arguments(
    Scheduler,
    Optimizer,
    kit.OpenSection,
    irrelevant="beta optim_args optim_target_modules",
):
    """The keys of TrainingArguments that decide the schedules, and others that are like them."""

    gradient_accumulation_steps: kit.Accumulation | None = kit.read_by(_micro_batches, 1)
    max_grad_norm: kit.Norm = 1
    num_train_epochs: kit.WhereNeeded[kit.RealEpochs] = kit.number(3)
    per_device_train_batch_size: kit.WhereNeeded[kit.BatchSize] = kit.integer(8)


_TYPICAL = ("learning_rate", "lr_scheduler_type", "per_device_train_batch_size", "warmup_ratio")


@dataclass(frozen=True, slots=True)
class TrainerProgram:
    """A program that takes TrainingArguments, by its difference from the Trainer.

    Attributes:
        name: The framework.
        matches: Whether a section of unknown origin is one of this framework.
        keys: Its keys.
        rate: The default of ``learning_rate``, from the section and its class, where the keys have
            none; None if it has to be given.
        group_rates: Keys with the learning rate of a part of the model.
        switches: Flags of the program that choose another optimizer than ``optim``.
    """

    name: str
    matches: Callable[[kit.RawSection], bool]
    keys: type[Arguments]
    rate: Callable[[kit.RawSection, str], float | None] = lambda section, class_name: None
    group_rates: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


def is_plain(section: kit.RawSection) -> bool:
    """Returns whether the schedule is the same for each program that takes these arguments.

    The programs have other defaults: the rate has to be given, and on a command line, which
    ms-swift has as well, the scheduler.
    """
    is_line = section.document.syntax is kit.Syntax.ARGUMENTS
    return "learning_rate" in section and (not is_line or "lr_scheduler_type" in section)


def framework_of(program: TrainerProgram, repository: str, commit: str) -> kit.Framework:
    """Returns the framework of a program whose configs differ from the Trainer's by their keys."""
    return kit.Framework(
        program.name,
        {},
        versions=VERSIONS,
        repository=repository,
        commit=commit,
        upstream=UPSTREAM,
        clock=CLOCK,
        defects=DEFECTS,
        reader=reader_of(program),
        writer=WRITER,
    )


def reader_of(program: TrainerProgram, *, is_general: bool = False) -> kit.Reader:
    """Returns the reader of a program."""

    def matches(document: kit.Document) -> bool:
        section, class_name = arguments_of(document)
        is_typical = class_name or any(key in section for key in _TYPICAL)
        return bool(is_typical) and program.matches(section)

    return kit.Reader(lambda reading: read_arguments(reading, program), matches, is_general)


def arguments_of(document: kit.Document) -> tuple[kit.RawSection, str]:
    """Returns the section with the arguments, and the class that a Python file constructs.

    In a Python file it is the call of a class ``…Config`` or ``…Arguments`` with the most
    arguments that are known.
    """
    if document.syntax is not kit.Syntax.PYTHON or document.python is None:
        return kit.document_section(document), ""
    values = (*document.python.expressions, *document.content.values())
    constructions = [
        call
        for value in values
        for call in kit.calls(value)
        if call.name.endswith(("Config", "Arguments"))
    ]
    if not constructions:
        return kit.document_section(document), ""
    best = max(constructions, key=lambda call: len(Arguments.keys.keys() & call.kwargs.keys()))
    return kit.RawSection(document, best.kwargs, best.name), best.name.rpartition(".")[2]


def read_arguments(reading: kit.Reading, program: TrainerProgram) -> kit.Recipe:
    """Returns the recipe of TrainingArguments.

    Raises:
        ConfigError: A key near the optimizer is unknown, or a value is not valid.
        ArgumentError: The number of updates is not determined.
    """
    section, class_name = arguments_of(reading.document)
    arguments = program.keys.read(section)
    name = arguments.lr_scheduler_type
    if name in OF_LOSS:
        raise section.error(f"{name} is a function of the loss", "lr_scheduler_type")
    default = program.rate(section, class_name)
    peak = base_rate(arguments, arguments.learning_rate, reading.facts, default)
    total = horizon(
        section,
        reading.facts,
        arguments.max_steps,
        arguments.num_train_epochs,
        arguments.per_device_train_batch_size,
        arguments.gradient_accumulation_steps,
    )
    arguments = arguments.replace(
        learning_rate=peak,
        max_steps=total,
        warmup_steps=schedules.warmup(arguments, total, reading.version),
        warmup_ratio=None,
    )
    plan = _plan(arguments, program)

    def schedule(rate: sp.Expr) -> Schedule:
        with section.locate_errors("lr_scheduler_type"):
            return schedules.rate(reading.context, arguments.replace(learning_rate=rate))

    rates = {"": peak, **{key: getattr(arguments, key) for key in program.group_rates}}
    groups = []
    for part, rate in rates.items():
        if rate is not None:
            values = {"lr": schedule(rate), "weight_decay": constant(arguments.weight_decay)}
            group = kit.ParamGroup(values, plan, kit.Role.of(part), part)
            groups += [group, group.without_decay(NO_DECAY)]
    norm = arguments.max_grad_norm
    recipe = reading.recipe(
        groups,
        horizon=total,
        clipping=kit.Clipping(norm) if norm > 0 else None,
        accumulation=arguments.gradient_accumulation_steps,
        values=(arguments,),
        derived={
            "lr": peak,
            "warmup_updates": arguments.warmup_steps,
            "weight_decay": arguments.weight_decay,
        },
    )
    return with_deepspeed(
        reading, recipe, arguments, (f"optim {plan.name}", f"lr_scheduler_type {name}")
    )


def with_deepspeed(
    reading: kit.Reading, trainer: kit.Recipe, arguments: Adam, names: tuple[str, str]
) -> kit.Recipe:
    """Returns the recipe of a Trainer with the config of DeepSpeed, if its arguments name one.

    Args:
        reading: The reading of the arguments.
        trainer: The recipe without that config.
        arguments: The arguments.
        names: Their optimizer and scheduler, in words.

    Raises:
        ConfigError: A value of the config is not that of the Trainer, or not valid.
    """
    if arguments.deepspeed is None:
        return trainer
    # Imported only here: most configs name no config of DeepSpeed.
    from closedform.frameworks.transformers.deepspeed import in_place_of_trainer

    return in_place_of_trainer(reading, trainer, arguments.deepspeed, arguments, names)


def base_rate(
    arguments: kit.Section, rate: sp.Expr | None, facts: kit.Facts, default: float | None
) -> sp.Expr:
    """Returns the learning rate: that of the config, of the facts, or a default.

    Raises:
        MissingFactsError: None of them is known.
    """
    if "learning_rate" not in arguments:
        rate = next((value for value in (facts.lr, default, rate) if value is not None), None)
    if rate is None:
        section = arguments.origin
        raise kit.missing_facts(
            "lr",
            section.document.place(section.at("learning_rate")),
            "the config has no learning_rate, and the default depends on the program",
        )
    return exact_number(rate)


def horizon(
    section: kit.RawSection,
    facts: kit.Facts,
    steps: int | None,
    epochs: Callable[[], sp.Expr],
    micro_batch: Callable[[], int],
    accumulation: int | None,
) -> int:
    """Returns the updates of the run as the Trainer counts them.

    ``max_steps`` wins over the epochs. An epoch has ``ceil(samples / (batch size * processes))``
    micro-batches, and an update for each ``gradient_accumulation_steps`` of them or a part.

    Args:
        section: The section, for errors.
        facts: The facts.
        steps: ``max_steps``; None, or not above 0, where the epochs decide.
        epochs: The epochs of the config, asked for where they decide.
        micro_batch: The micro-batch size of the config, asked for where it decides.
        accumulation: The micro-batches of an update, None if the config does not determine them.

    Raises:
        MissingFactsError: Facts are missing; the message lists them.
        ConfigError: A value that is needed is not determined.
    """
    if steps is not None and steps > 0:
        return steps
    if facts.total_updates is not None:
        return facts.total_updates
    if facts.updates_per_epoch is not None:
        return math.ceil(float(epochs()) * facts.updates_per_epoch)
    if facts.dataset_size is None or facts.world_size is None:
        raise kit.missing_facts(
            "total_updates",
            section.document.place(section.at("max_steps")),
            "give total_updates, or updates_per_epoch, or dataset_size and world_size",
        )
    size = facts.micro_batch_size or micro_batch()
    per_update = accumulation or facts.gradient_accumulation
    if per_update is None:
        per_update = section.integer("gradient_accumulation_steps")
    batches = math.ceil(facts.dataset_size / (size * facts.world_size))
    return math.ceil(float(epochs()) * max(1, -(-batches // per_update)))


def _plan(arguments: Arguments, program: TrainerProgram) -> kit.OptimizerPlan:
    for key in program.switches:
        if getattr(arguments, key):
            where = arguments.origin.document.place(arguments.origin.at(key))
            return kit.plan_optimizer(key.removeprefix("use_"), {}, None, where, by_name=False)
    return optimizer_plan(arguments)

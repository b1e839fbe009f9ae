"""The reader of litgpt's YAML configs: pretraining has ``max_tokens``, finetuning epochs."""

from __future__ import annotations

from typing import Any

from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Unit
from closedform.recipes.document import Document
from closedform.recipes.litgpt.schedules import SCHEDULES
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, Recipe
from closedform.recipes.section import Section, whole

_TRAIN = (
    "save_interval",
    "log_interval",
    "global_batch_size",
    "micro_batch_size",
    "lr_warmup_steps",
    "lr_warmup_fraction",
    "epochs",
    "max_tokens",
    "max_steps",
    "max_time",
    "max_seq_length",
    "tie_embeddings",
    "max_norm",
    "min_lr",
)
_NOTES = {
    "minimum-ignored": "finetuning ignores min_lr: the cosine goes to 0",
    "clipping-ignored": "finetuning ignores max_norm",
    "last-micro-batch": "an update has the rate of its last micro-batch",
}


def _matches(document: Document) -> bool:
    train = document.content.get("train")
    return isinstance(train, dict) and bool({"lr_warmup_steps", "max_tokens"} & set(train))


def _read(reading: Reading) -> Recipe:
    config = whole(reading.document)
    config.check_related(("optimizer",))
    train = config.section("train")
    train.check(_TRAIN)
    made = _optimizer(config)
    if "max_tokens" in train:
        return _pretraining(reading, train, made)
    return _finetuning(reading, train, made)


def _optimizer(config: Section) -> ClassOptimizer:
    found = config.value("optimizer", "AdamW")
    if isinstance(found, str):
        return class_optimizer(Section(config.document, {}, "optimizer"), found)
    section = config.section("optimizer")
    section.check(("class_path", "init_args"))
    path = section.text("class_path")
    return class_optimizer(section.section("init_args"), path)


def _finetuning(reading: Reading, train: Section, made: ClassOptimizer) -> Recipe:
    total = reading.facts.total_updates
    if total is None:
        total = _length(reading, train)
    rate = _rate(
        train,
        "finetune",
        made,
        {"lr_warmup_steps": train.integer("lr_warmup_steps", 100)},
        {"total_updates": int(total)},
    )
    notes = [
        name
        for name, key in (("minimum-ignored", "min_lr"), ("clipping-ignored", "max_norm"))
        if key in train
    ]
    return _recipe(reading, made, rate, int(total), notes, Clock(), None)


def _length(reading: Reading, train: Section) -> int:
    """The updates of epochs, at most ``max_steps``."""
    if "epochs" not in train:
        return int(train.integer("max_steps"))
    (length,) = reading.facts.require("updates_per_epoch", where=reading.document.source)
    whole_run = int(train.integer("epochs")) * int(length)
    most = train.integer("max_steps", None)
    return whole_run if most is None else min(whole_run, int(most))


def _pretraining(reading: Reading, train: Section, made: ClassOptimizer) -> Recipe:
    source = reading.document.source
    micro, batch = train.integer("micro_batch_size", 4), train.integer("global_batch_size", 512)
    names = ["world_size"]
    length = train.integer("max_seq_length", reading.facts.sequence_length)
    names += [] if length is not None else ["sequence_length"]
    part = train.number("lr_warmup_fraction", None)
    names += ["updates_per_epoch"] if part else []
    found = dict(zip(names, reading.facts.require(*names, where=source), strict=True))
    world = int(found["world_size"])
    length = int(length if length is not None else found["sequence_length"])
    each = int(batch) // world // int(micro)
    if each < 1:
        raise train.error(
            f"the batch of {batch} is too small for {world} processes of {micro} samples",
            "global_batch_size",
        )
    tokens = train.integer("max_tokens")
    facts: dict[str, Any] = {
        "gradient_accumulation_iters": each,
        "devices": world,
        "max_seq_length": length,
    }
    section: dict[str, Any] = {
        "max_tokens": tokens,
        "micro_batch_size": int(micro),
        "min_lr": train.number("min_lr", 4e-5),
    }
    if part:
        facts["dataloader_len"] = int(found["updates_per_epoch"]) * each
        section |= {"lr_warmup_fraction": part, "lr_warmup_steps": None}
    else:
        section["lr_warmup_steps"] = train.integer("lr_warmup_steps", 2000)
    rate = _rate(train, "pretrain", made, section, facts)
    total = (int(tokens) // world) // (int(micro) * length)
    return _recipe(
        reading,
        made,
        rate,
        total // each,
        ["last-micro-batch"],
        Clock(Unit.MICRO_BATCH, offset=1),
        each,
        Clipping(train.number("max_norm", 1.0)),
    )


def _rate(
    train: Section,
    name: str,
    made: ClassOptimizer,
    section: dict[str, Any],
    facts: dict[str, Any],
) -> Schedule:
    arguments = {"optimizer": {"lr": made.lr}, "train": section}
    with train.located():
        return built("litgpt", SCHEDULES, name, arguments, facts=facts)


def _recipe(
    reading: Reading,
    made: ClassOptimizer,
    rate: Schedule,
    total: int,
    notes: list[str],
    clock: Clock,
    accumulation: int | None,
    clipping: Clipping | None = None,
) -> Recipe:
    return Recipe(
        reading.document.name,
        "litgpt",
        (made.group(rate),),
        horizon=total,
        version=reading.version,
        source=reading.document.source,
        facts=reading.facts,
        clock=clock,
        clipping=clipping,
        accumulation=accumulation,
        notes={name: _NOTES[name] for name in notes},
    )


READER = Reader(_read, _matches)

"""The reader of nanotron's configs: YAML, or the calls of its config classes in Python."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from closedform.errors import nearest
from closedform.recipes.build import built
from closedform.recipes.document import Document
from closedform.recipes.documents.values import Unresolved
from closedform.recipes.nanotron.schedules import SCHEDULES, SECTION
from closedform.recipes.optimizer_classes import class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, Recipe
from closedform.recipes.section import Section, calls, whole

_TOP = ("optimizer", "learning_rate")
_FACTORY = ("adam_beta1", "adam_beta2", "adam_eps", "torch_adam_is_fused", "name")
_OPTIMIZER = (
    "accumulate_grad_in_fp32",
    "clip_grad",
    "learning_rate_scheduler",
    "optimizer_factory",
    "weight_decay",
    "weight_decay_exclude_named_params",
    "zero_stage",
    *_FACTORY,
)
_CALLS = {
    "optimizer": "OptimizerArgs",
    "tokens": "TokensArgs",
    "scheduler": "LRSchedulerArgs",
    "factory": "AdamWOptimizerArgs",
}
_NOTES = {
    "decay-not-shortened": "a decay with a later start is not shortened: its end is not reached",
    "no-decay": "without min_decay_lr the rate does not fall",
    "rate-squared": "without a warmup and a decay, the rate is squared",
}


def _matches(document: Document) -> bool:
    if document.python is not None:
        return any(calls(document.values, _CALLS["scheduler"]))
    optimizer = document.content.get("optimizer")
    return isinstance(optimizer, dict) and "learning_rate_scheduler" in optimizer


def _plain(document: Document) -> Document:
    """A Python config in the form of a YAML one."""
    if document.python is None:
        return document
    found = {key: next(calls(document.values, name), None) for key, name in _CALLS.items()}
    content: dict[str, Any] = {}
    for key in ("optimizer", "tokens"):
        call = found[key]
        content[key] = {} if call is None else dict(call.kwargs)
    for key, place in (("scheduler", "learning_rate_scheduler"), ("factory", "optimizer_factory")):
        call = found[key]
        if call is not None:
            content["optimizer"].setdefault(place, call)
    return replace(document, content=content)


def _read(reading: Reading) -> Recipe:
    document = _plain(reading.document)
    config = whole(document)
    config.check_related(_TOP)
    optimizer, tokens = config.section("optimizer"), config.section("tokens")
    optimizer.check(_OPTIMIZER)
    scheduler = optimizer.section("learning_rate_scheduler")
    scheduler.check(SECTION)
    total = tokens.content.get("train_steps")
    if total is None or isinstance(total, Unresolved):
        (total,) = reading.facts.require("total_updates", where=document.source)
    else:
        total = tokens.integer("train_steps")
    decay = optimizer.number("weight_decay", 0.0)
    section = _factory(optimizer, scheduler.number("learning_rate"), decay)
    made = class_optimizer(section, section.text("name"), ("name", "torch_adam_is_fused"))
    group = made.group(_rate(scheduler, int(total)))
    groups = [group]
    patterns = optimizer.value("weight_decay_exclude_named_params", [])
    if patterns:
        groups.append(group.without_decay(patterns))
    threshold = optimizer.value("clip_grad")
    return Recipe(
        document.name,
        "nanotron",
        tuple(groups),
        horizon=int(total),
        version=reading.version,
        source=document.source,
        facts=reading.facts,
        clipping=None if threshold is None else Clipping(optimizer.number("clip_grad")),
        accumulation=_accumulation(tokens),
        notes=_notes(scheduler),
        derived={"total_updates": int(total)},
    )


def _accumulation(tokens: Section) -> int | None:
    given = tokens.content.get("batch_accumulation_per_replica")
    return given if isinstance(given, int) else None


def _factory(optimizer: Section, rate: Any, decay: Any) -> Section:
    """The arguments of the optimizer, from ``optimizer_factory`` or, before 2024, beside it."""
    given = optimizer.section("optimizer_factory")
    place = given if given.content else optimizer
    given.check(_FACTORY)
    name = given.text("name", "adamW")
    if name.lower() not in ("adamw", "sgd"):
        raise given.error(
            f"there is no optimizer {name!r}", "name", nearest(name, ("adamW", "sgd"))
        )
    content: dict[str, Any] = {"name": "SGD", "lr": rate, "weight_decay": decay}
    if name.lower() == "adamw":
        content |= {
            "name": "AdamW",
            "betas": [place.number("adam_beta1"), place.number("adam_beta2")],
            "eps": place.number("adam_eps"),
        }
    return Section(optimizer.document, content, place.path)


def _rate(scheduler: Section, total: int) -> Any:
    numbers = ("lr_warmup_steps", "lr_decay_steps", "lr_decay_starting_step")
    arguments: dict[str, Any] = {
        **{key: scheduler.integer(key) for key in numbers if key in scheduler},
        **{
            key: scheduler.number(key)
            for key in ("learning_rate", "min_decay_lr")
            if key in scheduler
        },
        "lr_warmup_style": scheduler.text("lr_warmup_style", None),
    }
    style = scheduler.text("lr_decay_style", "linear")
    if style not in SCHEDULES:
        raise scheduler.error(
            f"there is no lr_decay_style {style!r}", "lr_decay_style", nearest(style, SCHEDULES)
        )
    sections = {
        "learning_rate_scheduler": {**arguments, "lr_decay_style": style},
        "tokens": {"train_steps": total},
    }
    with scheduler.located():
        return built("nanotron", SCHEDULES, style, sections)


def _notes(scheduler: Section) -> dict[str, str]:
    concerned = {
        "decay-not-shortened": "lr_decay_starting_step" in scheduler
        and "lr_decay_steps" not in scheduler,
        "no-decay": "min_decay_lr" not in scheduler,
        "rate-squared": scheduler.integer("lr_warmup_steps", 0) == 0
        and scheduler.integer("lr_decay_steps", None) == 0,
    }
    return {name: _NOTES[name] for name, is_so in concerned.items() if is_so}


READER = Reader(_read, _matches)

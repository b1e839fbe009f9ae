"""The readers of the YAML recipes of Composer and of llm-foundry, which shares its schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.language import UpdateRule, exact_number
from closedform.recipes.build import built
from closedform.recipes.composer.optimizers import rules_from
from closedform.recipes.composer.schedules import CLASSES, CLOCK, SCHEDULES
from closedform.recipes.composer.times import Trainer, trainer
from closedform.recipes.document import Document, interpolated
from closedform.recipes.entries import Context
from closedform.recipes.intervals import first_from
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, ClippingKind, ParamGroup, Recipe
from closedform.recipes.section import Section, whole

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "step": "StepScheduler",
        "multistep": "MultiStepScheduler",
        "exponential": "ExponentialScheduler",
        "linear_decay": "LinearScheduler",
        "cosine_decay": "CosineAnnealingScheduler",
        "cosine_warmrestart": "CosineAnnealingWarmRestartsScheduler",
        "constant": "ConstantScheduler",
        "polynomial": "PolynomialScheduler",
        "polynomial_with_warmup": "PolynomialWithWarmupScheduler",
        "multistep_with_warmup": "MultiStepWithWarmupScheduler",
        "constant_with_warmup": "ConstantWithWarmupScheduler",
        "linear_decay_with_warmup": "LinearWithWarmupScheduler",
        "cosine_decay_with_warmup": "CosineAnnealingWithWarmupScheduler",
    }
)
"""The schedulers by their names in Composer's YAML files."""

FOUNDRY_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "constant_with_warmup": "ConstantWithWarmupScheduler",
        "cosine_with_warmup": "CosineAnnealingWithWarmupScheduler",
        "linear_decay_with_warmup": "LinearWithWarmupScheduler",
        "inv_sqrt_with_warmup": "InverseSquareRootWithWarmupScheduler",
    }
)
"""The schedulers of llm-foundry's registry."""

_OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        "adam": "Adam",
        "adamw": "AdamW",
        "decoupled_adamw": "DecoupledAdamW",
        "radam": "RAdam",
        "sgd": "SGD",
        "decoupled_sgdw": "DecoupledSGDW",
        "rmsprop": "RMSprop",
    }
)
_FOUNDRY_OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        "decoupled_adamw": "DecoupledAdamW",
        "decoupled_lionw": "DecoupledLionW",
        "clip_lion": "DecoupledClipLion",
        "adalr_lion": "DecoupledAdaLRLion",
        "no_op": "NoOp",
    }
)
_Named = tuple[ClassOptimizer, dict[str, Any]]
"""An optimizer, and the name and patterns of its param group."""

_TIMES = ("max_duration", "scale_schedule_ratio", "ssr")
_CLIPPING = ("clipping_type", "clipping_threshold")


def _decoupled(section: Section) -> Mapping[str, Callable[..., UpdateRule]]:
    """The optimizers whose weight decay follows the schedule, but is not multiplied by the rate."""
    return rules_from(exact_number(section.number("lr", 1e-3), "lr"))


def _named(section: Section, names: Mapping[str, str], name: str) -> str:
    """The class of a name; the name of the class is taken as well."""
    if name not in names and name not in names.values():
        raise section.error(f"there is no {name!r} here", hint=nearest(name, names))
    return names.get(name, name)


def _entry(config: Section, key: str) -> tuple[str, Section]:
    """The name and the arguments of a mapping with one key, or of a list of one such mapping."""
    found = config.value(key)
    if isinstance(found, list | tuple):
        content = {f"{key}[{index}]": one for index, one in enumerate(found)}
        if len(content) != 1:
            raise config.error(f"{key} must hold one entry, got {len(content)}", key)
        return _entry(Section(config.document, content, config.path), f"{key}[0]")
    if not isinstance(found, Mapping) or len(found) != 1:
        raise config.error(f"{key} must be a mapping of one name to its arguments", key)
    (name,) = found
    return str(name), config.section(key).section(name)


def _schedulers(config: Section) -> list[dict[str, Any]]:
    """The schedulers with their arguments, by the names of their classes."""
    found = config.value("schedulers", [])
    if isinstance(found, Mapping):
        found = [{name: arguments} for name, arguments in found.items()]
    if not isinstance(found, list | tuple):
        raise config.error("schedulers must be a list or a mapping", "schedulers")
    content = {f"schedulers[{index}]": one for index, one in enumerate(found)}
    entries = Section(config.document, content, config.path)
    return [_scheduler(*_entry(entries, one), NAMES) for one in content]


def _scheduler(name: str, given: Section, names: Mapping[str, str]) -> dict[str, Any]:
    class_name = _named(given, names, name)
    given.check(CLASSES[class_name][1])
    return {"name": class_name, **{key: given.value(key) for key in given.content}}


def _matches(document: Document) -> bool:
    return "max_duration" in document.content and "schedulers" in document.content


def _parameters(document: Document) -> Document:
    """The config within a run config of MosaicML's ``mcli``, which has it as ``parameters``."""
    parameters = document.content.get("parameters")
    return replace(document, content=parameters) if isinstance(parameters, dict) else document


def _foundry_matches(document: Document) -> bool:
    content = _parameters(document).content
    optimizer, scheduler = content.get("optimizer"), content.get("scheduler")
    if not isinstance(optimizer, dict) or not isinstance(scheduler, dict):
        return False
    has_names = {"lr", "name"} <= set(optimizer) and {"name", "t_warmup"} <= set(scheduler)
    return has_names and "max_duration" in content


def _read(reading: Reading) -> Recipe:
    document = interpolated(reading.document)
    config = whole(document)
    config.check_related((*_TIMES, "optimizers", "schedulers"))
    name, given = _entry(config, "optimizers")
    made = class_optimizer(given, _named(given, _OPTIMIZERS, name), rules=_decoupled(given))
    return _recipe(reading, config, [(made, {})], _schedulers(config))


def _read_foundry(reading: Reading) -> Recipe:
    document = interpolated(_parameters(reading.document))
    config = whole(document)
    config.check_related((*_TIMES, "optimizer", "scheduler"))
    given, scheduler = config.section("optimizer"), config.section("scheduler")
    name = _named(given, _FOUNDRY_OPTIMIZERS, given.text("name"))
    left_out = ("name", "param_groups", "disable_grad")
    groups: list[_Named] = [(class_optimizer(given, name, left_out, rules=_decoupled(given)), {})]
    for one in given.sections("param_groups"):
        pattern = one.text("param_str_match")
        content = {**given.content, **one.content}
        own = Section(document, content, one.path)
        left = (*left_out, "param_str_match")
        groups.append(
            (
                class_optimizer(own, name, left, rules=_decoupled(own)),
                {"name": pattern, "patterns": (pattern,)},
            )
        )
    arguments = Section(
        document,
        {key: value for key, value in scheduler.content.items() if key != "name"},
        scheduler.path,
    )
    schedulers = [_scheduler(scheduler.text("name"), arguments, FOUNDRY_NAMES)]
    return _recipe(reading, config, groups, schedulers)


def _recipe(
    reading: Reading,
    config: Section,
    optimizers: list[_Named],
    schedulers: list[dict[str, Any]],
) -> Recipe:
    samples = config.integer("train_batch_size", config.integer("global_train_batch_size", None))
    facts = {
        "dataloader_len_batches": reading.facts.updates_per_epoch,
        "samples_per_batch": samples or reading.facts.global_batch_size,
        "tokens_per_batch": reading.facts.tokens_per_update,
    }
    length = config.integer("max_seq_len", reading.facts.sequence_length)
    if facts["tokens_per_batch"] is None and length and facts["samples_per_batch"]:
        facts["tokens_per_batch"] = int(length) * int(facts["samples_per_batch"])
    duration = config.value("max_duration")
    duration = f"{duration}ep" if isinstance(duration, int) else duration
    ratio = config.number("scale_schedule_ratio", config.number("ssr", 1.0))
    groups: list[ParamGroup] = []
    name = "list" if len(schedulers) > 1 else schedulers[0]["name"] if schedulers else ""
    for made, named in optimizers:
        if not schedulers:
            groups.append(made.group(**named))
            continue
        arguments = {
            "optimizer": {"lr": made.lr},
            "schedulers": schedulers,
            "max_duration": duration,
            "scale_schedule_ratio": ratio,
        }
        with config.located("schedulers" if "schedulers" in config else "scheduler"):
            rate = built(
                "composer",
                SCHEDULES,
                name,
                arguments,
                facts=facts,
                as_implemented=reading.as_implemented,
            )
        groups.append(made.group(rate, **named))
    return reading.recipe(
        groups,
        clock=CLOCK,
        horizon=_horizon(config, duration, ratio, facts),
        clipping=_clipping(config),
        accumulation=_accumulation(config),
        values=(schedulers, ratio),
    )


def _horizon(
    config: Section, duration: object, ratio: float, facts: Mapping[str, Any]
) -> int | None:
    """The updates of the run."""
    if duration is None:
        return None
    with config.located("max_duration"):
        run: Trainer = trainer(duration, ratio, Context("composer", SCHEDULES, facts=facts))
        return int(first_from(run.update(run.length)))


def _accumulation(config: Section) -> int | None:
    given = config.value("grad_accum")
    return given if isinstance(given, int) else None


def _clipping(config: Section) -> Clipping | None:
    given = config.section("algorithms").section("gradient_clipping")
    if given.content:
        given.check(_CLIPPING)
        kind = given.text("clipping_type")
        if kind not in ("norm", "value"):
            raise given.error(
                f"clipping_type must be norm or value here, got {kind!r}", "clipping_type"
            )
        return Clipping(given.number("clipping_threshold"), ClippingKind(kind))
    threshold = config.number("grad_clip_norm", -1)
    return Clipping(threshold) if threshold > 0 else None


READER = Reader(_read, _matches)
FOUNDRY_READER = Reader(_read_foundry, _foundry_matches)
"""Of llm-foundry, whose framework shares the schedulers."""

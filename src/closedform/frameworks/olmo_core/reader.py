"""The reader of OLMo-core's configs: the calls of a Python script, or the JSON of a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.frameworks.olmo_core.schedules import (
    CLASSES,
    CLOCKS,
    Scheduler,
    rate,
    scheduler_values,
)
from closedform.language import exact_number
from closedform.recipes import kit

_CLASS = "_CLASS_"
_OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        "AdamConfig": "Adam",
        "AdamWConfig": "AdamW",
        "DionConfig": "OLMoDion",
        "LionConfig": "Lion",
        "MuonConfig": "OLMoMuon",
        "NoOpConfig": "NoOp",
        "NorMuonConfig": "NorMuon",
        "SkipStepAdamWConfig": "AdamW",
        "SkipStepLionConfig": "Lion",
    }
)
"""The optimizer configs, and their rules where no step is skipped."""

_OUTSIDE = (
    "class",
    "compile",
    "dtype",
    "fixed_fields",
    "group_overrides",
    "rolling_interval_length",
    "sigma_factor",
    "step_increment_bugfix",
)
_UNITS = ("steps", "epochs", "tokens")


def _matches(document: kit.Document) -> bool:
    if document.python is None:
        module = document.content.get("train_module")
        return isinstance(module, dict) and "optim" in module and "scheduler" in module
    return any(_last(call.name) in _OPTIMIZERS for call in kit.calls(document.values))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _plain(value: Any) -> Any:
    """Calls as mappings with a class, classes of JSON without their packages."""
    if isinstance(value, kit.ConfigCall):
        kwargs = {key: _plain(item) for key, item in value.kwargs.items()}
        return {"class": _last(value.name), **kwargs}
    if isinstance(value, kit.Reference):
        return _last(value.name)
    if isinstance(value, Mapping):
        class_entry = {"class": _last(str(value[_CLASS]))} if _CLASS in value else {}
        return class_entry | {key: _plain(item) for key, item in value.items() if key != _CLASS}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, kit.Unresolved) and value.text.startswith("SchedulerUnits."):
        return _last(value.text)
    return value


def _from_python(document: kit.Document) -> kit.Document:
    """The sections of the JSON, from the calls of a script."""
    config_calls = list(kit.calls(document.values))

    def first(*names: str) -> kit.ConfigCall | None:
        return next((call for call in config_calls if _last(call.name) in names), None)

    def argument(key: str) -> Any:
        return next((call.kwargs[key] for call in config_calls if key in call.kwargs), None)

    duration = next((call for call in config_calls if call.name.startswith("Duration.")), None)
    length: Any = None
    if duration is not None:
        value = duration.args[0] if duration.args else next(iter(duration.kwargs.values()), None)
        length = {"value": value, "unit": _last(duration.name)}
    content = {
        "train_module": {
            "optim": first(*_OPTIMIZERS),
            "scheduler": first(*CLASSES),
            "max_grad_norm": argument("max_grad_norm"),
        },
        "trainer": {"max_duration": length},
        "data_loader": {"global_batch_size": argument("global_batch_size")},
    }
    return replace(document, content=content)


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of a config.

    Raises:
        ConfigError: A class or field is unknown, or a value is not valid.
        ArgumentError: Facts are missing.
    """
    document = reading.document
    if document.python is not None:
        document = _from_python(document)
    document = replace(document, content=_plain(document.content))
    config = kit.document_section(document)
    module = config.section("train_module")
    optim, place = module.section("optim"), module.section("scheduler")
    if not optim.content:
        raise module.error("there is no optimizer config", "optim", nearest("", _OPTIMIZERS))
    kind = optim.text("class", "AdamWConfig")
    if kind not in _OPTIMIZERS:
        raise optim.error(f"there is no optimizer {kind!r}", "class", nearest(kind, _OPTIMIZERS))
    optimizers: list[tuple[kit.ClassOptimizer, dict[str, Any]]] = [
        (kit.class_optimizer(optim, _OPTIMIZERS[kind], _OUTSIDE), {})
    ]
    optimizers += _overrides(optim, _OPTIMIZERS[kind])
    tokens = config.section("data_loader").content.get("global_batch_size")
    tokens = tokens if isinstance(tokens, int) else reading.facts.tokens_per_update
    total = _total(config.section("trainer").section("max_duration"), tokens, reading)
    scheduler = scheduler_values(place) if place.content else None
    context = None if scheduler is None else _context(scheduler, config, total, tokens, reading)
    groups = []
    for optimizer, group_fields in optimizers:
        schedule = None
        if scheduler is not None and context is not None:
            with scheduler.origin.locate_errors():
                schedule = rate(context, optimizer, scheduler)
        groups.append(optimizer.group(schedule, **group_fields))
    threshold = module.content.get("max_grad_norm")
    return reading.recipe(
        groups,
        clock=CLOCKS["steps" if scheduler is None else scheduler.units],
        horizon=total,
        clipping=None if threshold is None else kit.Clipping(module.number("max_grad_norm")),
        accumulation=reading.facts.gradient_accumulation,
        values=(scheduler, kind.startswith("SkipStep")),
    )


def _overrides(optim: kit.RawSection, name: str) -> list[tuple[kit.ClassOptimizer, dict[str, Any]]]:
    """The param groups that the config pulls out, with other options."""
    overrides = []
    for override in optim.sections("group_overrides"):
        override.check(("class", "params", "opts"))
        options = override.section("opts")
        content = {**optim.content, **{k: v for k, v in options.content.items() if k != "class"}}
        section = kit.RawSection(optim.document, content, override.path)
        patterns = tuple(str(part) for part in override.value("params", []))
        group_fields = {"name": ", ".join(patterns), "patterns": patterns}
        overrides.append((kit.class_optimizer(section, name, _OUTSIDE), group_fields))
    return overrides


def _total(duration: kit.RawSection, tokens: Any, reading: kit.Reading) -> int | None:
    """The updates of the run."""
    if reading.facts.total_updates is not None or not duration.content:
        return reading.facts.total_updates
    unit = duration.text("unit")
    if unit not in _UNITS:
        raise duration.error(f"there is no unit {unit!r}", "unit", nearest(unit, _UNITS))
    amount = duration.integer("value")
    if unit == "steps":
        return int(amount)
    if unit == "epochs":
        length = reading.facts.updates_per_epoch
        return None if length is None else int(amount) * int(length)
    return None if tokens is None else math.ceil(exact_number(amount) / exact_number(tokens))


def _context(
    scheduler: Scheduler,
    config: kit.RawSection,
    total: int | None,
    tokens: Any,
    reading: kit.Reading,
) -> kit.Context:
    """The context of a scheduler: the length of the run in its unit."""
    in_tokens = scheduler.units == "tokens"
    missing = ["total_updates"] if total is None else []
    missing += ["tokens_per_update"] if in_tokens and tokens is None else []
    if missing:
        reading.facts.require(*missing, where=config.document.source)
    facts = {"tokens_per_batch": tokens, "max_steps": total}
    if in_tokens:
        duration = config.section("trainer").section("max_duration")
        is_exact = duration.value("unit") == "tokens"
        facts["max_tokens"] = duration.integer("value") if is_exact else int(total or 0) * tokens
    return replace(reading.context, path=(scheduler.class_,)).with_facts(**facts)


READER = kit.Reader(read, _matches)

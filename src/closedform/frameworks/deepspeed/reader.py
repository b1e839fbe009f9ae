"""The reader of DeepSpeed's config: its sections ``optimizer`` and ``scheduler``.

``"auto"`` is what transformers' Trainer inserts: the learning rate, the weight decay, the updates
of the run and of the warmup are then facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import ConflictError
from closedform.frameworks.deepspeed.schedules import (
    MUON_GROUPS,
    Optimizer,
    Scheduler,
    is_muon,
    schedule,
)
from closedform.language import exact_number
from closedform.recipes import kit
from closedform.schedules import constant


class Config(
    kit.OpenSection,
    irrelevant="train_batch_size train_micro_batch_size_per_gpu zero_force_ds_cpu_optimizer "
    "zero_allow_untested_optimizer data_efficiency curriculum_learning",
):
    optimizer: Optimizer
    scheduler: Scheduler | None
    gradient_clipping: kit.Norm = 0
    gradient_accumulation_steps: kit.Accumulation | None = None


AUTO = "auto"
_FACT_OF: Mapping[str, str] = {
    "lr": "lr",
    "warmup_max_lr": "lr",
    "warmup_num_steps": "warmup_updates",
    "total_num_steps": "total_updates",
    "weight_decay": "weight_decay",
    "gradient_accumulation_steps": "gradient_accumulation",
}
"""Parameter -> the fact that the Trainer inserts for "auto"."""

_DEFAULTS: Mapping[str, Any] = {
    "warmup_min_lr": 0,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "gradient_clipping": None,
}
"""Parameter -> what the Trainer inserts for "auto" if nothing else is configured."""

SECTIONS = ("optimizer", "scheduler")
"""The sections of the config that decide the optimization."""

_RULES: Mapping[str, str] = {"adam": "adamw", "adamw": "adamw", "lion": "lion", "sgd": "sgd"}
_OF_OTHERS = ("train_iters", "train-iters", "lr_decay_style", "lr-decay-style", "trainer")
"""Keys of frameworks whose configs hold that of DeepSpeed among their own keys."""


def _matches(document: kit.Document) -> bool:
    content = document.content
    sections = [content[key] for key in ("optimizer", "scheduler") if key in content]
    typed = all(
        isinstance(part, Mapping) and {"type", "params"} <= part.keys() for part in sections
    )
    if not sections or not typed or any(key in content for key in _OF_OTHERS):
        return False
    known = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
    return any(key in content for key in known) or not content.keys() - set(Config.keys)


def read_config(reading: kit.Reading, arguments: Mapping[str, Any] | None = None) -> kit.Recipe:
    """Returns the recipe of a config.

    Args:
        reading: The config and its facts.
        arguments: The values of the Trainer by key, which take the place of "auto", and which other
            values must equal; facts and defaults take that place if not given.

    Raises:
        ConfigError: A value is not valid, or is not that of the Trainer.
        MissingFactsError: The learning rate or what "auto" stands for is not known.
    """
    config = Config.read_whole(_insert(reading.document, reading.facts, arguments))
    optimizer, scheduler, facts = config.optimizer, config.scheduler, reading.facts
    params = optimizer.params
    if params.lr is None:
        if facts.lr is None and (scheduler is None or not _has_rates(scheduler.params)):
            raise kit.missing_facts(
                "lr",
                reading.document.place("optimizer.params.lr"),
                "the config has no learning rate: give that of the optimizer",
            )
        # A scheduler with its rates leaves that of the optimizer out.
        rate = None if facts.lr is None else exact_number(facts.lr)
        optimizer = optimizer.replace(params=params.replace(lr=0 if rate is None else rate))
    else:
        rate = params.lr
    name, context = optimizer.type, reading.context
    decay = (sp.Rational(1, 100) if name.lower() == "adamw" else 0, params.weight_decay)
    schedules = {"weight_decay": constant(decay[params.weight_decay is not None])}
    if scheduler is None:
        schedules["lr"] = constant(rate)
    else:
        with scheduler.origin.locate_errors("params"):
            schedules["lr"] = schedule(context, optimizer, scheduler)
            if scheduler.type == "OneCycle" and name:
                for key in ("beta1", "beta2"):
                    if "betas" in params or name.lower() != "sgd":
                        keyed = replace(context, key=key)
                        schedules[key] = schedule(keyed, optimizer, scheduler)
    groups = [kit.ParamGroup(schedules, _plan(optimizer), kit.Role.DEFAULT)]
    if is_muon(optimizer):
        groups = _of_muon(context, optimizer, scheduler, groups[0])
    length = None if scheduler is None else getattr(scheduler.params, "total_num_steps", None)
    clip = config.gradient_clipping
    return reading.recipe(
        groups,
        horizon=facts.total_updates if length is None else int(length),
        clipping=kit.Clipping(clip) if clip else None,
        accumulation=config.gradient_accumulation_steps,
        values=(optimizer, scheduler),
        derived={} if rate is None else {"lr": rate},
    )


def _of_muon(
    context: kit.Context,
    optimizer: Optimizer,
    scheduler: Scheduler | None,
    default: kit.ParamGroup,
) -> list[kit.ParamGroup]:
    """The groups of Muon: its matrices, and the other parameters."""
    groups = []
    for name, key in MUON_GROUPS.items():
        rate = constant(optimizer.params.origin.number(key, optimizer.params.lr))
        if scheduler is not None:
            with scheduler.origin.locate_errors("params"):
                rate = schedule(context.with_facts(group=name), optimizer, scheduler)
        role = kit.Role.DEFAULT if name == "muon" else kit.Role.NAMED
        schedules = {**default.schedules, "lr": rate}
        groups.append(kit.ParamGroup(schedules, default.optimizer, role, name))
    return groups


def _insert(
    document: kit.Document, facts: kit.Facts, arguments: Mapping[str, Any] | None
) -> kit.Document:
    """The config with values for "auto"; all missing ones in one error, as all that differ."""
    facts_by_key = {key: getattr(facts, fact) for key, fact in _FACT_OF.items()}
    insertions = {**_DEFAULTS, **facts_by_key, **(arguments or {})}
    missing: list[str] = []
    mismatches: list[str] = []

    def value(section: kit.RawSection, key: str) -> Any:
        content = section.content[key]
        if content != AUTO:
            argument = (arguments or {}).get(key)
            if argument is not None and not _are_equal(content, argument):
                place, amount = section.at(key), kit.amount_text(argument)
                mismatches.append(
                    f"{place} is {kit.amount_text(content)}, the Trainer has {amount}"
                )
            return content
        if key not in insertions:
            raise section.error(f"{key} cannot be {AUTO!r}", key)
        if insertions[key] is None and key in _FACT_OF and key != "gradient_accumulation_steps":
            missing.append(_FACT_OF[key])
        return insertions[key]

    top = kit.document_section(document)
    content = dict(document.content)
    for name in SECTIONS:
        outer = top.section(name)
        inner = outer.section("params")
        if inner.content:
            params = {key: value(inner, key) for key in inner.content}
            content[name] = {**outer.content, "params": params}
    for name in ("gradient_clipping", "gradient_accumulation_steps"):
        if name in content:
            content[name] = value(top, name)
    if mismatches:
        raise ConflictError(
            f"the Trainer refuses values that are not its own: {'; '.join(mismatches)}",
            where=document.source,
            hint=f"write {AUTO!r} into the DeepSpeed config",
        )
    if missing:
        raise kit.missing_facts(
            ", ".join(dict.fromkeys(missing)),
            document.source,
            '"auto" is what the Trainer inserts; give facts={…}',
        )
    return replace(document, content=content)


def _are_equal(value: Any, argument: Any) -> bool:
    """Whether a value of the config is that of the Trainer."""
    if isinstance(value, list):
        return isinstance(argument, tuple) and [*map(exact_number, value)] == [*argument]
    return bool(exact_number(value) == argument)


def _has_rates(params: kit.Section) -> bool:
    """Whether the scheduler has rates and does not need that of the optimizer."""
    return any(key in params for key in ("warmup_max_lr", "cycle_max_lr", "lr_range_test_min_lr"))


def _plan(optimizer: Optimizer) -> kit.OptimizerPlan:
    name, origin = optimizer.type, optimizer.origin
    where = origin.document.place(origin.at("type"))
    kind = name.lower()
    params = optimizer.params.origin
    arguments = {key: params.value(key) for key in params.content if key in params and key != "lr"}
    for key in ("torch_adam", "fused", "amsgrad"):
        if arguments.get(key) is False or key != "amsgrad":
            arguments.pop(key, None)
    is_decoupled = arguments.pop("adam_w_mode", True) is not False
    if arguments.get("bias_correction") is True:
        del arguments["bias_correction"]
    if kind not in _RULES:
        return kit.plan_optimizer(name or "none", arguments, None, where, by_name=False)
    rule = _RULES[kind] if is_decoupled else kind.removesuffix("w")
    if "betas" in arguments:
        arguments["betas"] = tuple(arguments["betas"])
    plan = kit.plan_optimizer(rule, arguments, where=where)
    return kit.OptimizerPlan(name, plan.arguments, plan.build)


READER = kit.Reader(read_config, _matches)

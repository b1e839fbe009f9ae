"""The reader of DeepSpeed's config: its sections ``optimizer`` and ``scheduler``.

``"auto"`` is what transformers' Trainer inserts: the learning rate, the weight decay, the updates
of the run and of the warmup are then facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.errors import ArgumentError, nearest
from closedform.language import Schedule
from closedform.recipes.build import built
from closedform.recipes.clock import Clock, Facts
from closedform.recipes.deepspeed.schedules import PARAMETERS, SCHEDULES
from closedform.recipes.document import Document
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import planned
from closedform.recipes.section import Section, whole
from closedform.schedules import constant

AUTO = "auto"
_FACT_OF: Mapping[str, str] = {
    "lr": "lr",
    "warmup_max_lr": "lr",
    "warmup_num_steps": "warmup_updates",
    "total_num_steps": "total_updates",
    "weight_decay": "weight_decay",
}
"""Parameter -> the fact that the Trainer inserts for "auto"."""

_DEFAULTS: Mapping[str, Any] = {"warmup_min_lr": 0, "betas": (0.9, 0.999), "eps": 1e-8}
"""Parameter -> what the Trainer inserts for "auto" if nothing else is configured."""

_KNOWN = (
    "optimizer",
    "scheduler",
    "gradient_clipping",
    "gradient_accumulation_steps",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_force_ds_cpu_optimizer",
    "zero_allow_untested_optimizer",
    "data_efficiency",
    "curriculum_learning",
)
_RULES: Mapping[str, str] = {"adam": "adamw", "adamw": "adamw", "lion": "lion", "sgd": "sgd"}


_OF_OTHERS = ("train_iters", "train-iters", "lr_decay_style", "lr-decay-style", "trainer")
"""Keys of frameworks whose configs hold that of DeepSpeed among their own keys."""


def _matches(document: Document) -> bool:
    content = document.content
    sections = [content[key] for key in ("optimizer", "scheduler") if key in content]
    typed = all(isinstance(one, Mapping) and {"type", "params"} <= one.keys() for one in sections)
    if not sections or not typed or any(key in content for key in _OF_OTHERS):
        return False
    own = ("train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization")
    return any(key in content for key in own) or not content.keys() - set(_KNOWN)


def _read(reading: Reading) -> Recipe:
    document, facts = reading.document, reading.facts
    section = whole(document)
    section.check_related(_KNOWN)
    optimizer, scheduler = section.section("optimizer"), section.section("scheduler")
    for one in (optimizer, scheduler):
        one.check(("type", "params", "legacy_fusion"))
    params = _filled(optimizer.section("params"), scheduler.section("params"), facts)
    rate = params[0].get("lr", facts.lr)
    if rate is None and not _sets_rate(scheduler):
        raise ArgumentError(
            "missing facts: lr",
            where=document.place("optimizer.params.lr"),
            hint="the config has no learning rate: give that of the optimizer",
        )
    lr = constant(rate) if not scheduler.content else _schedule(reading, scheduler, params, rate)
    schedules: dict[str, Schedule] = {"lr": lr}
    name = optimizer.text("type", "")
    decay = params[0].get("weight_decay", 0.01 if name.lower() == "adamw" else 0)
    schedules["weight_decay"] = constant(decay)
    if scheduler.content and scheduler.text("type") == "OneCycle" and "type" in optimizer:
        for key in ("beta1", "beta2"):
            if "betas" in params[0] or name.lower() != "sgd":
                schedules[key] = _schedule(reading, scheduler, params, rate, key)
    clip = section.content.get("gradient_clipping")
    clip = None if clip in (None, AUTO) else section.number("gradient_clipping")
    return Recipe(
        name=document.name,
        framework="deepspeed",
        version=reading.version,
        source=document.source,
        param_groups=(ParamGroup(schedules, _plan(optimizer, params[0]), Role.DEFAULT),),
        horizon=params[1].get("total_num_steps", facts.total_updates),
        clock=Clock(offset=-1),
        clipping=Clipping(clip) if clip else None,
        accumulation=_count(section),
        notes=_notes(scheduler),
        derived={key: value for key, value in (("lr", rate),) if value is not None},
    )


def _filled(
    optimizer: Section, scheduler: Section, facts: Facts
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters of both sections, "auto" replaced by facts; all missing ones in one error."""
    missing: list[str] = []

    def value(section: Section, key: str) -> Any:
        given = section.value(key)
        if given != AUTO:
            return given
        if key in _DEFAULTS:
            return _DEFAULTS[key]
        if key not in _FACT_OF:
            raise section.error(f"{key} cannot be {AUTO!r}", key)
        found = getattr(facts, _FACT_OF[key])
        if found is None and _FACT_OF[key] not in missing:
            missing.append(_FACT_OF[key])
        return found

    made = [
        {key: value(section, key) for key in section.content if key in section}
        for section in (optimizer, scheduler)
    ]
    if missing:
        raise ArgumentError(
            f"missing facts: {', '.join(missing)}",
            where=optimizer.document.source,
            hint='"auto" is what the Trainer inserts; give facts={…}',
        )
    return made[0], made[1]


def _sets_rate(scheduler: Section) -> bool:
    """Whether the scheduler has rates of its own and does not need that of the optimizer."""
    own = ("warmup_max_lr", "cycle_max_lr", "lr_range_test_min_lr")
    return any(key in scheduler.section("params") for key in own)


def _schedule(
    reading: Reading,
    scheduler: Section,
    params: tuple[dict[str, Any], dict[str, Any]],
    rate: Any,
    key: str = "lr",
) -> Schedule:
    name = scheduler.text("type")
    if name not in SCHEDULES:
        raise scheduler.error(f"there is no scheduler {name!r}", "type", nearest(name, SCHEDULES))
    scheduler.section("params").check((*PARAMETERS[name], "last_batch_iteration", "verbose"))
    given = {one: value for one, value in params[1].items() if one in PARAMETERS[name]}
    config = {
        "optimizer": {"type": "Adam", "params": {**params[0], "lr": 0 if rate is None else rate}},
        "scheduler": {"type": name, "params": given},
    }
    with scheduler.located("params"):
        return built("deepspeed", SCHEDULES, name, config, key=key, version=reading.version)


def _plan(optimizer: Section, params: Mapping[str, Any]) -> OptimizerPlan:
    name = optimizer.text("type", "")
    where = optimizer.document.place(optimizer.at("type"))
    kind = name.lower()
    arguments = {key: value for key, value in params.items() if key != "lr"}
    for key in ("torch_adam", "fused", "amsgrad"):
        if arguments.get(key) is False or key != "amsgrad":
            arguments.pop(key, None)
    is_decoupled = arguments.pop("adam_w_mode", True) is not False
    if arguments.get("bias_correction") is True:
        del arguments["bias_correction"]
    if kind not in _RULES:
        return planned(name or "none", arguments, None, where, by_name=False)
    rule = _RULES[kind] if is_decoupled else kind.removesuffix("w")
    if "betas" in arguments:
        arguments["betas"] = tuple(arguments["betas"])
    plan = planned(rule, arguments, where=where)
    return OptimizerPlan(name, plan.arguments, plan.build)


def _notes(scheduler: Section) -> dict[str, str]:
    if not scheduler.content:
        return {"no-scheduler": "DeepSpeed leaves the rate alone; the script may have a scheduler"}
    name = scheduler.text("type")
    return {f"{name}-{index}": text for index, text in enumerate(SCHEDULES[name].notes, 1)}


def _count(section: Section) -> int | None:
    found = section.content.get("gradient_accumulation_steps")
    return found if isinstance(found, int) and not isinstance(found, bool) else None


READER = Reader(_read, _matches)

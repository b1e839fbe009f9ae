"""The reader of axolotl's configs."""

from __future__ import annotations

import math
from typing import Any

from closedform.recipes.axolotl.schedules import NOTES, SCHEDULES
from closedform.recipes.build import built
from closedform.recipes.document import Document
from closedform.recipes.keys import ClassKeys, number, text
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, ParamGroup, Recipe, Role
from closedform.recipes.section import Section, whole
from closedform.recipes.transformers.arguments import NO_DECAY, base_rate, horizon
from closedform.recipes.transformers.optimizers import OPTIMIZER, optimizer_plan
from closedform.recipes.transformers.schedules import CURVES
from closedform.schedules import constant

_SCHEDULE = (
    "lr_scheduler",
    "lr_quadratic_warmup",
    "cosine_min_lr_ratio",
    "cosine_constant_lr_ratio",
    "jagged_restart_steps",
    "jagged_restart_warmup_steps",
    "jagged_restart_anneal_steps",
)
KNOWN = (
    *_SCHEDULE,
    "adam_beta1",
    "adam_beta2",
    "adam_beta3",
    "adam_epsilon",
    "adam_epsilon2",
    "beta",
    "dion_lr",
    "dion_momentum",
    "dpo_beta",
    "embedding_lr",
    "embedding_lr_scale",
    "flash_optimum",
    "learning_rate",
    "loraplus_lr_embedding",
    "loraplus_lr_ratio",
    "lr_div_factor",
    "lr_groups",
    "lr_scheduler_kwargs",
    "max_grad_norm",
    "optim_args",
    "optim_target_modules",
    "optimizer",
    "relora_warmup_steps",
    "rl_beta",
    "warmup_ratio",
    "warmup_steps",
    "weight_decay",
)
"""The keys whose names concern the optimizer."""

_OPTIMIZER = ClassKeys(**OPTIMIZER, learning_rate=number(None), optimizer=text("adamw_torch"))
_OF_LOSS = ("reduce_lr_on_plateau", "greedy")


def _matches(document: Document) -> bool:
    section = whole(document)
    own = ("base_model", "lr_scheduler", "datasets", "sequence_len", "torchdistx_path", "optimizer")
    return "learning_rate" in section and (
        (
            "micro_batch_size" in section
            and any(key in section for key in ("num_epochs", "max_steps"))
        )
        or ("micro_batch_size" in section and any(key in section for key in own))
    )


def _read(reading: Reading) -> Recipe:
    section = whole(reading.document)
    section.check_related(KNOWN)
    values = _OPTIMIZER.read(section)
    rate = base_rate(values, reading.facts, None)
    micro_batch = section.integer("micro_batch_size", 1)
    if micro_batch < 1:
        raise section.error(
            f"micro_batch_size must be above 0, got {micro_batch}", "micro_batch_size"
        )
    accumulation = section.integer("gradient_accumulation_steps", None)
    if accumulation is None:
        batch = section.integer("batch_size", micro_batch)
        accumulation = max(1, batch // micro_batch)
    total = horizon(
        section,
        reading.facts,
        section.integer("max_steps", None),
        lambda: section.number("num_epochs", 1.0),
        lambda: micro_batch,
        accumulation,
    )
    warmup = _warmup(section, total)
    name = section.text("lr_scheduler", "cosine")
    if name in _OF_LOSS:
        raise section.error(f"{name} is a function of the loss", "lr_scheduler")
    config: dict[str, Any] = {key: section.value(key) for key in _SCHEDULE if key in section}
    kwargs = dict(section.section("lr_scheduler_kwargs").content)
    config |= {"warmup_steps": warmup, "lr_scheduler": name, "lr_scheduler_kwargs": kwargs}
    kind = _kind(section, name)
    facts = {"num_training_steps": total}
    decay = section.number("weight_decay", 0.0)
    plan = optimizer_plan(values, key="optimizer")
    groups = []
    for own, peak, patterns in [("", rate, ()), *_rates(section)]:
        with section.located("lr_scheduler"):
            given = {**config, "learning_rate": peak}
            lr = built("axolotl", SCHEDULES, kind, given, facts=facts, version=reading.version)
        schedules = {"lr": lr, "weight_decay": constant(decay)}
        groups.append(ParamGroup(schedules, plan, Role.of(own), own, patterns))
    groups.append(groups[0].without_decay(NO_DECAY))
    norm = section.number("max_grad_norm", 1.0)
    return Recipe(
        name=reading.document.name,
        framework="axolotl",
        version=reading.version,
        source=reading.document.source,
        param_groups=tuple(groups),
        horizon=total,
        clipping=Clipping(norm) if norm > 0 else None,
        accumulation=accumulation,
        notes={f"{kind}-{index}": text for index, text in enumerate(NOTES[kind], 1)},
        derived={"lr": rate, "warmup_updates": warmup, "weight_decay": decay},
    )


def _warmup(section: Section, total: int) -> int:
    """The updates of the warmup: steps, else a ratio, else 3 %, at most 100; one becomes two."""
    if "warmup_steps" in section:
        steps = section.number("warmup_steps")
        if steps < 0:
            raise section.error(f"warmup_steps must not be negative, got {steps}", "warmup_steps")
        if steps == 1:
            return 2
        return int(steps) if steps >= 1 else math.ceil(steps * total)
    if "warmup_ratio" in section:
        ratio = section.number("warmup_ratio")
        if not 0 <= ratio <= 1:
            raise section.error(f"warmup_ratio must be in [0, 1], got {ratio}", "warmup_ratio")
        steps = max(0, int(ratio * total))
    else:
        steps = min(int(0.03 * total), 100)
    return 2 if steps == 1 else steps


def _kind(section: Section, name: str) -> str:
    """The entry of the schedule that the config asks for."""
    if "jagged_restart_steps" in section:
        return "jagged_restart"
    if name in ("rex", "one_cycle"):
        return name
    if name not in CURVES:
        raise section.error(f"there is no lr_scheduler {name!r}", "lr_scheduler")
    if name != "cosine":
        return "default"
    if section.flag("lr_quadratic_warmup", False):
        return "cosine_quadratic_warmup"
    if section.number("cosine_min_lr_ratio", 0):
        with_constant = "cosine_constant_lr_ratio" in section
        return "cosine_constant_lr" if with_constant else "cosine_min_lr"
    return "default"


def _rates(section: Section) -> list[tuple[str, Any, tuple[str, ...]]]:
    """The groups with a rate of their own: name, rate, modules."""
    found: list[tuple[str, Any, tuple[str, ...]]] = []
    for group in section.sections("lr_groups"):
        group.check(("name", "modules", "lr"))
        modules = group.value("modules", [])
        found.append((group.text("name"), group.number("lr"), tuple(str(one) for one in modules)))
    if "embedding_lr" in section:
        found.append(("embedding", section.number("embedding_lr"), ("embed_tokens", "lm_head")))
    return found


READER = Reader(_read, _matches)

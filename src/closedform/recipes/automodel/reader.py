"""The reader of NeMo Automodel's YAML configs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from closedform.errors import nearest
from closedform.language import Schedule
from closedform.recipes.automodel.schedules import SCHEDULES, SECTION
from closedform.recipes.build import built
from closedform.recipes.document import Document, interpolated
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, ParamGroup, Recipe, Role
from closedform.recipes.section import Section, whole

_TOP = ("optimizer", "lr_scheduler", "step_scheduler", "dp_replicate_optimizer")
_CHECKPOINT = ("use_checkpoint_opt_param_scheduler", "override_opt_param_scheduler")
_DRAFT = ("warmup_ratio", "min_lr_ratio")
_LEFT_OUT = ("_target_", "param_group_overrides", *_DRAFT)
_LEAST_WARMUP: Mapping[str, int] = {"dspark": 20}
_NAMES: Mapping[str, str] = {
    "adam": "torch.optim.Adam",
    "adamw": "torch.optim.AdamW",
    "fused_adam": "transformer_engine.pytorch.optimizers.FusedAdam",
    "flash_adamw": "flashoptim.FlashAdamW",
    "muon": "dion.Muon",
    "normuon": "dion.NorMuon",
    "dion": "dion.Dion",
    "dion2": "dion.Dion2",
}
_NOTES = {
    "warmup-by-default": (
        "without lr_warmup_steps the warmup is a tenth of the run, at most 1000 updates"
    ),
    "starts-at-a-tenth": "without init_lr the warmup begins at a tenth of the rate",
    "minimum-by-default": "without min_lr the minimum is a hundredth of the rate",
    "draft-keys-ignored": (
        "warmup_ratio and min_lr_ratio have an effect in the recipes of draft models alone, which "
        "have recipe_args: without these, the rate is constant"
    ),
    "multipliers-ignored": "param_group_overrides have an effect with an lr_scheduler alone",
}


def _matches(document: Document) -> bool:
    content = document.content
    if isinstance(content.get("step_scheduler"), dict):
        return True
    optimizer = content.get("optimizer")
    return isinstance(optimizer, dict) and (
        "warmup_ratio" in optimizer or ("_target_" in optimizer and "lr_scheduler" in content)
    )


def _read(reading: Reading) -> Recipe:
    document = interpolated(reading.document)
    config = whole(document)
    config.check_related(_TOP)
    optimizer, scheduler = config.section("optimizer"), config.section("lr_scheduler")
    steps = config.section("step_scheduler")
    steps.check_related(())
    target = optimizer.text("_target_", "torch.optim.AdamW")
    defaults: dict[str, Any] = {}
    if "_target_" not in optimizer:
        defaults = {"betas": (0.9, 0.95), "weight_decay": 0.0}
    made = class_optimizer(optimizer, _NAMES.get(target, target), _LEFT_OUT, defaults)
    total = _total(steps, reading)
    notes: list[str] = []
    schedules: dict[str, Schedule] = {}
    if scheduler.content:
        scheduler.check((*SECTION, *_CHECKPOINT))
        schedules = _schedules(scheduler, made, _needed(total, steps, reading))
        absent = ("lr_warmup_steps", "init_lr", "min_lr")
        names = ("warmup-by-default", "starts-at-a-tenth", "minimum-by-default")
        style = scheduler.text("lr_decay_style", "cosine")
        notes += [
            note
            for key, note in zip(absent, names, strict=True)
            if key not in scheduler and not (style == "constant" and key == "min_lr")
        ]
    elif any(key in optimizer for key in _DRAFT):
        if "recipe_args" in config:
            schedules["lr"] = _draft_rate(config, optimizer, made, reading)
        else:
            notes.append("draft-keys-ignored")
    default = made.group(schedules.get("lr"), schedules.get("weight_decay"))
    groups = (default, *_multiplied(optimizer, default))
    if len(groups) > 1 and not scheduler.content:
        notes.append("multipliers-ignored")
        groups = (default,)
    return Recipe(
        document.name,
        "automodel",
        groups,
        horizon=total,
        version=reading.version,
        source=document.source,
        facts=reading.facts,
        clipping=_clipping(config),
        notes={name: _NOTES[name] for name in notes},
    )


def _clipping(config: Section) -> Clipping:
    place = config.section("recipe_args")
    if place.content:
        return Clipping(place.number("max_grad_norm", 1.0))
    return Clipping(config.section("clip_grad_norm").number("max_norm", 1.0))


def _total(steps: Section, reading: Reading) -> int | None:
    """The updates of the run: its epochs, at most ``max_steps``."""
    if reading.facts.total_updates is not None:
        return int(reading.facts.total_updates)
    most = steps.integer("max_steps", None)
    if "num_epochs" in steps.content and steps.content["num_epochs"] is None:
        return None if most is None else int(most)
    if reading.facts.updates_per_epoch is None:
        return None
    whole_run = int(steps.integer("num_epochs", 10)) * int(reading.facts.updates_per_epoch)
    return whole_run if most is None else min(whole_run, int(most))


def _needed(total: int | None, steps: Section, reading: Reading) -> int:
    if total is not None:
        return total
    where = f"{steps.document.source}: the epochs may end before max_steps"
    (needed,) = reading.facts.require("total_updates", where=where)
    return int(needed)


def _schedules(scheduler: Section, made: ClassOptimizer, total: int) -> dict[str, Schedule]:
    arguments = {
        "optimizer": {"lr": made.lr, "weight_decay": made.weight_decay or 0},
        "lr_scheduler": {key: _option(scheduler, key) for key in SECTION if key in scheduler},
    }
    found = {}
    for key, name in (
        ("lr", scheduler.text("lr_decay_style", "cosine")),
        ("weight_decay", f"wd-{scheduler.text('wd_incr_style', 'constant')}"),
    ):
        option = "lr_decay_style" if key == "lr" else "wd_incr_style"
        if name not in SCHEDULES or name == "speculative":
            known = [one.removeprefix("wd-") for one in SCHEDULES]
            raise scheduler.error(
                f"there is no style {name.removeprefix('wd-')!r}", option, nearest(name, known)
            )
        with scheduler.located():
            found[key] = built(
                "automodel",
                SCHEDULES,
                name,
                arguments,
                key=key,
                facts={"total_updates": total},
            )
    return found


def _option(scheduler: Section, key: str) -> Any:
    if key in ("lr_decay_style", "lr_wsd_decay_style", "wd_incr_style"):
        return scheduler.text(key)
    found = scheduler.number(key)
    if key == "lr_warmup_steps" and 0 < found < 1:
        raise scheduler.error(
            f"lr_warmup_steps must be a number of updates, got {found}",
            key,
            "fractions are refused",
        )
    return found


def _draft_rate(
    config: Section, optimizer: Section, made: ClassOptimizer, reading: Reading
) -> Schedule:
    (total,) = reading.facts.require("total_updates", where=config.document.source)
    name = str(config.value("recipe", "")).lower()
    least = next((steps for part, steps in _LEAST_WARMUP.items() if part in name), 1)
    section = {key: optimizer.number(key) for key in _DRAFT if key in optimizer}
    arguments = {"optimizer": {"lr": made.lr, **section}, "least_warmup": least}
    with optimizer.located():
        return built(
            "automodel",
            SCHEDULES,
            "speculative",
            arguments,
            facts={"total_updates": int(total)},
        )


def _multiplied(optimizer: Section, default: ParamGroup) -> list[ParamGroup]:
    """The groups of ``param_group_overrides``: the schedules times multipliers."""
    groups = []
    for one in optimizer.sections("param_group_overrides"):
        one.check(("pattern", "lr_mult", "wd_mult"))
        pattern = one.text("pattern")
        schedules = {
            key: made.scale(one.number({"lr": "lr_mult"}.get(key, "wd_mult"), 1.0))
            for key, made in default.schedules.items()
        }
        groups.append(ParamGroup(schedules, default.optimizer, Role.NAMED, pattern, (pattern,)))
    return groups


READER = Reader(_read, _matches)

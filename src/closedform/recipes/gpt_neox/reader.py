"""The reader of gpt-neox's YAML configs, whose keys may have dashes or underscores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from closedform.errors import nearest
from closedform.language import UpdateRule
from closedform.recipes.build import built
from closedform.recipes.document import Document
from closedform.recipes.gpt_neox.schedules import SCHEDULES, STYLES
from closedform.recipes.optimizer_classes import ClassOptimizer, class_optimizer, fused_adam
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import Clipping, Recipe
from closedform.recipes.section import Section

_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "adam": "Adam",
        "cpu_adam": "CPUAdam",
        "cpu_torch_adam": "CPUAdam",
        "lion": "Lion",
        "madgrad_wd": "MADGRAD",
        "onebitadam": "OneBitAdam",
        "sgd": "SGD",
        "sm3": "SM3",
    }
)
"""The optimizers of gpt-neox; its Adam is apex' FusedAdam, which is AdamW."""

_RULES: Mapping[str, Callable[..., UpdateRule]] = MappingProxyType(
    {"Adam": fused_adam, "CPUAdam": fused_adam}
)
_SCHEDULE = (
    "lr_decay_style",
    "lr_decay_iters",
    "lr_decay_fraction",
    "warmup",
    "min_lr",
    "use_mup",
)
_KNOWN = (
    *_SCHEDULE,
    "lr",
    "mmap_warmup",
    "no_load_optim",
    "no_save_optim",
    "optimizer",
    "optimizer_type",
    "override_lr_scheduler",
    "scheduler",
    "use_bnb_optimizer",
    "use_checkpoint_lr_scheduler",
    "weight_decay",
    "zero_allow_untested_optimizer",
)
_RATE = 1e-3
_NOTES = {
    "first-updates-equal": "updates 0 and 1 have the same rate",
    "warmup-not-rounded": "the warmup is not rounded to whole updates",
    "cosine-climbs": "the cosine rises again after the decay",
    "l2-is-decoupled": "Adam is apex' FusedAdam: its weight decay is decoupled",
}


def _normal(document: Document) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in document.content.items()}


def _matches(document: Document) -> bool:
    content = _normal(document)
    optimizer = content.get("optimizer")
    return (
        isinstance(optimizer, dict)
        and "params" in optimizer
        and ("train_iters" in content or "lr_decay_style" in content)
    )


def _read(reading: Reading) -> Recipe:
    config = Section(reading.document, _normal(reading.document))
    config.check_related(_KNOWN)
    made = _optimizer(config)
    total = config.integer("train_iters", reading.facts.total_updates)
    if total is None:
        # Epochs become iterations by the size of the data set.
        (total,) = reading.facts.require("total_updates", where=reading.document.source)
    schedule = made.group()
    if made.plan.name != "OneBitAdam":
        schedule = made.group(_rate(config, made.lr, int(total)))
    groups = (schedule, schedule.without_decay(("norm", "bias")))
    style = config.text("lr_decay_style", "linear")
    notes = ["first-updates-equal", "warmup-not-rounded"]
    notes += ["cosine-climbs"] if style == "cosine" else []
    notes += ["l2-is-decoupled"] if made.plan.name == "Adam" else []
    threshold = config.number("gradient_clipping", config.number("clip_grad", 1.0))
    return Recipe(
        reading.document.name,
        "gpt-neox",
        groups,
        horizon=int(total),
        version=reading.version,
        source=reading.document.source,
        facts=reading.facts,
        clipping=Clipping(threshold) if threshold > 0 else None,
        accumulation=config.integer("gradient_accumulation_steps", None),
        notes={name: _NOTES[name] for name in notes},
        derived={"total_updates": int(total)},
    )


def _optimizer(config: Section) -> ClassOptimizer:
    section = config.section("optimizer")
    section.check(("type", "params"))
    name = section.text("type", "adam").lower()
    if name not in _CLASSES:
        raise section.error(f"there is no optimizer {name!r}", "type", nearest(name, _CLASSES))
    params = section.section("params")
    if "weight_decay" in params:
        raise params.error(
            "gpt-neox passes weight_decay itself, and raises TypeError for a second one",
            "weight_decay",
            "give the weight_decay of the whole config",
        )
    defaults = {"lr": _RATE}
    if name != "sm3":
        defaults["weight_decay"] = config.number("weight_decay", 0.1)
    return class_optimizer(params, _CLASSES[name], (), defaults, _RULES)


def _rate(config: Section, rate: Any, total: int) -> Any:
    style = config.text("lr_decay_style", "linear")
    if style not in STYLES:
        raise config.error(
            f"there is no lr_decay_style {style!r}", "lr_decay_style", nearest(style, STYLES)
        )
    arguments: dict[str, Any] = {
        "optimizer": {"params": {"lr": rate}},
        "train_iters": total,
        "lr_decay_style": style,
        "use_mup": config.flag("use_mup", False),
        "min_lr": config.number("min_lr", 0.0),
        "warmup": config.number("warmup", 0.01),
        "lr_decay_iters": config.integer("lr_decay_iters", None),
    }
    if arguments["lr_decay_iters"] is None:
        arguments["lr_decay_fraction"] = config.number("lr_decay_fraction", None)
    with config.located():
        return built("gpt-neox", SCHEDULES, style, arguments)


READER = Reader(_read, _matches)

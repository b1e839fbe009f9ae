"""DINOv2: the tables of its learning rate, weight decay and teacher, from the YAML configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import sympy as sp

from closedform.frameworks.dinov2 import curves
from closedform.language import Schedule
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Optim(kit.Section):
    """The keys of ``optim`` that DINOv3 has as well, with the same defaults."""

    adamw_beta1: kit.Momentum = 0.9
    adamw_beta2: kit.Momentum = 0.999
    clip_grad: kit.Norm = 3
    epochs: kit.Epochs = 100
    freeze_last_layer_epochs: kit.Epochs = 1
    layerwise_decay: kit.Number = 0.9
    min_lr: kit.EndRate = 1e-6
    patch_embed_lr_mult: kit.RateRatio = 0.2
    warmup_epochs: kit.Epochs = 10
    weight_decay: kit.WeightDecay = 0.04
    weight_decay_end: kit.WeightDecay = 0.4


class Train(kit.ClassSection):
    # No other key of train or student concerns the optimizer, not even chunk_schedule.
    batch_size_per_gpu: kit.BatchSize = 64
    OFFICIAL_EPOCH_LENGTH: int = 1250


class Teacher(kit.OpenSection):
    momentum_teacher: kit.Momentum = 0.992
    final_momentum_teacher: kit.Momentum = 1
    warmup_teacher_temp: kit.Number = 0.04
    teacher_temp: kit.Number = 0.07
    warmup_teacher_temp_epochs: kit.Epochs = 30


class Student(kit.ClassSection):
    arch: str = "vit_large"


class _Optim(Optim, kit.OpenSection, irrelevant="lr"):
    base_lr: kit.Rate = 0.004
    scaling_rule: Literal["sqrt_wrt_1024"] = "sqrt_wrt_1024"


class Parts(kit.OpenSection):
    """The sections that DINOv3 has as well."""

    optim: Optim
    train: Train
    teacher: Teacher
    student: Student


class Config(Parts):
    optim: _Optim


KINDS = ("lr", "weight_decay", "momentum_teacher", "teacher_temp", "last_layer_lr")
DEPTHS = {"vit_small": 12, "vit_base": 12, "vit_large": 24, "vit_giant2": 40}

DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "warmup-twice-the-peak": kit.Convention(
        "both the last update of the warmup and the update after it have the peak; a warmup of one "
        "update has only its start",
        "dinov2/utils/utils.py:75",
        lambda config: config.optim.warmup_epochs > 0,
        classes=("lr", "last_layer_lr"),
    ),
    "end-not-reached": kit.Convention(
        "the last update of the run is one step of the cosine above its end",
        "dinov2/utils/utils.py:78",
        classes=("lr", "weight_decay", "momentum_teacher", "last_layer_lr"),
    ),
    "jump-of-the-last-layer": kit.Convention(
        "the last layer is frozen by a rate of 0 over the first updates, and then jumps to the "
        "rate of the other layers",
        "dinov2/train/train.py:98",
        lambda config: config.optim.freeze_last_layer_epochs > 0,
        classes=("last_layer_lr",),
    ),
}


def tables(
    kind: str,
    optim: Optim,
    train: Train,
    teacher: Teacher,
    peak: kit.LazyNumber,
    points: Callable[[int], int] = lambda length: 0,
) -> Schedule:
    """Returns one of the tables of a config of DINOv2, or of one without ``schedules`` of DINOv3.

    Args:
        kind: One of ``KINDS``.
        optim: The section ``optim``.
        train: The section ``train``.
        teacher: The section ``teacher``.
        peak: The largest rate, scaled by the batch size.
        points: From the entries after the warmup to the points of a longer cosine; 0 for none.

    Raises:
        DefinitionError: The warmup is longer than the table.
    """
    length = int(train.OFFICIAL_EPOCH_LENGTH)

    def table(first: sp.Expr, last: sp.Expr, total: int, warmup: int = 0, **more: Any) -> Schedule:
        kit.refuse_unless(warmup <= total, f"the warmup has {warmup} of {total} updates", kind)
        ends = {"first": first, "last": last, "total": total, "warmup": warmup}
        return kit.curve(kind, curves.table, **ends, **more)

    if kind == "teacher_temp":
        warmup = teacher.warmup_teacher_temp_epochs * length
        end = teacher.teacher_temp
        # The table is only the warmup: past its end, the temperature stays at its last value.
        return table(end, end, warmup, warmup, start=teacher.warmup_teacher_temp)
    total = optim.epochs * length
    if kind == "weight_decay":
        return table(optim.weight_decay, optim.weight_decay_end, total, points=points(total))
    if kind == "momentum_teacher":
        first, last = teacher.momentum_teacher, teacher.final_momentum_teacher
        return table(first, last, total, points=points(total))
    frozen = optim.freeze_last_layer_epochs * length if kind == "last_layer_lr" else 0
    warmup = optim.warmup_epochs * length
    rest = points(total - warmup) if warmup < total else 0
    return table(peak(), optim.min_lr, total, warmup, frozen=frozen, points=rest)


def _schedule(context: kit.Context, config: Config, kind: str) -> Schedule:
    def peak() -> sp.Expr:
        (world,) = context.numbers.require("world_size", where=context.where)
        samples = config.train.batch_size_per_gpu * world
        # sqrt_wrt_1024 is the only rule of DINOv2: rates are for a batch of 1024.
        return config.optim.base_lr * sp.sqrt(samples / sp.Integer(1024))

    return tables(kind, config.optim, config.train, config.teacher, peak)


def _of_class(context: kit.Context, config: Config) -> Schedule:
    return _schedule(context, config, context.path[-1])


def read_groups(
    reading: kit.Reading,
    config: Parts,
    schedule: Callable[[str], Schedule],
    blocks: int | None,
) -> kit.Recipe:
    """Returns the recipe of a config, whose groups differ by factors of its tables.

    Args:
        reading: The reading.
        config: The config.
        schedule: From one of ``KINDS`` to its table.
        blocks: The blocks of the model, None where they are not known.
    """
    optim = config.optim
    with config.origin.locate_errors():
        by_kind = {kind: schedule(kind) for kind in KINDS}
    betas = {"betas": (optim.adamw_beta1, optim.adamw_beta2)}
    plan = kit.plan_optimizer("AdamW", betas, where=config.origin.document.place("optim"))
    default_schedules = {kind: by_kind[kind] for kind in KINDS[:4]}
    first = kit.ParamGroup(default_schedules, plan, kit.Role.DEFAULT)

    def scaled_group(name: str, factor: sp.Expr, *patterns: str) -> kit.ParamGroup:
        group_schedules = {
            "lr": by_kind["lr"].scale(factor),
            "weight_decay": by_kind["weight_decay"],
        }
        return replace(
            first,
            schedules=group_schedules,
            role=kit.Role.NAMED,
            name=name,
            patterns=tuple(patterns),
        )

    last_layer = replace(
        scaled_group("last_layer", sp.S.One, "*last_layer*"),
        schedules={"lr": by_kind["last_layer_lr"], "weight_decay": by_kind["weight_decay"]},
    )
    # Biases, norms and LayerScale's gamma are not decayed: dinov2/utils/param_groups.py.
    groups = [first, first.without_decay(("*.bias", "*norm*", "*gamma*")), last_layer]
    if blocks is not None:
        decay, multiplier = optim.layerwise_decay, optim.patch_embed_lr_mult
        # Layer 0 is the embedding, layers 1 to n are the blocks, and layer n + 1 has the full rate.
        lowest = decay ** (blocks + 1)
        groups.append(scaled_group("patch_embed", lowest * multiplier, "*patch_embed*"))
        if decay != 1:
            groups.append(scaled_group("tokens", lowest, "*pos_embed*", "*_token*"))
            groups += [
                scaled_group(f"block_{block}", decay ** (blocks - block), f"*blocks.{block}.*")
                for block in range(blocks)
            ]
    if reading.context.facts.get("key") == "last_layer_lr":
        groups = [last_layer, *(group for group in groups if group is not last_layer)]
    return reading.recipe(
        groups,
        # An epoch has a fixed number of updates, whatever the size of the data.
        horizon=optim.epochs * config.train.OFFICIAL_EPOCH_LENGTH,
        clipping=kit.Clipping(optim.clip_grad) if optim.clip_grad else None,
        accumulation=1,
        values=(config,),
    )


_TYPICAL = {
    "base_lr",
    "dino_head_wd_multiplier",
    "freeze_last_layer_epochs",
    "layerwise_decay",
    "patch_embed_lr_mult",
    "schedule_trunc_extra",
    "weight_decay_end",
}


def is_dino(document: kit.Document) -> bool:
    """Returns whether a config is of DINOv2 or DINOv3."""
    content = document.content
    optim, train = content.get("optim"), content.get("train")
    return isinstance(optim, dict) and (
        not _TYPICAL.isdisjoint(optim)
        or (isinstance(train, dict) and "OFFICIAL_EPOCH_LENGTH" in train)
    )


def _matches(document: kit.Document) -> bool:
    return is_dino(document) and "base_lr" in document.content["optim"]


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(kit.interpolate(reading.document))
    blocks = DEPTHS.get(config.student.arch)
    return read_groups(
        reading, config, lambda kind: _schedule(reading.context, config, kind), blocks
    )


FRAMEWORK = kit.Framework(
    "dinov2",
    kit.section_entries(dict.fromkeys(KINDS, _of_class), {"": Config}, defects=DEFECTS),
    versions=("b8931f7bf915",),
    repository="https://github.com/facebookresearch/dinov2",
    upstream="dinov2/utils/utils.py, dinov2/train/train.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("key",),
)

"""DINOv3: its tables of rates, weight decay and teacher, from ``optim`` or from ``schedules``."""

from __future__ import annotations

from collections.abc import Mapping

import sympy as sp

from closedform.frameworks import dinov2
from closedform.frameworks.dinov3 import curves
from closedform.language import Schedule
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)


class _Part(kit.OpenSection):
    start: kit.Number
    peak: kit.Number
    end: kit.Number
    warmup_epochs: kit.Epochs
    cosine_epochs: kit.Epochs | None = None


class _RatePart(_Part):
    freeze_last_layer_epochs: kit.Epochs


class Schedules(kit.OpenSection):
    lr: _RatePart
    weight_decay: _Part | None
    momentum: _Part | None
    teacher_temp: _Part | None


class Optim(dinov2.Optim, kit.OpenSection, irrelevant="dump_fsdp_weights_path multi_tensor_optim"):
    dino_head_wd_multiplier: kit.Number = 1
    lr: kit.Rate = 0.001
    optimizer: str = "adamw"
    scaling_rule: str = "sqrt_wrt_1024"
    schedule_trunc_extra: kit.Number = 0


class Config(dinov2.Parts):
    optim: Optim
    schedules: Schedules | None


_NAMES = {"last_layer_lr": "lr", "momentum_teacher": "momentum"}
"""The entries of ``schedules``, where they have another name than the table."""
_DEPTHS = {**dinov2.DEPTHS, "vit_so400m": 27, "vit_huge2": 32, "vit_7b": 40}
_RULES = ("linear_wrt_256", "sqrt_wrt_1024")

DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "rule-without-effect": kit.Defect(
        "a scaling rule that DINOv3 does not know scales nothing",
        "dinov3/configs/config.py:50",
        lambda config: config.optim.scaling_rule not in (*_RULES, "none"),
        documented=None,
        classes=(),
    ),
    "start-not-scaled": kit.Convention(
        "the scaling rule does not scale the start of the warmup",
        "dinov3/train/train.py:179",
        lambda config: config.schedules is not None and config.schedules.lr.start != 0,
        classes=("schedules-lr", "schedules-last_layer_lr"),
    ),
    "keys-of-optim-without-effect": kit.Convention(
        "with schedules, the rates, weight decays and lengths of optim and teacher have no effect",
        "dinov3/train/train.py:103",
        lambda config: (
            config.schedules is not None
            and any(key in config.optim for key in ("lr", "min_lr", "weight_decay"))
        ),
        classes=(),
    ),
    "no-value-past-the-end": kit.Convention(
        "a table of schedules has no value past the end of the run",
        "dinov3/train/cosine_lr_scheduler.py:92",
        lambda config: config.schedules is not None,
        classes=tuple(f"schedules-{kind}" for kind in dinov2.KINDS),
    ),
}


def _scale(context: kit.Context, config: Config) -> sp.Expr:
    rule = config.optim.scaling_rule
    # dinov3/configs/config.py:50 at 6876159 ignores other rules without a warning.
    if rule not in _RULES:
        return sp.S.One
    (world,) = context.numbers.require("world_size", where=context.where)
    samples = config.train.batch_size_per_gpu * world
    if rule == "linear_wrt_256":
        return samples / sp.Integer(256)
    # The factor 4 is new in DINOv3: DINOv2 has the root only.
    return 4 * sp.sqrt(samples / sp.Integer(1024))


def _of_optim(context: kit.Context, config: Config, kind: str) -> Schedule:
    extra = config.optim.schedule_trunc_extra

    def points(length: int) -> int:
        """The points of the cosine, which is cut to a length and stretched to end at its end."""
        number = int((1 + float(extra)) * length) if extra else 0
        is_long = not extra or number >= length > 1
        message = f"schedule_trunc_extra {extra} leaves {number} of {length}"
        kit.refuse_unless(is_long, message, "cosine")
        return number

    def peak() -> sp.Expr:
        return config.optim.lr * _scale(context, config)

    has_cosine = config.optim.warmup_epochs < config.optim.epochs or "lr" not in kind
    message = "a truncated cosine needs updates after the warmup"
    # The temperature has no cosine that could be truncated.
    kit.refuse_unless(extra == 0 or kind == "teacher_temp" or has_cosine, message, context.where)
    return dinov2.tables(kind, config.optim, config.train, config.teacher, peak, points)


def _of_schedules(context: kit.Context, config: Config, kind: str) -> Schedule:
    """The table of ``linear_warmup_cosine_decay``, both ends of whose cosine are entries."""
    name = _NAMES.get(kind, kind)
    part: _Part | None = getattr(config.schedules, name)
    if part is None:
        raise config.error(f"schedules needs {name}", "schedules")
    is_open = "cosine_epochs" in part.origin.content and "cosine_epochs" not in part
    kit.refuse_unless(
        not is_open, f"cosine_epochs of {name} must be a number, got null", context.where
    )
    length = int(config.train.OFFICIAL_EPOCH_LENGTH)
    scale = _scale(context, config) if name == "lr" else sp.S.One
    # train.py:179 scales peak and end, but not the start.
    peak, end = part.peak * scale, part.end * scale
    total, warmup = config.optim.epochs * length, part.warmup_epochs * length
    rest = part.cosine_epochs
    decay = total - warmup if rest is None else rest * length
    message = f"warmup and cosine have {warmup} and {decay} of {total} updates"
    kit.refuse_unless(min(warmup, decay, total - warmup - decay) >= 0, message, context.where)
    epochs = (
        part.freeze_last_layer_epochs
        if isinstance(part, _RatePart) and kind == "last_layer_lr"
        else 0
    )
    frozen = epochs * length
    lengths = {"size": total, "warmup": warmup, "decay": decay, "frozen": frozen}
    numbers = {"low": part.start, "peak": peak, "end": end}
    return kit.curve(kind, curves.table, **numbers, **lengths)


def _schedule(context: kit.Context, config: Config, kind: str) -> Schedule:
    build = _of_optim if config.schedules is None else _of_schedules
    return build(context, config, kind)


def _of_class(context: kit.Context, config: Config) -> Schedule:
    prefix, _, kind = context.path[-1].rpartition("-")
    message = "schedules are for the classes schedules-…"
    kit.refuse_unless((config.schedules is not None) == bool(prefix), message, context.where)
    return _schedule(context, config, kind)


def _matches(document: kit.Document) -> bool:
    schedules = document.content.get("schedules")
    if isinstance(schedules, dict) and isinstance(schedules.get("lr"), dict):
        return {"peak", "warmup_epochs"} <= set(schedules["lr"])
    return dinov2.is_dino(document) and "base_lr" not in document.content["optim"]


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(kit.interpolate(reading.document))
    return dinov2.read_groups(
        reading,
        config,
        lambda kind: _schedule(reading.context, config, kind),
        _DEPTHS.get(config.student.arch),
    )


FRAMEWORK = kit.Framework(
    "dinov3",
    kit.section_entries(
        dict.fromkeys((*dinov2.KINDS, *(f"schedules-{kind}" for kind in dinov2.KINDS)), _of_class),
        {"": Config},
        defects=DEFECTS,
    ),
    versions=("6876159a11b4",),
    repository="https://github.com/facebookresearch/dinov3",
    upstream="dinov3/train/cosine_lr_scheduler.py, dinov3/train/train.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("key",),
)

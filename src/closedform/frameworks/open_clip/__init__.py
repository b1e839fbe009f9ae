"""open_clip: the learning rate of its training, from the flags of ``open_clip_train.main``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_cosine
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)

KINDS = ("cosine", "const", "const-cooldown")


class Arguments(kit.FlagSection):
    accum_freq: kit.Accumulation = kit.integer(1, least=1)
    audio_layer_decay: kit.Number = 1
    beta1: kit.Momentum | None = None
    beta2: kit.Momentum | None = None
    epochs: kit.Epochs = 32
    epochs_cooldown: kit.Epochs | None = None
    eps: kit.Epsilon | None = None
    grad_clip_norm: kit.Norm | None = None
    image_layer_decay: kit.Number = 1
    lr: kit.Rate = 5e-4
    lr_cooldown_end: kit.EndRate = 0
    lr_cooldown_power: kit.Power = 1
    lr_scheduler: str = kit.choice(*KINDS, default="cosine")
    model: str = "RN50"
    momentum: kit.Momentum | None = None
    opt: str = "adamw"
    opt_fallback_list: Any = None
    opt_kwargs: Any = None
    skip_scheduler: bool = False
    text_layer_decay: kit.Number = 1
    visual_layer_decay: kit.Number = 1
    warmup: kit.Steps = 10000
    wd: kit.WeightDecay = 0.2
    wd_exclude: Any = ()


_LAYERS = ("audio_layer_decay", "image_layer_decay", "text_layer_decay", "visual_layer_decay")

DEFECTS: Mapping[str, kit.Note[[Arguments]]] = {
    "warmup-twice-the-peak": kit.Convention(
        "the last update of the warmup has the peak, and so has the one after it",
        "src/open_clip_train/scheduler.py:39",
        lambda arguments: arguments.warmup > 0 and not arguments.skip_scheduler,
    ),
    "rate-after-the-run": kit.Convention(
        "after the run a cosine rises again, and a cooldown falls below 0 or has no value",
        "src/open_clip_train/scheduler.py:66",
        lambda arguments: arguments.lr_scheduler != "const" and not arguments.skip_scheduler,
        classes=("cosine", "const-cooldown"),
    ),
    "batches-dropped": kit.Convention(
        "the batches of an epoch that do not fill an accumulation make no update",
        "src/open_clip_train/main.py:557",
        lambda arguments: arguments.accum_freq > 1,
    ),
    "layers-of-the-model": kit.Convention(
        "the rates of the layers below the head are a power of the layer decay as large, by the "
        "depth of the model",
        "src/open_clip_train/scheduler.py:10",
        lambda arguments: any(getattr(arguments, name) != 1 for name in _LAYERS),
    ),
}


def _updates_per_epoch(context: kit.Context, arguments: Arguments) -> int:
    return int(context.fact("batches_per_epoch")) // int(arguments.accum_freq)


def _total(context: kit.Context, arguments: Arguments) -> int:
    """The updates of the run: those of the batches of a process, or the fact."""
    if context.facts.get("batches_per_epoch") is not None:
        return _updates_per_epoch(context, arguments) * int(arguments.epochs)
    updates = context.numbers.total_updates
    if updates is None:
        raise kit.missing_facts(
            "batches_per_epoch",
            context.where,
            "give the batches of a process in an epoch, or total_updates",
        )
    return updates


def _rate(context: kit.Context, arguments: Arguments) -> Schedule:
    kind, warmup = arguments.lr_scheduler, sp.Integer(arguments.warmup)
    rate = arguments.lr * exact_number(context.facts.get("lr_scale", 1), "lr_scale")
    scale = rate / arguments.lr if arguments.lr else sp.S.One
    if arguments.skip_scheduler:
        return constant(rate)
    total = 0 if kind == "const" else _total(context, arguments)
    power, end = arguments.lr_cooldown_power, arguments.lr_cooldown_end * scale
    length, is_whole = 0, power.is_Integer
    if kind == "const-cooldown":
        message = "const-cooldown needs --epochs-cooldown"
        epochs = arguments.epochs_cooldown
        kit.refuse_unless(epochs is not None, message, context.where)
        length = _updates_per_epoch(context, arguments) * (epochs or 0)

    def value(n: float) -> Any:
        if n < warmup:
            return rate * (n + 1) / warmup
        if kind == "cosine":
            return along_cosine(rate, 0, (n - warmup) / (total - warmup))
        if kind == "const" or n < total - length:
            return rate
        if n > total and not is_whole:
            raise ValueError("a root of a negative number is complex")
        return end + (rate - end) * (total - n) ** power / length**power

    return kit.curve(kind, value)


_TYPICAL = frozenset(
    [
        "accum-freq",
        "dataset-type",
        "epochs-cooldown",
        "gather-with-grad",
        "grad-clip-norm",
        "imagenet-val",
        "local-loss",
        "lr-cooldown-end",
        "lr-cooldown-power",
        "train-num-samples",
    ]
)


def _matches(document: kit.Document) -> bool:
    flags = set(document.content)
    if document.syntax is not kit.Syntax.ARGUMENTS or flags.isdisjoint({"lr", "warmup", "epochs"}):
        return False
    return not _TYPICAL.isdisjoint(flags) or {"lr", "warmup", "epochs"} <= flags


def _read(reading: kit.Reading) -> kit.Recipe:
    arguments = Arguments.read_whole(reading.document)
    context = reading.context
    with arguments.origin.locate_errors():
        schedule = _rate(context, arguments)
        total = _total(context, arguments)
    is_transformer = "vit" in arguments.model.lower()
    # The defaults of the paper, params.py: get_default_params.
    beta1 = 0.9 if arguments.beta1 is None else arguments.beta1
    beta2 = (0.98 if is_transformer else 0.999) if arguments.beta2 is None else arguments.beta2
    eps = (1e-6 if is_transformer else 1e-8) if arguments.eps is None else arguments.eps
    is_plain = arguments.opt == "adamw" and arguments.opt_kwargs is None
    plan = kit.plan_optimizer(
        arguments.opt,
        {"betas": (beta1, beta2), "eps": eps},
        "adamw" if is_plain else None,
        arguments.origin.document.place("opt"),
        by_name=False,
    )
    group = kit.ParamGroup(
        {"lr": schedule, "weight_decay": constant(arguments.wd)}, plan, kit.Role.DEFAULT
    )
    no_decay = arguments.wd_exclude
    patterns = (no_decay,) if isinstance(no_decay, str) else tuple(map(str, no_decay))
    clip = arguments.grad_clip_norm
    return reading.recipe(
        [group, group.without_decay(patterns)],
        horizon=total,
        clipping=None if clip is None else kit.Clipping(clip),
        accumulation=arguments.accum_freq,
        values=(arguments,),
        derived={"lr": arguments.lr, "weight_decay": arguments.wd},
    )


FRAMEWORK = kit.Framework(
    "open_clip",
    kit.section_entries(
        dict.fromkeys(KINDS, _rate),
        {"": Arguments},
        style=lambda arguments: str(arguments.lr_scheduler),
        defects=DEFECTS,
    ),
    versions=("89fb801f1e60",),
    repository="https://github.com/mlfoundations/open_clip",
    upstream="src/open_clip_train/scheduler.py, src/open_clip_train/main.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("batches_per_epoch", "lr_scale"),
)

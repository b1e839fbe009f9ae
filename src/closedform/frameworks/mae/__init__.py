"""MAE: the learning rate of its three scripts, from their flags, in epochs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy as sp

from closedform.frameworks.curves import along_cosine
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.EPOCH)


class Arguments(kit.ArgumentSection):
    """The arguments of the scripts, whose defaults ``_with_script_defaults`` fills in."""

    accum_iter: kit.Accumulation = kit.integer(1, least=1)
    batch_size: kit.BatchSize = kit.integer(None)
    blr: kit.Rate = None
    clip_grad: kit.Norm | None = None
    epochs: kit.Epochs = kit.integer(None)
    layer_decay: kit.Number = 0.75
    lr: kit.Rate | None = None
    min_lr: kit.EndRate = None
    model: str = "vit_large_patch16"
    momentum: kit.Momentum | None = None
    warmup_epochs: kit.Epochs = kit.integer(None)
    weight_decay: kit.WeightDecay = None


_FINETUNING = ("clip_grad", "cutmix", "drop_path", "finetune", "layer_decay", "mixup", "reprob")


@dataclass(frozen=True, slots=True)
class Script:
    """A script: its defaults where those of the others differ, and flags that only it has."""

    defaults: Mapping[str, float]
    optimizer: str
    flags: tuple[str, ...] = ()


_COMMON = {"blr": 1e-3, "batch_size": 64, "weight_decay": 0.05}
SCRIPTS: Mapping[str, Script] = {
    "pretrain": Script(
        {**_COMMON, "epochs": 400, "warmup_epochs": 40, "min_lr": 0},
        "AdamW",
        ("mask_ratio", "norm_pix_loss"),
    ),
    "finetune": Script(
        {**_COMMON, "epochs": 50, "warmup_epochs": 5, "min_lr": 1e-6}, "AdamW", _FINETUNING
    ),
    "linprobe": Script(
        {
            "blr": 0.1,
            "batch_size": 512,
            "weight_decay": 0,
            "epochs": 90,
            "warmup_epochs": 10,
            "min_lr": 0,
        },
        "LARS",
    ),
}
_DEPTHS = {"vit_base": 12, "vit_large": 24, "vit_huge": 32}

DEFECTS: Mapping[str, kit.Note[[Arguments]]] = {
    "rate-of-the-first-micro-batch": kit.Convention(
        "an update has the rate of the first micro-batch of its accumulation",
        "engine_pretrain.py:42",
        lambda arguments: arguments.accum_iter > 1,
    ),
    "batches-dropped": kit.Convention(
        "the batches of an epoch that do not fill an accumulation make no update",
        "engine_pretrain.py:60",
        lambda arguments: arguments.accum_iter > 1,
    ),
    "rate-after-the-run": kit.Convention(
        "after the run the cosine rises again",
        "util/lr_sched.py:14",
    ),
}


def _with_script_defaults(arguments: Arguments, name: str) -> Arguments:
    """The arguments with the defaults of a script."""
    defaults = {key: exact_number(value) for key, value in SCRIPTS[name].defaults.items()}
    absent = {key: value for key, value in defaults.items() if getattr(arguments, key) is None}
    return arguments.replace(**absent)


def _updates_per_epoch(context: kit.Context, arguments: Arguments) -> int:
    batches = int(context.fact("batches_per_epoch"))
    updates = batches // int(arguments.accum_iter)
    message = f"an epoch of {batches} batches has no update, {arguments.accum_iter} make one"
    kit.refuse_unless(updates > 0, message, context.where)
    return updates


def _peak(context: kit.Context, arguments: Arguments) -> sp.Expr:
    if arguments.lr is not None:
        return arguments.lr
    (world,) = context.numbers.require("world_size", where=context.where)
    return arguments.blr * arguments.batch_size * arguments.accum_iter * world / 256


def _rate(context: kit.Context, arguments: Arguments) -> Schedule:
    updates, warmup = _updates_per_epoch(context, arguments), arguments.warmup_epochs
    accumulation, batches = int(arguments.accum_iter), int(context.fact("batches_per_epoch"))
    scale = exact_number(context.facts.get("lr_scale", 1), "lr_scale")
    peak, low = _peak(context, arguments) * scale, arguments.min_lr * scale

    def value(n: float) -> sp.Expr:
        epoch = n / updates
        if batches % accumulation:
            epoch = n // updates + n % updates * accumulation / batches
        if n < warmup * updates:
            return peak * epoch / warmup
        return along_cosine(peak, low, (epoch - warmup) / (arguments.epochs - warmup))

    return kit.curve("adjust_learning_rate", value)


def _of_class(context: kit.Context, arguments: Arguments) -> Schedule:
    return _rate(context, _with_script_defaults(arguments, context.path[-1]))


def _script(reading: kit.Reading) -> str:
    """The script: that of the command line, the fact, or the only one with these flags."""
    name = re.sub("^(main|submitit)_", "", reading.document.program)
    name = reading.context.facts.get("script", name)
    if name in SCRIPTS:
        return str(name)
    content = reading.document.content
    if str(content.get("model", "")).startswith("mae_"):
        return "pretrain"
    for script, defaults in SCRIPTS.items():
        if any(key in content for key in defaults.flags):
            return script
    raise kit.missing_facts("script", reading.document.source, f"give one of {', '.join(SCRIPTS)}")


def _matches(document: kit.Document) -> bool:
    content = document.content
    return document.syntax is kit.Syntax.ARGUMENTS and (
        "blr" in content
        or {"accum_iter", "warmup_epochs"} <= set(content)
        or ("warmup_epochs" in content and re.sub("^.*_", "", document.program) in SCRIPTS)
    )


def _layers(
    context: kit.Context, arguments: Arguments, group: kit.ParamGroup
) -> list[kit.ParamGroup]:
    """The groups of the layers below the head, whose rates are smaller by their depth."""
    size = "_".join(arguments.model.split("_")[:2])
    if size not in _DEPTHS or arguments.layer_decay == 1:
        return []
    depth = _DEPTHS[size]
    names: list[tuple[str, ...]] = [("cls_token", "pos_embed", "patch_embed.*")]
    names += [(f"blocks.{block}.*",) for block in range(depth)]
    return [
        replace(
            group,
            role=kit.Role.NAMED,
            name=f"layer_{layer}",
            patterns=patterns,
            schedules={
                **group.schedules,
                "lr": _rate(
                    context.with_facts(lr_scale=arguments.layer_decay ** (depth + 1 - layer)),
                    arguments,
                ),
            },
        )
        for layer, patterns in enumerate(names)
    ]


def _read(reading: kit.Reading) -> kit.Recipe:
    script = _script(reading)
    arguments = _with_script_defaults(Arguments.read_whole(reading.document), script)
    context = reading.context
    with arguments.origin.locate_errors():
        schedule = _rate(context, arguments)
    optimizer = SCRIPTS[script].optimizer
    betas = (0.9, 0.95) if script == "pretrain" else (0.9, 0.999)
    plan = kit.plan_optimizer(
        optimizer,
        {"betas": betas} if optimizer == "AdamW" else {},
        "adamw" if optimizer == "AdamW" else None,
        by_name=False,
    )
    schedules = {"lr": schedule, "weight_decay": constant(arguments.weight_decay)}
    group = kit.ParamGroup(schedules, plan, kit.Role.DEFAULT)
    layers = _layers(context, arguments, group) if script == "finetune" else []
    clip = arguments.clip_grad
    return reading.recipe(
        [group, *([group.without_decay()] if optimizer == "AdamW" else []), *layers],
        horizon=arguments.epochs * _updates_per_epoch(context, arguments),
        clipping=None if clip is None else kit.Clipping(clip),
        accumulation=arguments.accum_iter,
        values=(arguments,),
        derived={"weight_decay": arguments.weight_decay},
    )


FRAMEWORK = kit.Framework(
    "mae",
    kit.section_entries(dict.fromkeys(SCRIPTS, _of_class), {"": Arguments}),
    versions=("efb2a8062c20",),
    repository="https://github.com/facebookresearch/mae",
    upstream="util/lr_sched.py, main_pretrain.py, main_finetune.py, main_linprobe.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("batches_per_epoch", "lr_scale", "script"),
)

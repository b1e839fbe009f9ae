"""litgpt: the learning rates of pretraining and finetuning, and their YAML configs.

Pretraining has ``max_tokens`` and counts micro-batches, finetuning has epochs and counts updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.frameworks.litgpt import curves
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

# offset=1: pretrain counts micro-batches, and update t ends with the (t + 1)·A-th.
CLOCKS = {
    "pretrain": kit.Clock(kit.Unit.MICRO_BATCH, offset=1),
    "finetune": kit.Clock(kit.Unit.UPDATE),
}


def _warmup_steps(train: kit.RawSection, key: str, default: Any) -> Any:
    """The updates of the warmup: a null is 0, not the default."""
    is_null = key in train.content and train.content[key] is None
    return 0 if is_null else train.integer(key, default)


class Train(kit.Section, irrelevant="save_interval log_interval max_time tie_embeddings"):
    """The arguments of training, with the defaults of finetuning."""

    global_batch_size: kit.BatchSize | None = kit.integer(None, least=1)
    micro_batch_size: int | None = kit.integer(None, least=1)
    lr_warmup_steps: kit.Steps = kit.read_by(_warmup_steps, 100)
    lr_warmup_fraction: kit.RunRatio | None = None
    epochs: kit.Epochs | None = None
    max_tokens: kit.Tokens | None = None
    max_steps: kit.Steps | None = None
    max_seq_length: kit.SequenceLength | None = kit.integer(None, least=1)
    max_norm: kit.Norm | None = None
    min_lr: kit.EndRate = 6e-5


class Pretrain(Train):
    """The arguments of training, with the defaults of litgpt/pretrain.py."""

    global_batch_size: kit.BatchSize = kit.integer(512, least=1)
    micro_batch_size: int = kit.integer(4, least=1)
    lr_warmup_steps: kit.Steps = kit.read_by(_warmup_steps, 2000)
    max_norm: kit.Norm = 1.0
    min_lr: kit.EndRate = 4e-5


class Config(kit.OpenSection):
    optimizer: Any = "AdamW"
    train: kit.RawSection
    devices: Any = None
    num_nodes: int = kit.integer(1, least=1)


class Component(kit.Section):
    class_path: str
    init_args: kit.RawSection


class Optimizer(kit.OpenSection, irrelevant="betas momentum weight_decay eps"):
    lr: kit.Rate


_UNSUPPORTED = {
    "pretrain": ("epochs",),  # litgpt/pretrain.py:513
    # litgpt/finetune/full.py:445
    "finetune": ("max_tokens", "max_norm", "tie_embeddings", "lr_warmup_fraction"),
}

DEFECTS: Mapping[str, kit.Note[[Train]]] = {
    "minimum-ignored": kit.Defect(
        "finetuning ignores min_lr: the cosine goes to 0",
        "litgpt/finetune/full.py:418",
        lambda train: "max_tokens" not in train and train.min_lr != 0,
        documented="a cosine to min_lr",
        classes=("finetune",),
    ),
    "cosine-climbs": kit.Defect(
        "the rate of finetuning rises again after the run",
        "litgpt/finetune/full.py:418",
        lambda train: "max_tokens" not in train,
        documented="the last rate, after the run",
        classes=("finetune",),
    ),
    "last-micro-batch": kit.Convention(
        "an update has the rate of its last micro-batch",
        "litgpt/pretrain.py:341",
        lambda train: "max_tokens" in train,
        classes=("pretrain",),
    ),
}


@dataclass(frozen=True, slots=True)
class Pretraining:
    """The length of a pretraining.

    Attributes:
        facts: The facts, with the accumulation.
        accumulation: Micro-batches of a process in an update.
        warmup: The micro-batches of the warmup.
        total: The micro-batches of the run.
    """

    facts: kit.Facts
    accumulation: int
    warmup: kit.Steps
    total: int


def _accumulation(train: Train, world: int) -> int | None:
    """The micro-batches of an update, None where the section does not determine them."""
    batch, micro = train.global_batch_size, train.micro_batch_size
    if batch is None or micro is None:
        return None
    # litgpt/args.py divides the batch by the devices first, then by the micro-batch.
    count = int(batch // world // micro)
    if count < 1:
        raise train.error(
            f"the batch of {batch} is too small for {world} processes of {micro} samples",
            "global_batch_size",
        )
    return count


def _run(context: kit.Context, train: Train) -> Pretraining:
    facts, loader = context.numbers, context.facts.get("dataloader_len")
    facts = replace(facts, sequence_length=train.max_seq_length or facts.sequence_length)
    part, steps = train.lr_warmup_fraction, train.lr_warmup_steps
    if part and steps:
        raise train.error(
            "only one of lr_warmup_steps and lr_warmup_fraction may be given",
            hint="write lr_warmup_steps: null for the fraction",
        )
    names = ["world_size", "sequence_length"]
    names += ["updates_per_epoch"] if part and loader is None else []
    facts.require(*names, where=train.origin.document.source)
    world = (facts.world_size or 1) * context.facts.get("num_nodes", 1)
    count = _accumulation(train, world)
    if count is None:
        count = int(facts.require("gradient_accumulation", where=train.origin.document.source)[0])
    facts = replace(facts, gradient_accumulation=count)
    tokens, micro = train.require("max_tokens"), train.require("micro_batch_size")
    # Integer divisions in the order of litgpt/pretrain.py: tokens that fill no micro-batch are not
    # counted.
    total = tokens // world // (micro * facts.sequence_length)
    if part:
        loader = count * (facts.updates_per_epoch or 0) if loader is None else loader
        # The ratio is of the dataloader, not of max_tokens.
        return Pretraining(facts, count, min(total, math.ceil(float(part) * loader)), total)
    return Pretraining(facts, count, min(total, steps * count), total)


def _pretrain(
    context: kit.Context, optimizer: Optimizer | kit.ClassOptimizer, train: Train
) -> Schedule:
    _refuse_unsupported("pretrain", train)
    run = _run(context, train)
    # An update has the rate of its last micro-batch: litgpt/pretrain.py:341.
    last = CLOCKS["pretrain"].position(run.facts) - 1
    numbers = {"rate": exact_number(optimizer.lr, "lr"), "low": train.min_lr}
    return kit.curve(
        "pretrain", curves.pretraining, last, warmup=run.warmup, total=run.total, **numbers
    )


def _finetune(
    context: kit.Context, optimizer: Optimizer | kit.ClassOptimizer, train: Train
) -> Schedule:
    _refuse_unsupported("finetune", train)
    (total,) = context.numbers.require("total_updates", where=train.origin.document.source)
    warmup = train.lr_warmup_steps
    # step / warmup is computed at step 0, also for a warmup of 0.
    if warmup <= 0:
        raise train.error(
            f"lr_warmup_steps must be above 0 (division by zero), got {warmup}", "lr_warmup_steps"
        )
    numbers = {"rate": exact_number(optimizer.lr, "lr"), "warmup": warmup, "total": total}
    if context.as_implemented:
        return kit.curve("finetune", curves.finetuning, **numbers)
    # The arguments describe the curve of the pretraining: a minimum, which the rate keeps.
    return kit.curve("finetune", curves.pretraining, **numbers, low=train.min_lr)


def _matches(document: kit.Document) -> bool:
    train = document.content.get("train")
    return isinstance(train, dict) and bool({"lr_warmup_steps", "max_tokens"} & set(train))


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(reading.document)
    script = "pretrain" if "max_tokens" in config.train else "finetune"
    train = (Pretrain if script == "pretrain" else Train).read(config.train)
    _refuse_unsupported(script, train)
    facts, optimizer = reading.facts, _optimizer(config)
    if config.devices == 0:
        raise config.error("devices must be at least 1, or -1 for all of them, got 0", "devices")
    if facts.world_size is None and isinstance(config.devices, int) and config.devices > 0:
        facts = replace(facts, world_size=config.devices * config.num_nodes)
    if script == "finetune":
        facts = replace(facts, total_updates=_updates(train, facts, reading.document.source))
        accumulation = _accumulation(train, facts.world_size or 1) or facts.gradient_accumulation
        total, norm, curve = facts.total_updates, None, _finetune
    else:
        run = _run(replace(reading, facts=facts).context, train)
        accumulation, total = run.accumulation, run.total // run.accumulation
        norm, curve = kit.Clipping(train.max_norm), _pretrain
    with train.origin.locate_errors():
        rate = curve(replace(reading, facts=facts).context, optimizer, train)
    return reading.recipe(
        [optimizer.group(rate)],
        clock=CLOCKS[script],
        horizon=total,
        clipping=norm,
        accumulation=accumulation,
        values=(train,),
    )


def _refuse_unsupported(script: str, train: Train) -> None:
    """Refuses the arguments that the script's ``validate_args`` raises ValueError for."""
    for key in _UNSUPPORTED[script]:
        if train.origin.content.get(key) is not None:
            hint = "max_tokens makes the config a pretraining, and finetuning has none"
            raise train.error(f"{script} does not support {key}", key, hint)


def _optimizer(config: Config) -> kit.ClassOptimizer:
    name = config.optimizer
    if isinstance(name, str):
        return kit.class_optimizer(kit.RawSection(config.origin.document, {}, "optimizer"), name)
    optimizer = Component.read(config.origin.section("optimizer"))
    return kit.class_optimizer(optimizer.init_args, optimizer.class_path)


def _updates(train: Train, facts: kit.Facts, source: str) -> int:
    """The updates of a finetuning: a fact, or the updates of its epochs, at most ``max_steps``."""
    if facts.total_updates is not None:
        return facts.total_updates
    if train.epochs is None:
        return int(train.require("max_steps"))
    (length,) = facts.require("updates_per_epoch", where=source)
    total = int(train.epochs * length)
    return total if train.max_steps is None else min(total, int(train.max_steps))


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in (kit.CurveName.COSINE, kit.CurveName.CONSTANT) or form.has_plateau:
        return
    section = {
        "class_path": f"torch.optim.{optimizer.class_name}",
        "init_args": optimizer.keywords(form.peak),
    }
    has_end = form.curve is kit.CurveName.COSINE
    if has_end and form.low == 0 and form.rise is not None and form.rise.start == 0:
        # A warmup that is longer than the run: the cosine falls backwards.
        # The end of the cosine, or its mirror image before the warmup.
        ends = (kit.nearest_integer(form.end), kit.nearest_integer(2 * form.begin - form.end))
        if form.total in ends and optimizer.clipping is None:
            finetune = {
                "max_steps": form.total,
                "lr_warmup_steps": kit.nearest_integer(form.warmup()),
            }
            yield {"optimizer": section, "train": finetune}
    yield {"optimizer": section, "train": _pretraining(form, optimizer)}


def _pretraining(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> dict[str, Any]:
    # Update t has the rate of micro-batch (t + 1) A - 1, so the line is 0 at t = 1 / A - 1.
    accumulation = 1
    if form.rise is not None and form.rise.slope != 0:
        # The slope of a warmup gives the accumulation: its line is 0 at t = 1/A - 1.
        before = form.rise.start / form.rise.slope
        accumulation = max(1, kit.nearest_integer(1 / (1 - before))) if before < 1 else 1
    elif form.curve is kit.CurveName.COSINE and form.begin < 0:
        accumulation = max(1, kit.nearest_integer(1 / (1 + form.begin)))
    length = int(optimizer.facts.get("sequence_length", 1))
    world = int(optimizer.facts.get("world_size", 1))
    end = (
        sp.Integer(form.total)
        if form.curve is kit.CurveName.CONSTANT
        else form.end + 1 - sp.S.One / accumulation
    )
    train: dict[str, Any] = {
        "global_batch_size": accumulation * world,
        "micro_batch_size": 1,
        "max_seq_length": length,
        "max_tokens": kit.nearest_integer(end * accumulation) * length * world,
        "lr_warmup_steps": 0,
        "min_lr": kit.native(form.low),
    }
    if form.rise is not None and form.rise.slope != 0:
        train["lr_warmup_steps"] = kit.nearest_integer(form.peak / form.rise.slope)
    # Pretraining always clips: a norm that is never reached stands for no clipping.
    train["max_norm"] = kit.native(optimizer.clipping) if optimizer.clipping is not None else 1e9
    return train


FRAMEWORK = kit.Framework(
    "litgpt",
    kit.section_entries(
        {"pretrain": _pretrain, "finetune": _finetune}, {"optimizer": Optimizer, "train": Train}
    ),
    versions=("26857050fe3f",),
    repository="https://github.com/Lightning-AI/litgpt",
    upstream="litgpt/pretrain.py, litgpt/finetune/full.py, litgpt/args.py",
    clock=CLOCKS["pretrain"],
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(
        ".yaml", _configs, {"world_size": 1, "sequence_length": 1}, ("adam", "adamw", "sgd")
    ),
)

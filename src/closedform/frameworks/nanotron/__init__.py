"""nanotron: the learning rate of ``learning_rate_scheduler``, and the configs of its trainer.

The configs are YAML, or the calls of nanotron's config classes in Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from closedform.errors import nearest
from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)


class Scheduler(kit.Section):
    learning_rate: kit.Rate
    lr_warmup_steps: kit.Steps = 0
    lr_warmup_style: Literal["linear", "constant"]
    lr_decay_style: Literal["linear", "cosine", "1-sqrt"] = "linear"
    lr_decay_steps: kit.Steps | None = None
    lr_decay_starting_step: kit.Steps | None = None
    min_decay_lr: kit.EndRate | None = None


class Tokens(kit.OpenSection):
    train_steps: kit.Steps | None = kit.integer(None, may_be_open=True)
    batch_accumulation_per_replica: kit.Accumulation | None = kit.integer(None, may_be_open=True)


class _Adam(kit.Section):
    adam_beta1: kit.Momentum | None = None
    adam_beta2: kit.Momentum | None = None
    adam_eps: kit.Epsilon | None = None


class Factory(_Adam, irrelevant="torch_adam_is_fused"):
    name: str = "adamW"


class Optimizer(_Adam, irrelevant="accumulate_grad_in_fp32 name torch_adam_is_fused zero_stage"):
    clip_grad: kit.Norm | None = None
    learning_rate_scheduler: Scheduler
    optimizer_factory: Factory
    weight_decay: kit.WeightDecay = 0
    weight_decay_exclude_named_params: Any = ()


class Config(kit.OpenSection, irrelevant="learning_rate"):
    optimizer: Optimizer
    tokens: Tokens


DEFECTS: Mapping[str, kit.Note[[Scheduler, Tokens]]] = {
    "decay-not-shortened": kit.Convention(
        "a decay with a later start is not shortened: its end is not reached in the run",
        "src/nanotron/config/config.py:485",
        lambda scheduler, tokens: (
            "lr_decay_starting_step" in scheduler and "lr_decay_steps" not in scheduler
        ),
    ),
    "no-decay": kit.Convention(
        "without min_decay_lr there is no decay",
        "src/nanotron/config/config.py:386",
        lambda scheduler, tokens: "min_decay_lr" not in scheduler,
    ),
    "rate-squared": kit.Defect(
        "without a warmup and a decay, the rate is squared",
        "src/nanotron/helpers.py:118",
        lambda scheduler, tokens: (
            scheduler.lr_warmup_steps == 0 and _decay_length(scheduler, tokens) == 0
        ),
        documented="the rate, without a warmup and a decay",
    ),
    "minimum-of-all-groups": kit.Convention(
        "min_decay_lr, and the rate of a constant warmup, are the same for every group",
        "src/nanotron/helpers.py:126",
    ),
}


def _decay_length(scheduler: Scheduler, tokens: Tokens) -> int:
    if scheduler.lr_decay_steps is not None:
        return scheduler.lr_decay_steps
    if tokens.train_steps is None:
        raise tokens.error("train_steps is missing", "train_steps")
    return tokens.train_steps - scheduler.lr_warmup_steps


def _rate(context: kit.Context, scheduler: Scheduler, tokens: Tokens) -> Schedule:
    kind, warmup = scheduler.lr_decay_style, scheduler.lr_warmup_steps
    length, begin = _decay_length(scheduler, tokens), scheduler.lr_decay_starting_step
    begin = warmup if begin is None else begin
    peak, low = scheduler.learning_rate, scheduler.min_decay_lr
    low = peak if low is None else low
    rates = context.facts.get("group_learning_rates")
    rate = context.with_facts(group_lrs=rates).of_group("lr", peak)
    is_constant = scheduler.lr_warmup_style == "constant"

    def value(n: float) -> Any:
        if warmup == 0 and length == 0:
            # The function returns the rate, where it should return a factor of it.
            return rate * rate if context.as_implemented else rate
        if n <= warmup:
            return peak if is_constant else rate * n / max(warmup, 1)
        if n < begin:
            return rate
        if n >= begin + length:
            return low
        if kind == "cosine":
            return along_cosine(rate, low, (n - begin) / length)
        root = math.sqrt(n - begin) / math.sqrt(length)
        return along_line(rate, low, (n - begin) / length if kind == "linear" else root)

    return kit.curve(kind, value)


_CALLS = {
    "optimizer": "OptimizerArgs",
    "tokens": "TokensArgs",
    "learning_rate_scheduler": "LRSchedulerArgs",
    "optimizer_factory": "AdamWOptimizerArgs",
}
"""The keys of a YAML config, and the classes that are their sections in Python."""


def _matches(document: kit.Document) -> bool:
    if document.python is not None:
        return any(kit.calls(document.values, "LRSchedulerArgs"))
    optimizer = document.content.get("optimizer")
    return isinstance(optimizer, dict) and "learning_rate_scheduler" in optimizer


def _as_yaml(document: kit.Document) -> kit.Document:
    """A Python config in the form of a YAML one."""
    if document.python is None:
        return document
    optimizer, tokens, scheduler, factory = (
        (key, next(kit.calls(document.values, name), None)) for key, name in _CALLS.items()
    )
    content: dict[str, Any] = {
        key: {} if call is None else dict(call.kwargs) for key, call in (optimizer, tokens)
    }
    for key, call in (scheduler, factory):
        if call is not None:
            content["optimizer"].setdefault(key, call)
    return replace(document, content=content)


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(_as_yaml(reading.document))
    optimizer, scheduler = config.optimizer, config.optimizer.learning_rate_scheduler
    total = reading.value_or_fact(config.tokens.train_steps, "total_updates")
    tokens = config.tokens.replace(train_steps=total)
    with scheduler.origin.locate_errors():
        rate = _rate(reading.context, scheduler, tokens)
    group = _optimizer(optimizer).group(rate)
    excluded_names = optimizer.weight_decay_exclude_named_params
    return reading.recipe(
        [group, *([group.without_decay(excluded_names)] if excluded_names else [])],
        horizon=total,
        clipping=None if optimizer.clip_grad is None else kit.Clipping(optimizer.clip_grad),
        accumulation=tokens.batch_accumulation_per_replica,
        values=(scheduler, tokens),
        derived={"total_updates": total},
    )


def _optimizer(optimizer: Optimizer) -> kit.ClassOptimizer:
    """The optimizer, from ``optimizer_factory`` or, before 2024, next to it."""
    factory = optimizer.optimizer_factory
    place = factory if factory.origin.content else optimizer
    name = factory.name.lower()
    if name not in ("adamw", "sgd"):
        hint = nearest(name, ("adamW", "sgd"))
        raise factory.error(f"there is no optimizer {factory.name!r}", "name", hint)
    content: dict[str, Any] = {
        "lr": optimizer.learning_rate_scheduler.learning_rate,
        "weight_decay": optimizer.weight_decay,
    }
    if name == "adamw":
        betas = [place.require("adam_beta1"), place.require("adam_beta2")]
        content |= {"betas": betas, "eps": place.require("adam_eps")}
    path = {"adamw": "AdamW", "sgd": "SGD"}[name]
    return kit.class_optimizer(
        kit.RawSection(place.origin.document, content, place.origin.path), path
    )


_STYLES = {
    kit.CurveName.LINEAR: "linear",
    kit.CurveName.COSINE: "cosine",
    kit.CurveName.ROOT: "1-sqrt",
}


def _factory(optimizer: kit.Optimizer) -> dict[str, Any]:
    if optimizer.name == "sgd":
        return {"name": "sgd"}
    betas = optimizer.betas() or [0.9, 0.999]
    return {
        "name": "adamW",
        "adam_beta1": betas[0],
        "adam_beta2": betas[1],
        "adam_eps": kit.native(optimizer.values.get("eps", 1e-8)),
        "torch_adam_is_fused": True,
    }


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in (*_STYLES, kit.CurveName.CONSTANT):
        return
    scheduler: dict[str, Any] = {
        "learning_rate": kit.native(form.peak),
        "lr_warmup_steps": kit.nearest_integer(form.warmup()),
        "lr_warmup_style": "linear",
        "lr_decay_style": _STYLES.get(form.curve, "linear"),
        "min_decay_lr": kit.native(form.low),
    }
    if form.curve is not kit.CurveName.CONSTANT:
        scheduler["lr_decay_starting_step"] = kit.nearest_integer(form.begin)
        scheduler["lr_decay_steps"] = kit.nearest_integer(form.end - form.begin)
    no_decay_groups = [group for group in optimizer.groups if group.weight_decay == 0]
    section: dict[str, Any] = {
        "accumulate_grad_in_fp32": True,
        "clip_grad": None if optimizer.clipping is None else kit.native(optimizer.clipping),
        "learning_rate_scheduler": scheduler,
        "optimizer_factory": _factory(optimizer),
        "weight_decay": kit.native(optimizer.weight_decay or 0),
        "zero_stage": 0,
    }
    if no_decay_groups:
        patterns = [pattern for group in no_decay_groups for pattern in group.patterns]
        section["weight_decay_exclude_named_params"] = patterns
    yield {"optimizer": section, "tokens": {"train_steps": form.total}}


FRAMEWORK = kit.Framework(
    "nanotron",
    kit.section_entries(
        dict.fromkeys(("linear", "cosine", "1-sqrt"), _rate),
        {"learning_rate_scheduler": Scheduler, "tokens": Tokens},
        style=lambda scheduler, tokens: str(scheduler.lr_decay_style),
        defects=DEFECTS,
    ),
    versions=("2411b022a75f",),
    repository="https://github.com/huggingface/nanotron",
    upstream="src/nanotron/helpers.py, src/nanotron/config/config.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adamw", "sgd")),
)

"""The learning rates of litgpt: pretraining counts micro-batches, finetuning updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, first_after, first_from, quotient
from closedform.recipes.native import (
    count,
    entry,
    exact,
    fact,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine

_TRAIN = {
    "global_batch_size": None,
    "micro_batch_size": None,
    "max_tokens": None,
    "max_steps": None,
    "epochs": None,
    "min_lr": 6e-5,
    "lr_warmup_steps": 100,
    "lr_warmup_fraction": None,
}


def _pretrain(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    train = options(given["train"], where, _TRAIN)
    rate = number(entry(given["optimizer"], "lr", where), "lr", where)
    low = number(train["min_lr"], "min_lr", where)
    facts = Facts(gradient_accumulation=fact(context, "gradient_accumulation_iters"))
    world = fact(context, "devices") * context.facts.get("num_nodes", 1)
    tokens = count(train["max_tokens"], "max_tokens", where)
    micro = count(train["micro_batch_size"], "micro_batch_size", where)
    total = (tokens // world) // (micro * fact(context, "max_seq_length"))
    clock = Clock(Unit.MICRO_BATCH, offset=1)
    each = clock.per_update(facts)
    part, steps = train["lr_warmup_fraction"], train["lr_warmup_steps"]
    refuse_unless(
        not (part and steps),
        "only one of lr_warmup_steps and lr_warmup_fraction may be given",
        where,
    )
    if part:
        warmup = min(total, math.ceil(part * fact(context, "dataloader_len")))
    else:
        warmup = min(total, (steps or 0) * int(each))
    # The rate of an update is that of its last micro-batch.
    n = clock.position(facts) - 1
    begin, end = first_from((warmup + 1) / each - 1), first_after((total + 1) / each - 1)
    return by_intervals(
        "pretrain",
        (lambda: rate * n / warmup, begin),
        (
            lambda: along_cosine(rate, low, quotient(n - warmup, sp.Integer(total - warmup))),
            end,
        ),
        (lambda: low, None),
    )


def _finetune(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    train = options(given["train"], where, _TRAIN)
    rate = number(entry(given["optimizer"], "lr", where), "lr", where)
    warmup = exact(count(train["lr_warmup_steps"], "lr_warmup_steps", where))
    total = exact(fact(context, "total_updates"))
    refuse_unless(
        warmup > 0, f"lr_warmup_steps must be above 0 (division by zero), got {warmup}", where
    )
    return by_intervals(
        "finetune",
        (lambda: rate * t / warmup, first_from(warmup)),
        (lambda: along_cosine(rate, sp.S.Zero, quotient(t - warmup, total - warmup)), None),
    )


_PARAMETERS = parameters(optimizer=REQUIRED, train=REQUIRED)
SCHEDULES = {
    "pretrain": ScheduleEntry(
        "pretrain",
        (),
        _PARAMETERS,
        _pretrain,
        notes=("counts micro-batches: an update uses the rate of its last one",),
    ),
    "finetune": ScheduleEntry(
        "finetune",
        (),
        _PARAMETERS,
        _finetune,
        notes=("the rate rises again after the run",),
    ),
}

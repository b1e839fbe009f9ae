"""The arguments of timm's ``train.py``: the ``args.yaml`` that it writes, or its command line.

Its scheduler steps at the end of each epoch, so that all updates of an epoch share one rate, or
with ``sched_on_updates`` at every update. Before its first step an optimizer has its own rate, or
that of the beginning of the warmup.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import sympy as sp

from closedform.frameworks.timm.schedules import SCHEDULES
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit
from closedform.schedules import constant

CLASSES: Mapping[str, str] = {
    "constant": "StepLRScheduler",
    "cosine": "CosineLRScheduler",
    "multistep": "MultiStepLRScheduler",
    "plateau": "PlateauLRScheduler",
    "poly": "PolyLRScheduler",
    "rsqrt": "WSDLRScheduler",
    "step": "StepLRScheduler",
    "tanh": "TanhLRScheduler",
    "wsd": "WSDLRScheduler",
}
"""The scheduler class of each value of ``sched``, as ``create_scheduler_v2`` chooses it."""


class Arguments(
    kit.OpenSection,
    irrelevant="bn_momentum model_ema_decay model_ema_warmup no_resume_opt train_size_schedule "
    "train_size_schedule_spread",
):
    batch_size: kit.BatchSize = 128
    clip_grad: kit.Norm | None = None
    clip_mode: Literal["norm", "value", "agc"] = "norm"
    cooldown_epochs: kit.Epochs = 0
    decay_epochs: kit.RealEpochs | None = None
    decay_milestones: kit.Numbers = (90, 180, 270)
    decay_rate: kit.Number = 0.1
    epochs: kit.Epochs = 300
    grad_accum_steps: kit.Accumulation = 1
    layer_decay: kit.Number | None = None
    layer_decay_min_scale: kit.Number = 0
    layer_decay_no_opt_scale: kit.Number | None = None
    lr: kit.Rate | None = None
    lr_base: kit.Rate = 0.1
    lr_base_scale: str = ""
    lr_base_size: int = 256
    lr_cycle_decay: kit.Number = 0.5
    lr_cycle_limit: int = 1
    lr_cycle_mul: kit.Number = 1
    lr_decay_fn: str | None = None
    lr_k_decay: kit.Number = 1
    lr_noise: kit.Numbers | None = None
    lr_noise_pct: kit.Number = 0.67
    lr_noise_std: kit.Number = 1
    lr_stable_timescale: kit.RealSteps | None = None
    min_lr: kit.EndRate = 0
    momentum: kit.Momentum = 0.9
    opt: str = "sgd"
    opt_betas: kit.Momenta | None = None
    opt_eps: kit.Epsilon | None = None
    opt_kwargs: Any = None
    patience_epochs: kit.Epochs = 10
    sched: str = kit.choice(*CLASSES, "none", default="cosine")
    sched_on_updates: bool = False
    seed: int = 42
    warmup_epochs: kit.Epochs = 5
    warmup_lr: kit.StartRate = 1e-5
    warmup_prefix: bool = False
    weight_decay: kit.WeightDecay = 2e-5


_SHORT = {"b": "batch_size", "dr": "decay_rate"}
"""Flags of the command line, and the arguments that they are."""


def _ends_high(arguments: Arguments) -> bool:
    is_decay = arguments.sched in ("cosine", "poly", "tanh", "wsd", "rsqrt")
    return is_decay and not arguments.sched_on_updates and arguments.cooldown_epochs == 0


DEFECTS: Mapping[str, kit.Note[[Arguments]]] = {
    "milestone-early": kit.Defect(
        "a milestone applies one step before it, where decay_t of StepLRScheduler is exact",
        "timm/scheduler/multistep_lr.py:65",
        lambda arguments: arguments.sched == "multistep",
        classes=("MultiStepLRScheduler",),
    ),
    "warmup-cuts-the-curve": kit.Convention(
        "without warmup_prefix the warmup stands in place of the beginning of the curve, which "
        "goes on below the peak",
        "timm/scheduler/cosine_lr.py:117",
        lambda arguments: (
            arguments.sched in ("cosine", "tanh", "poly")
            and arguments.warmup_epochs > 0
            and not arguments.warmup_prefix
        ),
        classes=("CosineLRScheduler", "TanhLRScheduler", "PolyLRScheduler"),
    ),
    "end-not-reached": kit.Convention(
        "the minimum comes after the last epoch: without cooldown_epochs no update has it",
        "timm/scheduler/wsd_lr.py:29",
        _ends_high,
        classes=(),
    ),
    "base-scale-without-effect": kit.Defect(
        "an lr_base_scale other than sqrt is linear",
        "train.py:843",
        lambda arguments: (
            not arguments.lr and arguments.lr_base_scale not in ("", "linear", "sqrt")
        ),
        classes=(),
    ),
    "layers-of-the-model": kit.Convention(
        "the rates of the layers below the head are a power of layer_decay as large, by the depth "
        "of the model",
        "timm/scheduler/scheduler.py:107",
        lambda arguments: arguments.layer_decay is not None,
        classes=(),
    ),
}


@dataclass(frozen=True, slots=True)
class TimmScheduler:
    """The scheduler of a run.

    Attributes:
        name: Its class.
        keywords: The arguments of the class.
        length: The steps of the run, in its unit.
    """

    name: str
    keywords: Mapping[str, Any]
    length: int


def _plan(arguments: Arguments, per_epoch: int) -> TimmScheduler:
    """The scheduler of ``create_scheduler_v2``, all lengths times the updates of an epoch."""
    kind, warmup = arguments.sched, arguments.warmup_epochs * per_epoch
    total, cooldown = arguments.epochs * per_epoch, arguments.cooldown_epochs * per_epoch
    prefix = arguments.warmup_prefix
    keywords: dict[str, Any] = {"warmup_t": warmup, "warmup_lr_init": arguments.warmup_lr}
    if arguments.lr_noise is not None:
        ends = tuple(int(part * total) for part in arguments.lr_noise)
        keywords |= {
            "noise_range_t": ends if len(ends) > 1 else ends[0],
            "noise_pct": arguments.lr_noise_pct,
            "noise_std": arguments.lr_noise_std,
            "noise_seed": arguments.seed,
        }
    if kind in ("cosine", "tanh", "poly"):
        growth, limit = arguments.lr_cycle_mul, arguments.lr_cycle_limit
        keywords |= {
            "t_initial": total,
            "lr_min": arguments.min_lr,
            "warmup_prefix": prefix,
            "cycle_mul": growth,
            "cycle_decay": arguments.lr_cycle_decay,
            "cycle_limit": limit,
        }
        if kind != "tanh":
            keywords["k_decay"] = arguments.lr_k_decay
        if kind == "poly":
            keywords["power"] = arguments.decay_rate
        cycles = max(1, limit)
        length = sum(total * growth**cycle for cycle in range(cycles))
        length = math.floor(length) + (warmup if prefix else 0) + cooldown
    elif kind in ("wsd", "rsqrt"):
        total -= 0 if prefix else warmup
        # Rounded in floats, as timm does.
        part = 0.2 if arguments.decay_epochs is None else float(arguments.decay_epochs)
        decay = part * total if 0 < part < 1 else part * per_epoch
        scale = arguments.lr_stable_timescale
        style = arguments.lr_decay_fn or ("linear" if kind == "rsqrt" else "1-sqrt")
        keywords |= {
            "t_initial": total,
            "decay_t": round(decay),
            "lr_min": arguments.min_lr,
            "stable_fn": "rsqrt" if kind == "rsqrt" else "constant",
            "stable_timescale": None if scale is None else scale * per_epoch,
            "decay_fn": style,
        }
        length = warmup + total + cooldown
    else:
        steps = 90 if arguments.decay_epochs is None else arguments.decay_epochs
        marks = [mark * per_epoch for mark in arguments.decay_milestones]
        keywords |= {
            "decay_t": {"constant": 1, "step": steps * per_epoch, "multistep": marks}.get(kind),
            "decay_rate": 1 if kind == "constant" else arguments.decay_rate,
            "warmup_prefix": prefix,
        }
        length = total + (warmup if prefix else 0)
    return TimmScheduler(CLASSES.get(kind, kind), keywords, int(length) // per_epoch * per_epoch)


def _rate(
    context: kit.Context, arguments: Arguments, plan: TimmScheduler, base: sp.Expr
) -> Schedule:
    if arguments.sched == "none":
        return constant(base)
    if arguments.sched == "plateau":
        raise arguments.error("plateau waits for the metric of an epoch", "sched", "give another")
    entries = replace(context, entries=SCHEDULES, base=base, bases=(base,))
    schedule = kit.build_schedule(plan.name, plan.keywords, entries)
    first = arguments.warmup_lr if arguments.warmup_epochs else base
    if schedule.exact(0) == first:
        return schedule
    # The scheduler has not stepped yet at the first update.
    return Schedule(sp.Piecewise((first, t < 1), (schedule.bound, True)), name=schedule.name)


def _base(context: kit.Context, arguments: Arguments) -> sp.Expr:
    """The rate, or that of the batch size where ``lr`` is not given or 0."""
    if arguments.lr:
        return arguments.lr
    (world,) = context.numbers.require("world_size", where=context.where)
    samples = arguments.batch_size * world * max(1, arguments.grad_accum_steps)
    ratio = samples / sp.Integer(arguments.lr_base_size)
    is_adaptive = any(part in arguments.opt.lower() for part in ("ada", "lamb"))
    scale = arguments.lr_base_scale or ("sqrt" if is_adaptive else "linear")
    return arguments.lr_base * (sp.sqrt(ratio) if scale == "sqrt" else ratio)


def _arguments_by_name(document: kit.Document) -> dict[str, Any]:
    """The arguments by their names, of flags as well."""
    if document.syntax is not kit.Syntax.ARGUMENTS:
        return document.content
    flags = {str(key).replace("-", "_"): value for key, value in document.content.items()}
    return {_SHORT.get(key, key): value for key, value in flags.items()}


_TYPICAL = {"decay_epochs", "decay_rate", "epochs", "lr_base", "opt", "warmup_epochs", "warmup_lr"}


def matches(document: kit.Document) -> bool:
    """Returns whether a config has arguments of ``train.py``."""
    names = set(_arguments_by_name(document))
    return "sched" in names and len(names & _TYPICAL) > 1


def _optimizer(arguments: Arguments) -> dict[str, Any]:
    name = arguments.opt.lower()
    arguments_of_rule: dict[str, Any] = {}
    if name in ("sgd", "nesterov", "momentum"):
        return {"momentum": arguments.momentum, "nesterov": name != "momentum"}
    if arguments.opt_betas is not None:
        arguments_of_rule["betas"] = arguments.opt_betas
    if arguments.opt_eps is not None:
        arguments_of_rule["eps"] = arguments.opt_eps
    return arguments_of_rule


_RULES = {"sgd": "sgd", "nesterov": "sgd", "momentum": "sgd", "adam": "adam", "adamw": "adamw"}


def read(reading: kit.Reading) -> kit.Recipe:
    """Returns the recipe of the arguments.

    Raises:
        ConfigError: An argument is not valid, or the scheduler waits for a metric.
        MissingFactsError: ``updates_per_epoch`` with ``sched_on_updates``, or ``world_size``
            without ``lr``.
    """
    document = reading.document
    arguments = Arguments.read_whole(replace(document, content=_arguments_by_name(document)))
    context, per_epoch = reading.context, 1
    if arguments.sched_on_updates:
        (fact,) = reading.facts.require("updates_per_epoch", where=document.source)
        per_epoch = int(fact)
    with arguments.origin.locate_errors():
        plan = _plan(arguments, per_epoch)
        rate = _rate(context, arguments, plan, exact_number(_base(context, arguments)))
    name = arguments.opt.lower()
    rule = None if arguments.opt_kwargs else _RULES.get(name)
    optimizer = kit.plan_optimizer(
        arguments.opt, _optimizer(arguments), rule, document.place("opt"), by_name=False
    )
    schedules = {"lr": rate, "weight_decay": constant(arguments.weight_decay)}
    group = kit.ParamGroup(schedules, optimizer, kit.Role.DEFAULT)
    kinds = {"norm": kit.ClippingKind.NORM, "value": kit.ClippingKind.VALUE}
    is_clipped = arguments.clip_grad is not None and arguments.clip_mode in kinds
    on_epochs = kit.Clock(kit.Unit.EPOCH, is_stepped=True)
    return reading.recipe(
        [group, *([group.without_decay()] if arguments.weight_decay else [])],
        clock=kit.Clock(kit.Unit.UPDATE) if arguments.sched_on_updates else on_epochs,
        horizon=plan.length,
        clipping=kit.Clipping(arguments.clip_grad, kinds[arguments.clip_mode])
        if is_clipped
        else None,
        accumulation=max(1, arguments.grad_accum_steps),
        values=(arguments,),
        derived={"weight_decay": arguments.weight_decay},
    )

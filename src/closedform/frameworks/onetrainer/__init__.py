"""OneTrainer: the JSON configs of its trainer."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_cosine, along_line
from closedform.frameworks.diffusers.process_steps import of_torch
from closedform.language import Schedule
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)
SCALERS = ("NONE", "BATCH", "GLOBAL_BATCH", "GRADIENT_ACCUMULATION", "BOTH", "GLOBAL_BOTH")
SCHEDULE_FREE = ("SCHEDULE_FREE_ADAMW", "SCHEDULE_FREE_SGD", "PRODIGY_PLUS_SCHEDULE_FREE")


def _optimizer(section: kit.RawSection, key: str, default: str) -> Mapping[str, Any]:
    """The optimizer: its name, or a section with it and its arguments."""
    if isinstance(section.content.get(key), Mapping):
        content = dict(section.section(key).content)
        return {"optimizer": default, **content}
    return {"optimizer": section.text(key, default)}


class Config(kit.OpenSection, irrelevant="optimizer_defaults ema_decay"):
    learning_rate: kit.Rate = 3e-6
    learning_rate_scheduler: str = "CONSTANT"
    learning_rate_warmup_steps: kit.RealSteps = 200
    learning_rate_cycles: kit.Number = 1
    learning_rate_min_factor: kit.RateRatio = 0
    learning_rate_scaler: str = kit.choice(*SCALERS, default="NONE")
    epochs: kit.Epochs = kit.integer(100, least=1)
    batch_size: kit.BatchSize = kit.integer(1, least=1)
    gradient_accumulation_steps: kit.Accumulation = kit.integer(1, least=1)
    clip_grad_norm: kit.Norm = 1
    custom_learning_rate_scheduler: str | None = None
    scheduler_params: Any = ()
    optimizer: Mapping[str, Any] = kit.read_by(_optimizer, "ADAMW")


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "warmup-of-one": kit.Convention(
        "a warmup of 1 is the whole run, and one above it a number of micro-batches",
        "modules/util/create.py:1129",
        lambda config: config.learning_rate_warmup_steps == 1,
    ),
    "warmup-in-micro-batches": kit.Convention(
        "a warmup of more than 1 counts micro-batches: it is divided by the accumulation",
        "modules/util/create.py:1128",
        lambda config: (
            config.learning_rate_warmup_steps > 1 and config.gradient_accumulation_steps > 1
        ),
    ),
    "rises-after-the-run": kit.Convention(
        "the cosine rises again after the run",
        "modules/util/lr_scheduler_util.py:43",
        lambda config: config.learning_rate_scheduler == "COSINE",
        classes=("COSINE",),
    ),
    "last-update-goes-on": kit.Convention(
        "the restarts stay at their value of the last update, above their minimum",
        "modules/util/lr_scheduler_util.py:57",
        lambda config: "RESTARTS" in config.learning_rate_scheduler,
        classes=("COSINE_WITH_RESTARTS", "COSINE_WITH_HARD_RESTARTS"),
    ),
    "schedule-free": kit.Convention(
        "a schedule-free optimizer has a constant rate",
        "modules/util/create.py:1137",
        lambda config: (
            config.optimizer["optimizer"] in SCHEDULE_FREE
            and config.learning_rate_scheduler != "CONSTANT"
        ),
    ),
}


def _factor(config: Config, warmup: int, rest: int) -> kit.CurveFunction:
    """The factor of the rate after the warmup."""
    kind, cycles = config.learning_rate_scheduler, config.learning_rate_cycles

    def value(n: float) -> Any:
        if kind == "CONSTANT":
            return 1
        if "RESTARTS" in kind:
            if rest == 0:
                raise ZeroDivisionError("division by zero")
            steps = min(n - warmup, rest - 1)
            is_hard = kind == "COSINE_WITH_HARD_RESTARTS"
            turns = cycles * steps % rest / rest if is_hard else 2 * cycles * (steps / rest)
            return (1 + math.cos(math.pi * turns)) / 2
        if kind == "REX" and n >= warmup + rest:
            return 0
        progress = (n - warmup) / rest
        if kind == "REX":
            return (1 - progress) / (0.1 + 0.9 * (1 - progress))
        return max(0, 1 - progress) if kind == "LINEAR" else along_cosine(1, 0, progress)

    return value


CURVES = (
    *("CONSTANT", "LINEAR", "COSINE", "COSINE_WITH_RESTARTS", "COSINE_WITH_HARD_RESTARTS"),
    "REX",
)


def _micro_batches(context: kit.Context) -> int | None:
    """The micro-batches of an epoch, which the framework calls its steps."""
    steps: int | None = context.facts.get("steps_per_epoch")
    return context.numbers.micro_batches_per_epoch if steps is None else steps


def _updates(context: kit.Context, config: Config) -> int:
    in_epoch, facts = _micro_batches(context), context.numbers
    if in_epoch is None and facts.total_updates is not None:
        return facts.total_updates
    if in_epoch is None:
        in_epoch = int(facts.require("micro_batches_per_epoch", where=context.where)[0])
    return int(in_epoch * config.epochs / config.gradient_accumulation_steps)


def _rate(context: kit.Context, config: Config) -> Schedule:
    total, accumulation = _updates(context, config), config.gradient_accumulation_steps
    steps, where = config.learning_rate_warmup_steps, context.where
    warmup = 0
    if steps > 1:
        warmup = int(float(steps) / accumulation)
    elif steps > 0:
        warmup = int(float(steps) * total)
    kind, rate = config.learning_rate_scheduler, _scale_rate(context, config)
    if config.optimizer["optimizer"] in SCHEDULE_FREE:
        return constant(rate)
    count = CLOCK.position(context.numbers)
    if kind == "CUSTOM":
        schedule = _custom(context, config, rate, total, warmup)
        rise = kit.curve("warmup", lambda n: rate * n / warmup if n < warmup else rate, count)
        return rise.then(schedule, at=warmup)
    kit.refuse_unless(kind in CURVES, f"there is no formula of the scheduler {kind!r:.60}", where)
    low = sp.S.Zero if kind == "CONSTANT" else config.learning_rate_min_factor

    factor = _factor(config, warmup, total - warmup)

    def value(n: float) -> Any:
        return rate * n / warmup if n < warmup else rate * along_line(low, 1, factor(n))

    return kit.curve(kind, value, count)


def _scale_rate(context: kit.Context, config: Config) -> sp.Expr:
    """The rate times the root of the samples of a batch, an update, or all processes."""
    scaler, factor = config.learning_rate_scaler, sp.S.One
    if scaler.endswith(("BATCH", "BOTH")):
        factor *= config.batch_size
    if scaler.endswith(("ACCUMULATION", "BOTH")):
        factor *= config.gradient_accumulation_steps
    if scaler.startswith("GLOBAL"):
        (processes,) = context.numbers.require("world_size", where=context.where)
        factor *= processes
    return config.learning_rate * sp.sqrt(factor)


def _custom(
    context: kit.Context, config: Config, rate: sp.Expr, total: int, warmup: int
) -> Schedule:
    path, where = config.custom_learning_rate_scheduler or "", context.where
    kit.refuse_unless(
        path, "CUSTOM needs custom_learning_rate_scheduler, the path of a class", where
    )
    kit.refuse_unless("." in path, f"the path of a class has a module, got {path!r:.60}", where)
    words = {
        "%LR%": config.learning_rate,
        "%EPOCHS%": config.epochs,
        "%STEPS_PER_EPOCH%": _micro_batches(context),
        "%TOTAL_STEPS%": total,
        "%SCHEDULER_STEPS%": total - warmup,
    }
    arguments: dict[str, Any] = {}
    for entry in config.scheduler_params:
        is_pair = isinstance(entry, Mapping) and isinstance(entry.get("value"), str)
        kit.refuse_unless(is_pair, "scheduler_params must hold pairs of key and value", where)
        key, word = str(entry.get("key")), entry["value"]
        try:
            arguments[key] = words[word] if word in words else ast.literal_eval(word)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            kit.refuse_unless(False, f"{key} must be a Python literal, got {word!r:.60}", where)
    return of_torch(path, arguments, rate, where)


_OWN = ("learning_rate_scheduler", "learning_rate_warmup_steps", "training_method", "__version")
_RULES = {"ADAM": "adam", "ADAMW": "adamw", "SGD": "sgd", "LION": "lion"}
_DEFAULTS = {"ADAM": 0, "ADAMW": 0.01, "SGD": 0, "LION": 0}


def _matches(document: kit.Document) -> bool:
    content = document.content
    if (
        document.syntax not in (kit.Syntax.JSON, kit.Syntax.MAPPING)
        or "learning_rate" not in content
    ):
        return False
    optimizer = content.get("optimizer")
    is_upper = isinstance(optimizer, Mapping) and str(optimizer.get("optimizer", "")).isupper()
    names = {"epochs", "batch_size"} & {*content}
    is_short = bool(names) and {*content} <= {"learning_rate", "epochs", "batch_size"}
    return is_upper or is_short or any(key in content for key in _OWN)


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(reading.document)
    with config.origin.locate_errors():
        rate = _rate(reading.context, config)
        updates = _updates(reading.context, config)
    optimizer = config.optimizer
    name = str(optimizer["optimizer"])
    arguments: dict[str, Any] = {}
    if name in _RULES:
        decay = optimizer.get("weight_decay")
        arguments["weight_decay"] = _DEFAULTS[name] if decay is None else decay
    if name in ("ADAM", "ADAMW", "LION"):
        usual = 0.99 if name == "LION" else 0.999
        betas = (optimizer.get("beta1"), optimizer.get("beta2"))
        arguments["betas"] = (betas[0] or 0.9, betas[1] or usual)
    if name in ("ADAM", "ADAMW") and optimizer.get("eps") is not None:
        arguments["eps"] = optimizer["eps"]
    place = config.origin.document.place("optimizer")
    plan = kit.plan_optimizer(name, arguments, _RULES.get(name), place, by_name=False)
    schedules = {"lr": rate}
    if "weight_decay" in arguments:
        schedules["weight_decay"] = constant(arguments["weight_decay"])
    norm = config.clip_grad_norm
    return reading.recipe(
        [kit.ParamGroup(schedules, plan, kit.Role.DEFAULT)],
        horizon=updates,
        clipping=kit.Clipping(norm) if norm else None,
        accumulation=config.gradient_accumulation_steps,
        values=(config,),
    )


FRAMEWORK = kit.Framework(
    "onetrainer",
    kit.section_entries(
        dict.fromkeys((*CURVES, "CUSTOM"), _rate),
        {"": Config},
        style=lambda config: str(config.learning_rate_scheduler),
    ),
    versions=("23df3832e8f2",),
    repository="https://github.com/Nerogar/OneTrainer",
    upstream="modules/util/create.py, modules/util/lr_scheduler_util.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("steps_per_epoch",),
)

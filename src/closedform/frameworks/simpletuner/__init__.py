"""SimpleTuner: the JSON configs and command lines of its trainer, whose scheduler accelerate steps.

Cosines and sines have the half period ``lr_warmup_steps``, for ever, and are cut down to whole
billionths. Where the exact value is one, the framework's float may be just below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.frameworks.diffusers.process_steps import CLOCK, run_of
from closedform.frameworks.transformers.schedules import schedule_by_name
from closedform.language import Schedule, exact_number, floor_mod, t
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.blends import along_line
from closedform.schedules.branches import stepwise

PERIODIC = ("cosine", "cosine_with_restarts", "sine")
CURVES = ("constant", "constant_with_warmup", "linear", "polynomial", *PERIODIC)
BILLION = 10**9
MOST_CUTS = 200
"""The most values whose floats are distinguished from the exact ones just above them."""


class Config(
    kit.OpenSection,
    irrelevant="lr_num_cycles adam_beta1 adam_beta2 adam_epsilon adam_weight_decay ema_decay "
    "ema_warmup_steps optimizer_config optimizer_cpu_offload_method "
    "optimizer_offload_gradients optimizer_release_gradients fuse_optimizer "
    "training_scheduler_timestep_spacing inference_scheduler_timestep_spacing "
    "text_encoder_lr prodigy_steps lyrics_embedder_lr validation_scheduler "
    "lyrics_embedder_lr_scheduler lyrics_embedder_optimizer use_deepspeed_optimizer "
    "use_deepspeed_scheduler flow_schedule_shift flow_schedule_auto_shift "
    "ddpm_beta_schedule huber_schedule lora_initialisation_style",
):
    learning_rate: kit.Rate = 4e-7
    lr_scheduler: str = kit.choice(*CURVES, "cosine_with_warmup", default="constant_with_warmup")
    lr_warmup_steps: kit.Steps = kit.integer(0, least=0)
    lr_end: kit.EndRate = 4e-7
    lr_power: kit.Power = 0.8
    lr_scale: bool = False
    lr_scale_sqrt: bool = False
    max_train_steps: kit.Steps | None = None
    num_train_epochs: kit.RealEpochs | None = None
    train_batch_size: kit.BatchSize = kit.integer(4, least=1)
    gradient_accumulation_steps: kit.Accumulation = kit.integer(1, least=1)
    max_grad_norm: kit.Norm = 2
    optimizer: str = "adamw_bf16"
    optimizer_beta1: kit.Momentum | None = None
    optimizer_beta2: kit.Momentum | None = None


class Arguments(Config, kit.ArgumentSection):
    pass


_ADAM = {"betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}
_OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "adamw_bf16": ("AdamWBF16", _ADAM),
    "torch-adam": ("Adam", {**_ADAM, "eps": 1e-8, "weight_decay": 0}),
    "torch-adamw": ("AdamW", {**_ADAM, "eps": 1e-8}),
    "torch-sgd": ("SGD", {"weight_decay": 0}),
}
"""Names of optimizers, with the class and its arguments; another one has its name alone."""
_SCHEDULE_FREE = (
    *("adamw_schedulefree", "adamw_schedulefree+aggressive", "adamw_schedulefree+no_kahan"),
)

_FILE = "simpletuner/helpers/training/custom_schedule.py"


def _is(*names: str) -> Callable[[Config], bool]:
    return lambda arguments: not _is_free(arguments) and arguments.lr_scheduler in names


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "endless-cosine": kit.Defect(
        "cosine and sine do not decay: their half period is lr_warmup_steps (1000 "
        "steps of the scheduler where they are 0, for cosine), for ever; sine begins half way up",
        f"{_FILE}:255",
        _is("cosine", "sine"),
        classes=("cosine", "sine"),
    ),
    "no-restarts": kit.Defect(
        "cosine_with_restarts is constant: its position is 0 at every step",
        f"{_FILE}:353",
        _is("cosine_with_restarts"),
        classes=("cosine_with_restarts",),
    ),
    "whole-billionths": kit.Convention(
        "the rate is cut down to whole billionths",
        f"{_FILE}:268",
        _is(*PERIODIC),
        classes=PERIODIC,
    ),
    "end-without-effect": kit.Convention(
        "lr_end has no effect on this scheduler",
        f"{_FILE} (get_lr_scheduler)",
        lambda arguments: (
            "lr_end" in arguments and _is("constant", "constant_with_warmup", "linear")(arguments)
        ),
        classes=("constant", "constant_with_warmup", "linear"),
    ),
    "schedule-free": kit.Convention(
        "a schedule-free optimizer has no schedule: lr_scheduler is ignored",
        "simpletuner/helpers/training/trainer.py:4262",
        lambda arguments: _is_free(arguments),
        classes=(),
    ),
}


def _is_free(arguments: Config) -> bool:
    return arguments.optimizer in _SCHEDULE_FREE


_EXACT: Mapping[str, Callable[[sp.Expr], sp.Expr]] = {
    "cosine": lambda position: sp.cos(sp.pi * position),
    "sine": lambda position: sp.sin(sp.pi * position),
    "cosine_with_restarts": lambda position: sp.S.One,
}


def _periodic(
    kind: str, rate: sp.Expr, low: sp.Expr, half: int, processes: int, end: int
) -> Schedule:
    """The curve of a half period in steps of the scheduler, in whole billionths.

    Args:
        kind: Its name.
        rate: The rate.
        low: The minimum.
        half: The half period.
        processes: The steps in an update.
        end: The updates of the run.
    """
    turns = sp.Rational(processes, half)
    values = _EXACT[kind]

    def exact(position: sp.Expr) -> sp.Expr:
        return BILLION * along_line(low, rate, (1 + values(position)) / 2)

    period = 1 if kind == "cosine_with_restarts" else int(2 * turns.q)
    # Only at sixths of a half period the value can be a whole number of billionths.
    sixths = range(0, period, int(turns.q) // math.gcd(6, int(turns.q)))
    whole = {update: exact(update * turns) for update in sixths}
    whole = {update: value for update, value in whole.items() if value.is_integer}
    cuts = [
        update
        for update in _within(whole, period, end)
        if _floor_of_wave(kind, float(rate), float(low), update * processes, half)
        != whole[update % period]
    ]
    if period == 1:
        start = sp.Integer(_floor_of_wave(kind, float(rate), float(low), 0, half))
        return constant(start / BILLION)
    generic = sp.floor(exact(t * turns))
    branches = [(value, sp.Eq(floor_mod(t, period), update)) for update, value in whole.items()]
    expr = sp.Piecewise(*branches, (generic, True)) if branches else generic
    if cuts:
        marks = [mark for cut in cuts[:MOST_CUTS] for mark in (cut, cut + 1)]
        steps = [sp.Integer(-(index % 2)) for index in range(len(marks) + 1)]
        if marks[0] == 0:
            marks, steps = marks[1:], steps[1:]
        expr += stepwise(steps, [sp.Integer(mark) for mark in marks])
    return Schedule(expr / BILLION, name=kind)


def _within(whole: Mapping[int, sp.Expr], period: int, end: int) -> Iterator[int]:
    """The updates of a run, and of the same time after it, whose exact values are whole."""
    for begin in range(0, 2 * end + 2, period):
        yield from (begin + update for update in whole)


def _floor_of_wave(kind: str, rate: float, low: float, step: int, half: int) -> int:
    """The framework's arithmetic."""
    if kind == "sine":
        value = low + (rate - low) * (0.5 * (1 + math.sin(math.pi * step / half)))
    else:
        place = 0 if kind == "cosine_with_restarts" else -step
        value = low + (rate - low) * (1 + math.cos(math.pi * place / half)) / 2
    return math.floor(value * 1e9)


def _updates(context: kit.Context, arguments: Config) -> int:
    steps, epochs = arguments.max_train_steps, arguments.num_train_epochs
    is_counted = steps is not None and steps > 0
    kit.refuse_unless(
        not (is_counted and epochs is not None and epochs > 0),
        "with max_train_steps, num_train_epochs must be 0",
        context.where,
    )
    if is_counted:
        return int(steps or 0)
    facts = context.numbers
    if facts.total_updates is not None:
        return facts.total_updates
    (in_epoch,) = facts.require("updates_per_epoch", where=context.where)
    return math.ceil(float(1 if epochs is None else epochs) * int(in_epoch))


def _rate(context: kit.Context, arguments: Config) -> Schedule:
    rate, low, warmup = arguments.learning_rate, arguments.lr_end, arguments.lr_warmup_steps
    kind, facts, where = arguments.lr_scheduler, context.numbers, context.where
    kind = "cosine" if kind == "cosine_with_warmup" else kind
    total = _updates(context, arguments)
    if (
        facts.world_size is None
        and not arguments.lr_scale
        and not (kind == "cosine" and warmup == 0)
    ):
        facts = replace(facts, world_size=1)
    processes = int(facts.require("world_size", where=where)[0])
    if arguments.lr_scale:
        factor = sp.Integer(
            arguments.train_batch_size * arguments.gradient_accumulation_steps * processes
        )
        rate *= sp.sqrt(factor) if arguments.lr_scale_sqrt else factor
    if _is_free(arguments):
        return constant(rate)
    if kind in PERIODIC:
        half = warmup * processes
        kit.refuse_unless(half or kind == "cosine", f"{kind} needs lr_warmup_steps above 0", where)
        return _periodic(kind, rate, low, half or 1000, processes, total)
    run = run_of(context, rate, warmup * processes, total * processes, processes)
    arguments_of_class = (
        {"lr_end": low, "power": arguments.lr_power} if kind == "polynomial" else {}
    )
    return schedule_by_name(
        kind, kit.RawSection(arguments.origin.document, arguments_of_class), run
    )


def _class_rate(context: kit.Context, arguments: Config) -> Schedule:
    if arguments.max_train_steps and "num_train_epochs" not in arguments:
        arguments = arguments.replace(num_train_epochs=exact_number(0))
    return _rate(context, arguments)


def _flat(document: kit.Document) -> kit.Document:
    """The config with keys without dashes."""
    content = {str(key).removeprefix("--"): value for key, value in document.content.items()}
    return replace(document, content=content)


def _matches(document: kit.Document) -> bool:
    if document.syntax not in (kit.Syntax.JSON, kit.Syntax.MAPPING, kit.Syntax.TOML):
        return False
    content = _flat(document).content
    is_named = isinstance(content.get("optimizer"), str) and "lr_scheduler" in content
    is_trained = "learning_rate" in content and "train_batch_size" in content
    return is_named and is_trained and bool({"max_train_steps", "num_train_epochs"} & {*content})


def _read(reading: kit.Reading) -> kit.Recipe:
    document = _flat(reading.document)
    config = (Arguments if document.syntax is kit.Syntax.ARGUMENTS else Config).read_whole(document)
    if config.max_train_steps and "num_train_epochs" not in config:
        config = config.replace(num_train_epochs=exact_number(0))
    if config.lr_scheduler == "constant" and config.lr_warmup_steps > 0:
        config = config.replace(lr_scheduler="constant_with_warmup")
    with config.origin.locate_errors():
        rate = _rate(reading.context, config)
        updates = _updates(reading.context, config)
    path, defaults = _OPTIMIZERS.get(config.optimizer, (config.optimizer, {}))
    betas = (config.optimizer_beta1, config.optimizer_beta2)
    arguments_of_class = {"lr": config.learning_rate, **defaults}
    if None not in betas:
        arguments_of_class["betas"] = betas
    norm = config.max_grad_norm
    return reading.recipe(
        [
            kit.class_optimizer(
                kit.RawSection(document, arguments_of_class, "optimizer"), path
            ).group(rate)
        ],
        horizon=updates,
        clipping=kit.Clipping(norm) if norm > 0 else None,
        accumulation=config.gradient_accumulation_steps,
        values=(config,),
    )


FRAMEWORK = kit.Framework(
    "simpletuner",
    kit.section_entries(
        dict.fromkeys(CURVES, _class_rate),
        {"": Config},
        lambda config: config.lr_scheduler,
        DEFECTS,
    ),
    versions=("bc8e6ab7738c",),
    repository="https://github.com/bghira/SimpleTuner",
    upstream=f"{_FILE} (get_lr_scheduler)",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
)

"""kohya sd-scripts: the command lines and the TOML files of its training scripts.

accelerate steps the scheduler once for each process. The length of the run and ratios of it are
multiplied by the number of processes; whole numbers of warmup and decay steps are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.frameworks import diffusers
from closedform.frameworks.diffusers.process_steps import (
    CLOCK,
    TORCH_PATH,
    literal_arguments,
    of_torch,
    piecewise_constant,
    run_of,
)
from closedform.frameworks.torch import FRAMEWORK as TORCH
from closedform.frameworks.transformers.schedules import schedule_by_name
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant


@dataclass(frozen=True, slots=True)
class RunRatio:
    """A ratio of the run.

    Attributes:
        ratio: The ratio, as the framework's float.
    """

    ratio: float

    def of(self, total: int) -> int:
        """Returns the steps of a part of a run, rounded in floats as the framework does."""
        return int(self.ratio * total)


def _length(section: kit.RawSection, key: str, default: int) -> int | RunRatio:
    """A number of steps or a ratio, by the types of argparse and of TOML."""
    value = section.value(key, default)
    form = section.document.syntax
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value >= 1 or form is not kit.Syntax.ARGUMENTS else RunRatio(float(value))
    # argparse reads 10 as an int; TOML keeps 1.0 a float, which is a ratio.
    if isinstance(value, float) and (value < 1 or form is not kit.Syntax.ARGUMENTS):
        return RunRatio(value)
    if isinstance(value, str) and form is not kit.Syntax.TOML:
        return _of_word(section, key, value)
    expected = "a whole number from 1 on, or a ratio below 1"
    raise section.error(f"{key} must be {expected}, got {value!r:.40}", key)


def _of_word(section: kit.RawSection, key: str, word: str) -> int | RunRatio:
    try:
        if word.endswith("%"):
            return RunRatio(float(word[:-1]) / 100)
        # int("1.5") raises ValueError: a number from 1 on must be whole.
        return int(word) if float(word) >= 1 else RunRatio(float(word))
    except ValueError:
        expected = "a whole number from 1 on, a ratio below 1, or a percentage"
        raise section.error(f"{key} must be {expected}, got {word!r:.40}", key) from None


def _rates(section: kit.RawSection, key: str, default: None) -> Any:
    return tuple(exact_number(rate) for rate in section.numbers(key, default) or ())


class Arguments(
    kit.ArgumentSection,
    irrelevant="block_lr control_net_lr cross_attn_lr llm_adapter_lr mlp_lr mod_lr "
    "self_attn_lr fused_optimizer_groups huber_schedule token_warmup_min "
    "token_warmup_step offload_optimizer_device offload_optimizer_nvme_path "
    "force_scheduler_zero_steps_offset",
):
    learning_rate: kit.Rate = 2e-6
    lr_scheduler: str = "constant"
    lr_scheduler_type: str = ""
    lr_scheduler_args: Any = ()
    lr_warmup_steps: int | RunRatio = kit.read_by(_length, 0)
    lr_decay_steps: int | RunRatio = kit.read_by(_length, 0)
    lr_scheduler_num_cycles: int = 1
    lr_scheduler_power: kit.Power = 1
    lr_scheduler_timescale: kit.Steps | None = None
    lr_scheduler_min_lr_ratio: kit.RateRatio | None = None
    max_train_steps: kit.Steps = kit.integer(1600, least=1)
    max_train_epochs: kit.Epochs | None = kit.integer(None, least=1)
    gradient_accumulation_steps: kit.Accumulation = kit.integer(1, least=1)
    max_grad_norm: kit.Norm = 1
    optimizer_type: str = ""
    optimizer_args: Any = ()
    use_8bit_adam: bool = False
    use_lion_optimizer: bool = False
    unet_lr: kit.Rate | None = None
    text_encoder_lr: Any = kit.read_by(_rates, None)
    learning_rate_te: kit.Rate | None = None
    learning_rate_te1: kit.Rate | None = None
    learning_rate_te2: kit.Rate | None = None
    learning_rate_te3: kit.Rate | None = None


_OPTIMIZERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "": ("AdamW", {}),
    "sgdnesterov": ("SGD", {"momentum": 0.9, "nesterov": True}),
    "sgdnesterov8bit": ("SGD8bit", {}),
    **{
        name.lower(): (name, {})
        for name in (
            *("Adafactor", "AdamW", "AdamW8bit", "Lion", "Lion8bit", "PagedAdamW"),
            *("PagedAdamW32bit", "PagedAdamW8bit", "PagedLion8bit", "Prodigy"),
        )
    },
}
"""Lower case name -> the class, and the arguments that the scripts give it by default."""

_KEYWORDS: Mapping[str, Callable[[Arguments], kit.Arguments]] = {
    "constant": lambda arguments: {},
    "constant_with_warmup": lambda arguments: {},
    "cosine": lambda arguments: {},
    # library/train_util.py passes num_cycles / 2: 1 is the half wave of transformers' default.
    "cosine_with_min_lr": lambda arguments: {
        "num_cycles": sp.Rational(arguments.lr_scheduler_num_cycles, 2),
        "min_lr_rate": arguments.lr_scheduler_min_lr_ratio,
    },
    "cosine_with_restarts": lambda arguments: {"num_cycles": arguments.lr_scheduler_num_cycles},
    "inverse_sqrt": lambda arguments: {"timescale": arguments.lr_scheduler_timescale},
    "linear": lambda arguments: {},
    "polynomial": lambda arguments: {"power": arguments.lr_scheduler_power},
    "warmup_stable_decay": lambda arguments: {
        "num_cycles": sp.Rational(arguments.lr_scheduler_num_cycles, 2),
        "min_lr_ratio": arguments.lr_scheduler_min_lr_ratio or 0,
    },
}
"""The schedulers of transformers, and the keyword arguments that the scripts give them."""

_FIX = "library/train_util.py"
DEFECTS: Mapping[str, kit.Note[[Arguments, int]]] = {
    "whole-lengths": kit.Defect(
        "whole numbers of warmup and decay steps are not multiplied by the number of processes, "
        "but the scheduler is stepped once per process: they are too short by that factor",
        f"{_FIX}:5275",
        lambda arguments, processes: (
            processes > 1
            and not is_schedule_free(arguments)
            and any(isinstance(length, int) and length > 0 for length in _lengths_in_use(arguments))
        ),
        documented="warmups and decays of whole numbers of updates",
        classes=tuple(_KEYWORDS)[1:],
    ),
    "ratio-of-toml": kit.Convention(
        "a float of a TOML file is a ratio: 1.0 is the whole run, and 5.0 are five runs",
        f"{_FIX}:5276",
        lambda arguments, processes: any(
            isinstance(length, RunRatio) and length.ratio >= 1
            for length in _lengths_in_use(arguments)
        ),
        classes=tuple(_KEYWORDS)[1:],
    ),
    "steps-of-torch": kit.Defect(
        "the lengths of a scheduler of torch count a step for each process in an update",
        f"{_FIX}:5308",
        lambda arguments, processes: processes > 1 and bool(arguments.lr_scheduler_type),
        documented="the scheduler, stepped once in an update",
        classes=(),
    ),
    "cycles-of-cosine": kit.Convention(
        "cosine ignores lr_scheduler_num_cycles",
        f"{_FIX}:5370",
        lambda arguments, processes: (
            arguments.lr_scheduler == "cosine" and arguments.lr_scheduler_num_cycles != 1
        ),
        classes=("cosine",),
    ),
    "schedule-free": kit.Convention(
        "a schedule-free optimizer has no schedule: lr_scheduler and lr_warmup_steps are ignored",
        f"{_FIX}:5270",
        lambda arguments, processes: is_schedule_free(arguments),
    ),
}


def is_schedule_free(arguments: Arguments) -> bool:
    """Returns whether the optimizer has no schedule."""
    return bool(arguments.optimizer_type.lower().endswith("schedulefree"))


def _lengths_in_use(arguments: Arguments) -> tuple[int | RunRatio, ...]:
    """The lengths that the scheduler uses."""
    if arguments.lr_scheduler == "warmup_stable_decay":
        return arguments.lr_warmup_steps, arguments.lr_decay_steps
    return (arguments.lr_warmup_steps,)


def _processes(context: kit.Context, arguments: Arguments) -> int:
    """The processes; 1 where the schedule in updates does not depend on their number."""
    facts = context.numbers
    is_counted = arguments.max_train_epochs is None or facts.total_updates is not None
    has_lengths = any(
        length.ratio if isinstance(length, RunRatio) else length
        for length in _lengths_in_use(arguments)
    )
    is_scaled = not (
        has_lengths
        or arguments.lr_scheduler_type
        or arguments.lr_scheduler in ("inverse_sqrt", "piecewise_constant")
    )
    is_free = is_counted and (is_scaled or is_schedule_free(arguments))
    if facts.world_size is None and is_free:
        return 1
    return int(facts.require("world_size", where=context.where)[0])


def _updates(context: kit.Context, arguments: Arguments, processes: int) -> int:
    epochs, facts = arguments.max_train_epochs, context.numbers
    if epochs is None:
        return int(arguments.max_train_steps)
    if facts.micro_batches_per_epoch is None and facts.total_updates is not None:
        return facts.total_updates
    (batches,) = facts.require("micro_batches_per_epoch", where=context.where)
    accumulation = arguments.gradient_accumulation_steps
    # The quotients are floats, as in the scripts.
    return int(epochs * math.ceil(int(batches) / processes / accumulation))


def _rate(context: kit.Context, arguments: Arguments, rate: sp.Expr) -> Schedule:
    where, name = context.where, arguments.lr_scheduler
    if is_schedule_free(arguments):
        return constant(rate)
    processes = _processes(context, arguments)
    total = _updates(context, arguments, processes) * processes
    # Only ratios are of all processes' steps; whole numbers are not multiplied.
    factor = 1 if context.as_implemented else processes
    warmup, decay = (
        length.of(total) if isinstance(length, RunRatio) else length * factor
        for length in (arguments.lr_warmup_steps, arguments.lr_decay_steps)
    )
    kwargs = literal_arguments(arguments.lr_scheduler_args, "lr_scheduler_args", where)
    path = arguments.lr_scheduler_type
    if path or name == "constant":
        message = f"{path or name} takes no warmup: omit lr_warmup_steps"
        kit.refuse_unless(warmup == 0, message, where)
    if path:
        return of_torch(path, kwargs, rate, where, 1 if factor > 1 else processes)
    run = run_of(context, rate, warmup, total, processes)
    # lr_end and min_lr are relative to the optimizer's rate; a group may have another one.
    run = replace(run, default=arguments.learning_rate)
    if name == "piecewise_constant":
        kit.refuse_unless("step_rules" in kwargs, "lr_scheduler_args has no step_rules", where)
        return piecewise_constant(run, str(kwargs["step_rules"]))
    # transformers' Adafactor sets its own rate unless relative_step is False.
    is_relative = arguments.optimizer_type.lower() == "adafactor" and _optimizer_arguments(
        arguments
    ).get("relative_step", True)
    kit.refuse_unless(
        not is_relative and not name.startswith("adafactor"),
        "Adafactor with relative_step sets its own rate: give relative_step=False",
        where,
    )
    kit.refuse_unless(name in _KEYWORDS, f"there is no lr_scheduler {name!r:.60}", where)
    keywords = _KEYWORDS[name](arguments)
    twice = [key for key in kwargs if key in keywords]
    if name.startswith("constant"):
        twice = list(kwargs)
    kit.refuse_unless(not twice, f"{name} takes no {', '.join(twice)} in lr_scheduler_args", where)
    if name == "warmup_stable_decay":
        # Explicit, and negative where warmup and decay exceed the run; the default decay of 0 drops
        # at once.
        stable = total - warmup - decay
        keywords = {**keywords, "num_decay_steps": decay, "num_stable_steps": stable}
    section = kit.RawSection(arguments.origin.document, {**keywords, **kwargs}, "lr_scheduler_args")
    return schedule_by_name(name, section, run)


def _class_rate(context: kit.Context, arguments: Arguments) -> Schedule:
    return _rate(context, arguments, context.of_group("lr", arguments.learning_rate))


def _optimizer_arguments(arguments: Arguments) -> dict[str, Any]:
    where = arguments.origin.document.source
    return literal_arguments(arguments.optimizer_args, "optimizer_args", where)


_OWN = (
    *("max_train_epochs", "network_alpha", "network_dim", "network_module", "optimizer_type"),
    *("lr_scheduler_num_cycles", "lr_scheduler_args", "lr_decay_steps", "optimizer_args"),
    *("unet_lr", "learning_rate_te1", "cache_latents", "max_token_length", "save_every_n_epochs"),
)
# Keys of other programs, whose configs have learning_rate as well.
_OTHERS = ("trainer", "model_type", "output_router_logits", "micro_batch_size", "dataset_name")


def _flat(document: kit.Document) -> kit.Document:
    """The sections of a TOML file as one."""
    if document.syntax is kit.Syntax.ARGUMENTS:
        return document
    content: dict[str, Any] = {}
    for key, value in document.content.items():
        content.update(value if isinstance(value, dict) else {key: value})
    return replace(document, content=content)


def _matches(document: kit.Document) -> bool:
    content = _flat(document).content
    if any(key in content for key in _OTHERS) or diffusers.is_script(document):
        return False
    if document.syntax not in (kit.Syntax.ARGUMENTS, kit.Syntax.TOML):
        return False
    # On a command line the two keys suffice; TOML files of many programs have them.
    is_short = document.syntax is kit.Syntax.ARGUMENTS and "max_train_steps" in content
    return "learning_rate" in content and (is_short or any(key in content for key in _OWN))


def _read(reading: kit.Reading) -> kit.Recipe:
    document = _flat(reading.document)
    arguments = Arguments.read_whole(document)
    context = reading.context
    encoders = (
        *(
            (f"text_encoder{index + 1}", rate)
            for index, rate in enumerate(arguments.text_encoder_lr)
        ),
        *((key, getattr(arguments, key)) for key in _ENCODERS),
    )
    group_rates = {"unet": arguments.unet_lr, **dict(encoders)}
    rates = {"": arguments.learning_rate, **{k: v for k, v in group_rates.items() if v is not None}}
    kind = arguments.optimizer_type.lower()
    if arguments.use_8bit_adam or arguments.use_lion_optimizer:
        message = "optimizer_type must not be given with use_8bit_adam or use_lion_optimizer"
        kit.refuse_unless(kind == "", message, document.source)
        kind = "adamw8bit" if arguments.use_8bit_adam else "lion"
    path, defaults = _OPTIMIZERS.get(kind, (arguments.optimizer_type, {}))
    with arguments.origin.locate_errors():
        settings = {"lr": arguments.learning_rate, **defaults, **_optimizer_arguments(arguments)}
        optimizer = kit.class_optimizer(kit.RawSection(document, settings, "optimizer_args"), path)
        groups = [
            optimizer.group(_rate(context, arguments, rate), name=name)
            for name, rate in rates.items()
        ]
        processes = _processes(context, arguments)
        horizon = _updates(context, arguments, processes)
    norm = arguments.max_grad_norm
    return reading.recipe(
        groups,
        horizon=horizon,
        clipping=None if norm == 0 else kit.Clipping(norm),
        accumulation=arguments.gradient_accumulation_steps,
        values=(arguments, processes),
    )


_ENCODERS = ("learning_rate_te", "learning_rate_te1", "learning_rate_te2", "learning_rate_te3")
_NAMES = (
    *_KEYWORDS,
    "piecewise_constant",
    *(f"{prefix}{name}" for prefix in ("", f"{TORCH_PATH}.") for name in TORCH.schedules),
)
FRAMEWORK = kit.Framework(
    "kohya",
    kit.section_entries(
        dict.fromkeys(_NAMES, _class_rate),
        {"": Arguments},
        style=lambda arguments: arguments.lr_scheduler_type or arguments.lr_scheduler,
    ),
    versions=("48d368fa5577",),
    repository="https://github.com/kohya-ss/sd-scripts",
    upstream=f"{_FIX} (get_scheduler_fix)",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("group_lrs",),
)

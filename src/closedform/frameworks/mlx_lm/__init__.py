"""mlx-lm: the learning rate of its LoRA trainer, and the trainer's YAML configs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from closedform.frameworks.mlx_lm import curves
from closedform.language import Schedule, exact_number, t
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)


class LearningRate(kit.ClassSection):
    name: str
    arguments: Any = None
    warmup: kit.Number = 0
    warmup_init: kit.Number = 0


class Config(kit.ClassSection):
    grad_accumulation_steps: kit.Accumulation = kit.integer(1, least=1)
    iters: kit.Steps = 1000
    learning_rate: kit.Rate = 1e-5
    lr_schedule: LearningRate | None
    optimizer: str = "adam"
    optimizer_config: kit.RawSection


class Adam(kit.Section):
    betas: kit.Momenta = (0.9, 0.999)
    eps: kit.Epsilon = 1e-8
    bias_correction: bool = False


class AdamW(Adam):
    weight_decay: kit.WeightDecay = 0.01


class Muon(kit.Section):
    momentum: kit.Momentum = 0.95
    weight_decay: kit.WeightDecay = 0.01
    nesterov: bool = True
    ns_steps: int = 5


class SGD(kit.Section):
    momentum: kit.Momentum = 0
    weight_decay: kit.WeightDecay = 0
    dampening: kit.Number = 0
    nesterov: bool = False


class Adafactor(kit.Section):
    eps: kit.Numbers = (1e-30, 1e-3)
    clip_threshold: kit.Norm = 1
    decay_rate: kit.Number = -0.8
    beta_1: kit.Momentum | None = None
    weight_decay: kit.WeightDecay = 0
    relative_step: bool = True
    scale_parameter: bool = True
    warmup_init: bool = False


OPTIMIZERS: Mapping[str, type[kit.Section]] = {
    "adam": Adam,
    "adamw": AdamW,
    "muon": Muon,
    "sgd": SGD,
    "adafactor": Adafactor,
}
"""The arguments of mlx's optimizers: Adam and AdamW do not correct their bias by default."""


def _ignored_keys(config: Config) -> list[str]:
    """The keys of the optimizer's that the trainer does not read, such as those with hyphens."""
    schedule = config.lr_schedule
    inner = [] if schedule is None else schedule.origin.unknown_related(LearningRate.spellings())
    return [*config.origin.unknown_related((*Config.spellings(), "resume_adapter_file")), *inner]


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "keys-without-effect": kit.Defect(
        "keys that the trainer does not know, such as weight_decay, warmup_iters or names with "
        "hyphens, have no effect: weight decay belongs into optimizer_config",
        "mlx_lm/lora.py:383",
        lambda config: bool(_ignored_keys(config)),
    ),
    "learning-rate-without-effect": kit.Convention(
        "lr_schedule replaces learning_rate, which has no effect",
        "mlx_lm/lora.py:285",
        lambda config: (
            config.lr_schedule is not None
            and "learning_rate" in config
            and config.learning_rate != exact_number(config.lr_schedule.arguments[0])
        ),
    ),
    "peak-twice": kit.Convention(
        "the first two updates after the warmup have the peak, and the decay begins after them: "
        "it ends one update later than warmup and decay together last",
        "mlx_lm/tuner/utils.py:33",
        lambda config: config.lr_schedule is not None and config.lr_schedule.warmup > 0,
    ),
    "micro-batches": kit.Convention(
        "iters counts micro-batches, and the schedule updates: a decay over iters updates is not "
        "finished",
        "mlx_lm/tuner/trainer.py:274",
        lambda config: config.lr_schedule is not None and config.grad_accumulation_steps > 1,
    ),
    "rate-of-adafactor": kit.Convention(
        "Adafactor computes a relative rate, and ignores the schedule, unless relative_step is "
        "false",
        "mlx: python/mlx/optimizers/optimizers.py: Adafactor._compute_learning_rate",
        lambda config: (
            config.optimizer.lower() == "adafactor"
            and config.optimizer_config.section("adafactor").flag("relative_step", True)
        ),
    ),
}

_KINDS: Mapping[str, tuple[int, int, int | None]] = {
    "cosine_decay": (2, 3, 1),
    "exponential_decay": (2, 2, None),
    "step_decay": (3, 3, 2),
    "linear_schedule": (3, 3, 2),
}
"""The least and the largest number of arguments of each schedule, and the place of its length."""


def _rate(context: kit.Context, config: Config) -> Schedule:
    schedule, where = config.lr_schedule, context.where
    if schedule is None:
        return constant(config.learning_rate)
    name, numbers, warmup = schedule.name, schedule.arguments, schedule.warmup
    kit.refuse_unless(name in _KINDS, f"mlx has no schedule {name!r:.60}", where)
    least, most, place = _KINDS[name]
    kit.refuse_unless(
        isinstance(numbers, list | tuple) and least <= len(numbers) <= most,
        f"arguments of {name} must be a list of {least} to {most} numbers, got {numbers!r:.60}",
        where,
    )
    arguments = [exact_number(argument, f"arguments[{i}]") for i, argument in enumerate(numbers)]
    if place is not None:
        message = f"the length of {name} must be at least 1, got {numbers[place]}"
        kit.refuse_unless(arguments[place] >= 1, message, where)
    message = f"warmup must be 0 or at least 1 update, not a ratio, got {warmup}"
    kit.refuse_unless(warmup == 0 or warmup >= 1, message, where)
    return kit.curve(name, curves.rate, t, schedule, arguments=arguments)


def _kind(config: Config) -> str:
    return "constant" if config.lr_schedule is None else str(config.lr_schedule.name)


def _optimizer(config: Config) -> tuple[str, kit.Section]:
    """The name of the optimizer, and its arguments."""
    name = config.optimizer.lower()
    if name not in OPTIMIZERS:
        raise config.error(f"mlx-lm has no optimizer {config.optimizer!r:.60}", "optimizer")
    return name, OPTIMIZERS[name].read(config.optimizer_config.section(name))


def _group(config: Config, rate: Schedule) -> kit.ParamGroup:
    name, arguments = _optimizer(config)
    kwargs: dict[str, Any] = {key: getattr(arguments, key) for key in arguments.keys}
    decay = kwargs.get("weight_decay", 0)
    if "bias_correction" in kwargs:
        kwargs["correct_bias"] = kwargs.pop("bias_correction")
    # The dampening of mlx counts at the first update as well, that of the library's rule does not.
    is_of_library = name in ("adam", "adamw") or (name == "sgd" and kwargs["dampening"] == 0)
    where = config.origin.document.place("optimizer")
    plan = kit.plan_optimizer(name, kwargs, name if is_of_library else None, where, by_name=False)
    return kit.ParamGroup({"lr": rate, "weight_decay": constant(decay)}, plan, kit.Role.DEFAULT)


_TYPICAL = {
    "adapter_path",
    "batch-size",
    "batch_size",
    "fine_tune_type",
    "learning-rate",
    "learning_rate",
    "lora_layers",
    "lora_parameters",
    "mask_prompt",
    "num_layers",
    "save_every",
    "steps_per_eval",
    "steps_per_report",
    "val_batches",
}
"""Keys that a config of the trainer has next to ``iters``, also in a form without effect."""


def _matches(document: kit.Document) -> bool:
    content = document.content
    schedule = content.get("lr_schedule")
    if isinstance(schedule, dict) and schedule.get("name") in _KINDS:
        return True
    return "iters" in content and not _TYPICAL.isdisjoint(content)


def _read(reading: kit.Reading) -> kit.Recipe:
    document = reading.document
    if document.syntax is kit.Syntax.ARGUMENTS:
        # Of a command line the names with hyphens are those that count.
        names = {str(key).replace("-", "_"): value for key, value in document.content.items()}
        document = replace(document, content=names)
    config = Config.read_whole(document)
    with config.origin.locate_errors("lr_schedule"):
        rate = _rate(reading.context, config)
    accumulation = config.grad_accumulation_steps
    return reading.recipe(
        [_group(config, rate)],
        horizon=config.iters // accumulation,
        clipping=None,
        accumulation=accumulation,
        values=(config,),
        derived={"lr": config.learning_rate} if config.lr_schedule is None else None,
    )


FRAMEWORK = kit.Framework(
    "mlx-lm",
    kit.section_entries(
        dict.fromkeys(("constant", *_KINDS), _rate), {"": Config}, _kind, defects=DEFECTS
    ),
    versions=("d78bf58e217c",),
    repository="https://github.com/ml-explore/mlx-lm",
    upstream="mlx_lm/lora.py, mlx_lm/tuner/utils.py; mlx 0.32.4: mlx/optimizers/schedulers.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
)

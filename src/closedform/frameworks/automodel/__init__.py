"""NeMo Automodel: Megatron's schedules in updates, from ``optimizer`` and ``lr_scheduler``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_cosine
from closedform.frameworks.megatron.schedules import (
    STYLES,
    WEIGHT_DECAY_STYLES,
    MegatronNumbers,
    check,
    learning_rate,
    weight_decay,
)
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

CLOCK = kit.Clock(kit.Unit.UPDATE)
_CLASSES = {
    "adam": "torch.optim.Adam",
    "adamw": "torch.optim.AdamW",
    "fused_adam": "transformer_engine.pytorch.optimizers.FusedAdam",
    "flash_adamw": "flashoptim.FlashAdamW",
    "muon": "dion.Muon",
    "normuon": "dion.NorMuon",
    "dion": "dion.Dion",
    "dion2": "dion.Dion2",
}
_LEAST_WARMUP: Mapping[str, int] = {"dspark": 20}
"""A part of the name of a recipe, and the least warmup of its draft model."""


class _Draft(kit.Section):
    warmup_ratio: kit.RunRatio = 0.05
    min_lr_ratio: kit.RateRatio = 0.1


class _Override(kit.Section):
    pattern: str
    lr_mult: kit.RateRatio = 1
    wd_mult: kit.Number = 1


class Optimizer(_Draft, kit.ClassSection):
    _target_: str = "torch.optim.AdamW"
    lr: kit.Rate | None = None
    weight_decay: kit.WeightDecay | None = None
    param_group_overrides: tuple[_Override, ...]


class Draft(_Draft):
    lr: kit.Rate


class Scheduler(
    kit.Section, irrelevant="use_checkpoint_opt_param_scheduler override_opt_param_scheduler"
):
    lr_decay_style: str = kit.choice(*STYLES, default="cosine")
    lr_warmup_steps: kit.RealSteps | None = None
    lr_decay_steps: kit.RealSteps | None = None
    min_lr: kit.EndRate | None = None
    max_lr: kit.Rate | None = None
    init_lr: kit.StartRate | None = None
    wsd_decay_steps: kit.RealSteps | None = None
    lr_wsd_decay_style: str | None = None
    wd_incr_style: str = kit.choice(*WEIGHT_DECAY_STYLES, default="constant")
    wd_incr_steps: kit.RealSteps | None = None
    start_wd: kit.WeightDecay | None = None
    end_wd: kit.WeightDecay | None = None


class StepScheduler(kit.OpenSection):
    max_steps: kit.Steps | None = None
    num_epochs: kit.Epochs = 10


class RecipeArgs(kit.ClassSection):
    max_grad_norm: kit.Norm = 1


class ClipGradNorm(kit.ClassSection):
    max_norm: kit.Norm = 1


class Config(kit.OpenSection, irrelevant="dp_replicate_optimizer"):
    optimizer: Optimizer
    lr_scheduler: Scheduler
    step_scheduler: StepScheduler
    recipe: Any = ""
    recipe_args: RecipeArgs
    clip_grad_norm: ClipGradNorm


def _first(*values: Any) -> Any:
    """The first value that is given."""
    return next((value for value in values if value is not None), None)


def _updates(context: kit.Context) -> sp.Expr:
    """The updates of the run: its epochs, at most ``max_steps``."""
    # A class of frameworks.schedule gets the section step_scheduler as a fact.
    steps = context.facts.get("step_scheduler")
    if steps is None:
        return exact_number(context.fact("total_updates"))
    # epoch_len of the section bounds the run by its epochs.
    length, most = steps.get("epoch_len"), steps.get("max_steps")
    if length is None:
        return exact_number(_first(most, context.facts.get("total_updates")))
    run = steps.get("num_epochs", 1) * length
    return exact_number(run if most is None else min(run, most))


def _rate(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    total, warmup, rate = _updates(context), scheduler.lr_warmup_steps, optimizer.lr
    if rate is None:
        raise optimizer.error("lr is missing", "lr")
    if warmup is not None and not warmup.is_Integer:
        raise scheduler.error(
            f"lr_warmup_steps must be a number of updates, got {warmup}",
            "lr_warmup_steps",
            "fractions are refused",
        )
    # Defaults of nemo_automodel/components/optim/optimizer.py:637 at 36044ad3d: a warmup of
    # min(1000, T // 10) updates from p / 10, and a minimum of p / 100.
    plan = MegatronNumbers(
        scheduler.lr_decay_style,
        _first(scheduler.max_lr, rate),
        _first(scheduler.min_lr, rate / 100),
        _first(scheduler.init_lr, rate / 10),
        _first(warmup, sp.Integer(min(1000, int(total) // 10))),
        _first(scheduler.lr_decay_steps, total),
        scheduler.wsd_decay_steps,
        scheduler.lr_wsd_decay_style,
    )
    check(plan, context.where)
    # Megatron's formulas with an increment of 1: the count is updates, not samples.
    return learning_rate(plan)


def _weight_decay(context: kit.Context, optimizer: Optimizer, scheduler: Scheduler) -> Schedule:
    first, last = (
        _first(end, optimizer.weight_decay, sp.S.Zero)
        for end in (scheduler.start_wd, scheduler.end_wd)
    )
    kit.refuse_unless(
        0 <= first <= last,
        f"the weight decay must not fall or be negative, got {first} to {last}",
        context.where,
    )
    # wd_incr_steps is the run by default; Megatron has train_iters, too.
    total = _first(scheduler.wd_incr_steps, _updates(context))
    return weight_decay(scheduler.wd_incr_style, first, last, total, sp.S.One)


def _speculative(context: kit.Context, optimizer: Optimizer | Draft, least: int) -> Schedule:
    """The rate of the recipes that train a draft model: a warmup from its first step, a cosine."""
    total = int(context.fact("total_updates"))
    # int() of a product of floats, and at least the least warmup of the recipe.
    part = optimizer.warmup_ratio
    warmup = 1 if least > 1 and part <= 0 else max(least, int(float(part) * total))
    # A run that ends in its warmup has a cosine of length 1 instead of a division by zero.
    rest = max(1, total - warmup)
    rate: Any = optimizer.lr
    low = optimizer.min_lr_ratio

    def value(n: float) -> Any:
        # The warmup is (t + 1) / W, so update 0 is above 0; the cosine counts from t = W.
        if n < warmup:
            return rate * (n + 1) / warmup
        return rate * (along_cosine(1, low, (n - warmup) / rest) if n < warmup + rest else low)

    return kit.curve("speculative", value, CLOCK.position(context.numbers))


_SCHEDULER = "nemo_automodel/components/optim/scheduler.py"
DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "warmup-by-default": kit.Convention(
        "without lr_warmup_steps the warmup is a tenth of the run, at most 1000 updates",
        "nemo_automodel/components/optim/optimizer.py:642",
        lambda config: _has_default(config, "lr_warmup_steps"),
        classes=STYLES,
    ),
    "starts-at-a-tenth": kit.Convention(
        "without init_lr the warmup begins at a tenth of the rate",
        "nemo_automodel/components/optim/optimizer.py:637",
        lambda config: _has_default(config, "init_lr"),
        classes=STYLES,
    ),
    "minimum-by-default": kit.Convention(
        "without min_lr the minimum is a hundredth of the rate",
        "nemo_automodel/components/optim/optimizer.py:639",
        lambda config: (
            _has_default(config, "min_lr") and config.lr_scheduler.lr_decay_style != "constant"
        ),
        classes=tuple(style for style in STYLES if style != "constant"),
    ),
    "tail-without-a-style": kit.Convention(
        "WSD without a style of its decay fails where the decay begins",
        f"{_SCHEDULER}: get_lr",
        classes=("WSD",),
    ),
    "draft-keys-ignored": kit.Convention(
        "warmup_ratio and min_lr_ratio only have an effect in the recipes of draft models, which "
        "have recipe_args: without these, the rate is constant",
        "nemo_automodel/recipes/llm/train_dflash.py:373",
        lambda config: (
            not config.lr_scheduler.origin.content
            and any(key in config.optimizer for key in _Draft.keys)
            and "recipe_args" not in config
        ),
        classes=(),
    ),
    "multipliers-ignored": kit.Convention(
        "param_group_overrides only have an effect with an lr_scheduler",
        f"{_SCHEDULER}: step",
        lambda config: bool(
            config.optimizer.param_group_overrides and not config.lr_scheduler.origin.content
        ),
        classes=(),
    ),
}


def _has_default(config: Config, key: str) -> bool:
    return bool(config.lr_scheduler.origin.content) and key not in config.lr_scheduler


def _matches(document: kit.Document) -> bool:
    content = document.content
    if isinstance(content.get("step_scheduler"), dict):
        return True
    optimizer = content.get("optimizer")
    return isinstance(optimizer, dict) and (
        "warmup_ratio" in optimizer or ("_target_" in optimizer and "lr_scheduler" in content)
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(kit.interpolate(reading.document))
    optimizer = _optimizer(config.optimizer)
    total = _total(config.step_scheduler, reading)
    schedules = _schedules(config, optimizer, total, reading)
    default = optimizer.group(schedules.get("lr"), schedules.get("weight_decay"))
    overrides = config.optimizer.param_group_overrides if config.lr_scheduler.origin.content else ()
    # Recipes of draft models have their own key for the largest norm.
    place = config.recipe_args
    threshold = place.max_grad_norm if place.origin.content else config.clip_grad_norm.max_norm
    return reading.recipe(
        [default, *(_override_group(override, default) for override in overrides)],
        horizon=total,
        clipping=kit.Clipping(threshold),
        accumulation=None,
        values=(config,),
    )


def _optimizer(optimizer: Optimizer) -> kit.ClassOptimizer:
    name = optimizer._target_
    # Without _target_ the class is AdamW with these arguments; with it, torch's defaults count.
    defaults = {} if "_target_" in optimizer else {"betas": (0.9, 0.95), "weight_decay": 0.0}
    left_out = ("_target_", "param_group_overrides", *_Draft.keys)
    return kit.class_optimizer(optimizer.origin, _CLASSES.get(name, name), left_out, defaults)


def _total(steps: StepScheduler, reading: kit.Reading) -> int | None:
    """The updates of the run: its epochs, at most ``max_steps``."""
    if reading.facts.total_updates is not None:
        return int(reading.facts.total_updates)
    most: int | None = steps.max_steps
    # num_epochs: null lets max_steps decide.
    if "num_epochs" in steps.origin.content and steps.origin.content["num_epochs"] is None:
        return most
    if reading.facts.updates_per_epoch is None:
        return None
    run = int(steps.num_epochs) * int(reading.facts.updates_per_epoch)
    return run if most is None else min(run, most)


def _schedules(
    config: Config, optimizer: kit.ClassOptimizer, total: int | None, reading: kit.Reading
) -> dict[str, Schedule]:
    scheduler = config.lr_scheduler
    is_draft = "recipe_args" in config and any(key in config.optimizer for key in _Draft.keys)
    if not scheduler.origin.content and not is_draft:
        return {}
    if total is None:
        source = reading.document.source
        where = source if is_draft else f"{source}: the epochs may end before max_steps"
        reading.facts.require("total_updates", where=where)
    context = replace(reading.context, facts={"total_updates": total})
    rates = config.optimizer.replace(
        lr=exact_number(optimizer.lr), weight_decay=exact_number(optimizer.weight_decay or 0)
    )
    if scheduler.origin.content:
        with scheduler.origin.locate_errors():
            return {
                "lr": _rate(context, rates, scheduler),
                "weight_decay": _weight_decay(context, rates, scheduler),
            }
    name = str(config.recipe).lower()
    least = next((steps for part, steps in _LEAST_WARMUP.items() if part in name), 1)
    with config.optimizer.origin.locate_errors():
        return {"lr": _speculative(context, rates, least)}


def _override_group(override: _Override, default: kit.ParamGroup) -> kit.ParamGroup:
    """The group of an entry of ``param_group_overrides``: default schedules times multipliers."""
    schedules = {
        key: schedule.scale(override.lr_mult if key == "lr" else override.wd_mult)
        for key, schedule in default.schedules.items()
    }
    pattern = override.pattern
    return kit.ParamGroup(schedules, default.optimizer, kit.Role.NAMED, pattern, (pattern,))


_WRITTEN = {
    kit.CurveName.LINEAR: "linear",
    kit.CurveName.COSINE: "cosine",
    kit.CurveName.CONSTANT: "constant",
}


def _configs(form: kit.WarmupDecayForm, optimizer: kit.Optimizer) -> Iterator[kit.Config]:
    if form.curve not in _WRITTEN:
        return
    section: dict[str, Any] = {
        "lr_decay_style": _WRITTEN[form.curve],
        "lr_warmup_steps": kit.nearest_integer(form.warmup()),
        "lr_decay_steps": kit.nearest_integer(form.end),
        "init_lr": kit.native(form.at()),
        "min_lr": kit.native(form.low),
    }
    if form.curve is kit.CurveName.CONSTANT:
        # The check of Megatron's plan wants the decay to end after the warmup, also at a constant
        # rate.
        section["lr_decay_steps"] = max(form.total, kit.nearest_integer(form.warmup()) + 1)
    elif form.has_plateau:
        section |= {
            "lr_decay_style": "WSD",
            "wsd_decay_steps": kit.nearest_integer(form.end - form.begin),
            "lr_wsd_decay_style": _WRITTEN[form.curve],
        }
    optimizer_section: dict[str, Any] = {
        "_target_": optimizer.argument(f"torch.optim.{optimizer.class_name}"),
        **optimizer.keywords(form.peak),
    }
    config: dict[str, Any] = {
        # Without the null, the default of 10 epochs could end the run before max_steps.
        "step_scheduler": {"max_steps": form.total, "num_epochs": None},
        "optimizer": optimizer_section,
        "lr_scheduler": section,
    }
    if optimizer.clipping is not None:
        config["clip_grad_norm"] = {"max_norm": kit.native(optimizer.clipping)}
    yield config


_LAYOUT = {"optimizer": Optimizer, "lr_scheduler": Scheduler}


class Arguments(kit.Section):
    optimizer: Draft
    least_warmup: int = 1


FRAMEWORK = kit.Framework(
    "automodel",
    {
        **kit.section_entries(
            dict.fromkeys(STYLES, _rate),
            _LAYOUT,
            lambda optimizer, scheduler: str(scheduler.lr_decay_style),
        ),
        **kit.section_entries(
            {f"wd-{style}": _weight_decay for style in WEIGHT_DECAY_STYLES},
            _LAYOUT,
            lambda optimizer, scheduler: f"wd-{scheduler.wd_incr_style}",
        ),
        **kit.section_entries(
            {
                "speculative": lambda context, config: _speculative(
                    context, config.optimizer, config.least_warmup
                )
            },
            {"": Arguments},
        ),
    },
    versions=("36044ad3d139",),
    repository="https://github.com/NVIDIA-NeMo/Automodel",
    upstream=_SCHEDULER,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adam", "adamw", "sgd")),
)

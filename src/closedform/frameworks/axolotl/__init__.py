"""axolotl: the schedulers of its config, over those of transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.frameworks import torch
from closedform.frameworks.axolotl import curves
from closedform.frameworks.transformers.arguments import (
    NO_DECAY,
    base_rate,
    horizon,
    with_deepspeed,
)
from closedform.frameworks.transformers.optimizers import Adam, optimizer_plan
from closedform.frameworks.transformers.schedules import (
    CURVES,
    OF_LOSS,
    ScheduleNumbers,
    schedule_by_name,
)
from closedform.frameworks.transformers.writer import kinds
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.restarts import jagged_factor

# rex and restarts are asked for step t + 1; the interpolation's first two values are equal.
CLOCK, AHEAD, LATE = (kit.Clock(kit.Unit.UPDATE, offset) for offset in (0, 1, -1))
"""The clocks of transformers' schedulers, of rex and restarts, and of the interpolation."""


class Scheduler(kit.Section):
    learning_rate: kit.Rate
    lr_scheduler: str = kit.choice(*CURVES, "rex", "one_cycle", *OF_LOSS, default="cosine")
    lr_scheduler_kwargs: kit.ClassSection
    warmup_steps: kit.RealSteps | None = None
    warmup_ratio: kit.RunRatio | None = None
    lr_quadratic_warmup: bool = False
    cosine_min_lr_ratio: kit.RateRatio | None = None
    cosine_constant_lr_ratio: kit.RunRatio | None = None
    jagged_restart_steps: kit.RealSteps | None = None
    jagged_restart_warmup_steps: kit.RealSteps | None = None
    jagged_restart_anneal_steps: kit.RealSteps | None = None


class Interpolation(kit.Section):
    num_steps: kit.RealSteps
    min_lr: kit.EndRate
    max_lr: kit.Rate


class LrGroups(kit.Section):
    name: str
    modules: Any = ()
    lr: kit.Rate


class Config(
    Scheduler,
    Adam,
    kit.OpenSection,
    irrelevant="adam_beta3 adam_epsilon2 beta dion_lr dion_momentum dpo_beta "
    "embedding_lr_scale flash_optimum loraplus_lr_embedding loraplus_lr_ratio "
    "lr_div_factor optim_args optim_target_modules relora_warmup_steps rl_beta",
):
    learning_rate: kit.Rate | None = None
    optimizer: str = "adamw_torch"
    embedding_lr: kit.Rate | None = None
    lr_groups: tuple[LrGroups, ...]
    max_grad_norm: kit.Norm = 1
    max_steps: kit.Steps | None = None
    num_epochs: kit.WhereNeeded[kit.RealEpochs] = kit.number(1)
    micro_batch_size: kit.BatchSize = 1
    gradient_accumulation_steps: kit.Accumulation | None = None
    batch_size: kit.WhereNeeded[kit.BatchSize | None] = kit.integer(None)


def _length_of_warmup(config: Config, total: int) -> int:
    """The updates of the warmup that the config asks for: steps, else a ratio, else 3 % or 100."""
    steps, ratio = config.warmup_steps, config.warmup_ratio
    if steps is not None:
        if steps < 0:
            message = f"warmup_steps must not be negative, got {float(steps):g}"
            raise config.error(message, "warmup_steps")
        # A fraction of warmup_steps is a ratio since transformers 5, which takes the ceiling.
        return int(steps) if steps >= 1 else math.ceil(float(steps) * total)
    if ratio is None:
        # min(int(0.03 T), 100): axolotl's default where the config has neither.
        return min(int(0.03 * total), 100)
    if not 0 <= ratio <= 1:
        message = f"warmup_ratio must be in [0, 1], got {float(ratio):g}"
        raise config.error(message, "warmup_ratio")
    # int() for axolotl's ratio, unlike the ceiling above.
    return int(float(ratio) * total)


def _warmup(config: Config, total: int, as_implemented: bool) -> int:
    updates = _length_of_warmup(config, total)
    # base.py of axolotl turns 1 into 2.
    return 2 if updates == 1 and as_implemented else updates


def _low(config: Config, default: float = 0.0) -> sp.Expr:
    """The minimum as a part of the rate."""
    low = config.cosine_min_lr_ratio or exact_number(default)
    if not 0 <= low <= 1:
        message = f"cosine_min_lr_ratio must be in [0, 1], got {float(low):g}"
        raise config.error(message, "cosine_min_lr_ratio")
    return low


def _rex(config: Config, run: ScheduleNumbers) -> Schedule:
    low, length = _low(config), run.total - run.warmup
    kit.refuse_unless(
        length >= 0,
        f"warmup_steps must be at most {run.total} updates, got {run.warmup}",
        run.context.where,
    )

    return _curve("rex", curves.rex, run, AHEAD.position(kit.Facts()), low=low)


def _curve(
    name: str, function: kit.CurveFunction, run: ScheduleNumbers, count: sp.Expr, **numbers: sp.Expr
) -> Schedule:
    lengths = {"rate": run.base, "warmup": run.warmup, "total": run.total}
    return kit.curve(name, function, count, **lengths, **numbers)


def _quadratic(config: Config, run: ScheduleNumbers) -> Schedule:
    # The quadratic warmup's cosine ends at 0: the minimum is not passed to it (DEFECTS).
    low = sp.S.Zero if run.context.as_implemented else _low(config)
    name = "cosine_quadratic_warmup"
    return _curve(name, curves.cosine_quadratic_warmup, run, run.count, low=low)


def _to_minimum(config: Config, run: ScheduleNumbers) -> Schedule:
    return _curve("cosine_min_lr", curves.cosine_min_lr, run, run.count, low=_low(config))


def _to_constant(config: Config, run: ScheduleNumbers) -> Schedule:
    # int(total · ratio) in floats, as upstream.
    end = sp.Integer(int(int(run.total) * float(config.cosine_constant_lr_ratio or 0)))
    numbers = {"low": _low(config), "end": end}
    return _curve("cosine_constant_lr", curves.cosine_constant_lr, run, run.count, **numbers)


def _one_cycle(config: Config, run: ScheduleNumbers) -> Schedule:
    kit.refuse_unless(
        run.warmup <= run.total,
        f"the warmup must be at most {run.total} updates, got {run.warmup}",
        run.context.where,
    )
    end = int(run.total)
    arguments = {
        "max_lr": run.base,
        "total_steps": end,
        # W / T as a float, from which torch computes the end of the rise anew.
        "pct_start": exact_number(int(run.warmup) / end),
        **config.lr_scheduler_kwargs.origin.content,
    }
    context = kit.Context("torch", torch.FRAMEWORK.schedules, base=run.base, as_implemented=True)
    cycle = kit.build_schedule("OneCycleLR", arguments, context)
    if cycle.last_step is not None:
        return cycle
    # torch's OneCycleLR raises at step total_steps + 1.
    return kit.ending(
        cycle.bound, end + 1, f"ValueError: Tried to step {end + 1} times", "one_cycle"
    )


def _jagged(config: Config, run: ScheduleNumbers) -> Schedule:
    """The inner schedule times a factor that falls at the end of each period and rises after."""
    # Defaults of the class: a warmup of 10 updates, an anneal of 1, down to 0.001 of the rate.
    rise = config.jagged_restart_warmup_steps or sp.Integer(10)
    fall = config.jagged_restart_anneal_steps or sp.S.One
    low = _low(config, 0.001)
    inner = config.replace(jagged_restart_steps=None)
    # Its step is one ahead, and two over rex, which is one ahead itself.
    step = AHEAD.position(kit.Facts()) + (1 if config.lr_scheduler == "rex" else 0)
    factor = jagged_factor(step, config.jagged_restart_steps, rise, fall, low)
    # shift(1): the inner schedule is asked for its next step, too.
    value = KINDS[_kind(inner)](inner, run).shift(1).expr
    return Schedule(value * factor, name="jagged_restart")


def _plain(config: Config, run: ScheduleNumbers) -> Schedule:
    name = config.lr_scheduler
    kit.refuse_unless(name in CURVES, f"{name} is a function of the loss", run.context.where)
    return schedule_by_name(name, config.lr_scheduler_kwargs.origin, run)


KINDS: Mapping[str, Callable[[Config, ScheduleNumbers], Schedule]] = {
    "rex": _rex,
    "cosine_quadratic_warmup": _quadratic,
    "cosine_min_lr": _to_minimum,
    "cosine_constant_lr": _to_constant,
    "one_cycle": _one_cycle,
    "jagged_restart": _jagged,
    "default": _plain,
}


def _kind(config: Config) -> str:
    """The kind of schedule that the config asks for."""
    name: str = config.lr_scheduler
    if config.jagged_restart_steps is not None:
        return "jagged_restart"
    if name in ("rex", "one_cycle"):
        return name
    if name == "cosine" and config.lr_quadratic_warmup:
        return "cosine_quadratic_warmup"
    # The ratio is read by truth upstream, so that 0 counts as none.
    if name == "cosine" and config.cosine_min_lr_ratio:
        is_constant = bool(config.cosine_constant_lr_ratio)
        return "cosine_constant_lr" if is_constant else "cosine_min_lr"
    return "default"


def _rate(context: kit.Context, config: Config) -> Schedule:
    total, rate = int(context.fact("num_training_steps")), config.learning_rate
    warmup = _warmup(config, total, context.as_implemented)
    run = ScheduleNumbers(rate, rate, sp.Integer(warmup), sp.Integer(total), context)
    return KINDS[_kind(config)](config, run)


def _interpolated(context: kit.Context, keys: Interpolation) -> Schedule:
    kit.refuse_unless(keys.num_steps != 1, "num_steps is 1: division by zero", context.where)
    name = "InterpolatingLogScheduler"
    return kit.curve(name, curves.interpolation, LATE.position(kit.Facts()), keys)


_SCHEDULERS = "src/axolotl/utils/schedulers.py"
_COSINES = ("cosine", "cosine_with_min_lr", "cosine_warmup_with_min_lr")


def _rises_again(kind: str, upstream: str) -> kit.Note[[Config, int]]:
    return kit.Convention(
        "the cosine rises again after the run",
        upstream,
        lambda config, total: (
            _kind(config) == kind and (kind != "default" or config.lr_scheduler in _COSINES)
        ),
        classes=(kind,),
    )


def _counts_from_one(kind: str, upstream: str) -> kit.Note[[Config, int]]:
    return kit.Convention(
        f"{kind} counts from 1: update 0 uses the value of step 1",
        upstream,
        lambda config, total: _kind(config) == kind,
        classes=(kind,),
    )


DEFECTS: Mapping[str, kit.Note[[Config, int]]] = {
    "warmup-of-one": kit.Defect(
        "a warmup of one update becomes one of two",
        "src/axolotl/core/builders/base.py:256",
        lambda config, total: _length_of_warmup(config, total) == 1,
        documented="a warmup of one update",
        classes=(),
    ),
    "rex-1": _counts_from_one("rex", f"{_SCHEDULERS}:45"),
    "jagged_restart-1": _counts_from_one("jagged_restart", f"{_SCHEDULERS}:322"),
    "cosine_quadratic_warmup-1": kit.Defect(
        "with lr_quadratic_warmup, cosine_min_lr_ratio is ignored",
        "src/axolotl/core/trainers/mixins/scheduler.py:96",
        lambda config, total: (
            _kind(config) == "cosine_quadratic_warmup" and bool(config.cosine_min_lr_ratio)
        ),
        documented="a cosine to the minimum",
        classes=("cosine_quadratic_warmup",),
    ),
    "cosine_quadratic_warmup-2": _rises_again("cosine_quadratic_warmup", f"{_SCHEDULERS}:141"),
    "cosine_min_lr-1": _rises_again("cosine_min_lr", f"{_SCHEDULERS}:198"),
    "default-1": _rises_again("default", "src/transformers/optimization.py:140"),
    "first-value-twice": kit.Convention(
        "the first two values are equal",
        f"{_SCHEDULERS}:114",
        classes=("InterpolatingLogScheduler",),
    ),
}


def _matches(document: kit.Document) -> bool:
    section = kit.document_section(document)
    own = ("base_model", "lr_scheduler", "datasets", "sequence_len", "torchdistx_path", "optimizer")
    return "learning_rate" in section and (
        (
            "micro_batch_size" in section
            and any(key in section for key in ("num_epochs", "max_steps"))
        )
        or ("micro_batch_size" in section and any(key in section for key in own))
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(reading.document)
    rate = base_rate(config, config.learning_rate, reading.facts, None)
    accumulation = _accumulation(config)
    total = horizon(
        config.origin,
        reading.facts,
        config.max_steps,
        config.num_epochs,
        lambda: int(config.micro_batch_size),
        accumulation,
    )
    if config.lr_scheduler in OF_LOSS:
        raise config.error(f"{config.lr_scheduler} is a function of the loss", "lr_scheduler")
    plan = optimizer_plan(config, "optimizer")
    facts = {**reading.context.facts, "num_training_steps": total}
    context = replace(reading.context, facts=facts)
    groups = []
    for name, peak, patterns in [("", rate, ()), *_rates(config)]:
        with config.origin.locate_errors("lr_scheduler"):
            lr = _rate(context, config.replace(learning_rate=peak))
        schedules = {"lr": lr, "weight_decay": constant(config.weight_decay)}
        groups.append(kit.ParamGroup(schedules, plan, kit.Role.of(name), name, patterns))
    # max_grad_norm 0 of transformers' Trainer switches clipping off.
    norm = config.max_grad_norm
    recipe = reading.recipe(
        [*groups, groups[0].without_decay(NO_DECAY)],
        clock=AHEAD if _kind(config) in ("rex", "jagged_restart") else CLOCK,
        horizon=total,
        clipping=kit.Clipping(norm) if norm > 0 else None,
        accumulation=accumulation,
        values=(config, total),
        derived={
            "lr": rate,
            "warmup_updates": _warmup(config, total, reading.as_implemented),
            "weight_decay": config.weight_decay,
        },
    )
    names = f"optimizer {config.optimizer}", f"lr_scheduler {config.lr_scheduler}"
    return with_deepspeed(reading, recipe, config, names)


def _accumulation(config: Config) -> int:
    """The micro-batches of an update: given, or those of the batch."""
    size, accumulation = config.micro_batch_size, config.gradient_accumulation_steps
    if size < 1:
        raise config.error(f"micro_batch_size must be above 0, got {size}", "micro_batch_size")
    if accumulation is None:
        accumulation = max(1, (config.batch_size() or size) // size)
    return int(accumulation)


def _rates(config: Config) -> list[tuple[str, Any, tuple[str, ...]]]:
    """The groups with another rate: name, rate, modules."""
    rates: list[tuple[str, Any, tuple[str, ...]]] = [
        (group.name, group.lr, tuple(map(str, group.modules))) for group in config.lr_groups
    ]
    if config.embedding_lr is not None:
        rates.append(("embedding", config.embedding_lr, ("embed_tokens", "lm_head")))
    return rates


_WRITTEN = {"adamw": "adamw_torch", "sgd": "sgd", "lion": "lion_pytorch"}


def _configs(form: kit.WarmupDecayForm, made: kit.Optimizer) -> Iterator[kit.Config]:
    warmup = kit.nearest_integer(form.warmup())
    end = form.total
    if form.curve in (kit.CurveName.LINEAR, kit.CurveName.COSINE) and form.after is None:
        end = kit.nearest_integer(form.end)
    shared: dict[str, Any] = {
        "learning_rate": kit.native(form.peak),
        "max_steps": end,
        "micro_batch_size": 1,
        # A warmup of one update would become one of two.
        "warmup_steps": warmup,
        "optimizer": made.argument(_WRITTEN.get(made.name, "adamw_torch")),
        "weight_decay": kit.native(made.weight_decay or 0),
        "max_grad_norm": kit.native(made.clipping or 0),
    }
    for index, beta in enumerate(made.betas(), 1):
        shared[f"adam_beta{index}"] = beta
    if "eps" in made.values:
        shared["adam_epsilon"] = kit.native(made.values["eps"])
    factors = [group.factor for group in made.groups if group.name == "embedding"]
    if factors and factors[0] is not None:
        shared["embedding_lr"] = kit.native(factors[0] * form.peak)
    for scheduler in _schedulers(form, warmup):
        yield {**shared, **scheduler}


def _schedulers(form: kit.WarmupDecayForm, warmup: int) -> Iterator[dict[str, Any]]:
    is_quadratic = form.rise is not None and form.rise.curve is kit.CurveName.POWER
    if form.curve is kit.CurveName.COSINE:
        cosine: dict[str, Any] = {"lr_scheduler": "cosine"}
        ratio = form.low_ratio
        if is_quadratic:
            yield {**cosine, "lr_quadratic_warmup": True}
            return
        if form.after is not None and form.total:
            length = kit.native((form.end) / form.total)
            ended = {"cosine_min_lr_ratio": ratio, "cosine_constant_lr_ratio": length}
            yield {**cosine, **ended, "max_steps": form.total}
        if ratio:
            yield {**cosine, "cosine_min_lr_ratio": ratio}
    for name, arguments in kinds(form, warmup):
        scheduler: dict[str, Any] = {"lr_scheduler": name}
        if arguments:
            scheduler["lr_scheduler_kwargs"] = arguments
        yield scheduler


_RATES = kit.section_entries(dict.fromkeys(KINDS, _rate), {"": Scheduler})
FRAMEWORK = kit.Framework(
    "axolotl",
    {
        **_RATES,
        **kit.section_entries({"InterpolatingLogScheduler": _interpolated}, {"": Interpolation}),
    },
    versions=("067b021c8b87",),
    repository="https://github.com/axolotl-ai-cloud/axolotl",
    upstream="src/axolotl/utils/schedulers.py, src/axolotl/core/trainers/mixins/scheduler.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    writer=kit.Writer(".yaml", _configs, {}, ("adamw", "sgd")),
)

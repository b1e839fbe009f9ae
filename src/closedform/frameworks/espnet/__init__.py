"""ESPnet: ``optim``, ``scheduler`` and their ``_conf`` of its YAML configs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import sympy as sp

from closedform.frameworks.curves import along_line
from closedform.frameworks.diffusers.process_steps import of_torch
from closedform.language import Schedule, exact_number, floor_mod, t
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE, offset=1)
UPDATES = kit.Clock(kit.Unit.UPDATE)
EPOCHS = kit.Clock(kit.Unit.EPOCH, is_stepped=True)
# ESPnet's schedulers compute step_num = last_epoch + 1, so n = t + 1.
N = t + 1
MOST_CYCLES, LAST = 128, 10**6
"""The most cycles of ``cosineannealingwarmuprestarts`` that are modelled where their lengths
change, and the update in whose cycle the model ends."""


def _inverse_root(conf: _Warmup, rate: sp.Expr, scale: sp.Expr, where: str) -> Schedule:
    warmup = conf.warmup_steps
    # Without a warmup 0 would be raised to -3/2.
    kit.refuse_unless(warmup > 0, f"warmup_steps must be above 0, got {warmup}", where)

    def value(n: float) -> Any:
        # min(n^(-1/2), n W^(-3/2)) changes sides at n = W, so that update W - 1 has the peak.
        return rate * scale * n / warmup**1.5 if n < warmup else rate * scale / math.sqrt(n)

    return kit.curve("warmuplr", value, N)


def _warmup(conf: _Warmup, rate: sp.Expr, where: str) -> Schedule:
    return _inverse_root(conf, rate, sp.sqrt(conf.warmup_steps), where)


def _noam(conf: NoamLR, rate: sp.Expr, where: str) -> Schedule:
    kit.refuse_unless(conf.model_size > 0, "model_size must be above 0", where)
    return _inverse_root(conf, rate, 1 / sp.sqrt(conf.model_size), where)


def _warmup_step(conf: WarmupStepLR, rate: sp.Expr, where: str) -> Schedule:
    warmup, length = conf.warmup_steps, conf.steps_per_epoch
    kit.refuse_unless(warmup > 0, f"warmup_steps must be above 0, got {warmup}", where)
    gamma, size = conf.gamma, conf.step_size

    def value(n: float) -> Any:
        if n <= warmup:
            return rate * n / warmup
        # warmup_step_lr.py:44: epochs since the warmup, each of steps_per_epoch updates.
        # Epochs are counted by division, so that the last, shorter epoch of a data set has no
        # effect.
        return rate * gamma ** ((n // length - warmup // length) // size)

    return kit.curve("warmupsteplr", value, N)


def _polyline(conf: PiecewiseLinearWarmupLR, rate: sp.Expr, where: str) -> Schedule:
    marks, rates = conf.warmup_steps_list, conf.warmup_lr_list
    message = "warmup_steps_list and warmup_lr_list must have one length above 0, got"
    is_equal = len(marks) == len(rates) > 0
    kit.refuse_unless(is_equal, f"{message} {len(marks)} and {len(rates)}", where)
    increases = all(mark < following for mark, following in pairwise(marks))
    kit.refuse_unless(increases and marks[-1] >= 0, "warmup_steps_list must increase from 0", where)

    points = [*zip(marks, rates, strict=True)]

    def value(n: float) -> Any:
        if n < marks[0]:
            return rates[0]
        for (mark, first), (following, last) in pairwise(points):
            if n < following:
                return along_line(first, last, (n - mark) / (following - mark))
        # The update at the last mark has the last rate; the root begins after it.
        # piecewise_linear_warmup_lr.py:64: from the optimizer's rate, not from the last one of the
        # list.
        return rates[-1] if n <= marks[-1] else rate * math.sqrt(marks[-1]) / math.sqrt(n)

    return kit.curve("piecewiselinearwarmuplr", value, N)


def _tri_stage(conf: TriStageLR, rate: sp.Expr, where: str) -> Schedule:
    ratios = [float(r) for r in (conf.warmup_ratio, conf.hold_ratio, conf.decay_ratio)]
    # Floats as upstream, whose sum of 0.1, 0.4 and 0.5 is compared by isclose.
    kit.refuse_unless(math.isclose(sum(ratios), 1), "the three ratios must sum to 1", where)
    first, last = conf.init_lr_scale, conf.final_lr_scale
    is_part = all(0 < scale <= 1 for scale in (first, last))
    kit.refuse_unless(is_part, "init_lr_scale and final_lr_scale must be in (0, 1]", where)
    total = int(conf.max_steps)
    # int() cuts products of floats; the decay takes the remaining updates.
    warmup, hold = (int(total * ratio) for ratio in ratios[:2])
    begin = warmup + hold
    decay = total - begin

    def value(n: float) -> Any:
        if n < warmup:
            return along_line(first * rate, rate, n / warmup)
        if n < begin or decay == 0:
            return rate
        # exp(-d j) with d = -ln(final_lr_scale) / decay steps.
        return rate * last ** (min(n - begin, decay) / decay)

    return kit.curve("tristagelr", value, N)


def _exponential(conf: ExponentialDecayWarmup, rate: sp.Expr, where: str) -> Schedule:
    peak, low, warmup, total = conf.max_lr, conf.min_lr, conf.warmup_steps, conf.total_steps
    kit.refuse_unless(warmup < total, "warmup_steps must be below total_steps", where)
    kit.refuse_unless(peak != 0 and low / peak > 0, "min_lr and max_lr must have one sign", where)
    is_risen = conf.warm_from_zero

    def value(n: float) -> Any:
        if n < 1:
            return 0 if is_risen else peak  # the constructor replaces the optimizer's rate
        if n < warmup:
            # exponential_decay_warmup.py:60: without warm_from_zero the warmup has the optimizer's
            # rate.
            return peak * (n + 1) / warmup if is_risen else rate
        return peak * (low / peak) ** ((n - warmup) / (total - warmup))

    return kit.curve("exponentialdecaywarmup", value)


def _restarts(conf: CosineAnnealingWarmupRestarts, rate: sp.Expr, where: str) -> Schedule:
    del rate
    warmup, first, low = conf.warmup_steps, conf.first_cycle_steps, conf.min_lr
    kit.refuse_unless(warmup < first, "warmup_steps must be below first_cycle_steps", where)

    def value(position: sp.Expr, length: int, cycle: sp.Expr) -> sp.Expr:
        peak = conf.max_lr * conf.gamma**cycle
        # The cycle has shrunk to nothing: the position in it is divided by its length.
        if length == warmup == 0:
            raise kit.UndefinedError("division by zero")
        rise = along_line(low, peak, position / sp.Integer(max(warmup, 1)))
        if length == warmup:
            return rise
        place = (position - warmup) / sp.Integer(length - warmup)
        fall = low + (peak - low) * (1 + sp.cos(sp.pi * place)) / 2
        return sp.Piecewise((rise, position < warmup), (fall, True)) if warmup else fall

    # cosine_anneal_warmup_restart.py:75: the constructor sets min_lr, which update 0 has.
    stages: list[kit.Stage] = [(lambda: low, 1)]
    for cycle, begin, length, is_last in _cycles(first, warmup, float(conf.cycle_mult)):
        if is_last:
            turns = sp.floor((t - begin) / sp.Integer(max(length, 1)))
            position = floor_mod(t - begin, max(length, 1))
            stages.append((_later(value, position, length, cycle + turns), None))
        else:
            stages.append((_later(value, t - begin, length, sp.Integer(cycle)), begin + length))
    return kit.by_intervals("cosineannealingwarmuprestarts", *stages)


def _later(
    value: Callable[[sp.Expr, int, sp.Expr], sp.Expr],
    position: sp.Expr,
    length: int,
    cycle: sp.Expr,
) -> Callable[[], sp.Expr]:
    return lambda: value(position, length, cycle)


def _cycles(length: int, warmup: int, factor: float) -> Iterator[tuple[int, int, int, bool]]:
    """The number, begin and length of each cycle, and whether all later ones have that length."""
    begin = 0
    for cycle in range(MOST_CYCLES):
        # Only the part after the warmup grows, cut to whole updates.
        following = int((length - warmup) * factor) + warmup
        if following == length:
            yield cycle, begin, length, True
            return
        yield cycle, begin, length, False
        begin, length = begin + length, following
        if begin > LAST:
            return


class _Warmup(kit.Section):
    warmup_steps: kit.RealSteps = 25_000


class NoamLR(_Warmup):
    model_size: kit.Number = 320


class WarmupStepLR(_Warmup):
    steps_per_epoch: int = kit.integer(10_000, least=1)
    step_size: int = kit.integer(1, least=1)
    gamma: kit.Number = 0.1


class PiecewiseLinearWarmupLR(kit.Section):
    warmup_steps_list: kit.Numbers = (0, 25_000)
    warmup_lr_list: kit.Rates = (0, 1e-3)


class TriStageLR(kit.Section):
    max_steps: kit.RealSteps = 25_000
    warmup_ratio: kit.RunRatio = 0.1
    hold_ratio: kit.RunRatio = 0.4
    decay_ratio: kit.RunRatio = 0.5
    init_lr_scale: kit.RateRatio = 0.01
    final_lr_scale: kit.RateRatio = 0.01


class ExponentialDecayWarmup(kit.Section):
    max_lr: kit.Rate
    min_lr: kit.EndRate
    total_steps: kit.Steps
    warmup_steps: kit.Steps = 0
    warm_from_zero: bool = False


class CosineAnnealingWarmupRestarts(kit.Section):
    first_cycle_steps: kit.Steps = kit.integer(least=1)
    cycle_mult: kit.Number = 1
    max_lr: kit.Rate = 0.1
    min_lr: kit.EndRate = 0.001
    warmup_steps: kit.Steps = kit.integer(0, least=0)
    gamma: kit.Number = 1


CURVES: Mapping[str, tuple[Callable[..., Schedule], type[kit.Section], kit.Clock]] = {
    "warmuplr": (_warmup, _Warmup, CLOCK),
    "noamlr": (_noam, NoamLR, CLOCK),
    "warmupsteplr": (_warmup_step, WarmupStepLR, CLOCK),
    "piecewiselinearwarmuplr": (_polyline, PiecewiseLinearWarmupLR, CLOCK),
    "tristagelr": (_tri_stage, TriStageLR, CLOCK),
    "exponentialdecaywarmup": (_exponential, ExponentialDecayWarmup, UPDATES),
    "cosineannealingwarmuprestarts": (_restarts, CosineAnnealingWarmupRestarts, UPDATES),
}
TORCH = {
    "steplr": ("StepLR", EPOCHS),
    "multisteplr": ("MultiStepLR", EPOCHS),
    "exponentiallr": ("ExponentialLR", EPOCHS),
    "cosineannealinglr": ("CosineAnnealingLR", EPOCHS),
    "cycliclr": ("CyclicLR", UPDATES),
    "onecyclelr": ("OneCycleLR", UPDATES),
    "cosineannealingwarmrestarts": ("CosineAnnealingWarmRestarts", UPDATES),
}
"""Classes of torch, stepped after an epoch or an update."""
OF_LOSS = ("reducelronplateau", "warmupreducelronplateau")
OPTIMIZERS = {
    name.lower(): name
    for name in (
        *("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "LBFGS", "RAdam", "RMSprop"),
        *("Rprop", "SGD"),
    )
}


class Config(
    kit.OpenSection,
    irrelevant="grad_clip_type exclude_weight_decay_conf optim2 optim2_conf scheduler2 "
    "scheduler2_conf",
):
    optim: str = "adadelta"
    optim_conf: kit.ClassSection
    scheduler: str | None = None
    scheduler_conf: kit.ClassSection
    accum_grad: kit.Accumulation = kit.integer(1, least=1)
    grad_clip: kit.Norm = 5
    max_epoch: kit.Epochs = 40
    exclude_weight_decay: bool = False


_FOLDER = "espnet2/schedulers"


def _is(*names: str) -> Callable[[Config], bool]:
    return lambda config: (config.scheduler or "").lower() in names


DEFECTS: Mapping[str, kit.Note[[Config]]] = {
    "piecewise-base": kit.Defect(
        "after its list, piecewiselinearwarmuplr falls from the rate of the optimizer, and jumps "
        "where that is not the last rate of the list",
        f"{_FOLDER}/piecewise_linear_warmup_lr.py:64",
        lambda config: (
            _is("piecewiselinearwarmuplr")(config)
            and _optimizer(config).lr
            != config.scheduler_conf.origin.numbers("warmup_lr_list", (0, 1e-3))[-1]
        ),
        classes=("piecewiselinearwarmuplr",),
    ),
    "exponential-warmup-base": kit.Defect(
        "without warm_from_zero the updates of the warmup from update 1 on have the rate of the "
        "optimizer, not max_lr",
        f"{_FOLDER}/exponential_decay_warmup.py:60",
        lambda config: (
            _is("exponentialdecaywarmup")(config)
            and not config.scheduler_conf.origin.flag("warm_from_zero", False)
            and config.scheduler_conf.origin.integer("warmup_steps", 0) > 1
            and _optimizer(config).lr != config.scheduler_conf.origin.number("max_lr")
        ),
        classes=("exponentialdecaywarmup",),
    ),
    "rate-of-the-optimizer-ignored": kit.Convention(
        "the rates are max_lr and min_lr; update 0 has min_lr",
        f"{_FOLDER}/cosine_anneal_warmup_restart.py:75",
        _is("cosineannealingwarmuprestarts"),
        classes=("cosineannealingwarmuprestarts",),
    ),
    "warmupsteplr-epochs": kit.Convention(
        "an epoch of warmupsteplr has steps_per_epoch updates, whatever the size of the data",
        f"{_FOLDER}/warmup_step_lr.py:44",
        _is("warmupsteplr"),
        classes=("warmupsteplr",),
    ),
}


def _optimizer(config: Config) -> kit.ClassOptimizer:
    name = config.optim.lower()
    path = OPTIMIZERS.get(name, config.optim)
    return kit.class_optimizer(config.optim_conf.origin, path)


def _rate(config: Config, rate: sp.Expr, where: str) -> Schedule:
    name = (config.scheduler or "").lower()
    conf = config.scheduler_conf.origin
    if not name:
        return constant(rate)
    if name in TORCH:
        return of_torch(TORCH[name][0], conf.content, rate, where)
    kit.refuse_unless(name not in OF_LOSS, f"{name} is a function of the loss", where)
    kit.refuse_unless(name in CURVES, f"there is no scheduler {config.scheduler!r:.60}", where)
    curve, keys, _ = CURVES[name]
    return curve(keys.read(conf), rate, where)


def _class_rate(context: kit.Context, config: Config) -> Schedule:
    return _rate(config, context.of_group("lr", _optimizer(config).lr), context.where)


def _matches(document: kit.Document) -> bool:
    content = document.content
    return "optim_conf" in content and isinstance(content.get("optim", ""), str)


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read_whole(reading.document)
    optimizer = _optimizer(config)
    name = (config.scheduler or "").lower()
    with config.scheduler_conf.origin.locate_errors():
        schedule = _rate(config, exact_number(optimizer.lr), reading.document.source)
    clock = TORCH[name][1] if name in TORCH else CURVES[name][2] if name in CURVES else UPDATES
    group = optimizer.group(schedule)
    groups = [group, group.without_decay()] if config.exclude_weight_decay else [group]
    clip = config.grad_clip
    return reading.recipe(
        groups,
        clock=clock,
        horizon=config.max_epoch if clock is EPOCHS else reading.facts.total_updates,
        clipping=kit.Clipping(clip) if clip > 0 else None,
        accumulation=config.accum_grad,
        values=(config,),
    )


FRAMEWORK = kit.Framework(
    "espnet",
    kit.section_entries(
        dict.fromkeys((*CURVES, *TORCH), _class_rate),
        {"": Config},
        style=lambda config: (config.scheduler or "").lower(),
    ),
    versions=("202511",),
    repository="https://github.com/espnet/espnet",
    upstream=f"{_FOLDER}/*.py",
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("group_lrs",),
)

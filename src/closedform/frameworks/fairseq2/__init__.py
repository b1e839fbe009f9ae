"""fairseq2: the schedulers of its recipes, whose configs change the defaults of a recipe."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import sympy as sp

from closedform.errors import nearest
from closedform.language import Schedule, exact_number, floor_div, floor_mod, t
from closedform.recipes import kit
from closedform.schedules import constant
from closedform.schedules.blends import along_cosine, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)
# Lengths int(c^k L) have no closed form in t: each cycle is a stage.
_TOO_MANY = "so many cycles of different lengths are not modelled"
CYCLES, MOST_CYCLES = 64, 1000
"""Cycles of different lengths that are modelled, at least and at most; the run decides."""


class Noam(kit.Section):
    num_warmup_steps: kit.Steps = kit.integer(0, least=0)


class _Warmup(Noam):
    # A list is one value for each param group.
    start_lr: kit.RateOrRates = 0


class CosineAnnealing(_Warmup):
    cycle_len: kit.Steps | None = kit.integer(None, least=1)
    cycle_mul: kit.Number = 1
    lr_mul: kit.Number = 1
    final_lr: kit.RateOrRates | None = None
    final_lr_scale: kit.NumberOrNumbers = sp.Rational(1, 5)


class PolynomialDecay(_Warmup):
    power: kit.Power = 1
    final_lr: kit.RateOrRates = 0


class Myle(_Warmup):
    num_warmup_steps: kit.Steps = kit.integer(1, least=1)


class TriStage(kit.Section):
    # 0.01 of the peak at both ends: class TriStageLR's defaults.
    stage_ratio: kit.Numbers = (0, 0, 1)
    start_lr_scale: kit.NumberOrNumbers = sp.Rational(1, 100)
    final_lr_scale: kit.NumberOrNumbers = sp.Rational(1, 100)


PARAMETERS: Mapping[str, type[kit.Section]] = {
    "cosine_annealing": CosineAnnealing,
    "polynomial_decay": PolynomialDecay,
    "myle": Myle,
    "noam": Noam,
    "tri_stage": TriStage,
}
"""The parameters of each scheduler."""


def _parameters(place: kit.RawSection, key: str, default: Any) -> kit.Section:
    name = place.text("name")
    if name not in PARAMETERS:
        raise place.error(
            f"there is no lr_scheduler {name!r:.60}", "name", nearest(name, PARAMETERS)
        )
    return PARAMETERS[name].read(place.section(key))


class Scheduler(kit.Section):
    name: Any = None
    config: Any = kit.read_by(_parameters, None)


class Optimizer(kit.Section):
    name: Any = "adamw"
    config: Any = None


class Regime(kit.OpenSection):
    num_steps: kit.Steps | None = kit.integer(None, least=1)


class GradAccumulation(kit.OpenSection):
    num_batches: kit.Accumulation | None = None


class Trainer(kit.OpenSection):
    max_grad_norm: kit.Norm | None = None
    grad_accumulation: GradAccumulation


def _rise(context: kit.Context, params: _Warmup, rate: sp.Expr) -> tuple[kit.LazyNumber, int]:
    first, warmup = params.of_group("start_lr", context), params.num_warmup_steps
    return (lambda: along_line(first, rate, t / sp.Integer(warmup))), warmup


def _require_total(context: kit.Context, total: int | None) -> int:
    kit.refuse_unless(total is not None, "regime.num_steps must be given", context.where)
    return int(total or 0)


def _cosine(
    context: kit.Context, params: CosineAnnealing, rate: sp.Expr, total: int | None
) -> tuple[kit.Stage, ...]:
    # final_lr_scale has a default: only an explicit null leaves final_lr as the minimum.
    has_scale = params.origin.content.get("final_lr_scale", 0) is not None
    # is_one: upstream raises where both or neither is given.
    is_one = (params.final_lr is None) is has_scale
    kit.refuse_unless(
        is_one,
        "exactly one of final_lr and final_lr_scale must be given: final_lr needs a final_lr_scale "
        "of null",
        context.where,
    )
    if has_scale:
        low = rate * params.of_group("final_lr_scale", context)
    else:
        low = params.of_group("final_lr", context)
    rise = _rise(context, params, rate)
    warmup, length = params.num_warmup_steps, params.cycle_len
    if length is None:
        # The default is one cycle from the warmup to the end of the run.
        length = _require_total(context, total) - warmup
    if params.cycle_mul != 1:
        return (rise, *_growing(params, rate, low, length, total or 0))
    # A warmup beyond the run makes the length negative, and the division of Python rounds down.
    # floor(a / b) = floor(-a / -b): both signs are turned, so that the divisor is positive.
    position, cycle = (t - warmup, length) if length >= 0 else (warmup - t, -length)

    def wave() -> sp.Expr:
        if length == 0:
            raise kit.UndefinedError("division by zero: the cycle has no update")
        # 1**index would add a floor to the expression for nothing.
        factor = params.lr_mul ** floor_div(position, cycle) if params.lr_mul != 1 else sp.S.One
        return factor * along_cosine(rate, low, floor_mod(position, cycle) / sp.Integer(cycle))

    return rise, (wave, None)


def _growing(
    params: CosineAnnealing, rate: sp.Expr, low: sp.Expr, length: int, total: int
) -> tuple[kit.Stage, ...]:
    """The cycles whose lengths grow by a factor, with the roundings of the framework."""
    factor, warmup = float(params.cycle_mul), params.num_warmup_steps

    def wave(begin: int, cycle: int, scale: sp.Expr) -> kit.LazyNumber:
        return lambda: (
            scale * along_cosine(rate, low, kit.quotient(t - warmup - begin, sp.Integer(cycle)))
        )

    stages: list[kit.Stage] = []
    for index in range(MOST_CYCLES):
        # The sum of a geometric series in floats, cut to whole updates (cosine_annealing.py at
        # 027bdebca).
        # (1 - c^k) / (1 - c) in floats and then int(): the sum of the cut lengths would be another
        # border.
        begin = int((1 - factor**index) / (1 - factor) * length)
        # At least 64 cycles, then until the run is covered: shrinking cycles (cycle_mul < 1) reach
        # a finite end, at most 1,000.
        if index >= CYCLES and begin > total:
            break
        end = int((1 - factor ** (index + 1)) / (1 - factor) * length)
        # Upstream finds the cycle by a logarithm in floats, which may be a step off at a border.
        while _cycle(end, length, factor) > index:
            end -= 1
        while _cycle(end, length, factor) == index:
            end += 1
        stage = wave(begin, int(factor**index * length), params.lr_mul**index)
        stages.append((stage, warmup + end))
    return (*stages, (kit.undefined(_TOO_MANY), None))


def _cycle(step: int, length: int, factor: float) -> int:
    """The cycle of an update after the warmup, as the framework computes it."""
    base = 1 - step / length * (1 - factor)
    # log of a number that is not positive: shrinking cycles have ended, and all further updates are
    # past them.
    return int(math.log(base, factor)) if base > 0 else MOST_CYCLES


def _polynomial(
    context: kit.Context, params: PolynomialDecay, rate: sp.Expr, total: int | None
) -> tuple[kit.Stage, ...]:
    end, warmup = _require_total(context, total), params.num_warmup_steps
    # From num_steps on the final rate counts, before the warmup is tested.
    kit.refuse_unless(warmup < end, f"the warmup must be below {end}, got {warmup}", context.where)
    low = params.of_group("final_lr", context)

    def fall() -> sp.Expr:
        rest = kit.power_quotient(end - t, sp.Integer(end - warmup), params.power)
        return along_line(low, rate, rest)

    return _rise(context, params, rate), (fall, end), (low, None)


def _myle(
    context: kit.Context, params: Myle, rate: sp.Expr, total: int | None
) -> tuple[kit.Stage, ...]:
    del total
    warmup = params.num_warmup_steps
    # Continuous at t = W, where both are the rate; num_warmup_steps is at least 1 there.
    return _rise(context, params, rate), (lambda: rate * sp.sqrt(warmup) / sp.sqrt(t), None)


def _noam(
    context: kit.Context, params: Noam, rate: sp.Expr, total: int | None
) -> tuple[kit.Stage, ...]:
    del context, total
    warmup = sp.Integer(params.num_warmup_steps)
    return (
        # W^(-3/2) t up to W, then t^(-1/2): upstream has no scale, so the peak is rate / sqrt(W).
        (lambda: rate * t / warmup ** sp.Rational(3, 2), int(warmup)),
        # Without a warmup, n^(-1/2) is infinite at update 0: updates 0 and 1 have the rate.
        (rate, 1),
        (lambda: rate / sp.sqrt(t), None),
    )


def _tri_stage(
    context: kit.Context, params: TriStage, rate: sp.Expr, total: int | None
) -> tuple[kit.Stage, ...]:
    end, ratios = _require_total(context, total), [float(part) for part in params.stage_ratio]
    kit.refuse_unless(
        len(ratios) == 3 and math.isclose(sum(ratios), 1),
        f"stage_ratio must hold three parts of 1, got {ratios}",
        context.where,
    )
    # int() cuts each phase, so that the final rate may come before the end (tri_stage.py:68).
    rise, hold, fall = (int(part * end) for part in ratios)
    first = rate * params.of_group("start_lr_scale", context)
    low = params.of_group("final_lr_scale", context)

    def decay() -> sp.Expr:
        if low <= 0:
            raise kit.UndefinedError("final_lr_scale has no logarithm")
        # exp(ln(low)·j/D): the same geometric fall as fairseq's tri_stage.
        return rate * sp.exp(sp.log(low) * (t - rise - hold) / sp.Integer(fall))

    return (
        (lambda: along_line(first, rate, t / sp.Integer(rise)), rise),
        (rate, rise + hold),
        (decay, rise + hold + fall),
        (lambda: rate * low, None),
    )


_CURVES: Mapping[str, Callable[..., tuple[kit.Stage, ...]]] = {
    "cosine_annealing": _cosine,
    "polynomial_decay": _polynomial,
    "myle": _myle,
    "noam": _noam,
    "tri_stage": _tri_stage,
}


def _is(scheduler: Scheduler | None, name: str) -> TypeGuard[Scheduler]:
    return scheduler is not None and scheduler.name == name


_FILES = "src/fairseq2/optim/lr_schedulers"
DEFECTS: Mapping[str, kit.Note[[Scheduler | None, int]]] = {
    "restarts-after-the-run": kit.Convention(
        "after its cycle a cosine starts again at the peak, also where the cycle is the whole run",
        f"{_FILES}/cosine_annealing.py:88",
        lambda scheduler, total: _is(scheduler, "cosine_annealing"),
        classes=("cosine_annealing",),
    ),
    "noam-without-scale": kit.Convention(
        "noam has no scale: its peak is the rate over the root of the warmup",
        f"{_FILES}/noam.py:58",
        lambda scheduler, total: _is(scheduler, "noam") and scheduler.config.num_warmup_steps > 1,
        classes=("noam",),
    ),
    "stages-cut": kit.Convention(
        "the stages are cut to whole updates, so that the final rate comes before the end",
        f"{_FILES}/tri_stage.py:68",
        lambda scheduler, total: (
            _is(scheduler, "tri_stage")
            and total > sum(int(float(part) * total) for part in scheduler.config.stage_ratio)
        ),
        classes=("tri_stage",),
    ),
}


def _rate_of(optimizer: Optimizer, context: kit.Context) -> sp.Expr:
    # 1e-3 is the default of AdamW in torch as well.
    return context.of_group("lr", optimizer.origin.section("config").number("lr", 1e-3))


def _rate(
    context: kit.Context, optimizer: Optimizer, scheduler: Scheduler, regime: Regime
) -> Schedule:
    stages = _CURVES[scheduler.name](
        context, scheduler.config, _rate_of(optimizer, context), regime.num_steps
    )
    return kit.by_intervals(scheduler.name, *stages)


_ADAMW = {"lr": 3e-4, "betas": [0.9, 0.95], "weight_decay": 0.1}
_OF_LM: Mapping[str, Any] = {
    "optimizer": {"name": "adamw", "config": _ADAMW},
    "lr_scheduler": {"name": "cosine_annealing", "config": {"final_lr_scale": 0.2}},
    "regime": {"num_steps": 48_000},
    "trainer": {"max_grad_norm": 1.0},
}
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "lm/sft": _OF_LM,
    "lm/train": {
        **_OF_LM,
        "lr_scheduler": {
            "name": "cosine_annealing",
            "config": {"num_warmup_steps": 2000, "start_lr": 1e-30, "final_lr_scale": 0.01},
        },
    },
    "wav2vec2/asr": {
        "optimizer": {"name": "adamw", "config": {"lr": 5e-5, "betas": [0.9, 0.98]}},
        "lr_scheduler": {
            "name": "tri_stage",
            "config": {"stage_ratio": [0.1, 0.4, 0.5], "final_lr_scale": 0.05},
        },
        "regime": {"num_steps": 20_000},
        "trainer": {"grad_accumulation": {"num_batches": 4}},
    },
    "wav2vec2/ssl": {
        "optimizer": {
            "name": "adamw",
            "config": {"lr": 5e-4, "betas": [0.9, 0.98], "eps": 1e-6, "weight_decay": 0.01},
        },
        "lr_scheduler": {"name": "polynomial_decay", "config": {"num_warmup_steps": 32_000}},
        "regime": {"num_steps": 400_000},
    },
}
"""The defaults of the recipes of fairseq2."""


def _over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A section with changes; parameters of another class replace the default's parameters."""
    result = dict(base)
    # Another name makes the default's parameters meaningless: a cosine does not have the ones of
    # tri_stage.
    is_other = "name" in changes and changes["name"] != base.get("name", changes["name"])
    for key, value in changes.items():
        inner = result.get(key)
        are_sections = isinstance(value, Mapping) and isinstance(inner, Mapping)
        result[key] = _over(inner or {}, value) if are_sections and not is_other else value
    if is_other and "config" not in changes:
        result.pop("config", None)
    return result


def _defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of the fact ``recipe_defaults``, by plain names, in their sections."""
    optimizer = {
        key: defaults[key] for key in ("lr", "betas", "eps", "weight_decay") if key in defaults
    }
    rest = {key: value for key, value in defaults.items() if key not in optimizer}
    regime = {"num_steps": rest.pop("num_steps")} if "num_steps" in rest else {}
    name = rest.pop("lr_scheduler", None)
    scheduler = {"config": rest, **({} if name is None else {"name": name})}
    return {"optimizer": {"config": optimizer}, "lr_scheduler": scheduler, "regime": regime}


def _config(reading: kit.Reading) -> kit.RawSection:
    """The config over the defaults of its recipe."""
    document, facts = kit.in_sections(reading.document), reading.facts.framework_facts
    recipe = facts.get("recipe", document.content.get("recipe"))
    base: Mapping[str, Any] = {}
    if recipe is not None:
        if recipe not in RECIPES:
            raise document.error(
                f"there is no recipe {recipe!r:.60}", "recipe", nearest(str(recipe), RECIPES)
            )
        base = RECIPES[recipe]
    base = _over(base, _defaults(facts["recipe_defaults"])) if "recipe_defaults" in facts else base
    return kit.RawSection(document, _over(base, document.content))


def _matches(document: kit.Document) -> bool:
    # Only this framework of those in YAML has a regime; Python files never match.
    names = [str(key) for key in document.content]
    return document.python is None and (
        isinstance(document.content.get("regime"), dict)
        or any(name.startswith("regime.") for name in names)
    )


def _read(reading: kit.Reading) -> kit.Recipe:
    config, context = _config(reading), reading.context
    if "lr_scheduler" not in config.content:
        raise kit.missing_facts(
            "recipe",
            reading.document.source,
            f"give the recipe whose defaults the config changes: {', '.join(RECIPES)}",
        )
    optimizer, regime = (
        Optimizer.read(config.section("optimizer")),
        Regime.read(config.section("regime")),
    )
    trainer = Trainer.read(config.section("trainer"))
    total = regime.num_steps
    if total is None and reading.facts.total_updates is not None:
        total = int(reading.facts.total_updates)
    regime = regime.replace(num_steps=total)
    scheduler = None
    if config.content["lr_scheduler"] is not None:
        scheduler = Scheduler.read(config.section("lr_scheduler"))

    def schedule(context: kit.Context) -> Schedule:
        if scheduler is None:
            return constant(_rate_of(optimizer, context))
        with scheduler.origin.locate_errors("config"):
            return _rate(context, optimizer, scheduler, regime)

    clipping = trainer.max_grad_norm
    accumulation = trainer.grad_accumulation.num_batches
    return reading.recipe(
        _groups(context, optimizer, schedule),
        horizon=total,
        clipping=None if clipping is None else kit.Clipping(clipping),
        accumulation=1 if accumulation is None else accumulation,
        values=(scheduler, total),
        derived={} if total is None else {"total_updates": total},
    )


def _groups(
    context: kit.Context, optimizer: Optimizer, schedule: Callable[[kit.Context], Schedule]
) -> list[kit.ParamGroup]:
    """The groups of the optimizer: all other parameters first, then the groups that it lists."""
    config = optimizer.origin.section("config")
    group_sections = config.sections("groups")
    default = _rate_of(optimizer, context)
    if group_sections:
        rates = [exact_number(group.number("lr", default)) for group in group_sections]
        # The parameters that no group lists are the last group.
        # A list of values per group then has one entry for each listed group and one for the
        # others.
        context = context.with_facts(group_lrs=(*rates, default), group_index=len(group_sections))
    groups = [_group(optimizer, config, schedule(context))]
    for index, group in enumerate(group_sections):
        group_config = kit.RawSection(
            config.document, {**config.content, **group.content}, group.path
        )
        patterns = group.value("params", ".*")
        groups.append(
            _group(
                optimizer,
                group_config,
                schedule(context.with_facts(group_index=index)),
                f"group {index}",
                (patterns,) if isinstance(patterns, str) else tuple(patterns),
            )
        )
    return groups


def _group(
    optimizer: Optimizer,
    config: kit.RawSection,
    rate: Schedule,
    name: str = "",
    patterns: tuple[str, ...] = (),
) -> kit.ParamGroup:
    kinds = {"adamw": "torch.optim.AdamW", "adafactor": "torch.optim.Adafactor"}
    if optimizer.name not in kinds:
        raise optimizer.error(f"there is no optimizer {optimizer.name!r:.60}", "name")
    # fairseq2's AdamW does not decay by default; torch's has 0.01.
    defaults = {"weight_decay": 0} if optimizer.name == "adamw" else {"lr": 1e-2}
    left_out = ("groups", "impl", "params")
    plan = kit.class_optimizer(config, kinds[optimizer.name], left_out, defaults)
    return plan.group(rate, name=name, patterns=patterns)


FRAMEWORK = kit.Framework(
    "fairseq2",
    kit.section_entries(
        dict.fromkeys(PARAMETERS, _rate),
        {"optimizer": Optimizer, "lr_scheduler": Scheduler, "regime": Regime},
        lambda optimizer, scheduler, regime: str(scheduler.name),
    ),
    versions=("027bdebca4b9",),
    repository="https://github.com/facebookresearch/fairseq2",
    upstream=_FILES,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
    facts=("recipe", "recipe_defaults"),
)

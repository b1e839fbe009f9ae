"""prime-rl: the schedules of its trainers, whose configs are TOML."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sympy as sp

from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules import constant

CLOCK = kit.Clock(kit.Unit.UPDATE)
_LEAST = exact_number(1e-8)
"""The factor that stands for a minimum of 0."""


class Constant(kit.Section):
    type: str = "constant"


class _Warmup(Constant):
    type: str
    warmup_steps: kit.Steps = kit.integer(10, least=0)
    min_lr: kit.EndRate = 0


class Linear(_Warmup):
    decay_steps: kit.Steps = kit.integer(10, least=0)


class _Base(kit.Section):
    lr: kit.Rate = 1e-6
    weight_decay: kit.WeightDecay = 0.01
    max_norm: kit.Norm = 1
    type: str = "adamw"


class AdamW(_Base):
    betas1: kit.Momentum = 0.9
    betas2: kit.Momentum = 0.999


class SGD(_Base):
    nesterov: bool = True
    momentum: kit.Momentum = 0.9


class Muon(AdamW):
    mu: kit.Momentum = 0.95
    betas2: kit.Momentum = 0.95


class Trainer(kit.OpenSection):
    max_steps: kit.Steps | None = kit.integer(None, least=1)
    optim: _Base = kit.variants(
        {"adamw": AdamW, "sgd": SGD, "muon": Muon, "sign_sgd": _Base}, "adamw"
    )
    scheduler: Constant = kit.variants(
        {"constant": Constant, "linear": Linear, "cosine": _Warmup}, "constant"
    )


class Config(Trainer):
    trainer: Trainer


_SCHEDULER = "src/prime_rl/trainer/scheduler.py"
_PHASES = ("linear", "cosine")
DEFECTS: Mapping[str, kit.Note[[Trainer]]] = {
    "starts-above-zero": kit.Convention(
        "a min_lr of 0 is a factor of 1e-8: update 0 is not 0, and the last one of a line is not",
        f"{_SCHEDULER}:34",
        lambda config: isinstance(config.scheduler, _Warmup) and config.scheduler.min_lr == 0,
        classes=_PHASES,
    ),
    "minimum-starts-the-warmup": kit.Convention(
        "min_lr is the start of the warmup as well",
        f"{_SCHEDULER}:36",
        lambda config: (
            isinstance(config.scheduler, _Warmup)
            and config.scheduler.min_lr > 0
            and config.scheduler.warmup_steps > 0
        ),
        classes=_PHASES,
    ),
    "decay-of-one": kit.Convention(
        "a decay of one update divides by zero at the last update of the run",
        f"{_SCHEDULER}:49",
        lambda config: isinstance(config.scheduler, Linear) and config.scheduler.decay_steps == 1,
        classes=("linear",),
    ),
    "minimum-not-reached": kit.Convention(
        "the minimum of a cosine is that of the update after the run, and the rate rises again",
        f"{_SCHEDULER}:77",
        lambda config: config.scheduler.type == "cosine",
        classes=("cosine",),
    ),
}


def _constant(config: Trainer, scheduler: Constant, where: str) -> Schedule:
    del scheduler, where
    return constant(config.optim.lr)


def _factor(config: Trainer, scheduler: _Warmup, where: str) -> sp.Expr:
    """The minimum as a part of the rate, which starts the warmup."""
    low, peak = scheduler.min_lr, config.optim.lr
    kit.refuse_unless(low >= 0, f"min_lr must not be negative, got {low}", where)
    kit.refuse_unless(
        low == 0 or low <= peak, f"min_lr must not be above lr {peak}, got {low}", where
    )
    return low / peak if low > 0 else _LEAST


def _linear(config: Trainer, scheduler: Linear, where: str) -> Schedule:
    peak, total = config.optim.lr, config.max_steps or 0
    warmup, decay = scheduler.warmup_steps, scheduler.decay_steps
    kit.refuse_unless(warmup or decay, "a linear scheduler needs a warmup or a decay", where)
    low, begin = peak * _factor(config, scheduler, where), total - decay
    kit.refuse_unless(total or not decay, "a decay needs max_steps", where)
    kit.refuse_unless(
        not decay or warmup <= begin,
        f"warmup and decay must not exceed max_steps {total}, got {warmup} and {decay}",
        where,
    )

    def value(n: float) -> sp.Expr:
        if n < warmup:
            return along_line(low, peak, n / warmup)
        if not decay or n < begin:
            return peak
        return along_line(peak, low, (n - begin) / (decay - 1)) if n < total else low

    return kit.curve("linear", value)


def _cosine(config: Trainer, scheduler: _Warmup, where: str) -> Schedule:
    peak, low, total = config.optim.lr, scheduler.min_lr, config.max_steps or 0
    warmup = scheduler.warmup_steps
    kit.refuse_unless(total, "a cosine needs max_steps", where)
    kit.refuse_unless(
        warmup < total, f"the warmup must be shorter than max_steps {total}, got {warmup}", where
    )
    first = peak * _factor(config, scheduler, where) if warmup else low

    def value(n: float) -> sp.Expr:
        if n < warmup:
            return along_line(first, peak, n / warmup)
        return along_cosine(peak, low, (n - warmup) / (total - warmup))

    return kit.curve("cosine", value)


_CURVES: Mapping[str, Callable[..., Schedule]] = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
}


def _rate(context: kit.Context, config: Trainer) -> Schedule:
    rate = config.optim.lr
    kit.refuse_unless(rate >= 0, f"lr must not be negative, got {rate}", context.where)
    return _CURVES[config.scheduler.type](config, config.scheduler, context.where)


def _matches(document: kit.Document) -> bool:
    content, trainer = document.content, document.content.get("trainer")
    if document.python is not None:
        return False
    if isinstance(trainer, dict) and isinstance(trainer.get("optim"), dict):
        return True
    names = {str(key) for key in content}
    if "orchestrator" in names or any(name.startswith("trainer.optim.") for name in names):
        return True
    optim = content.get("optim")
    keys = {*_Base.keys, "betas1", "betas2", "momentum", "nesterov", "mu"}
    return "max_steps" in names and isinstance(optim, dict) and set(optim) <= keys


def _read(reading: kit.Reading) -> kit.Recipe:
    config = Config.read(kit.document_section(kit.in_sections(reading.document)))
    is_nested = "trainer" in config.origin
    trainer = config.trainer if is_nested else config
    most = config.max_steps if trainer.max_steps is None else trainer.max_steps
    if most is None and reading.facts.total_updates is not None:
        most = int(reading.facts.total_updates)
    trainer = trainer.replace(max_steps=most)
    with trainer.origin.locate_errors("scheduler"):
        rate = _rate(reading.context, trainer)
    optim = trainer.optim
    schedules = {"lr": rate, "weight_decay": constant(optim.weight_decay)}
    return reading.recipe(
        [kit.ParamGroup(schedules, _optimizer(optim), kit.Role.DEFAULT)],
        horizon=most,
        clipping=kit.Clipping(optim.max_norm),
        accumulation=None,
        values=(trainer,),
        derived={} if most is None else {"total_updates": most},
    )


def _optimizer(optim: _Base) -> kit.OptimizerPlan:
    source = optim.origin.document.source
    if isinstance(optim, AdamW) and optim.type == "adamw":
        return kit.plan_optimizer("adamw", {"betas": (optim.betas1, optim.betas2)}, None, source)
    if isinstance(optim, SGD):
        arguments = {"momentum": optim.momentum, "nesterov": optim.nesterov}
        return kit.plan_optimizer("sgd", arguments, None, source)
    # Its matrices are split over processes, and further parameters have another rule.
    return kit.plan_optimizer(f"prime-rl {optim.type}", {}, None, source, by_name=False)


FRAMEWORK = kit.Framework(
    "prime-rl",
    kit.section_entries(
        dict.fromkeys(_CURVES, _rate), {"": Trainer}, lambda config: str(config.scheduler.type)
    ),
    versions=("559b44772e47",),
    repository="https://github.com/PrimeIntellect-ai/prime-rl",
    upstream=_SCHEDULER,
    clock=CLOCK,
    defects=DEFECTS,
    reader=kit.Reader(_read, _matches),
)

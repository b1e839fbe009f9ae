"""The schedulers of timm 1.0: functions of the group's base value in cycles, after a warmup.

Where noise is asked for it is ours, a formula of the step (``noise.py``): timm draws its own from
torch's generator, so noise is refused with ``as_implemented``. A group's ``lr_scale`` is a factor
on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, t
from closedform.recipes import checks
from closedform.recipes.cycles import cycles
from closedform.recipes.entries import (
    REQUIRED,
    Context,
    Parameter,
    ScheduleBuilder,
    ScheduleEntry,
)
from closedform.recipes.group_values import base_value
from closedform.recipes.plateau import metric_entry, timm_plateau
from closedform.recipes.timm.noise import KINDS, noise, noise_range, noisy
from closedform.schedules import multi_step, step_decay
from closedform.schedules.plateau import MODES

Arguments = Mapping[str, Any]
Fall = Callable[[Arguments, sp.Expr], sp.Expr]


def _cycled(fall: Fall) -> ScheduleBuilder:
    """Cycles from a peak that decays to ``lr_min``, which is constant after the last one."""

    def build(given: Arguments, context: Context) -> Schedule:
        base, low, limit = base_value(context), given["lr_min"], given["cycle_limit"]
        growth, decay = given["cycle_mul"], given["cycle_decay"]
        if limit == 0:
            return _warmed(Schedule(low, name="timm"), base, given, context)
        place = cycles(given["t_initial"], growth, decay, limit, context.where)
        curve = low + (base * place.decay - low) * fall(given, place.progress)
        expr = sp.Piecewise((curve, t < place.end), (low, True))
        made = Schedule(expr, name="timm", length=sp.ceiling(place.end))
        first = base
        if fall is _tanh and not given["warmup_prefix"] and given["warmup_t"]:
            first = made.bound.xreplace({t: sp.Integer(given["warmup_t"])}).doit()
        return _warmed(made, first, given, context)

    return build


def _cosine(given: Arguments, progress: sp.Expr) -> sp.Expr:
    k = given["k_decay"]
    return (1 + sp.cos(sp.pi * _raised(progress, k))) / 2


def _tanh(given: Arguments, progress: sp.Expr) -> sp.Expr:
    """(1 - tanh x)/2 is 1/(1 + exp 2x)."""
    x = given["lb"] * (1 - progress) + given["ub"] * progress
    return 1 / (1 + sp.exp(2 * x))


def _polynomial(given: Arguments, progress: sp.Expr) -> sp.Expr:
    k = given["k_decay"]
    return (1 - _raised(progress, k)) ** given["power"]


def _raised(progress: sp.Expr, k: sp.Expr) -> sp.Expr:
    """A power of the progress, which is below 1; as a Min SymPy does not take it apart."""
    return progress if k == 1 else sp.Min(progress, 1) ** k


def _steps(given: Arguments, context: Context) -> Schedule:
    base = base_value(context)
    made = step_decay(base, given["decay_rate"], given["decay_t"])
    return _warmed(made, base, given, context)


def _milestones(given: Arguments, context: Context) -> Schedule:
    """A milestone m applies at t = m - 1, as in timm."""
    base = base_value(context)
    made = multi_step(base, given["decay_rate"], [mark - 1 for mark in given["decay_t"]])
    return _warmed(made, base, given, context)


def _wsd(given: Arguments, context: Context) -> Schedule:
    """A flat or slowly falling stretch, whose last ``decay_t`` steps decay to ``lr_min``."""
    base, low = base_value(context), given["lr_min"]
    length, decay, warmup = given["t_initial"], given["decay_t"], given["warmup_t"]
    if decay > length:
        raise DefinitionError(f"decay_t must be at most t_initial {length}, got {decay}")
    p = sp.Min(sp.Max(t - (length - decay), 0), decay) / sp.Integer(decay)
    r = given["decay_ratio"]
    falls = {
        "linear": 1 - p,
        "1-sqrt": 1 - sp.sqrt(p),
        "cosine": (1 + sp.cos(sp.pi * p)) / 2,
        "power": 1 - p ** given["decay_power"],
        "exp": (r**p - r) / (1 - r),
    }
    stable = sp.Max(base * _stable(given, context), low)
    expr = low + (stable - low) * falls[given["decay_fn"]]
    return _warmed(Schedule(expr, name="wsd", length=length), base, given, context, prefix=warmup)


def _stable(given: Arguments, context: Context) -> sp.Expr:
    if given["stable_fn"] == "constant":
        return sp.Integer(1)
    scale = given["stable_timescale"]
    scale = sp.Integer(given["warmup_t"]) if scale is None else scale
    if scale <= 0:
        raise DefinitionError(
            f"stable_timescale must be above 0, got {scale}",
            hint="it is warmup_t where it is not given",
        )
    power = sp.Rational(1, 2) if given["stable_fn"] == "rsqrt" else given["stable_power"]
    return (1 + t / scale) ** -power


def _warmed(
    curve: Schedule,
    peak: sp.Expr,
    given: Arguments,
    context: Context,
    prefix: int | None = None,
) -> Schedule:
    """A line to ``peak`` before the curve, or, without ``warmup_prefix``, over its beginning."""
    warmup = given["warmup_t"]
    if not warmup:
        return curve
    start = given["warmup_lr_init"]
    rise = start + (peak - start) * t / sp.Integer(warmup)
    is_before = prefix is not None or given["warmup_prefix"]
    later = curve.bound.xreplace({t: t - warmup}) if is_before else curve.bound
    length = curve.length
    if length is not None and is_before:
        length = length + warmup
    return Schedule(sp.Piecewise((rise, t < warmup), (later, True)), name=curve.name, length=length)


def _grouped(build: ScheduleBuilder) -> ScheduleBuilder:
    """The builder, followed by noise and the group's ``lr_scale``."""

    def build_grouped(given: Arguments, context: Context) -> Schedule:
        made = build(given, context)
        if given["noise_range_t"] is not None:
            made = Schedule(_noisy(made.bound, given, context), name=made.name, length=made.length)
        factor = context.group.get("lr_scale", 1)
        return made if factor == 1 else made.scale(factor)

    return build_grouped


def _noisy(value: sp.Expr, given: Arguments, context: Context) -> sp.Expr:
    if context.as_implemented:
        raise DefinitionError(
            "noise has no value as implemented: timm draws it from torch's generator",
            hint="give as_implemented=False for noise that is a formula of the step",
        )
    seed = 42 if given["noise_seed"] is None else given["noise_seed"]
    amount = noise(given["noise_type"], given["noise_pct"], given["noise_std"], seed)
    return noisy(value, amount, given["noise_range_t"])


_WARMUP = (
    Parameter("warmup_t", 0, checks.count(0)),
    Parameter("warmup_lr_init", 0.0, checks.number),
)
_NOISE = (
    Parameter("noise_range_t", None, noise_range),
    Parameter("noise_type", "normal", checks.choice(*KINDS)),
    Parameter("noise_pct", 0.67, checks.positive),
    Parameter("noise_std", 1.0, checks.positive),
    Parameter("noise_seed", None, checks.count(0)),
)
_REST = (Parameter("t_in_epochs", True, checks.flag), *_NOISE)
_LOW = Parameter("lr_min", 0.0, checks.at_least(0))
_LENGTH = Parameter("t_initial", REQUIRED, checks.count(1))
_CYCLES = (
    _LOW,
    Parameter("cycle_mul", 1.0, checks.at_least(1)),
    Parameter("cycle_decay", 1.0, checks.number),
    Parameter("cycle_limit", 1, checks.count(0)),
    *_WARMUP,
    Parameter("warmup_prefix", False, checks.flag),
    *_REST,
)
_DECAYS = (
    Parameter("decay_rate", 1.0, checks.number),
    *_WARMUP,
    Parameter("warmup_prefix", True, checks.flag),
    *_REST,
)
_K = Parameter("k_decay", 1.0, checks.steps)
_ENTRIES = (
    ScheduleEntry(
        "CosineLRScheduler",
        ("cosine_k_decay", "warm_restarts"),
        (_LENGTH, *_CYCLES, _K),
        _cycled(_cosine),
    ),
    ScheduleEntry(
        "TanhLRScheduler",
        ("tanh_decay",),
        (
            _LENGTH,
            Parameter("lb", -7.0, checks.number),
            Parameter("ub", 3.0, checks.number),
            *_CYCLES,
        ),
        _cycled(_tanh),
    ),
    ScheduleEntry(
        "PolyLRScheduler",
        ("polynomial",),
        (_LENGTH, Parameter("power", 0.5, checks.steps), *_CYCLES, _K),
        _cycled(_polynomial),
    ),
    ScheduleEntry(
        "StepLRScheduler",
        ("step_decay",),
        (Parameter("decay_t", REQUIRED, checks.steps), *_DECAYS),
        _steps,
    ),
    ScheduleEntry(
        "MultiStepLRScheduler",
        ("multi_step",),
        (Parameter("decay_t", REQUIRED, checks.milestones), *_DECAYS),
        _milestones,
    ),
    metric_entry(
        "PlateauLRScheduler",
        (
            Parameter("decay_rate", 0.1, checks.in_range(0, 1)),
            Parameter("patience_t", 10, checks.count(0)),
            Parameter("threshold", 1e-4, checks.number),
            Parameter("cooldown_t", 0, checks.count(0)),
            *_WARMUP,
            _LOW,
            Parameter("mode", "max", checks.choice(*MODES)),
            *_NOISE,
        ),
        timm_plateau,
    ),
    ScheduleEntry(
        "WSDLRScheduler",
        ("wsd",),
        (
            _LENGTH,
            Parameter("decay_t", REQUIRED, checks.count(1)),
            _LOW,
            Parameter("stable_fn", "constant", checks.choice("constant", "rsqrt", "power")),
            Parameter("stable_timescale", None, checks.number),
            Parameter("stable_power", 0.5, checks.steps),
            Parameter(
                "decay_fn", "1-sqrt", checks.choice("linear", "1-sqrt", "cosine", "power", "exp")
            ),
            Parameter("decay_power", 0.5, checks.steps),
            Parameter("decay_ratio", 0.1, checks.in_range(0, 1, is_open_below=True)),
            *_WARMUP,
            *_REST,
        ),
        _wsd,
    ),
)
SCHEDULES = {
    entry.name: entry if entry.rule else replace(entry, build=_grouped(entry.build))
    for entry in _ENTRIES
}

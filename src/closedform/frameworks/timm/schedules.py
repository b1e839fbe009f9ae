"""The schedulers of timm 1.0: functions of the group's base value in cycles, after a warmup.

Where noise is asked for it is ours, a pure function of the step, the same in every engine and at
any resume: a hash of the step in integers below 2^48, which are exact in every graph. timm draws
its own from torch's generator, seeded anew at every step, which is not a formula; so noise is
refused with ``as_implemented``. A group's ``lr_scale`` is a factor on all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, floor_mod, t
from closedform.recipes import kit
from closedform.schedules import multi_step, step_decay
from closedform.schedules.plateau import MODES

KINDS = ("normal", "uniform")

_PRIME = sp.Integer(2**24 - 3)
# The multipliers of Park and Miller's generators (1988, 1993), taken as two mixing constants.
_FIRST, _SECOND = sp.Integer(48271), sp.Integer(16807)
# A logistic of scale 1/1.702 is within 0.0095 of the standard normal distribution everywhere.
_LOGISTIC = sp.Rational(1702, 1000)


def uniform(seed: int) -> sp.Expr:
    r"""Returns a number in (0, 1) for every step t.

    .. math:: u = \frac{x_3 + 1/2}{M}, \quad x_0 = (t + \text{seed} + 1) \bmod M, \quad
        x_{i+1} = (a\, (x_i^2 \bmod M) + b\, x_i) \bmod M

    with M = 2^24 - 3, a prime, a = 48271 and b = 16807; it repeats after M steps.

    Example:
        >>> [round(float(uniform(42).xreplace({t: sp.Integer(n)})), 3) for n in (0, 1, 2)]
        [0.089, 0.361, 0.017]
    """
    x = floor_mod(t + seed + 1, _PRIME)
    for _ in range(3):
        x = floor_mod(_FIRST * floor_mod(x**2, _PRIME) + _SECOND * x, _PRIME)
    return (x + sp.Rational(1, 2)) / _PRIME


def noise(kind: str, limit: sp.Expr, deviation: sp.Expr, seed: int) -> sp.Expr:
    r"""Returns the noise at every step, between -p and p.

    .. math:: \text{uniform: } p (2u - 1) \qquad \text{normal: } \frac{\sigma}{1.702}
        \ln \frac{v}{1 - v}, \quad v = q + (1 - 2q)\, u, \quad q = \frac{1}{1 + e^{1.702 p/\sigma}}

    The latter is the logistic distribution in place of the normal one, cut at -p and p.

    Args:
        kind: ``normal`` or ``uniform``.
        limit: The bound p above 0.
        deviation: The standard deviation σ above 0 of the normal one, before it is cut.
        seed: What the draws are of, an integer of at least 0.
    """
    u = uniform(seed)
    if kind == "uniform":
        return limit * (2 * u - 1)
    least = 1 / (1 + sp.exp(_LOGISTIC * limit / deviation))
    place = least + (1 - 2 * least) * u
    return deviation / _LOGISTIC * sp.log(place / (1 - place))


def noise_range(value: object, name: str, where: str) -> tuple[int, int | None]:
    """Returns the steps with noise: from the first one on, to before the second if there is one.

    Raises:
        DefinitionError: It is neither an int of at least 0 nor two that increase.
    """
    bounds = tuple(value) if isinstance(value, list | tuple) else (value, None)
    is_whole = all(type(bound) is int and bound >= 0 for bound in bounds if bound is not None)
    if len(bounds) != 2 or bounds[0] is None or not is_whole:
        raise DefinitionError(
            f"{name} must be an int >= 0 or two of them, got {value!r}", where=where
        )
    if bounds[1] is not None and bounds[1] <= bounds[0]:
        raise DefinitionError(f"{name} must increase, got {value!r}", where=where)
    return bounds[0], bounds[1]


def noisy(value: sp.Expr, amount: sp.Expr, steps: tuple[int, int | None]) -> sp.Expr:
    """Returns a value that is changed by a part of itself within a range of steps."""
    first, stop = steps
    noisy_value = value * (1 + amount)
    branches = [(value, t < first)] if first else []
    if stop is None:
        return sp.Piecewise(*branches, (noisy_value, True))
    return sp.Piecewise(*branches, (noisy_value, t < stop), (value, True))


Fall = Callable[[kit.Arguments, sp.Expr], sp.Expr]


def _build_cycles(fall: Fall) -> kit.ScheduleBuilder:
    """Cycles from a peak that decays to ``lr_min``, which is constant after the last one."""

    def build(arguments: kit.Arguments, context: kit.Context) -> Schedule:
        base, low, limit = kit.base_value(context), arguments["lr_min"], arguments["cycle_limit"]
        growth, decay = arguments["cycle_mul"], arguments["cycle_decay"]
        if limit == 0:
            return _with_warmup(Schedule(low, name="timm"), base, arguments, context)
        place = kit.cycles(arguments["t_initial"], growth, decay, limit, context.where)
        curve = low + (base * place.decay - low) * fall(arguments, place.progress)
        expr = sp.Piecewise((curve, t < place.end), (low, True))
        schedule = Schedule(expr, name="timm", length=sp.ceiling(place.end))
        first = base
        if fall is _tanh and not arguments["warmup_prefix"] and arguments["warmup_t"]:
            first = schedule.bound.xreplace({t: sp.Integer(arguments["warmup_t"])}).doit()
        return _with_warmup(schedule, first, arguments, context)

    return build


def _cosine(arguments: kit.Arguments, progress: sp.Expr) -> sp.Expr:
    k = arguments["k_decay"]
    return (1 + sp.cos(sp.pi * _power_of_progress(progress, k))) / 2


def _tanh(arguments: kit.Arguments, progress: sp.Expr) -> sp.Expr:
    """(1 - tanh x)/2 is 1/(1 + exp 2x)."""
    x = arguments["lb"] * (1 - progress) + arguments["ub"] * progress
    return 1 / (1 + sp.exp(2 * x))


def _polynomial(arguments: kit.Arguments, progress: sp.Expr) -> sp.Expr:
    k = arguments["k_decay"]
    return (1 - _power_of_progress(progress, k)) ** arguments["power"]


def _power_of_progress(progress: sp.Expr, k: sp.Expr) -> sp.Expr:
    """A power of the progress, which is below 1; as a Min SymPy does not take it apart."""
    return progress if k == 1 else sp.Min(progress, 1) ** k


def _steps(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    base = kit.base_value(context)
    schedule = step_decay(base, arguments["decay_rate"], arguments["decay_t"])
    return _with_warmup(schedule, base, arguments, context)


def _milestones(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """A milestone m applies at t = m - 1, as in timm."""
    base = kit.base_value(context)
    schedule = multi_step(
        base, arguments["decay_rate"], [mark - 1 for mark in arguments["decay_t"]]
    )
    return _with_warmup(schedule, base, arguments, context)


def _wsd(arguments: kit.Arguments, context: kit.Context) -> Schedule:
    """A flat or slowly falling stretch, whose last ``decay_t`` steps decay to ``lr_min``."""
    base, low = kit.base_value(context), arguments["lr_min"]
    length, decay, warmup = arguments["t_initial"], arguments["decay_t"], arguments["warmup_t"]
    if decay > length:
        raise DefinitionError(f"decay_t must be at most t_initial {length}, got {decay}")
    p = sp.Min(sp.Max(t - (length - decay), 0), decay) / sp.Integer(decay)
    r = arguments["decay_ratio"]
    falls = {
        "linear": 1 - p,
        "1-sqrt": 1 - sp.sqrt(p),
        "cosine": (1 + sp.cos(sp.pi * p)) / 2,
        "power": 1 - p ** arguments["decay_power"],
        "exp": (r**p - r) / (1 - r),
    }
    stable = sp.Max(base * _stable(arguments, context), low)
    expr = low + (stable - low) * falls[arguments["decay_fn"]]
    return _with_warmup(
        Schedule(expr, name="wsd", length=length), base, arguments, context, prefix=warmup
    )


def _stable(arguments: kit.Arguments, context: kit.Context) -> sp.Expr:
    if arguments["stable_fn"] == "constant":
        return sp.Integer(1)
    scale = arguments["stable_timescale"]
    scale = sp.Integer(arguments["warmup_t"]) if scale is None else scale
    if scale <= 0:
        raise DefinitionError(
            f"stable_timescale must be above 0, got {scale}",
            hint="it is warmup_t where it is not given",
        )
    power = sp.Rational(1, 2) if arguments["stable_fn"] == "rsqrt" else arguments["stable_power"]
    return (1 + t / scale) ** -power


def _with_warmup(
    curve: Schedule,
    peak: sp.Expr,
    arguments: kit.Arguments,
    context: kit.Context,
    prefix: int | None = None,
) -> Schedule:
    """A line to ``peak`` before the curve, or, without ``warmup_prefix``, over its beginning."""
    warmup = arguments["warmup_t"]
    if not warmup:
        return curve
    start = arguments["warmup_lr_init"]
    rise = start + (peak - start) * t / sp.Integer(warmup)
    is_before = prefix is not None or arguments["warmup_prefix"]
    later = curve.bound.xreplace({t: t - warmup}) if is_before else curve.bound
    length = curve.length
    if length is not None and is_before:
        length = length + warmup
    return Schedule(sp.Piecewise((rise, t < warmup), (later, True)), name=curve.name, length=length)


def _for_group(build: kit.ScheduleBuilder) -> kit.ScheduleBuilder:
    """The builder, followed by noise and the group's ``lr_scale``."""

    def build_grouped(arguments: kit.Arguments, context: kit.Context) -> Schedule:
        schedule = build(arguments, context)
        if arguments["noise_range_t"] is not None:
            schedule = Schedule(
                _noisy(schedule.bound, arguments, context),
                name=schedule.name,
                length=schedule.length,
            )
        factor = context.group.get("lr_scale", 1)
        return schedule if factor == 1 else schedule.scale(factor)

    return build_grouped


def _noisy(value: sp.Expr, arguments: kit.Arguments, context: kit.Context) -> sp.Expr:
    if context.as_implemented:
        raise DefinitionError(
            "noise has no value as implemented: timm draws it from torch's generator",
            hint="give as_implemented=False for noise that is a formula of the step",
        )
    seed = 42 if arguments["noise_seed"] is None else arguments["noise_seed"]
    amount = noise(arguments["noise_type"], arguments["noise_pct"], arguments["noise_std"], seed)
    return noisy(value, amount, arguments["noise_range_t"])


_WARMUP = (
    kit.Parameter("warmup_t", 0, kit.checks.count(0)),
    kit.Parameter("warmup_lr_init", 0.0, kit.checks.number),
)
_NOISE = (
    kit.Parameter("noise_range_t", None, noise_range),
    kit.Parameter("noise_type", "normal", kit.checks.choice(*KINDS)),
    kit.Parameter("noise_pct", 0.67, kit.checks.positive),
    kit.Parameter("noise_std", 1.0, kit.checks.positive),
    kit.Parameter("noise_seed", None, kit.checks.count(0)),
)
_REST = (kit.Parameter("t_in_epochs", True, kit.checks.flag), *_NOISE)
_LOW = kit.Parameter("lr_min", 0.0, kit.checks.at_least(0))
_LENGTH = kit.Parameter("t_initial", kit.REQUIRED, kit.checks.count(1))
_CYCLES = (
    _LOW,
    kit.Parameter("cycle_mul", 1.0, kit.checks.at_least(1)),
    kit.Parameter("cycle_decay", 1.0, kit.checks.number),
    kit.Parameter("cycle_limit", 1, kit.checks.count(0)),
    *_WARMUP,
    kit.Parameter("warmup_prefix", False, kit.checks.flag),
    *_REST,
)
_DECAYS = (
    kit.Parameter("decay_rate", 1.0, kit.checks.number),
    *_WARMUP,
    kit.Parameter("warmup_prefix", True, kit.checks.flag),
    *_REST,
)
_K = kit.Parameter("k_decay", 1.0, kit.checks.steps)
_ENTRIES = (
    kit.ScheduleEntry(
        "CosineLRScheduler",
        ("cosine_k_decay", "warm_restarts"),
        (_LENGTH, *_CYCLES, _K),
        _build_cycles(_cosine),
    ),
    kit.ScheduleEntry(
        "TanhLRScheduler",
        ("tanh_decay",),
        (
            _LENGTH,
            kit.Parameter("lb", -7.0, kit.checks.number),
            kit.Parameter("ub", 3.0, kit.checks.number),
            *_CYCLES,
        ),
        _build_cycles(_tanh),
    ),
    kit.ScheduleEntry(
        "PolyLRScheduler",
        ("polynomial",),
        (_LENGTH, kit.Parameter("power", 0.5, kit.checks.steps), *_CYCLES, _K),
        _build_cycles(_polynomial),
    ),
    kit.ScheduleEntry(
        "StepLRScheduler",
        ("step_decay",),
        (kit.Parameter("decay_t", kit.REQUIRED, kit.checks.steps), *_DECAYS),
        _steps,
    ),
    kit.ScheduleEntry(
        "MultiStepLRScheduler",
        ("multi_step",),
        (kit.Parameter("decay_t", kit.REQUIRED, kit.checks.milestones), *_DECAYS),
        _milestones,
    ),
    kit.metric_entry(
        "PlateauLRScheduler",
        (
            kit.Parameter("decay_rate", 0.1, kit.checks.in_range(0, 1)),
            kit.Parameter("patience_t", 10, kit.checks.count(0)),
            kit.Parameter("threshold", 1e-4, kit.checks.number),
            kit.Parameter("cooldown_t", 0, kit.checks.count(0)),
            *_WARMUP,
            _LOW,
            kit.Parameter("mode", "max", kit.checks.choice(*MODES)),
            *_NOISE,
        ),
        kit.timm_plateau,
    ),
    kit.ScheduleEntry(
        "WSDLRScheduler",
        ("wsd",),
        (
            _LENGTH,
            kit.Parameter("decay_t", kit.REQUIRED, kit.checks.count(1)),
            _LOW,
            kit.Parameter("stable_fn", "constant", kit.checks.choice("constant", "rsqrt", "power")),
            kit.Parameter("stable_timescale", None, kit.checks.number),
            kit.Parameter("stable_power", 0.5, kit.checks.steps),
            kit.Parameter(
                "decay_fn",
                "1-sqrt",
                kit.checks.choice("linear", "1-sqrt", "cosine", "power", "exp"),
            ),
            kit.Parameter("decay_power", 0.5, kit.checks.steps),
            kit.Parameter("decay_ratio", 0.1, kit.checks.in_range(0, 1, is_open_below=True)),
            *_WARMUP,
            *_REST,
        ),
        _wsd,
    ),
)
SCHEDULES: Mapping[str, kit.ScheduleEntry] = {
    entry.name: entry if entry.rule else replace(entry, build=_for_group(entry.build))
    for entry in _ENTRIES
}

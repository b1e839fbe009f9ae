"""The scheduler classes of OLMo-core, from ``optim`` and ``scheduler``.

The clock counts the update itself: n = t + 1 updates, or as many tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.frameworks.curves import along_cosine, along_line
from closedform.language import Schedule, exact_number
from closedform.recipes import kit

# offset=1: the scheduler is asked for the rate of step t + 1, and of the tokens that the update
# completes.
CLOCKS = {
    "steps": kit.Clock(kit.Unit.UPDATE, offset=1),
    "tokens": kit.Clock(kit.Unit.TOKEN, offset=1),
}


Curve = Callable[[float], float]
"""From the count n to the rate: a plain function of exact numbers, which ``kit.curve`` reads."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The run for which a scheduler is built.

    Attributes:
        rate: Its initial rate.
        total: Its horizon, in the unit of the clock.
        where: The place, for errors.
    """

    rate: sp.Expr
    total: sp.Expr
    where: str


CurveBuilder = Callable[[Any, Scope], Curve]


def _length(scheduler: Scheduler, kind: str, scope: Scope) -> sp.Expr:
    """The length of a warmup or decay, from a number or a fraction of the horizon."""
    length, part = getattr(scheduler, kind), getattr(scheduler, f"{kind}_fraction")
    if isinstance(scheduler, _Warmup) and kind == "warmup" and scheduler.warmup_steps is not None:
        kit.refuse_unless(
            length is None, "only one of warmup and warmup_steps may be given", scope.where
        )
        length = scheduler.warmup_steps
    kit.refuse_unless(
        (length is None) != (part is None),
        f"exactly one of {kind} and {kind}_fraction must be given",
        scope.where,
    )
    if length is not None:
        return length
    kit.refuse_unless(0 <= part <= 1, f"{kind}_fraction must be in [0, 1], got {part}", scope.where)
    # The product of OLMo-core is one of floats.
    return sp.Integer(round(float(part) * int(scope.total)))


def _warm(scheduler: _Warmup, scope: Scope) -> tuple[Curve, sp.Expr]:
    """The warmup and its length."""
    warmup, first, rate = _length(scheduler, "warmup", scope), scheduler.warmup_min_lr, scope.rate

    def rise(n: float) -> float:
        # The assertion of upstream stands in the warmup branch: it only fails if an update is in
        # the warmup.
        if not 0 <= first < rate:
            raise AssertionError("AssertionError: warmup_min_lr must be in [0, lr)")
        return along_line(first, rate, n / warmup)

    return rise, warmup


def _after(warm: tuple[Curve, sp.Expr], curve: Curve) -> Curve:
    """A curve after a warmup, to which the update at its end belongs."""
    rise, warmup = warm
    return lambda n: rise(n) if n <= warmup else curve(n)


def _tail(count_left: float, top: float, low: float, length: float) -> float:
    """The line from a rate to the minimum at the horizon, and on past it."""
    # Likewise an assertion at the first update of the decay, such as of PowerLR where its curve
    # has fallen below decay_min_lr.
    if not 0 <= low < top:
        raise AssertionError("AssertionError: decay_min_lr must be in [0, rate where it begins)")
    return along_line(low, top, count_left / length)


def _with_tail(curve: Curve, scheduler: _Decay, scope: Scope) -> Curve:
    """A curve, from whose rate a line falls to the end of the run."""
    # decay_fraction 0.1 is a default, so that decay in updates needs an explicit null.
    length, low, total = _length(scheduler, "decay", scope), scheduler.decay_min_lr, scope.total
    begin = total - length
    # The decay tests n >= T - D, and its last update n = T has the minimum; with D = 0 that is 0/0.
    return lambda n: curve(n) if n < begin else _tail(total - n, curve(begin), low, length)


def _flat(rate: sp.Expr) -> Curve:
    return lambda n: rate


def _constant(scheduler: Scheduler, scope: Scope) -> Curve:
    del scheduler
    return _flat(scope.rate)


def _constant_warmed(scheduler: _Warmup, scope: Scope) -> Curve:
    return _after(_warm(scheduler, scope), _flat(scope.rate))


def _wsd(scheduler: _WSD, scope: Scope) -> Curve:
    return _after(_warm(scheduler, scope), _with_tail(_flat(scope.rate), scheduler, scope))


def _power(scheduler: PowerLR, scope: Scope) -> Curve:
    warm, exponent, rate = _warm(scheduler, scope), scheduler.b, scope.rate
    warmup = warm[1]  # without one, n / 0 is not defined
    curve = _with_tail(lambda n: rate * (n / warmup) ** exponent, scheduler, scope)
    # From the warmup on (n / W)^b falls; a positive b would have no bound.
    kit.refuse_unless(exponent < 0, f"b must be negative, got {exponent}", scope.where)
    return _after(warm, curve)


def _falling(
    scheduler: _Fall, scope: Scope, fall: Callable[[float, float, float], float], top: Any = 1
) -> Curve:
    """A warmup to a part of the rate, a curve to the last rate, and that after the horizon."""
    # t_max replaces the horizon of the curve, but not the length of the run.
    total = scope.total if scheduler.t_max is None else scheduler.t_max
    rate, end = scope.rate, scope.rate * scheduler.alpha_f
    rise, warmup = _warm(scheduler, replace(scope, total=total, rate=rate * top))

    def value(n: float) -> Any:
        if n < warmup:
            return rise(n)
        return fall(rate, end, (n - warmup) / (total - warmup)) if n < total else end

    return value


def _linear(scheduler: _Fall, scope: Scope) -> Curve:
    return _falling(scheduler, scope, along_line)


def _cosine(scheduler: _Fall, scope: Scope) -> Curve:
    return _falling(scheduler, scope, along_cosine)


def _half_cosine(scheduler: _Fall, scope: Scope) -> Curve:
    """The second half of a cosine of double length; the warmup ends where it begins."""
    # A half cosine begins at its midpoint, so the top is (1 + alpha_f) / 2 of the rate.
    top = (1 + scheduler.alpha_f) / 2
    return _falling(scheduler, scope, lambda a, b, x: along_cosine(a, b, (1 + x) / 2), top)


def _cosine_cut(scheduler: CosWithWarmupAndLinearDecay, scope: Scope) -> Curve:
    return _with_tail(_cosine(scheduler, scope), scheduler, scope)


def _inverse_root(scheduler: InvSqrtWithWarmup, scope: Scope) -> Curve:
    (rise, warmup), rate = _warm(scheduler, scope), scope.rate
    end = rate * scheduler.alpha_f

    def value(n: float) -> Any:
        if n < warmup:
            return rise(n)
        # InvSqrt has no horizon: without a warmup sqrt(0) leaves alpha_f from the start.
        return end + (rate - end) * math.sqrt(warmup) / math.sqrt(n)

    return value


def _exponential(scheduler: ExponentialScheduler, scope: Scope) -> Curve:
    low, rate, total = scheduler.lr_min, scope.rate, scope.total
    # Grows from lr_min to the rate, whatever the name suggests: p_min (p / p_min)^(n/T).
    return lambda n: low * (rate / low) ** (n / total) if n < total else rate


def _periods(scheduler: _WSDS, scope: Scope) -> Curve:
    where = scope.where
    lengths = scheduler.period_lengths
    factors = scheduler.period_lr_multipliers
    factors = (sp.S.One,) * len(lengths) if factors is None else factors
    kit.refuse_unless(
        len(factors) == len(lengths) and lengths,
        f"there must be one of period_lr_multipliers for each of {len(lengths)} periods, got "
        f"{len(factors)}",
        where,
    )
    first = replace(scope, total=lengths[0], rate=scope.rate * factors[0])
    # The warmup is a part of the first period, and rises to the first period's rate.
    rise, warmup = _warm(scheduler, first)
    low, periods = scheduler.decay_min_lr, []
    for index, end in enumerate(accumulate(lengths)):
        available = lengths[index] - (warmup if index == 0 else 0)
        length = _length(scheduler, "decay", replace(scope, total=lengths[index]))
        kit.refuse_unless(
            length <= available,
            f"warmup and decay must fit into period {index} of {lengths[index]}",
            where,
        )
        periods.append((scope.rate * factors[index], end, length))

    def value(n: float) -> Any:
        if n < warmup:
            return rise(n)
        for top, end, length in periods:
            if n < end - length:
                return top
            # A boundary belongs to the period that it ends. A decay of 0 updates is skipped: the
            # boundary has the minimum.
            if n <= end:
                return _tail(end - n, top, low, length) if length > 0 else low
        return low

    return value


def _ends(scheduler: Any, end: str, base: sp.Expr, default: sp.Expr | None, where: str) -> sp.Expr:
    """A rate of a stage, given so or as a fraction of the initial rate."""
    value, part = getattr(scheduler, f"{end}_lr"), getattr(scheduler, f"{end}_lr_fraction")
    kit.refuse_unless(
        value is None or part is None,
        f"only one of {end}_lr and {end}_lr_fraction may be given",
        where,
    )
    if value is not None:
        return value
    if part is not None:
        return base * part
    kit.refuse_unless(default is not None, f"{end}_lr or {end}_lr_fraction must be given", where)
    return default


_SHAPES: Mapping[str, Callable[[float, float, float], float]] = {
    "linear": along_line,
    "cosine": along_cosine,
}


def _compose(scheduler: ComposableScheduler, scope: Scope) -> Curve:
    begin, last, parts = sp.S.Zero, scope.rate, []
    for stage in scheduler.stages:
        # A stage starts where the one before ends, unless it has a start.
        start = _ends(stage, "start", scope.rate, last, scope.where)
        last = _ends(stage, "end", scope.rate, None, scope.where)
        parts.append((_SHAPES[stage.shape], start, last, begin, stage.duration))
        begin += stage.duration

    def value(n: float) -> Any:
        for shape, start, end, begin, length in parts:
            if n < begin + length:
                return shape(start, end, (n - begin) / length)
        return last  # the horizon of the run has no effect

    return _override_decay(value, scheduler, scope)


def _override_decay(curve: Curve, scheduler: _Override, scope: Scope) -> Curve:
    """The curve until the start of the override, then its decay, then its last rate."""
    override = scheduler.override_decay
    if override is None:
        return curve
    begin, length, shape = override.start, override.duration, _SHAPES[override.shape]
    end = _ends(override, "end", scope.rate, None, scope.where)

    def value(n: float) -> Any:
        if n < begin:
            return curve(n)
        return shape(curve(begin), end, (n - begin) / length) if n <= begin + length else end

    return value


def _sequence(scheduler: SequentialScheduler, scope: Scope) -> Curve:
    """The curves of the schedulers one after the other, each from the last rate of the previous."""
    specs, lengths = scheduler.origin.sections("schedulers"), scheduler.schedulers_max
    # One length for each scheduler is accepted, of which the last is ignored: the last scheduler
    # takes the rest of the run.
    lengths = lengths[: len(specs) - 1] if len(lengths) == len(specs) else lengths
    kit.refuse_unless(
        len(lengths) == len(specs) - 1,
        f"schedulers_max must be one fewer than {len(specs)} schedulers, got {len(lengths)}",
        scope.where,
    )
    parts: list[tuple[Curve, sp.Expr, sp.Expr]] = []
    rate, remaining, begin = scope.rate, scope.total, sp.S.Zero
    for spec, length in zip(specs, (*lengths, None), strict=True):
        # An inner scheduler sees its own share as the horizon, which is shorter where the run ends
        # early.
        total = remaining if length is None else min(remaining, length)
        end = scope.total if length is None else begin + length
        parts.append((_curve(spec, Scope(rate, total, scope.where)), begin, end))
        if length is not None:
            # The rate that it hands on is that of its whole share, also where the run ends before.
            full_curve = _curve(spec, Scope(rate, length, scope.where))
            rate = kit.curve(scheduler.class_, full_curve, length).bound
            remaining, begin = remaining - length, end

    def value(n: float) -> Any:
        return next(curve(n - begin) for curve, begin, end in parts if n <= end)

    return _in_run(_override_decay(value, scheduler, scope), scope)


def _in_run(curve: Curve, scope: Scope) -> Curve:
    total = scope.total

    def value(n: float) -> Any:
        if n > total:
            raise AssertionError("AssertionError: the step is past max_steps")
        return curve(n)

    return value


class Scheduler(kit.Section, irrelevant="lr_field initial_lr_field"):
    class_: str
    units: str = kit.choice(*CLOCKS, default="steps")


class _Warmup(Scheduler):
    # warmup_steps is the older name of warmup.
    warmup: kit.Number | None = None
    warmup_steps: kit.RealSteps | None = None
    warmup_fraction: kit.RunRatio | None = None
    warmup_min_lr: kit.StartRate = 0


class _Decay(Scheduler):
    decay: kit.Number | None = None
    decay_fraction: kit.RunRatio | None = kit.nullable(kit.number(0.1))
    decay_min_lr: kit.EndRate = 0


class _Last(Scheduler):
    alpha_f: kit.RateRatio = 0.1


class _Fall(_Warmup, _Last):
    t_max: kit.RealSteps | None = None


class _Rates(kit.Section):
    end_lr: kit.EndRate | None = None
    end_lr_fraction: kit.RateRatio | None = None
    shape: str = kit.choice(*_SHAPES, default="linear")
    duration: kit.Number


class _Stage(_Rates):
    start_lr: kit.StartRate | None = None
    start_lr_fraction: kit.RateRatio | None = None


class _OverrideDecay(_Rates):
    start: kit.Number


class _Override(Scheduler):
    override_decay: _OverrideDecay | None


class _WSD(_Warmup, _Decay):
    pass


class _WSDS(_WSD):
    # WSDS has no default fraction, unlike WSD.
    decay_fraction: kit.RunRatio | None = None
    period_lengths: kit.Numbers
    period_lr_multipliers: kit.Numbers | None = None


class PowerLR(_WSD):
    b: kit.Number = -0.51


class InvSqrtWithWarmup(_Warmup, _Last):
    pass


class CosWithWarmupAndLinearDecay(_Fall, _Decay):
    pass


class ExponentialScheduler(Scheduler):
    lr_min: kit.EndRate = 1e-9


class ComposableScheduler(_Override):
    stages: tuple[_Stage, ...]


class SequentialScheduler(_Override, irrelevant="schedulers"):
    schedulers_max: kit.Numbers = ()


CLASSES: Mapping[str, tuple[CurveBuilder, type[Scheduler]]] = {
    "ConstantScheduler": (_constant, Scheduler),
    "ConstantWithWarmup": (_constant_warmed, _Warmup),
    "WSD": (_wsd, _WSD),
    "PowerLR": (_power, PowerLR),
    "LinearWithWarmup": (_linear, _Fall),
    "InvSqrtWithWarmup": (_inverse_root, InvSqrtWithWarmup),
    "CosWithWarmup": (_cosine, _Fall),
    "HalfCosWithWarmup": (_half_cosine, _Fall),
    "CosWithWarmupAndLinearDecay": (_cosine_cut, CosWithWarmupAndLinearDecay),
    "ExponentialScheduler": (_exponential, ExponentialScheduler),
    "WSDS": (_periods, _WSDS),
    "ComposableScheduler": (_compose, ComposableScheduler),
    "SequentialScheduler": (_sequence, SequentialScheduler),
}
"""The classes by name, with the keys of their section."""


def scheduler_values(place: kit.RawSection) -> Scheduler:
    """Returns the values of a section ``{"class": name, …}``.

    Raises:
        ConfigError: There is no such class, or a key is unknown.
    """
    name = place.text("class")
    if name not in CLASSES:
        raise place.error(f"there is no scheduler {name!r}", "class", nearest(name, CLASSES))
    return CLASSES[name][1].read(place)


def _curve(place: kit.RawSection, scope: Scope) -> Curve:
    values = scheduler_values(place)
    return CLASSES[values.class_][0](values, scope)


def rate(
    context: kit.Context, optim: _Optim | kit.ClassOptimizer, scheduler: Scheduler
) -> Schedule:
    """Returns the schedule of a scheduler for the rate of an optimizer.

    Raises:
        ArgumentError: The length of the run or the tokens of an update are missing.
        DefinitionError: A value is refused by OLMo-core.
    """
    total = context.fact("max_tokens" if scheduler.units == "tokens" else "max_steps")
    facts = kit.Facts(tokens_per_update=context.facts.get("tokens_per_batch"))
    count = CLOCKS[scheduler.units].position(facts)
    scope = Scope(exact_number(optim.lr, "lr"), exact_number(total), context.where)
    return kit.curve(scheduler.class_, CLASSES[scheduler.class_][0](scheduler, scope), count)


_SOURCE = "src/olmo_core/optim/scheduler.py"


def _convention(text: str, place: str, name: str, *keys: str) -> kit.Note[...]:
    """A convention of a class, in the configs that give one of some keys, or in all."""

    def applies(scheduler: Any | None, is_skipping: bool) -> bool:
        del is_skipping
        return (
            scheduler is not None
            and scheduler.class_ == name
            and (not keys or any(getattr(scheduler, key) for key in keys))
        )

    return kit.Convention(text, f"{_SOURCE}{place}", applies, classes=(name,))


DEFECTS: Mapping[str, kit.Note[[Scheduler | None, bool]]] = {
    "decay-needs-null": _convention(
        "decay needs decay_fraction set to null", ":200", "WSD", "decay"
    ),
    "decay-inside-the-warmup": _convention(
        "a decay that begins inside the warmup jumps", ":221", "WSD"
    ),
    "negative-after-the-run": _convention("past the run the rate is negative", ":838", "WSD"),
    "top-of-the-half-cosine": _convention(
        "the top of the curve is half way between the rate and its end",
        ":549",
        "HalfCosWithWarmup",
    ),
    "no-root-without-a-warmup": kit.Convention(
        "without a warmup the rate is alpha_f of its value from the start",
        f"{_SOURCE}:446",
        lambda scheduler, is_skipping: (
            isinstance(scheduler, InvSqrtWithWarmup)
            and not any((scheduler.warmup, scheduler.warmup_steps, scheduler.warmup_fraction))
        ),
        classes=("InvSqrtWithWarmup",),
    ),
    "skipped-steps": kit.Convention(
        "steps whose loss or norm of the gradient is far off are skipped: those are not modelled",
        "src/olmo_core/optim/skip_step_optimizer.py (get_step_factor)",
        lambda scheduler, is_skipping: is_skipping,
        classes=(),
    ),
}


class _Optim(kit.ClassSection):
    lr: kit.Rate


SCHEDULES = {
    name: entry
    for name, (_, keys) in CLASSES.items()
    for entry in kit.section_entries(
        {name: rate},
        {"optim": _Optim, "scheduler": keys},
        style=lambda optim, scheduler: str(scheduler.class_),
    ).values()
}

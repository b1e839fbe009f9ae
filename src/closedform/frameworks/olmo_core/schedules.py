"""The scheduler classes of OLMo-core, from ``optim`` and ``scheduler``.

The clock counts the update itself: n = t + 1 updates, or as many tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import sympy as sp

from closedform.errors import nearest
from closedform.language import Schedule, exact_number
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_geometric, along_half_cosine, along_line

# offset=1: the scheduler is asked for the rate of step t + 1, and of the tokens that the update
# completes.
CLOCKS = {
    "steps": kit.Clock(kit.Unit.UPDATE, offset=1),
    "tokens": kit.Clock(kit.Unit.TOKEN, offset=1),
}


@dataclass(frozen=True, slots=True)
class CurveSegment:
    """A part of a schedule in n.

    Attributes:
        value: From n to the rate.
        end: The n of its end; None for the last stage.
        includes_end: Whether n = end still belongs to it.
    """

    value: Callable[[sp.Expr], sp.Expr]
    end: sp.Expr | None = None
    includes_end: bool = False

    def has(self, n: sp.Expr) -> bool:
        """Whether the test of the stage holds at n."""
        return self.end is None or n < self.end or (self.includes_end and n == self.end)


CurveSegments = tuple[CurveSegment, ...]


def _at(stages: CurveSegments, n: sp.Expr) -> sp.Expr:
    """The rate at a number n."""
    return next(stage for stage in stages if stage.has(n)).value(n)


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


SegmentBuilder = Callable[[Any, Scope], CurveSegments]


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


def _warm(scheduler: _Warmup, scope: Scope, *, includes_end: bool) -> tuple[CurveSegment, sp.Expr]:
    """The warmup and its length."""
    warmup = _length(scheduler, "warmup", scope)
    first = scheduler.warmup_min_lr

    def rise(n: sp.Expr) -> sp.Expr:
        # The assertion of upstream stands in the warmup branch: it only fails if an update is in
        # the warmup.
        if not 0 <= first < scope.rate:
            raise kit.UndefinedError("AssertionError: warmup_min_lr must be in [0, lr)")
        return along_line(first, scope.rate, kit.quotient(n, warmup))

    return CurveSegment(rise, warmup, includes_end), warmup


def _tail(
    start: Callable[[], sp.Expr], low: sp.Expr, total: sp.Expr, length: sp.Expr
) -> Callable[[sp.Expr], sp.Expr]:
    """The line from a rate to the minimum at the horizon, and on past it."""

    def fall(n: sp.Expr) -> sp.Expr:
        top = start()
        # Likewise an assertion at the first update of the decay, such as of PowerLR where its curve
        # has fallen below decay_min_lr.
        if not 0 <= low < top:
            raise kit.UndefinedError(
                "AssertionError: decay_min_lr must be in [0, rate where it begins)"
            )
        return along_line(low, top, kit.quotient(total - n, length))

    return fall


def _constant(scheduler: Scheduler, scope: Scope) -> CurveSegments:
    del scheduler
    return (CurveSegment(lambda n: scope.rate),)


def _constant_warmed(scheduler: _Warmup, scope: Scope) -> CurveSegments:
    warm, _ = _warm(scheduler, scope, includes_end=True)
    return warm, CurveSegment(lambda n: scope.rate)


def _decay(scheduler: _Decay, scope: Scope) -> tuple[sp.Expr, sp.Expr]:
    """The length of the decay and its minimum."""
    low = scheduler.decay_min_lr
    return _length(scheduler, "decay", scope), low


def _wsd(scheduler: _WSD, scope: Scope) -> CurveSegments:
    warm, _ = _warm(scheduler, scope, includes_end=True)
    # decay_fraction 0.1 is a default, so that decay in updates needs an explicit null.
    length, low = _decay(scheduler, scope)
    fall = _tail(lambda: scope.rate, low, scope.total, length)
    # The decay tests n >= T - D, and its last update n = T has the minimum; with D = 0 that is 0/0.
    return warm, CurveSegment(lambda n: scope.rate, scope.total - length), CurveSegment(fall)


def _power(scheduler: PowerLR, scope: Scope) -> CurveSegments:
    warm, warmup = _warm(scheduler, scope, includes_end=True)
    length, low = _decay(scheduler, scope)
    exponent = scheduler.b
    # From the warmup on (n / W)^b falls; a positive b would have no bound.
    kit.refuse_unless(exponent < 0, f"b must be negative, got {exponent}", scope.where)

    def curve(n: sp.Expr) -> sp.Expr:
        # Without a warmup n / 0 (olmo_core-PowerLR-034): quotient leaves it undefined.
        return scope.rate * kit.quotient(n, warmup) ** exponent

    begin = scope.total - length
    return (
        warm,
        CurveSegment(curve, begin),
        CurveSegment(_tail(lambda: curve(begin), low, scope.total, length)),
    )


def _falling(
    scheduler: _Fall, scope: Scope, fall: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]
) -> CurveSegments:
    """A warmup, a curve from the rate to the last one, and that after the horizon."""
    # t_max replaces the horizon of the curve, but not the length of the run.
    total = scheduler.t_max
    total = scope.total if total is None else total
    warm, warmup = _warm(scheduler, replace(scope, total=total), includes_end=False)
    end = scope.rate * scheduler.alpha_f

    def value(n: sp.Expr) -> sp.Expr:
        return fall(scope.rate, end, kit.quotient(n - warmup, total - warmup))

    return warm, CurveSegment(value, total), CurveSegment(lambda n: end)


def _linear(scheduler: _Fall, scope: Scope) -> CurveSegments:
    return _falling(scheduler, scope, along_line)


def _cosine(scheduler: _Fall, scope: Scope) -> CurveSegments:
    return _falling(scheduler, scope, along_cosine)


def _half_cosine(scheduler: _Fall, scope: Scope) -> CurveSegments:
    """The second half of a cosine of double length; the warmup ends where it begins."""
    end = scheduler.alpha_f
    top = scope.rate * (1 + end) / 2
    # A half cosine begins at its midpoint, so the top is (1 + alpha_f) / 2 of the rate.
    _, *rest = _falling(scheduler, scope, along_half_cosine)
    total = scheduler.t_max
    total = scope.total if total is None else total
    warm, _ = _warm(scheduler, replace(scope, rate=top, total=total), includes_end=False)
    return warm, *rest


def _cosine_cut(scheduler: CosWithWarmupAndLinearDecay, scope: Scope) -> CurveSegments:
    inner = _cosine(scheduler, scope)
    length, low = _decay(scheduler, scope)
    begin = scope.total - length
    before = [
        # A stage that reaches into the decay is cut there; later ones have an empty interval, which
        # by_intervals drops.
        stage if stage.end is not None and stage.end < begin else CurveSegment(stage.value, begin)
        for stage in inner
    ]
    fall = _tail(lambda: _at(inner, begin), low, scope.total, length)
    return *before, CurveSegment(fall)


def _inverse_root(scheduler: InvSqrtWithWarmup, scope: Scope) -> CurveSegments:
    warm, warmup = _warm(scheduler, scope, includes_end=False)
    end = scope.rate * scheduler.alpha_f

    def fall(n: sp.Expr) -> sp.Expr:
        # InvSqrt has no horizon: without a warmup sqrt(0) leaves alpha_f from the start.
        return end + (scope.rate - end) * sp.sqrt(warmup) / sp.sqrt(n)

    return warm, CurveSegment(fall)


def _exponential(scheduler: ExponentialScheduler, scope: Scope) -> CurveSegments:
    low = scheduler.lr_min

    def rise(n: sp.Expr) -> sp.Expr:
        # Grows from lr_min to the rate, whatever the name suggests: p_min (p / p_min)^(n/T).
        return along_geometric(low, scope.rate, n / scope.total)

    return CurveSegment(rise, scope.total), CurveSegment(lambda n: scope.rate)


def _periods(scheduler: _WSDS, scope: Scope) -> CurveSegments:
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
    warm, warmup = _warm(scheduler, first, includes_end=False)
    low = scheduler.decay_min_lr
    stages = [warm]
    for index, end in enumerate(accumulate(lengths)):
        available = lengths[index] - (warmup if index == 0 else 0)
        length = _length(scheduler, "decay", replace(scope, total=lengths[index]))
        kit.refuse_unless(
            length <= available,
            f"warmup and decay must fit into period {index} of {lengths[index]}",
            where,
        )
        rate = scope.rate * factors[index]
        stages.append(CurveSegment(_rate_of_step(rate), end - length))
        # A decay of 0 updates is skipped: the boundary has the minimum.
        fall = _tail(_start_of_fall(rate), low, end, length) if length > 0 else _rate_of_step(low)
        # A boundary belongs to the period that it ends.
        stages.append(CurveSegment(fall, end, includes_end=True))
    return *stages, CurveSegment(lambda n: low)


def _rate_of_step(rate: sp.Expr) -> Callable[[sp.Expr], sp.Expr]:
    return lambda n: rate


def _start_of_fall(rate: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: rate


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


_SHAPES: Mapping[str, Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]] = {
    "linear": along_line,
    "cosine": along_cosine,
}


def _line_stage(
    shape: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr],
    start: sp.Expr,
    end: sp.Expr,
    begin: sp.Expr,
    length: sp.Expr,
) -> CurveSegment:
    def value(n: sp.Expr) -> sp.Expr:
        return shape(start, end, kit.quotient(n - begin, length))

    return CurveSegment(value, begin + length)


def _compose_segments(scheduler: ComposableScheduler, scope: Scope) -> CurveSegments:
    begin, last, stages = sp.S.Zero, scope.rate, []
    for segment in scheduler.stages:
        length = segment.duration
        # A stage starts where the one before ends, unless it has a start.
        start = _ends(segment, "start", scope.rate, last, scope.where)
        last = _ends(segment, "end", scope.rate, None, scope.where)
        stages.append(_line_stage(_SHAPES[segment.shape], start, last, begin, length))
        begin += length
    # The horizon of the run has no effect: after the last stage its end rate goes on.
    return _override_decay((*stages, CurveSegment(_rate_of_step(last))), scheduler, scope)


def _override_decay(stages: CurveSegments, scheduler: _Override, scope: Scope) -> CurveSegments:
    """The stages until the start of the override, then its decay, then its last rate."""
    override = scheduler.override_decay
    if override is None:
        return stages
    begin = override.start
    length = override.duration
    end = _ends(override, "end", scope.rate, None, scope.where)
    shape = _SHAPES[override.shape]

    def value(n: sp.Expr) -> sp.Expr:
        return shape(_at(stages, begin), end, kit.quotient(n - begin, length))

    before = [
        stage if stage.end is not None and stage.end < begin else CurveSegment(stage.value, begin)
        for stage in stages
    ]
    decay = CurveSegment(value, begin + length, includes_end=True)
    return *before, decay, CurveSegment(_rate_of_step(end))


def _sequence(scheduler: SequentialScheduler, scope: Scope) -> CurveSegments:
    specs, lengths = scheduler.origin.sections("schedulers"), scheduler.schedulers_max
    # One length for each scheduler is accepted, of which the last is ignored: the last scheduler
    # takes the rest of the run.
    lengths = lengths[: len(specs) - 1] if len(lengths) == len(specs) else lengths
    kit.refuse_unless(
        len(lengths) == len(specs) - 1,
        f"schedulers_max must be one fewer than {len(specs)} schedulers, got {len(lengths)}",
        scope.where,
    )
    stages: list[CurveSegment] = []
    rate, rest, begin = scope.rate, scope.total, sp.S.Zero
    for spec, length in zip(specs, (*lengths, None), strict=True):
        # An inner scheduler sees its own share as the horizon, which is shorter where the run ends
        # early.
        total = rest if length is None else min(rest, length)
        inner = _stages(spec, Scope(rate, total, scope.where))
        end = scope.total if length is None else begin + length
        stages += [_shift_stage(stage, begin, end) for stage in inner]
        if length is not None:
            # The rate that it hands on is that of its whole share, also where the run ends before.
            whole = _stages(spec, Scope(rate, length, scope.where))
            rate, rest, begin = _at(whole, length), rest - length, end
    stages.append(CurveSegment(_past_the_end))
    overridden_stages = _override_decay(tuple(stages), scheduler, scope)
    # Without an override the stages are unchanged; the identity of the last one shows it.
    if overridden_stages[-1].value is _past_the_end:
        return overridden_stages
    inside = [_shift_stage(stage, sp.S.Zero, scope.total) for stage in overridden_stages]
    return *inside, CurveSegment(_past_the_end)


def _shift_stage(stage: CurveSegment, begin: sp.Expr, limit: sp.Expr) -> CurveSegment:
    """A stage on a clock that begins at ``begin``, up to and with ``limit``."""

    def value(n: sp.Expr) -> sp.Expr:
        return stage.value(n - begin)

    if stage.end is None or stage.end + begin > limit:
        return CurveSegment(value, limit, includes_end=True)
    return CurveSegment(value, stage.end + begin, stage.includes_end)


def _past_the_end(n: sp.Expr) -> sp.Expr:
    del n
    raise kit.UndefinedError("AssertionError: the step is past max_steps")


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


CLASSES: Mapping[str, tuple[SegmentBuilder, type[Scheduler]]] = {
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
    "ComposableScheduler": (_compose_segments, ComposableScheduler),
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


def _stages(place: kit.RawSection, scope: Scope) -> CurveSegments:
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
    count = CLOCKS[scheduler.units].count(
        kit.Facts(tokens_per_update=context.facts.get("tokens_per_batch"))
    )

    def end(stage: CurveSegment) -> int | None:
        if stage.end is None:
            return None
        return (count.first_after if stage.includes_end else count.first_from)(stage.end)

    scope = Scope(exact_number(optim.lr, "lr"), exact_number(total), context.where)
    name = scheduler.class_
    stages: Sequence[CurveSegment] = CLASSES[name][0](scheduler, scope)
    # The stage is bound as a default argument: a closure in a generator would see the last one.
    return kit.by_intervals(
        name, *((lambda stage=stage: stage.value(count.n), end(stage)) for stage in stages)
    )


_SOURCE = "src/olmo_core/optim/scheduler.py"


def _convention(text: str, place: str, name: str, *keys: str) -> kit.Defect[...]:
    """A convention of a class, in the configs that give one of some keys, or in all."""

    def applies(scheduler: Any | None, is_skipping: bool) -> bool:
        del is_skipping
        return (
            scheduler is not None
            and scheduler.class_ == name
            and (not keys or any(getattr(scheduler, key) for key in keys))
        )

    return kit.Defect(
        text, f"{_SOURCE}{place}", applies, kind=kit.DefectKind.CONVENTION, classes=(name,)
    )


DEFECTS: Mapping[str, kit.Defect[[Scheduler | None, bool]]] = {
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
    "no-root-without-a-warmup": kit.Defect(
        "without a warmup the rate is alpha_f of its value from the start",
        f"{_SOURCE}:446",
        lambda scheduler, is_skipping: (
            isinstance(scheduler, InvSqrtWithWarmup)
            and not any((scheduler.warmup, scheduler.warmup_steps, scheduler.warmup_fraction))
        ),
        kind=kit.DefectKind.CONVENTION,
        classes=("InvSqrtWithWarmup",),
    ),
    "skipped-steps": kit.Defect(
        "steps whose loss or norm of the gradient is far off are skipped: those are not modelled",
        "src/olmo_core/optim/skip_step_optimizer.py (get_step_factor)",
        lambda scheduler, is_skipping: is_skipping,
        kind=kit.DefectKind.CONVENTION,
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

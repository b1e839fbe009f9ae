"""The scheduler classes of OLMo-core, from ``optim`` and ``scheduler``.

The clock counts the update itself: n = t + 1 updates, or as many tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import sympy as sp

from closedform.errors import UnknownNameError, nearest
from closedform.language import Schedule
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import (
    UndefinedError,
    by_intervals,
    first_after,
    first_from,
    quotient,
)
from closedform.recipes.native import (
    check_name,
    entry,
    exact,
    fact,
    number,
    options,
    refuse_unless,
)
from closedform.recipes.olmo_core.counting import counting
from closedform.schedules.blends import along_cosine, along_geometric, along_half_cosine, along_line

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
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


Stages = tuple[Stage, ...]


def _at(stages: Stages, n: sp.Expr) -> sp.Expr:
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


Curve = Callable[[Arguments, Scope], Stages]


def _length(given: Arguments, kind: str, scope: Scope) -> sp.Expr:
    """The length of a warmup or decay, from a number or a fraction of the horizon."""
    fixed, part = given[kind], given[f"{kind}_fraction"]
    if kind == "warmup" and given["warmup_steps"] is not None:
        refuse_unless(
            fixed is None, "only one of warmup and warmup_steps may be given", scope.where
        )
        fixed = given["warmup_steps"]
    refuse_unless(
        (fixed is None) != (part is None),
        f"exactly one of {kind} and {kind}_fraction must be given",
        scope.where,
    )
    if fixed is not None:
        return number(fixed, kind, scope.where)
    number(part, f"{kind}_fraction", scope.where)
    refuse_unless(0 <= part <= 1, f"{kind}_fraction must be in [0, 1], got {part}", scope.where)
    return exact(round(part * int(scope.total)))


def _warm(given: Arguments, scope: Scope, *, includes_end: bool) -> tuple[Stage, sp.Expr]:
    """The warmup and its length."""
    warmup = _length(given, "warmup", scope)
    first = number(given["warmup_min_lr"], "warmup_min_lr", scope.where)

    def rise(n: sp.Expr) -> sp.Expr:
        if not 0 <= first < scope.rate:
            raise UndefinedError("AssertionError: warmup_min_lr must be in [0, lr)")
        return along_line(first, scope.rate, quotient(n, warmup))

    return Stage(rise, warmup, includes_end), warmup


def _tail(
    start: Callable[[], sp.Expr], low: sp.Expr, total: sp.Expr, length: sp.Expr
) -> Callable[[sp.Expr], sp.Expr]:
    """The line from a rate to the minimum at the horizon, and on past it."""

    def fall(n: sp.Expr) -> sp.Expr:
        top = start()
        if not 0 <= low < top:
            raise UndefinedError(
                "AssertionError: decay_min_lr must be in [0, rate where it begins)"
            )
        return along_line(low, top, quotient(total - n, length))

    return fall


def _constant(given: Arguments, scope: Scope) -> Stages:
    del given
    return (Stage(lambda n: scope.rate),)


def _constant_warmed(given: Arguments, scope: Scope) -> Stages:
    warm, _ = _warm(given, scope, includes_end=True)
    return warm, Stage(lambda n: scope.rate)


def _decay(given: Arguments, scope: Scope) -> tuple[sp.Expr, sp.Expr]:
    """The length of the decay and its minimum."""
    low = number(given["decay_min_lr"], "decay_min_lr", scope.where)
    return _length(given, "decay", scope), low


def _wsd(given: Arguments, scope: Scope) -> Stages:
    warm, _ = _warm(given, scope, includes_end=True)
    length, low = _decay(given, scope)
    fall = _tail(lambda: scope.rate, low, scope.total, length)
    return warm, Stage(lambda n: scope.rate, scope.total - length), Stage(fall)


def _power(given: Arguments, scope: Scope) -> Stages:
    warm, warmup = _warm(given, scope, includes_end=True)
    length, low = _decay(given, scope)
    exponent = number(given["b"], "b", scope.where)
    refuse_unless(exponent < 0, f"b must be negative, got {exponent}", scope.where)

    def curve(n: sp.Expr) -> sp.Expr:
        return scope.rate * quotient(n, warmup) ** exponent

    begin = scope.total - length
    return warm, Stage(curve, begin), Stage(_tail(lambda: curve(begin), low, scope.total, length))


def _falling(
    given: Arguments, scope: Scope, fall: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]
) -> Stages:
    """A warmup, a curve from the rate to the last one, and that after the horizon."""
    total = given["t_max"]
    total = scope.total if total is None else number(total, "t_max", scope.where)
    warm, warmup = _warm(given, replace(scope, total=total), includes_end=False)
    end = scope.rate * number(given["alpha_f"], "alpha_f", scope.where)

    def value(n: sp.Expr) -> sp.Expr:
        return fall(scope.rate, end, quotient(n - warmup, total - warmup))

    return warm, Stage(value, total), Stage(lambda n: end)


def _linear(given: Arguments, scope: Scope) -> Stages:
    return _falling(given, scope, along_line)


def _cosine(given: Arguments, scope: Scope) -> Stages:
    return _falling(given, scope, along_cosine)


def _half_cosine(given: Arguments, scope: Scope) -> Stages:
    """The second half of a cosine of double length; the warmup ends where it begins."""
    end = number(given["alpha_f"], "alpha_f", scope.where)
    top = scope.rate * (1 + end) / 2
    _, *rest = _falling(given, scope, along_half_cosine)
    total = given["t_max"]
    total = scope.total if total is None else number(total, "t_max", scope.where)
    warm, _ = _warm(given, replace(scope, rate=top, total=total), includes_end=False)
    return warm, *rest


def _cosine_cut(given: Arguments, scope: Scope) -> Stages:
    inner = _cosine(given, scope)
    length, low = _decay(given, scope)
    begin = scope.total - length
    before = [
        stage if stage.end is not None and stage.end < begin else Stage(stage.value, begin)
        for stage in inner
    ]
    fall = _tail(lambda: _at(inner, begin), low, scope.total, length)
    return *before, Stage(fall)


def _inverse_root(given: Arguments, scope: Scope) -> Stages:
    warm, warmup = _warm(given, scope, includes_end=False)
    end = scope.rate * number(given["alpha_f"], "alpha_f", scope.where)

    def fall(n: sp.Expr) -> sp.Expr:
        return end + (scope.rate - end) * sp.sqrt(warmup) / sp.sqrt(n)

    return warm, Stage(fall)


def _exponential(given: Arguments, scope: Scope) -> Stages:
    low = number(given["lr_min"], "lr_min", scope.where)

    def rise(n: sp.Expr) -> sp.Expr:
        return along_geometric(low, scope.rate, n / scope.total)

    return Stage(rise, scope.total), Stage(lambda n: scope.rate)


def _periods(given: Arguments, scope: Scope) -> Stages:
    where = scope.where
    lengths = [number(value, "period_lengths", where) for value in given["period_lengths"]]
    factors = given["period_lr_multipliers"]
    factors = [1] * len(lengths) if factors is None else factors
    refuse_unless(
        len(factors) == len(lengths) and lengths,
        f"there must be one of period_lr_multipliers for each of {len(lengths)} periods, got "
        f"{len(factors)}",
        where,
    )
    first = replace(scope, total=lengths[0], rate=scope.rate * exact(factors[0]))
    warm, warmup = _warm(given, first, includes_end=False)
    low = number(given["decay_min_lr"], "decay_min_lr", where)
    stages = [warm]
    for index, end in enumerate(accumulate(lengths)):
        own = lengths[index] - (warmup if index == 0 else 0)
        length = _length(given, "decay", replace(scope, total=lengths[index]))
        refuse_unless(
            length <= own,
            f"warmup and decay must fit into period {index} of {lengths[index]}",
            where,
        )
        rate = scope.rate * exact(factors[index])
        stages.append(Stage(_fixed(rate), end - length))
        fall = _tail(_given(rate), low, end, length) if length > 0 else _fixed(low)
        stages.append(Stage(fall, end, includes_end=True))
    return *stages, Stage(lambda n: low)


def _fixed(rate: sp.Expr) -> Callable[[sp.Expr], sp.Expr]:
    return lambda n: rate


def _given(rate: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: rate


def _ends(
    given: Arguments, end: str, base: sp.Expr, default: sp.Expr | None, where: str
) -> sp.Expr:
    """A rate of a stage, given so or as a fraction of the initial rate."""
    value, part = given[f"{end}_lr"], given[f"{end}_lr_fraction"]
    refuse_unless(
        value is None or part is None,
        f"only one of {end}_lr and {end}_lr_fraction may be given",
        where,
    )
    if value is not None:
        return number(value, f"{end}_lr", where)
    if part is not None:
        return base * number(part, f"{end}_lr_fraction", where)
    refuse_unless(default is not None, f"{end}_lr or {end}_lr_fraction must be given", where)
    return default


_SHAPES: Mapping[str, Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]] = {
    "linear": along_line,
    "cosine": along_cosine,
}


def _shape(given: Arguments, where: str) -> Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr]:
    shape = given["shape"]
    refuse_unless(shape in _SHAPES, f"shape must be linear or cosine, got {shape!r}", where)
    return _SHAPES[shape]


def _line_stage(
    shape: Callable[[sp.Expr, sp.Expr, sp.Expr], sp.Expr],
    start: sp.Expr,
    end: sp.Expr,
    begin: sp.Expr,
    length: sp.Expr,
) -> Stage:
    def value(n: sp.Expr) -> sp.Expr:
        return shape(start, end, quotient(n - begin, length))

    return Stage(value, begin + length)


def _composed(given: Arguments, scope: Scope) -> Stages:
    begin, last, stages = sp.S.Zero, scope.rate, []
    for spec in given["stages"]:
        own = options(spec, scope.where, _STAGE)
        length = number(own["duration"], "duration", scope.where)
        start = _ends(own, "start", scope.rate, last, scope.where)
        last = _ends(own, "end", scope.rate, None, scope.where)
        stages.append(_line_stage(_shape(own, scope.where), start, last, begin, length))
        begin += length
    return _overridden((*stages, Stage(_fixed(last))), given, scope)


def _overridden(stages: Stages, given: Arguments, scope: Scope) -> Stages:
    """The stages until the start of the override, then its decay, then its last rate."""
    if given["override_decay"] is None:
        return stages
    own = options(given["override_decay"], scope.where, _OVERRIDE)
    begin = number(own["start"], "start", scope.where)
    length = number(own["duration"], "duration", scope.where)
    end = _ends(own, "end", scope.rate, None, scope.where)
    shape = _shape(own, scope.where)

    def value(n: sp.Expr) -> sp.Expr:
        return shape(_at(stages, begin), end, quotient(n - begin, length))

    before = [
        stage if stage.end is not None and stage.end < begin else Stage(stage.value, begin)
        for stage in stages
    ]
    decay = Stage(value, begin + length, includes_end=True)
    return *before, decay, Stage(_fixed(end))


def _sequence(given: Arguments, scope: Scope) -> Stages:
    specs, lengths = given["schedulers"], [exact(value) for value in given["schedulers_max"]]
    lengths = lengths[: len(specs) - 1] if len(lengths) == len(specs) else lengths
    refuse_unless(
        len(lengths) == len(specs) - 1,
        f"schedulers_max must be one fewer than {len(specs)} schedulers, got {len(lengths)}",
        scope.where,
    )
    stages: list[Stage] = []
    rate, rest, begin = scope.rate, scope.total, sp.S.Zero
    for spec, length in zip(specs, (*lengths, None), strict=True):
        total = rest if length is None else min(rest, length)
        inner = _stages(spec, Scope(rate, total, scope.where))
        end = scope.total if length is None else begin + length
        stages += [_moved(stage, begin, end) for stage in inner]
        if length is not None:
            whole = _stages(spec, Scope(rate, length, scope.where))
            rate, rest, begin = _at(whole, length), rest - length, end
    stages.append(Stage(_past_the_end))
    made = _overridden(tuple(stages), given, scope)
    if made[-1].value is _past_the_end:
        return made
    inside = [_moved(stage, sp.S.Zero, scope.total) for stage in made]
    return *inside, Stage(_past_the_end)


def _moved(stage: Stage, begin: sp.Expr, limit: sp.Expr) -> Stage:
    """A stage on a clock that begins at ``begin``, up to and with ``limit``."""

    def value(n: sp.Expr) -> sp.Expr:
        return stage.value(n - begin)

    if stage.end is None or stage.end + begin > limit:
        return Stage(value, limit, includes_end=True)
    return Stage(value, stage.end + begin, stage.includes_end)


def _past_the_end(n: sp.Expr) -> sp.Expr:
    del n
    raise UndefinedError("AssertionError: the step is past max_steps")


_WARMUP = {"warmup": None, "warmup_steps": None, "warmup_fraction": None, "warmup_min_lr": 0.0}
_DECAY = {"decay": None, "decay_fraction": 0.1, "decay_min_lr": 0.0}
_FALL = {**_WARMUP, "alpha_f": 0.1, "t_max": None}
_RATES = {"end_lr": None, "end_lr_fraction": None, "shape": "linear", "duration": REQUIRED}
_STAGE = {**_RATES, "start_lr": None, "start_lr_fraction": None}
_OVERRIDE = {**_RATES, "start": REQUIRED}
CLASSES: Mapping[str, tuple[Curve, Arguments]] = {
    "ConstantScheduler": (_constant, {}),
    "ConstantWithWarmup": (_constant_warmed, _WARMUP),
    "WSD": (_wsd, {**_WARMUP, **_DECAY}),
    "PowerLR": (_power, {**_WARMUP, **_DECAY, "b": -0.51}),
    "LinearWithWarmup": (_linear, _FALL),
    "InvSqrtWithWarmup": (_inverse_root, {**_WARMUP, "alpha_f": 0.1}),
    "CosWithWarmup": (_cosine, _FALL),
    "HalfCosWithWarmup": (_half_cosine, _FALL),
    "CosWithWarmupAndLinearDecay": (_cosine_cut, {**_FALL, **_DECAY}),
    "ExponentialScheduler": (_exponential, {"lr_min": 1e-9}),
    "WSDS": (
        _periods,
        {
            **_WARMUP,
            **_DECAY,
            "decay_fraction": None,
            "period_lengths": REQUIRED,
            "period_lr_multipliers": None,
        },
    ),
    "ComposableScheduler": (_composed, {"stages": REQUIRED, "override_decay": None}),
    "SequentialScheduler": (
        _sequence,
        {"schedulers": REQUIRED, "schedulers_max": (), "override_decay": None},
    ),
}
"""The classes, with the defaults of their arguments."""


def _stages(spec: Arguments, scope: Scope) -> Stages:
    """The stages of ``{"class": name, …}``."""
    name = entry(spec, "class", scope.where)
    if name not in CLASSES:
        raise UnknownNameError(
            f"olmo_core has no scheduler {name!r}",
            where=scope.where,
            hint=nearest(str(name), CLASSES),
        )
    curve, defaults = CLASSES[name]
    defaults = {"class": REQUIRED, "units": "steps", **defaults}
    return curve(options(spec, scope.where, defaults), scope)


def _build(given: Arguments, context: Context) -> Schedule:
    where, spec = context.where, given["scheduler"]
    check_name(context.path[-1], entry(spec, "class", where), "scheduler.class", where)
    unit = spec.get("units", "steps")
    clock = counting(unit, context)
    total = exact(fact(context, "max_tokens" if unit == "tokens" else "max_steps"))
    rate = number(entry(given["optim"], "lr", where), "lr", where)

    def end(stage: Stage) -> int | None:
        if stage.end is None:
            return None
        mark = stage.end / clock.per_update - 1
        return first_after(mark) if stage.includes_end else first_from(mark)

    stages: Sequence[Stage] = _stages(spec, Scope(rate, total, where))
    return by_intervals(
        context.path[-1],
        *((lambda stage=stage: stage.value(clock.n), end(stage)) for stage in stages),
    )


_PARAMETERS = parameters(optim=REQUIRED, scheduler=REQUIRED)
_NOTES: Mapping[str, tuple[str, ...]] = {
    "WSD": (
        "decay needs decay_fraction set to null",
        "a decay that begins inside the warmup jumps",
        "past the run the rate is negative",
    ),
    "HalfCosWithWarmup": ("the top of the curve is half way between the rate and its end",),
    "InvSqrtWithWarmup": ("without a warmup the rate is alpha_f of its value from the start",),
}
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=_NOTES.get(name, ()))
    for name in CLASSES
}

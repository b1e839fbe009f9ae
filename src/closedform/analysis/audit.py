"""Audits: the values of a schedule where mistakes show, and other frameworks at its settings.

The settings are inferred from the values: a rise from a start to a peak over W steps, then one
decay to an end, or none. Each framework receives these settings under its own names; where its
values differ from the schedule's, the step and both exact values are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from flint import arb

from closedform import frameworks, schedules
from closedform.effort import Effort
from closedform.errors import VerificationError
from closedform.ir.types import FloatArray, StepArray
from closedform.language import Schedule, t
from closedform.language.exact import to_float
from closedform.verify.claims.continuity import Jump, cells_of, jumps
from closedform.verify.claims.guesses import phases
from closedform.verify.claims.reading import CLOCK, read_schedule
from closedform.verify.claims.values import equal_to
from closedform.verify.tactics.real_line import TIME
from closedform.verify.terms.build import rational, substitute
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.limits import LIMITS
from closedform.verify.terms.tree import walk

# Two float64 values of one number differ by less than this part of the peak.
_SAME = 1e-9


CONSTANT, LINEAR, COSINE = "constant", "linear", "cosine"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a schedule with a warmup and one decay.

    Attributes:
        start: The value at step 0.
        peak: The value at the end of the warmup.
        end: The value at the end of the decay.
        warmup: The number of steps of the warmup, 0 for none.
        total: The step at which the decay ends.
        shape: ``linear``, ``cosine``, or ``constant`` if there is no decay.
    """

    start: sp.Expr
    peak: sp.Expr
    end: sp.Expr
    warmup: int
    total: int
    shape: str

    @property
    def decay(self) -> int:
        """The number of steps of the decay."""
        return self.total - self.warmup


@dataclass(frozen=True, slots=True)
class AuditDifference:
    """A step at which two schedules differ, with the exact value of each."""

    step: int
    ours: sp.Expr
    theirs: sp.Expr


@dataclass(frozen=True, slots=True)
class Comparison:
    """The schedule of a framework at the settings.

    Attributes:
        framework: The framework.
        first: The first step that differs; None where none does.
        largest: The step that differs most.
        is_proved: Whether equality at every step of the run is proved.
    """

    framework: str
    first: AuditDifference | None
    largest: AuditDifference | None
    is_proved: bool = False


@dataclass(frozen=True, slots=True)
class Audit:
    """The values of a schedule over a run.

    Attributes:
        schedule: The schedule.
        total: The number of steps T of the run.
        warmup: The number of steps W of its warmup; None if it does not begin with a rise.
        values: The exact values around 0, W and T, by step.
        peak: The step of the largest value.
        area: The sum of the values of all steps before T, in float64.
        jumps: The jumps up to T.
        settings: Its warmup and decay; None if it has another shape.
        comparisons: Other frameworks at these settings.
    """

    schedule: Schedule
    total: int
    warmup: int | None
    values: Mapping[int, sp.Expr]
    peak: int
    area: float
    jumps: tuple[Jump, ...]
    settings: Settings | None
    comparisons: tuple[Comparison, ...]


def audit(schedule: Schedule, total: int | None = None) -> Audit:
    """Returns the audit of a schedule over a run of ``total`` steps.

    Args:
        schedule: The schedule; every hyperparameter has a value.
        total: The number of steps of the run; the length of the schedule if not given.

    Raises:
        VerificationError: A hyperparameter is open, ``total`` is missing where the schedule has no
            length, or it is not from 1 to 2,000,000.

    Example:
        >>> found = audit(schedules.linear(0, 1, 4).then(schedules.cosine(1, 0, 6)))
        >>> found.warmup, found.total, found.peak, found.values[3], found.settings.shape
        (4, 10, 4, 3/4, 'cosine')
    """
    where = f"schedule {schedule.name!r}"
    if schedule.open:
        raise VerificationError(
            f"{schedule.open[0]} has no value", where=where, hint="give it one with bind()"
        )
    steps = int(schedule.length) if total is None and schedule.length is not None else total
    if steps is None:
        raise VerificationError(
            "a schedule without a length needs the number of steps of the run", where=where
        )
    if not 1 <= steps <= LIMITS.audit_steps:
        raise VerificationError(
            f"the number of steps must be from 1 to {LIMITS.audit_steps:,}, got {steps}",
            where=where,
        )
    totals = _Totals.of(schedule, steps)
    warmup = _warmup_of(schedule)
    marks = {0, steps - 1, steps, steps + 1} | ({warmup - 1, warmup} if warmup else set())
    settings = _settings_of(schedule, warmup, steps)
    return Audit(
        schedule=schedule,
        total=steps,
        warmup=warmup,
        values={step: schedule.exact(step) for step in sorted(marks)},
        peak=totals.peak,
        area=totals.area,
        jumps=jumps(schedule, steps),
        settings=settings,
        comparisons=() if settings is None else tuple(_compare(schedule, settings, steps)),
    )


@dataclass(frozen=True, slots=True)
class _Totals:
    """The step of the largest float64 value of steps 0..T, and the sum of those before T."""

    peak: int
    area: float

    @classmethod
    def of(cls, schedule: Schedule, total: int) -> _Totals:
        sums, peak, highest = [], 0, -math.inf
        for steps, values in _chunks(schedule, total):
            # fsum of fsums: exact within a chunk, so that the area does not depend on the size of
            # chunks but by an ulp.
            sums.append(math.fsum(values[steps < total]))
            if values.max() > highest:
                peak, highest = int(steps[values.argmax()]), float(values.max())
        return cls(peak, math.fsum(sums))


def _chunks(schedule: Schedule, total: int) -> Iterator[tuple[StepArray, FloatArray]]:
    """The steps 0..total and the float64 values there, some at a time."""
    for begin in range(0, total + 1, LIMITS.audit_chunk):
        steps = np.arange(begin, min(begin + LIMITS.audit_chunk, total + 1))
        yield steps, np.asarray(schedule(steps), dtype=np.float64)


# --- the settings --------------------------------------------------------------------------------


def _warmup_of(schedule: Schedule) -> int | None:
    """The end of the rise that the schedule begins with."""
    schedule_phases = phases(read_schedule(schedule))
    if not schedule_phases or schedule_phases[0].direction != "increasing":
        return None
    last = _constant_from(schedule) if schedule_phases[0].last is None else schedule_phases[0].last
    if last is None:
        return None
    # A flat stretch after the rise belongs to the same phase.
    peak = schedule.exact(last)
    turns = (cell.first for cell in cells_of(schedule) if 0 < cell.first <= last)
    return next((turn for turn in turns if schedule.exact(turn) == peak), last)


def _constant_from(schedule: Schedule) -> int | None:
    """The first step after which the value does not change."""
    last = cells_of(schedule)[-1]
    return None if TIME in walk(last.value) else last.first


def _settings_of(schedule: Schedule, warmup: int | None, total: int) -> Settings | None:
    rise = warmup or 0
    constant = _constant_from(schedule)
    end = constant if constant is not None else int(schedule.length or total)
    start, peak = schedule.exact(0), schedule.exact(rise)
    if peak == 0:
        return None
    if end <= rise:
        return Settings(start, peak, peak, rise, total, CONSTANT)
    for shape, make in _SHAPES.items():
        settings = Settings(start, peak, schedule.exact(end), rise, end, shape)
        if _agree(schedule, make(settings), rise):
            return settings
    return None


_SHAPES: Mapping[str, Callable[[Settings], Schedule]] = {
    LINEAR: lambda s: schedules.linear(s.peak, s.end, s.decay),
    COSINE: lambda s: schedules.cosine(s.peak, s.end, s.decay),
}


def _agree(schedule: Schedule, decay: Schedule, begin: int) -> bool:
    """Whether the values from a step on follow a decay, at nine steps of it."""
    term, decay_term = (read_schedule(side).value for side in (schedule, decay))
    length = int(decay.length or 0)
    for index in range(9):
        step = length * index // 8
        pair = (
            value(substitute(root, {CLOCK: rational(at)}), {})
            for root, at in ((term, begin + step), (decay_term, step))
        )
        our_value, their_value = pair
        if isinstance(our_value, Undefined) or isinstance(their_value, Undefined):
            return False
        if not (arb(our_value) - arb(their_value)).contains(0):
            return False
    return True


# --- the frameworks ------------------------------------------------------------------------------


def _cerebras(s: Settings) -> Schedule | None:
    rise = _spec("LinearLR", initial_learning_rate=s.start, end_learning_rate=s.peak)
    falls = {
        LINEAR: _spec("LinearLR", initial_learning_rate=s.peak, end_learning_rate=s.end),
        COSINE: _spec("CosineDecayLR", initial_learning_rate=s.peak, end_learning_rate=s.end),
        CONSTANT: _spec("ConstantLR", learning_rate=s.peak),
    }
    fall = falls[s.shape]
    rise["kwargs"]["total_iters"] = s.warmup
    fall["kwargs"]["total_iters"] = max(s.decay, 1)
    if not s.warmup:
        return frameworks.schedule("cerebras", fall["class"], fall["kwargs"])
    arguments = {"schedulers": [rise, fall], "milestones": [s.warmup]}
    return frameworks.schedule("cerebras", "SequentialLR", arguments)


_SMALLEST_FACTOR = sp.Rational(1, 10**8)
"""The start factor of torch's LinearLR for a warmup from 0, which it refuses."""


def _torch(s: Settings) -> Schedule | None:
    first = s.start / s.peak
    rise = _spec(
        "LinearLR",
        start_factor=first if first > 0 else _SMALLEST_FACTOR,
        end_factor=1,
        total_iters=s.warmup,
    )
    falls = {
        LINEAR: _spec("LinearLR", start_factor=1, end_factor=s.end / s.peak, total_iters=s.decay),
        COSINE: _spec("CosineAnnealingLR", T_max=s.decay, eta_min=s.end),
        CONSTANT: _spec("ConstantLR", factor=1, total_iters=1),
    }
    fall = falls[s.shape]
    if not s.warmup:
        return frameworks.schedule("torch", fall["class"], fall["kwargs"], base=s.peak)
    arguments = {"schedulers": [rise, fall], "milestones": [s.warmup]}
    return frameworks.schedule("torch", "SequentialLR", arguments, base=s.peak)


def _huggingface(s: Settings) -> Schedule | None:
    arguments: dict[str, Any] = {"num_warmup_steps": s.warmup}
    if s.shape == CONSTANT:
        return frameworks.schedule("huggingface", "constant_with_warmup", arguments, base=s.peak)
    arguments["num_training_steps"] = s.total
    if s.shape == LINEAR:
        name = "linear" if s.end == 0 else "polynomial"
        arguments |= {} if s.end == 0 else {"lr_end": s.end, "power": 1}
    else:
        name = "cosine" if s.end == 0 else "cosine_with_min_lr"
        arguments |= {} if s.end == 0 else {"min_lr": s.end}
    return frameworks.schedule("huggingface", name, arguments, base=s.peak)


def _timm(s: Settings) -> Schedule | None:
    if s.shape == CONSTANT:
        return None
    arguments: dict[str, Any] = {
        "t_initial": s.total,
        "lr_min": s.end,
        "warmup_t": s.warmup,
        "warmup_lr_init": s.start,
    }
    if s.shape == COSINE:
        return frameworks.schedule("timm", "CosineLRScheduler", arguments, base=s.peak)
    return frameworks.schedule("timm", "PolyLRScheduler", {**arguments, "power": 1}, base=s.peak)


def _torchtitan(s: Settings) -> Schedule | None:
    """A warmup that counts steps from 1: its first value is peak/W, and the peak is at W - 1."""
    later = schedules.constant(s.peak) if s.shape == CONSTANT else _SHAPES[s.shape](s)
    if not s.warmup:
        return later
    rise = Schedule(s.peak * (t + 1) / sp.Integer(s.warmup), name="warmup", length=s.warmup)
    return rise.then(later)


FRAMEWORKS: Mapping[str, Callable[[Settings], Schedule | None]] = {
    "cerebras": _cerebras,
    "torch": _torch,
    "huggingface": _huggingface,
    "timm": _timm,
    "torchtitan": _torchtitan,
}
"""The schedule of each framework at the settings; None if it has no such schedule."""


def _spec(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class": name, "kwargs": arguments}


def _compare(schedule: Schedule, settings: Settings, total: int) -> Iterator[Comparison]:
    for framework, make in FRAMEWORKS.items():
        equivalent = make(settings)
        if equivalent is not None:
            yield _difference(framework, schedule, equivalent, total, settings.peak)


def _difference(
    framework: str, schedule: Schedule, equivalent: Schedule, total: int, peak: sp.Expr
) -> Comparison:
    first, largest, most = None, 0, _SAME * abs(to_float(peak))
    for (steps, values), (_, equivalent_values) in zip(
        _chunks(schedule, total), _chunks(equivalent, total), strict=True
    ):
        gaps = np.abs(values - equivalent_values)
        differing = np.flatnonzero(gaps > _SAME * abs(to_float(peak)))
        if differing.size and first is None:
            first = int(steps[differing[0]])
        if gaps.max() > most:
            most, largest = float(gaps.max()), int(steps[gaps.argmax()])
    if first is None:
        verdict = equal_to(schedule, equivalent, where=t <= total).judge(
            Effort.of(LIMITS.audit_work)
        )
        return Comparison(framework, None, None, verdict.proved)
    at_first, at_largest = (
        AuditDifference(step, schedule.exact(step), equivalent.exact(step))
        for step in (first, largest)
    )
    return Comparison(framework, at_first, at_largest)

"""The schedulers of transformers' Trainer, from the keys of ``TrainingArguments``.

Every curve is a factor of the rate of each param group; the clock is the update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.language import Schedule, floor_mod, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals, first_from, power_quotient
from closedform.recipes.native import (
    check_name,
    exact,
    group_rate,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_inverse_root, along_line

V4 = "4.57.1"
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """The numbers of a schedule.

    Attributes:
        base: The rate of the param group.
        default: The rate of the optimizer, which some factors divide by.
        warmup: The updates of the warmup.
        total: The updates of the run.
        where: The place, for errors.
    """

    base: sp.Expr
    default: sp.Expr
    warmup: sp.Expr
    total: sp.Expr
    where: str

    @property
    def rest(self) -> sp.Expr:
        """The updates after the warmup, at least 1."""
        return max(sp.S.One, self.total - self.warmup)

    @property
    def progress(self) -> sp.Expr:
        """The part of them that is done."""
        return (t - self.warmup) / self.rest

    def rise(self) -> tuple[Callable[[], sp.Expr], int]:
        """The warmup from 0."""
        line = self.base * t / max(sp.S.One, self.warmup)
        return (lambda: line), first_from(self.warmup)


Curve = Callable[[Run, Arguments], Schedule]


def cosine_wave(cycles: sp.Expr, progress: sp.Expr) -> sp.Expr:
    """Returns ``(1 + cos(2 pi cycles progress)) / 2``."""
    return (1 + sp.cos(2 * sp.pi * cycles * progress)) / 2


def _warmed(name: str, run: Run, factor: sp.Expr) -> Schedule:
    return by_intervals(name, run.rise(), (lambda: run.base * factor, None))


def linear(run: Run, given: Arguments) -> Schedule:
    """The line to 0."""
    del given
    return _warmed("linear", run, sp.Max(0, (run.total - t) / run.rest))


def cosine(run: Run, given: Arguments) -> Schedule:
    """The cosine, which rises again after the run."""
    cycles = number(given["num_cycles"], "num_cycles", run.where)
    return _warmed("cosine", run, cosine_wave(cycles, run.progress))


def _restarts(run: Run, given: Arguments) -> Schedule:
    cycles = number(given["num_cycles"], "num_cycles", run.where)
    part = floor_mod(cycles * (t - run.warmup), run.rest) / run.rest
    return by_intervals(
        "cosine_with_restarts",
        run.rise(),
        (lambda: run.base * (1 + sp.cos(sp.pi * part)) / 2, first_from(run.warmup + run.rest)),
        (lambda: sp.S.Zero, None),
    )


def _polynomial(run: Run, given: Arguments) -> Schedule:
    end = number(given["lr_end"], "lr_end", run.where)
    power = number(given["power"], "power", run.where)
    refuse_unless(
        end < run.default, f"lr_end must be below the rate {run.default}, got {end}", run.where
    )
    length = run.total - run.warmup

    def fall() -> sp.Expr:
        rest = power_quotient(run.total - t, length, power)
        return run.base * along_line(end, run.default, rest) / run.default

    return by_intervals(
        "polynomial",
        run.rise(),
        (fall, int(run.total) + 1),
        (lambda: run.base * end / run.default, None),
    )


def _constant(run: Run, given: Arguments) -> Schedule:
    del given
    return by_intervals("constant", (lambda: run.base, None))


def _constant_with_warmup(run: Run, given: Arguments) -> Schedule:
    del given
    return _warmed("constant_with_warmup", run, sp.S.One)


def _inverse_root(run: Run, given: Arguments) -> Schedule:
    scale = given["timescale"]
    scale = (run.warmup or sp.Integer(10_000)) if scale is None else exact(scale)
    fall = along_inverse_root(sp.S.One, sp.S.Zero, t - run.warmup, scale)
    return _warmed("inverse_sqrt", run, fall)


def _minimum(run: Run, given: Arguments) -> sp.Expr:
    """The minimum as a part of the rate."""
    rate, value = given["min_lr_rate"], given["min_lr"]
    refuse_unless(
        (rate is None) != (value is None),
        "exactly one of min_lr and min_lr_rate must be given",
        run.where,
    )
    if rate is None:
        return number(value, "min_lr", run.where) / run.default
    return number(rate, "min_lr_rate", run.where)


def _cosine_to_minimum(run: Run, given: Arguments) -> Schedule:
    cycles = number(given["num_cycles"], "num_cycles", run.where)
    wave = along_line(_minimum(run, given), sp.S.One, cosine_wave(cycles, run.progress))
    return _warmed("cosine_with_min_lr", run, sp.Max(0, wave))


def _cosine_one_ahead(run: Run, given: Arguments) -> Schedule:
    """The warmup from its first step on, and the cosine one step ahead."""
    cycles = number(given["num_cycles"], "num_cycles", run.where)
    first = given["warmup_lr_rate"]
    if first is None:
        rise = (t + 1) / max(sp.S.One, run.warmup)
    else:
        start = number(first, "warmup_lr_rate", run.where)
        rise = along_line(start, sp.S.One, t / max(sp.S.One, run.warmup - 1))
    done = (t - run.warmup + 1) / run.rest
    wave = along_line(_minimum(run, given), sp.S.One, cosine_wave(cycles, done))
    return by_intervals(
        "cosine_warmup_with_min_lr",
        (lambda: run.base * rise, first_from(run.warmup)),
        (lambda: run.base * sp.Max(0, wave), None),
    )


def _rising(kind: str, done: sp.Expr, length: sp.Expr) -> sp.Expr:
    if kind == "linear":
        return done / length
    if kind == "cosine":
        return (1 - sp.cos(sp.pi * done / length)) / 2
    return 1 - power_quotient(length - done, length, sp.S.Half)


def _falling(kind: str, done: sp.Expr, length: sp.Expr, cycles: sp.Expr) -> sp.Expr:
    if kind == "linear":
        return 1 - done / length
    if kind == "cosine":
        return cosine_wave(cycles, done / length)
    return 1 - power_quotient(done, length, sp.S.Half)


def _wsd(run: Run, given: Arguments) -> Schedule:
    where = run.where
    cycles = number(given["num_cycles"], "num_cycles", where)
    low = number(given["min_lr_ratio"], "min_lr_ratio", where)
    decay = number(given["num_decay_steps"], "num_decay_steps", where)
    for name in ("warmup_type", "decay_type"):
        refuse_unless(
            given[name] in ("linear", "cosine", "1-sqrt"),
            f"{name} must be linear, cosine or 1-sqrt, got {given[name]!r}",
            where,
        )
    flat = given["num_stable_steps"]
    stable = run.total - run.warmup - decay if flat is None else exact(flat)
    begin = run.warmup + stable
    rise = _rising(given["warmup_type"], t, max(sp.S.One, run.warmup))
    fall = _falling(given["decay_type"], t - begin, max(sp.S.One, decay), cycles)

    def mixed(factor: sp.Expr) -> sp.Expr:
        return run.base * sp.Max(0, along_line(low, sp.S.One, factor))

    return by_intervals(
        "warmup_stable_decay",
        (lambda: mixed(rise), first_from(run.warmup)),
        (lambda: run.base, first_from(begin)),
        (lambda: mixed(fall), first_from(begin + decay)),
        (lambda: run.base * low, None),
    )


_CYCLES = {"num_cycles": 0.5}
_MINIMUM = {"min_lr": None, "min_lr_rate": None}
CURVES: Mapping[str, tuple[Curve, Arguments]] = {
    "linear": (linear, {}),
    "cosine": (cosine, _CYCLES),
    "cosine_with_restarts": (_restarts, {"num_cycles": 1}),
    "polynomial": (_polynomial, {"lr_end": 1e-7, "power": 1.0}),
    "constant": (_constant, {}),
    "constant_with_warmup": (_constant_with_warmup, {}),
    "inverse_sqrt": (_inverse_root, {"timescale": None}),
    "cosine_with_min_lr": (_cosine_to_minimum, {**_CYCLES, **_MINIMUM}),
    "cosine_warmup_with_min_lr": (
        _cosine_one_ahead,
        {**_CYCLES, **_MINIMUM, "warmup_lr_rate": None},
    ),
    "warmup_stable_decay": (
        _wsd,
        {
            **_CYCLES,
            "num_decay_steps": REQUIRED,
            "num_stable_steps": None,
            "warmup_type": "linear",
            "decay_type": "cosine",
            "min_lr_ratio": 0,
        },
    ),
}
"""The schedulers by name, with the defaults of their keyword arguments."""

_IGNORE = ("constant", "constant_with_warmup")
"""The schedulers that ignore ``lr_scheduler_kwargs``."""


def scheduled(name: str, kwargs: object, run: Run, version: str = "") -> Schedule:
    """Returns the schedule of ``get_scheduler``.

    Raises:
        ArgumentError: A keyword argument is missing or unknown.
        DefinitionError: An argument is not valid.
    """
    curve, defaults = CURVES[name]
    ignored = name in _IGNORE or (version == V4 and name == "inverse_sqrt")
    return curve(run, options({} if ignored else kwargs or {}, run.where, defaults))


def _warmup(given: Arguments, total: int, context: Context) -> sp.Expr:
    where, steps, ratio = context.where, given["warmup_steps"], given["warmup_ratio"]
    if context.version == V4:
        number(steps, "warmup_steps", where)
        number(ratio or 0.0, "warmup_ratio", where)
        refuse_unless(
            0 <= (ratio or 0.0) <= 1, f"warmup_ratio must be in [0, 1], got {ratio}", where
        )
        return exact(steps if steps > 0 else math.ceil(total * (ratio or 0.0)))
    refuse_unless(ratio is None, "warmup_ratio is not an argument of transformers 5", where)
    number(steps, "warmup_steps", where)
    refuse_unless(steps >= 0, f"warmup_steps must not be negative, got {steps}", where)
    return exact(int(steps) if steps >= 1 else math.ceil(total * steps))


def _build(given: Arguments, context: Context) -> Schedule:
    where, name = context.where, context.path[-1]
    check_name(name, given["lr_scheduler_type"], "lr_scheduler_type", where)
    total = context.facts.get("num_training_steps", given["max_steps"])
    refuse_unless(
        isinstance(total, int) and total > 0,
        f"the run must have a number of updates above 0, got {total!r}: give max_steps or the "
        "fact num_training_steps",
        where,
    )
    run = Run(
        group_rate(context, given["learning_rate"]),
        number(given["learning_rate"], "learning_rate", where),
        _warmup(given, total, context),
        exact(total),
        where,
    )
    return scheduled(name, given["lr_scheduler_kwargs"], run, context.version)


_PARAMETERS = parameters(
    learning_rate=5e-5,
    max_steps=-1,
    warmup_steps=0,
    warmup_ratio=None,
    lr_scheduler_type="linear",
    lr_scheduler_kwargs=None,
)
NOTES: Mapping[str, tuple[str, ...]] = {
    "cosine": ("rises again after the run",),
    "cosine_with_min_lr": ("rises again after the run",),
    "cosine_warmup_with_min_lr": (
        "one step ahead: the peak is not used after the warmup",
        "rises again after the run",
    ),
    "inverse_sqrt": ("4.57.1 ignores timescale",),
    "constant": ("lr_scheduler_kwargs and the warmup have no effect",),
    "polynomial": ("a warmup as long as the run divides by zero after the last update",),
}
SCHEDULES = {
    name: ScheduleEntry(name, (), _PARAMETERS, _build, notes=NOTES.get(name, ())) for name in CURVES
}

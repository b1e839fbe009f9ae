"""The learning rate schedulers of fairseq, from ``lr_scheduler`` and ``optimization``.

The clock is the number of updates done, and epochs that count from 1.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import Schedule, floor_div, t
from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import (
    UndefinedError,
    by_intervals,
    first_from,
    power_quotient,
    quotient,
)
from closedform.recipes.native import (
    check_name,
    count,
    exact,
    fact,
    number,
    options,
    refuse_unless,
)
from closedform.schedules.blends import along_cosine, along_geometric, along_line

Arguments = Mapping[str, Any]
MAX_EPOCHS = 1000
"""The most epochs and periods that are written out one by one."""


def _rates(context: Context, optimization: Arguments) -> list[sp.Expr]:
    """The rates of the epochs; the last one goes on."""
    given = optimization["lr"]
    refuse_unless(isinstance(given, list | tuple) and given, "lr must be a list", context.where)
    return [number(rate, "lr", context.where) for rate in given]


def _single(context: Context, optimization: Arguments) -> sp.Expr:
    rates = _rates(context, optimization)
    refuse_unless(
        len(rates) == 1, f"{context.path[-1]} takes one lr, got {len(rates)}", context.where
    )
    return rates[0]


def _epoch_length(context: Context, is_needed: bool = True) -> sp.Expr:
    """The updates of an epoch; 1 where epochs do not matter."""
    if not is_needed:
        return sp.S.One
    facts = Facts(updates_per_epoch=fact(context, "updates_per_epoch"))
    return Clock(Unit.EPOCH).updates(1, facts)


def _first(given: Arguments, default: sp.Expr, where: str) -> sp.Expr:
    """The rate that the warmup begins at; below 0, the default."""
    first = number(given["warmup_init_lr"], "warmup_init_lr", where)
    return default if first < 0 else first


Stage = tuple[Callable[[], sp.Expr], int | None]
Builder = Callable[[Arguments, Arguments, Context], Schedule]


def _fixed(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    rates, anneal = _rates(context, optimization), given["force_anneal"]
    length = _epoch_length(context, anneal is not None or len(rates) > 1)
    warmup, shrink = given["warmup_updates"], number(given["lr_shrink"], "lr_shrink", context.where)
    stages = []
    for epoch in range(1, len(rates) if anneal is None else anneal):
        rate = rates[min(epoch, len(rates)) - 1]
        stages.append((rate, first_from(epoch * length)))
    if anneal is None:
        last = rates[-1]
    else:
        epoch = floor_div(t, length) + 1
        last = rates[-1] * shrink ** (epoch + 1 - anneal)
    factor = sp.Min(1, (t + 1) / sp.Integer(warmup)) if warmup > 0 else sp.S.One

    def times(rate: sp.Expr) -> Callable[[], sp.Expr]:
        return lambda: factor * rate

    return by_intervals("fixed", *((times(rate), end) for rate, end in stages), (times(last), None))


def _polynomial(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where = context.where
    rates, anneal = _rates(context, optimization), given["force_anneal"]
    length = _epoch_length(context, anneal is not None or len(rates) > 1)
    warmup = count(given["warmup_updates"], "warmup_updates", where)
    end = number(given["end_learning_rate"], "end_learning_rate", where)
    power = number(given["power"], "power", where)
    total = given["total_num_update"]
    total = optimization["max_update"] if total is None else total
    total = number(total, "total_num_update", where)
    refuse_unless(total > 0, "total_num_update or max_update must be above 0", where)

    def at(peak: sp.Expr, step: sp.Expr) -> sp.Expr:
        rest = power_quotient(total - step, total - warmup, power)
        return along_line(end, peak, rest)

    def part(peak: sp.Expr, last: int | None) -> list[Stage]:
        """The stages of an epoch, whose peak is fixed."""
        marks = (warmup + 1 if warmup > 0 else 0, first_from(total))
        cut = [mark if last is None else min(mark, last) for mark in marks]
        rise = peak * t / max(warmup, 1)
        return [(lambda: rise, cut[0]), (lambda: at(peak, t), cut[1]), (lambda: end, last)]

    def value(peak: sp.Expr, step: int) -> sp.Expr:
        if warmup > 0 and step <= warmup:
            return peak * step / warmup
        return end if step >= total else at(peak, sp.Integer(step))

    final = len(rates) if anneal is None else math.ceil(total / length) + 1
    refuse_unless(final <= MAX_EPOCHS, f"more than {MAX_EPOCHS} epochs are not written out", where)
    stages: list[Stage] = []
    peak = rates[0]
    for epoch in range(1, final + 1):
        begin = first_from((epoch - 1) * length)
        if anneal is None or epoch < anneal:
            # The list is read one epoch ahead.
            peak = rates[min(epoch, len(rates) - 1)]
        else:
            # The rate of the moment at which the epoch begins is the new peak.
            peak = value(peak, begin) if begin else sp.S.Zero
        stages += part(peak, None if epoch == final else first_from(epoch * length))
    return by_intervals("polynomial_decay", *stages)


def _inverse_root(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where, peak = context.where, _single(context, optimization)
    warmup = count(given["warmup_updates"], "warmup_updates", where)
    refuse_unless(warmup > 0, "warmup_updates is 0: division by zero", where)
    first = _first(given, sp.S.Zero, where)
    return by_intervals(
        "inverse_sqrt",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup),
        (lambda: peak * sp.sqrt(warmup) / sp.sqrt(t), None),
    )


def _cosine(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where, peak = context.where, _single(context, optimization)
    low = min(peak, number(given["min_lr"], "min_lr", where))
    first = _first(given, low, where)
    warmup = count(given["warmup_updates"], "warmup_updates", where)
    growth = number(given["t_mult"], "t_mult", where)
    shrink = number(given["lr_shrink"], "lr_shrink", where)
    period = number(given["lr_period_updates"], "lr_period_updates", where)
    if period <= 0:
        refuse_unless(
            optimization["max_update"] > 0, "max_update or lr_period_updates must be set", where
        )
        period = exact(optimization["max_update"] - warmup)
    rise = (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup)
    if growth == 1:
        done = t - warmup

        def repeated() -> sp.Expr:
            index = floor_div(done, period)
            part = quotient(done, period) - index
            return shrink**index * along_cosine(peak, low, part)

        return by_intervals("cosine", rise, (repeated, None))
    stages: list[Stage] = [rise]
    begin, factor = sp.Integer(warmup), sp.S.One
    while len(stages) < MAX_EPOCHS and begin < _FAR and period >= _SHORT:
        stages.append(
            (_wave(begin, period, factor * peak, factor * low), first_from(begin + period))
        )
        begin, period, factor = begin + period, period * growth, factor * shrink
    return by_intervals("cosine", *stages, (_too_far, None))


_FAR, _SHORT = 10**9, sp.Rational(1, 1000)


def _wave(begin: sp.Expr, period: sp.Expr, high: sp.Expr, low: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: along_cosine(high, low, quotient(t - begin, period))


def _too_far() -> sp.Expr:
    raise UndefinedError(f"more than {MAX_EPOCHS} periods are not written out")


def _tri_stage(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where, peak = context.where, _single(context, optimization)
    first = peak * number(given["init_lr_scale"], "init_lr_scale", where)
    scale = number(given["final_lr_scale"], "final_lr_scale", where)
    ratios = given["phase_ratio"]
    if ratios is not None:
        refuse_unless(
            len(ratios) == 3 and sum(ratios) == 1,
            f"phase_ratio must be three numbers with the sum 1, got {ratios}",
            where,
        )
        total = optimization["max_update"]
        refuse_unless(total > 0, "phase_ratio needs max_update", where)
        warmup, hold, decay = (int(total * ratio) for ratio in ratios)
    else:
        warmup, hold, decay = (given[f"{name}_steps"] for name in ("warmup", "hold", "decay"))
    refuse_unless(warmup + hold + decay > 0, "the steps or phase_ratio must be given", where)
    refuse_unless(decay > 0, "the decay has no updates: division by zero", where)
    refuse_unless(scale > 0, f"final_lr_scale must be above 0, got {scale}", where)
    begin = warmup + hold

    def fall() -> sp.Expr:
        return along_geometric(peak, peak * scale, (t - begin) / sp.Integer(decay))

    return by_intervals(
        "tri_stage",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup),
        (lambda: peak, begin),
        (fall, begin + decay + 1),
        (lambda: peak * scale, None),
    )


def _step(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where, peak = context.where, _single(context, optimization)
    low = number(given["min_lr"], "min_lr", where)
    first = _first(given, low, where)
    warmup = count(given["warmup_updates"], "warmup_updates", where)
    decay = number(given["lr_decay"], "lr_decay", where)
    period = number(given["lr_deacy_period"], "lr_deacy_period", where)
    refuse_unless(period > 0, f"lr_deacy_period must be above 0, got {period}", where)
    refuse_unless(low < peak, f"min_lr must be below the rate {peak}, got {low}", where)
    fall = peak * decay ** floor_div(t - warmup, period)
    return by_intervals(
        "step",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup),
        (lambda: sp.Max(fall, low), None),
    )


def _triangular(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where, low = context.where, _single(context, optimization)
    high = number(given["max_lr"], "max_lr", where)
    refuse_unless(high > low, f"max_lr must be above lr {low}, got {high}", where)
    period = number(given["lr_period_updates"], "lr_period_updates", where)
    shrink = number(given["lr_shrink"], "lr_shrink", where)
    half = sp.Integer(math.floor(period / 2))
    refuse_unless(half > 0, f"lr_period_updates must be at least 2, got {period}", where)
    cycle = floor_div(t, 2 * half)
    top, least = high * shrink**cycle, low * (shrink**cycle if given["shrink_min"] else 1)
    part = sp.Max(0, 1 - sp.Abs(t / half - 2 * cycle - 1))
    return by_intervals("triangular", (lambda: least + (top - least) * part, None))


def _dictionary(text: object, name: str, where: str) -> dict[int, sp.Expr]:
    """The rates by number, from the text of a Python dictionary with keys such as '2-4,7'."""
    try:
        found = ast.literal_eval(text) if isinstance(text, str) else text
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise DefinitionError(f"{name} must be a dictionary, got {text!r}", where=where) from error
    if not isinstance(found, dict):
        raise DefinitionError(f"{name} must be a dictionary, got {text!r}", where=where)
    rates: dict[int, sp.Expr] = {}
    for key, value in found.items():
        for part in str(key).split(","):
            low, _, high = part.partition("-")
            refuse_unless(
                low.strip().isdecimal() and (not high or high.strip().isdecimal()),
                f"a key of {name} must be a number or a range, got {key!r}",
                where,
            )
            last = int(high or low)
            refuse_unless(
                last - int(low) < MAX_EPOCHS, f"the range {key!r} of {name} is too long", where
            )
            rates |= dict.fromkeys(range(int(low), last + 1), number(value, name, where))
    return rates


def _manual(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    where, rate = context.where, _rates(context, optimization)[0]
    epochs = _dictionary(given["epoch2lr"], "epoch2lr", where)
    length = _epoch_length(context, bool(epochs))
    updates = _dictionary(given["update2lr"], "update2lr", where)
    # From the first update of update2lr on, epoch2lr has no effect.
    starts = {first_from((epoch - 1) * length): epoch for epoch in epochs if epoch}
    changes = {s: epochs[e] for s, e in starts.items() if not updates or s < min(updates)}
    changes |= updates
    stages: list[Stage] = []
    for step in sorted(changes):
        stages.append((_value(rate), step))
        rate = changes[step]
    return by_intervals("manual", *stages, (_value(rate), None))


def _value(rate: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: rate


def _plateau(given: Arguments, optimization: Arguments, context: Context) -> Schedule:
    """The rate for a loss that is the same at the end of every epoch."""
    where, peak = context.where, _single(context, optimization)
    loss = str(context.facts.get("validation_loss", ""))
    refuse_unless(
        loss.startswith("constant"),
        "reduce_lr_on_plateau is a function of the loss: the fact validation_loss must be "
        "'constant', or see frameworks.metric_rule",
        where,
    )
    warmup = count(given["warmup_updates"], "warmup_updates", where)
    shrink = number(given["lr_shrink"], "lr_shrink", where)
    length = _epoch_length(context)
    every = count(given["lr_patience"], "lr_patience", where) + 1
    first = _first(given, sp.S.Zero if warmup > 0 else peak, where)
    # Epochs that end in the warmup do not count; the first one that counts sets the best loss.
    ended = floor_div(t, length) - (floor_div(sp.Integer(warmup), length) if warmup > 0 else 0)
    falls = sp.Min(sp.Max(0, floor_div(ended - 1, every)), _most_falls(peak, shrink))
    return by_intervals(
        "reduce_lr_on_plateau",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup + 1 if warmup > 0 else 0),
        (lambda: peak * shrink**falls, None),
    )


_LEAST_FALL = sp.Rational(1, 10**8)
"""torch's scheduler leaves a rate that would fall by at most this."""


def _most_falls(rate: sp.Expr, shrink: sp.Expr) -> int:
    """The number of falls after which the rate stays."""
    for done in range(MAX_EPOCHS):
        if rate - rate * shrink <= _LEAST_FALL:
            return done
        rate *= shrink
    return MAX_EPOCHS


CLASSES: Mapping[str, tuple[Builder, Arguments]] = {
    "fixed": (_fixed, {"force_anneal": None, "lr_shrink": 0.1, "warmup_updates": 0}),
    "polynomial_decay": (
        _polynomial,
        {
            "warmup_updates": 0,
            "force_anneal": None,
            "end_learning_rate": 0.0,
            "power": 1.0,
            "total_num_update": None,
        },
    ),
    "inverse_sqrt": (_inverse_root, {"warmup_updates": 4000, "warmup_init_lr": -1}),
    "cosine": (
        _cosine,
        {
            "warmup_updates": 0,
            "warmup_init_lr": -1,
            "min_lr": 0.0,
            "t_mult": 1.0,
            "lr_period_updates": -1,
            "lr_shrink": 0.1,
        },
    ),
    "reduce_lr_on_plateau": (
        _plateau,
        {"lr_shrink": 0.1, "lr_patience": 0, "warmup_updates": 0, "warmup_init_lr": -1},
    ),
    "step": (
        _step,
        {
            "warmup_updates": 0,
            "warmup_init_lr": -1,
            "min_lr": 0.0,
            "lr_deacy_period": 25000,
            "lr_decay": 0.5,
        },
    ),
    "triangular": (
        _triangular,
        {"max_lr": REQUIRED, "lr_period_updates": 5000, "lr_shrink": 0.1, "shrink_min": False},
    ),
    "manual": (_manual, {"epoch2lr": "{}", "update2lr": "{}"}),
    "tri_stage": (
        _tri_stage,
        {
            "warmup_steps": 0,
            "hold_steps": 0,
            "decay_steps": 0,
            "phase_ratio": None,
            "init_lr_scale": 0.01,
            "final_lr_scale": 0.01,
        },
    ),
}


def _build(given: Arguments, context: Context) -> Schedule:
    where, name = context.where, context.path[-1]
    make, defaults = CLASSES[name]
    section = options(given["lr_scheduler"], where, {"_name": REQUIRED, **defaults})
    check_name(name, section["_name"], "_name", where)
    optimization = options(given["optimization"], where, {"lr": REQUIRED, "max_update": 0})
    return make(section, optimization, context)


_NOTES: Mapping[str, tuple[str, ...]] = {
    "polynomial_decay": ("force_anneal takes the rate of the moment as the new peak of an epoch",),
    "cosine": ("after a period the minimum shrinks as well: the rate falls below it",),
    "triangular": ("half of an odd period is cut to a whole number of updates",),
}
SCHEDULES = {
    name: ScheduleEntry(
        name,
        (),
        parameters(lr_scheduler=REQUIRED, optimization=REQUIRED),
        _build,
        notes=_NOTES.get(name, ()),
    )
    for name in CLASSES
}

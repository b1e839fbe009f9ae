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
from closedform.language import Schedule, exact_number, floor_div, t
from closedform.recipes import kit
from closedform.schedules.blends import along_cosine, along_geometric, along_line

CLOCK = kit.Clock(kit.Unit.UPDATE)
ScheduleBuilder = Callable[..., Schedule]
MAX_EPOCHS = 1000
"""The most epochs and periods that are written out one by one."""


def _rates(given: Scheduler, optimization: Optimization) -> tuple[sp.Expr, ...]:
    """The rates of the epochs; the last one goes on."""
    rates = tuple(optimization.lr if given.lr is None else given.lr)
    if not rates:
        raise optimization.error("lr must be a list of one or several rates", "lr")
    return rates


def _single(context: kit.Context, given: Scheduler, optimization: Optimization) -> sp.Expr:
    rates = _rates(given, optimization)
    kit.refuse_unless(
        len(rates) == 1, f"{context.path[-1]} takes one lr, got {len(rates)}", context.where
    )
    return rates[0]


def _updates(context: kit.Context, given: Scheduler, optimization: Optimization) -> int:
    """The updates of the run: those of the section, of ``optimization``, or else a fact."""
    limit = given.max_update or optimization.max_update
    # max_update 0 is fairseq's "no limit": epochs then bound the run, and its updates are a fact.
    if limit:
        return int(limit)
    where = optimization.origin.document.place("optimization.max_update")
    return int(context.numbers.require("total_updates", where=where)[0])


def _epoch_length(context: kit.Context, is_needed: bool = True) -> sp.Expr:
    """The updates of an epoch; 1 where epochs do not matter."""
    if not is_needed:
        return sp.S.One
    facts = kit.Facts(updates_per_epoch=context.fact("updates_per_epoch"))
    return kit.Clock(kit.Unit.EPOCH).updates(1, facts)


def _first(given: _Warmup, default: sp.Expr) -> sp.Expr:
    """The rate that the warmup begins at; below 0, the default."""
    return default if given.warmup_init_lr < 0 else given.warmup_init_lr


def _fixed(context: kit.Context, given: Fixed, optimization: Optimization) -> Schedule:
    rates, anneal = _rates(given, optimization), given.force_anneal
    length = _epoch_length(context, anneal is not None or len(rates) > 1)
    warmup, shrink = given.warmup_updates, given.lr_shrink
    # (t + 1) / W: unlike the other schedulers of fairseq, fixed is warm at update W - 1.
    factor = sp.Min(1, (t + 1) / sp.Integer(warmup)) if warmup > 0 else sp.S.One
    stages = []
    # Without force_anneal the stages end before the last entry of lr, which goes on for ever
    # (fixed_schedule.py, get_next_lr).
    for epoch in range(1, len(rates) if anneal is None else anneal):
        rate = rates[min(epoch, len(rates)) - 1]
        stages.append((factor * rate, kit.first_from(epoch * length)))
    if anneal is None:
        last = rates[-1]
    else:
        epoch = floor_div(t, length) + 1
        # epoch + 1 - anneal: the first annealed epoch is shrunk once already.
        last = rates[-1] * shrink ** (epoch + 1 - anneal)
    return kit.by_intervals("fixed", *stages, (factor * last, None))


def _polynomial(
    context: kit.Context, given: PolynomialDecay, optimization: Optimization
) -> Schedule:
    where = context.where
    rates, anneal = _rates(given, optimization), given.force_anneal
    length = _epoch_length(context, anneal is not None or len(rates) > 1)
    warmup = given.warmup_updates
    end = given.end_learning_rate
    power = given.power
    total = given.total_num_update
    total = _updates(context, given, optimization) if total is None else total
    kit.refuse_unless(total > 0, "total_num_update or max_update must be above 0", where)

    def at(peak: sp.Expr, step: sp.Expr) -> sp.Expr:
        rest = kit.power_quotient(total - step, total - warmup, power)
        return along_line(end, peak, rest)

    def part(peak: sp.Expr, last: int | None) -> list[kit.Stage]:
        """The stages of an epoch, whose peak is fixed."""
        # The test of upstream is num_updates <= warmup_updates, so update W still belongs to the
        # rise.
        marks = (warmup + 1 if warmup > 0 else 0, kit.first_from(total))
        cut = [mark if last is None else min(mark, last) for mark in marks]
        rise = peak * t / max(warmup, 1)
        # max(warmup, 1): without a warmup the interval of the rise is empty, but its expression is
        # built.
        return [(rise, cut[0]), (lambda: at(peak, t), cut[1]), (end, last)]

    def value(peak: sp.Expr, step: int) -> sp.Expr:
        if warmup > 0 and step <= warmup:
            return peak * step / warmup
        return end if step >= total else at(peak, sp.Integer(step))

    # With force_anneal each epoch has another peak, so epochs are written out to the end of the
    # decay.
    final = len(rates) if anneal is None else math.ceil(total / length) + 1
    kit.refuse_unless(
        final <= MAX_EPOCHS, f"more than {MAX_EPOCHS} epochs are not written out", where
    )
    stages: list[kit.Stage] = []
    peak = rates[0]
    for epoch in range(1, final + 1):
        begin = kit.first_from((epoch - 1) * length)
        if anneal is None or epoch < anneal:
            # The list is read one epoch ahead.
            peak = rates[min(epoch, len(rates) - 1)]
        else:
            # The rate of the moment at which the epoch begins is the new peak.
            peak = value(peak, begin) if begin else sp.S.Zero
        stages += part(peak, None if epoch == final else kit.first_from(epoch * length))
    return kit.by_intervals("polynomial_decay", *stages)


def _inverse_root(context: kit.Context, given: InverseSqrt, optimization: Optimization) -> Schedule:
    where, peak = context.where, _single(context, given, optimization)
    warmup = given.warmup_updates
    # The dataclass of inverse_sqrt has 4,000; an explicit 0 is fairseq-inverse_sqrt-037.
    kit.refuse_unless(warmup > 0, "warmup_updates is 0: division by zero", where)
    first = _first(given, sp.S.Zero)
    return kit.by_intervals(
        "inverse_sqrt",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup),
        (lambda: peak * sp.sqrt(warmup) / sp.sqrt(t), None),
    )


def _cosine(context: kit.Context, given: Cosine, optimization: Optimization) -> Schedule:
    peak = _single(context, given, optimization)
    # fairseq 3d262bb2 lowers a min_lr above the rate to the rate; 1ab54f96 asserts that there is
    # none.
    low = min(peak, given.min_lr)
    first = _first(given, low)
    warmup = given.warmup_updates
    growth = given.t_mult
    shrink = given.lr_shrink
    period = given.lr_period_updates
    if period <= 0:
        period = sp.Integer(_updates(context, given, optimization) - warmup)
    rise = (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup)
    if growth == 1:
        done = t - warmup

        def repeated() -> sp.Expr:
            # lr_shrink**index multiplies minimum and peak, also after max_update: the rate falls
            # below min_lr.
            index = floor_div(done, period)
            part = kit.quotient(done, period) - index
            return shrink**index * along_cosine(peak, low, part)

        return kit.by_intervals("cosine", rise, (repeated, None))
    stages: list[kit.Stage] = [rise]
    begin, factor = sp.Integer(warmup), sp.S.One
    # Periods that grow have no closed form in floor and mod, so each is a stage. Shrinking ones
    # (t_mult < 1) accumulate at a finite time, hence the least period.
    while len(stages) < MAX_EPOCHS and begin < _FAR and period >= _SHORT:
        stages.append(
            (_wave(begin, period, factor * peak, factor * low), kit.first_from(begin + period))
        )
        begin, period, factor = begin + period, period * growth, factor * shrink
    return kit.by_intervals(
        "cosine",
        *stages,
        (kit.undefined(f"more than {MAX_EPOCHS} periods are not written out"), None),
    )


_FAR, _SHORT = 10**9, sp.Rational(1, 1000)


def _wave(begin: sp.Expr, period: sp.Expr, high: sp.Expr, low: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: along_cosine(high, low, kit.quotient(t - begin, period))


def _tri_stage(context: kit.Context, given: TriStage, optimization: Optimization) -> Schedule:
    where, peak = context.where, _single(context, given, optimization)
    first = peak * given.init_lr_scale
    scale = given.final_lr_scale
    if given.phase_ratio is not None:
        # fairseq adds and multiplies in floats.
        ratios = [float(ratio) for ratio in given.phase_ratio]
        kit.refuse_unless(
            len(ratios) == 3 and sum(ratios) == 1,
            f"phase_ratio must be three numbers with the sum 1, got {ratios}",
            where,
        )
        total = _updates(context, given, optimization)
        warmup, hold, decay = (int(total * ratio) for ratio in ratios)
    else:
        warmup, hold, decay = given.warmup_steps, given.hold_steps, given.decay_steps
    kit.refuse_unless(warmup + hold + decay > 0, "the steps or phase_ratio must be given", where)
    kit.refuse_unless(decay > 0, "the decay has no updates: division by zero", where)
    kit.refuse_unless(scale > 0, f"final_lr_scale must be above 0, got {scale}", where)
    begin = warmup + hold

    # fairseq: peak·exp(-d·j) with d = -ln(final_lr_scale) / decay_steps, which is a geometric
    # blend.
    def fall() -> sp.Expr:
        return along_geometric(peak, peak * scale, (t - begin) / sp.Integer(decay))

    return kit.by_intervals(
        "tri_stage",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup),
        (peak, begin),
        # One update more than the decay: at j = decay_steps the exponential already equals the
        # final rate.
        (fall, begin + decay + 1),
        (lambda: peak * scale, None),
    )


def _step(context: kit.Context, given: Step, optimization: Optimization) -> Schedule:
    where, peak = context.where, _single(context, given, optimization)
    low = given.min_lr
    first = _first(given, low)
    warmup = given.warmup_updates
    decay = given.lr_decay
    period = given.lr_deacy_period
    kit.refuse_unless(period > 0, f"lr_deacy_period must be above 0, got {period}", where)
    kit.refuse_unless(low < peak, f"min_lr must be below the rate {peak}, got {low}", where)
    fall = peak * decay ** floor_div(t - warmup, period)
    return kit.by_intervals(
        "step",
        (lambda: along_line(first, peak, t / sp.Integer(warmup)), warmup),
        (lambda: sp.Max(fall, low), None),
    )


def _triangular(context: kit.Context, given: Triangular, optimization: Optimization) -> Schedule:
    where, low = context.where, _single(context, given, optimization)
    high = given.max_lr
    kit.refuse_unless(high > low, f"max_lr must be above lr {low}, got {high}", where)
    period = given.lr_period_updates
    shrink = given.lr_shrink
    # A cycle of 5 takes 4 updates.
    half = sp.Integer(math.floor(period / 2))
    kit.refuse_unless(half > 0, f"lr_period_updates must be at least 2, got {period}", where)
    cycle = floor_div(t, 2 * half)
    top, least = high * shrink**cycle, low * (shrink**cycle if given.shrink_min else 1)
    part = sp.Max(0, 1 - sp.Abs(t / half - 2 * cycle - 1))
    return Schedule(least + (top - least) * part, name="triangular")


def _dictionary(text: object, name: str, where: str) -> dict[int, sp.Expr]:
    """The rates by number, from the text of a Python dictionary with keys such as '2-4,7'."""
    try:
        # manual_lr_scheduler.py reads the text by ast.literal_eval, too.
        found = ast.literal_eval(text) if isinstance(text, str) else text
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise DefinitionError(f"{name} must be a dictionary, got {text!r}", where=where) from error
    if not isinstance(found, dict):
        raise DefinitionError(f"{name} must be a dictionary, got {text!r}", where=where)
    rates: dict[int, sp.Expr] = {}
    for key, value in found.items():
        for part in str(key).split(","):
            low, _, high = part.partition("-")
            kit.refuse_unless(
                low.strip().isdecimal() and (not high or high.strip().isdecimal()),
                f"a key of {name} must be a number or a range, got {key!r}",
                where,
            )
            last = int(high or low)
            # Ranges are written out; the limit keeps '1-999999999' from filling the memory.
            kit.refuse_unless(
                last - int(low) < MAX_EPOCHS, f"the range {key!r} of {name} is too long", where
            )
            rates |= dict.fromkeys(range(int(low), last + 1), exact_number(value, name))
    return rates


def _manual(context: kit.Context, given: Manual, optimization: Optimization) -> Schedule:
    where, rate = context.where, _rates(given, optimization)[0]
    epochs = _dictionary(given.epoch2lr, "epoch2lr", where)
    length = _epoch_length(context, bool(epochs))
    updates = _dictionary(given.update2lr, "update2lr", where)
    # From the first update of update2lr on, epoch2lr has no effect.
    starts = {kit.first_from((epoch - 1) * length): epoch for epoch in epochs if epoch}
    changes = {s: epochs[e] for s, e in starts.items() if not updates or s < min(updates)}
    changes |= updates
    stages: list[kit.Stage] = []
    for step in sorted(changes):
        stages.append((rate, step))
        rate = changes[step]
    return kit.by_intervals("manual", *stages, (rate, None))


def _plateau(
    context: kit.Context, given: ReduceLrOnPlateau, optimization: Optimization
) -> Schedule:
    """The rate for a loss that is the same at the end of every epoch."""
    where, peak = context.where, _single(context, given, optimization)
    loss = str(context.facts.get("validation_loss", ""))
    kit.refuse_unless(
        loss.startswith("constant"),
        "reduce_lr_on_plateau is a function of the loss: the fact validation_loss must be "
        "'constant', or see frameworks.metric_rule",
        where,
    )
    warmup = given.warmup_updates
    shrink = given.lr_shrink
    length = _epoch_length(context)
    # patience epochs without an improvement are tolerated; the next one makes the fall, as in
    # torch.
    every = given.lr_patience + 1
    first = _first(given, sp.S.Zero if warmup > 0 else peak)
    # Epochs that end in the warmup do not count; the first one that counts sets the best loss.
    ended = floor_div(t, length) - (floor_div(sp.Integer(warmup), length) if warmup > 0 else 0)
    falls = sp.Min(sp.Max(0, floor_div(ended - 1, every)), _most_falls(peak, shrink))
    return kit.by_intervals(
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


class Scheduler(kit.Section):
    """A class has the rates and the limit of ``optimization``, unless its section has others."""

    _name: str
    lr: kit.Rates | None = None
    max_update: kit.Steps = 0


class _Warmup(kit.Section):
    warmup_updates: kit.Steps = 0
    warmup_init_lr: kit.StartRate = -1


class Fixed(Scheduler):
    force_anneal: int | None = None
    lr_shrink: kit.Number = 0.1
    warmup_updates: kit.Steps = 0


class PolynomialDecay(Scheduler):
    warmup_updates: kit.Steps = 0
    force_anneal: int | None = None
    end_learning_rate: kit.EndRate = 0
    power: kit.Power = 1
    total_num_update: kit.RealSteps | None = None


class InverseSqrt(Scheduler, _Warmup):
    warmup_updates: kit.Steps = 4000


class Cosine(Scheduler, _Warmup):
    min_lr: kit.EndRate = 0
    t_mult: kit.Number = 1
    lr_period_updates: kit.RealSteps = -1
    lr_shrink: kit.Number = 0.1


class ReduceLrOnPlateau(Scheduler, _Warmup):
    lr_shrink: kit.Number = 0.1
    lr_patience: int = 0


class Step(Scheduler, _Warmup):
    min_lr: kit.EndRate = 0
    # The misspelling is fairseq's: step_lr_scheduler.py declares lr_deacy_period.
    lr_deacy_period: kit.RealSteps = 25000
    lr_decay: kit.Number = 0.5


class Triangular(Scheduler):
    max_lr: kit.Rate
    lr_period_updates: kit.RealSteps = 5000
    lr_shrink: kit.Number = 0.1
    shrink_min: bool = False


class Manual(Scheduler):
    epoch2lr: Any = "{}"
    update2lr: Any = "{}"


class TriStage(Scheduler):
    warmup_steps: kit.Steps = 0
    hold_steps: kit.Steps = 0
    decay_steps: kit.Steps = 0
    phase_ratio: kit.Numbers | None = None
    init_lr_scale: kit.RateRatio = 0.01
    final_lr_scale: kit.RateRatio = 0.01


CLASSES: Mapping[str, tuple[ScheduleBuilder, type[Scheduler]]] = {
    "fixed": (_fixed, Fixed),
    "polynomial_decay": (_polynomial, PolynomialDecay),
    "inverse_sqrt": (_inverse_root, InverseSqrt),
    "cosine": (_cosine, Cosine),
    "reduce_lr_on_plateau": (_plateau, ReduceLrOnPlateau),
    "step": (_step, Step),
    "triangular": (_triangular, Triangular),
    "manual": (_manual, Manual),
    "tri_stage": (_tri_stage, TriStage),
}
"""The classes by name, with the keys of their section."""


class Optimization(
    kit.Section,
    irrelevant="stop_time_hours sentence_avg stop_min_lr use_bmuf skip_remainder_batch "
    "debug_param_names",
):
    # fairseq/dataclass/configs.py: OptimizationConfig.lr
    lr: kit.Rates = (sp.Rational(1, 4),)
    max_update: kit.Steps = kit.integer(0, may_be_open=True)
    max_epoch: kit.Epochs = kit.integer(0, may_be_open=True)
    clip_norm: kit.Norm = 0
    update_freq: tuple[int, ...] = (1,)


_PLACE = "fairseq/optim/lr_scheduler"
DEFECTS: Mapping[str, kit.Note[[Any, bool, bool]]] = {
    "new-peak-of-an-epoch": kit.Convention(
        "force_anneal takes the rate of the moment as the new peak of an epoch",
        f"{_PLACE}/polynomial_decay_schedule.py:65",
        lambda schedulers, has_ignored_rate, is_zero: any(
            values._name == "polynomial_decay" and values.force_anneal is not None
            for values in schedulers
        ),
        classes=("polynomial_decay",),
    ),
    "cosine-restarts": kit.Convention(
        "after its period the cosine restarts, lower by lr_shrink, and its minimum with it",
        f"{_PLACE}/cosine_lr_scheduler.py:137",
        lambda schedulers, has_ignored_rate, is_zero: any(
            values._name == "cosine" and values.lr_period_updates > 0 for values in schedulers
        ),
        classes=("cosine",),
    ),
    "odd-period": kit.Convention(
        "half of an odd period is cut to a whole number of updates",
        f"{_PLACE}/triangular_lr_scheduler.py:54",
        lambda schedulers, has_ignored_rate, is_zero: any(
            values._name == "triangular" and values.lr_period_updates % 2 != 0
            for values in schedulers
        ),
        classes=("triangular",),
    ),
    "group-rate-ignored": kit.Convention(
        "lr of a group has no effect: lr_float, or else optimization.lr, counts",
        "fairseq/optim/composite.py:122",
        lambda schedulers, has_ignored_rate, is_zero: has_ignored_rate,
        classes=(),
    ),
    "zero-rate": kit.Convention(
        "the rate is 0 in every update",
        "fairseq/optim/lr_scheduler (the schedulers)",
        lambda schedulers, has_ignored_rate, is_zero: is_zero,
        classes=(),
    ),
}
SCHEDULES = {
    name: entry
    for name, (curve, keys) in CLASSES.items()
    for entry in kit.section_entries(
        {name: curve},
        {"lr_scheduler": keys, "optimization": Optimization},
        style=lambda scheduler, optimization: str(scheduler._name),
    ).values()
}

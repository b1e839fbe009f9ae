"""The schedules of the Ultralytics trainer, from the keys of its config.

Warmup, accumulation and epochs count micro-batches; an update is made when enough of them have been
accumulated, which are fewer during the warmup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError, nearest
from closedform.language import Schedule, floor_div, t
from closedform.recipes.entries import Context, ScheduleEntry, parameters
from closedform.recipes.intervals import by_intervals
from closedform.recipes.native import check_name, count, fact, number, refuse_unless
from closedform.schedules.blends import along_cosine, along_line

Arguments = Mapping[str, Any]

DEFAULTS: Mapping[str, Any] = {
    "epochs": 100,
    "batch": 16,
    "nbs": 64,
    "optimizer": "auto",
    "cos_lr": False,
    "lr0": 0.01,
    "lrf": 0.01,
    "momentum": 0.937,
    "weight_decay": 0.0005,
    "warmup_epochs": 3.0,
    "warmup_momentum": 0.8,
    "warmup_bias_lr": 0.1,
}
"""The keys that decide on schedules, with the defaults of ``default.yaml``."""

_WITH_BETAS = ("Adam", "Adamax", "AdamW", "NAdam", "RAdam")
_WITH_MOMENTUM = ("RMSprop", "SGD", "MuSGD")
OPTIMIZERS = (*_WITH_BETAS, *_WITH_MOMENTUM, "auto")
GROUPS = ("weight", "bn", "bias", "muon")
MAX_WARMUP = 100_000
"""The most updates of a warmup that are written out one by one."""
_AUTO_MANY = 10_000
"""The number of updates above which ``optimizer=auto`` takes MuSGD."""


@dataclass(frozen=True, slots=True)
class Run:
    """The numbers of a run.

    Attributes:
        optimizer: The name of the optimizer, after ``auto``.
        rate: The rate before the schedule.
        momentum: The momentum that the optimizer is built with.
        bias_rate: The rate of biases at the start of the warmup.
        batches: The micro-batches of an epoch.
        warmup: The micro-batches of the warmup.
        accumulate: The micro-batches of an update, after the warmup.
        epochs: The epochs.
        group: The param group.
        where: The place, for errors.
    """

    optimizer: str
    rate: sp.Expr
    momentum: sp.Expr
    bias_rate: sp.Expr
    batches: int
    warmup: int
    accumulate: int
    epochs: int
    group: str
    where: str


def read_run(given: Arguments, context: Context) -> Run:
    """Returns the numbers of a run.

    Raises:
        ArgumentError: A fact is missing: ``batches_per_epoch``, and ``images`` where the optimizer
            is ``auto``.
        DefinitionError: A value is refused.
    """
    where = context.where
    epochs, batch = (count(given[key], key, where) for key in ("epochs", "batch"))
    nominal = number(given["nbs"], "nbs", where)
    refuse_unless(epochs > 0, f"epochs must be above 0, got {epochs}", where)
    refuse_unless(batch > 0, f"batch must be above 0, got {batch}: AutoBatch is not read", where)
    refuse_unless(nominal > 0, f"nbs must be above 0, got {nominal}", where)
    batches = count(fact(context, "batches_per_epoch"), "batches_per_epoch", where)
    refuse_unless(batches > 0, f"batches_per_epoch must be above 0, got {batches}", where)
    name = _optimizer(given["optimizer"], where)
    rate, momentum, bias = (
        number(given[key], key, where) for key in ("lr0", "momentum", "warmup_bias_lr")
    )
    if name == "auto":
        name, rate = _auto(given, context, epochs)
        momentum, bias = sp.Rational(9, 10), sp.S.Zero
    warm = min(number(given["warmup_epochs"], "warmup_epochs", where), sp.Integer(epochs - 1))
    accumulate = _nominal_accumulation(given)
    group = context.facts.get("param_group", "weight")
    if group not in GROUPS:
        raise DefinitionError(
            f"param_group must be one of {', '.join(GROUPS)}, got {group!r}", where=where
        )
    return Run(
        name,
        rate,
        momentum,
        bias,
        batches,
        round(float(warm) * batches) if warm > 0 else 0,
        min(accumulate, batches * epochs),
        epochs,
        group,
        where,
    )


def _nominal_accumulation(given: Arguments) -> int:
    """The micro-batches of an update that have the nominal batch size together."""
    steps: int = round(given["nbs"] / given["batch"])
    return max(steps, 1)


def _optimizer(given: object, where: str) -> str:
    """The optimizer under its own name; case does not matter."""
    names = {name.lower(): name for name in OPTIMIZERS}
    found = names.get(str(given).lower())
    if found is None:
        hint = nearest(str(given), OPTIMIZERS)
        raise DefinitionError(f"there is no optimizer {given!r}", where=where, hint=hint)
    return found


def _auto(given: Arguments, context: Context, epochs: int) -> tuple[str, sp.Expr]:
    """The choice of ``optimizer=auto``: by the number of updates and of classes."""
    images = count(fact(context, "images", "dataset_size"), "images", context.where)
    updates = math.ceil(images / max(given["batch"], given["nbs"])) * epochs
    if updates > _AUTO_MANY:
        return "MuSGD", sp.Rational(1, 100)
    classes = context.facts.get("nc", context.facts.get("num_classes", 10))
    fit = round(0.002 * 5 / (4 + count(classes, "nc", context.where)), 6)
    return "AdamW", number(fit, "lr0", context.where)


@dataclass(frozen=True, slots=True)
class _Warmup:
    """The updates of the warmup: their micro-batches, and the micro-batch of the first after it."""

    batches: tuple[int, ...]
    next_batch: int


def _accumulated(run: Run, batch: int) -> int:
    """The micro-batches that an update needs at one of them."""
    if not run.warmup or batch > run.warmup:
        return run.accumulate
    if batch == run.warmup:
        return run.accumulate
    # In the order of np.interp, which decides on ties.
    return max(1, round((run.accumulate - 1) / run.warmup * batch + 1))


def _warmup(run: Run) -> _Warmup:
    last, batch, made = -1, 0, []
    while run.warmup and batch <= run.warmup:
        if batch - last >= _accumulated(run, batch):
            made.append(batch)
            last = batch
            if len(made) > MAX_WARMUP:
                raise DefinitionError(
                    f"a warmup must have at most {MAX_WARMUP} updates", where=run.where
                )
        batch += 1
    return _Warmup(tuple(made), max(batch, last + run.accumulate))


Curve = Callable[[sp.Expr], sp.Expr]
"""A function of the number of the micro-batch."""


def _by_updates(run: Run, name: str, rise: Curve, rest: Curve) -> Schedule:
    """The schedule of the updates: one curve during the warmup, another one after it."""
    warmup = _warmup(run)
    length = len(warmup.batches)
    if run.accumulate == 1:
        return by_intervals(name, (lambda: rise(t), length), (lambda: rest(t), None))
    stages = [
        (_constant(rise(sp.Integer(batch))), index + 1)
        for index, batch in enumerate(warmup.batches)
    ]
    after = warmup.next_batch + run.accumulate * (t - length)
    return by_intervals(name, *stages, (lambda: rest(after), None))


def _constant(value: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: value


def _rate(given: Arguments, run: Run, context: Context) -> Schedule:
    last = number(given["lrf"], "lrf", run.where)
    start = run.bias_rate if run.group == "bias" else sp.S.Zero
    total = sp.Integer(run.epochs)

    def decayed(batch: sp.Expr) -> sp.Expr:
        progress = floor_div(batch, run.batches) / total
        if given["cos_lr"]:
            return run.rate * along_cosine(sp.S.One, last, progress)
        return run.rate * along_line(sp.S.One, last, sp.Min(1, progress))

    return _by_updates(
        run,
        context.path[-1],
        lambda batch: along_line(start, decayed(batch), batch / sp.Integer(run.warmup)),
        decayed,
    )


def _momentum(given: Arguments, run: Run, context: Context) -> Schedule:
    refuse_unless(
        run.optimizer in _WITH_MOMENTUM, f"{run.optimizer} has betas, not a momentum", run.where
    )
    first, last = (number(given[key], key, run.where) for key in ("warmup_momentum", "momentum"))
    # The warmup ends at the momentum of the config, even if the optimizer was built with another.
    after = last if run.warmup else run.momentum
    return _by_updates(
        run,
        context.path[-1],
        lambda batch: along_line(first, last, batch / sp.Integer(run.warmup)),
        lambda batch: after,
    )


def _first_beta(given: Arguments, run: Run, context: Context) -> Schedule:
    del given
    refuse_unless(
        run.optimizer in _WITH_BETAS, f"{run.optimizer} has a momentum, no betas", run.where
    )
    return by_intervals(context.path[-1], (lambda: run.momentum, None))


def _accumulation(given: Arguments, run: Run, context: Context) -> Schedule:
    del given

    def needed(batch: sp.Expr) -> sp.Expr:
        return sp.Integer(_accumulated(run, int(batch))) if run.accumulate > 1 else sp.S.One

    return _by_updates(run, context.path[-1], needed, lambda batch: sp.Integer(run.accumulate))


def _weight_decay(given: Arguments, run: Run, context: Context) -> Schedule:
    decay = number(given["weight_decay"], "weight_decay", run.where)
    nominal = number(given["nbs"], "nbs", run.where)
    # Before the accumulation is cut to the length of the run.
    scaled = decay * given["batch"] * _nominal_accumulation(given) / nominal
    value = scaled if run.group in ("weight", "muon") else sp.S.Zero
    return by_intervals(context.path[-1], (lambda: value, None))


_KEYS: Mapping[str, Callable[[Arguments, Run, Context], Schedule]] = {
    "lr": _rate,
    "momentum": _momentum,
    "beta1": _first_beta,
    "accumulate": _accumulation,
    "weight_decay": _weight_decay,
}


def _build(given: Arguments, context: Context) -> Schedule:
    if context.key not in _KEYS:
        raise DefinitionError(
            f"the trainer has no {context.key!r}",
            where=context.where,
            hint=f"it has {', '.join(_KEYS)}",
        )
    check_name(
        context.path[-1], "cos_lr" if given["cos_lr"] else "linear", "the scheduler", context.where
    )
    return _KEYS[context.key](given, read_run(given, context), context)


_NOTES = (
    "the warmup rises to the rate of the current epoch, so it is not monotone",
    "the warmup does not change the betas of an optimizer that has them",
    "optimizer=auto ignores lr0, momentum and warmup_bias_lr",
    "the weight decay is scaled by batch * accumulate / nbs",
)
SCHEDULES = {
    name: ScheduleEntry(name, (), parameters(**DEFAULTS), _build, notes=_NOTES)
    for name in ("linear", "cos_lr")
}

"""The learning rate of levanter: warmup, then cycles of a stable phase and a decay, cooldown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Any

import sympy as sp

from closedform.language import Schedule, t
from closedform.recipes.entries import REQUIRED, Context, ScheduleEntry, parameters
from closedform.recipes.intervals import UndefinedError, by_intervals
from closedform.recipes.native import check_name, count, fact, number, options, refuse_unless
from closedform.schedules.blends import along_cosine, along_line

Arguments = Mapping[str, Any]
Curve = Callable[[sp.Expr], sp.Expr]
"""From the updates since the start of the decay to the rate."""


def _length(value: Any, name: str, total: int, where: str) -> int:
    """A fraction of a length up to 1, or a whole number of updates."""
    number(value, name, where)
    refuse_unless(
        value >= 0 and (value <= 1 or value % 1 == 0),
        f"{name} must be a fraction in [0, 1] or a whole number of updates, got {value!r}",
        where,
    )
    return int(value * total) if value <= 1 else int(value)


def _decay(
    shape: Arguments, rate: sp.Expr, low: sp.Expr, warmup: int, length: int, where: str
) -> Curve:
    """The curve of a decay; of a length of 0, or less where the class refuses it."""
    kind = shape["type"]
    if kind == "constant":
        return lambda j: rate
    if kind == "cosine":
        refuse_unless(length > 0, f"the cosine needs a decay above 0 updates, got {length}", where)
        exponent = number(shape["exponent"], "exponent", where)
        ratio = low / rate if rate else sp.S.Zero
        return lambda j: (
            rate
            * along_line(
                ratio,
                sp.S.One,
                along_cosine(sp.S.One, sp.S.Zero, sp.Min(1, j / length)) ** exponent,
            )
        )
    if kind == "linear":
        if length <= 0:
            return lambda j: rate
        return lambda j: along_line(rate, low, sp.Min(1, j / length))
    if kind == "inv_sqrt":
        scale = number(shape["timescale"], "timescale", where)
        return lambda j: sp.Max(
            low, rate * sp.Min(1, sp.sqrt(scale) / sp.sqrt(sp.Max(j + warmup, 1)))
        )
    if kind == "inv":
        return lambda j: _inverse(rate, low, j, length)
    batch, sequence, height, power = (
        number(shape[name], name, where) for name in ("batch_size", "seq_length", "a", "b")
    )
    refuse_unless(height > 0 > power, "power expects a > 0 and b < 0", where)
    return lambda j: _power(rate, batch * height, j * batch * sequence, power)


def _inverse(rate: sp.Expr, low: sp.Expr, j: sp.Expr, length: int) -> sp.Expr:
    if low == 0:
        raise UndefinedError("division by zero")
    if length == 0:
        return low
    part = sp.Min(1, 1 / ((rate / low - 1) * sp.Max(j, 1) / length + 1))
    return sp.Max(low, rate * part)


def _power(rate: sp.Expr, factor: sp.Expr, tokens: sp.Expr, power: sp.Expr) -> sp.Expr:
    if tokens == 0:
        raise UndefinedError("ZeroDivisionError: 0 to a negative power")
    # At 0 tokens the power is infinite, and the rate is the peak.
    bounded = sp.Min(rate, factor * sp.Max(tokens, 1) ** power)
    return sp.Piecewise((rate, sp.Le(tokens, 0)), (bounded, True))


def _points(given: Arguments, total: int, where: str) -> list[int]:
    """The ends of the cycles, from 0 on."""
    length, cycles = given["cycle_length"], given["cycles"]
    refuse_unless(
        length is None or cycles is None, "only one of cycle_length and cycles may be given", where
    )
    if isinstance(length, int | float):
        each = _length(length, "cycle_length", total, where)
        refuse_unless(each > 0, "cycle_length is 0: division by zero", where)
        points = [index * each for index in range(1, total // each)]
    elif length is not None:
        points = list(accumulate(count(value, "cycle_length", where) for value in length))
        refuse_unless(points[-1] <= total, f"the cycles exceed {total} updates", where)
    elif isinstance(cycles, int):
        points = [int(total / cycles * (index + 1)) for index in range(cycles - 1)]
    else:
        points = [count(value, "cycles", where) for value in cycles or ()]
    points = [0, *points]
    return points if points[-1] == total else [*points, total]


def _build(given: Mapping[str, Any], context: Context) -> Schedule:
    where = context.where
    section = options(given["optimizer"], where, SECTION)
    named = section["lr_schedule"]
    shape = options(
        {"type": named} if isinstance(named, str) else named,
        where,
        SHAPES.get(named if isinstance(named, str) else named.get("type"), {"type": REQUIRED}),
    )
    check_name(context.path[-1], shape["type"], "lr_schedule", where)
    run = count(fact(context, "num_train_steps"), "num_train_steps", where)
    rate = number(section["learning_rate"], "learning_rate", where)
    low = rate * number(section["min_lr_ratio"], "min_lr_ratio", where)
    cooldown = section["cooldown"]
    cooldown = 0 if cooldown is None else _length(cooldown, "cooldown", run, where)
    refuse_unless(
        run > cooldown, f"the run must be longer than {cooldown} updates, got {run}", where
    )
    stages: list[tuple[Callable[[], sp.Expr], int | None]] = []
    before = sp.S.Zero
    last: Curve = _fixed(rate)
    for cycle, (start, end) in enumerate(pairwise(_points(section, run - cooldown, where))):
        name = "warmup" if cycle == 0 else "rewarmup"
        warmup = _length(section[name], name, end - start, where)
        rest = end - start - warmup
        decay = section["decay"]
        decay = rest if decay is None else _length(decay, "decay", end - start, where)
        if warmup != 0:
            stages.append((_rise(before, rate, start, warmup), start + warmup))
        if rest - decay != 0:
            stages.append((_value(rate), start + warmup + rest - decay))
        last = _decay(shape, rate, low, warmup, decay, where)
        stages.append((_shifted(last, start + warmup + rest - decay), end))
        try:
            before = last(sp.Integer(decay))
        except UndefinedError as error:
            refuse_unless(False, str(error), where)
    if cooldown:
        begin = run - cooldown
        stages.append((_rise(before, low, begin, cooldown), None))
    else:
        stages[-1] = (stages[-1][0], None)
    return by_intervals(context.path[-1], *_joined(stages))


def _joined(
    stages: list[tuple[Callable[[], sp.Expr], int | None]],
) -> list[tuple[Callable[[], sp.Expr], int | None]]:
    """The stages as optax joins them: the last one whose boundary is reached decides."""
    ends: list[int | None] = []
    earliest: int | None = None
    for _, end in reversed(stages):
        if end is not None:
            earliest = end if earliest is None else min(end, earliest)
        ends.append(earliest)
    return [(value, end) for (value, _), end in zip(stages, reversed(ends), strict=True)]


def _fixed(rate: sp.Expr) -> Curve:
    return lambda j: rate


def _value(rate: sp.Expr) -> Callable[[], sp.Expr]:
    return lambda: rate


def _shifted(curve: Curve, begin: int) -> Callable[[], sp.Expr]:
    return lambda: curve(t - begin)


def _rise(first: sp.Expr, last: sp.Expr, begin: int, length: int) -> Callable[[], sp.Expr]:
    part = sp.Min(1, (t - begin) / sp.Integer(length))
    return lambda: along_line(first, last, part)


SECTION: Arguments = {
    "learning_rate": 6e-4,
    "min_lr_ratio": 0.1,
    "warmup": 0.01,
    "decay": None,
    "rewarmup": 0.0,
    "cooldown": None,
    "cycle_length": None,
    "cycles": None,
    "lr_schedule": "cosine",
}
SHAPES: Mapping[object, Arguments] = {
    "constant": {"type": REQUIRED},
    "cosine": {"type": REQUIRED, "exponent": 1.0},
    "linear": {"type": REQUIRED},
    "inv_sqrt": {"type": REQUIRED, "timescale": 10000},
    "inv": {"type": REQUIRED},
    "power": {
        "type": REQUIRED,
        "batch_size": REQUIRED,
        "seq_length": REQUIRED,
        "a": 4.6,
        "b": -0.51,
    },
}
_NOTES: Mapping[str, tuple[str, ...]] = {
    "cosine": ("a warmup of 1 is the whole run, and refused",),
    "inv": ("the first update of the decay is below the peak",),
    "inv_sqrt": ("the timescale is 10000, not the warmup",),
}
SCHEDULES = {
    str(name): ScheduleEntry(
        str(name), (), parameters(optimizer=REQUIRED), _build, notes=_NOTES.get(str(name), ())
    )
    for name in SHAPES
}

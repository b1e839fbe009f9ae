"""The schedules that people write: a warmup and one decay, with the names of transformers.

The arguments are solved for instead of searched. A curve is a line to the peak at the end of the
warmup, and then the peak times a factor of the progress. For each kind of factor, every logged
value gives an interval of its one unknown, the length, the minimum or the exponent, and all values
together one of which the roundest number is taken. The formulas here only propose numbers: a
proposal counts if the schedule of :mod:`closedform.recipes` with these numbers reproduces every
logged value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform import schedules
from closedform.errors import ClosedFormError
from closedform.language import Schedule
from closedform.recipes.frameworks import schedule
from closedform.recovery.marks import Points
from closedform.recovery.search import Call, call_text, residual_of
from closedform.recovery.simplest import candidates, digits

Values = NDArray[np.float64]

MOST_PROPOSALS = 12
"""Proposals of one kind that are compared with the log."""

MOST_WARMUPS = 10
MOST_TOTALS = 40
MOST_DECIMALS = 7
"""Digits of a rate beyond which nobody writes it."""


@dataclass(frozen=True, slots=True)
class Usual:
    """A scheduler of transformers with its arguments.

    Attributes:
        kind: Its name there.
        config: The keys of ``TrainingArguments``.
        schedule: The schedule; None where these arguments are not valid.
        residual: The largest distance from a logged value, in units of its precision.
        cost: The digits of its numbers.
        step: The update of the largest distance.
        gap: The distance there.
    """

    kind: str
    config: Mapping[str, Any]
    schedule: Schedule
    residual: float
    cost: float
    step: int
    gap: float

    @property
    def is_right(self) -> bool:
        """Whether it reproduces every logged value."""
        return self.residual <= 1 + 1e-9

    def in_library(self, points: Points) -> Call | None:
        """Returns the same as a call of the library; None where it has another form there.

        Args:
            points: The logged values, which it must reproduce as well.
        """
        arguments = self.config.get("lr_scheduler_kwargs", {})
        peak = _exact(self.config["learning_rate"])
        warmup, total = self.config.get("warmup_steps", 0), self.config["max_steps"]
        end = _exact(arguments.get("min_lr", arguments.get("lr_end", 0)))
        if "min_lr_rate" in arguments:
            end = _exact(arguments["min_lr_rate"]) * peak
        fall = {"start": peak, "end": end, "steps": Fraction(total - warmup)}
        built: Schedule | None = None
        text = ""
        if self.kind in _FALLING and "num_cycles" not in arguments:
            name = _FALLING[self.kind]
            if name == "polynomial":
                fall["power"] = _exact(arguments["power"])
            built, text = getattr(schedules, name)(**fall), call_text(name, fall)
        if warmup and (built is not None or self.kind == "constant_with_warmup"):
            rise = {"start": Fraction(0), "end": peak, "steps": Fraction(warmup)}
            line, text_of_line = schedules.linear(**rise), call_text("linear", rise)
            built = line if built is None else line.then(built)
            text = f"{text_of_line}.then({text})" if text else text_of_line
        if built is None:
            return None
        residual = residual_of(built, points)
        return Call(text, built, self.cost, residual) if residual <= 1 + 1e-9 else None

    @property
    def text(self) -> str:
        """The scheduler as ``transformers:kind(arguments)``."""
        kwargs = self.config.get("lr_scheduler_kwargs", {})
        names = [name for name in _SHOWN if name != "max_steps" or self.kind not in _ENDLESS]
        shown = {name: self.config[name] for name in names if name in self.config} | kwargs
        inside = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"transformers:{self.kind}({inside})"


_SHOWN = ("learning_rate", "warmup_steps", "max_steps")
_FALLING: Mapping[str, str] = {
    "linear": "linear",
    "cosine": "cosine",
    "cosine_with_min_lr": "cosine",
    "polynomial": "polynomial",
}
"""Kind of a decay -> the function of the library."""

_ENDLESS = ("constant", "constant_with_warmup", "inverse_sqrt")
"""Kinds that do not depend on the length of the run."""


@dataclass(frozen=True, slots=True)
class _Rise:
    """A warmup: its length, the rate at its end, and the rate at its begin as a part of that."""

    warmup: int
    peak: Fraction
    low: float


@dataclass(frozen=True, slots=True)
class _Tail:
    """The values after a warmup, in units of the peak.

    Attributes:
        rise: The warmup.
        x: The updates since its end.
        y: The values.
        e: How far the true values may be from them.
        last: The number of updates that the log shows.
    """

    rise: _Rise
    x: Values
    y: Values
    e: Values
    last: int

    @property
    def totals(self) -> list[int]:
        """The lengths of the run that are tried: the log's own end, and round numbers after it."""
        ends = [self.last, *_round_integers(self.last, 3 * self.last)]
        return [total for total in dict.fromkeys(ends) if total > self.rise.warmup][:MOST_TOTALS]


Proposal = Mapping[str, Any]


def usual_schedules(points: Points) -> list[Usual]:
    """Returns the nearest schedule of each kind, those that reproduce the log first.

    Args:
        points: The logged values.
    """
    if points.steps[0] < 0 or len(points.steps) < 3 or float(np.max(points.values)) <= 0:
        return []
    nearest: list[Usual] = []
    with np.errstate(all="ignore"):
        rises = list(itertools.islice(_rises(points), MOST_WARMUPS))
        for kind, propose in PROPOSE.items():
            tried = [
                usual
                for rise in rises
                for proposal in itertools.islice(propose(_tail(points, rise)), MOST_PROPOSALS)
                if (usual := _checked(kind, rise, proposal, points)) is not None
            ]
            if tried:
                nearest.append(min(tried, key=lambda one: (not one.is_right, _rank(one))))
    order = list(PROPOSE)
    nearest.sort(key=lambda one: (not one.is_right, _rank(one), order.index(one.kind)))
    return nearest


def _rank(one: Usual) -> float:
    return one.cost if one.is_right else one.residual


def _checked(kind: str, rise: _Rise, proposal: Proposal, points: Points) -> Usual | None:
    total = proposal.get("max_steps", int(points.steps[-1]) + 1)
    kwargs = {name: value for name, value in proposal.items() if name != "max_steps"}
    config: dict[str, Any] = {
        "learning_rate": float(rise.peak),
        "lr_scheduler_type": kind,
        "warmup_steps": rise.warmup,
        "max_steps": total,
    }
    if kind == "constant":
        del config["warmup_steps"]
    if kwargs:
        config["lr_scheduler_kwargs"] = kwargs
    try:
        built = schedule("transformers", kind, config)
        residual = residual_of(built, points)
    except ClosedFormError:
        return None
    numbers = [rise.peak, Fraction(rise.warmup), Fraction(total)]
    numbers += [_exact(value) for value in kwargs.values() if _is_number(value)]
    values = np.asarray(built(points.steps.astype(np.int64)), dtype=np.float64)
    gaps = np.abs(values - points.values)
    worst = int(np.argmax(gaps / points.errors))
    # The end of a run after that of the log is not attested.
    is_after = total > 1.02 * (float(points.steps[-1]) + 1) + 1
    cost = sum(map(digits, numbers)) + len(kwargs) + 2 * is_after
    return Usual(kind, config, built, residual, cost, int(points.steps[worst]), float(gaps[worst]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


# --- the warmup ----------------------------------------------------------------------------------


def _rises(points: Points) -> Iterator[_Rise]:
    """Warmups, the likeliest first: the end of the first line, and round numbers around it."""
    t, v, e = points.steps, points.values, points.errors
    falls = np.flatnonzero(v[1:] < v[:-1] - e[1:] - e[:-1])
    peaked = int(falls[0]) if falls.size else len(v) - 1
    top = int(np.argmax(v[: peaked + 1] >= np.max(v[: peaked + 1]) - e[: peaked + 1]))
    if t[0] == 0 and v[1] <= v[0] + e[0] + e[1]:
        for peak in _numbers(float(v[0]), float(e[0])):
            yield _Rise(0, peak, 0.0)
        return
    if top == 0 or peaked == 0:
        # The log begins after the warmup, if there was one: it is not known.
        return
    # The line through the first values: its end is the peak, at the last of them or after it.
    counts = [count for count in (top + 1, top) if count >= 2 and _is_line(points, count)]
    by_count = [list(_ends(points, count, top, peaked)) for count in counts]
    for rises in itertools.zip_longest(*by_count):
        yield from (rise for rise in rises if rise is not None)


def _ends(points: Points, count: int, top: int, peaked: int) -> Iterator[_Rise]:
    """Warmups whose line passes through so many first values."""
    t, v, e = points.steps, points.values, points.errors
    slope = float(v[count - 1] - v[0]) / float(t[count - 1] - t[0])
    begin = float(v[0]) - slope * float(t[0])
    spread = float(e[0] + e[count - 1])
    begin = 0.0 if abs(begin) <= 2 * spread else begin
    if begin < 0:
        return
    if begin == 0.0:
        slope = float(v[count - 1]) / float(t[count - 1])
        spread = float(e[count - 1])
    first = int(t[count - 1])
    final = int(t[count]) if count < len(t) else first
    is_dense = final - first <= 1
    ends = [first, final] if is_dense else _round_integers(first, final)
    for warmup in ends:
        if warmup < 1:
            continue
        if warmup == int(t[top]):
            peaks = _numbers(float(v[top]), float(e[top]))
        else:
            reach = spread * warmup / max(float(t[count - 1]), 1.0)
            peaks = _numbers(begin + slope * warmup, reach)
        for peak in itertools.islice(peaks, 2):
            if float(peak) >= float(np.max((v - e)[: peaked + 1])):
                yield _Rise(warmup, peak, begin / float(peak))


def _is_line(points: Points, count: int) -> bool:
    """Whether a line can pass through the first values."""
    t, v, e = points.steps[:count], points.values[:count], points.errors[:count]
    if count < 3:
        return count == 2
    line = v[0] + (v[-1] - v[0]) * (t - t[0]) / (t[-1] - t[0])
    return bool(np.all(np.abs(line - v) <= 2 * (e + e[0] + e[-1])))


def _tail(points: Points, rise: _Rise) -> _Tail:
    after = points.steps >= rise.warmup
    peak = float(rise.peak)
    return _Tail(
        rise,
        points.steps[after] - rise.warmup,
        points.values[after] / peak,
        points.errors[after] / peak + 4e-16,
        int(points.steps[-1]) + 1,
    )


# --- the decay -----------------------------------------------------------------------------------


def _constant(tail: _Tail) -> Iterator[Proposal]:
    if tail.rise.warmup == 0:
        yield {}


def _constant_after_warmup(tail: _Tail) -> Iterator[Proposal]:
    if tail.rise.warmup > 0:
        yield {}


def _linear(tail: _Tail) -> Iterator[Proposal]:
    inside = (tail.y > 10 * tail.e) & (tail.y < 1 - tail.e) & (tail.x > 0)
    x, y, e = tail.x[inside], tail.y[inside], tail.e[inside]
    for length in _lengths(x / (1 - y + e), x / np.maximum(1 - y - e, 1e-300)):
        yield {"max_steps": tail.rise.warmup + length}


def _cosine_lengths(tail: _Tail, stop: int | None = None) -> tuple[Values, Values]:
    """Bounds of the half period, from the values before the first minimum."""
    end = int(np.argmin(tail.y)) if stop is None else stop
    x, y, e = tail.x[:end], tail.y[:end], tail.e[:end]
    inside = (x > 0) & (y < 1 - 2 * e) & (y > 2 * e)
    x, y, e = x[inside], y[inside], e[inside]
    low = math.pi * x / np.arccos(np.clip(2 * (y - e) - 1, -1, 1))
    high = math.pi * x / np.arccos(np.clip(2 * (y + e) - 1, -1, 1))
    return low, high


def _cosine(tail: _Tail) -> Iterator[Proposal]:
    low, high = _bounds(*_cosine_lengths(tail))
    if low is None or high is None:
        return
    warmup, last = tail.rise.warmup, tail.last
    for half in _integers(low, high):
        if warmup + half >= last:
            yield {"max_steps": warmup + half}
    # The end of the run is at the end of the log, or a round number: the cycles follow from it.
    for total in tail.totals:
        few, many = (total - warmup) / (2 * high), (total - warmup) / (2 * low)
        cycles = _simple(few, many)
        if cycles is not None and cycles != Fraction(1, 2) and digits(cycles) <= 3:
            yield {"max_steps": total, "num_cycles": _plain(cycles)}


def _restarts(tail: _Tail) -> Iterator[Proposal]:
    jumps = np.flatnonzero((np.diff(tail.y) > 0.3) & (tail.y[1:] > 0.5))
    if not jumps.size:
        low, high = _bounds(*_cosine_lengths(tail))
        if low is not None and high is not None:
            for length in _integers(low, high):
                yield {"max_steps": tail.rise.warmup + length}
        return
    low, high = _bounds(*_cosine_lengths(tail, int(jumps[0]) + 1))
    if low is None or high is None:
        return
    fewest = max(len(jumps) + 1, math.ceil((tail.last - tail.rise.warmup) / high - 1e-9))
    for cycles in range(fewest, fewest + 3):
        for length in _integers(low * cycles, high * cycles):
            total = tail.rise.warmup + length
            yield {"max_steps": total, "num_cycles": cycles}


def _to_minimum(tail: _Tail, factor: Callable[[Values, float], Values]) -> Iterator[Any]:
    """Lengths of the run, and the minimum as a part of the peak that each of them needs."""
    for total in tail.totals:
        q = factor(tail.x, float(total - tail.rise.warmup))
        inside = (q < 0.999) & (q >= 0)
        if not inside.any():
            continue
        q, y, e = q[inside], tail.y[inside], tail.e[inside]
        low, high = _bounds((y - e - q) / (1 - q), (y + e - q) / (1 - q))
        if low is None or high is None or high < 0:
            continue
        yield total, max(low, 0.0), high


def _half_cosine(x: Values, length: float) -> Values:
    return np.asarray((1 + np.cos(math.pi * x / length)) / 2)


def _cosine_with_minimum(tail: _Tail) -> Iterator[Proposal]:
    peak = float(tail.rise.peak)
    for total, low, high in _to_minimum(tail, _half_cosine):
        value = _simple(low * peak, high * peak)
        rate = _simple(low, high)
        if value is not None and (rate is None or digits(value) <= digits(rate)):
            yield {"max_steps": total, "min_lr": _plain(value)}
        elif rate is not None:
            yield {"max_steps": total, "min_lr_rate": _plain(rate)}


def _polynomial(tail: _Tail) -> Iterator[Proposal]:
    peak = float(tail.rise.peak)
    for power in (1.0, 2.0, 3.0, 0.5, 1.5, 4.0):

        def fall(x: Values, length: float, power: float = power) -> Values:
            return np.asarray(np.maximum(1 - x / length, 0) ** power)

        for total, low, high in _to_minimum(tail, fall):
            end = _simple(low * peak, high * peak)
            if end is not None:
                yield {"max_steps": total, "power": power, "lr_end": _plain(end)}
                break


def _inverse_root(tail: _Tail) -> Iterator[Proposal]:
    inside = (tail.x > 0) & (tail.y < 1 - 2 * tail.e)
    x, y, e = tail.x[inside], tail.y[inside], tail.e[inside]
    low = (y - e) ** 2 * x / (1 - (y - e) ** 2)
    high = (y + e) ** 2 * x / (1 - (y + e) ** 2)
    for scale in _lengths(low, high):
        yield {} if scale == (tail.rise.warmup or 10_000) else {"timescale": scale}


_FALLS: Mapping[str, Callable[[Values, float], Values]] = {
    "cosine": _half_cosine,
    "linear": lambda x, length: np.asarray(1 - x / length),
    "1-sqrt": lambda x, length: np.asarray(1 - np.sqrt(np.maximum(x, 0) / length)),
}


def _stable(tail: _Tail) -> Iterator[Proposal]:
    """A flat stretch and a decay: its begin is after the last value at the peak, or before it."""
    flat = np.flatnonzero(tail.y < 1 - tail.e)
    if not flat.size:
        return
    first = int(flat[0])
    if first == 0:
        return
    latest, next_ = int(tail.x[first - 1]), int(tail.x[first])
    nearest = [latest] if next_ - latest == 1 else _round_integers(latest, next_ - 1)
    begins = [*nearest[:6], *([latest - 1, latest - 2] if next_ - latest == 1 else [])]
    for begin in begins:
        for kind, fall in _FALLS.items():
            after = tail.x > begin
            part = _Tail(
                _Rise(0, tail.rise.peak, 0.0),
                tail.x[after] - begin,
                tail.y[after],
                tail.e[after],
                tail.last - tail.rise.warmup - begin,
            )
            for length in _decays(part):
                q = fall(part.x[part.x < length], float(length))
                y, e = part.y[part.x < length], part.e[part.x < length]
                inside = q < 0.999
                bounds = _bounds(
                    (y - e - q)[inside] / (1 - q)[inside], (y + e - q)[inside] / (1 - q)[inside]
                )
                if bounds[0] is None or bounds[1] is None or bounds[1] < 0:
                    continue
                low = _simple(max(bounds[0], 0.0), bounds[1])
                if low is None:
                    continue
                proposal = {
                    "max_steps": tail.rise.warmup + begin + length,
                    "num_decay_steps": length,
                    "min_lr_ratio": _plain(low),
                }
                yield proposal if kind == "cosine" else {**proposal, "decay_type": kind}


def _decays(part: _Tail) -> list[int]:
    """Lengths of the decay: to the end of the log, to its flat end, and round numbers."""
    ends = [part.last]
    low = np.flatnonzero(part.y <= part.y[-1] + part.e)
    if low.size > 1:
        ends.append(int(part.x[low[0]]))
    return [
        end for end in dict.fromkeys([*ends, *_round_integers(part.last, 2 * part.last)]) if end
    ]


PROPOSE: Mapping[str, Callable[[_Tail], Iterator[Proposal]]] = {
    "constant": _constant,
    "constant_with_warmup": _constant_after_warmup,
    "linear": _linear,
    "cosine": _cosine,
    "cosine_with_restarts": _restarts,
    "cosine_with_min_lr": _cosine_with_minimum,
    "inverse_sqrt": _inverse_root,
    "polynomial": _polynomial,
    "warmup_stable_decay": _stable,
}
"""Name of a scheduler of transformers -> the arguments that a tail proposes, likeliest first."""


# --- numbers -------------------------------------------------------------------------------------


def _bounds(low: Values, high: Values) -> tuple[float, float] | tuple[None, None]:
    """The interval that all have in common, a rounding wider; None if there is none."""
    finite = np.isfinite(low) & np.isfinite(high)
    if not finite.any():
        return None, None
    bottom, top = float(np.max(low[finite])), float(np.min(high[finite]))
    slack = 1e-9 * max(abs(bottom), abs(top))
    return (bottom - slack, top + slack) if bottom <= top + 2 * slack else (None, None)


def _lengths(low: Values, high: Values) -> list[int]:
    bottom, top = _bounds(low, high)
    return [] if bottom is None or top is None else _integers(bottom, top)


def _integers(low: float, high: float) -> list[int]:
    """The integers of an interval, the roundest first."""
    first, last = math.ceil(low), math.floor(high)
    return _round_integers(first, last) if 1 <= first <= last < 10**9 else []


def _round_integers(low: int, high: int) -> list[int]:
    """Integers from one to another, the roundest first, at most 60 of them."""
    chosen: list[int] = []
    unit = 10 ** len(str(max(high, 1)))
    while unit >= 1 and len(chosen) < 60:
        first = -(-low // unit) * unit
        new = (n for n in range(first, high + 1, unit) if n not in chosen)
        chosen += itertools.islice(new, 60 - len(chosen))
        half = unit // 2
        if half and unit > 1:
            first = -(-low // half) * half
            new = (n for n in range(first, high + 1, half) if n not in chosen)
            chosen += itertools.islice(new, 60 - len(chosen))
        unit //= 10
    return chosen


def _simple(low: float, high: float) -> Fraction | None:
    """The number with the fewest digits of an interval; None if it needs too many."""
    middle, half = (low + high) / 2, (high - low) / 2
    if low <= 1e-12 * max(abs(high), 1e-300) or (low <= 0 <= high):
        return Fraction(0)
    return next(iter(_numbers(middle, half)), None)


def _numbers(value: float, spread: float) -> Iterator[Fraction]:
    """Decimals near a value, those with fewer digits first."""
    within = spread * (1 + 1e-9) + 1e-12 * abs(value)
    for number in candidates(value, is_integer=False):
        is_decimal = digits(number) <= MOST_DECIMALS and number != 0
        if is_decimal and abs(float(number) - value) <= within:
            yield number


def _exact(number: float | Fraction) -> Fraction:
    """The decimal that a number was written as."""
    return number if isinstance(number, Fraction) else Fraction(repr(float(number)))


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 and number != 0 else float(number)

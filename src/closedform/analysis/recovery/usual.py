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
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from closedform import schedules
from closedform.analysis.lags import lags_of
from closedform.analysis.profile import first_rise
from closedform.analysis.recovery.marks import Points
from closedform.analysis.recovery.search import LibraryCall, call_text, check_call, residual_of
from closedform.analysis.recovery.simplest import candidates, digits, round_integers
from closedform.errors import ClosedFormError
from closedform.frameworks import schedule
from closedform.ir.types import FloatArray, StepArray
from closedform.language import Schedule

MOST_PROPOSALS = 12
"""Proposals of one kind that are compared with the log."""

MOST_RIGHT = 6
MOST_TRIED = 60
"""Proposals of a kind that reproduce the log, and all of them, after which no more are compared."""

SKIPPED = (2, 5, 20)
"""Skipped updates for which numbers are proposed: a loss scaler begins with fewer than 20."""

MOST_WARMUPS = 170
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
        lags: The updates that were skipped before each logged value; None where the count is that
            of the schedule.
    """

    kind: str
    config: Mapping[str, Any]
    schedule: Schedule
    residual: float
    cost: float
    step: int
    gap: float
    lags: StepArray | None = None

    @property
    def is_right(self) -> bool:
        """Whether it reproduces every logged value."""
        return self.residual <= 1 + 1e-9

    def in_library(self, points: Points) -> LibraryCall | None:
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
        rate: Schedule | None = None
        text = ""
        if self.kind in _FALLING and "num_cycles" not in arguments:
            name = _FALLING[self.kind]
            if name == "polynomial":
                fall["power"] = _exact(arguments["power"])
            rate, text = getattr(schedules, name)(**fall), call_text(name, fall)
        if warmup and (rate is not None or self.kind == "constant_with_warmup"):
            rise = {"start": Fraction(0), "end": peak, "steps": Fraction(warmup)}
            line, text_of_line = schedules.linear(**rise), call_text("linear", rise)
            rate = line if rate is None else line.then(rate)
            text = f"{text_of_line}.then({text})" if text else text_of_line
        if rate is None:
            return None
        return check_call(text, rate, self.cost, points)

    @property
    def text(self) -> str:
        """The scheduler as ``transformers:kind(arguments)``."""
        kwargs = self.config.get("lr_scheduler_kwargs", {})
        names = [name for name in _SHOWN if name != "max_steps" or self.kind not in _ENDLESS]
        arguments = {name: self.config[name] for name in names if name in self.config} | kwargs
        inside = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
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
    x: FloatArray
    y: FloatArray
    e: FloatArray
    last: int

    @property
    def totals(self) -> list[int]:
        """The lengths of the run that are tried: the log's own end, and round numbers after it."""
        stride = int(self.x[-1] - self.x[-2]) if len(self.x) > 1 else 1
        near = round_integers(self.last, self.last + stride)[:MOST_TOTALS]
        ends = [self.last, *near, *round_integers(self.last, 3 * self.last)[:MOST_TOTALS]]
        return [total for total in dict.fromkeys(ends) if total > self.rise.warmup]


Proposal = Mapping[str, Any]


def usual_schedules(points: Points, most_skips: int = 0) -> list[Usual]:
    """Returns the nearest schedule of each kind, those that reproduce the log first.

    Args:
        points: The logged values.
        most_skips: The most updates that were skipped, by which a schedule lags behind the log.
    """
    if points.steps[0] < 0 or len(points.steps) < 3 or float(np.max(points.values)) <= 0:
        return []
    nearest: list[Usual] = []
    with np.errstate(all="ignore"):
        near = _with_slack(points, most_skips) if most_skips else points
        rises = list(dict.fromkeys(_rises(near)))
        for kind, propose in PROPOSE.items():
            proposals = _proposals_near(kind, propose, rises, near, points)
            proposals.sort(key=_rank)
            # A log that begins after the warmup has several peaks and warmups of as many digits.
            nearest += [
                usual
                for usual in proposals
                if usual is proposals[0] or (usual.is_right and usual.cost == proposals[0].cost)
            ]
    order = list(PROPOSE)
    nearest.sort(key=lambda usual: (_rank(usual)[:2], order.index(usual.kind), _rank(usual)))
    return nearest


def _proposals_near(
    kind: str,
    propose: Callable[[_Tail], Iterator[Proposal]],
    rises: list[_Rise],
    near: Points,
    points: Points,
) -> list[Usual]:
    """The proposals of a kind compared with the log, until several reproduce it."""
    usual_list: list[Usual] = []
    for rise in rises:
        for proposal in itertools.islice(propose(_tail(near, rise)), MOST_PROPOSALS):
            usual = _check_proposal(kind, rise, proposal, points, has_skips=near is not points)
            usual_list += [usual] if usual is not None else []
            is_enough = sum(candidate.is_right for candidate in usual_list) >= MOST_RIGHT
            if is_enough or len(usual_list) >= MOST_TRIED:
                return usual_list
    return usual_list


def _rank(usual: Usual) -> tuple[bool, float, int]:
    """A key of order: those that reproduce the log, by their digits, those of the peak first."""
    if not usual.is_right:
        return True, usual.residual, 0
    return False, usual.cost, digits(_exact(usual.config["learning_rate"]))


def _with_slack(points: Points, most_skips: int) -> Points:
    """The values with the errors that skipped updates are: some updates earlier on the curve."""
    slopes = np.abs(np.gradient(points.values, points.steps))
    return replace(points, errors=points.errors + most_skips * slopes)


def _check_proposal(
    kind: str, rise: _Rise, proposal: Proposal, points: Points, *, has_skips: bool
) -> Usual | None:
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
        rate = schedule("transformers", kind, config)
        lags = None
        if has_skips:
            lags = lags_of(rate, points.steps, points.values, points.errors)
            points = points if lags is None else replace(points, steps=points.steps - lags)
        residual = residual_of(rate, points)
    except ClosedFormError:
        return None
    numbers = [rise.peak, Fraction(rise.warmup), Fraction(total)]
    numbers += [_exact(value) for value in kwargs.values() if _is_number(value)]
    values = np.asarray(rate(points.steps.astype(np.int64)), dtype=np.float64)
    gaps = np.abs(values - points.values)
    worst = int(np.argmax(gaps / points.errors))
    # The end of a run after that of the log is not attested.
    is_after = total > 1.02 * (float(points.steps[-1]) + 1) + 1
    cost = sum(map(digits, numbers)) + len(kwargs) + 2 * is_after
    return Usual(
        kind, config, rate, residual, cost, int(points.steps[worst]), float(gaps[worst]), lags
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


# --- the warmup ----------------------------------------------------------------------------------


def _rises(points: Points) -> Iterator[_Rise]:
    """Warmups, the likeliest first: the end of the first line, and round numbers around it."""
    t, v, e = points.steps, points.values, points.errors
    if t[0] == 0 and v[1] <= v[0] + e[0] + e[1]:
        for peak in _numbers(float(v[0]), float(e[0])):
            yield _Rise(0, peak, 0.0)
        return
    if t[0] > 0:
        # Nearly all warmups begin at 0, whether the log has it or not.
        origin = np.zeros(1)
        with_origin = Points(*(np.concatenate([origin, parts]) for parts in (t, v, e)))
        yield from itertools.islice(_from_begin(with_origin, is_logged=False), MOST_WARMUPS)
        if first_rise(points.values, points.errors).top < 2:
            return
    yield from itertools.islice(_from_begin(points, is_logged=True), MOST_WARMUPS)


def _from_begin(points: Points, *, is_logged: bool) -> Iterator[_Rise]:
    """Warmups of a log whose first value is that of update 0, or is taken to be 0 there."""
    beginning = first_rise(points.values, points.errors)
    top, end_of_rise = beginning.top, beginning.last
    if top == 0 or end_of_rise == 0:
        return
    # The line through the first values: its end is the peak, at the last of them or after it.
    # The peak itself is on the line of the warmup or, if the decay has begun, above its last point.
    counts = [count for count in (top + 1, top) if count >= 2 and _is_line(points, count)]
    by_count = [list(_rises_on_line(points, count, top, end_of_rise)) for count in counts]
    # A log that begins later than it goes on has lost more than the warmup.
    gaps = np.diff(points.steps)
    is_hidden = top == 1 and float(points.values[0]) == 0 and gaps[0] <= 2 * np.median(gaps)
    if is_hidden and points.steps[1] > 1:
        yield from itertools.islice(_hidden_rises(points, is_logged=is_logged), MOST_HIDDEN)
    for rises in itertools.zip_longest(*by_count):
        yield from (rise for rise in rises if rise is not None)


def _hidden_rises(points: Points, *, is_logged: bool) -> Iterator[_Rise]:
    """Warmups that end between two logged updates, of which the log has no value.

    The peak is a number of two digits that is not far above the first value, the length a round
    one; what follows the warmup decides between them.
    """
    last, value = int(points.steps[1]), float(points.values[1])
    final = int(points.steps[-1] + np.median(np.diff(points.steps)))
    spread = float(points.errors[1])
    # The run ends with the log, or some updates later.
    ends = [int(points.steps[-1]) + 1, *round_integers(int(points.steps[-1]) + 1, final + 1)[:1]]
    shares = {math.ceil(share * end) for share in _SHARES for end in ends} - {0}
    shares = {length for length in shares if length <= last}
    lengths = [
        n for n in dict.fromkeys((0, *shares, *round_integers(1, last))) if n or not is_logged
    ]
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 1)
    first = math.ceil((value - spread) / float(unit))
    peaks = [n * unit for n in range(first, 2 * first)]
    # Without a warmup the decay has taken all the updates before the first value.
    pairs = [(peak, 0) for peak in peaks]
    near_peaks = [peak for peak in peaks if float(peak) <= _NEAR_PEAK * value]
    pairs += [(peak, length) for peak in near_peaks for length in lengths if length > 0]

    def cost(pair: tuple[Fraction, int]) -> tuple[int, int]:
        peak, length = pair
        return digits(peak) + (1 if length in shares else digits(Fraction(length))), digits(peak)

    pairs.sort(key=cost)
    for peak, length in pairs:
        yield _Rise(length, peak, 0.0)


_SHARES = (0.1, 0.05, 0.03, 0.06, 0.01, 0.02)
"""Parts of a run that people write for its warmup."""

_NEAR_PEAK = 1.2
"""The largest peak of a warmup that the log does not show, in units of the first value after it."""

MOST_HIDDEN = 150


def _rises_on_line(points: Points, count: int, top: int, end_of_rise: int) -> Iterator[_Rise]:
    """Warmups whose line passes through so many first values, up to two peaks for each length."""
    t, v, e = points.steps, points.values, points.errors
    slope = float(v[count - 1] - v[0]) / float(t[count - 1] - t[0])
    begin = float(v[0]) - slope * float(t[0])
    spread = float(e[0] + e[count - 1])
    # A line that passes 0 within its precision starts at 0: the simpler reading, confirmed by all
    # values later.
    begin = 0.0 if abs(begin) <= 2 * spread else begin
    if begin < 0:
        return
    if begin == 0.0:
        slope = float(v[count - 1]) / float(t[count - 1])
        spread = float(e[count - 1])
    first = int(t[count - 1])
    final = int(t[count]) if count < len(t) else first
    # Between two logged updates the length is taken to be a round number.
    is_dense = final - first <= 1
    ends = [first, final] if is_dense else round_integers(first, final)
    for warmup in ends:
        if warmup < 1:
            continue
        if warmup == int(t[top]):
            peaks = _numbers(float(v[top]), float(e[top]))
        else:
            reach = spread * warmup / max(float(t[count - 1]), 1.0)
            peaks = _numbers(begin + slope * warmup, reach)
        for peak in itertools.islice(peaks, 2):
            # No value of the rise is above its peak.
            if float(peak) >= float(np.max((v - e)[: end_of_rise + 1])):
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
    # Values near 0 and near 1 hardly bound the length: x / (1 - y) has an error of x e / (1 - y)².
    inside = (tail.y > 10 * tail.e) & (tail.y < 1 - tail.e) & (tail.x > 0)
    x, y, e = tail.x[inside], tail.y[inside], tail.e[inside]
    for length in _lengths(x / (1 - y + e), x / np.maximum(1 - y - e, 1e-300)):
        yield {"max_steps": tail.rise.warmup + length}


def _cosine_lengths(tail: _Tail, stop: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Bounds of the half period, from the values before the first minimum."""
    end = int(np.argmin(tail.y)) if stop is None else stop
    x, y, e = tail.x[:end], tail.y[:end], tail.e[:end]
    # arccos is steep at both ends.
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
    # A restart jumps from near 0 to near 1; between two logged values it may lose part of either.
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


def _to_minimum(
    tail: _Tail, factor: Callable[[FloatArray, FloatArray], FloatArray]
) -> Iterator[tuple[int, float, float]]:
    """Lengths of the run, and the minimum as a part of the peak that each of them needs."""
    totals = np.array(tail.totals, dtype=np.float64)
    if not totals.size or not tail.x.size:
        return
    # A row for each length: all of them at once.
    q = factor(tail.x[None, :], (totals - tail.rise.warmup)[:, None])
    is_inside = (q < 0.999) & (q >= 0)
    low = np.where(is_inside, (tail.y - tail.e - q) / (1 - q), -np.inf).max(axis=1)
    high = np.where(is_inside, (tail.y + tail.e - q) / (1 - q), np.inf).min(axis=1)
    slack = 1e-9 * np.maximum(np.abs(low), np.abs(high))
    fits = is_inside.any(axis=1) & (low <= high + 2 * slack) & (high >= 0)
    for place in np.flatnonzero(fits).tolist():
        bottom, top = float(low[place] - slack[place]), float(high[place] + slack[place])
        yield int(totals[place]), max(bottom, 0.0), top


def _half_cosine(x: FloatArray, length: FloatArray) -> FloatArray:
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
    # In the order in which configs use them: the first that fits is taken.
    for power in (1.0, 2.0, 3.0, 0.5, 1.5, 4.0):

        def fall(x: FloatArray, length: FloatArray, power: float = power) -> FloatArray:
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
        # 10,000 is the default of get_inverse_sqrt_schedule in transformers where there is no
        # warmup.
        yield {} if scale == (tail.rise.warmup or 10_000) else {"timescale": scale}


_PROGRESS: Mapping[str, Callable[[FloatArray], FloatArray]] = {
    "cosine": lambda y: np.asarray(np.arccos(np.clip(2 * y - 1, -1, 1)) / math.pi),
    "linear": lambda y: np.asarray(1 - y),
    "1-sqrt": lambda y: np.asarray((1 - y) ** 2),
}
"""Kind of a decay -> the part of it that is done, from the part of the height that is left."""

_MINIMA = (0.0, 0.1, 0.01, 0.05, 0.2, 0.02, 0.001, 0.5, 0.25)
"""Minima as a part of the peak that people write."""


def _stable(tail: _Tail) -> Iterator[Proposal]:
    """A flat stretch and a decay: for an end and a minimum, each value gives the begin."""
    is_falling = tail.y < 1 - 2 * tail.e
    if not is_falling.any() or is_falling[0]:
        return
    x, y, e = tail.x[is_falling], tail.y[is_falling], tail.e[is_falling]
    least = float(np.min(tail.y))
    minima = [low for low in _MINIMA if low <= least + float(e[-1])]
    exact = _simple(least - float(e[-1]), least + float(e[-1]))
    minima += [float(exact)] if exact is not None and float(exact) not in minima else []
    is_flat = np.flatnonzero(tail.y <= least + tail.e)
    ends = [*tail.totals]
    if is_flat.size > 1:
        ends.insert(0, int(tail.x[is_flat[0]]) + tail.rise.warmup)
    for low, end, (kind, progress) in itertools.product(minima, ends, _PROGRESS.items()):
        length = float(end - tail.rise.warmup)
        inside = (y - low > 2 * e) & (x < length)
        if not inside.any():
            continue
        # The begin is a monotone function of the progress: the bounds of one bound the other.
        parts = [progress((y[inside] + side * e[inside] - low) / (1 - low)) for side in (1, -1)]
        sides = [(x[inside] - part * length) / (1 - part) for part in parts]
        bounds = _bounds(np.minimum(*sides), np.maximum(*sides))
        if bounds[0] is None or bounds[1] is None:
            continue
        for begin in _integers(max(bounds[0], 1.0), bounds[1])[:2]:
            decay = int(length) - begin
            if decay < 1:
                continue
            proposal = {
                "max_steps": end,
                "num_decay_steps": decay,
                "min_lr_ratio": low,
            }
            yield proposal if kind == "cosine" else {**proposal, "decay_type": kind}


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


def _bounds(low: FloatArray, high: FloatArray) -> tuple[float, float] | tuple[None, None]:
    """The interval that all have in common, a rounding wider; None if there is none."""
    finite = np.isfinite(low) & np.isfinite(high)
    if not finite.any():
        return None, None
    bottom, top = float(np.max(low[finite])), float(np.min(high[finite]))
    slack = 1e-9 * max(abs(bottom), abs(top))
    return (bottom - slack, top + slack) if bottom <= top + 2 * slack else (None, None)


def _lengths(low: FloatArray, high: FloatArray) -> list[int]:
    bottom, top = _bounds(low, high)
    return [] if bottom is None or top is None else _integers(bottom, top)


def _integers(low: float, high: float) -> list[int]:
    """The integers of an interval, the roundest first."""
    first, last = math.ceil(low), math.floor(high)
    return round_integers(first, last) if 1 <= first <= last < 10**9 else []


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

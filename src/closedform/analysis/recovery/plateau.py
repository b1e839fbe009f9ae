"""Reductions on a plateau, from a log that has the metric and the rate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from closedform.analysis.recovery.search import call_text
from closedform.analysis.recovery.simplest import candidates
from closedform.language import UpdateRule
from closedform.recipes.logs import Log
from closedform.schedules import reduce_on_plateau

MOST_EVENTS = 20_000
MOST_PATIENCE = 60
MOST_COOLDOWN = 10
THRESHOLDS = ("0.0001", "0", "0.001", "0.01", "0.00001")
LARGEST = Fraction(float(2**128 - 2**104))
"""The best metric at the begin, the largest float32."""

_HIGHER_IS_BETTER = ("acc", "score", "f1", "map", "auc")


@dataclass(frozen=True, slots=True)
class Plateau:
    """A rule that reduces the rate on a plateau of a metric.

    Attributes:
        rule: The update rule.
        text: The call of the library.
        metric: The name of the metric in the log.
        precisions: The largest distance from a logged value, in units of its precision.
        residual: The largest distance.
        points: The number of rates.
    """

    rule: UpdateRule
    text: str
    metric: str
    precisions: float
    residual: float
    points: int


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of the rule, without the factor and the minimum."""

    mode: str
    patience: int
    threshold: Fraction
    threshold_mode: str
    cooldown: int


Event = tuple[float, float | None]
"""In the order of the log: a rate that is used with its precision, or, without one, a metric that
the scheduler steps with."""


def recover_plateau(log: Log) -> Plateau | None:
    """Returns the rule that reproduces the rates of a log from a metric in it; None if none does.

    Args:
        log: A log with rates that are constant between reductions, and metrics.
    """
    numbers = log.values["lr"].numbers
    rates = numbers[~np.isnan(numbers)].tolist()
    drops = [(before, after) for before, after in itertools.pairwise(rates) if after != before]
    is_falling = all(after < before for before, after in drops)
    if not drops or not is_falling or len(drops) * 2 > len(rates) or drops[0][0] <= 0:
        return None
    names = sorted(log.metrics, key=lambda name: not any(w in name for w in ("val", "eval")))
    for name, is_metric_first in itertools.product(names, (False, True)):
        events = _events(log, name, is_metric_first=is_metric_first)
        if len(events) > MOST_EVENTS or all(precision is not None for _, precision in events):
            continue
        for factor, minimum in _factors(drops):
            for arguments in _arguments(name):
                apart = _distance(events, factor, minimum, arguments)
                if apart is not None:
                    return _plateau(name, factor, minimum, arguments, apart, len(rates))
    return None


def _plateau(
    name: str,
    factor: Fraction,
    minimum: Fraction,
    arguments: _Arguments,
    distances: tuple[float, float],
    points: int,
) -> Plateau:
    with_defaults = (
        ("mode", arguments.mode, "min"),
        ("threshold", arguments.threshold, Fraction("0.0001")),
        ("threshold_mode", arguments.threshold_mode, "rel"),
        ("cooldown", arguments.cooldown, 0),
        ("minimum", minimum, 0),
    )
    call_arguments: dict[str, object] = {
        "factor": factor,
        "patience": arguments.patience,
        **{name: value for name, value, default in with_defaults if value != default},
    }
    rule = reduce_on_plateau(**call_arguments)  # type: ignore[arg-type]
    text = call_text("reduce_on_plateau", call_arguments)
    return Plateau(rule, text, name, distances[0], distances[1], points)


def _events(log: Log, name: str, *, is_metric_first: bool) -> list[Event]:
    rates = log.values["lr"]
    rows = zip(rates.numbers.tolist(), rates.precisions.tolist(), log.metrics[name], strict=True)
    events: list[Event] = []
    for rate, precision, metric in rows:
        pair: list[Event] = [(rate, precision), (float(metric), None)]
        row = [event for event in pair if not math.isnan(event[0])]
        events += row[::-1] if is_metric_first else row
    # The rate before the first metric is the base.
    first = next(index for index, event in enumerate(events) if event[1] is not None)
    return [events[first], *events[:first], *events[first + 1 :]]


def _factors(drops: list[tuple[float, float]]) -> Iterator[tuple[Fraction, Fraction]]:
    """Factors near the first reduction, and minima: none, or the last rate."""
    ratio = drops[0][1] / drops[0][0]
    near = [n for n in candidates(ratio, is_integer=False) if 0 < n < 1]
    near = [n for n in near if abs(float(n) - ratio) < 1e-3 * ratio][:3]
    last = drops[-1][1]
    for factor in near:
        yield factor, Fraction(0)
        yield factor, next(iter(_decimals(last)), Fraction(repr(last)))


def _decimals(value: float) -> Iterator[Fraction]:
    yield from (n for n in candidates(value, is_integer=False) if abs(float(n) - value) < 1e-9)


def _arguments(name: str) -> Iterator[_Arguments]:
    """Arguments, those with fewer that differ from the defaults first."""
    is_score = any(word in name.lower() for word in _HIGHER_IS_BETTER)
    modes = ("max", "min") if is_score else ("min", "max")
    kinds = list(itertools.product(("rel", "abs"), THRESHOLDS, range(MOST_COOLDOWN + 1)))
    kinds.sort(key=lambda kind: (kind[0] != "rel") + (kind[1] != THRESHOLDS[0]) + (kind[2] > 0))
    for mode in modes:
        for relative, threshold, cooldown in kinds:
            for patience in range(MOST_PATIENCE + 1):
                yield _Arguments(mode, patience, Fraction(threshold), relative, cooldown)


def _distance(
    events: list[Event], factor: Fraction, minimum: Fraction, arguments: _Arguments
) -> tuple[float, float] | None:
    """The largest distances of the rates, if the rule with these arguments has all of them.

    The state machine of ``reduce_on_plateau``, in floats: its rule steps one metric at a time as a
    graph, which would take hours for all arguments. A test compares the two.
    """
    sign = 1.0 if arguments.mode == "min" else -1.0
    threshold = float(arguments.threshold)
    best, bad, cooling = sign * float(LARGEST), 0, 0
    rate: float | None = None
    low, gamma = float(minimum), float(factor)
    largest = residual = 0.0
    for value, precision in events:
        if precision is not None:
            rate = value if rate is None else rate
            gap = abs(value - rate)
            within = precision + 1e-12 * abs(value)
            if gap > within:
                return None
            largest, residual = max(largest, gap / within if gap else 0.0), max(residual, gap)
            continue
        if arguments.threshold_mode == "rel":
            bound = best * (1 - sign * threshold)
        else:
            bound = best - sign * threshold
        is_better = sign * value < sign * bound
        best = value if is_better else best
        bad = 0 if is_better else bad + 1
        if cooling > 0:
            cooling, bad = cooling - 1, 0
        if bad > arguments.patience and rate is not None:
            lower_rate = max(rate * gamma, low)
            # ``eps`` of torch's ReduceLROnPlateau: a smaller reduction is left out.
            rate = lower_rate if rate - lower_rate > 1e-8 else rate
            cooling, bad = arguments.cooldown, 0
    return largest, residual

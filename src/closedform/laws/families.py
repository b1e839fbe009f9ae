"""Families of schedules: the free numbers of a design, and their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import sympy as sp

from closedform.analysis.numeric import CompiledCurve, is_supported
from closedform.errors import ArgumentError, DefinitionError, UnknownNameError, nearest
from closedform.ir.types import FloatArray
from closedform.language import Schedule, exact_number, hyper, t
from closedform.language.aliases import Number

Bounds = tuple[sp.Expr, sp.Expr]
"""The least and the largest value of a free number."""


class Family(Protocol):
    """Schedules with free numbers."""

    @property
    def horizon(self) -> int:
        """The number of updates of the run."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the free numbers."""

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """Their bounds by name."""

    @property
    def integers(self) -> frozenset[str]:
        """The names of those that are integers."""

    @property
    def starts(self) -> Sequence[FloatArray]:
        """Points at which a search begins, as parts of the ranges; a grid where there are none."""

    def schedule(self, values: Mapping[str, sp.Expr]) -> Schedule:
        """Returns the schedule with such numbers."""

    def rates(self, values: FloatArray) -> FloatArray:
        """Returns the rates of all updates; an integer may be any number here."""

    def series(self, values: Sequence[Any], functions: Mapping[Any, Any], number: Any) -> list[Any]:
        """Returns the rates of all updates in the arithmetic of some functions."""


@dataclass(frozen=True)
class OpenSchedule:
    """The schedules of a formula with hyperparameters that have no value.

    Attributes:
        form: The schedule.
        horizon: The number of updates of the run.
        bounds: The bounds of each open hyperparameter.
    """

    form: Schedule
    horizon: int
    bounds: Mapping[str, Bounds]

    @property
    def names(self) -> tuple[str, ...]:
        """The open hyperparameters."""
        return tuple(self.bounds)

    @property
    def integers(self) -> frozenset[str]:
        """Those that are integers."""
        return frozenset(symbol.name for symbol in self.form.open if symbol.is_integer)

    @property
    def starts(self) -> Sequence[FloatArray]:
        """None: a grid is searched."""
        return ()

    @cached_property
    def _symbols(self) -> list[sp.Symbol]:
        by_name = {symbol.name: symbol for symbol in self.form.open}
        return [by_name[name] for name in self.names]

    @cached_property
    def _program(self) -> CompiledCurve:
        return CompiledCurve(self.form.bound)

    def schedule(self, values: Mapping[str, sp.Expr]) -> Schedule:
        """Returns the schedule with such hyperparameters."""
        return self.form.bind(values)

    def rates(self, values: FloatArray) -> FloatArray:
        """Returns the rates of all updates."""
        steps = np.arange(self.horizon, dtype=np.float64)
        # A search tries numbers at which the formula is 0/0; the law then has no value there.
        with np.errstate(all="ignore"):
            rates = self._program.value({t: steps, **dict(zip(self._symbols, values, strict=True))})
        # A formula without t is one number.
        return np.broadcast_to(np.asarray(rates, dtype=np.float64), steps.shape)

    def series(self, values: Sequence[Any], functions: Mapping[Any, Any], number: Any) -> list[Any]:
        """Returns the rates of all updates in the arithmetic of some functions."""
        program = CompiledCurve(self.form.bound, functions=functions, number=number)
        symbols = dict(zip(self._symbols, values, strict=True))
        return [
            # Step by step: numbers of ball arithmetic have no arrays.
            program.value({t: number(sp.Integer(step)), **symbols})
            for step in range(self.horizon)
        ]


def open_schedule(
    form: Schedule, horizon: int, bounds: Mapping[str, tuple[Number, Number]]
) -> OpenSchedule:
    """Returns the family of a schedule whose open hyperparameters are free.

    Raises:
        ArgumentError: A hyperparameter has no bounds, or there is none that is open.
        UnknownNameError: Bounds are of a hyperparameter that is not open.
        DefinitionError: The formula has a function without values here.
    """
    where = f"schedule {form.name!r}"
    names = [symbol.name for symbol in form.open]
    if not names:
        raise ArgumentError(
            "a family needs open hyperparameters, got none",
            where=where,
            hint="leave numbers free with schedule.unbind('end')",
        )
    for name in bounds:
        if name not in names:
            raise UnknownNameError(
                f"the family has no open hyperparameter {name!r}",
                where=where,
                hint=nearest(name, names),
            )
    missing = [name for name in names if name not in bounds]
    if missing:
        raise ArgumentError(
            f"each open hyperparameter needs bounds, got none for {', '.join(missing)}",
            where=where,
            hint="bounds={'end': (0, 1e-3)}",
        )
    exact = {name: _exact_bounds(name, *bounds[name]) for name in names}
    if not is_supported(form.bound):
        raise DefinitionError("the formula has a function without values in NumPy", where=where)
    return OpenSchedule(form, horizon, exact)


def _exact_bounds(name: str, low: Number, high: Number) -> Bounds:
    least, largest = exact_number(low, f"the bound of {name}"), exact_number(high, name)
    if not least < largest:
        raise ArgumentError(f"bounds of {name} must rise, got {low} and {high}", where="bounds")
    return least, largest


def power_decay(peak: Number, steps: int, warmup: int = 0) -> Schedule:
    r"""Returns warmup, flat stretch and a power of the remaining time, with open numbers.

    .. math:: f(t) = \begin{cases} a\, t / W & t < W \\ a & W \le t < N - D \\
        b + (a - b) \left(\frac{N - t}{D}\right)^p & t \ge N - D \end{cases}

    The length D of the decay, its end b and its power p are open: ``decay``, ``end``, ``power``.

    Args:
        peak: The value a of the flat stretch.
        steps: The number of steps N.
        warmup: The number of steps W of the warmup.

    Example:
        >>> power_decay(1, 10).bind(decay=4, end=0, power=2).exact(8)
        1/4

    Source: WSD with a power of 1.5 in section 5 of Luo et al., arXiv 2503.12811.
    """
    # A positive length, so that SymPy divides by it without a case for 0.
    end, power, decay = hyper("end"), hyper("power"), hyper("decay", integer=True, positive=True)
    top = exact_number(peak, "peak")
    falling = end + (top - end) * ((steps - t) / decay) ** power
    branches = [(top, t < steps - decay), (falling, t < steps), (end, True)]
    if warmup:
        # The warmup is tested first: a decay longer than the run must not begin within it.
        branches.insert(0, (top * t / warmup, t < warmup))
    return Schedule(sp.Piecewise(*branches), name="power_decay", length=steps)


# Several starts, since the objective has several minima.
_DECAYS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
"""Shares of a run in which a table falls where a search begins."""

_FLOOR = 0.01
"""The last level there, as a part of the peak: at 0 the falls have no slopes."""


@dataclass(frozen=True)
class NonIncreasing:
    """Schedules that never rise after a warmup: lines between knots at even distances.

    The value at a knot is ``end + (v - end) * (1 - fall)``, where v is that at the knot before it:
    each fall is a free number from 0 to 1, so that no other constraint is needed.

    Attributes:
        peak: The value after the warmup.
        end: The least value.
        horizon: The number of updates of the run.
        warmup: The number of updates of a linear warmup.
        knots: The number of falls.
    """

    peak: float
    end: float
    horizon: int
    warmup: int = 0
    knots: int = 32

    def __post_init__(self) -> None:
        # The last update is a knot, too.
        span = self.horizon - 1 - self.warmup
        if not 1 <= self.knots <= span:
            raise ArgumentError(
                f"knots must be from 1 to {span}, the updates after the warmup, got {self.knots}",
                where="NonIncreasing",
            )
        if not 0 <= self.end < self.peak:
            raise ArgumentError(
                f"end must be from 0 to below peak, got {self.end} and {self.peak}",
                where="NonIncreasing",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The falls."""
        return tuple(f"fall_{index}" for index in range(1, self.knots + 1))

    @property
    def bounds(self) -> Mapping[str, Bounds]:
        """From 0 to 1."""
        return dict.fromkeys(self.names, (sp.Integer(0), sp.Integer(1)))

    @property
    def integers(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def starts(self) -> Sequence[FloatArray]:
        """Flat stretches before decays of several lengths by a power of the remaining time."""
        starts = []
        left = 1 - np.arange(self.knots + 1) / self.knots
        for share in _DECAYS:
            # 1.5 is the power of section 5 of Luo et al. (see power_decay).
            levels = _FLOOR + (1 - _FLOOR) * np.minimum(left / share, 1) ** 1.5
            # The fall that leads from each level to the next one, for an end of 0.
            starts.append(1 - levels[1:] / levels[:-1])
        return starts

    @property
    def marks(self) -> list[int]:
        """The updates of the knots, that at the end of the warmup first."""
        span = self.horizon - 1 - self.warmup
        # Knots are whole updates, so that the schedule has exact branches.
        return [self.warmup + round(span * index / self.knots) for index in range(self.knots + 1)]

    def _levels(self, falls: Sequence[Any], peak: Any, end: Any) -> list[Any]:
        levels = [peak]
        for fall in falls:
            levels.append(end + (levels[-1] - end) * (1 - fall))
        return levels

    def schedule(self, values: Mapping[str, sp.Expr]) -> Schedule:
        """Returns the schedule with such falls."""
        peak, end = exact_number(self.peak, "peak"), exact_number(self.end, "end")
        levels = self._levels([values[name] for name in self.names], peak, end)
        branches = [(peak * t / self.warmup, t < self.warmup)] if self.warmup else []
        marks = self.marks
        for index in range(self.knots):
            slope = (levels[index + 1] - levels[index]) / (marks[index + 1] - marks[index])
            branches.append((levels[index] + slope * (t - marks[index]), t < marks[index + 1]))
        # The last level goes on after the run.
        branches.append((levels[-1], True))
        return Schedule(sp.Piecewise(*branches), name="non_increasing", length=self.horizon)

    def rates(self, values: FloatArray) -> FloatArray:
        """Returns the rates of all updates."""
        levels = self._levels(values.tolist(), self.peak, self.end)
        marks = [0, *self.marks] if self.warmup else self.marks
        if self.warmup:
            levels = [0.0, *levels]
        rates: FloatArray = np.interp(np.arange(self.horizon), marks, levels)
        return rates

    def series(self, values: Sequence[Any], functions: Mapping[Any, Any], number: Any) -> list[Any]:
        """Returns the rates of all updates in the arithmetic of some functions."""
        peak, end = (number(exact_number(value, "value")) for value in (self.peak, self.end))
        levels, marks = self._levels(values, peak, end), self.marks
        # Fractions of steps are exact before they become numbers of the arithmetic.
        rates = [peak * number(sp.Rational(step, self.warmup)) for step in range(self.warmup)]
        for index in range(self.knots):
            span = marks[index + 1] - marks[index]
            change = levels[index + 1] - levels[index]
            rates += [
                levels[index] + change * number(sp.Rational(step, span)) for step in range(span)
            ]
        return [*rates, levels[-1]]

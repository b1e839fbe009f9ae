"""The search for the shortest schedule that reproduces logged values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from closedform import schedules
from closedform.analysis.numeric import values_of
from closedform.analysis.recovery.fit import Effort, Fits, Problem
from closedform.analysis.recovery.marks import Points
from closedform.analysis.recovery.simplest import MOST_DIGITS, candidates, digits
from closedform.analysis.recovery.starts import Features, features, starts
from closedform.analysis.recovery.structures import (
    ROLES,
    Parameter,
    Role,
    Structure,
    forms,
    structure,
)
from closedform.errors import ClosedFormError
from closedform.ir.types import FloatArray
from closedform.language import Schedule

SCREENED = 48
"""Points that the first screening of starts sees."""

FITTED = 160
"""Points that parameters are fitted to; the result is checked at all."""

_PROMISING = 100.0
"""Cost of a fit that converges slowly and gets more steps."""


_UNKNOWN = 1e300
"""The deviation of a parameter on which the points do not depend."""


LIKELIEST = 6
"""Structures with many parameters that are fitted before compositions."""


MOST_FOR_ONE = 800_000
"""Values that the search of the parameters of one structure may compute."""


MOST_PARTS = 10_000
"""Largest denominator of an exponent: exact powers of numbers with others take too long."""


MOST_OPTIONS = 24
"""Simple values of a parameter that are tried with all points."""


_LIKELY = 30.0
"""Cost of a few points after a few steps with a value that may be a reproduction."""


_NEAR = 10.0
"""Cost of a start from which a structure is about as likely as one with a smaller cost."""


_FAR = 3e-3
"""Deviation, as a part of the largest value, of a fit that a few steps do not bring close."""


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A schedule of the library with its arguments.

    Attributes:
        text: The call, as it is written.
        schedule: The schedule.
        cost: The length of the description: the digits of its numbers and its arguments.
        residual: The largest distance from a logged value, in units of its precision.
    """

    text: str
    schedule: Schedule
    cost: float
    residual: float


def argument_text(value: Any) -> str:
    """Returns an argument as Python code: a decimal, a Fraction, or a list of them."""
    if isinstance(value, list):
        return f"[{', '.join(map(argument_text, value))}]"
    if isinstance(value, Fraction):
        if value.denominator == 1:
            return str(value.numerator)
        number = float(value)
        return repr(number) if Fraction(repr(number)) == value else f"Fraction({str(value)!r})"
    return repr(value).replace("'", '"')


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Returns a call with keyword arguments."""
    return (
        f"{name}({', '.join(f'{key}={argument_text(value)}' for key, value in arguments.items())})"
    )


def cost_of(arguments: Mapping[str, Any], end: float) -> float:
    """Returns the length of a description.

    Each argument counts one and its digits, and so does each number of a list; a number of steps
    beyond the log is not attested, and counts two more.
    """
    total = 1.0
    for name, value in arguments.items():
        total += 1
        if isinstance(value, list):
            total += sum(1 + digits(Fraction(number)) for number in value)
        elif isinstance(value, Fraction):
            total += digits(value)
            is_steps = ROLES.get(name) is Role.STEPS
            total += 2 if is_steps and value > end * 1.02 + 1 else 0
    return total


def residual_of(schedule: Schedule, points: Points) -> float:
    """Returns the largest distance of a schedule from the points, in units of their precision."""
    values = values_of(schedule.bound, points.steps)
    gaps = np.abs(values - points.values)
    # The rounding of float64 in the evaluation, which is not a distance from the log.
    slack = 1e-14 * np.abs(points.values)
    return (
        float(np.max(np.maximum(gaps - slack, 0) / points.errors))
        if np.all(np.isfinite(gaps))
        else np.inf
    )


def check_library_call(
    name: str, arguments: Mapping[str, Any], points: Points, end: float
) -> LibraryCall | None:
    """Returns the call of a function of the library, if it reproduces all points.

    Args:
        name: The function in ``closedform.schedules``.
        arguments: Its arguments.
        points: The points.
        end: The end of the log, for ``cost_of``.
    """
    try:
        schedule = getattr(schedules, name)(**arguments)
    except ClosedFormError:
        return None
    return check_call(call_text(name, arguments), schedule, cost_of(arguments, end), points)


def check_call(text: str, schedule: Schedule, cost: float, points: Points) -> LibraryCall | None:
    """Returns a call, if its schedule reproduces all points."""
    residual = residual_of(schedule, points)
    # Written so that NaN is refused.
    return LibraryCall(text, schedule, cost, residual) if residual <= 1 + 1e-9 else None


def spread(points: Points, curve: Features | None, count: int) -> Points:
    """Returns at most so many points, with those around changes of form."""
    size = len(points.steps)
    if size <= count:
        return points
    places_to_keep = set(np.linspace(0, size - 1, count - count // 4).astype(int).tolist())
    places = np.searchsorted(points.steps, list(curve.marks if curve else ()))
    for place in places.tolist():
        places_to_keep.update(p for p in (place - 1, place, place + 1) if 0 <= p < size)
        if len(places_to_keep) >= count:
            break
    return points.select(np.array(sorted(places_to_keep)))


Option = tuple[int, int, Fraction, FloatArray]
"""The digits of a description, a parameter, its value, and the values of all."""


class Search:
    """The search among the structures of the library for one curve.

    Args:
        points: The points, at least one.
        effort: The search ends when it is spent.
    """

    def __init__(self, points: Points, effort: Effort) -> None:
        self.points = points
        self.effort = effort
        self._least_left = 0
        self.curve = features(points)
        self.few = spread(points, self.curve, SCREENED)
        self.many = spread(points, self.curve, FITTED)
        typical = float(np.median(points.errors))
        self.far = max(50.0, _FAR * float(np.max(np.abs(points.values))) / typical)

    def best(
        self, limit: float = float("inf"), most: int = 99, least: int = 0
    ) -> LibraryCall | None:
        """Returns the shortest call that reproduces the points, if one is below ``limit``.

        Args:
            limit: The cost that it must be below.
            most: The largest number of parameters.
            least: The smallest one.
        """
        best_call: LibraryCall | None = None
        found_size = 99
        for size, candidate in self._possible(limit, most, least):
            # Another argument is worth it if it saves more than a digit.
            # A call with n parameters costs at least 1 + 2n: one for the name, and a name and a
            # digit for each argument.
            if self.effort.is_spent or (size > found_size and 2 + 2 * size >= limit):
                break
            call = self.fit(candidate)
            if call is not None and call.cost < limit:
                best_call, limit, found_size = call, call.cost, size
        return best_call

    def likeliest(self, limit: float, least: int, count: int = LIKELIEST) -> LibraryCall | None:
        """Returns a call of those structures that are nearest to the points at the starts.

        The steps at which the curve changes its form are among the starts, so that a structure
        with many parameters is near the points there already, if it is the one that was logged.

        Args:
            limit: The cost that it must be below.
            least: The smallest number of parameters.
            count: The number of structures that are fitted.
        """
        ranking: list[tuple[float, int, int, Structure]] = []
        least_cost: dict[str, float] = {}
        for size, candidate in self._possible(limit, 99, least):
            theta = starts(candidate, self.curve)
            if len(theta) == 0:
                continue
            nearest = float(np.min(self._screen(candidate, theta).costs))
            # Another argument that does not bring it nearer is left out.
            kind = f"{candidate.name} {candidate.fixed_arguments}"
            if nearest < 0.95 * least_cost.get(kind, np.inf) or nearest <= _NEAR:
                least_cost[kind] = nearest
                ranking.append((max(nearest, _NEAR), size, len(ranking), candidate))
        best_call: LibraryCall | None = None
        for cost, size, _, candidate in sorted(ranking, key=lambda entry: entry[:3])[:count]:
            if 1 + 2 * size >= limit or (best_call is not None and cost > _NEAR):
                continue
            call = self.fit(candidate)
            if call is not None and call.cost < limit:
                best_call, limit = call, call.cost
        return best_call

    def _possible(self, limit: float, most: int, least: int) -> Iterator[tuple[int, Structure]]:
        """The structures of so many parameters that the curve may have, and their sizes."""
        for form in forms():
            if form.size > most or 1 + 2 * form.size >= limit:
                return
            candidate = structure(form) if form.size >= least else None
            if candidate is not None and self._fits_jumps(candidate):
                yield form.size, candidate

    def _screen(self, candidate: Structure, theta: FloatArray) -> Fits:
        """The fits of starts to a few points."""
        return Problem(candidate, self.few, self.effort).project(theta)

    def _fits_jumps(self, candidate: Structure) -> bool:
        """Whether a structure can have the jumps of the curve: one that must jump needs some."""
        restarts = candidate.fixed_arguments.get("restarts")
        if candidate.is_stepwise or restarts is not None or candidate.name == "warm_restarts":
            return bool(self.curve.jumps) and restarts in (None, len(self.curve.jumps))
        return candidate.has_jumps or not self.curve.has_jumps

    def fit(self, candidate: Structure) -> LibraryCall | None:
        """Returns the call of a structure with the simplest arguments that reproduce the points."""
        if len(candidate.parameters) > len(self.points.steps):
            return None
        self._least_left = self.effort.left - MOST_FOR_ONE
        theta = starts(candidate, self.curve)
        if len(theta) == 0:
            return None
        # Coarse to fine: hundreds of starts on 48 points, six on 160 with 8 steps, two with 30
        # more.
        theta = theta[self._screen(candidate, theta).best(6)]
        problem = Problem(candidate, self.many, self.effort)
        # The steps of kinks are integers, which least squares would only blur.
        call = self._simplest(candidate, theta[:2], problem.project(theta[:2]))
        if call is not None:
            return call
        theta, fits = problem.refine(theta, 8)
        if float(np.min(fits.costs)) > self.far:
            return None
        theta = theta[fits.best(2)]
        theta, fits = problem.refine(theta, 30)
        if not fits.is_close() and float(np.min(fits.costs)) < _PROMISING:
            theta, fits = problem.refine(theta, 40)
            theta, fits = self._snap_steps(problem, theta, fits)
        return self._simplest(candidate, theta, fits)

    def _simplest(self, candidate: Structure, theta: FloatArray, fits: Fits) -> LibraryCall | None:
        """The call with simple numbers near one of the two best fits."""
        for index in fits.best(2):
            if not fits.is_close(index):
                continue
            for arguments in self.simplify(candidate, theta, fits, int(index)):
                call = self.check_call(candidate, arguments)
                if call is not None:
                    return call
        return None

    def _snap_steps(
        self, problem: Problem, theta: FloatArray, fits: Fits
    ) -> tuple[FloatArray, Fits]:
        """The fits with integers as numbers of steps, where these are better.

        At a kink between two steps the least squares may not converge to the step itself.
        """
        frozen = np.array(
            [parameter.role is Role.STEPS for parameter in problem.others], dtype=bool
        )
        whole = np.where(frozen, np.maximum(np.round(theta), 1), theta)
        whole, integer_fits = problem.refine(whole, 20, frozen)
        is_better = float(np.min(integer_fits.costs)) < float(np.min(fits.costs))
        return (whole, integer_fits) if is_better else (theta, fits)

    def check_call(
        self, candidate: Structure, numbers: Mapping[str, Fraction]
    ) -> LibraryCall | None:
        """Returns the call with these arguments, if it reproduces all points."""
        if self._is_negative(candidate, numbers):
            return None
        arguments = {**numbers, **candidate.fixed_arguments}
        plain = {
            name: int(value) if isinstance(value, Fraction) and value.denominator == 1 else value
            for name, value in arguments.items()
        }
        try:
            schedule = candidate.make(**plain)
        except ClosedFormError:
            return None
        # A repetition that the log does not show is not attested.
        cost = cost_of(arguments, self.curve.end) + candidate.has_jumps
        return check_call(call_text(candidate.name, arguments), schedule, cost, self.points)

    def _is_negative(self, candidate: Structure, numbers: Mapping[str, Fraction]) -> bool:
        """Whether a value is below 0 where the log has none: nobody writes a negative rate."""
        has_negative = bool(np.any(self.points.values < 0))
        values = [
            parameter.name for parameter in candidate.parameters if parameter.role is Role.VALUE
        ]
        return not has_negative and any(numbers.get(name, 0) < 0 for name in values)

    def simplify(
        self, candidate: Structure, theta: FloatArray, fits: Fits, index: int
    ) -> Iterator[dict[str, Fraction]]:
        """Yields arguments in simple numbers, the best determined parameters rounded first."""
        problem = Problem(candidate, self.many, self.effort, is_projected=False)
        row = np.array([[fits.values[parameter.name][index] for parameter in problem.others]])
        yield from self._round_parameters(problem, row, {}, wide=3)

    def _round_parameters(
        self, problem: Problem, row: FloatArray, numbers: dict[int, Fraction], wide: int
    ) -> Iterator[dict[str, Fraction]]:
        if self.effort.left < self._least_left:
            return
        parameters = problem.others
        width = len(parameters)
        frozen = np.array([index in numbers for index in range(width)])
        if len(numbers) == width:
            yield {parameters[index].name: numbers[index] for index in range(width)}
            return
        deviations = self._deviations(problem, row, frozen)
        relative = np.where(frozen, np.inf, deviations / (np.abs(row[0]) + 1e-12))
        # A value of 0 has no relative deviation: its own is compared with the other values.
        scale = float(np.max(np.abs(self.points.values))) or 1.0
        for index, parameter in enumerate(parameters):
            if parameter.role is Role.VALUE and not frozen[index]:
                relative[index] = deviations[index] / max(abs(row[0, index]), 1e-3 * scale)
        # Without a deviation, a parameter is rounded after those that have one.
        order = np.nan_to_num(relative, nan=_UNKNOWN, posinf=_UNKNOWN)
        place = int(np.argmin(np.where(frozen, np.inf, order)))
        loose = [
            i
            for i, parameter in enumerate(parameters)
            if not frozen[i] and relative[i] > 0.01 and parameter.role is not Role.VALUE
        ]
        if loose and wide > 0:
            place = next((i for i in loose if parameters[i].role is Role.STEPS), loose[0])
            options = [
                *self._simple_options(problem, row, frozen, place),
                *self._zero_options(problem, row, frozen),
            ]
            for _, index, value, refined_row in sorted(options, key=lambda option: option[0])[
                :wide
            ]:
                yield from self._round_parameters(
                    problem, refined_row, {**numbers, index: value}, wide - 1
                )
            return
        parameter = parameters[place]
        near = self._near(parameter, float(row[0, place]), float(deviations[place]))
        if not near:
            return
        count = 0
        is_last = len(numbers) == width - 1
        trial_rows = np.repeat(row, len(near), axis=0)
        trial_rows[:, place] = [float(number) for number in near]
        frozen[place] = True
        trial_rows, fits = problem.refine(trial_rows, 6, frozen)
        for position, number in enumerate(near):
            if fits.largest[position] > 1.02 if is_last else not fits.is_close(position):
                continue
            if count and parameter.role is Role.STEPS and number.denominator != 1:
                return
            yield from self._round_parameters(
                problem, trial_rows[[position]], {**numbers, place: number}, wide
            )
            count += 1
            if count >= (1 if is_last else 2):
                return

    def _near(self, parameter: Parameter, value: float, deviation: float) -> list[Fraction]:
        """Simple numbers near a value; of a number of steps, first the integers.

        The deviation of a number of steps may be too small: where the curve jumps or has a kink
        at its end, the derivative there is that of the jump.
        """
        slack = 0.51 if parameter.role is Role.STEPS else 0.0
        within = 6 * deviation + 1e-9 * abs(value)
        near = [
            number
            for number in candidates(value, is_integer=parameter.is_integer)
            if abs(float(number) - value) <= within + (slack if number.denominator == 1 else 0.0)
        ]
        if parameter.role is Role.EXPONENT:
            return _as_exponents(near)
        if parameter.role is not Role.STEPS or parameter.is_integer:
            return near
        whole = candidates(value, is_integer=True)
        neighbours = [n for n in whole if n not in near and abs(float(n) - value) <= within + slack]
        return sorted([*near, *neighbours], key=lambda n: n.denominator != 1)

    def _simple_options(
        self, problem: Problem, row: FloatArray, frozen: NDArray[np.bool_], place: int
    ) -> list[Option]:
        """Simple values of a parameter that the points do not determine, the shortest first."""
        parameter = problem.others[place]
        guess = float(row[0, place])
        numbers = _simple_numbers(
            guess, parameter.is_integer or parameter.role is Role.STEPS, self.curve.end
        )
        if parameter.role is Role.EXPONENT:
            numbers = _as_exponents(numbers)
        if not numbers:
            return []
        rows = np.repeat(row, len(numbers), axis=0)
        for index, parameter_at in enumerate(problem.others):
            if (
                parameter_at.role is Role.FACTOR
                and not frozen[index]
                and parameter.role is Role.STEPS
            ):
                rows[:, index] = _along(problem.structure.name, row[0, index], guess, numbers)
        rows[:, place] = [float(number) for number in numbers]
        fixed_places = frozen.copy()
        fixed_places[place] = True
        coarse = Problem(problem.structure, self.few, self.effort, is_projected=False)
        rows, fits = coarse.refine(rows, 5, fixed_places)
        factors = [
            i for i, parameter_at in enumerate(problem.others) if parameter_at.role is Role.FACTOR
        ]
        factors = [i for i in factors if not fixed_places[i]]
        likely = [
            (
                digits(numbers[index])
                + self._digits_of_others(coarse, rows[[index]], fixed_places),
                index,
            )
            for index in np.flatnonzero(fits.costs < _LIKELY).tolist()
            if np.all((rows[index, factors] > 1e-4) & (rows[index, factors] < 1e4))
        ]
        likely.sort(key=lambda parameter: (parameter[0], abs(float(numbers[parameter[1]]) - guess)))
        options: list[Option] = []
        for length, index in likely[:MOST_OPTIONS]:
            refined_row, fits = problem.refine(rows[[index]], 12, fixed_places)
            if fits.is_close(0):
                options.append((length, place, numbers[index], refined_row))
        return options

    def _zero_options(
        self, problem: Problem, row: FloatArray, frozen: NDArray[np.bool_]
    ) -> Iterator[Option]:
        """Values of 0: the length of a line that the log does not show to its end depends on it."""
        for index, parameter in enumerate(problem.others):
            if parameter.role is not Role.VALUE or frozen[index] or parameter.symbol.is_positive:
                continue
            zero_row = row.copy()
            zero_row[0, index] = 0.0
            is_fixed = frozen.copy()
            is_fixed[index] = True
            zero_row, fits = problem.refine(zero_row, 12, is_fixed)
            if fits.is_close(0):
                length = 1 + self._digits_of_others(problem, zero_row, is_fixed)
                yield length, index, Fraction(0), zero_row

    def _digits_of_others(
        self, problem: Problem, row: FloatArray, is_fixed: NDArray[np.bool_]
    ) -> int:
        """The digits that the parameters need that are not fixed."""
        deviations = self._deviations(problem, row, is_fixed)
        return sum(
            _digits_within(float(row[0, index]), float(deviations[index]))
            for index in np.flatnonzero(~is_fixed)
        )

    def _deviations(
        self, problem: Problem, row: FloatArray, frozen: NDArray[np.bool_]
    ) -> FloatArray:
        """How far each free parameter may be from its value, in the least squares sense."""
        residuals = problem.project(row).residuals
        jacobian = problem.jacobian(row, residuals)[0]
        free = np.flatnonzero(~frozen)
        result = np.zeros(len(frozen))
        if free.size == 0:
            return result
        part = jacobian[:, free]
        scale = np.sqrt(np.sum(part**2, axis=0)) + 1e-300
        _, singular, right = np.linalg.svd(part / scale, full_matrices=False)
        inverse = np.where(singular > 3e-6 * singular[0], 1 / np.maximum(singular, 1e-300), 1e12)
        with np.errstate(over="ignore"):
            spreads = np.sqrt(np.sum((right.T * inverse) ** 2, axis=1)) / scale
        result[free] = spreads
        return result


def _as_exponents(numbers: list[Fraction]) -> list[Fraction]:
    """Those of which the exact powers are computed in a short time."""
    return [number for number in numbers if number.denominator <= MOST_PARTS]


def _along(name: str, rate: float, guess: float, numbers: list[Fraction]) -> FloatArray:
    """The factor over another number of steps that gives the same curve."""
    ratio = np.array([float(number) for number in numbers]) / guess
    if name in ("range_test", "inverse_time"):
        return np.asarray(rate * ratio, dtype=np.float64)
    return np.asarray(np.abs(rate) ** ratio, dtype=np.float64)


def _simple_numbers(guess: float, is_integer: bool, end: float) -> list[Fraction]:
    """Simple numbers within two orders of magnitude of a guess."""
    numbers: set[Fraction] = set()
    if is_integer:
        top = max(int(min(4 * max(guess, end), 1e6)), 10)
        numbers.update(Fraction(n) for n in range(1, min(top, 200) + 1))
        power = 10
        while power <= top:
            numbers.update(Fraction(n * power) for n in range(1, 100) if n * power <= top)
            power *= 10
        numbers.update(Fraction(2**n) for n in range(15))
        numbers.add(Fraction(max(round(guess), 1)))
    else:
        exponent = int(np.floor(np.log10(abs(guess) or 1)))
        for shift in (-2, -1, 0, 1):
            unit = Fraction(10) ** (exponent + shift)
            numbers.update(n * unit for n in range(1, 100))
    return sorted(numbers, key=lambda number: (digits(number), abs(float(number) - guess)))


def _digits_within(value: float, deviation: float) -> int:
    """The fewest digits of a decimal that is this close to a value."""
    for count in range(1, MOST_DIGITS):
        if abs(float(f"{value:.{count - 1}e}") - value) <= 2.5 * deviation:
            return digits(Fraction(f"{value:.{count - 1}e}"))
    return MOST_DIGITS

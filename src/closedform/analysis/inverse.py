"""Inverse questions about schedules: the hyperparameter at which a value or an area is a number.

The area is the sum of the values of all updates. Where it has a closed form, this is used; else the
values are added up in ball arithmetic. An answer is exact where the quantity is linear in the
unknown, the pair of integers between which it crosses the number where the unknown is a number of
steps, and an interval with a proved change of sign otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp
from flint import arb

from closedform.analysis.numeric import degree
from closedform.analysis.profile import ball_at
from closedform.analysis.result import Result
from closedform.errors import ArgumentError, DomainError, UnknownNameError, nearest
from closedform.language import Schedule, exact_number, t
from closedform.language.aliases import Number
from closedform.language.exact import to_float
from closedform.language.quantities import Equation, Quantity
from closedform.verify.claims.sums import total_of
from closedform.verify.terms.evaluate import Undefined, value
from closedform.verify.terms.sympy_io import term

MOST_ADDED = 20_000
"""Updates whose values are added up where no closed form of their sum is known."""

_HALVINGS = 200

_NEAR = 1e-14
"""Width of the interval of a solution, as a part of it."""


@dataclass(frozen=True, slots=True)
class Solution(Result):
    """The answer to an inverse question.

    Attributes:
        name: The hyperparameter.
        value: Its value; for an integer, that of the two around the number at which the quantity
            is nearer to it.
        is_exact: Whether the quantity is exactly the number there.
        low: The lower end of an interval that contains a solution; for an integer, the largest
            one before the crossing.
        high: The upper end.
        at_low: The quantity at ``low``.
        at_high: The quantity at ``high``.
        schedule: The schedule with the value.
    """

    DATA = ("name", "value", "is_exact", "low", "high", "at_low", "at_high")

    name: str
    value: sp.Expr
    is_exact: bool
    low: sp.Expr
    high: sp.Expr
    at_low: float
    at_high: float
    schedule: Schedule

    def lines(self) -> list[str]:
        """Returns the hyperparameter, and how near it is, in one line."""
        if self.is_exact:
            return [f"{self.name} = {self.value}, exactly"]
        start = f"{self.name} = {_decimal(self.value)!r}"
        if self.low.is_Integer and self.high.is_Integer:
            return [
                f"{start}, the nearest: {self.low} gives {self.at_low!r}, {self.high} gives "
                f"{self.at_high!r}"
            ]
        return [f"{start}, from {_decimal(self.low)!r} to {_decimal(self.high)!r}"]

    def data(self) -> dict[str, Any]:
        """Returns the answer as plain data; numbers are integers or the nearest floats."""
        numbers = {name: _decimal(getattr(self, name)) for name in ("value", "low", "high")}
        return Result.data(self) | numbers


def _decimal(number: sp.Expr) -> int | float:
    return int(number) if number.is_Integer else to_float(number)


def solve(
    equation: Equation,
    for_: str,
    *,
    low: Number | None = None,
    high: Number | None = None,
) -> Solution:
    """Returns the value of a hyperparameter for which a quantity of a schedule is a number.

    Args:
        equation: ``lr.area() == 0.5`` or ``lr.at(1000) == 1e-4``.
        for_: The name of the hyperparameter; a value that it has does not count.
        low: The least value that is looked at; a thousandth of the present value if not given.
        high: The largest one; a thousand times the present value if not given.

    Raises:
        ArgumentError: It is not an equation, or the hyperparameter has no value and no range.
        UnknownNameError: The schedule has no such hyperparameter.
        DomainError: No change of sign is found in the range, or the quantity does not depend on
            the hyperparameter.

    Example:
        >>> from closedform import schedules
        >>> lr = schedules.linear(1, 0, 100)
        >>> solve(lr.area() == 101, "start").value
        2
        >>> solution = solve(lr.area() == 333.2, "steps")
        >>> solution.low, solution.high, solution.at_low, solution.at_high
        (665, 666, 333.0, 333.5)
    """
    if not isinstance(equation, Equation):
        raise ArgumentError(
            f"solve takes an equation such as lr.area() == 0.5, got {type(equation).__name__}",
            where="solve",
        )
    quantity, target = equation.quantity, equation.number
    symbols = {symbol.name: symbol for symbol in quantity.schedule.expr.free_symbols - {t}}
    if for_ not in symbols:
        raise UnknownNameError(
            f"the schedule has no hyperparameter {for_!r}",
            where=f"schedule {quantity.schedule.name!r}",
            hint=nearest(for_, symbols),
        )
    symbol = symbols[for_]
    question = _Asked(quantity, for_, target)
    if not symbol.is_integer and degree(quantity.schedule.expr, frozenset({symbol})) <= 1:
        return question.linear()
    first, last = question.range(low, high, is_integer=bool(symbol.is_integer))
    return (
        question.integer(int(first), int(last)) if symbol.is_integer else question.real(first, last)
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A quantity as a function of a hyperparameter, and the number that it is to be."""

    quantity: Quantity
    name: str
    target: sp.Expr

    def bound(self, number: sp.Expr) -> Schedule:
        return self.quantity.schedule.bind({self.name: number})

    def exact(self, number: sp.Expr) -> sp.Expr | None:
        """The quantity as an exact number; None where its sum has no closed form."""
        schedule = self.bound(number)
        if self.quantity.step is not None:
            return schedule.exact(self.quantity.step)
        return total_of(schedule, self.quantity.updates(schedule))

    def ball(self, number: sp.Expr) -> arb:
        """The quantity in ball arithmetic, less the number that it is to be."""
        schedule = self.bound(number)
        if self.quantity.step is not None:
            return _at(schedule, self.quantity.step) - _ball(self.target)
        steps = self.quantity.updates(schedule)
        whole = total_of(schedule, steps)
        if whole is not None:
            return _ball(whole - self.target)
        if steps > MOST_ADDED:
            raise DomainError(
                f"no closed form of the area is known, and {steps} updates are more than the "
                f"{MOST_ADDED} that are added up",
                where=f"schedule {schedule.name!r}",
                hint="ask for the area until an earlier update",
            )
        total = arb(0)
        for step in range(steps):
            total += _at(schedule, step)
        return total - _ball(self.target)

    def linear(self) -> Solution:
        """The solution where the quantity is linear in the hyperparameter."""
        # Two points of the line, and not 0, which is out of the range of a positive hyperparameter.
        unit, two = sp.Integer(1), sp.Integer(2)
        first, second = self.exact(unit), self.exact(two)
        if first is None or second is None:
            slope = self.ball(two) - self.ball(unit)
            if slope.contains(0):
                raise self._constant()
            # The zero of f(1) + (x - 1) slope, in balls: its ends enclose the solution.
            root = arb(1) - self.ball(unit) / slope
            low, high = (sp.Float(str(end), 17) for end in (root.lower(), root.upper()))
            return self.solution((low + high) / 2, low, high, is_exact=False)
        growth = sp.expand(second - first)
        if growth == 0:
            raise self._constant()
        value_found = 1 + (self.target - first) / growth
        simple = sp.nsimplify(value_found) if value_found.is_Rational else sp.simplify(value_found)
        return self.solution(simple, simple, simple, is_exact=True)

    def integer(self, low: int, high: int) -> Solution:
        """The two neighbouring integers between which the quantity crosses the number."""
        begin, end = self.sign(sp.Integer(low)), self.sign(sp.Integer(high))
        if begin * end > 0:
            raise self._no_change(low, high)
        while high - low > 1 and begin != 0:
            middle = (low + high) // 2
            sign = self.sign(sp.Integer(middle))
            if sign == begin:
                low = middle
            else:
                high, end = middle, sign
        below, above = sp.Integer(low), sp.Integer(high)
        if begin == 0 or end == 0:
            exact_root = below if begin == 0 else above
            below, above = (
                (exact_root, exact_root + 1) if begin == 0 else (exact_root - 1, exact_root)
            )
            return self.solution(exact_root, below, above, is_exact=True)
        at_low, at_high = (abs(float(self.ball(n).mid())) for n in (below, above))
        return self.solution(below if at_low <= at_high else above, below, above, is_exact=False)

    def real(self, low: sp.Expr, high: sp.Expr) -> Solution:
        """An interval with a proved change of sign."""
        begin = self.sign(low)
        if begin * self.sign(high) > 0:
            raise self._no_change(low, high)
        for _ in range(_HALVINGS):
            # The shortest decimal of the middle: exact halves would get a bit longer with each
            # halving.
            middle = sp.Rational(repr(float((low + high) / 2)))
            if not low < middle < high or float(high - low) <= _NEAR * float(abs(middle)):
                break
            sign = self.sign(middle)
            if sign == 0:
                return self.solution(middle, middle, middle, is_exact=True)
            low, high = (middle, high) if sign == begin else (low, middle)
        return self.solution((low + high) / 2, low, high, is_exact=False)

    def sign(self, number: sp.Expr) -> int:
        """The proved sign of the difference; 0 where both are the same number."""
        enclosure = self.ball(number)
        if enclosure > 0 or enclosure < 0:
            return 1 if enclosure > 0 else -1
        # A ball around 0 decides nothing: equality needs exact numbers.
        exact = self.exact(number)
        if exact is not None and sp.simplify(exact - self.target) == 0:
            return 0
        raise DomainError(
            f"the quantity at {self.name} = {number} cannot be told from {self.target}",
            where=f"schedule {self.quantity.schedule.name!r}",
        )

    def solution(self, root: sp.Expr, low: sp.Expr, high: sp.Expr, *, is_exact: bool) -> Solution:
        target = to_float(self.target)
        at_low, at_high = (
            target if is_exact and end == root else target + float(self.ball(end).mid())
            for end in (low, high)
        )
        return Solution(self.name, root, is_exact, low, high, at_low, at_high, self.bound(root))

    def range(
        self, low: Number | None, high: Number | None, *, is_integer: bool
    ) -> tuple[sp.Expr, sp.Expr]:
        current_value = self.quantity.schedule.hyperparameters.get(self.name)
        if current_value is None and (low is None or high is None):
            raise ArgumentError(
                f"{self.name} has no value: give the range that is searched",
                where="solve",
                hint="low=…, high=…",
            )
        present = sp.S.One if current_value is None else current_value
        ends = [
            present / 1000 if low is None else exact_number(low, "low"),
            present * 1000 if high is None else exact_number(high, "high"),
        ]
        if is_integer:
            return sp.Max(sp.ceiling(ends[0]), 1), sp.floor(ends[1])
        return min(ends), max(ends)

    def _constant(self) -> DomainError:
        return DomainError(
            f"the quantity does not depend on {self.name}",
            where=f"schedule {self.quantity.schedule.name!r}",
        )

    def _no_change(self, low: object, high: object) -> DomainError:
        return DomainError(
            f"the quantity does not cross {self.target} for {self.name} from {low} to {high}",
            where=f"schedule {self.quantity.schedule.name!r}",
            hint="give another range with low and high",
        )


def _at(schedule: Schedule, step: int) -> arb:
    ball = ball_at(schedule, step)
    if ball is None:
        raise DomainError(f"the schedule has no value at t = {step}", where=schedule.name)
    return ball


def _ball(number: sp.Expr) -> arb:
    result = value(term(number), {})
    if isinstance(result, Undefined):
        raise DomainError(f"{number} has no value")
    return arb(result)

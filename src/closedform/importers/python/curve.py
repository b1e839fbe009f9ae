"""Curves of the package's own frameworks: plain functions of a count, traced with exact numbers.

They are pure and written here, so that no sandbox looks after them, and NumPy is not imported: a
function is run once for each part of the steps that its comparisons make, with ``int``, ``max``,
``min`` and ``math`` of traced numbers. The tests compare each curve with the values of the
framework.

Example:
    >>> import sympy as sp
    >>> from closedform.language import t
    >>> def rate(count, peak, warmup):
    ...     return peak * count / warmup if count < warmup else peak / math.sqrt(count)
    >>> trace_curve(rate, 2 * t, {"peak": sp.Integer(3), "warmup": sp.Integer(4)}, None).cells
    [ValueRange(first=0, end=2, value=3*t/2), ValueRange(first=2, end=None, value=...)]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

import sympy as sp
from sympy.core.relational import Relational

from closedform.importers.python.elementary import EXACT, VALUES
from closedform.importers.python.exact import ExactInt, exact_constant, number_of
from closedform.importers.python.join import (
    Outcome,
    Raised,
    ValueRange,
    cells_of,
    continued,
    join_cells,
)
from closedform.importers.python.number import Number, one_of, run_operand, truncate
from closedform.importers.python.place import NotReal, Unreachable, Untraceable
from closedform.importers.python.prover import ConditionRange, Prover
from closedform.importers.python.run import Limits, Run, Session, Task
from closedform.language import t


@dataclass(frozen=True, slots=True)
class Curve:
    """The values of a function of the count, up to its end.

    Attributes:
        cells: Its values on intervals of steps, before its end.
        end: The first step at which it raises an exception; None if there is none.
        reason: The text of that exception.
    """

    cells: list[ValueRange]
    end: int | None
    reason: str

    @property
    def expr(self) -> sp.Expr:
        """The values as one expression, which goes on after the end."""
        last = self.cells[-1]
        return join_cells([*self.cells[:-1], last if self.end is None else continued(last)])


_LIMITS = Limits(endless_splits=512)
"""A list of milestones is longer than the loops that a user's function has for ever."""
_ENDS = (ArithmeticError, AssertionError, LookupError, ValueError)
"""Exceptions that end a run; others are mistakes in a curve."""


def trace_curve(
    function: Callable[..., Any],
    count: sp.Expr,
    parameters: Mapping[str, Any],
    prover: Callable[[], Prover],
) -> Curve:
    """Returns what a function of a count computes at every step.

    Args:
        function: The function, which takes the count first.
        count: The count at step t.
        parameters: Its other arguments; numbers are exact.
        prover: Makes the prover of comparisons that are not linear in the step.

    Raises:
        TraceError: The function does what is not traced, such as a loop without a bound.
    """
    session = Session(cast(Prover, _Borders(prover)), frozenset(), limits=_LIMITS)
    run = Run(session)
    rebuilder = _Rebuilder(run)
    traced = rebuilder.rebuild(cast(FunctionType, function))
    arguments = {name: rebuilder.argument(value) for name, value in parameters.items()}
    session.pending = [Task(0, None)]
    outcomes: list[Outcome] = []
    while session.pending:
        run.begin(session.pending.pop())
        run.tape.pause_depth = 1  # the curve is not compared with its floats
        try:
            value: Any = traced(Number(run, count, bool(count.is_integer)), **arguments)
            result: Any = run_operand(run, value).expr
        except Unreachable:
            continue
        except (*_ENDS, NotReal) as error:
            task = run.task
            result = Raised(task.first, task.end, tuple(task.facts), _reason(error), None)
        except Untraceable as stop:
            raise stop.error(function.__name__) from None
        outcomes.append(Outcome(run.task, result))
    cells = cells_of(outcomes)
    gap = next((cell for cell in cells if cell.value is None), None)
    if gap is None:
        return Curve(cells, None, "")
    errors = (outcome.value for outcome in outcomes if isinstance(outcome.value, Raised))
    first = next(e for e in errors if e.first <= gap.first and (e.end is None or e.end > gap.first))
    return Curve(cells[: cells.index(gap)], gap.first, first.exception)


def _reason(error: BaseException) -> str:
    return "division by zero" if isinstance(error, ZeroDivisionError) else str(error)


def exact_argument(value: Any) -> Any:
    """Returns a number as a number of Python that knows its exact value; others as they are."""
    if isinstance(value, list | tuple):
        return type(value)(map(exact_argument, value))
    if isinstance(value, sp.Integer) or type(value) is int:
        return ExactInt(value)
    number = number_of(value) if type(value) is float else value
    return exact_constant(float(number), number) if isinstance(number, sp.Expr) else value


class _Rebuilder:
    """Makes functions again whose ``int``, ``max``, ``min`` and ``math`` take traced numbers.

    Args:
        run: The run of the function.
    """

    def __init__(self, run: Run) -> None:
        self._names = {
            "int": _integer,
            "math": _Math(run),
            "max": _extremum(max, sp.Max),
            "min": _extremum(min, sp.Min),
        }
        self._modules: dict[int, dict[str, Any]] = {}

    def argument(self, value: Any) -> Any:
        """Returns an argument of a curve: exact numbers, or functions that are made again."""
        if isinstance(value, Mapping):
            return {name: exact_argument(number) for name, number in value.items()}
        return self.rebuild(value) if isinstance(value, FunctionType) else exact_argument(value)

    def rebuild(self, function: FunctionType) -> FunctionType:
        """Returns a function that calls functions that are made again, too."""
        names = function.__globals__
        module = self._modules.setdefault(id(names), {**names, **self._names})
        rebuilt = FunctionType(
            _exact_code(function.__code__), module, function.__name__, function.__defaults__
        )
        rebuilt.__kwdefaults__ = function.__kwdefaults__
        for name in _global_names(function.__code__) & names.keys() - self._names.keys():
            value = names[name]
            if not isinstance(value, FunctionType):
                module[name] = exact_argument(value)
            elif module[name] is value:
                module[name] = rebuilt if value is function else self.rebuild(value)
        return rebuilt


def _exact_code(code: CodeType) -> CodeType:
    return code.replace(
        co_consts=tuple(
            _exact_code(value) if isinstance(value, CodeType) else exact_argument(value)
            for value in code.co_consts
        )
    )


def _global_names(code: CodeType) -> set[str]:
    inner = (_global_names(part) for part in code.co_consts if isinstance(part, CodeType))
    return set(code.co_names).union(*inner)


def _integer(value: Any) -> Any:
    return truncate(value) if isinstance(value, Number) else ExactInt(value)


def _extremum(native: Callable[..., Any], kind: type[sp.Expr]) -> Callable[..., Any]:
    """``max`` or ``min``: of a line and a number by intervals, of curves as an expression."""

    def of_two(left: Any, right: Any) -> Any:
        run = next((value.run for value in (left, right) if isinstance(value, Number)), None)
        if run is None:
            return native(left, right)
        members = run_operand(run, left), run_operand(run, right)
        first, second = (member.expr for member in members)
        if _line(sp.Lt(first, second, evaluate=False)) is not None:
            return native(left, right)
        return one_of(run, kind(first, second, evaluate=False), members)

    return lambda *values: functools.reduce(of_two, values if len(values) > 1 else values[0])


class _Math:
    """The module ``math`` on traced and exact numbers."""

    pi = exact_constant(math.pi, sp.pi)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        native = getattr(math, name)
        if name not in VALUES:
            return native  # floor and ceil ask a traced number themselves

        def function(x: Any) -> Any:
            if isinstance(x, Number):
                return VALUES[name](self._run, x)
            number = number_of(x)
            is_exact = number is not None and name in EXACT
            return exact_constant(native(x), EXACT[name](number)) if is_exact else native(x)

        return function


class _Borders:
    """Decides comparisons that are linear in the step; a prover that it makes decides others.

    Args:
        make: Makes the prover.
    """

    def __init__(self, make: Callable[[], Prover]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> Any:
        return getattr(self._make(), name)

    def split(self, condition: sp.Basic, first: int, end: int | None) -> list[ConditionRange]:
        """Returns the parts of the steps on which a condition has one truth."""
        line = _line(condition)
        if line is None:
            return self._make().split(condition, first, end)
        slope, start = line
        # The signs of slope t + start change at the root: it is 0 there, if that is a step.
        root = -start / slope
        marks = sorted({first, int(sp.ceiling(root)), int(sp.floor(root)) + 1})
        marks = [mark for mark in marks if mark >= first and (end is None or mark < end)]
        parts: list[ConditionRange] = []
        for mark, following in zip(marks, [*marks[1:], end], strict=True):
            truth = bool(condition.func(slope * mark + start, 0))
            if parts and parts[-1].truth == truth:
                parts[-1] = ConditionRange(parts[-1].first, following, truth)
            else:
                parts.append(ConditionRange(mark, following, truth))
        return parts


def _line(condition: sp.Basic) -> tuple[sp.Rational, sp.Rational] | None:
    """The slope, not 0, and the value at 0 of the left side less the right side of a comparison."""
    if not isinstance(condition, Relational):
        return None
    difference = sp.expand(condition.lhs - condition.rhs)
    if isinstance(condition, sp.Eq | sp.Ne):
        # A multiple of a root is 0 where the number below the root is.
        difference = difference.as_independent(t, as_Add=False)[1]
        while isinstance(difference, sp.Pow) and difference.exp.is_positive:
            difference = difference.base
    slope = difference.coeff(t, 1)
    start = difference - slope * t
    return (slope, start) if slope.is_Rational and slope != 0 and start.is_Rational else None

"""Curves of frameworks as schedules: plain functions of the count, read when a config is read.

A curve is a function of this package, not of a user: no sandbox looks after it, and it compares
lines in the step. One run of it says what it computes from a step to the first one at which a
comparison changes; there the next run begins. The tests read the curves with ``from_python`` too,
whose numbers record the program of a user and ask the prover: a trace of it takes 6.5 ms, and its
imports 0.6 s, which is as long as the whole of reading a config.

Example:
    >>> def warmup(count: int, *, rate: float, steps: int) -> float:
    ...     return rate * count / steps if count < steps else rate
    >>> curve("warmup", warmup, rate=sp.Rational(1, 10), steps=4).bound
    Piecewise((t/40, t < 4), (1/10, True))
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType, SimpleNamespace
from typing import Any

import sympy as sp

from closedform.errors import ClosedFormError, DefinitionError
from closedform.language import Schedule, exact_number, floor_mod, t
from closedform.language.elementary import ELEMENTARY, Elementary
from closedform.language.integers import integer_floor
from closedform.language.settled import construct
from closedform.recipes.intervals import ended
from closedform.recipes.section import Section
from closedform.schedules.branches import hold_last, stepwise

CurveFunction = Callable[..., float]
"""A function of the count and of keywords."""

Comparison = Callable[..., sp.Basic]
Method = Callable[["_Number", Any], Any]
_ENDS = (ArithmeticError, AssertionError, LookupError, ValueError)
"""Exceptions that end a run; others are mistakes in a curve."""
_MOST_PARTS = 512
"""A list of milestones is shorter; a loop that the count does not bound is longer."""


def curve(
    name: str,
    function: CurveFunction,
    count: sp.Expr = t,
    /,
    *sections: Section,
    **numbers: Any,
) -> Schedule:
    """Returns the schedule of a function of the count, as the framework calls it in a run.

    The function is one of ``curves.py`` of a framework, or a closure: numbers in, a number out,
    with ``if``, ``min``, ``//`` and the functions of ``math``. Numbers are exact, as in all
    schedules. Where it raises an exception, the run and the schedule end.

    Args:
        name: The name of the schedule.
        function: The function, which takes the count first, and keywords. Numbers and functions
            among its variables are exact, too; attributes of its objects are SymPy numbers.
        count: The count at update t: ``Clock.position(facts)``, or t itself.
        *sections: Sections of the config, whose keys are keywords of the function.
        **numbers: Its other keywords; it need not take all of them, as curves of one family do.

    Raises:
        DefinitionError: The function raises an exception at update 0, or has too many parts.
    """
    part = _Part()
    available = functools.reduce(operator.or_, map(vars, sections), {}) | numbers
    code = function.__code__
    keywords = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    arguments = {key: _exact(available[key], part) for key in keywords if key in available}
    copy = _copy(function, part)
    values: list[sp.Expr] = []
    marks: list[sp.Expr] = []
    for _ in range(_MOST_PARTS):
        # The comparisons in the function set the end of the part.
        try:
            values.append(_expr(copy(_Number(count, part), **arguments)))
        except ClosedFormError:
            raise  # of a config, not of a run
        except _ENDS as error:
            # The last value holds from here on, so that no mark follows it.
            if values:
                values[-1] = hold_last(values[-1], part.first - 1)
            return ended(name, values, marks[:-1], part.first, str(error))
        if part.end is None:
            return Schedule(stepwise(values, marks), name=name)
        marks.append(sp.Integer(part.end))
        part.first, part.end = part.end, None
    raise DefinitionError(f"more than {_MOST_PARTS} parts of the run", where=name)


class _Part:
    """Steps from ``first`` on, before ``end``, at which the comparisons of a run are the same."""

    first = 0
    end: int | None = None

    def holds(self, kind: Comparison, expr: sp.Expr) -> bool:
        """Returns how an expression compares with 0; the part ends where this changes."""
        line = _line(expr)
        if line is None:
            raise TypeError(f"a curve compares {expr} with 0, which is not a line")
        slope, start = line
        is_true = bool(kind(slope * self.first + start, 0))
        root = -start / slope if slope != 0 else sp.S.Zero
        for mark in (int(sp.ceiling(root)), int(sp.floor(root)) + 1):
            is_inside = self.first < mark and (self.end is None or mark < self.end)
            if is_inside and bool(kind(slope * mark + start, 0)) != is_true:
                self.end = mark
        return is_true

    def divisor(self, expr: sp.Expr) -> sp.Expr:
        """Returns a divisor, which is not 0 on the part."""
        if self.is_zero(expr):
            raise ZeroDivisionError("division by zero")
        return expr

    def is_zero(self, expr: sp.Expr) -> bool:
        """Returns whether an expression is 0: a multiple of a root is where the number in it is."""
        expr = expr.as_independent(t, as_Add=False)[1] if expr != 0 else expr
        while isinstance(expr, sp.Pow) and expr.exp.is_positive:
            expr = expr.base
        is_positive = isinstance(expr, sp.Max) and expr.is_positive
        return not is_positive and self.holds(sp.Eq, expr)

    def power(self, base: sp.Expr, exponent: sp.Expr) -> sp.Expr:
        """Returns a power; raises as Python does, for a power that has no real value."""
        is_plain = (base.is_number and base > 0) or (exponent.is_Integer and exponent >= 0)
        if not is_plain and not exponent.is_positive and self.is_zero(base):
            # 0 to a negative power: the divisor is 0, which it refuses.
            return base if self.holds(sp.Gt, exponent) else sp.S.One / self.divisor(base**-exponent)
        is_real = is_plain or exponent.is_integer or base.is_nonnegative
        if not is_real and self.holds(sp.Lt, base):
            raise ValueError("a negative number to a fractional power")
        return base**exponent


def _line(expr: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    """The slope and the value at 0 of a line, which may be flat."""
    expr = sp.expand(expr)
    slope = expr.coeff(t, 1)
    start = expr - slope * t
    return (slope, start) if slope.is_Rational and start.is_number else None


def _comparison(kind: Comparison) -> Method:
    return lambda self, operand: self.part.holds(kind, self.expr - _expr(operand))


def _operators(operation: Callable[[_Part, sp.Expr, sp.Expr], sp.Expr]) -> tuple[Method, Method]:
    """The methods of a binary operator, for a number on its left and on its right."""
    return (
        lambda self, right: _Number(operation(self.part, self.expr, _expr(right)), self.part),
        lambda self, left: _Number(operation(self.part, _expr(left), self.expr), self.part),
    )


class _Number:
    """An exact number of a curve: an expression in the step, on a part of the steps."""

    _op_priority = 1000.0  # SymPy's operators ask this class

    def __init__(self, expr: sp.Expr, part: _Part) -> None:
        self.expr = expr
        self.part = part

    __lt__, __le__ = map(_comparison, (sp.Lt, sp.Le))
    __gt__, __ge__ = map(_comparison, (sp.Gt, sp.Ge))
    __eq__, __ne__ = map(_comparison, (sp.Eq, sp.Ne))
    __add__, __radd__ = _operators(lambda part, a, b: a + b)
    __sub__, __rsub__ = _operators(lambda part, a, b: a - b)
    __mul__, __rmul__ = _operators(lambda part, a, b: a * b)
    __truediv__, __rtruediv__ = _operators(lambda part, a, b: a / part.divisor(b))
    __floordiv__, __rfloordiv__ = _operators(lambda part, a, b: integer_floor(a / part.divisor(b)))
    __mod__, __rmod__ = _operators(lambda part, a, b: floor_mod(a, part.divisor(b)))
    __pow__, __rpow__ = _operators(_Part.power)

    def __neg__(self) -> _Number:
        return _Number(-self.expr, self.part)

    def __abs__(self) -> _Number:
        return _Number(sp.Abs(self.expr), self.part)

    def __floor__(self) -> _Number:
        return _Number(integer_floor(self.expr), self.part)

    def __bool__(self) -> bool:
        return self.part.holds(sp.Ne, self.expr)

    def __index__(self) -> int:
        return operator.index(self.expr)

    def __str__(self) -> str:
        return str(self.expr)


def _expr(value: Any) -> sp.Expr:
    return value.expr if isinstance(value, _Number) else exact_number(value)


def _exact(value: Any, part: _Part) -> Any:
    """A literal, an argument or a variable of a curve, made of exact numbers."""
    if isinstance(value, list | tuple):
        return tuple(_exact(item, part) for item in value)
    if isinstance(value, Mapping):
        return {name: _exact(item, part) for name, item in value.items()}
    if isinstance(value, CodeType):
        return value.replace(co_consts=_exact(value.co_consts, part))
    if isinstance(value, FunctionType):
        return _copy(value, part)
    is_number = isinstance(value, int | float | sp.Expr) and not isinstance(value, bool)
    return _Number(exact_number(value), part) if is_number else value


def _copy(function: CurveFunction, part: _Part) -> CurveFunction:
    """A curve whose literals and variables are exact, and whose functions take exact numbers."""
    names, code = function.__globals__, function.__code__
    variables = {name: _exact(names[name], part) for name in code.co_names if name in names}
    closure = tuple(
        CellType(_exact(cell.cell_contents, part)) for cell in function.__closure__ or ()
    )
    copy = FunctionType(
        _exact(code, part),
        {**names, **variables, **_NAMES},
        function.__name__,
        function.__defaults__,
        closure,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _integer(value: Any) -> Any:
    return math.floor(value) if value >= 0 else -math.floor(-value)


def _extremum(kind: type[sp.Expr], later: Comparison, other: Comparison) -> Callable[..., Any]:
    """``max`` or ``min``: of lines by parts of the steps, of other curves as an expression."""

    def of_two(left: Any, right: Any) -> Any:
        # Attributes of objects are numbers of SymPy, which do not depend on the step.
        part = next((value.part for value in (left, right) if isinstance(value, _Number)), _Part())
        first, second = _expr(left), _expr(right)
        line = _line(second - first)
        if line is None:
            return _Number(kind(first, second, evaluate=False), part)
        # Where both are equal, the one that is the result afterwards, too: max(0, t) is t at 0.
        comparison = later if later(line[0], 0) else other
        return right if part.holds(comparison, second - first) else left

    return lambda *values: functools.reduce(of_two, values if len(values) > 1 else values[0])


def _elementary(function: Elementary) -> Callable[[Any], Any]:
    form: Any = function.form  # a class of SymPy, or a function of the same kind

    def value(x: Any) -> Any:
        # An attribute of an object is a number of SymPy, which does not depend on the step.
        if not isinstance(x, _Number):
            return value(_Number(exact_number(x), _Part())).expr
        kind = sp.Lt if function.has_end else sp.Le
        if function.margin is not None and x.part.holds(kind, function.margin(x.expr)):
            raise ValueError("math domain error")
        return _Number(construct(form, x.expr), x.part)

    return value


_MATH = {function.math: _elementary(function) for function in ELEMENTARY.values() if function.math}
_NAMES: Mapping[str, Any] = {
    "int": _integer,
    "math": SimpleNamespace(**_MATH, pi=sp.pi, floor=math.floor),
    "max": _extremum(sp.Max, sp.Ge, sp.Gt),
    "min": _extremum(sp.Min, sp.Le, sp.Lt),
}

"""Numbers and truths that depend on the step, with the operators of Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.exact import ExactInt, number_of
from closedform.importers.python.place import UserValue
from closedform.importers.python.run import Run
from closedform.language import exact_number, floor_div, floor_mod
from closedform.language.exact import FINEST

_ONE, _ZERO = sp.Integer(1), sp.Integer(0)

NOT_TRACED = "this function needs a number, and is not one that can be traced"
SUPPORTED = "use the functions of math, numpy and torch that docs/bring_your_own_schedule.md lists"


class Number:
    """A number that depends on the step: an expression, and whether Python has an int there.

    Operations in which Python raises an exception for some steps raise it for these.

    Args:
        run: The run of the function.
        expr: The expression.
        is_int: Whether it is an int in Python.
    """

    __slots__ = ("expr", "is_int", "run")
    __array_ufunc__ = None
    _op_priority = 1000.0  # above that of SymPy's expressions, whose operators then ask this class

    def __init__(self, run: Run, expr: sp.Expr, is_int: bool = False) -> None:
        self.run = run
        self.expr = expr
        self.is_int = is_int

    def _sympy_(self) -> sp.Expr:
        return self.expr

    def __repr__(self) -> str:
        return str(self.expr)

    def __format__(self, spec: str) -> str:
        return str(self.expr)

    # --- comparisons and truths --------------------------------------------------------------

    def _compared(self, other: Any, kind: Callable[..., sp.Basic]) -> Any:
        if isinstance(other, float) and math.isinf(other):
            # The expression is finite: 0 compares with the infinity as it does.
            return bool(kind(_ZERO, sp.oo if other > 0 else -sp.oo))
        if isinstance(other, np.ndarray) and other.ndim == 1:
            # Decided one by one, so that sums and counts of them are concrete.
            return np.array([bool(self._compared(each, kind)) for each in other.tolist()])
        read = operand(self.run, other)
        if read is None:
            return NotImplemented
        if not (self.is_int and read[1]):
            self.run.session.ties[self.expr - read[0]] = False
        return truth(self.run, kind(self.expr, read[0], evaluate=False))

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, sp.Lt)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, sp.Le)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, sp.Gt)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, sp.Ge)

    def __eq__(self, other: object) -> Any:
        return self._compared(other, sp.Eq)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, sp.Ne)

    def __bool__(self) -> bool:
        return self.run.decide(sp.Ne(self.expr, 0, evaluate=False))

    # --- conversions -------------------------------------------------------------------------

    def __hash__(self) -> int:
        return hash(self.run.concrete(self.expr, "the key of a dict or set"))

    def __index__(self) -> int:
        if not self.is_int:
            raise TypeError("'float' object cannot be interpreted as an integer")
        return self.run.concrete(self.expr, "an index, or the length of a loop,")

    def __int__(self) -> int:
        return self.run.concrete(self.__trunc__().expr, "the integer")

    def __float__(self) -> float:
        if self.expr.is_number:
            return float(self.expr)
        raise self.run.session.refuse(NOT_TRACED, hint=SUPPORTED)

    def __trunc__(self) -> Number:
        return self.__floor__() if self >= 0 else self.__ceil__()

    def __floor__(self) -> Number:
        return self if self.is_int else Number(self.run, floored(self.expr), True)

    def __ceil__(self) -> Number:
        return self if self.is_int else Number(self.run, -floored(-self.expr), True)

    def __round__(self, digits: Any = None) -> Number:
        if digits is None:
            return Number(self.run, half_even(self.expr), True)
        scale = sp.Integer(10) ** int(digits)
        return Number(self.run, half_even(self.expr * scale) / scale, self.is_int)

    def item(self) -> Number:
        """Returns itself, as a scalar of numpy or torch does."""
        return self

    def float(self) -> Number:
        """Returns itself as a float, as a tensor of torch does."""
        return Number(self.run, self.expr)

    double = cpu = detach = numpy = clone = item

    def is_integer(self) -> Any:
        """Returns whether the value is whole, as a float does."""
        return truth(self.run, sp.Eq(floor_mod(self.expr, 1), 0, evaluate=False))

    # --- arithmetic --------------------------------------------------------------------------

    def __neg__(self) -> Number:
        return Number(self.run, -self.expr, self.is_int)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return Number(self.run, sp.Abs(self.expr), self.is_int)

    def __add__(self, other: Any) -> Any:
        return _operation(self, other, _add)

    def __radd__(self, other: Any) -> Any:
        return _reflected(self, other, _add)

    def __sub__(self, other: Any) -> Any:
        return _operation(self, other, _subtract)

    def __rsub__(self, other: Any) -> Any:
        return _reflected(self, other, _subtract)

    def __mul__(self, other: Any) -> Any:
        return _operation(self, other, _multiply)

    def __rmul__(self, other: Any) -> Any:
        return _reflected(self, other, _multiply)

    def __truediv__(self, other: Any) -> Any:
        return _operation(self, other, _divide)

    def __rtruediv__(self, other: Any) -> Any:
        return _reflected(self, other, _divide)

    def __floordiv__(self, other: Any) -> Any:
        return _operation(self, other, _floor_divide)

    def __rfloordiv__(self, other: Any) -> Any:
        return _reflected(self, other, _floor_divide)

    def __mod__(self, other: Any) -> Any:
        return _operation(self, other, _modulo)

    def __rmod__(self, other: Any) -> Any:
        return _reflected(self, other, _modulo)

    def __divmod__(self, other: Any) -> Any:
        quotient = self // other
        return NotImplemented if quotient is NotImplemented else (quotient, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __lshift__(self, other: Any) -> Any:
        return self * 2**other

    def __rlshift__(self, other: Any) -> Any:
        return other * 2**self

    def __rshift__(self, other: Any) -> Any:
        return self // 2**other

    def __pow__(self, other: Any, modulus: None = None) -> Any:
        return _operation(self, other, _power)

    def __rpow__(self, other: Any) -> Any:
        return _reflected(self, other, _power)


class Truth:
    """A truth that depends on the step; a Python ``if`` on it makes the run choose.

    Args:
        run: The run of the function.
        condition: The condition.
    """

    __slots__ = ("condition", "run")
    __array_ufunc__ = None

    def __init__(self, run: Run, condition: sp.Basic) -> None:
        self.run = run
        self.condition = condition

    def _sympy_(self) -> sp.Basic:
        return self.condition

    def __repr__(self) -> str:
        return str(self.condition)

    def __bool__(self) -> bool:
        return self.run.decide(self.condition)

    def __hash__(self) -> int:
        return hash(bool(self))

    @property
    def number(self) -> ExactInt:
        """1 where it holds, else 0: the run chooses."""
        return ExactInt(bool(self))

    def item(self) -> Truth:
        """Returns itself, as a scalar of numpy or torch does."""
        return self

    def float(self) -> Number:
        """Returns 1 or 0 as a float, as a tensor of torch does."""
        return Number(self.run, self.number.expr)

    def __and__(self, other: Any) -> Any:
        return bool(self) & other

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return bool(self) | other

    __ror__ = __or__

    def __index__(self) -> int:
        return int(bool(self))

    def __float__(self) -> float:  # type: ignore[valid-type]
        return float(bool(self))

    def __eq__(self, other: object) -> Any:
        return self.number == other

    def __ne__(self, other: object) -> Any:
        return self.number != other


def _truth_operator(name: str) -> Callable[..., Any]:
    def method(self: Truth, *args: UserValue) -> Any:
        return getattr(self.number, name)(*args)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Truth, f"__{_name}__", _truth_operator(f"__{_name}__"))
    setattr(Truth, f"__r{_name}__", _truth_operator(f"__r{_name}__"))
for _name in ("lt", "le", "gt", "ge", "neg", "pos", "abs", "round"):
    setattr(Truth, f"__{_name}__", _truth_operator(f"__{_name}__"))


def truth(run: Run, condition: sp.Basic) -> bool | Truth:
    """Returns a condition as a truth; a bool where it does not depend on anything."""
    if condition in (sp.true, sp.false):
        return bool(condition)
    return Truth(run, condition) if condition.free_symbols else run.decide(condition)


def operand(run: Run, value: UserValue) -> tuple[sp.Expr, bool] | None:
    """Returns the expression of an operand, and whether it is an int; None for anything else."""
    if isinstance(value, Number):
        return value.expr, value.is_int
    if isinstance(value, Truth):
        return value.number.expr, True
    if isinstance(value, int):
        return sp.Integer(int(value)), True
    if isinstance(value, float):
        if not math.isfinite(value):
            raise run.session.refuse(
                f"{value} in the arithmetic of a step", hint="compare with it instead"
            )
        exact = number_of(value)
        return (run.session.prover.exact(value) if exact is None else exact), False
    if isinstance(value, np.generic):
        number = value.item()
        is_short = value.dtype.itemsize < 8 and isinstance(number, float)
        return (exact_number(value), False) if is_short else operand(run, number)
    if isinstance(value, Fraction):
        return exact_number(value), False
    if isinstance(value, sp.Expr):
        return value, bool(value.is_integer)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return operand(run, value.item())
    return None


Pair = tuple[sp.Expr, bool]


def _operation(self: Number, other: Any, make: Callable[[Run, Pair, Pair], Number]) -> Any:
    read = operand(self.run, other)
    if read is None:
        return NotImplemented
    return make(self.run, (self.expr, self.is_int), read)


def _reflected(self: Number, other: Any, make: Callable[[Run, Pair, Pair], Number]) -> Any:
    read = operand(self.run, other)
    if read is None:
        return NotImplemented
    return make(self.run, read, (self.expr, self.is_int))


def _add(run: Run, a: Pair, b: Pair) -> Number:
    return Number(run, a[0] + b[0], a[1] and b[1])


def _subtract(run: Run, a: Pair, b: Pair) -> Number:
    return Number(run, a[0] - b[0], a[1] and b[1])


def _multiply(run: Run, a: Pair, b: Pair) -> Number:
    return Number(run, a[0] * b[0], a[1] and b[1])


def check_divisor(run: Run, divisor: sp.Expr, message: str) -> None:
    """Raises the exception of Python for the steps at which a divisor is 0."""
    is_zero = divisor == 0 if divisor.is_number else run.decide(sp.Eq(divisor, 0, evaluate=False))
    if is_zero:
        raise ZeroDivisionError(message)


def _divide(run: Run, a: Pair, b: Pair) -> Number:
    check_divisor(run, b[0], "division by zero")
    return Number(run, a[0] / b[0])


def _floor_divide(run: Run, a: Pair, b: Pair) -> Number:
    check_divisor(run, b[0], "integer division or modulo by zero")
    is_int = a[1] and b[1]
    if not is_int:
        run.session.ties[a[0] / b[0]] = True
    return Number(run, a[0] if is_int and b[0] == 1 else floor_div(a[0], b[0]), is_int)


def _modulo(run: Run, a: Pair, b: Pair) -> Number:
    check_divisor(run, b[0], "integer modulo by zero")
    if not (a[1] and b[1]):
        run.session.ties[a[0] / b[0]] = True
    return Number(run, floor_mod(a[0], b[0]), a[1] and b[1])


def _power(run: Run, a: Pair, b: Pair) -> Number:
    (base, base_is_int), (exponent, exponent_is_int) = a, b
    is_int = base_is_int and exponent_is_int
    if exponent.is_Integer and exponent >= 0:
        return Number(run, base**exponent, is_int)
    if base.is_number and base > 0:
        return Number(run, base**exponent, is_int and run.certain(sp.Ge(exponent, 0)) is True)
    if run.decide(sp.Eq(base, 0, evaluate=False)):
        if run.decide(sp.Eq(exponent, 0, evaluate=False)):
            return Number(run, _ONE, is_int)
        if run.decide(sp.Lt(exponent, 0, evaluate=False)):
            raise ZeroDivisionError("0.0 cannot be raised to a negative power")
        return Number(run, _ZERO, is_int)
    if not exponent_is_int and run.decide(sp.Lt(base, 0, evaluate=False)):
        raise ValueError("a negative number to a fractional power is complex")
    is_fine = exponent.is_Rational and exponent.q > FINEST  # SymPy would work (1/24)**k out
    made = sp.Pow(base, exponent, evaluate=False) if is_fine else base**exponent
    return Number(run, made, False)


def floored(expr: sp.Expr) -> sp.Expr:
    """Returns the floor of an expression; of a fraction of integers as an integer quotient."""
    if expr.is_integer:
        return expr
    above, below = expr.as_numer_denom()
    return floor_div(above, below) if below.is_Integer and below != 1 else floor_div(expr, 1)


def half_even(expr: sp.Expr) -> sp.Expr:
    """Returns the nearest integer, of two the even one, as ``round`` of Python."""
    if expr.is_integer:
        return expr
    upper = floored(expr + sp.Rational(1, 2))
    is_tie = sp.Eq(floor_mod(expr + sp.Rational(1, 2), 1), 0, evaluate=False)
    is_odd = sp.Eq(floor_mod(upper, 2), 1, evaluate=False)
    cases = ((upper - 1, sp.And(is_tie, is_odd, evaluate=False)), (upper, True))
    return sp.Piecewise(*cases, evaluate=False)

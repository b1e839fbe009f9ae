"""Numbers and truths that depend on the step, with the operators of Python."""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from types import FunctionType
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.decider import Decider
from closedform.importers.python.exact import ExactInt
from closedform.importers.python.place import UserValue
from closedform.importers.python.tape import Variable, plain_value, unit_of
from closedform.language import exact_number, floor_div, floor_mod
from closedform.language.exact import COMPARISONS, FINEST
from closedform.language.integers import integer_floor

_ONE, _ZERO = sp.Integer(1), sp.Integer(0)

NOT_TRACED = "this function needs a number, and is not one that can be traced"
INDEX = "an index, or the length of a loop,"
KEY = "the key of a dict or set"
"""Uses of a number that only selects or counts."""
SUPPORTED = "use the functions of math, numpy and torch that docs/bring_your_own_schedule.md lists"


_Method = Callable[["Number", Any], Any]


def _comparison(kind: Callable[..., sp.Basic]) -> _Method:
    native = COMPARISONS[kind]

    def compare(self: Number, right: Any) -> Any:
        run = self.run
        # SymPy does not decide t < oo for an expression of unknown sign.
        if run.is_exact and isinstance(right, float) and math.isinf(right):
            # The expression is finite: 0 compares with the infinity as it does.
            return bool(kind(_ZERO, sp.oo if right > 0 else -sp.oo))
        if isinstance(right, np.ndarray) and right.ndim == 1:
            # Decided item by item, so that sums and counts of them are concrete.
            return np.array([bool(compare(self, item)) for item in right])
        right_number = operand(run, right)
        if right_number is None:
            if isinstance(right, np.ndarray | sp.Basic | complex | Iterator):
                raise run.refuse(f"a comparison of the step with a {type(right).__name__}")
            return NotImplemented
        return record(run, native, (self, right), lambda: run.compare(kind, self, right_number))

    return compare


def _operators(native: Callable[[Any, Any], Any]) -> tuple[_Method, _Method]:
    """The methods of a binary operator, for a number on its left and on its right."""
    return (
        lambda self, right: operation(self, right, native),
        lambda self, left: operation(self, left, native, is_reflected=True),
    )


class Number:
    """A number that depends on the step: an expression, and the type that Python has there.

    Operations in which Python raises an exception for some steps raise it for these. What differs
    between a schedule and a step of an optimizer is asked of the run. It is not a float, which C
    would read past its expression: torch hands objects with ``__torch_function__`` to its modes.

    Args:
        run: The run of the function.
        expr: The expression.
        is_int: Whether it is an integer in Python.
        unit: 1 as a number of its type; None for an int or float of Python.
        ref: What the tape of the run keeps of it: its record, that of a symbol is the variable; or
            the value that it has in this run.
    """

    __slots__ = ("expr", "is_int", "ref", "run", "unit")
    # NumPy's operators return NotImplemented for such an operand, so that the methods here are
    # called.
    __array_ufunc__ = None
    _op_priority = 1000.0  # above that of SymPy's expressions, whose operators then ask this class

    def __init__(
        self,
        run: Decider,
        expr: sp.Expr,
        is_int: bool = False,
        unit: UserValue = None,
        ref: UserValue = None,
    ) -> None:
        self.run = run
        self.expr = expr
        self.is_int = is_int
        self.unit = unit
        if ref is None and isinstance(expr, sp.Symbol):
            ref = Variable(expr.name)
        self.ref = ref

    @property
    def kind(self) -> type:
        """The type that the function has there."""
        if self.unit is not None:
            return type(self.unit)
        return int if self.is_int else float

    def _sympy_(self) -> sp.Expr:
        return self.expr

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Runs a function of torch on stand-ins: the mode of the trace has seen the numbers."""
        values = (*args, *(kwargs or {}).values())
        if any(isinstance(value, Number) and value.run.is_exact for value in values):
            return NotImplemented
        names = {key: tape_argument(arg) for key, arg in (kwargs or {}).items()}
        return func(*map(tape_argument, args), **names)

    def __deepcopy__(self, memo: object) -> Number:
        return self

    def __array__(self, *_: UserValue, **__: UserValue) -> Any:
        raise self.run.refuse(
            "an array of numbers that depend on the step", hint="compute each number by itself"
        )

    def __getattr__(self, name: str) -> Any:
        return attribute_of(self, name)

    def _as_array(self, act: Callable[[Any], object], subject: str) -> Any:
        act(_sample(self))  # raises the TypeError of a scalar
        raise self.run.refuse(f"{subject} of a {self.kind.__name__} that depends on the step")

    def __iter__(self) -> Iterator[Any]:
        return self._as_array(iter, "the items")  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self._as_array(len, "the length")  # type: ignore[no-any-return]

    def __getitem__(self, index: UserValue) -> Any:
        return self._as_array(lambda value: value[index], "an item")

    # --- text --------------------------------------------------------------------------------

    def _text(self, render: Callable[[int], str]) -> str:
        """The text of the number: of an integer with few values, or one that is only shown."""
        # Frame 0 is this one, 1 that of str() or format(), 2 the code that asks for the text.
        if self.run.is_shown(sys._getframe(2)):
            return str(self.expr)
        if not self.run.is_exact or not self.is_int or self.unit is not None:
            raise self.run.refuse(
                f"a text of the number {self.expr} is not traced",
                hint="compare numbers, or use an integer of few values",
            )
        return render(self.concrete("the text of the step"))

    def __str__(self) -> str:
        return self._text(str)

    def __repr__(self) -> str:
        return self._text(repr)

    def __format__(self, spec: str) -> str:
        return self._text(lambda value: format(value, spec))

    # --- comparisons and truths --------------------------------------------------------------

    __lt__, __le__ = map(_comparison, (sp.Lt, sp.Le))
    __gt__, __ge__ = map(_comparison, (sp.Gt, sp.Ge))
    __eq__, __ne__ = map(_comparison, (sp.Eq, sp.Ne))

    def __bool__(self) -> bool:
        run = self.run
        return bool(
            record(run, operator.truth, (self,), lambda: run.compare(sp.Ne, self, constant(run, 0)))
        )

    # --- conversions -------------------------------------------------------------------------

    def concrete(self, purpose: str) -> Any:
        """Returns the number of Python that it is in the whole run."""
        value = self.run.concrete(self, purpose)
        if self.ref is not None:
            # The tape replays the run in floats: there the integer must be the same.
            self.run.tape.check(self.ref, value)
        return value

    def __hash__(self) -> int:
        return hash(self.concrete(KEY))

    def __index__(self) -> int:
        if not self.is_int:
            raise TypeError(f"'{self.kind.__name__}' object cannot be interpreted as an integer")
        return int(self.concrete(INDEX))

    def __int__(self) -> int:
        return int(truncate(self).concrete("the integer"))

    def __float__(self) -> float:
        # A number whose steps were split until it is one.
        if self.expr.is_number and self.expr.is_Rational:
            return float(self.expr)
        raise self.run.refuse(NOT_TRACED, hint=SUPPORTED)

    def __complex__(self) -> complex:
        raise self.run.refuse(NOT_TRACED, hint=SUPPORTED)

    def __trunc__(self) -> Any:
        return truncate(self)

    def __floor__(self) -> Any:
        return record(self.run, math.floor, (self,), lambda: _floor(self))

    def __ceil__(self) -> Any:
        return record(self.run, math.ceil, (self,), lambda: _ceil(self))

    def __round__(self, digits: Any = None) -> Any:
        if digits is None:
            return record(self.run, round, (self,), lambda: _round(self))
        # round(x, -2) has a scale below 1: the same formula.
        scale = sp.Integer(10) ** int(digits)

        def compute() -> Number:
            if self.is_int and int(digits) >= 0:
                return Number(self.run, self.expr, True)
            return Number(self.run, half_even(self.expr * scale) / scale, self.is_int)

        return record(self.run, round, (self, int(digits)), compute)

    # --- arithmetic --------------------------------------------------------------------------

    def __neg__(self) -> Any:
        return record(
            self.run, operator.neg, (self,), lambda: Number(self.run, -self.expr, self.is_int)
        )

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Any:
        return record(
            self.run, abs, (self,), lambda: Number(self.run, sp.Abs(self.expr), self.is_int)
        )

    def __invert__(self) -> Any:
        check_bits(self, "~", self)
        return record(
            self.run, operator.invert, (self,), lambda: Number(self.run, -self.expr - 1, True)
        )

    def __divmod__(self, divisor: Any) -> Any:
        quotient = self // divisor
        return NotImplemented if quotient is NotImplemented else (quotient, self % divisor)

    def __rdivmod__(self, dividend: Any) -> Any:
        quotient = dividend // self
        return quotient, dividend % self

    __add__, __radd__ = _operators(operator.add)
    __sub__, __rsub__ = _operators(operator.sub)
    __mul__, __rmul__ = _operators(operator.mul)
    __truediv__, __rtruediv__ = _operators(operator.truediv)
    __floordiv__, __rfloordiv__ = _operators(operator.floordiv)
    __mod__, __rmod__ = _operators(operator.mod)
    __lshift__, __rlshift__ = _operators(operator.lshift)
    __rshift__, __rrshift__ = _operators(operator.rshift)
    __and__, __rand__ = _operators(operator.and_)
    __or__, __ror__ = _operators(operator.or_)
    __xor__, __rxor__ = _operators(operator.xor)

    def __pow__(self, exponent: Any, modulus: Any = None) -> Any:
        if modulus is not None:
            return power_with_modulus(self.run, self, exponent, modulus)
        return operation(self, exponent, operator.pow)

    def __rpow__(self, base: Any, modulus: Any = None) -> Any:
        return operation(self, base, operator.pow, is_reflected=True)

    def __matmul__(self, matrix: Any) -> Any:
        raise self.run.refuse("a matrix product with the step")

    __rmatmul__ = __matmul__


class Mixed(Number):
    """A number that is an int at some steps and a float at others, such as ``max(0, x)``."""

    __slots__ = ()

    @property
    def kind(self) -> type:
        """The type that the function has there: it depends on the step."""
        raise self.run.refuse(
            "the type of a number that is an int at some steps and a float at others",
            hint="convert it with float() or int()",
        )


def one_of(run: Decider, expr: sp.Expr, members: Sequence[Number]) -> Number:
    """Returns a number that is one of some: an int, a float, or one of them at each step."""
    is_int = all(member.is_int for member in members)
    is_mixed = not is_int and any(member.is_int for member in members)
    return (Mixed if is_mixed else Number)(run, expr, is_int)


class Truth:
    """A truth that depends on the step; a Python ``if`` on it makes the run choose.

    Args:
        run: The run of the function.
        condition: The condition.
        unit: True as a truth of its type; None for a bool of Python.
        ref: Its record.
    """

    __slots__ = ("condition", "ref", "run", "unit")
    __array_ufunc__ = None

    def __init__(
        self, run: Decider, condition: sp.Basic, unit: UserValue = None, ref: UserValue = None
    ) -> None:
        self.run = run
        self.condition = condition
        self.unit = unit
        self.ref = ref

    def _sympy_(self) -> sp.Basic:
        return self.condition

    def __bool__(self) -> bool:
        is_true = self.run.decide(self.condition)
        if self.ref is not None:
            self.run.tape.check(self.ref, is_true)
        return is_true

    def __hash__(self) -> int:
        return hash(bool(self))

    @property
    def kind(self) -> type:
        """The type that the function has there."""
        return bool if self.unit is None else type(self.unit)

    @property
    def value(self) -> Any:
        """The truth as the function's own type has it: the run chooses."""
        is_true = bool(self)
        if self.unit is None:
            return is_true
        return np.bool_(is_true) if isinstance(self.unit, np.generic | np.ndarray) else is_true

    @property
    def number(self) -> ExactInt:
        """1 where it holds, else 0: the run chooses."""
        return ExactInt(bool(self))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("item", "all", "any"):
            return lambda: self
        return getattr(self.value, name)

    def __index__(self) -> int:
        return int(bool(self))


# Sums and products of Python's bools are ints, their & and | are bools.
def _truth_operator(native: Callable[[Any, Any], Any], *, is_reflected: bool) -> Callable[..., Any]:
    def method(self: Truth, operand_value: UserValue) -> Any:
        value: Any = self.value
        if type(value) is bool and native not in _LOGIC:
            value = ExactInt(value)
        if isinstance(operand_value, Truth):
            operand_value = operand_value.value
        return native(operand_value, value) if is_reflected else native(value, operand_value)

    return method


_LOGIC = (operator.and_, operator.or_, operator.xor)
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift")
for _name in (*_OPERATORS, "and", "or", "xor"):
    # The operators and_, or_ and xor of Python: two of the names are keywords.
    _native = getattr(operator, _name + "_" * (_name in ("and", "or")))
    setattr(Truth, f"__{_name}__", _truth_operator(_native, is_reflected=False))
    setattr(Truth, f"__r{_name}__", _truth_operator(_native, is_reflected=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _native = getattr(operator, _name)
    setattr(Truth, f"__{_name}__", _truth_operator(_native, is_reflected=False))
for _native in (operator.neg, operator.pos, operator.abs, operator.invert, repr, str, format):
    _name = f"__{_native.__name__}__"
    setattr(Truth, _name, lambda self, *spec, native=_native: native(self.value, *spec))


def operand(run: Decider, value: UserValue) -> Number | None:
    """Returns an operand as a number; None for anything else."""
    if isinstance(value, Number):
        return value
    if isinstance(value, Truth):
        return operand(run, value.number)
    if isinstance(value, np.generic):
        number = value.item()
        # float16 and float32 are exact rationals, but what is computed from them has their
        # rounding.
        is_short = value.dtype.itemsize < 8 and isinstance(number, float)
        if run.is_exact and is_short and math.isfinite(number):
            run.note_single()
            return Number(run, exact_number(value), ref=value)
        return operand(run, number)
    if isinstance(value, int):
        return constant(run, value)
    if isinstance(value, float):
        return Number(run, run.exact(value), ref=value)
    if isinstance(value, Fraction | Decimal):
        return Number(run, sp.Rational(*value.as_integer_ratio()), ref=value)
    # The function may compute with SymPy itself.
    if isinstance(value, sp.Expr):
        return Number(run, value, bool(value.is_integer), ref=value)
    # Arrays of NumPy and tensors of torch without axes.
    if not run.is_exact and hasattr(value, "__torch_function__"):
        return None  # it has operators, and may depend on the step
    is_scalar = getattr(value, "ndim", None) == 0 and hasattr(value, "item")
    return operand(run, value.item()) if is_scalar else None


def constant(run: Decider, value: int) -> Number:
    """Returns an integer as a number."""
    return Number(run, sp.Integer(int(value)), True, ref=int(value))


# --- records -------------------------------------------------------------------------------------


def record(
    run: Decider,
    native: Callable[..., Any],
    args: tuple[Any, ...],
    compute: Callable[[], Any],
    names: Mapping[str, Any] | None = None,
    *,
    is_typed: bool = False,
) -> Any:
    """Returns the value of an operation on traced numbers, which becomes one record of the run.

    Args:
        run: The run of the function.
        native: The operation as the user's function does it.
        args: Its arguments.
        compute: Returns its value.
        names: Its arguments by name.
        is_typed: Whether the type of the value is asked of ``native``, and not of ``compute``.
    """
    tape = run.tape
    if tape.is_paused:
        return compute()
    arguments, keywords = (
        tape_argument(args),
        {key: tape_argument(arg) for key, arg in (names or {}).items()},
    )
    unit: Any = None
    # The dtype of a result follows NumPy's promotion, which is asked of NumPy itself.
    is_special = is_typed or any(_is_special(arg) for arg in args)
    tape.begin(native, args)
    try:
        value = compute()
        if is_special:
            unit = _native_unit(native, args, names or {})
            value = _convert(run, value, unit)
    except Exception as error:
        # np.log(0) is −∞ where math.log(0) raises: the value ends the run with its reason, the
        # exception is the function's.
        if isinstance(error, ValueError | ZeroDivisionError) and is_silent(native, args):
            raise run.not_real(f"the value is not finite: {error}") from None
        tape.raises(native, arguments, keywords, error)
        raise
    finally:
        tape.end()
    return _adopt(run, value, tape.call(native, arguments, keywords))


def is_silent(native: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Returns whether an operation gives NaN or an infinity where Python raises an exception."""
    module = getattr(native, "__module__", "")
    if module not in ("math", "_operator", "builtins", __name__):
        return True
    units = [_sample(arg) if isinstance(arg, Number) else arg for arg in args]
    return any(hasattr(unit, "dtype") for unit in units)


def tape_argument(value: Any) -> Any:
    """Returns an argument of a record."""
    if isinstance(value, Number | Truth):
        return value.ref
    if isinstance(value, np.ndarray):  # the function may change its own arrays later
        return np.array(value) if value.flags.writeable else np.asarray(value)
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(map(tape_argument, value))
    return plain_value(native_of(value))


def native_of(value: UserValue) -> Any:
    """Returns the type or function of the user that a stand-in takes the place of."""
    if isinstance(value, type | FunctionType):
        return vars(value).get("native", value)
    return value


def _is_special(value: Any) -> bool:
    if isinstance(value, Number | Truth):
        return value.unit is not None
    if type(value) in (list, tuple):
        return any(map(_is_special, value))
    return unit_of(value) is not None


def _native_unit(native: Callable[..., Any], args: Any, names: Mapping[str, Any]) -> Any:
    """The result of the operation for 1 of each type; a TypeError is an error of the function."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return native(*map(_sample, args), **{key: _sample(arg) for key, arg in names.items()})
        except (ValueError, ArithmeticError, LookupError) as error:
            if isinstance(error, OverflowError):  # an integer that the dtype does not hold
                raise
            return None


def _sample(value: Any) -> Any:
    if isinstance(value, Number):
        if value.unit is not None:
            return value.unit
        return 1 if value.is_int else 1.0
    if isinstance(value, Truth):
        return True if value.unit is None else value.unit
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(map(_sample, value))
    return plain_value(native_of(value))


def _convert(run: Decider, value: Any, unit: Any) -> Any:
    """A value with the type of the function, in whose integers it wraps."""
    if unit is None:
        return value
    if isinstance(value, Truth):
        return Truth(run, value.condition, None if type(unit) is bool else unit)
    if isinstance(value, bool) and isinstance(unit, np.bool_):
        return np.bool_(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, Number | int | float):
        return value
    if isinstance(value, int | float):
        if unit_of(unit) is None or isinstance(value, np.generic):
            return value
        return type(unit_of(unit))(value) if isinstance(unit, np.generic) else value
    if isinstance(unit, bool | np.bool_):
        return value
    native_unit = unit_of(unit)
    if native_unit is None:
        return value if isinstance(value, Mixed) else Number(run, value.expr, type(unit) is int)
    dtype: Any = getattr(native_unit, "dtype", None)
    is_int = isinstance(native_unit, np.generic | np.ndarray) and np.issubdtype(dtype, np.integer)
    if isinstance(native_unit, np.generic | np.ndarray):
        if np.issubdtype(dtype, np.floating) and dtype.itemsize < 8:
            run.note_single()
            if dtype.itemsize < 4:
                raise run.refuse("arithmetic in float16", hint="use float32 or float64")
    elif dtype is not None:
        is_int = not (native_unit.is_floating_point() or native_unit.is_complex())
    expr = value.expr
    if is_int and isinstance(native_unit, np.generic | np.ndarray):
        expr = wrap_integer(run, expr, np.iinfo(dtype))
    return Number(run, expr, bool(is_int), native_unit)


def wrap_integer(run: Decider, expr: sp.Expr, info: Any) -> sp.Expr:
    """Returns an integer as a fixed width holds it."""
    low, high = int(info.min), int(info.max)
    if run.fits(expr, info) is True:
        return expr
    return floor_mod(expr - low, high - low + 1) + low


def _adopt(run: Decider, value: Any, ref: Any) -> Any:
    """The value as the result of a recorded call; a replay of the tape compares plain values.

    A plain value does not depend on the step, so that each run of the function must return it.
    """
    if isinstance(value, Number):
        return run.settle(type(value)(run, value.expr, value.is_int, value.unit, ref))
    if isinstance(value, Truth):
        return Truth(run, value.condition, value.unit, ref)
    if type(value) in (list, tuple):
        items = (
            _adopt(run, item, run.tape.call(operator.getitem, (ref, place), {}))
            for place, item in enumerate(value)
        )
        return type(value)(items)
    if isinstance(value, bool | int | float | np.generic):
        run.tape.check(ref, plain_value(value))
    return value


def method(value: UserValue, name: str, *args: UserValue, **names: UserValue) -> Any:
    """Calls a method of a number of the function."""
    return getattr(value, name)(*args, **names)


def attribute_of(number: Number, name: str) -> Any:
    """Returns an attribute or method of a number as its type has it, or refuses it."""
    kind, run = number.kind, number.run
    sample = _sample(number)
    if name.startswith("__array") or not hasattr(sample, name):
        raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")
    make = _ATTRIBUTES.get(name)
    if make is not None and not (name in _PARTS and issubclass(kind, Fraction)):
        return record(run, getattr, (number, name), lambda: make(number), is_typed=True)
    compute = _METHODS.get(name)
    if compute is None:
        raise run.refuse(f"{name!r} of a {kind.__name__} that depends on the step", hint=SUPPORTED)

    def call(*args: UserValue, **names: UserValue) -> Any:
        return record(
            run,
            method,
            (number, name, *args),
            lambda: compute(number, *args, **names),
            names,
            is_typed=True,
        )

    return call


def _bit_length(number: Number) -> Any:
    """The bits of an integer: the steps are split at the powers of 2."""
    run, size = number.run, abs(number)
    if not run.is_bounded(sp.Lt(size.expr, 1 << _MOST_BITS, evaluate=False)):
        raise run.refuse(
            "'bit_length' of a number without a bound", hint="bound it, such as min(step, 1000)"
        )
    for bits in range(_MOST_BITS):
        if size < 1 << bits:
            return ExactInt(bits)
    raise run.refuse("'bit_length' of a number of more than 64 bits")


_MOST_BITS = 64


def _whole(number: Number) -> Any:
    return number % 1 == 0


def _identity(number: Number, *_: UserValue, **__: UserValue) -> Number:
    return number


def _as_float(number: Number, *_: UserValue, **__: UserValue) -> Number:
    return Number(number.run, number.expr)


_ATTRIBUTES: Mapping[str, Callable[[Number], Any]] = {
    **dict.fromkeys(("real", "numerator", "T"), _identity),
    "imag": lambda number: Number(number.run, _ZERO, number.is_int),
    "denominator": lambda number: Number(number.run, _ONE, number.is_int),
}
_PARTS = ("numerator", "denominator")
_UNCHANGED = ("conjugate", "item", "tolist", "copy", "clone", "detach", "cpu", "numpy", "squeeze")

_METHODS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(_UNCHANGED, _identity),
    **dict.fromkeys(("float", "double"), _as_float),
    "is_integer": _whole,
    "bit_length": _bit_length,
    "__floor__": lambda number: _floor(number),
    "__trunc__": lambda number: _truncate(number),
    "clip": lambda number, low=None, high=None: _clip(number, low, high),
    "clamp": lambda number, min=None, max=None: _clip(number, min, max),
}


def _clip(number: Number, low: Any, high: Any) -> Number:
    expr = number.expr
    for limit, kind in ((low, sp.Max), (high, sp.Min)):
        bound = None if limit is None else operand(number.run, limit)
        if bound is not None:
            expr = kind(expr, bound.expr, evaluate=False)
    return Number(number.run, expr, number.is_int)


def _floor(number: Number) -> Number:
    if number.is_int:
        return number
    number.run.check_finite(number)
    return Number(number.run, integer_floor(number.expr), True)


def _ceil(number: Number) -> Number:
    if number.is_int:
        return number
    number.run.check_finite(number)
    return Number(number.run, -integer_floor(-number.expr), True)


def _round(number: Number) -> Number:
    number.run.check_finite(number)
    return Number(number.run, half_even(number.expr), True)


def _truncate(number: Number) -> Number:
    number.run.check_finite(number)
    return _floor(number) if number >= 0 else _ceil(number)


def truncate(number: Number) -> Number:
    """Returns the integer part of a number, as ``int`` does."""
    result: Number = record(
        number.run, int, (number,), lambda: _truncate(number), is_typed=number.unit is not None
    )
    return result


def operation(
    self: Number, argument: Any, native: Callable[[Any, Any], Any], *, is_reflected: bool = False
) -> Any:
    """Returns the value of an operator on a number and another operand."""
    run = self.run
    operand_number = operand(run, argument)
    if operand_number is None:
        return _foreign(self, argument, native, is_reflected=is_reflected)
    check_types(self, argument, native)
    make = _MAKES[native]
    if native in _BITS:
        check_bits(self, native.__name__.strip("_"), argument)
    if is_reflected:
        return record(run, native, (argument, self), lambda: make(run, operand_number, self))
    return record(run, native, (self, argument), lambda: make(run, self, operand_number))


def _foreign(self: Number, argument: Any, native: Any, *, is_reflected: bool) -> Any:
    """The exception of an operand that is not a number, or a refusal."""
    sample = _sample(self)
    if hasattr(argument, "__torch_function__") and not self.run.is_exact:
        return NotImplemented  # the operator of the tensor
    if isinstance(argument, list | tuple | str | bytes) and native is operator.mul:
        return NotImplemented  # a repetition
    try:
        value = native(argument, sample) if is_reflected else native(sample, argument)
    except TypeError:
        return NotImplemented
    except Exception:
        value = argument
    subject = f"an operation of the step with a {type(argument).__name__}"
    raise self.run.doubtful_error(f"{subject}, which gives a {type(value).__name__}")


def check_types(self: Number, argument: Any, native: Any) -> None:
    """Refuses operations of Decimal that differ from the same operations of numbers."""
    kinds = [type(_sample(value)) for value in (self, argument)]
    if Decimal in kinds and native in (operator.floordiv, operator.mod, operator.pow):
        raise self.run.refuse(f"{native.__name__} of a Decimal that depends on the step")
    if native is operator.pow and any(issubclass(kind, Fraction) for kind in kinds):
        raise self.run.refuse("a power of a Fraction that depends on the step")
    is_integer_power = native is operator.pow and any(issubclass(k, np.integer) for k in kinds)
    is_safe = isinstance(argument, int | np.integer) and argument >= 0
    if is_integer_power and not is_safe and not any(issubclass(k, float) for k in kinds):
        raise self.run.refuse("a power of an integer of NumPy with a negative exponent")


def check_bits(self: Number, name: str, argument: Any) -> None:
    """Refuses operations on bits of anything but integers of Python."""
    for value in (self, argument):
        sample = _sample(value)
        if isinstance(sample, float):
            raise TypeError(f"unsupported operand type(s) for {name}: 'float'")
        if not isinstance(sample, int):
            raise self.run.refuse(
                f"bits of a {type(sample).__name__} that depends on the step",
                hint="convert it with int()",
            )


_Make = Callable[["Decider", Number, Number], Number]


def _arithmetic(native: Callable[[Any, Any], Any]) -> _Make:
    return lambda run, a, b: Number(run, native(a.expr, b.expr), a.is_int and b.is_int)


def check_divisor(divisor: Number, message: str) -> None:
    """Raises the exception of Python for the steps at which a divisor is 0."""
    number, run = divisor.expr, divisor.run
    is_zero = number == 0 if number.is_number else run.raises(sp.Eq, divisor)
    if is_zero:
        raise ZeroDivisionError(message)


def _divide(run: Decider, a: Number, b: Number) -> Number:
    check_divisor(b, "division by zero")
    return Number(run, a.expr / b.expr)


def _floor_divide(run: Decider, a: Number, b: Number) -> Number:
    check_divisor(b, "integer division or modulo by zero")
    is_int = a.is_int and b.is_int
    is_same = is_int and b.expr == 1
    return Number(run, a.expr if is_same else floor_div(a.expr, b.expr), is_int)


def _modulo(run: Decider, a: Number, b: Number) -> Number:
    check_divisor(b, "integer modulo by zero")
    is_int = a.is_int and b.is_int
    expr = _ZERO if is_int and b.expr == 1 else floor_mod(a.expr, b.expr)
    return Number(run, expr, is_int)


def _power(run: Decider, a: Number, b: Number) -> Number:
    base, exponent = a.expr, b.expr
    is_int = a.is_int and b.is_int
    if exponent.is_Integer and exponent >= 0:
        return Number(run, base**exponent, is_int)
    if not run.is_exact:
        if not exponent.is_nonnegative and b < 0:
            check_divisor(a, "0.0 cannot be raised to a negative power")
        return Number(run, base**exponent, is_int)
    # An integer to a negative power is a float.
    is_int = is_int and bool(b >= 0)
    if base.is_number and base > 0:
        return Number(run, base**exponent, is_int)
    if a == 0:
        if b == 0:
            return Number(run, _ONE, is_int)
        if b < 0:
            raise ZeroDivisionError("0.0 cannot be raised to a negative power")
        return Number(run, _ZERO, is_int)
    if not b.is_int and a < 0:
        is_whole = sp.Eq(floor_mod(exponent, 1), 0, evaluate=False)
        if is_whole == sp.false or (is_whole != sp.true and not _whole(b)):
            raise run.not_real("a negative number to a fractional power is complex")
    is_fine = exponent.is_Rational and exponent.q > FINEST  # SymPy would work (1/24)**k out
    power = sp.Pow(base, exponent, evaluate=False) if is_fine else base**exponent
    return Number(run, power, is_int)


def power_with_modulus(run: Decider, base: Any, exponent: Any, modulus: Any) -> Any:
    """Returns ``pow(base, exponent, modulus)`` of integers."""
    for value in (base, exponent, modulus):
        if not isinstance(_sample(value), int):
            raise TypeError("pow() 3rd argument not allowed unless all arguments are integers")
    if isinstance(exponent, Number | Truth) or not 0 <= exponent <= _LARGEST_EXPONENT:
        raise run.refuse(
            "pow with a modulus, and an exponent that depends on the step or is not in "
            f"0..{_LARGEST_EXPONENT}",
            hint="compute the power, and then its remainder",
        )

    def compute() -> Number:
        divisor = run_operand(run, modulus)
        if divisor == 0:
            raise ValueError("pow() 3rd argument cannot be 0")
        number = run_operand(run, base).expr ** sp.Integer(int(exponent))
        return Number(run, floor_mod(number, divisor.expr), True)

    return record(run, pow, (base, exponent, modulus), compute)


_LARGEST_EXPONENT = 64


def run_operand(run: Decider, value: UserValue) -> Number:
    """Returns an operand as a number.

    Raises:
        TypeError: It is not a number.
    """
    number = operand(run, value)
    if number is None:
        raise TypeError(f"must be a real number, not {type(value).__name__}")
    return number


def _shift(make: _Make) -> _Make:
    def shift(run: Decider, a: Number, b: Number) -> Number:
        if b < 0:
            raise ValueError("negative shift count")
        return make(run, a, Number(run, sp.Integer(2) ** b.expr, True))

    return shift


def _common_bits(run: Decider, a: sp.Expr, b: sp.Expr) -> sp.Expr:
    """The common bits of two integers, one of which is known."""
    number, mask = (a, b) if b.is_Integer else (b, a)
    if not mask.is_Integer:
        raise run.refuse("bits of two numbers that depend on the step", hint="use // and % instead")
    if mask < 0:  # all bits but some
        return number - _common_bits(run, number, -mask - 1)
    bits, place = int(mask), 0
    terms: list[sp.Expr] = []
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits >>= zeros
        place += zeros
        width = ((bits + 1) & ~bits).bit_length() - 1
        bits >>= width
        high = number if place == 0 else floor_div(number, sp.Integer(2) ** place)
        terms.append(floor_mod(high, sp.Integer(2) ** width) * sp.Integer(2) ** place)
        place += width
    return sp.Add(*terms)


def _bits(sum_count: int, common_count: int) -> _Make:
    """Bits as a sum of the two integers and of their common bits, so many times each."""
    return lambda run, a, b: Number(
        run, sum_count * (a.expr + b.expr) + common_count * _common_bits(run, a.expr, b.expr), True
    )


_BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift)
_MAKES: Mapping[Callable[[Any, Any], Any], _Make] = {
    operator.add: _arithmetic(operator.add),
    operator.sub: _arithmetic(operator.sub),
    operator.mul: _arithmetic(operator.mul),
    operator.truediv: _divide,
    operator.floordiv: _floor_divide,
    operator.mod: _modulo,
    operator.pow: _power,
    operator.and_: _bits(0, 1),
    operator.or_: _bits(1, -1),
    operator.xor: _bits(1, -2),
    operator.lshift: _shift(_arithmetic(operator.mul)),
    operator.rshift: _shift(_floor_divide),
}


def half_even(expr: sp.Expr) -> sp.Expr:
    """Returns the nearest integer, of two the even one, as ``round`` of Python.

    It is ``floor((2 x + 1) / 4) + ceil((2 x - 1) / 4)``: the floor rises at the ties below even
    numbers, which go up, and the ceiling beyond the ties above them, which go down.
    """
    if expr.is_integer:
        return expr
    quarter = sp.Rational(1, 4)
    return integer_floor(expr / 2 + quarter) - integer_floor(quarter - expr / 2)

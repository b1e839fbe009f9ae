"""Python numbers with an expression and a value: hyperparameters, step counts, sizes.

They are not floats, which functions in C would read past their expression: torch hands objects with
``__torch_function__`` to its modes as they are. Arithmetic carries both the value and the
expression; a comparison is decided by the run that the number belongs to. Functions of Python that
would return a plain number (``math.sqrt``, ``max``, ``int``) have versions here that carry the
expression, by name of the original.
"""

from __future__ import annotations

import builtins
import math
import numbers
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import sympy as sp

from closedform.errors import TraceError
from closedform.importers.python.place import UserValue
from closedform.importers.python.text import is_only_shown
from closedform.importers.tensors.comparisons import (
    atan2,
    comparison,
    copysign,
    is_infinite,
    is_nan,
    is_of_data,
)
from closedform.language.elementary import ELEMENTARY, Elementary
from closedform.language.integers import floor_div, floor_mod
from closedform.language.model import non_finite
from closedform.language.symbols import exact_number, t


class Decider(Protocol):
    """The decisions on comparisons: one traced run.

    Attributes:
        codes: The ids of the codes of traced functions.
    """

    codes: set[int]

    def decide(self, condition: sp.Basic, value: bool) -> bool:
        """Returns the truth of a condition that has this value on the traced numbers."""

    def fail(self, error: Exception) -> Exception:
        """Returns an exception that the code raises on such numbers."""

    def refuse(self, message: str, hint: str | None = None) -> TraceError:
        """Returns the error of something that is not modelled, which the run ends with."""


class SymbolicFloat:
    """A float and the expression that it is a value of.

    Args:
        value: The float.
        expr: The expression.
        run: The run that decides on it.
    """

    __slots__ = ("expr", "run", "value")

    def __init__(self, value: float, expr: sp.Expr, run: Decider) -> None:
        self.value = value
        self.expr = expr
        self.run = run

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Runs a function of torch on plain numbers: the mode of the trace has seen these."""
        return func(*map(plain, args), **{key: plain(arg) for key, arg in (kwargs or {}).items()})

    def __bool__(self) -> bool:
        return self.run.decide(sp.Ne(self.expr, 0), self.value != 0)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(int if isinstance(self, SymbolicCount) else float, name):
            raise AttributeError(name)
        raise self.run.refuse(f"{name} of the number {self.expr} is not traced")

    def __deepcopy__(self, memo: object) -> SymbolicFloat:
        return self


class SymbolicCount(SymbolicFloat):
    """A number of steps or elements, or a size, and its expression; an int for traced code."""

    __slots__ = ()

    def __index__(self) -> int:
        # The loop would have another length in each step.
        if t in self.expr.free_symbols or is_of_data(self.expr):
            raise self.run.refuse(f"an index or a number of rounds is {self.expr}")
        return int(self.value)


numbers.Real.register(SymbolicFloat)
numbers.Integral.register(SymbolicCount)
SYMBOLIC = (SymbolicFloat,)


def symbolic(value: float, expr: sp.Basic, run: Decider) -> Any:
    """Returns a number with an expression; a plain one where the expression is its value."""
    # A constant needs no expression, and plain numbers reach functions of C.
    if isinstance(expr, sp.Expr) and (expr.is_Rational or expr in (sp.oo, -sp.oo, sp.nan)):
        return value
    if not math.isfinite(value) and (not is_of_data(expr) or expr.has(sp.oo, -sp.oo)):
        return value
    # A bool is an int for arithmetic, as in Python.
    is_int = isinstance(value, int)
    return SymbolicCount(int(value), expr, run) if is_int else SymbolicFloat(value, expr, run)


def plain(value: UserValue) -> Any:
    """Returns the value of a number, or numbers in a list, without their expressions."""
    if isinstance(value, SymbolicFloat):
        return value.value
    if isinstance(value, np.integer | np.floating):
        return value.item()
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def expression(value: UserValue) -> sp.Expr:
    """Returns the expression of a number; that of a plain one is exact.

    Raises:
        TraceError: It is not a number.
    """
    if isinstance(value, SYMBOLIC):
        return value.expr
    if isinstance(value, bool | np.bool_):
        return sp.Integer(int(value))
    if isinstance(value, np.integer | np.floating):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return sp.nan if math.isnan(value) else sp.oo if value > 0 else -sp.oo
    if isinstance(value, int | float):
        # The exact value of the shortest decimal: 0.9 is 9/10.
        return exact_number(value + 0)  # a length of a list of parameters refuses this
    raise TraceError(f"a number was expected, got {type(value).__name__} {value!r}")


def run_of(*values: UserValue) -> Decider:
    """Returns the run that the first symbolic number belongs to."""
    return next(value.run for value in values if isinstance(value, SYMBOLIC))


def with_rule(
    function: Callable[..., Any], rule: Callable[..., sp.Basic], *operands: UserValue
) -> Any:
    """Returns a function of numbers with the expression that a rule gives of theirs."""
    value = function(*map(plain, operands))
    expr = rule(*map(expression, operands))
    return symbolic(value, expr, run_of(*operands))


def _is_real(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating | SymbolicFloat)


def _binary(
    name: str,
    function: Callable[[Any, Any], Any],
    rule: Callable[[sp.Expr, sp.Expr], sp.Expr],
) -> None:
    """Gives both classes an operator and its reflection."""
    # Operators in which Python raises ZeroDivisionError, torch not.
    is_division = name in ("truediv", "floordiv", "mod")

    def apply(a: Any, b: Any) -> Any:
        if is_division and isinstance(b, SYMBOLIC) and plain(b) == 0:
            # Both ways are traced: the one that raises, and the other.
            if b.run.decide(sp.Eq(b.expr, 0), value=True):
                raise b.run.fail(ZeroDivisionError("division by zero"))
            # Traced as if it were not 0: the value is only a stand-in.
            return symbolic(float(plain(a)), rule(expression(a), b.expr), b.run)
        return with_rule(function, rule, a, b)

    def forward(self: Any, operand: Any, *modulus: Any) -> Any:
        if modulus:
            raise self.run.refuse("pow with a modulus is not traced")
        return apply(self, operand) if _is_real(operand) else NotImplemented

    def reflect(self: Any, operand: Any) -> Any:
        return apply(operand, self) if _is_real(operand) else NotImplemented

    setattr(SymbolicFloat, f"__{name}__", forward)
    setattr(SymbolicFloat, f"__r{name}__", reflect)


def _define_comparison(
    name: str,
    function: Callable[[Any, Any], bool],
    kind_of: Callable[[sp.Expr, sp.Expr], sp.Basic],
) -> None:
    def compare(self: Any, right: Any) -> Any:
        if not _is_real(right):
            return NotImplemented
        # The truth for the numbers of this run, with the condition for all others.
        holds = function(plain(self), plain(right))
        condition = comparison(kind_of, self.expr, expression(right))
        return self.run.decide(condition, holds)

    setattr(SymbolicFloat, f"__{name}__", compare)


_OPERATORS: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[..., sp.Expr], str]] = {
    "add": (operator.add, operator.add, "add"),
    "sub": (operator.sub, operator.sub, "subtract"),
    "mul": (operator.mul, operator.mul, "multiply"),
    "truediv": (operator.truediv, operator.truediv, "divide"),
    "floordiv": (operator.floordiv, floor_div, "floor_divide"),
    "mod": (operator.mod, floor_mod, "remainder"),
    "pow": (operator.pow, operator.pow, "power"),
}
"""Operators by the names of their methods: in Python, of expressions, and the name in NumPy."""

_COMPARISONS: Mapping[str, tuple[Callable[[Any, Any], bool], type[sp.Basic], str]] = {
    "lt": (operator.lt, sp.Lt, "less"),
    "le": (operator.le, sp.Le, "less_equal"),
    "gt": (operator.gt, sp.Gt, "greater"),
    "ge": (operator.ge, sp.Ge, "greater_equal"),
    "eq": (operator.eq, sp.Eq, "equal"),
    "ne": (operator.ne, sp.Ne, "not_equal"),
}
"""Comparisons, likewise."""

for _name, (_function, _rule, _) in _OPERATORS.items():
    _binary(_name, _function, _rule)
for _name, (_function, _kind, _) in _COMPARISONS.items():
    _define_comparison(_name, _function, _kind)


def _unary(name: str, function: Callable[[Any], Any], rule: Callable[[sp.Expr], sp.Expr]) -> None:
    setattr(SymbolicFloat, f"__{name}__", lambda self: with_rule(function, rule, self))


_unary("neg", lambda a: -a, lambda a: -a)
_unary("pos", lambda a: +a, lambda a: a)
_unary("abs", abs, sp.Abs)


def _divmod(a: Any, b: Any) -> tuple[Any, Any]:
    return a // b, a % b


def _hash(self: Any) -> int:
    """A number that is a key: the keys of a dict are the same in every step."""
    if t in self.expr.free_symbols or is_of_data(self.expr):
        raise self.run.refuse(f"the number {self.expr} is a key or an element of a set")
    return hash(plain(self))


def _refusing(operation: str) -> Callable[..., Any]:
    def method(self: Any, *_: Any) -> Any:
        raise self.run.refuse(f"{operation} of the number {self.expr} is not traced")

    return method


def _text(self: Any, *_: str) -> str:
    """A text of a number, which nothing may depend on: that of an exception or of a log."""
    if is_only_shown(sys._getframe(1), self.run.codes):
        return str(self.expr)
    raise self.run.refuse(f"a text of the number {self.expr} is not traced")


def _ufunc(self: Any, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
    """A function of NumPy of numbers, one of them symbolic."""
    rule = _UFUNCS.get(ufunc.__name__)
    # ufunc.reduce, out= and where= work on arrays.
    if rule is None or method != "__call__" or options or not all(map(_is_real, args)):
        raise self.run.refuse(f"numpy.{ufunc.__name__} of the number {self.expr} is not traced")
    return rule(*args)


_REFUSED_METHODS: Mapping[str, str] = {
    "__float__": "a float in C",
    "__int__": "an int in C",
    "__complex__": "a complex number",
    "__round__": "rounding",
    "__trunc__": "rounding",
    "__floor__": "rounding",
    "__ceil__": "rounding",
    "__array__": "an array",
    "__array_function__": "an array",
    "as_integer_ratio": "the ratio",
    "is_integer": "the kind",
    "hex": "a text",
    "bit_length": "the bits",
    "bit_count": "the bits",
    "to_bytes": "the bytes",
    "__invert__": "a bit operation",
    **{f"__{name}__": "a bit operation" for name in ("and", "or", "xor", "lshift", "rshift")},
    **{f"__r{name}__": "a bit operation" for name in ("and", "or", "xor", "lshift", "rshift")},
}
"""Methods by which functions in C would take the number without its expression."""

_METHODS: Mapping[str, Any] = {
    "__divmod__": _divmod,
    "__rdivmod__": lambda self, dividend: _divmod(dividend, self),
    "__array_ufunc__": _ufunc,
    "__hash__": _hash,
    "__str__": _text,
    "__repr__": _text,
    "__format__": _text,
    "real": property(lambda self: self),
    **{name: _refusing(operation) for name, operation in _REFUSED_METHODS.items()},
}

for _method, _function in _METHODS.items():
    setattr(SymbolicFloat, _method, _function)


def _with_symbols(
    function: Callable[..., Any], rule: Callable[..., sp.Basic]
) -> Callable[..., Any]:
    """Returns a function that takes symbolic numbers as well."""

    def apply(*args: Any, **options: Any) -> Any:
        args = tuple(Float(arg) if _is_tensor(arg) else arg for arg in args)
        if any(isinstance(arg, SYMBOLIC) for arg in args) and not options:
            return with_rule(function, rule, *args)
        return function(*args, **options)

    return apply


def _whole(function: Callable[..., Any], rule: Callable[..., sp.Basic]) -> Callable[..., Any]:
    """Returns a function to whole numbers that takes symbolic numbers as well."""
    symbolic_function = _with_symbols(function, rule)

    def apply(value: Any) -> Any:
        value = Float(value) if _is_tensor(value) else value
        _check_finite(value)
        return symbolic_function(value)

    return apply


def _within(
    function: Callable[..., Any],
    rule: Callable[..., sp.Basic],
    is_outside: Callable[[Any], Any],
) -> Callable[..., Any]:
    """Returns a function of some numbers, outside of which it raises a ValueError."""
    symbolic_function = _with_symbols(function, rule)

    def apply(value: Any, *rest: Any) -> Any:
        value = Float(value) if _is_tensor(value) else value
        if isinstance(value, SYMBOLIC) and is_of_data(value.expr) and is_outside(value):
            raise value.run.fail(ValueError("math domain error"))
        return symbolic_function(value, *rest)

    return apply


def _extremum(function: Callable[..., Any], kind: Callable[..., sp.Expr]) -> Callable[..., Any]:
    precedes = sp.Gt if kind is sp.Max else sp.Lt

    def _choose(first: sp.Expr, *rest: sp.Expr) -> sp.Expr:
        for candidate in rest:
            first = sp.Piecewise((candidate, comparison(precedes, candidate, first)), (first, True))
        return first

    def apply(*args: Any, **options: Any) -> Any:
        operands = args
        if len(args) == 1 and not options:
            # max of one iterable.
            operands = tuple(args[0])
            args = (operands,)
        is_plain = not any(isinstance(arg, SYMBOLIC) for arg in operands)
        if is_plain or options or not all(_is_real(arg) for arg in operands):
            return function(*args, **options)
        value = function(*map(plain, operands))
        exprs = list(map(expression, operands))
        # A comparison with NaN is false, so that the order of the operands counts.
        join = _choose if any(map(is_of_data, exprs)) else kind
        return symbolic(value, join(*exprs), run_of(*operands))

    return apply


def _check_finite(value: Any) -> None:
    """Raises what Python raises where a number that is not finite becomes an int."""
    if not isinstance(value, SYMBOLIC) or not is_of_data(value.expr):
        return
    number = plain(value)
    # One decision for finite numbers, two for the others.
    if not value.run.decide(sp.Eq(non_finite(value.expr), 0), math.isfinite(number)):
        if value.run.decide(is_nan(value.expr), number != number):
            raise value.run.fail(ValueError("cannot convert float NaN to integer"))
        raise value.run.fail(OverflowError("cannot convert float infinity to integer"))


def _truncate(value: Any) -> Any:
    if isinstance(value, SymbolicCount):
        return value
    _check_finite(value)
    run, inner = value.run, value.expr
    # trunc(x) is ceil for x < 0, else floor.
    is_negative = run.decide(sp.Lt(inner, 0), plain(value) < 0)
    whole = -sp.floor(-inner) if is_negative else sp.floor(inner)
    return symbolic(math.trunc(plain(value)), whole, run)


def _member(kind: type, name: str) -> Any:
    """A member of float or int for traced code: a method is that of the number."""
    member = getattr(kind, name)
    if not callable(member):
        return member

    def apply(*args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], SYMBOLIC):
            # float.__add__(x, 1) is x + 1 for a symbolic x.
            return getattr(args[0], name)(*args[1:], **options)
        if any(isinstance(arg, SYMBOLIC) for arg in args):
            raise run_of(*args).refuse(f"{kind.__name__}.{name} of a number is not traced")
        return member(*args, **options)

    return apply


class _FloatType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        is_traced = isinstance(instance, SymbolicFloat) and not isinstance(instance, SymbolicCount)
        return is_traced or isinstance(instance, float)

    def __getattr__(cls, name: str) -> Any:
        return _member(float, name)


class _IntType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, int | SymbolicCount)

    def __getattr__(cls, name: str) -> Any:
        return _member(int, name)


class Float(metaclass=_FloatType):
    """``float`` for traced code: a symbolic number stays symbolic."""

    def __new__(cls, value: Any = 0.0) -> Any:
        """Returns the number as a float."""
        if isinstance(value, SYMBOLIC):
            return symbolic(float(plain(value)), value.expr, value.run)
        if _is_tensor(value):
            return Float(value.item())
        return float(value)


class Int(metaclass=_IntType):
    """``int`` for traced code: a symbolic number stays symbolic."""

    def __new__(cls, value: Any = 0, *base: int) -> Any:
        """Returns the number truncated to an int."""
        if base:
            return int(plain(value), *base)  # raises for a number, which has no base
        if isinstance(value, SYMBOLIC):
            return _truncate(value)
        if _is_tensor(value):
            return Int(value.item())
        return int(value, *base)


for _text_method in ("__repr__", "__str__", "__format__"):
    for _version, _original in ((Float, float), (Int, int)):
        setattr(_version, _text_method, staticmethod(_member(_original, _text_method)))


class _TypeType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type)


class Type(metaclass=_TypeType):
    """``type`` for traced code: a symbolic number is a float or an int."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """Returns the type of an object, or a new type."""
        if len(args) == 1 and isinstance(args[0], SYMBOLIC):
            return Float if isinstance(args[0], Float) else Int
        kind = type(*args, **options)
        # type(x) is float compares with the names that the code sees.
        return {float: Float, int: Int}.get(kind, kind) if len(args) == 1 else kind


def _classify(
    function: Callable[[float], bool], rule: Callable[[sp.Expr], sp.Basic]
) -> Callable[[Any], bool]:
    """Returns a question whether a number is finite, infinite or none, as a decision."""

    def apply(value: Any) -> bool:
        value = Float(value) if _is_tensor(value) else value
        holds = function(plain(value))
        if not isinstance(value, SYMBOLIC) or not is_of_data(value.expr):
            return holds
        return value.run.decide(rule(value.expr), holds)

    return apply


def _sum(values: Any, start: Any = 0) -> Any:
    for value in values:
        start = start + value
    return start


def _product(values: Any, *, start: Any = 1) -> Any:
    for value in values:
        start = start * value
    return start


def _is_tensor(value: object) -> bool:
    return hasattr(value, "__torch_function__") and hasattr(value, "item")


def _log(x: sp.Expr, *base: sp.Expr) -> sp.Expr:
    # math.log(x, base) divides two logarithms as well.
    return sp.log(x) / sp.log(base[0]) if base else sp.log(x)


def _of_math(name: str, function: Elementary) -> Callable[..., Any]:
    native = getattr(math, function.math)
    rule = _log if name == "log" else function.form
    if function.margin is None:
        return _with_symbols(native, rule)
    return _within(native, rule, function.is_outside)


FUNCTIONS: Mapping[Any, Any] = {
    **{
        getattr(math, function.math): _of_math(name, function)
        for name, function in ELEMENTARY.items()
        if function.math
    },
    math.pow: _with_symbols(math.pow, lambda a, b: a**b),
    math.floor: _whole(math.floor, sp.floor),
    math.ceil: _whole(math.ceil, sp.ceiling),
    math.fabs: _with_symbols(math.fabs, sp.Abs),
    math.atan2: _with_symbols(math.atan2, atan2),
    builtins.max: _extremum(max, sp.Max),
    builtins.min: _extremum(min, sp.Min),
    math.trunc: lambda value: _truncate(value) if isinstance(value, SYMBOLIC) else int(value),
    math.isnan: _classify(math.isnan, is_nan),
    math.isinf: _classify(math.isinf, is_infinite),
    math.isfinite: _classify(math.isfinite, lambda x: sp.Eq(non_finite(x), 0)),
    math.copysign: _with_symbols(math.copysign, copysign),
    math.prod: _product,
    builtins.sum: _sum,
    builtins.float: Float,
    builtins.int: Int,
    builtins.type: Type,
}
"""Functions of Python and their versions for symbolic numbers."""


def _of_numpy(function: Callable[..., Any], rule: Callable[..., sp.Basic]) -> Callable[..., Any]:
    """Returns a function of NumPy, which raises no exception, for symbolic numbers."""

    def plainly(*values: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*values))

    return _with_symbols(plainly, rule)


_UFUNCS: Mapping[str, Callable[..., Any]] = {
    **{of_numpy: function for function, _, of_numpy in _OPERATORS.values()},
    **{of_numpy: function for function, _, of_numpy in _COMPARISONS.values()},
    "float_power": lambda a, b: a**b,
    "negative": lambda a: -a,
    "absolute": abs,
    "fabs": abs,
    "square": lambda a: a * a,
    **{
        function.numpy: _of_numpy(getattr(np, function.numpy), function.form)
        for function in ELEMENTARY.values()
        if function.numpy
    },
    "arctan2": _of_numpy(np.arctan2, atan2),
    "floor": _of_numpy(np.floor, sp.floor),
    "ceil": _of_numpy(np.ceil, sp.ceiling),
    "maximum": _of_numpy(np.maximum, sp.Max),
    "minimum": _of_numpy(np.minimum, sp.Min),
    "isnan": FUNCTIONS[math.isnan],
    "isinf": FUNCTIONS[math.isinf],
    "isfinite": FUNCTIONS[math.isfinite],
}
"""Functions of NumPy by name, for symbolic numbers and numbers of Python."""

"""Python numbers with an expression beside their value: hyperparameters, step counts, sizes.

They are subclasses of float and int, which is what torch's argument parsers accept. Arithmetic
carries both the value and the expression; a comparison is decided by the run that the number
belongs to. Functions of Python that would return a plain number (``math.sqrt``, ``max``, ``int``)
have versions here that carry the expression, by name of the original.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import sympy as sp

from closedform.errors import TraceError
from closedform.importers.python.place import UserValue
from closedform.language.integers import floor_div, floor_mod
from closedform.language.numbers import exact_number
from closedform.language.symbols import t


class Decider(Protocol):
    """The decisions on comparisons: one traced run."""

    def decide(self, condition: sp.Basic, value: bool) -> bool:
        """Returns the truth of a condition that has this value on the traced numbers."""


class SymbolicFloat(float):
    """A float and the expression that it is a value of."""

    expr: sp.Expr
    run: Decider

    def __bool__(self) -> bool:
        return self.run.decide(sp.Ne(self.expr, 0), float(self) != 0)

    __hash__ = float.__hash__


class SymbolicInt(int):
    """A size and the expression that it is a value of; torch takes it where it takes sizes."""

    expr: sp.Expr
    run: Decider

    def __bool__(self) -> bool:
        return self.run.decide(sp.Ne(self.expr, 0), plain(self) != 0)

    __hash__ = int.__hash__


class SymbolicCount(float):
    """A number of steps or elements, and its expression.

    It is a float, since ``1.0 / n`` of an int would be a plain number: Python asks the float first.
    Traced code takes it for an int.
    """

    expr: sp.Expr
    run: Decider

    def __bool__(self) -> bool:
        return self.run.decide(sp.Ne(self.expr, 0), plain(self) != 0)

    def __index__(self) -> int:
        if t in self.expr.free_symbols:
            raise TraceError(f"an index or a number of rounds is {self.expr}")
        return int(plain(self))

    __hash__ = float.__hash__


SYMBOLIC = (SymbolicFloat, SymbolicInt, SymbolicCount)


def symbolic(value: float, expr: sp.Basic, run: Decider, *, is_size: bool = False) -> Any:
    """Returns a number with an expression; a plain one where the expression is its value."""
    if not math.isfinite(value) or (isinstance(expr, sp.Expr) and expr.is_Rational):
        return value
    whole: Any = SymbolicInt if is_size else SymbolicCount
    made = whole(value) if isinstance(value, int) else SymbolicFloat(value)
    made.expr = expr
    made.run = run
    return made


def plain(value: UserValue) -> Any:
    """Returns the value of a number without its expression."""
    if isinstance(value, SymbolicInt):
        return int.__index__(value)
    if isinstance(value, SymbolicCount):
        return int(float.__float__(value))
    return float.__float__(value) if isinstance(value, SymbolicFloat) else value


def expression(value: UserValue) -> sp.Expr:
    """Returns the expression of a number; that of a plain one is exact.

    Raises:
        TraceError: It is not a number.
    """
    if isinstance(value, SYMBOLIC):
        return value.expr
    if isinstance(value, bool):
        return sp.Integer(int(value))
    if isinstance(value, float) and not math.isfinite(value):
        return sp.nan if math.isnan(value) else sp.oo if value > 0 else -sp.oo
    if isinstance(value, int | float):
        return exact_number(value)
    raise TraceError(f"a number was expected, got {type(value).__name__} {value!r}")


def run_of(*values: UserValue) -> Decider:
    """Returns the run that the first symbolic number belongs to."""
    return next(value.run for value in values if isinstance(value, SYMBOLIC))


def computed(
    function: Callable[..., Any], rule: Callable[..., sp.Basic], *operands: UserValue
) -> Any:
    """Returns a function of numbers with the expression that a rule gives of theirs."""
    value = function(*map(plain, operands))
    is_size = any(isinstance(operand, SymbolicInt) for operand in operands)
    expr = rule(*map(expression, operands))
    return symbolic(value, expr, run_of(*operands), is_size=is_size)


def _is_real(value: object) -> bool:
    return isinstance(value, int | float)


def _binary(name: str, rule: Callable[[sp.Expr, sp.Expr], sp.Expr]) -> None:
    """Gives both classes an operator and its reflection."""
    operator = _OPERATORS[name]

    is_division = name in ("truediv", "floordiv", "mod")

    def apply(a: Any, b: Any) -> Any:
        if is_division and isinstance(b, SYMBOLIC) and plain(b) == 0:
            if b.run.decide(sp.Eq(b.expr, 0), value=True):
                raise ZeroDivisionError(f"{b.expr} is 0")
            # Traced as if it were not 0: the value is only a stand-in.
            return symbolic(float(plain(a)), rule(expression(a), b.expr), b.run)
        return computed(operator, rule, a, b)

    def forward(self: Any, other: Any) -> Any:
        return apply(self, other) if _is_real(other) else NotImplemented

    def reflected(self: Any, other: Any) -> Any:
        return apply(other, self) if _is_real(other) else NotImplemented

    for kind in SYMBOLIC:
        setattr(kind, f"__{name}__", forward)
        setattr(kind, f"__r{name}__", reflected)


def _compared(name: str, kind_of: Callable[[sp.Expr, sp.Expr], sp.Basic]) -> None:
    operator = _COMPARISONS[name]

    def compare(self: Any, other: Any) -> Any:
        if not _is_real(other):
            return NotImplemented
        holds = operator(plain(self), plain(other))
        right = expression(other)
        if right.is_infinite or right is sp.nan:
            return holds
        return self.run.decide(kind_of(self.expr, right), holds)

    for kind in SYMBOLIC:
        setattr(kind, f"__{name}__", compare)


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "pow": lambda a, b: a**b,
}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
for _name, _rule in {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "floordiv": floor_div,
    "mod": floor_mod,
    "pow": lambda a, b: a**b,
}.items():
    _binary(_name, _rule)
for _name, _kind in {
    "lt": sp.Lt,
    "le": sp.Le,
    "gt": sp.Gt,
    "ge": sp.Ge,
    "eq": sp.Eq,
    "ne": sp.Ne,
}.items():
    _compared(_name, _kind)


def _unary(name: str, function: Callable[[Any], Any], rule: Callable[[sp.Expr], sp.Expr]) -> None:
    for kind in SYMBOLIC:
        setattr(kind, f"__{name}__", lambda self: computed(function, rule, self))


_unary("neg", lambda a: -a, lambda a: -a)
_unary("pos", lambda a: +a, lambda a: a)
_unary("abs", abs, sp.Abs)


def _carried(function: Callable[..., Any], rule: Callable[..., sp.Basic]) -> Callable[..., Any]:
    """Returns a function that takes symbolic numbers as well."""

    def apply(*args: Any, **options: Any) -> Any:
        args = tuple(Float(arg) if _is_tensor(arg) else arg for arg in args)
        if any(isinstance(arg, SYMBOLIC) for arg in args) and not options:
            return computed(function, rule, *args)
        return function(*args, **options)

    return apply


def _extremum(function: Callable[..., Any], kind: Callable[..., sp.Expr]) -> Callable[..., Any]:
    def apply(*args: Any, **options: Any) -> Any:
        given = args
        if len(args) == 1 and not options:
            given = tuple(args[0])
            args = (given,)
        is_plain = not any(isinstance(arg, SYMBOLIC) for arg in given)
        if is_plain or options or not all(_is_real(arg) for arg in given):
            return function(*args, **options)
        value = function(*map(plain, given))
        return symbolic(value, kind(*map(expression, given)), run_of(*given))

    return apply


def _truncated(value: Any) -> Any:
    if isinstance(value, SymbolicInt | SymbolicCount):
        return value
    run, inner = value.run, value.expr
    is_negative = run.decide(sp.Lt(inner, 0), plain(value) < 0)
    whole = -sp.floor(-inner) if is_negative else sp.floor(inner)
    return symbolic(math.trunc(plain(value)), whole, run)


class _FloatType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, float) and not isinstance(instance, SymbolicCount)


class _IntType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, int | SymbolicCount)


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
        if isinstance(value, SYMBOLIC):
            return _truncated(value)
        if _is_tensor(value):
            return Int(value.item())
        return int(value, *base)


def _is_tensor(value: object) -> bool:
    return hasattr(value, "__torch_function__") and hasattr(value, "item")


def _log(x: sp.Expr, *base: sp.Expr) -> sp.Expr:
    return sp.log(x) / sp.log(base[0]) if base else sp.log(x)


FUNCTIONS: Mapping[Any, Any] = {
    math.sqrt: _carried(math.sqrt, sp.sqrt),
    math.exp: _carried(math.exp, sp.exp),
    math.log: _carried(math.log, _log),
    math.log1p: _carried(math.log1p, lambda x: sp.log(1 + x)),
    math.log2: _carried(math.log2, lambda x: sp.log(x) / sp.log(2)),
    math.log10: _carried(math.log10, lambda x: sp.log(x) / sp.log(10)),
    math.cos: _carried(math.cos, sp.cos),
    math.sin: _carried(math.sin, sp.sin),
    math.tanh: _carried(math.tanh, sp.tanh),
    math.pow: _carried(math.pow, lambda a, b: a**b),
    math.floor: _carried(math.floor, sp.floor),
    math.ceil: _carried(math.ceil, sp.ceiling),
    math.fabs: _carried(math.fabs, sp.Abs),
    builtins.max: _extremum(max, sp.Max),
    builtins.min: _extremum(min, sp.Min),
    builtins.float: Float,
    builtins.int: Int,
}
"""Functions of Python and their versions for symbolic numbers."""


class MathModule:
    """``math`` for traced code."""

    def __getattr__(self, name: str) -> Any:
        original = getattr(math, name)
        return FUNCTIONS.get(original, original) if callable(original) else original

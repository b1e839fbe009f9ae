"""The functions of math, numpy and torch, and the builtins, that a trace understands.

A row names the function in each module and gives its value on traced numbers. A function whose
arguments do not depend on the step is called itself; where its value is a float, and the exact
number is known, that is noted as well.
"""

from __future__ import annotations

import bisect
import builtins
import functools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp

from closedform.importers.python.choices import MOST_BRANCHES, branch_count, choice
from closedform.importers.python.containers import local_array
from closedform.importers.python.decider import Decider
from closedform.importers.python.exact import (
    ExactFloat,
    ExactFloat64,
    ExactInt,
    cosine,
    exact_constant,
    number_of,
    sine,
)
from closedform.importers.python.number import (
    Number,
    Truth,
    check_divisor,
    native_of,
    one_of,
    operand,
    record,
    run_operand,
    truncate,
)
from closedform.importers.python.place import UserValue
from closedform.importers.tensors.comparisons import (
    atan2,
    comparison,
    copysign,
    is_finite,
    is_infinite,
    is_nan,
    is_of_data,
)
from closedform.language.elementary import ELEMENTARY, Elementary

Implementation = Callable[..., Any]
"""The value of a function on traced arguments; the run comes first."""


def is_traced(value: UserValue) -> bool:
    """Returns whether a value depends on the step."""
    return isinstance(value, Number | Truth)


def has_traced(values: Iterable[Any]) -> bool:
    """Returns whether one of some values, or an item of one, depends on the step."""
    return any(
        is_traced(value) or (isinstance(value, list | tuple) and has_traced(value))
        for value in values
    )


# --- one row a function --------------------------------------------------------------------------


def _elementary(function: Elementary) -> Implementation:
    def value(run: Decider, x: Any) -> Number:
        number = run_operand(run, x)
        if function.margin is not None:
            # ValueError for the log of 0 and the root of -1, as math raises.
            _check_domain(function.margin(number), sp.Lt if function.has_end else sp.Le)
        return Number(run, function.form(number.expr))

    return value


_VALUES = {name: _elementary(function) for name, function in ELEMENTARY.items()}


def _log(run: Decider, x: Any, base: Any = None) -> Any:
    result = _part(math.log, run, x)
    return result if base is None else result / _part(math.log, run, base)


def _integer_root(run: Decider, x: Any) -> Any:
    if isinstance(x, Number) and not x.is_int:
        raise TypeError(f"'{x.kind.__name__}' object cannot be interpreted as an integer")
    return math.floor(_part(math.sqrt, run, x))


def _part(native: Callable[..., Any], run: Decider, x: Any) -> Any:
    """A function of math as a part of another one."""
    return record(run, native, (x,), lambda: _VALUES[native.__name__](run, x))


def _power(run: Decider, x: Any, y: Any) -> Any:
    base, exponent = run_operand(run, x), run_operand(run, y)
    if not (exponent.expr.is_integer or base.expr.is_nonnegative):
        _check_domain(base, sp.Lt)
    # 0**0 is 1, and 0**-1 an error, in math.pow as in Python.
    is_zero = exponent.expr.is_nonnegative is not True and run.raises(sp.Eq, base)
    if is_zero and exponent < 0:
        raise ValueError("math domain error")
    return float_of(run, x) ** y


def float_of(run: Decider, value: UserValue) -> Any:
    """Returns a number as a float of Python."""
    if not is_traced(value):
        return builtins.float(value)
    return record(run, float, (value,), lambda: Number(run, run_operand(run, value).expr))


def _fmod(run: Decider, x: Any, y: Any) -> Number:
    left, right = float_of(run, x), float_of(run, y)
    _check_domain(run_operand(run, y), sp.Eq)
    # C's fmod: the sign of the dividend, while % of Python has that of the divisor.
    return run_operand(run, left - right * math.trunc(left / right))


def _check_domain(number: Number, is_outside: Callable[..., sp.Basic]) -> None:
    """Raises the exception of math where a number compares so with 0."""
    if number.run.raises(is_outside, number):
        raise ValueError("math domain error")


def _formula(function: Callable[..., sp.Expr]) -> Implementation:
    """A function of expressions."""
    return lambda run, *values: Number(run, function(*(run_operand(run, x).expr for x in values)))


_float_copysign, _angle = _formula(copysign), _formula(atan2)
_hypot = _formula(lambda *values: sp.sqrt(sp.Add(*(x**2 for x in values))))


def _copysign(run: Decider, x: Any, y: Any) -> Any:
    if not run.is_exact:
        return _float_copysign(run, x, y)
    return abs(x) if y >= 0 else -abs(x)


def _isclose(run: Decider, a: Any, b: Any, *, rel_tol: float = 1e-9, abs_tol: float = 0.0) -> bool:
    # math.isclose is relative to the larger number, numpy's and torch's to the second one.
    difference = abs(a - b)
    return bool(difference <= _maximum(run, rel_tol * _maximum(run, abs(a), abs(b)), abs_tol))


def _array_isclose(
    run: Decider, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, *, equal_nan: bool = False
) -> bool:
    return bool(abs(a - b) <= atol + rtol * abs(b))


def _where(run: Decider, condition: Any, yes: Any, no: Any) -> Any:
    if not is_traced(condition):
        return yes if condition else no
    test = condition.condition if isinstance(condition, Truth) else sp.Ne(condition.expr, 0)
    if branch_count(test) > MOST_BRANCHES:
        raise run.refuse(
            "a condition about several long tables",
            hint="make one table of them outside the function",
        )
    branches = [(run_operand(run, yes).expr, test), (run_operand(run, no).expr, sp.true)]
    return Number(run, choice(branches))


def _clip(run: Decider, x: Any, low: Any = None, high: Any = None, **names: Any) -> Any:
    low = names.get("a_min", names.get("min", low))
    high = names.get("a_max", names.get("max", high))
    if low is not None:
        # low first, as numpy.clip does: where low > high, the result is high.
        x = _array_maximum(run, x, low)
    return x if high is None else _array_minimum(run, x, high)


def _interp(run: Decider, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """Linear between points, constant outside; a list of one step gives a list of one value."""
    if isinstance(x, list | tuple):
        return [_interp(run, item, xp, fp, left, right) for item in x]
    places, values = [list(points) for points in (xp, fp)]
    if x < places[0]:
        return values[0] if left is None else left
    for i in range(len(places) - 1):
        # numpy's interpolation has the right point in the next interval.
        if x < places[i + 1]:
            slope = (values[i + 1] - values[i]) / (places[i + 1] - places[i])
            return values[i] + slope * (x - places[i])
    if right is not None and x > places[-1]:
        return right
    return values[-1]


def _search(function: Callable[..., int]) -> Implementation:
    return lambda run, values, x, *rest, **names: function(list(values), x, *rest, **names)


def _search_sorted(
    run: Decider, values: Any, x: Any, side: str = "left", *, right: bool = False
) -> Any:
    is_right = right or side == "right"
    # numpy's "left" is bisect_left: the first place that keeps the order.
    return np.intp((bisect.bisect_right if is_right else bisect.bisect_left)(list(values), x))


def _digitize(run: Decider, x: Any, bins: Any, right: bool = False) -> Any:
    # digitize(right=False) counts bins[i-1] <= x, which is searchsorted(side="right").
    return _search_sorted(run, bins, x, right=not right)


def _select(run: Decider, conditions: Any, values: Any, default: Any = 0) -> Any:
    for condition, value in zip(conditions, values, strict=True):
        if condition:
            return value
    return default


def _extremum_of(
    choose: Callable[..., Any], kind: type[sp.Expr], *, is_of_arrays: bool = False
) -> Implementation:
    """The extremum of numbers, which decides nothing about the step."""

    def extremum(run: Decider, *values: UserValue) -> Any:
        if is_of_arrays and not run.is_exact and has_traced(values):
            # NumPy's is NaN where one of the numbers is.
            return _formula(kind)(run, *values)
        return record(run, choose, (values,), lambda: _extremum(run, values, kind, choose))

    return extremum


_maximum, _minimum = _extremum_of(max, sp.Max), _extremum_of(min, sp.Min)
_array_maximum = _extremum_of(max, sp.Max, is_of_arrays=True)
_array_minimum = _extremum_of(min, sp.Min, is_of_arrays=True)


def _extremum(
    run: Decider, values: Sequence[Any], kind: type[sp.Expr], choose: Callable[..., Any]
) -> Any:
    if not run.is_exact and has_traced(values):
        members = [run_operand(run, value) for value in values]
        return one_of(run, _float_extremum([member.expr for member in members], kind), members)
    # Python's own max of the constants keeps the type of the winner.
    constants = [value for value in values if not is_traced(value)]
    if len(constants) == len(values):
        return choose(values)
    limit = choose(constants) if constants else None
    # min(x, inf) is x.
    if isinstance(limit, float) and math.isinf(limit):
        if (limit > 0) == (kind is sp.Max):
            return limit
        limit = None
    variables = [value for value in values if is_traced(value)]
    if limit is None and len(variables) == 1:
        return variables[0]
    limits = () if limit is None else (limit,)
    members = [run_operand(run, value) for value in (*variables, *limits)]
    expr = kind(*dict.fromkeys(member.expr for member in members), evaluate=False)
    return one_of(run, expr, members)


def _float_extremum(values: Sequence[sp.Expr], kind: type[sp.Expr]) -> sp.Expr:
    """The extremum of numbers that may be NaN."""
    expr, *others = values
    if not any(map(is_of_data, values)):
        return kind(*values)
    for candidate in others:
        # A comparison with NaN is false, so that the order of the operands counts.
        precedes = comparison(sp.Gt if kind is sp.Max else sp.Lt, candidate, expr)
        expr = sp.Piecewise((candidate, precedes), (expr, True))
    return expr


def _sum(run: Decider, values: Sequence[Any], start: Any = 0) -> Any:
    return functools.reduce(operator.add, values, start)


def fold_builtin(
    native: Callable[..., Any], implementation: Implementation, run: Decider
) -> Callable[..., Any]:
    """Returns ``max``, ``min`` or ``sum`` of Python, which may be given an iterator, or a key."""

    def function(*args: UserValue, **names: UserValue) -> Any:
        is_sum = native is builtins.sum
        is_iterable = is_sum or len(args) == 1
        items = list(args[0]) if is_iterable and args else list(args)
        is_simple = not names or (is_sum and set(names) == {"start"})
        operands = (*items, *args[1:], *names.values()) if is_iterable else items
        is_simple &= run.is_exact or all(operand(run, item) is not None for item in operands)
        if not items or not is_simple or not has_traced(items):
            return native(items, *(args[1:] if is_sum else ()), **names)
        if not is_sum:
            return record(run, native, (items,), lambda: implementation(run, *items))
        start = (*args[1:], *names.values())
        return record(run, native, (items, *start), lambda: implementation(run, items, *start))

    return function


def _scalar(run: Decider, value: Any, *_: Any, **__: Any) -> Any:
    """A scalar tensor or array as the number that it contains."""
    if is_traced(value) or not isinstance(value, list | tuple):
        return value
    if len(value) == 1 and run.is_exact:
        return _scalar(run, value[0])
    raise run.refuse(
        "an array of numbers that depend on the step", hint="compute each number by itself"
    )


def _question_of(native: Callable[[float], bool], rule: Callable[[sp.Expr], Any]) -> Implementation:
    """Whether a number is finite, infinite or NaN."""

    def value(run: Decider, x: Any) -> bool:
        if run.is_exact:
            return native(1.0)  # an exact number is finite
        holds = native(x.ref)
        return run.decide(rule(x.expr), holds) if is_of_data(x.expr) else holds

    return value


def _remainder(run: Decider, x: Any, y: Any) -> Any:
    """The IEEE remainder: the quotient is rounded to the nearest integer."""
    _check_domain(run_operand(run, y), sp.Eq)
    # round() is half-even, as the IEEE remainder asks for.
    return x - y * round(x / y)


# The name in math, in numpy and in torch ("" where there is none), and the traced value.
_ROWS: tuple[tuple[str, str, str, Implementation], ...] = (
    *(
        (function.math, function.numpy, function.torch, _VALUES[name])
        for name, function in ELEMENTARY.items()
        if name not in ("log", "rsqrt")
    ),
    # math.log has a second argument, the base.
    ("log", "log", "log", _log),
    ("", "", "special.expit", _VALUES["sigmoid"]),
    ("", "", "rsqrt", lambda run, x: 1 / _part(math.sqrt, run, x)),
    ("fabs", "abs", "abs", lambda run, x: abs(x)),
    ("", "fabs", "", lambda run, x: abs(x)),
    ("", "square", "square", lambda run, x: x * x),
    ("", "reciprocal", "reciprocal", lambda run, x: 1 / x),
    ("isqrt", "", "", _integer_root),
    ("pow", "power", "pow", _power),
    ("", "float_power", "float_power", _power),
    ("floor", "floor", "floor", lambda run, x: math.floor(x)),
    ("ceil", "ceil", "ceil", lambda run, x: math.ceil(x)),
    ("trunc", "trunc", "trunc", lambda run, x: math.trunc(x)),
    ("", "round", "round", lambda run, x, *digits: round(x, *digits)),
    ("", "rint", "", lambda run, x: round(x)),
    ("fmod", "fmod", "fmod", _fmod),
    ("remainder", "", "", _remainder),
    ("", "mod", "remainder", lambda run, x, y: x % y),
    ("", "floor_divide", "floor_divide", lambda run, x, y: x // y),
    ("", "divide", "div", lambda run, x, y: x / y),
    ("", "true_divide", "true_divide", lambda run, x, y: x / y),
    ("", "multiply", "mul", lambda run, x, y: x * y),
    ("", "add", "add", lambda run, x, y: x + y),
    ("", "subtract", "sub", lambda run, x, y: x - y),
    ("", "negative", "neg", lambda run, x: -x),
    ("copysign", "copysign", "copysign", _copysign),
    ("hypot", "hypot", "hypot", _hypot),
    ("atan2", "arctan2", "atan2", _angle),
    # Further names, which jax.numpy and torch have as functions of their own.
    ("", "atan2", "arctan2", _angle),
    ("", "atan", "arctan", _VALUES["atan"]),
    ("isclose", "", "", _isclose),
    ("", "isclose", "isclose", _array_isclose),
    ("isfinite", "isfinite", "isfinite", _question_of(math.isfinite, is_finite)),
    ("isnan", "isnan", "isnan", _question_of(math.isnan, is_nan)),
    ("isinf", "isinf", "isinf", _question_of(math.isinf, is_infinite)),
    ("", "sign", "sign", _formula(sp.sign)),
    ("", "where", "where", _where),
    ("", "clip", "clamp", _clip),
    ("", "", "clip", _clip),
    ("", "maximum", "maximum", _array_maximum),
    ("", "minimum", "minimum", _array_minimum),
    # fmax ignores NaN, which a traced number never is.
    ("", "fmax", "max", _maximum),
    ("", "fmin", "min", _minimum),
    ("", "interp", "", _interp),
    ("", "searchsorted", "searchsorted", _search_sorted),
    ("", "digitize", "", _digitize),
    ("", "select", "", _select),
    ("", "array", "tensor", _scalar),
    ("", "asarray", "as_tensor", _scalar),
    ("", "float64", "scalar_tensor", _scalar),
)

_BUILTINS: Mapping[Callable[..., Any], Implementation] = {
    search: _search(search) for search in (bisect.bisect, bisect.bisect_left, bisect.bisect_right)
}
FOLDS: Mapping[Callable[..., Any], Implementation] = {
    builtins.max: _maximum,
    builtins.min: _minimum,
    builtins.sum: _sum,
}
"""Functions of Python on several numbers."""

_OF_FINITE = (
    *("fmod", "remainder", "hypot", "isclose", "sign", "fmax", "fmin"),
    *("interp", "searchsorted", "digitize"),
)
"""Functions whose traced value is right for finite numbers only."""

MODULES = ("math", "numpy", "torch")
"""The modules of the columns; ``jax.numpy`` has the names of numpy."""

# torch.tensor(0.1) and jnp.asarray(0.1) are float32; numpy's are float64.
_SINGLE = ("torch", "jax.numpy")
"""Modules whose scalars are float32 by default."""

# The operations that make the exact value of a constant.
_EXACT: Mapping[str, Callable[[sp.Expr], sp.Expr]] = {
    "sqrt": sp.sqrt,
    "cos": cosine,
    "sin": sine,
    "exp": sp.exp,
    "log": sp.log,
}


def loaded_modules() -> list[str]:
    """Returns the modules of :func:`known_functions` that are imported."""
    return [name for name in (*MODULES, "jax.numpy") if name in sys.modules]


def known_functions() -> Mapping[int, tuple[str, Implementation, bool]]:
    """Returns the name and the traced value of each function by its identity.

    The last entry is whether it computes in float32 by default.

    Of modules that are not imported there are none.
    """
    modules = [sys.modules[name] for name in loaded_modules()]
    # A module that is still being imported has fewer names.
    return _known_functions(*((id(module), len(vars(module))) for module in modules))


@functools.lru_cache(maxsize=4)
def _known_functions(*_: tuple[int, int]) -> Mapping[int, tuple[str, Implementation, bool]]:
    table: dict[int, tuple[str, Implementation, bool]] = {
        id(native): (native.__name__, implementation, False)
        for native, implementation in _BUILTINS.items()
    }
    for column, name in (*enumerate(MODULES), (1, "jax.numpy")):
        module = sys.modules.get(name)
        for row in _ROWS if module is not None else ():
            native = module
            for part in str(row[column]).split("."):
                native = getattr(native, part, None) if part else None
            if native is not None:
                # By identity: `from math import cos as c` is the same object.
                table[id(native)] = (str(row[column]), row[3], name in _SINGLE)
    return table


def _may_be_nan(value: UserValue) -> bool:
    return isinstance(value, Number) and is_of_data(value.expr)


def dispatcher(
    native: Callable[..., Any],
    name: str,
    implementation: Implementation,
    run: Decider,
    *,
    is_single: bool = False,
) -> Callable[..., Any]:
    """Returns a function that computes on traced numbers, and calls itself on all others.

    Args:
        native: The function.
        name: Its name.
        implementation: Its value on traced numbers.
        run: The run of the user's function.
        is_single: Whether it computes in float32 by default.
    """

    def function(*args: UserValue, **names: UserValue) -> Any:
        if native.__module__ == "math":
            args = tuple(map(run.scalar, args))
        if has_traced(args) or has_traced(names.values()):
            if is_single:
                run.note_single()
            if name in _OF_FINITE and not run.is_exact and any(map(_may_be_nan, args)):
                raise run.refuse(f"{name} of a number of data, which may be NaN, is not traced")
            if native in _BUILTINS and names.keys() & {"key"}:
                return native(*args, **names)
            return record(
                run, native, args, lambda: implementation(run, *args, **names), names, is_typed=True
            )
        natives = {key: native_of(arg) for key, arg in names.items()}
        result = native(*map(native_of, args), **natives)
        make = _EXACT.get(name) if run.is_exact else None
        if make is not None and len(args) == 1 and isinstance(result, float):
            number = number_of(args[0])
            if number is not None:
                return exact_constant(result, make(number))
        return local_array(result) if run.is_exact else result

    function.native = native  # type: ignore[attr-defined]
    for method in ("reduce", "accumulate", "outer") if isinstance(native, np.ufunc) else ():
        setattr(function, method, getattr(native, method))
    return function


# --- types ---------------------------------------------------------------------------------------


class NumberType(type):
    """A number type of a traced function: steps are instances, too."""

    native: type
    run: Decider

    def __instancecheck__(cls, value: object) -> bool:
        if isinstance(value, Number | Truth):
            return issubclass(value.kind, cls.native)
        return isinstance(value, cls.native)

    def __call__(cls, *args: Any, **names: Any) -> Any:
        """Returns the number that the type makes of its arguments."""
        args = tuple(map(cls.run.scalar, args))
        if has_traced(args) and cls.native is not bool:
            return _conversion(cls.run, cls.native, args, names)
        if (
            cls.native is float
            and len(args) == 1
            and isinstance(args[0], ExactFloat | ExactFloat64 | ExactInt)
        ):
            return exact_constant(float(args[0]), args[0].expr)
        value = cls.native(*args, **names)
        return ExactInt(value) if cls.native is int and cls.run.is_exact else value

    def __getattr__(cls, name: str) -> Any:
        if name == "dtype":  # NumPy asks for it
            return np.dtype(cls.native)
        return _member(cls.native, name, cls.run)

    def __eq__(cls, kind: object) -> bool:
        return kind is cls or kind is cls.native

    def __hash__(cls) -> int:
        return hash(cls.native)


def _conversion(run: Decider, native: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> Any:
    """The value of a number type called with traced numbers."""
    if len(args) == 1 and isinstance(args[0], Truth):
        args = (args[0].number,)
        if not issubclass(native, np.bool_):
            return native(*args)
    if native is int and len(args) == 1 and not names:
        return truncate(args[0])
    if native is float and len(args) == 1 and not names:
        return float_of(run, args[0])
    is_rounded = native is Decimal and not args[0].is_int
    if names or (native is not Fraction and len(args) > 1) or is_rounded:
        raise run.refuse(f"a {native.__name__} that depends on the step")

    def compute() -> Any:
        if native is Fraction:
            numbers = [run_operand(run, arg) for arg in args]
            if len(numbers) == 1:
                return Number(run, numbers[0].expr)
            check_divisor(numbers[1], "Fraction(…, 0)")
            return Number(run, numbers[0].expr / numbers[1].expr)
        if issubclass(native, np.bool_):
            return args[0] != 0
        if not issubclass(native, np.integer):
            if issubclass(native, np.floating) and native().itemsize < 8:
                run.note_single()
            return Number(run, args[0].expr)
        whole = args[0] if args[0].is_int else math.trunc(args[0])
        info = np.iinfo(native)
        is_wrapping = args[0].is_int and args[0].unit is not None
        expr = whole.expr
        inside = True if is_wrapping else run.fits(expr, info)
        if inside is not True and not run.decide(inside):
            if args[0].is_int:
                raise OverflowError(f"Python integer out of bounds for {native.__name__}")
            raise run.refuse(f"a float beyond {native.__name__}")
        return Number(run, expr, True)

    if native is Fraction and any(
        not arg.is_int for arg in args if isinstance(arg, Number) and len(args) == 2
    ):
        raise TypeError("both arguments should be Rational instances")
    if native is Fraction and any(isinstance(arg, Number) and not arg.is_int for arg in args):
        raise run.refuse("the Fraction of a float that depends on the step")
    return record(run, native, args, compute, is_typed=True)


def traced_type(native: type, run: Decider) -> type:
    """Returns the type that stands for a number type in a traced function."""
    # A class pattern such as `case bool()` asks the metaclass; bool itself has no subclasses.
    bases = (native,) if native in (int, float) else (int,) if native is bool else ()
    members = {
        name: staticmethod(_member(native, name, run))
        for name in (vars(native) if bases else ())
        if callable(getattr(native, name)) and name not in ("__new__", "__getattribute__")
    }
    return NumberType(native.__name__, bases, {**members, "native": native, "run": run})


def _member(native: type, name: str, run: Decider) -> Any:
    """A member of a number type: a method of it is that of the number that it is given."""
    member = getattr(native, name)
    if not callable(member):
        return member

    def function(*args: UserValue, **names: UserValue) -> Any:
        if args and isinstance(args[0], Number):
            return getattr(args[0], name)(*args[1:], **names)
        if has_traced(args):
            raise run.refuse(f"{native.__name__}.{name} of a number is not traced")
        return member(*args, **names)

    return function

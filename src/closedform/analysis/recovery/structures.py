"""The schedules that a log is compared with: each function of the library in each of its forms.

They are derived from the library: its functions, their signatures and the choices of their
arguments. A structure has free parameters, whose values the log determines.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

import sympy as sp

from closedform import schedules
from closedform.analysis.numeric import CompiledCurve, degree, is_supported
from closedform.errors import DefinitionError
from closedform.language import FloorDiv, FloorMod, Schedule, exact_number, t
from closedform.schedules.cyclic import MODES
from closedform.schedules.one_cycle import ANNEALS
from closedform.schedules.wsd import SHAPES


class Role(StrEnum):
    """The kind of number that a parameter is, which determines where its search begins."""

    VALUE = "value"
    STEPS = "steps"
    EXPONENT = "exponent"
    FACTOR = "factor"
    FRACTION = "fraction"
    NUMBER = "number"
    ARGUMENT = "argument"


ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("start", "end", "peak", "value", "final", "floor", "infimum"), Role.VALUE),
    **dict.fromkeys(("low", "high", "warmup_start"), Role.VALUE),
    **dict.fromkeys(("steps", "warmup", "cooldown", "decay", "hold", "tail", "flat"), Role.STEPS),
    **dict.fromkeys(("up", "down", "bound", "timescale", "shift", "every"), Role.STEPS),
    **dict.fromkeys(("power", "k", "exponent", "beta"), Role.EXPONENT),
    **dict.fromkeys(("gamma", "rate"), Role.FACTOR),
    **dict.fromkeys(("rise", "cut"), Role.FRACTION),
    **dict.fromkeys(("cycles", "ratio", "width", "factor"), Role.NUMBER),
    "tanh_decay.low": Role.ARGUMENT,
    "tanh_decay.high": Role.ARGUMENT,
}
"""Name of a parameter, or function and name -> its role."""

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "shape": tuple(SHAPES),
    "anneal": tuple(ANNEALS),
    "mode": MODES,
    "multiplier": (1, 2, 3),
    "restarts": (None, 1, 2, 3, 4, 5),
}
"""Name of a parameter with few values -> its values; flags have two."""

# All different: in the expression of a schedule each is recognized as its argument.
_SAMPLE = (
    "start=3/7 end=1/7 peak=9/7 value=5/7 final=1/17 floor=1/19 infimum=1/23 low=1/11 high=13/11 "
    "warmup_start=1/29 steps=1009 warmup=101 cooldown=103 decay=211 hold=57 tail=223 flat=107 "
    "up=109 down=127 bound=1201 timescale=131 shift=37 every=401 power=17/10 k=17/10 "
    "exponent=-7/10 beta=17/10 gamma=7/10 rate=7/10 rise=3/10 cut=3/10 cycles=5/2 ratio=31 "
    "width=67 factor=7/3 multiplier=2 restarts=3 "
)
SAMPLE: Mapping[str, Any] = {
    name: Fraction(number) if "/" in number else int(number)
    for name, number in (entry.split("=") for entry in _SAMPLE.split())
}
"""A value of each parameter with which every schedule can be built: its expression is read off."""

MAY_BE_ZERO = ("warmup",)
"""Required parameters that may be 0: without that part, the function has another form."""

NOT_RECOVERED: Mapping[str, str] = {
    "function": "it is any expression",
    "table": "its values are the log",
    "refined": "its values are the log",
    "reduce_on_plateau": "it depends on a metric",
    **dict.fromkeys(
        ("chained", "maximum", "product", "repeat", "scale", "sequential", "splice"),
        "a composition: the parts are recovered",
    ),
    **dict.fromkeys(
        (
            "jagged_restarts",
            "multi_step",
            "piecewise_constant",
            "stages",
            "wsd_checkpoints",
        ),
        "its arguments are lists or schedules: recovered from the stretches of the curve",
    ),
    "fsl": "it is polynomial",
    "tri_stage": "it is wsd with the shape exponential",
    "trapezoidal": "it is wsd with the shape linear",
    "cosine_constant_tail": "it is cosine over fewer steps",
}
"""Functions without a separate structure, with the reason."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A free parameter of a structure.

    Attributes:
        name: The argument of the function.
        role: The kind of number.
        symbol: Its symbol in the expression.
        is_integer: Whether it must be an integer.
        is_linear: Whether the expression is linear in all such parameters together.
    """

    name: str
    role: Role
    symbol: sp.Symbol
    is_integer: bool
    is_linear: bool


@dataclass(frozen=True, slots=True)
class Structure:
    """A function of the library with some arguments fixed.

    Attributes:
        name: The function.
        fixed_arguments: The arguments that have a value already.
        parameters: The free ones.
        expr: The expression in the step and their symbols.
        constants: The other symbols of the expression, with their values.
        make: Builds the schedule from their values.
    """

    name: str
    fixed_arguments: Mapping[str, Any]
    parameters: tuple[Parameter, ...]
    expr: sp.Expr
    constants: tuple[tuple[sp.Symbol, float], ...]
    make: Callable[..., Schedule] = field(compare=False)

    def program(self, *, is_projected: bool) -> CompiledCurve:
        """Returns the expression in NumPy, with or without its linear parameters apart."""
        linear = tuple(
            parameter.symbol
            for parameter in self.parameters
            if parameter.is_linear and is_projected
        )
        return _program(self.expr, self.constants, linear)

    @property
    def is_stepwise(self) -> bool:
        """Whether it is constant between jumps."""
        return bool(self.fixed_arguments.get("staircase")) or self.name == "step_decay"

    @property
    def has_jumps(self) -> bool:
        """Whether the curve may jump."""
        return self.name == "warm_restarts" or bool(self.expr.atoms(FloorDiv, FloorMod, sp.floor))


@functools.lru_cache(maxsize=1024)
def _program(
    expr: sp.Expr,
    constants: tuple[tuple[sp.Symbol, float], ...],
    linear: tuple[sp.Symbol, ...],
) -> CompiledCurve:
    return CompiledCurve(expr, linear, dict(constants))


def _role(function: str, name: str) -> Role | None:
    return ROLES.get(f"{function}.{name}", ROLES.get(name))


def _variants(
    name: str, function: Callable[..., Any]
) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The fixed arguments and the names of the free ones, of each form of a function."""
    parameters = inspect.signature(function).parameters
    required_keys = [
        key for key, parameter in parameters.items() if parameter.default is parameter.empty
    ]
    choices: dict[str, tuple[Any, ...]] = {}
    optional: list[str] = []
    for key, parameter in parameters.items():
        if key in CHOICES:
            choices[key] = CHOICES[key]
        elif isinstance(parameter.default, bool):
            choices[key] = (parameter.default, not parameter.default)
        elif key not in required_keys and _role(name, key) is not None:
            optional.append(key)
    for values in itertools.product(*choices.values()):
        constants = {
            key: value
            for key, value in zip(choices, values, strict=True)
            if key in required_keys or value != parameters[key].default
        }
        free = [key for key in required_keys if key not in choices]
        without = [key for key in free if key in MAY_BE_ZERO]
        for key in without:
            yield {**constants, key: 0}, [parameter for parameter in free if parameter != key]
        for choice in itertools.product((False, True), repeat=len(optional)):
            optional_keys = [key for key, is_free in zip(optional, choice, strict=True) if is_free]
            yield constants, free + optional_keys


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """A form of a function: the arguments that are fixed, and the names of the free ones."""

    name: str
    fixed_arguments: tuple[tuple[str, Any], ...]
    free: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of arguments that are given."""
        return len(self.free) + len(self.fixed_arguments)


@functools.cache
def forms() -> tuple[FunctionForm, ...]:
    """Returns the forms of all functions, those with fewer arguments first."""
    all_forms = [
        FunctionForm(name, tuple(constants.items()), tuple(free))
        for name in schedules.__all__
        if name not in NOT_RECOVERED
        for constants, free in _variants(name, getattr(schedules, name))
        if free
    ]
    # Short forms first: the search ends when a longer one cannot be cheaper.
    return tuple(sorted(all_forms, key=lambda form: (form.size, len(form.fixed_arguments))))


@functools.cache
def structure(form: FunctionForm) -> Structure | None:
    """Returns the structure of a form; None if there is none."""
    name, constant_arguments, free = form.name, dict(form.fixed_arguments), form.free
    function = getattr(schedules, name)
    try:
        schedule = function(**{key: SAMPLE[key] for key in free}, **constant_arguments)
    except DefinitionError:
        return None
    expr = schedule.expr
    values = schedule.hyperparameters
    # An argument that is not given may be another one: cyclic falls for as long as it rises.
    by_value = {exact_number(SAMPLE[key]): key for key in free}
    symbols_by_name = {symbol.name: symbol for symbol in expr.free_symbols}
    replacements = {
        symbol: symbols_by_name[by_value[values[symbol.name]]]
        for symbol in expr.free_symbols - {t}
        if symbol.name not in free and by_value.get(values[symbol.name]) in symbols_by_name
    }
    expr = expr.xreplace(replacements)
    constants = tuple(
        (symbol, float(values[symbol.name]))
        for symbol in sorted(expr.free_symbols - {t}, key=lambda symbol: symbol.name)
        if symbol.name not in free
    )
    symbols = {symbol.name: symbol for symbol in expr.free_symbols if symbol.name in free}
    if set(symbols) != set(free) or not is_supported(expr):
        return None
    linear: set[sp.Symbol] = set()
    for key in free:
        if _role(name, key) is Role.VALUE and degree(expr, frozenset(linear | {symbols[key]})) == 1:
            linear.add(symbols[key])
    annotations = inspect.signature(function).parameters
    parameters = tuple(
        Parameter(
            key,
            _role(name, key) or Role.NUMBER,
            symbols[key],
            str(annotations[key].annotation) in ("Count", "int"),
            symbols[key] in linear,
        )
        for key in free
    )
    return Structure(name, dict(constant_arguments), parameters, expr, constants, function)

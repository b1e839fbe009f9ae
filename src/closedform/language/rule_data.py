"""Update rules as data that JSON holds, for another process.

An expression is a list: the name of its kind and its parts. A kind is one of ``KINDS``, so that
reading runs nothing but their constructors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp
from sympy.core.symbol import Str
from sympy.core.sympify import _sympify
from sympy.functions.elementary.piecewise import ExprCondPair

from closedform.errors import DefinitionError
from closedform.language import functions
from closedform.language.integers import FloorDiv, FloorMod
from closedform.language.model import GlobalSum, NonFinite, Shared
from closedform.language.schedule import Schedule
from closedform.language.shapes import ShapeRule, Sizes, Without
from closedform.language.update_rule import State, UpdateRule

Data = list["Data"] | dict[str, "Data"] | str | int | bool | None
"""Values that JSON holds."""

KINDS: Mapping[str, type[sp.Basic]] = {
    kind.__name__: kind
    for kind in (
        *(sp.Add, sp.Mul, sp.Pow, sp.exp, sp.log, sp.cos, sp.sin, sp.tan, sp.atan, sp.atan2),
        *(sp.tanh, sp.Abs, sp.sign),
        *(sp.Min, sp.Max, sp.floor, sp.ceiling, sp.Mod, sp.Piecewise, sp.And, sp.Or, sp.Not),
        *(sp.Eq, sp.Ne, sp.Lt, sp.Le, sp.Gt, sp.Ge, sp.ITE, sp.Tuple, FloorDiv, FloorMod),
        *(GlobalSum, NonFinite, functions.AllBut, functions.Rounded, *functions.WHOLE_TENSOR),
    )
}
"""The kinds of expressions by name."""

_CONSTANTS: Mapping[str, sp.Basic] = {"pi": sp.pi, "E": sp.E, "true": sp.true, "false": sp.false}
_ASSUMPTIONS = ("integer", "real", "positive", "nonnegative", "negative", "nonpositive")


def rule_as_data(rule: UpdateRule) -> Data:
    """Returns a rule as data, from which ``rule_of_data`` makes an equal one.

    Raises:
        DefinitionError: The rule has an expression of another kind.

    Example:
        >>> from closedform import optimizers
        >>> rule = optimizers.sgd(0.1)
        >>> rule_of_data(rule_as_data(rule)) == rule
        True
    """
    return {
        "name": rule.name,
        "param": _write(rule.param),
        "states": {
            name: [
                *(_write(s.next), _write(s.initial)),
                *(_write_shape(s.shape), _write(s.exists)),
                # Records of before 0.2.0 have no dtype in which a state is stored.
                *([] if s.stored is None else [s.stored]),
            ]
            for name, s in rule.states.items()
        },
        "hyperparameters": {
            name: _write_value(value) for name, value in rule.hyperparameters.items()
        },
        "definitions": {name: _write(expr) for name, expr in rule.definitions.items()},
        "requires": _write(rule.requires),
        "inputs": list(rule.inputs),
        "shared": {
            name: [_write(s.next), _write(s.initial), s.is_counter]
            for name, s in rule.shared.items()
        },
        "advances": _write(rule.advances),
        "evaluation": None if rule.evaluation is None else _write(rule.evaluation),
        "stored": rule.stored,
        "ranges": {name: [*map(_write, ends)] for name, ends in rule.ranges.items()},
    }


def rule_of_data(data: Any) -> UpdateRule:
    """Returns the rule that ``rule_as_data`` wrote."""
    return UpdateRule(
        data["name"],
        _read(data["param"]),
        {
            name: State(
                _read(following), _read(initial), _read_shape(shape), _read(exists), *stored
            )
            for name, (following, initial, shape, exists, *stored) in data["states"].items()
        },
        {name: _read_value(value) for name, value in data["hyperparameters"].items()},
        {name: _read(expr) for name, expr in data["definitions"].items()},
        _read(data["requires"]),
        tuple(data["inputs"]),
        {
            name: Shared(_read(following), _read(initial), is_counter)
            for name, (following, initial, is_counter) in data["shared"].items()
        },
        _read(data["advances"]),
        None if data["evaluation"] is None else _read(data["evaluation"]),
        data["stored"],
        {name: (_read(low), _read(high)) for name, (low, high) in data["ranges"].items()},
    )


def _write(expr: Any) -> Data:
    expr = _sympify(expr)
    for name, constant in _CONSTANTS.items():
        if expr is constant:
            return ["constant", name]
    match expr:
        case sp.Rational():
            return ["number", str(expr.p), str(expr.q)]
        case sp.Float():
            return ["float", *map(str, expr._mpf_)]
        case sp.Symbol():
            return [
                "symbol",
                expr.name,
                *(key for key in _ASSUMPTIONS if expr.assumptions0.get(key)),
            ]
        case Str():
            return ["text", expr.name]
    kind = type(expr).__name__
    if isinstance(expr, ExprCondPair):
        return ["pair", *map(_write, expr.args)]
    # The class itself and not its name: a user's class may be called Max.
    if KINDS.get(kind) is not type(expr):
        raise DefinitionError(
            f"{kind} is not written as data, got {expr}",
            hint="write it with the functions of closedform.expr",
        )
    return [kind, *map(_write, expr.args)]


def _read(data: Any) -> Any:
    kind, *parts = data
    match kind:
        case "constant":
            return _CONSTANTS[parts[0]]
        case "number":
            return sp.Rational(int(parts[0]), int(parts[1]))
        case "float":
            sign, mantissa, exponent, _ = (int(part) for part in parts)
            return sp.Rational((-1) ** sign * mantissa) * sp.Integer(2) ** exponent
        case "symbol":
            return sp.Symbol(parts[0], **dict.fromkeys(parts[1:], True))
        case "text":
            return Str(parts[0])
        case "pair":
            return tuple(map(_read, parts))
        case "Piecewise":
            # Evaluated, SymPy would take milliseconds a branch, and could reorder what was written.
            return sp.Piecewise(*map(_read, parts), evaluate=False)
        case _:
            return KINDS[kind](*map(_read, parts))


def _write_value(value: Any) -> Data:
    """A hyperparameter: a number, a schedule or none."""
    if not isinstance(value, Schedule):
        return None if value is None else _write(value)
    numbers: dict[str, Data] = {key: _write(v) for key, v in value.hyperparameters.items()}
    domain: list[Data] = [*map(_write, value.domain)]
    return {"expr": _write(value.expr), "name": value.name, "domain": domain, "numbers": numbers}


def _read_value(data: Any) -> Any:
    if not isinstance(data, dict):
        return None if data is None else _read(data)
    numbers = {key: _read(number) for key, number in data["numbers"].items()}
    domain = [_read(condition) for condition in data["domain"]]
    return Schedule(_read(data["expr"]), name=data["name"], domain=domain, **numbers)


def _write_shape(shape: ShapeRule) -> Data:
    match shape:
        case Sizes():
            return ["sizes", *map(_write, shape.sizes)]
        case Without():
            axes = shape.axes
            written = _write(axes) if isinstance(axes, functions.AllBut) else list(axes)
            return ["without", written, shape.keepdims]
        case _:
            return str(shape)


def _read_shape(data: Any) -> ShapeRule:
    if isinstance(data, str):
        return data
    kind, *parts = data
    if kind == "sizes":
        return Sizes(tuple(_read(size) for size in parts))
    axes, keepdims = parts
    is_all_but = axes and isinstance(axes[0], str)
    return Without(_read(axes) if is_all_but else tuple(axes), keepdims)

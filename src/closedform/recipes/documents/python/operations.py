"""Operators and functions of Python on known values; others stay unresolved."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from closedform.errors import ConfigError
from closedform.magnitude import power_bits
from closedform.recipes.documents.limits import MAX_NODES, TOO_LARGE
from closedform.recipes.documents.python.syntax import source_text
from closedform.recipes.documents.values import ConfigCall, PythonValue, Reference, Unresolved

# 2**10**9 would fill the memory; configs have numbers of tokens, below 64 bits.
MAX_BITS = 4096
"""The most binary digits of an integer that is computed."""
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda value, items: value in items,
    ast.NotIn: lambda value, items: value not in items,
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "bool": bool,
    "float": float,
    "int": int,
    "len": len,
    "max": max,
    "min": min,
    "round": round,
}
"""The functions that are computed where all their arguments are numbers."""
PURE_FUNCTIONS = frozenset(
    {*FUNCTIONS, "dict", "format", "isinstance", "list", "print", "range", "repr"}
) | {
    "str",
    "tuple",
    "type",
}
"""Functions that change none of their arguments."""
OPEN_NAMES = frozenset(
    {"__import__", "__builtins__", "compile", "delattr", "eval", "exec", "globals", "locals"}
) | {"setattr", "vars"}
"""Names through which code may change any name."""
OPEN_ATTRIBUTES = frozenset(
    {"__builtins__", "__dict__", "__globals__", "__import__", "_getframe", "currentframe", "exec"}
) | {"f_builtins", "f_globals", "f_locals", "globals", "locals", "modules", "setattr"}
OPEN_MODULES = ("__main__", "builtins")
"""Attributes, such as ``sys.modules``, and modules through which code may change any name."""
COPIES = ("copy.deepcopy", "deepcopy")
MISSING = object()


def is_open(value: PythonValue) -> bool:
    """Whether the truth of a value is not known."""
    return isinstance(value, Unresolved | ConfigCall | Reference)


def is_hashable(key: PythonValue) -> bool:
    """Whether a value is known, and can be the key of a dict."""
    try:
        hash(key)
    except TypeError:
        return False
    return not is_open(key)


def has_item(owner: list[Any], place: int = -1) -> bool:
    """Whether a list has an item at a place, which may count from its end."""
    return -len(owner) <= place < len(owner)


def entries_of(value: PythonValue) -> Mapping[str, Any]:
    """The entries of a dict, or the arguments of a call; none of anything else."""
    if isinstance(value, ConfigCall):
        return value.kwargs
    return value if isinstance(value, dict) else {}


def dict_value(
    keys: list[ast.expr | None],
    values: list[ast.expr],
    inner: Callable[[ast.expr], Any],
    node: ast.expr,
) -> PythonValue:
    """The value of ``{key: value, **mapping}``; unresolved where a key is."""
    result: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        name = None if key is None else inner(key)
        item = inner(value)
        # {**other} has no key.
        if key is None:
            if not isinstance(item, dict):
                return Unresolved(source_text(node))
            result.update(item)
            continue
        if not isinstance(name, str | int | float | tuple):
            return Unresolved(source_text(node))
        try:
            result[name] = item
        except TypeError:
            return Unresolved(source_text(node))
    return result


def item_value(value: PythonValue, index: PythonValue, node: ast.expr) -> PythonValue:
    """The value of ``value[index]``; unresolved where it has no such entry."""
    if isinstance(value, dict | list | tuple) and isinstance(index, str | int):
        try:
            return value[index]  # type: ignore[index]
        except (LookupError, TypeError):
            return Unresolved(source_text(node))
    return Unresolved(source_text(node))


def unary_value(op: ast.unaryop, value: PythonValue, node: ast.expr) -> PythonValue:
    """The value of ``not``, a minus or a plus; unresolved of another operand."""
    if isinstance(op, ast.Not) and not is_open(value):
        return not value
    if isinstance(value, int | float) and isinstance(op, ast.USub | ast.UAdd):
        return -value if isinstance(op, ast.USub) else value
    return Unresolved(source_text(node))


def arithmetic_value(
    op: ast.operator, left: PythonValue, right: PythonValue, node: ast.expr, source: str
) -> PythonValue:
    """The value of an operator on numbers, or of ``+`` on texts and sequences; else unresolved.

    Raises:
        ConfigError: The value is too large.
    """
    if type(op) not in ARITHMETIC:
        return Unresolved(source_text(node))
    are_numbers = all(isinstance(value, int | float) for value in (left, right))
    is_sum = isinstance(op, ast.Add)
    is_concatenation = is_sum and type(left) is type(right) and isinstance(left, str | list | tuple)
    if not are_numbers and not is_concatenation:
        return Unresolved(source_text(node))
    if is_concatenation and len(left) + len(right) > MAX_NODES:
        raise ConfigError(TOO_LARGE, where=source)
    is_power = isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int)
    if is_power and power_bits(left, right) > MAX_BITS:
        raise ConfigError(f"the power {source_text(node)} is too large", where=source)
    return computed_value(ARITHMETIC[type(op)], (left, right), node)


def computed_value(
    function: Callable[..., Any], arguments: tuple[Any, ...], node: ast.expr
) -> PythonValue:
    """The value of plain arguments; unresolved where Python raises an exception."""
    if any(isinstance(value, Unresolved | ConfigCall | Reference) for value in arguments):
        return Unresolved(source_text(node))
    try:
        value = function(*arguments)
    # round(nan) raises ValueError, 1.0 // 0 and 10.0**400 an ArithmeticError.
    except (ArithmeticError, TypeError, ValueError):
        return Unresolved(source_text(node))
    # Products of large integers grow without a power.
    is_large = isinstance(value, int) and value.bit_length() > MAX_BITS
    return Unresolved(source_text(node)) if is_large or isinstance(value, complex) else value


def builtin_value(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], node: ast.Call
) -> PythonValue:
    """The value of a function of Python; ``MISSING`` where it is not known."""
    if name == "dict" and not args:
        return kwargs
    if name == "dict" and len(args) == 1 and isinstance(args[0], dict):
        return {**args[0], **kwargs}
    is_sequence = len(args) == 1 and not kwargs and isinstance(args[0], list | tuple)
    if name in ("list", "tuple") and is_sequence:
        return list(args[0]) if name == "list" else tuple(args[0])
    is_plain = all(isinstance(value, int | float) for value in args)
    if name in FUNCTIONS and args and is_plain and not kwargs:
        return computed_value(FUNCTIONS[name], args, node)
    return (
        ConfigCall(name, args, kwargs)
        if name in PURE_FUNCTIONS - {"list", "tuple", "dict"}
        else MISSING
    )


def method_value(
    owner: dict[Any, Any] | list[Any], method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> PythonValue:
    """The value of a method of a dict or list, after its change; ``MISSING`` if not modelled."""
    result: PythonValue = None
    is_known = not kwargs and not any(is_open(argument) for argument in args[:1])
    match owner, method, args:
        case dict(), "update", () | (dict(),):
            owner.update(*args, **kwargs)
        case dict(), "get" | "setdefault" | "pop", (key, *rest) if (
            is_known
            and is_hashable(key)
            and len(rest) <= 1
            and (rest or key in owner or method == "get")
        ):
            if method == "setdefault":
                result = owner.setdefault(key, *rest)
            else:
                result = owner.get(key, *rest) if method == "get" else owner.pop(key, *rest)
        case dict() | list(), "copy", () if not kwargs:
            result = owner.copy()
        case dict() | list(), "clear", () if not kwargs:
            owner.clear()
        case list(), "append", (item,) if not kwargs:
            owner.append(item)
        case list(), "extend", (list() | tuple() as items,) if not kwargs:
            owner.extend(items)
        case list(), "insert", (int() as place, item) if not kwargs:
            owner.insert(place, item)
        case list(), "pop", () | (int(),) if not kwargs and has_item(owner, *args):
            result = owner.pop(*args)
        case list(), "reverse", () if not kwargs:
            owner.reverse()
        case _:
            return MISSING
    return result

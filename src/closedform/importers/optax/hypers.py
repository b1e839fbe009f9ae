"""Hyperparameters of a transformation: the floats that its update function has in its closure.

``optax.adam(1e-3, b1=0.9)`` is a chain of functions that remember ``b1`` and ``step_size``. Copies
of these functions are traced whose variables hold symbols in place of numbers, so that the
hyperparameters of the rule have their names and values. The user's functions are not changed.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

from closedform.language.symbols import hyper

_RESERVED = frozenset({"t", "step", "param", "grad"})
_STEP_SIZE, _LEARNING_RATE = "step_size", "learning_rate"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a closure that holds a number.

    Attributes:
        cell: Where Python stores it.
        value: The number.
        name: The name of the hyperparameter.
        sign: -1 where the variable is the hyperparameter with the other sign: ``optax.scale`` is
            given the learning rate with a minus sign.
    """

    cell: types.CellType
    value: float
    name: str
    sign: int

    @property
    def expr(self) -> sp.Expr:
        """The expression of the variable."""
        return self.sign * hyper(self.name)


def variables_of(function: object) -> list[Variable]:
    """Returns the floats in the closure of a function and of the functions that it calls."""
    variables: list[Variable] = []
    values: dict[str, float] = {}
    for cell, cell_name in _cells(function, set()):
        number = cell.cell_contents
        is_negative_rate = cell_name == _STEP_SIZE and number < 0
        name, sign = (_LEARNING_RATE, -1) if is_negative_rate else (cell_name, 1)
        value = sign * float(number)
        while values.get(name, value) != value or name in _RESERVED:
            name = f"{name}_"
        values[name] = value
        variables.append(Variable(cell, value, name, sign))
    return variables


def _cells(source: object, visited_ids: set[int]) -> Iterator[tuple[types.CellType, str]]:
    """The cells that hold floats, with the names of the variables."""
    if id(source) in visited_ids:
        return
    visited_ids.add(id(source))
    if isinstance(source, types.FunctionType):
        names = () if _is_schedule(source) else source.__code__.co_freevars
        for name, cell in zip(names, source.__closure__ or (), strict=False):
            if id(cell) in visited_ids or _is_empty(cell):
                continue
            visited_ids.add(id(cell))
            if type(cell.cell_contents) is float:
                yield cell, name
            else:
                yield from _cells(cell.cell_contents, visited_ids)
    else:
        for part in _parts(source):
            yield from _cells(part, visited_ids)


def _parts(source: object) -> Sequence[object]:
    """The parts of a container that may be functions."""
    if isinstance(source, functools.partial):
        return (source.func,)
    if isinstance(source, tuple | list):
        return source
    if isinstance(source, dict):
        return tuple(source.values())
    return ()


def _is_empty(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def _is_schedule(function: types.FunctionType) -> bool:
    """Whether a function takes one argument, as schedules do and updates do not."""
    return function.__code__.co_argcount == 1


def with_values(
    function: Callable[..., Any], variables: Sequence[Variable], values: Sequence[Any]
) -> Callable[..., Any]:
    """Returns a copy of a function, and of those that it calls, with other values of variables.

    JAX remembers what it has traced by function, and so never meets a symbol in the user's.
    """
    numbers = {id(variable.cell): value for variable, value in zip(variables, values, strict=True)}
    copy: Callable[..., Any] = _copy(function, numbers, {}) if variables else function
    return copy


def _copy(source: Any, numbers: Mapping[int, Any], copies: dict[int, Any]) -> Any:
    if id(source) in copies:
        return copies[id(source)]
    if isinstance(source, types.FunctionType):
        return _copied_function(source, numbers, copies)
    if isinstance(source, functools.partial):
        func = _copy(source.func, numbers, copies)
        return functools.partial(func, *source.args, **source.keywords)
    if isinstance(source, tuple | list) and _has_functions(source):
        parts = [_copy(part, numbers, copies) for part in source]
        return type(source)(*parts) if hasattr(source, "_fields") else type(source)(parts)
    if type(source) is dict and _has_functions(source.values()):
        return {key: _copy(part, numbers, copies) for key, part in source.items()}
    return source


def _has_functions(parts: Iterable[object]) -> bool:
    kinds = (types.FunctionType, functools.partial, tuple, list, dict)
    return any(isinstance(part, kinds) for part in parts)


def _copied_function(
    source: types.FunctionType, numbers: Mapping[int, Any], copies: dict[int, Any]
) -> types.FunctionType:
    if not source.__closure__ or _is_schedule(source):
        return source
    fresh = []
    for cell in source.__closure__:
        if id(cell) not in copies:
            copies[id(cell)] = types.CellType()
        fresh.append(copies[id(cell)])
    clone = types.FunctionType(
        source.__code__, source.__globals__, source.__name__, source.__defaults__, tuple(fresh)
    )
    clone.__kwdefaults__ = source.__kwdefaults__
    copies[id(source)] = clone
    for cell, new_cell in zip(source.__closure__, fresh, strict=True):
        if not _is_empty(cell) and _is_empty(new_cell):
            content = cell.cell_contents
            is_number = id(cell) in numbers
            new_cell.cell_contents = (
                numbers[id(cell)] if is_number else _copy(content, numbers, copies)
            )
    return clone

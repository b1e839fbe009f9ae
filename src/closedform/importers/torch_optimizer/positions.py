"""How many parameters there are, and the place of one: what a rule has no expression for.

A list of tensors has as many as the traced model; in another model it has more. Its length and the
indices of its elements serve to take elements and to count rounds. Arithmetic with them and
comparisons are refused.
"""

from __future__ import annotations

import builtins
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sympy as sp
import torch

from closedform.importers.python.decider import Decider
from closedform.importers.python.number import Number

_HINT = "a rule is the same for every parameter, and for models of any number of them"


_COUNT = "the number of parameters"
_PLACE = "the place of a parameter"


def position(run: Decider, value: int, *, is_count: bool) -> Any:
    """Returns the index of a tensor in a list of them, or the length of the list.

    Equal ones have one symbol, and those that differ in the trace have two.

    Args:
        run: The run that decides on it.
        value: The number.
        is_count: Whether it is a length.
    """
    name = f"{_COUNT if is_count else _PLACE} ({value})"
    symbol = sp.Symbol(name, integer=True, positive=is_count or None, nonnegative=True)
    return Number(run, symbol, is_int=True, ref=value)


def subjects(expr: sp.Basic) -> list[str]:
    """Returns the names of the positions in an expression."""
    names = [symbol.name for symbol in expr.free_symbols]
    return [name.partition(" (")[0] for name in names if name.startswith((_COUNT, _PLACE))]


def check_positions(run: Decider, expr: sp.Basic, use: str) -> None:
    """Refuses an expression in the place or the number of parameters.

    Raises:
        TraceError: The step uses such a number where its value counts.
    """
    for subject in subjects(expr):
        raise run.refuse(f"{subject} is used in {use}", _HINT)


def is_position(expr: sp.Expr) -> bool:
    """Returns whether an expression is a position, to which an integer may have been added."""
    parts = [part for part in sp.Add.make_args(expr) if not part.is_Integer]
    return len(parts) == 1 and (parts[0].is_Symbol or (-parts[0]).is_Symbol)


def is_of_every_model(condition: sp.Basic) -> bool:
    """Returns whether a comparison is the same for models of any number of parameters."""
    # len(params) == len(grads), and place < len(params).
    sides = [subjects(side) if side.is_Symbol else [] for side in condition.args]
    return all(sides) and [_COUNT] in sides


Owner = Callable[[torch.Tensor], int | None]
"""Returns the place of the parameter of a tensor; None if it is of none or of several."""


def _is_over_parameters(values: object, owner: Owner) -> bool:
    """Whether a list has entries of several parameters: another model has another number."""
    # The walk itself must not be traced.
    with torch._C.DisableTorchFunction():
        # A dict of groups has lists of lists of tensors: its length is that of no such list.
        tensors = (item for item in items_within(values, 3) if isinstance(item, torch.Tensor))
        return builtins.len({owner(tensor) for tensor in tensors} - {None}) > 1


def items_within(values: object, depth: int = 5) -> Iterator[Any]:
    """Yields the items of lists, dicts and sets, and of those in them; any other value itself."""
    if not isinstance(values, list | tuple | Mapping | set | deque):
        yield values
    elif depth:
        for item in values.values() if isinstance(values, Mapping) else values:
            yield from items_within(item, depth - 1)


def counting_len(run: Decider, owner: Owner) -> Callable[[Any], Any]:
    """Returns ``len`` for traced code."""

    def length(values: Any) -> Any:
        number = builtins.len(values)
        if isinstance(values, torch.Tensor) or not _is_over_parameters(values, owner):
            return number
        return position(run, number, is_count=True)

    return length


def position_enumerate(run: Decider, owner: Owner) -> Callable[..., Iterator[tuple[Any, Any]]]:
    """Returns ``enumerate`` for traced code."""

    def pairs(values: Iterable[Any], start: int = 0) -> Iterator[tuple[Any, Any]]:
        values = values if isinstance(values, list | tuple) else list(values)
        is_over_parameters = _is_over_parameters(values, owner)
        for index, value in builtins.enumerate(values, start):
            number = position(run, index, is_count=False) if is_over_parameters else index
            yield number, value

    return pairs


def position_range(run: Decider) -> Any:
    """Returns ``range`` for traced code."""

    class Meta(type):
        # `isinstance(x, range)` and `range(n)` in traced code both use this name.
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, range)

        def __call__(cls, *bounds: int) -> Any:
            if not any(isinstance(bound, Number) and subjects(bound.expr) for bound in bounds):
                return range(*bounds)
            plain = list(map(operator.index, bounds))
            return [position(run, index, is_count=False) for index in range(*plain)]

    return Meta("range", (), {})


def with_plain_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of torch that takes sizes with expressions as ints."""

    def size(number: Any) -> Any:
        if not isinstance(number, Number) or not number.is_int:
            return number
        check_positions(number.run, number.expr, "an operation of tensors")
        return operator.index(number)

    def apply(*args: Any, **options: Any) -> Any:
        return function(*map(size, args), **options)

    return apply

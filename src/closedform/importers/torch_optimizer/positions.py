"""How many parameters there are, and the place of one: what a rule has no expression for.

A list of tensors has as many as the traced model; in another model it has more. Its length and the
indices of its elements serve to take elements and to count rounds. Arithmetic with them and
comparisons are refused.
"""

from __future__ import annotations

import builtins
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import sympy as sp
import torch

from closedform.errors import TraceError
from closedform.importers.torch_optimizer.decisions import Run
from closedform.importers.torch_optimizer.scalars import Decider, SymbolicCount, SymbolicFloat
from closedform.importers.torch_optimizer.shapes import Shape

_HINT = "a rule is the same for every parameter, and for models of any number of them"


class Position(SymbolicCount):
    """The index of a tensor in a list of them, or the length of the list.

    Args:
        value: The number.
        run: The run that decides on it.
        is_count: Whether it is a length.
        is_shifted: Whether a number was added to it.
    """

    __slots__ = ("is_count", "is_shifted")

    def __init__(
        self, value: int, run: Decider, *, is_count: bool, is_shifted: bool = False
    ) -> None:
        self.value = value
        self.run = run
        self.is_count = is_count
        self.is_shifted = is_shifted

    @property
    def expr(self) -> sp.Expr:
        """An expression, which there is none of.

        Raises:
            TraceError: The step computes with the number.
        """
        raise self.refusal("arithmetic")

    def __index__(self) -> int:
        return int(self.value)

    def __hash__(self) -> int:
        raise self.refusal("a key")

    def __bool__(self) -> bool:
        # `if len(params):` asks whether there are any.
        if self.is_count:
            return self.value != 0
        raise self.refusal("a condition")

    def __str__(self) -> str:
        raise self.refusal("a text")

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def refusal(self, use: str) -> TraceError:
        """Returns the error of a use, and records it."""
        subject = "the number of parameters" if self.is_count else "the place of a parameter"
        return self.run.refuse(f"{subject} is used in {use}", hint=_HINT)

    def _compare(self, right: Any, function: Callable[[Any, Any], bool]) -> Any:
        is_plain = not self.is_shifted and not getattr(right, "is_shifted", False)
        if isinstance(right, Position) and (self.is_count or right.is_count) and is_plain:
            return function(self.value, right.value)
        # len(params) == 0 is the same for all models with parameters.
        if self.is_count and is_plain and type(right) is int and right == 0:
            return function(self.value, right)
        if not isinstance(right, int | float | SymbolicFloat):
            return NotImplemented
        raise self.refusal("a comparison")


def _without_effect(name: str) -> Callable[..., Any]:
    """Arithmetic that shifts a position, or changes nothing; any other is refused."""
    # `i % world_size` of one process is 0 for each place, and `i // world_size` is i.
    is_factor = name in ("mul", "rmul", "floordiv", "mod")

    def method(self: Position, operand: Any = 0) -> Any:
        if type(operand) is not int or (is_factor and operand != 1):
            raise self.refusal("arithmetic")
        if is_factor or (name != "neg" and operand == 0):
            return 0 if name == "mod" else self
        operands = () if name == "neg" else (operand,)
        number = getattr(int, f"__{name}__")(self.value, *operands)
        # i + 1 < len(params) asks whether this is the last one, which a rule does not know.
        return Position(number, self.run, is_count=self.is_count, is_shifted=True)

    return method


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[..., Any]:
    return lambda self, right: self._compare(right, function)


for _function in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
    setattr(Position, f"__{_function.__name__}__", _comparison(_function))
for _name in ("add", "radd", "sub", "mul", "rmul", "floordiv", "mod", "neg"):
    setattr(Position, f"__{_name}__", _without_effect(_name))


class Owners(Protocol):
    """The parameter that a tensor belongs to."""

    def owner(self, tensor: torch.Tensor) -> int | None:
        """Returns the place of the parameter; None if the tensor is of none or of several."""


def _owners(values: object, owners: Owners, depth: int = 3) -> Iterator[int]:
    if isinstance(values, torch.Tensor):
        owner = owners.owner(values)
        if owner is not None:
            yield owner
    elif depth and isinstance(values, dict):
        for item in values.values():
            yield from _owners(item, owners, depth - 1)
    elif isinstance(values, torch.Size | Shape) or not depth:
        return
    elif isinstance(values, list | tuple | set | deque):
        for item in values:
            yield from _owners(item, owners, depth - 1)


def _is_over_parameters(values: object, owners: Owners) -> bool:
    """Whether a list has entries of several parameters: another model has another number."""
    # The walk itself must not be traced.
    with torch._C.DisableTorchFunction():
        return builtins.len(set(_owners(values, owners))) > 1


def counting_len(run: Run, owners: Owners) -> Callable[[Any], Any]:
    """Returns ``len`` for traced code."""

    def length(values: Any) -> Any:
        number = builtins.len(values)
        if isinstance(values, torch.Tensor) or not _is_over_parameters(values, owners):
            return number
        return Position(number, run, is_count=True)

    return length


def position_enumerate(run: Run, owners: Owners) -> Callable[..., Iterator[tuple[Any, Any]]]:
    """Returns ``enumerate`` for traced code."""

    def pairs(values: Iterable[Any], start: int = 0) -> Iterator[tuple[Any, Any]]:
        values = values if isinstance(values, list | tuple) else list(values)
        is_over_parameters = _is_over_parameters(values, owners)
        for index, value in builtins.enumerate(values, start):
            number = Position(index, run, is_count=False) if is_over_parameters else index
            yield number, value

    return pairs


def position_range(run: Run) -> Any:
    """Returns ``range`` for traced code."""

    class Meta(type):
        # `isinstance(x, range)` and `range(n)` in traced code both use this name.
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, range)

        def __call__(cls, *bounds: int) -> Any:
            if not any(isinstance(bound, Position) for bound in bounds):
                return range(*bounds)
            plain = list(map(operator.index, bounds))
            return [Position(index, run, is_count=False) for index in range(*plain)]

    return Meta("range", (), {})


def with_plain_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of torch that takes sizes with expressions as ints."""

    def size(number: Any) -> Any:
        if isinstance(number, Position):
            raise number.refusal("an operation of tensors")
        return operator.index(number) if isinstance(number, SymbolicCount) else number

    def apply(*args: Any, **options: Any) -> Any:
        return function(*map(size, args), **options)

    return apply

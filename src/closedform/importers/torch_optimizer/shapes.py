"""Shapes of traced tensors, whose sizes have expressions for Python."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Shape(tuple[Any, ...]):
    """The shape of a tensor: plain ints for torch, and for Python sizes with their expressions.

    It is not a ``torch.Size``, which has no subclasses and makes ints of what it is given.
    """

    sizes: tuple[Any, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sizes)

    def __getitem__(self, place: Any) -> Any:
        part = self.sizes[place]
        return shape_of(part) if isinstance(place, slice) else part

    def __contains__(self, size: object) -> bool:
        return size in self.sizes

    def __hash__(self) -> int:
        return hash(self.sizes)

    def __add__(self, right: Any) -> Any:
        return shape_of(self.sizes + tuple(right)) if isinstance(right, tuple) else NotImplemented

    def __radd__(self, left: Any) -> Any:
        return shape_of(left + self.sizes) if isinstance(left, tuple) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        return shape_of(self.sizes * count)

    __rmul__ = __mul__

    def count(self, size: Any) -> int:
        """Returns how many axes have a size."""
        return self.sizes.count(size)

    def index(self, size: Any, *bounds: Any) -> int:
        """Returns the first axis of a size."""
        return self.sizes.index(size, *bounds)

    def numel(self) -> Any:
        """Returns the number of elements."""
        return functools.reduce(operator.mul, self.sizes, 1)


def shape_of(sizes: Iterable[Any]) -> Shape:
    """Returns the shape of sizes, symbolic or plain."""
    sizes = tuple(sizes)
    shape = Shape(map(operator.index, sizes))
    shape.sizes = sizes
    return shape


def _define_tuple_comparison(function: Callable[[Any, Any], Any]) -> None:
    def compare(self: Shape, right: Any) -> Any:
        # A tuple asks whether elements are the same objects, and then whether they are equal.
        return function(self.sizes, tuple(right)) if isinstance(right, tuple) else NotImplemented

    setattr(Shape, f"__{function.__name__}__", compare)


for _function in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
    _define_tuple_comparison(_function)

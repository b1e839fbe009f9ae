"""Static structure: what a rule may depend on in its tensor's shape, and shapes of its states.

The symbols here are numbers that a shape has: they are replaced when a rule is resolved for a
parameter (``UpdateRule.for_shape``), and a ``Piecewise`` on them is a choice made before there
is a graph, and no ``Where``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language.functions import AllBut

Dim = int | str
Shape = tuple[Dim, ...]

RANK = sp.Symbol("shape.rank", integer=True, nonnegative=True)
"""The number of axes of the parameter."""

SIZE = sp.Symbol("shape.size", integer=True, nonnegative=True)
"""The number of elements of the parameter."""

EPSILON = sp.Symbol("dtype.epsilon", positive=True)
"""The distance from 1 to the next number of the parameter's dtype, 2**-23 for float32."""

IS_SINGLE = EPSILON > sp.Rational(1, 2**40)
"""The condition that the parameter's dtype has fewer digits than float64."""

_AXES = range(-8, 8)


def axis_size(axis: int) -> sp.Symbol:
    """Returns the symbol of the parameter's size along an axis, from -8 to 7.

    Raises:
        DefinitionError: The axis is out of that range.

    Example:
        >>> axis_size(-1)
        shape[-1]
    """
    if isinstance(axis, bool) or axis not in _AXES:
        raise DefinitionError(
            f"an axis must be an integer in {_AXES.start}..{_AXES.stop - 1}, got {axis!r}",
            where="axis_size",
        )
    return sp.Symbol(f"shape[{axis}]", integer=True, nonnegative=True)


SHAPE_SYMBOLS = frozenset({RANK, SIZE, *(axis_size(axis) for axis in _AXES)})
"""The symbols that ``shape_values`` gives numbers."""


@dataclass(frozen=True, slots=True)
class Without:
    """The shape rule of a state that has the parameter's shape without some axes.

    Attributes:
        axes: The axes, counted from the last as -1 or from the first as 0, or ``all_but(axis)``.
        keepdims: Whether they stay, with size 1.
    """

    axes: tuple[int, ...] | AllBut
    keepdims: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """The shape rule of a state whose sizes are made of the parameter's sizes.

    Attributes:
        sizes: An integer or an expression in ``axis_size(…)``, ``SIZE`` for each axis.

    Example:
        >>> shape_by(Sizes((axis_size(0), axis_size(0))), (3, 4), "rule")
        (3, 3)
    """

    sizes: tuple[sp.Expr | int, ...]


ShapeRule = str | Without | Sizes
NAMED_RULES = ("param", "scalar")
"""Shape rules of a state: that of the parameter, or rank 0."""


def check_rule(rule: object, where: str) -> None:
    """Raises DefinitionError if a value is not a shape rule."""
    if isinstance(rule, Without | Sizes) or rule in NAMED_RULES:
        return
    raise DefinitionError(
        f"the shape rule must be one of {NAMED_RULES}, Without(axes) or Sizes(sizes), got {rule!r}",
        where=where,
    )


def shape_by(rule: ShapeRule, shape: Shape, where: str) -> Shape:
    """Returns the shape of a state for a parameter of this shape.

    Raises:
        DefinitionError: The parameter has no such axis.

    Example:
        >>> shape_by(Without((-1,)), (2, 3, 4), "rule")
        (2, 3)
        >>> shape_by(Without((-2,), keepdims=True), (2, 3, 4), "rule")
        (2, 1, 4)
        >>> from closedform.language import all_but
        >>> shape_by(Without(all_but(1), keepdims=True), (2, 3, 4), "rule")
        (1, 3, 1)
    """
    if isinstance(rule, Without):
        removed_axes = _places(rule.axes, shape, where)
        if rule.keepdims:
            return tuple(1 if axis in removed_axes else dim for axis, dim in enumerate(shape))
        return tuple(dim for axis, dim in enumerate(shape) if axis not in removed_axes)
    if isinstance(rule, Sizes):
        return tuple(_size_by(size, shape, where) for size in rule.sizes)
    return shape if rule == "param" else ()


def _size_by(size: sp.Expr | int, shape: Shape, where: str) -> int:
    number = size.xreplace(shape_values(shape)) if isinstance(size, sp.Expr) else sp.Integer(size)
    if not number.is_Integer or number < 0:
        raise DefinitionError(
            f"a parameter of shape {list(shape)} gives the size {number} for {size}",
            where=where,
            hint="let the state exist only for parameters that have these axes",
        )
    return int(number)


def other_axes(remaining: AllBut, rank: int) -> set[int]:
    """Returns the axes of a tensor but one, counted from the first."""
    (axis,) = (int(axis_number) for axis_number in remaining.args)
    return set(range(rank)) - {axis if axis >= 0 else rank + axis}


def _places(axes: Sequence[int] | AllBut, shape: Shape, where: str) -> set[int]:
    if isinstance(axes, AllBut):
        return other_axes(axes, len(shape))
    for axis in axes:
        if not -len(shape) <= axis < len(shape):
            raise DefinitionError(
                f"a parameter of shape {list(shape)} has no axis {axis}",
                where=where,
                hint="let the state exist only for parameters that have the axis",
            )
    return {axis % len(shape) for axis in axes}


def shape_values(shape: Shape) -> Mapping[sp.Symbol, sp.Expr]:
    """Returns the numbers of a shape by their symbols; a named size has none.

    Example:
        >>> values = shape_values((2, 5))
        >>> values[RANK], values[SIZE], values[axis_size(-1)]
        (2, 10, 5)
    """
    rank = len(shape)
    values = {RANK: sp.Integer(rank)}
    if all(isinstance(dim, int) for dim in shape):
        values[SIZE] = sp.Mul(*(sp.Integer(dim) for dim in shape))
    for axis in _AXES:
        if -rank <= axis < rank and isinstance(shape[axis], int):
            values[axis_size(axis)] = sp.Integer(shape[axis])
    return values

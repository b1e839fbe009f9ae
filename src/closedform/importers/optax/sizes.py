"""Constants of jaxprs that are made of sizes: a mean divides by a number of elements.

A jaxpr has numbers for sizes. Two jaxprs of one function for shapes of different primes have the
same operations, and differ in those constants that depend on the shapes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp
from jax.extend.core import ClosedJaxpr, Jaxpr

from closedform.errors import TraceError
from closedform.importers.optax.jaxprs import is_literal
from closedform.importers.optax.leaves import Path
from closedform.importers.tensors.values import Sizes, twin_of
from closedform.language.shapes import SIZE, axis_size

_POWERS = (0, 1, -1, sp.Rational(1, 2), sp.Rational(-1, 2))
_PRECISIONS = {True: (1e-14, 10**6), False: (3e-7, 100)}
"""For float64 and float32: some units in the last place, and the largest denominator."""

_UNKNOWN = "unknown_size"
_MOST_AXES = 4


def differing(first: Jaxpr, second: Jaxpr) -> Iterator[tuple[Any, Any]]:
    """Yields the literals of two jaxprs that differ.

    Raises:
        TraceError: The jaxprs have different operations.
    """
    if [e.primitive.name for e in first.eqns] != [e.primitive.name for e in second.eqns]:
        raise TraceError("the operations of the update depend on more of the shape than its rank")
    for first_equation, second_equation in zip(first.eqns, second.eqns, strict=True):
        yield from _differing_operands(first_equation.invars, second_equation.invars)
        for a, b in zip(
            inner_jaxprs(first_equation.params), inner_jaxprs(second_equation.params), strict=True
        ):
            yield from differing(a, b)
    yield from _differing_operands(first.outvars, second.outvars)


def _differing_operands(first: Sequence[Any], second: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for a, b in zip(first, second, strict=True):
        if not (is_literal(a) and is_literal(b)) or np.ndim(a.val) or a.val == b.val:
            continue
        if not np.isnan(a.val) or not np.isnan(b.val):
            yield a, b


def closed_jaxprs(params: Mapping[str, Any]) -> list[ClosedJaxpr]:
    """Returns the jaxprs among the parameters of an equation."""
    result = []
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                result.append(item)
            elif isinstance(item, Jaxpr):
                result.append(ClosedJaxpr(item, ()))
    return result


def inner_jaxprs(params: Mapping[str, Any]) -> list[Jaxpr]:
    """Returns the jaxprs among the parameters of an equation, without their constants."""
    return [item.jaxpr for item in closed_jaxprs(params)]


def unknown_size() -> sp.Dummy:
    """Returns a constant that depends on shapes in a way that has no expression.

    It may be multiplied by 0, as the sizes of an untraced parameter are.
    """
    return sp.Dummy(_UNKNOWN, positive=True)


def check_sizes(expressions: Iterable[sp.Basic], where: str) -> None:
    """Raises TraceError if an expression depends on an unknown size."""
    for expr in expressions:
        if any(isinstance(symbol, sp.Dummy) for symbol in expr.free_symbols):
            raise TraceError(
                "a constant of the update depends on the shapes of parameters otherwise than by "
                "products of powers of sizes",
                where=where,
            )


def size_expression(
    numbers: tuple[float, float],
    path_of_param: Path,
    second: Path | None,
    shapes: tuple[Mapping[Path, Sizes], Mapping[Path, Sizes]],
    *,
    is_double: bool,
) -> sp.Expr | None:
    """Returns the expression in sizes that has these values for two sets of shapes.

    It is a product of powers of the sizes of a parameter, times a number: 1/n, sqrt(n/m). None if
    there is none for the two parameters that are traced.
    """
    near, largest = _PRECISIONS[is_double]
    for path in (path_of_param, second):
        if path is None:
            continue
        for expr, values in _products(shapes[0][path], shapes[1][path]):
            factors = numbers[0] / values[0], numbers[1] / values[1]
            if math.isclose(*factors, rel_tol=near):
                exact = sp.Rational(repr(factors[0])).limit_denominator(largest)
                if math.isclose(float(exact), factors[0], rel_tol=near):
                    size = exact * expr
                    return size if path == path_of_param else size.xreplace(_OTHERS)
    return None


_OTHERS = {symbol: twin_of(symbol) for symbol in (SIZE, *map(axis_size, range(8)))}


def _products(first: Sizes, second: Sizes) -> Iterator[tuple[sp.Expr, tuple[float, float]]]:
    """Products of powers of sizes, the number of elements first, with their values."""
    whole = (math.prod(first), math.prod(second))
    for power in _POWERS[1:]:
        yield SIZE**power, (whole[0] ** float(power), whole[1] ** float(power))
    axes = [axis for axis, size in enumerate(first) if size != 1]
    for powers in itertools.product(_POWERS, repeat=min(len(axes), _MOST_AXES)):
        pairs = list(zip(axes, powers, strict=False))
        values = [
            math.prod(float(sizes[axis]) ** float(power) for axis, power in pairs)
            for sizes in (first, second)
        ]
        yield sp.Mul(*(axis_size(axis) ** power for axis, power in pairs)), (values[0], values[1])

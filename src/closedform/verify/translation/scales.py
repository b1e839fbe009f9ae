"""Sizes of gradients and parameters at which two sides may differ: near the constants of both.

``sqrt(v + eps**2)`` is ``sqrt(v) + eps`` to ten digits, but where gradients are as small as eps.
Sizes are powers of two, so that what is drawn is a float of the file and a short fraction.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from flint import fmpq

from closedform.ir import DType
from closedform.ir.graph import Array
from closedform.verify.terms import build
from closedform.verify.terms.tensor_values import tensor_of
from closedform.verify.terms.tree import Op, Term, walk

Size = int | None
"""The exponent of a power of two; None for 0."""

USUAL: tuple[Size, ...] = (0, -10, -27, 10)
"""The sizes that are always tried: 1, about 1/1000, 1e-8 and 1000."""

MOST_SIZES = 14
"""Sizes that are tried, with the sizes of constants."""

# Of float32 with 6 bits to spare below the least subnormal, and squares that are finite.
_SMALLEST, _LARGEST = -143, 60
_NEAR_ONE = 5


def scales_of(roots: Iterable[Term]) -> tuple[int, ...]:
    """Returns the sizes of the constants of terms, then of their squares, then of their roots.

    An epsilon is added to a root or below it, and a threshold is one of a number or of its square.

    Example:
        >>> from closedform.verify.terms.build import add, rational, symbol
        >>> scales_of([add(symbol("x"), rational(1e-8))])
        (-27, -54, -13)
    """
    exponents: dict[int, None] = {}
    for node in walk(*roots):
        if node.op is Op.RATIONAL and node.value != 0:
            exponent = int(abs(node.value.p)).bit_length() - int(node.value.q).bit_length()
            exponents[exponent] = None
    distant = [exponent for exponent in exponents if abs(exponent) >= _NEAR_ONE]
    candidates = [*distant, *(2 * exponent for exponent in distant), *(-(-e // 2) for e in distant)]
    in_range = (exponent for exponent in candidates if _SMALLEST <= exponent <= _LARGEST)
    return tuple(dict.fromkeys(in_range))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the tensors of a run.

    Attributes:
        gradients: The sizes of the elements of a gradient, in turn.
        shift: By how many elements they move from one step to the next one.
        parameters: The sizes of the elements of a parameter, in turn.
    """

    gradients: tuple[Size, ...]
    shift: int = 0
    parameters: tuple[Size, ...] = (0,)

    def at(self, count: int) -> tuple[Size, ...]:
        """Returns the sizes of the gradients of a step."""
        shift = count * self.shift % len(self.gradients)
        return self.gradients[shift:] + self.gradients[:shift]


def sizes_of_runs(scales: Sequence[int]) -> Iterator[Sizes]:
    """Yields the sizes of the runs that are tried.

    Args:
        scales: The sizes of the constants of both sides.
    """
    sizes = tuple(dict.fromkeys((*USUAL, *scales)))[:MOST_SIZES]
    for size in USUAL:
        yield Sizes((size,))
    # Elements of all sizes side by side, and of another one at each step.
    for start in range(0, len(sizes), 4):
        all_sizes = (*sizes[start:], *sizes[:start], None)
        yield Sizes(all_sizes, shift=1, parameters=(0, *all_sizes))
    for size in sizes:
        yield Sizes((size,), parameters=(size, 0, None, -10))
    yield Sizes((0, None), shift=1, parameters=(0, None))


def draw_floats(
    shape: tuple[int, ...], sizes: Sequence[Size], draw: random.Random, dtype: DType
) -> Array:
    """Returns a tensor of floats of some sizes in turn, as exact numbers."""
    return tensor_of(
        [draw_float(sizes[place % len(sizes)], draw, dtype) for place in range(math.prod(shape))],
        shape,
    )


def draw_float(size: Size, draw: random.Random, dtype: DType) -> fmpq:
    """Returns a float of a size as an exact number."""
    number = draw.choice((-1, 1)) * draw.randint(3, 40) / 32
    if size is None:
        return fmpq(0)
    with np.errstate(over="ignore", under="ignore"):
        nearest = float(dtype.numpy.type(number * 2.0**size))
    return build.exact(nearest if math.isfinite(nearest) else number)

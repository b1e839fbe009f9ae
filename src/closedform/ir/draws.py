"""Random numbers as a function of a seed, a step and the place of an element.

Multiplications and shifts of integers modulo 2**32, so that every engine has the same bits. A step
has a key k, and the element at place i the 16 upper bits of the last x:

    k = mix(mix(low(step) + mix(high(step))) + mix(seed + GOLDEN))
    x = (i + k) * FIRST;  x = (x ^ x >> 15) * SECOND + k;  x = (x ^ x >> 16) * GOLDEN

``mix`` is lowbias32 of C. Wellons (hash-prospector, 2018), a bijection: over all keys each element
has each of its 2**16 values equally often. Elements whose places differ by 2**32 agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

FIRST, SECOND, GOLDEN = 0x7FEB352D, 0x846CA68B, 0x9E3779B1
"""Odd factors: two of lowbias32, and the one next to 2**32 divided by the golden ratio."""

BITS = 16
"""The bits of a number; a float32 has 16 more than a bfloat16."""

WORD = 2**32 - 1
"""The largest integer of 32 bits."""

W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class Words(Generic[W]):
    """Integers modulo 2**32 of an engine.

    Attributes:
        add: The sum of two.
        multiply: The product with a constant.
        shift: The quotient by a power of 2, without its rest.
        xor: The bits in which two differ.
        constant: A constant.
    """

    add: Callable[[W, W], W]
    multiply: Callable[[W, int], W]
    shift: Callable[[W, int], W]
    xor: Callable[[W, W], W]
    constant: Callable[[int], W]

    def fold(self, x: W, count: int) -> W:
        """Returns ``x ^ x >> count``."""
        return self.xor(x, self.shift(x, count))

    def mix(self, x: W) -> W:
        """Returns the hash of a word."""
        x = self.multiply(self.fold(x, 16), FIRST)
        return self.fold(self.multiply(self.fold(x, 15), SECOND), 16)

    def bits(self, place: W, low: W, high: W | None, seed: int) -> W:
        """Returns the random bits of elements.

        Args:
            place: Their places.
            low: The lower 32 bits of the step.
            high: The bits above; None where there are none.
            seed: The word of the seed.
        """
        inner = low if high is None else self.add(low, self.mix(high))
        # The key is a scalar: hashing it costs once, not per element.
        key = self.mix(self.add(self.mix(inner), self.constant(seed)))
        x = self.multiply(self.add(place, key), FIRST)
        x = self.add(self.multiply(self.fold(x, 15), SECOND), key)
        x = self.multiply(self.fold(x, 16), GOLDEN)
        return self.shift(x, 32 - BITS)


INTEGERS: Words[Any] = Words(
    lambda x, y: (x + y) & WORD,
    # For int64 tensors the product wraps modulo 2**64, a multiple of 2**32: its low word is right.
    lambda x, factor: (x * factor) & WORD,
    lambda x, count: x >> count,
    lambda x, y: x ^ y,
    lambda value: value,
)
"""Words as integers: of Python, or tensors of int64, whose products wrap modulo 2**64."""

UNSIGNED: Words[Any] = Words(
    lambda x, y: x + y,
    lambda x, factor: x * np.uint32(factor),
    lambda x, count: x >> np.uint32(count),
    lambda x, y: x ^ y,
    np.uint32,
)
"""Words as arrays of uint32, of NumPy or JAX."""


def seed_word(seed: int) -> int:
    """Returns the word that a seed stands for in keys.

    Example:
        >>> seed_of_word(seed_word(5))
        5
    """
    word: int = INTEGERS.mix((seed + GOLDEN) & WORD)
    return word


def seed_of_word(word: int) -> int:
    """Returns the seed of a word: the steps of ``mix`` are undone."""
    word ^= word >> 16
    # Odd factors are invertible modulo 2**32.
    word = word * pow(SECOND, -1, 2**32) & WORD
    # x ^ x >> 15 is undone by x ^ x >> 15 ^ x >> 30: further shifts exceed 32 bits.
    word ^= word >> 15 ^ word >> 30
    word = word * pow(FIRST, -1, 2**32) & WORD
    return ((word ^ word >> 16) - GOLDEN) & WORD


def uniform(shape: tuple[int, ...], step: int, seed: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Returns multiples of 2**-16 in [0, 1) for the elements of a tensor, in row-major order."""
    count = int(np.prod(shape, dtype=np.int64))
    place = np.arange(count, dtype=np.uint64).astype(np.uint32).reshape(shape)
    low, high = np.array([step & WORD], np.uint32), np.array([step >> 32 & WORD], np.uint32)
    # At least one axis: NumPy warns of the overflow of scalars and not of that of arrays.
    bits = UNSIGNED.bits(np.atleast_1d(place), low, high, seed_word(seed))
    # 16 bits are exact in float32, and a product with a power of two rounds nothing.
    numbers: NDArray[Any] = bits.reshape(shape).astype(dtype) * dtype.type(2.0**-BITS)
    return numbers

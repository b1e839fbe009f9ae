"""Blends of two numbers along a progress from 0 to 1, as plain functions that curves call.

Example:
    >>> along_line(1.0, 0.0, 0.25), along_cosine(1.0, 0.0, 0.5)
    (0.75, 0.5)
"""

import math


def along_line(first: float, last: float, progress: float) -> float:
    """Returns the straight line."""
    return first + (last - first) * progress


def along_cosine(first: float, last: float, progress: float) -> float:
    """Returns half a cosine, which is flat at both ends."""
    return last + (first - last) * (1 + math.cos(math.pi * progress)) / 2


def to_power(base: float, exponent: float) -> float:
    """Returns a power, which is a float where the base is positive."""
    result: float = base**exponent
    return result

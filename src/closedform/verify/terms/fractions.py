"""The simplest fraction of an interval: 22/7 between 3.14 and 3.15."""

from __future__ import annotations

from flint import fmpq

from closedform.errors import VerificationError


def simplest_between(low: fmpq, high: fmpq) -> fmpq:
    """Returns the rational of the least denominator in ``[low, high]``, of these the least in size.

    Continued fractions: while both ends have the same whole part, it is that of the result.

    Example:
        >>> simplest_between(fmpq(314, 100), fmpq(315, 100))
        22/7
    """
    if low > high:
        raise VerificationError(f"the interval from {low} to {high} is empty")
    if low <= 0 <= high:
        return fmpq(0)
    if high < 0:
        return -simplest_between(-high, -low)
    wholes = []
    while True:
        whole = fmpq(low.floor())
        if whole == low or whole + 1 <= high:
            wholes.append(whole if whole == low else whole + 1)
            break
        wholes.append(whole)
        # Inversion exchanges the ends.
        low, high = 1 / (high - whole), 1 / (low - whole)
    result = wholes.pop()
    while wholes:
        result = wholes.pop() + 1 / result
    return result


def bits(number: fmpq) -> int:
    """Returns the bits of numerator and denominator together, the measure of simplicity."""
    return abs(int(number.p)).bit_length() + int(number.q).bit_length()

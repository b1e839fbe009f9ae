"""Exact numbers of balls, and the precision of the arithmetic of balls.

The exponent of a ball may be any integer, so the fraction and the integer of one may need more
memory than there is, and FLINT ends the process then. No other file asks FLINT for them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from flint import arb, ctx, fmpq

from closedform.magnitude import MOST_BITS

_LOCK = threading.RLock()


@contextlib.contextmanager
def ball_precision(bits: int) -> Iterator[None]:
    """Sets the precision of balls in a block, which no other block of another thread changes."""
    # The context of python-flint is one for all threads.
    with _LOCK, ctx.workprec(bits):
        yield


def bounds(ball: arb) -> tuple[fmpq, fmpq] | None:
    """Returns the ends of a ball as fractions; None where they are infinite or too long.

    Example:
        >>> bounds(arb(3)), bounds(arb(2) ** -51200000000)
        ((3, 3), None)
    """
    if not ball.is_finite() or not (_is_short(ball.mid()) and _is_short(ball.rad())):
        return None
    middle, radius = ball.mid().fmpq(), ball.rad().fmpq()
    return middle - radius, middle + radius


def whole_number(ball: arb) -> int | None:
    """Returns the one integer in a ball; None where there are several, none, or it is too long.

    Example:
        >>> whole_number(arb(3)), whole_number(arb(3, 1)), whole_number(arb(2) ** 51200000000)
        (3, None, None)
    """
    if not ball.is_finite() or not _is_short(ball.mid()):
        return None
    number = ball.unique_fmpz()
    return None if number is None else int(number)


def _is_short(number: arb) -> bool:
    """Whether the fraction of an exact finite ball has at most ``MOST_BITS`` bits."""
    mantissa, exponent = number.man_exp()
    return abs(int(exponent)) + int(mantissa).bit_length() <= MOST_BITS

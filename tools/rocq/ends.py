"""The ends of intervals as text of Rocq."""

from __future__ import annotations

from flint import fmpq

from closedform.verify.checker import intervals as arithmetic
from closedform.verify.checker.intervals import End, Interval
from tools.rocq.definitions import InexpressibleError

Proof = tuple[str, Interval]
"""The proof of an interval, and the interval."""


def rational_text(number: fmpq) -> str:
    """Returns a fraction of the type Q."""
    return f"({int(number.p)} # {int(number.q)})%Q"


def end_text(end: End) -> str:
    """Returns an end that is not open."""
    if end is None:
        raise InexpressibleError("an open end has no text")
    return rational_text(end)


def ends_text(interval: Interval) -> str:
    """Returns the ends of an interval."""
    texts = ["None" if end is None else f"Some {rational_text(end)}" for end in interval]
    return f"({texts[0]}, {texts[1]})"


def opposite(proof: Proof) -> Proof:
    """Returns the proof of the interval of the number with the opposite sign."""
    return f"(b_opposite {proof[0]})", arithmetic._opposite(proof[1])

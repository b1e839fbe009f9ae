"""The two sides of a counterexample as texts that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flint import arb, fmpq

from closedform.language.balls import ball_precision
from closedform.verify.terms.evaluate import Undefined, text_of

_DIGITS = (12, 20, 40, 80)
_NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class Sides:
    """Two values that differ.

    Attributes:
        left: The first one as text.
        right: The second one as text, another one than ``left``.
        difference: The absolute difference as text; "" where a value is undefined.
        is_near: Whether the first digits of both agree.
    """

    left: str
    right: str
    difference: str = ""
    is_near: bool = False

    @property
    def suffix(self) -> str:
        """The difference as a clause; "" where a value is undefined."""
        return f": they differ by {self.difference}" if self.difference else ""


def sides_of(left: fmpq | arb | Undefined, right: fmpq | arb | Undefined) -> Sides:
    """Returns two values as texts with as many digits as it takes to tell them apart.

    A ball is written as its middle: the middles of two balls without a common number differ.

    Example:
        >>> sides_of(fmpq(1, 3), fmpq(10**12 + 1, 3 * 10**12))
        Sides(left='1/3', right='0.333333333334', difference='3.33e-13', is_near=True)
    """
    if isinstance(left, Undefined) or isinstance(right, Undefined):
        return Sides(text_of(left), text_of(right))
    with ball_precision(512):
        gap = abs(_middle(left) - _middle(right))
        size = abs(_middle(left)).max(abs(_middle(right)))
        difference = str(gap.str(3, radius=False))
        is_near = bool(gap < size * _NEAR)
        # 9/100 and 0.0900000000000 say nothing next to each other.
        is_decimal = is_near and isinstance(left, fmpq) is not isinstance(right, fmpq)
        for digits in _DIGITS:
            texts = tuple(_text(side, digits, is_decimal=is_decimal) for side in (left, right))
            if texts[0] != texts[1]:
                break
    return Sides(texts[0], texts[1], difference, is_near)


def _middle(number: Any) -> arb:
    return arb(number).mid()


def _text(number: Any, digits: int, *, is_decimal: bool) -> str:
    is_fraction = isinstance(number, fmpq) and not is_decimal
    if is_fraction and max(abs(number.p), number.q) < 10 ** _DIGITS[0]:
        return str(number)
    return str(_middle(number).str(digits, radius=False))

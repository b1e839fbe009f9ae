"""Time that a proof may take: a moment that is asked for, and passed on to what can run long."""

from __future__ import annotations

import time
from dataclasses import dataclass


class OutOfTime(Exception):  # noqa: N818 - a bound that is met, not a fault
    """The moment has passed."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the machine's clock.

    Args:
        moment: The moment, in seconds of ``time.monotonic``.
    """

    moment: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Returns the moment that many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.moment - time.monotonic())

    def earlier(self, seconds: float) -> Deadline:
        """Returns the moment that many seconds from now, or this one if it is nearer."""
        return Deadline(min(self.moment, time.monotonic() + seconds))

    def check(self) -> None:
        """Raises OutOfTime if the moment has passed."""
        if time.monotonic() > self.moment:
            raise OutOfTime

    def milliseconds(self, most: int) -> int:
        """Returns the milliseconds for one step that should take ``most``.

        Raises:
            OutOfTime: The moment has passed.
        """
        self.check()
        return max(1, min(most, int(self.left * 1000)))


NEVER = Deadline(float("inf"))
"""A moment that does not come."""

"""Effort: how much work a search may do, the same on every machine.

A verdict must not depend on how fast the machine is or on what else runs on it. So budgets count
work, as the heartbeats of Lean do: terms that are built, visited and evaluated, products of
monomials, intervals, nodes of graphs, and the resource units of z3. Algorithms report their work to
a meter of their thread with ``spend``; an ``Effort`` is a reading of the meter at which a search
ends. One unit is about a microsecond of one core of 2023.

The clock is read for one purpose: a limit of wall-clock time that a caller asks for. It is off by
default, and a verdict that it ended names it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


class OutOfEffort(Exception):  # noqa: N818 - a bound that is met, not a fault
    """The work is done that was allowed, or the wall-clock time is over."""


class Meter(threading.local):
    """The work that a thread has done since it began; only differences count.

    Attributes:
        work: The units of work.
        most: The reading beyond which ``spend`` and ``walk`` of terms raise OutOfEffort.
    """

    work: int = 0
    most: float = math.inf


METER = Meter()
"""The meter of this thread; loops add to it directly, where a call for each step costs too much."""


def spend(units: int) -> None:
    """Reports some work to the meter of this thread; OutOfEffort where none is allowed."""
    METER.work += units
    if METER.work > METER.most:
        raise OutOfEffort


@dataclass(frozen=True, slots=True)
class Effort:
    """The work that a search may do, as a reading of the meter of this thread.

    Work counts against all efforts that have begun, so a portion charges what it is a portion of.

    Args:
        end: The reading at which it ends.
        seconds: The limit of wall-clock time; None if there is none.
        moment: When that time is over, in seconds of ``time.monotonic``.
    """

    end: float
    seconds: float | None = None
    moment: float = math.inf

    @classmethod
    def of(cls, units: float, seconds: float | None = None) -> Effort:
        """Returns an effort of so many units from now on, and at most so many seconds.

        Args:
            units: The units of work.
            seconds: A limit of wall-clock time; None for none, so that only work counts.
        """
        moment = math.inf if seconds is None else time.monotonic() + seconds
        return cls(METER.work + units, seconds, moment)

    @property
    def left(self) -> int:
        """The units that are left, at least 0."""
        if self.is_late:
            return 0
        return 2**62 if self.end == math.inf else max(0, int(self.end) - METER.work)

    @property
    def signed_left(self) -> int:
        """The units that are left, below 0 where the last step took more."""
        return int(self.end) - METER.work

    @property
    def is_late(self) -> bool:
        """Whether there is a limit of wall-clock time, and it has passed."""
        return self.seconds is not None and time.monotonic() > self.moment

    @property
    def seconds_left(self) -> float:
        """The wall-clock time that is left, at least 0; infinite if there is no limit of it."""
        return max(0.0, self.moment - time.monotonic()) if self.seconds is not None else math.inf

    def portion(self, units: float) -> Effort:
        """Returns an effort of so many units from now on, at most of what is left."""
        return replace(self, end=min(self.end, METER.work + units))

    def spend(self, units: int) -> None:
        """Reports some work, and raises OutOfEffort if none is left."""
        METER.work += units
        self.check()

    def check(self) -> None:
        """Raises OutOfEffort if nothing is left."""
        if METER.work > self.end or self.is_late:
            raise OutOfEffort

    @contextmanager
    def enforce(self) -> Iterator[None]:
        """Ends all work on terms in this context where this effort ends, by OutOfEffort.

        A comparison of two terms of thousands of choices is one step of a search, which looks at
        its effort between steps.
        """
        most = METER.most
        METER.most = min(most, self.end)
        try:
            yield
        finally:
            METER.most = most

    def step(self, units: float) -> Effort:
        """Returns a portion for one step of a search.

        Raises:
            OutOfEffort: Nothing is left.
        """
        self.check()
        return self.portion(units)

    def why(self) -> str:
        """Returns why a search that used up this effort ended, for people."""
        if self.is_late:
            return (
                f"the limit of {self.seconds:g} s of wall-clock time was reached: "
                "the verdict depends on the machine"
            )
        return "the effort was used up; a larger one may decide it"


class Watch:
    """The wall-clock time since it was made: to be told, never to decide."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """The seconds since it was made."""
        return time.monotonic() - self._begun


UNLIMITED = Effort(math.inf)
"""An effort without end."""

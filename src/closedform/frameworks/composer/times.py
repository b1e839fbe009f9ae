"""Time strings of Composer: ``"5ba"``, ``"0.3dur"``, ``"2ep"``, in batches, samples or tokens."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import DefinitionError
from closedform.language import exact_number
from closedform.recipes import kit

_TIME = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(ba|sp|tok|ep|dur)\s*")
_CLOCKS = {
    "ba": kit.Clock(kit.Unit.UPDATE),
    "sp": kit.Clock(kit.Unit.SAMPLE),
    "tok": kit.Clock(kit.Unit.TOKEN),
}


@dataclass(frozen=True, slots=True)
class Time:
    """An amount and its unit: ba, sp, tok; ep and dur before the conversion."""

    value: float
    unit: str

    @property
    def exact(self) -> sp.Expr:
        """The amount as an exact number."""
        return exact_number(self.value)


def read_time(text: object, name: str, where: str) -> Time:
    """Returns the time of a string.

    Raises:
        DefinitionError: It is not a time string.
    """
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise DefinitionError(
            f"{name} must be a time such as '10ba', '2ep' or '0.1dur', got {text!r}", where=where
        )
    value, unit = float(match[1]), match[2]
    if unit == "dur":
        return Time(value, unit)
    kit.refuse_unless(
        value.is_integer(), f"{name} must be a whole number of {unit}, got {text!r}", where
    )
    return Time(int(value), unit)


@dataclass(frozen=True, slots=True)
class Trainer:
    """The numbers that convert times to batches.

    Attributes:
        facts: Batches of an epoch, samples and tokens of a batch.
        length: ``max_duration``, scaled; in batches if it was in epochs.
        unit: The unit of ``max_duration`` in the config.
        ratio: ``scale_schedule_ratio``.
        where: The place, for errors.
        as_implemented: Whether a scaled warmup ends where one that is not scaled would end.
    """

    facts: kit.Facts
    length: Time
    unit: str
    ratio: float
    where: str
    as_implemented: bool

    @property
    def epoch(self) -> int:
        """The batches of an epoch.

        Raises:
            MissingFactsError: They are not known.
        """
        (batches,) = self.facts.require("updates_per_epoch", where=self.where)
        return int(batches)

    def time(self, values: kit.Section, name: str, ratio: float | None = None) -> Time:
        """Returns a time of a scheduler in batches, samples or tokens, as Python's floats have it.

        Args:
            values: The arguments of the scheduler.
            name: The argument.
            ratio: The factor of times that are not a part of the run; by default that of the run.
        """
        return self.convert(getattr(values, name), name, ratio)

    def convert(self, text: object, name: str, ratio: float | None = None) -> Time:
        """Returns the time of a string, as ``time`` does."""
        time = read_time(text, name, self.where)
        if time.unit == "dur":
            return self._whole(time.value * self.length.value, self.length.unit, name)
        factor = self.ratio if ratio is None else ratio
        if time.unit == "ep":
            return self._whole(time.value * self.epoch * factor, "ba", name)
        return self._whole(time.value * factor, time.unit, name)

    def _whole(self, amount: float, unit: str, name: str) -> Time:
        kit.refuse_unless(math.isfinite(amount), f"{name} is too long: {amount}", self.where)
        return Time(int(amount), unit)

    def now(self, unit: str) -> sp.Expr:
        """Returns the timestamp of update t in a unit."""
        return _CLOCKS[unit].position(self.facts)

    def first_from(self, time: Time) -> int:
        """Returns the first update at which a time is reached."""
        return int(kit.first_from(time.exact / _CLOCKS[time.unit].per_update(self.facts)))


class Duration(kit.Section):
    max_duration: Any = None
    scale_schedule_ratio: kit.Number = 1


def trainer(config: Duration, context: kit.Context) -> Trainer:
    """Returns the trainer of ``max_duration`` and ``scale_schedule_ratio``."""
    where, duration, ratio = context.where, config.max_duration, float(config.scale_schedule_ratio)
    kit.refuse_unless(ratio > 0, f"scale_schedule_ratio must be above 0, got {ratio!r}", where)
    # A number of the trainer's configs counts epochs.
    duration = f"{duration}ep" if isinstance(duration, int) else duration
    time = read_time(duration, "max_duration", where)
    kit.refuse_unless(
        time.unit != "dur", f"max_duration must not be in dur, got {duration!r}", where
    )
    length = replace(time, value=int(time.value * ratio))
    kit.refuse_unless(length.value > 0, f"max_duration {duration!r} times {ratio} is 0", where)
    run = Trainer(context.numbers, length, time.unit, ratio, where, context.as_implemented)
    if time.unit != "ep":
        return run
    return replace(run, length=Time(int(length.value) * run.epoch, "ba"))

"""Time strings of Composer: ``"5ba"``, ``"0.3dur"``, ``"2ep"``, in batches, samples or tokens."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import sympy as sp

from closedform.errors import DefinitionError
from closedform.recipes.clock import Clock, Facts, Unit
from closedform.recipes.entries import Context
from closedform.recipes.native import exact, refuse_unless

_TIME = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*(ba|sp|tok|ep|dur)\s*")
_CLOCKS = {"ba": Clock(Unit.UPDATE), "sp": Clock(Unit.SAMPLE), "tok": Clock(Unit.TOKEN)}


@dataclass(frozen=True, slots=True)
class Time:
    """An amount and its unit: ba, sp, tok; ep and dur before the conversion."""

    value: float
    unit: str


def read_time(text: object, name: str, where: str) -> Time:
    """Returns the time of a string.

    Raises:
        DefinitionError: It is not a time string.
    """
    found = _TIME.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise DefinitionError(
            f"{name} must be a time such as '10ba', '2ep' or '0.1dur', got {text!r}", where=where
        )
    value = float(found[1])
    if found[2] != "dur":
        refuse_unless(
            value.is_integer(), f"{name} must be a whole number of {found[2]}, got {text!r}", where
        )
        return Time(int(value), found[2])
    return Time(value, "dur")


@dataclass(frozen=True, slots=True)
class Trainer:
    """The numbers that convert times to batches.

    Attributes:
        batches: Batches in an epoch; None if it is not known.
        facts: Samples and tokens of a batch.
        length: ``max_duration``, scaled; in batches if it was in epochs.
        given: The unit that ``max_duration`` was given in.
        ratio: ``scale_schedule_ratio``.
        where: The place, for errors.
        as_implemented: Whether a scaled warmup ends where one that is not scaled would end.
    """

    batches: int | None
    facts: Facts
    length: Time
    given: str
    ratio: float
    where: str
    as_implemented: bool = True

    def epochs(self, value: float) -> float:
        """Returns a number of epochs in batches.

        Raises:
            DefinitionError: The length of an epoch is not known.
        """
        if self.batches is None:
            raise DefinitionError(
                "times in epochs and parts of the run need the fact dataloader_len_batches",
                where=self.where,
            )
        return value * self.batches

    def convert(self, text: object, name: str, ratio: float | None = None) -> Time:
        """Returns a time in batches, samples or tokens, as Python's floats have it.

        Args:
            text: The time string.
            name: Its name, for errors.
            ratio: The factor of times that are not a part of the run.
        """
        time = read_time(text, name, self.where)
        if time.unit == "dur":
            if self.given == "ep":
                self.epochs(0)
            return Time(self._whole(time.value * self.length.value, name), self.length.unit)
        value = self.epochs(time.value) if time.unit == "ep" else time.value
        unit = "ba" if time.unit == "ep" else time.unit
        return Time(self._whole(value * (self.ratio if ratio is None else ratio), name), unit)

    def _whole(self, amount: float, name: str) -> int:
        refuse_unless(math.isfinite(amount), f"{name} is too long: {amount}", self.where)
        return int(amount)

    def now(self, unit: str) -> sp.Expr:
        """Returns the timestamp of update t in a unit."""
        return _CLOCKS[unit].position(self.facts)

    def update(self, time: Time) -> sp.Expr:
        """Returns the update, perhaps a fraction, at which a time is reached."""
        return _CLOCKS[time.unit].updates(time.value, self.facts)


def trainer(duration: object, ratio: object, context: Context) -> Trainer:
    """Returns the trainer of ``max_duration`` and ``scale_schedule_ratio``."""
    where = context.where
    factor = float(exact(ratio))
    refuse_unless(factor > 0, f"scale_schedule_ratio must be above 0, got {ratio!r}", where)
    time = read_time(duration, "max_duration", where)
    refuse_unless(time.unit != "dur", f"max_duration must not be in dur, got {duration!r}", where)
    facts = Facts(
        global_batch_size=context.facts.get("samples_per_batch"),
        tokens_per_update=context.facts.get("tokens_per_batch"),
    )
    batches = context.facts.get("dataloader_len_batches")
    unscaled = Trainer(batches, facts, time, time.unit, factor, where)
    scaled = int(time.value * factor)
    refuse_unless(scaled > 0, f"max_duration {duration!r} times {ratio} is 0", where)
    length = Time(scaled, time.unit)
    if time.unit == "ep":
        length = Time(int(unscaled.epochs(scaled)), "ba")
    return Trainer(batches, facts, length, time.unit, factor, where, context.as_implemented)

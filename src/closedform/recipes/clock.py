"""Clocks and facts: what a framework counts, and the conversion to optimizer updates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

import sympy as sp

from closedform.errors import ArgumentError, DefinitionError, MissingFactsError, nearest
from closedform.language import Schedule, exact_number, floor_div, t
from closedform.language.aliases import Number
from closedform.language.in_units import ScheduleInUnits
from closedform.language.lengths import Length


class Unit(StrEnum):
    """The unit of a clock."""

    UPDATE = "update"
    MICRO_BATCH = "micro_batch"
    PROCESS_STEP = "process_step"
    SAMPLE = "sample"
    TOKEN = "token"
    EPOCH = "epoch"
    TRAINING_STEP = "training_step"
    RUN = "run"
    WARMUP = "warmup"


# max_iters of litgpt counts micro-batches of one process, steps_per_epoch updates.
_NAMES = {
    "total_updates": "TRAIN_STEPS max_steps max_train_steps num_iterations num_steps "
    "num_train_steps num_training_steps total_steps train_iters train_updates training_steps "
    "updates",
    "gradient_accumulation": "accumulation gradient_accumulation_iters gradient_accumulation_steps",
    "lr": "base_lr optimizer_lr",
    "defaults": "base_yml_defaults",
    "global_batch_size": "batch_size global_train_batch_size increment_per_update "
    "samples_per_batch train_batch_size",
    "micro_batches_per_epoch": "batches_all_processes",
    "updates_per_epoch": "batches_per_epoch dataloader_len_batches epoch_length iters_per_epoch "
    "steps_per_epoch",
    "dataset_size": "data_size",
    "world_size": "devices num_processes",
    "total_micro_batches": "max_iters",
    "sequence_length": "max_seq_len max_seq_length",
    "tokens_per_update": "tokens_per_batch",
    "warmup_updates": "warmup_steps",
    "weight_decay": "wd",
}
ALIASES: Mapping[str, str] = {
    name: fact for fact, names in _NAMES.items() for name in names.split()
}
"""A framework's name of a fact -> its name in :class:`Facts`."""

CHECKED = ("lr", "total_updates", "warmup_updates", "weight_decay")
"""Facts that a config may determine as well: config and fact must agree."""

# Composer and Ultralytics count batches of their dataloader: with accumulation several make an
# update.
_BATCHES = ("batches_per_epoch", "dataloader_len_batches")
"""Names of ``updates_per_epoch`` that count batches of the dataloader instead of updates."""

_NOT_NUMBERS = ("group", "defaults", "framework_facts")
_MAY_BE_ZERO = ("warmup_updates", "lr", "weight_decay")


@dataclass(frozen=True, slots=True)
class Facts:
    """The numbers of a run that its config does not contain; None where one is not known.

    Attributes:
        global_batch_size: Samples in an optimizer update, over all processes.
        micro_batch_size: Samples in one forward pass of one process.
        world_size: The number of data-parallel processes.
        gradient_accumulation: Micro-batches of one process in an update.
        dataset_size: Samples in an epoch.
        sequence_length: Tokens in a sample.
        total_updates: Optimizer updates of the run.
        updates_per_epoch: Optimizer updates in an epoch, where it is not
            ``dataset_size / global_batch_size``.
        micro_batches_per_epoch: Micro-batches of an epoch, before they are divided among the
            processes, where it is not ``dataset_size / micro_batch_size``.
        updates_per_training_step: Optimizer updates in a training step of reinforcement learning,
            which share one value of a schedule.
        tokens_per_update: Tokens in an update, where it is not
            ``global_batch_size * sequence_length``.
        warmup_updates: Optimizer updates of the warmup, 0 for none.
        epochs: Epochs of the run.
        total_micro_batches: Micro-batches of one process in the run.
        lr: The base rate.
        weight_decay: The weight decay of the optimizer.
        group: The param group that is asked for, by its name in the config.
        defaults: Options of the framework's default config, which count where the config is
            silent.
        framework_facts: Facts that only the framework of the config has (``Framework.facts``), by
            its names for them.
    """

    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    world_size: int | None = None
    gradient_accumulation: int | None = None
    dataset_size: int | None = None
    sequence_length: int | None = None
    total_updates: int | None = None
    updates_per_epoch: int | None = None
    micro_batches_per_epoch: int | None = None
    updates_per_training_step: int | None = None
    tokens_per_update: int | None = None
    warmup_updates: int | None = None
    epochs: Number | None = None
    total_micro_batches: int | None = None
    lr: Number | None = None
    weight_decay: Number | None = None
    group: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    framework_facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Checked here so that a fact of 0, as of an empty dataset, does not become a division by
        # zero later.
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is None or entry.name in _NOT_NUMBERS:
                continue
            least = "at least" if entry.name in _MAY_BE_ZERO else "above"
            number = exact_number(value, f"the fact {entry.name}")
            if not (number > 0 or (number == 0 and entry.name in _MAY_BE_ZERO)):
                raise DefinitionError(f"the fact {entry.name} must be {least} 0, got {value!r}")
        if not isinstance(self.defaults, Mapping):
            raise DefinitionError(
                f"the fact defaults must be a mapping of options, got {self.defaults!r:.60}"
            )

    @classmethod
    def among(cls, entries: Mapping[str, Any]) -> Facts:
        """Returns the facts of a mapping that may hold other entries, as ``of`` does."""
        names = {entry.name for entry in fields(cls)}
        return cls.of({key: entries[key] for key in entries if ALIASES.get(key, key) in names})

    @classmethod
    def of(cls, entries: Mapping[str, Any], names: Collection[str] = ()) -> Facts:
        """Returns the facts of a mapping, whose keys are names of ``Facts`` or of a framework.

        The entry ``assumed``, a list of the facts that were not measured, is skipped.

        Args:
            entries: The facts.
            names: Facts that only the framework has, which go to ``framework_facts``.

        Raises:
            ArgumentError: A name is unknown.
            DefinitionError: Two names of one fact have different values, or a value is not above 0.

        Example:
            >>> Facts.of({"training_steps": 100}).total_updates
            100
        """
        fact_names = {entry.name for entry in fields(cls)} - {"framework_facts"}
        values: dict[str, Any] = {}
        framework_facts: dict[str, Any] = {}
        for key, value in entries.items():
            if key in names:
                framework_facts[key] = value
                continue
            name = ALIASES.get(key, key)
            if name == "assumed":
                continue
            if key in _BATCHES and value is not None:
                value = _updates_of_batches(value, entries)
                if value is None:
                    continue
            if name not in fact_names:
                raise ArgumentError(
                    f"unknown fact {key!r}", hint=nearest(str(key), {*fact_names, *ALIASES, *names})
                )
            # Two names of one fact, such as max_steps and num_steps, may agree.
            if values.get(name, value) != value:
                raise DefinitionError(
                    f"the fact {name} has two values, {values[name]!r} and {value!r} as {key!r}"
                )
            values[name] = value
        return cls(**values, framework_facts=framework_facts)

    def require(self, *names: str, where: str | None = None) -> tuple[sp.Expr, ...]:
        """Returns facts as exact numbers.

        Raises:
            MissingFactsError: One or several are not known; the message lists all of them.

        Example:
            >>> Facts(global_batch_size=8).require("global_batch_size")
            (8,)
        """
        missing = [name for name in names if getattr(self, name) is None]
        if missing:
            hint = f"this needs the facts {', '.join(names)}"
            raise missing_facts(", ".join(missing), where, hint)
        return tuple(exact_number(getattr(self, name), name) for name in names)


def missing_facts(names: str, where: str | None, hint: str | None = None) -> MissingFactsError:
    """Returns the error of facts that are not known."""
    return MissingFactsError(f"missing facts: {names}", where=where, hint=hint)


def _updates_of_batches(batches: Any, facts: Mapping[str, Any]) -> Any:
    """The updates of batches; None for a part of one, which frameworks round up, down or drop."""
    parts = (facts[key] for key in facts if ALIASES.get(key, key) == "gradient_accumulation")
    accumulation = next((part for part in parts if part is not None), 1)
    # Booleans and floats are left as they are: they are refused with the fact's name later.
    if accumulation == 1 or not isinstance(batches, int) or not isinstance(accumulation, int):
        return batches
    # Whether the last, smaller group makes an update depends on the framework: then the fact stays
    # open.
    return None if accumulation < 1 or batches % accumulation else batches // accumulation


_FACTORS: Mapping[Unit, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Unit.UPDATE: ((), ()),
    Unit.MICRO_BATCH: (("gradient_accumulation",), ()),
    Unit.PROCESS_STEP: (("world_size",), ()),
    Unit.SAMPLE: (("global_batch_size",), ()),
    Unit.TOKEN: (("global_batch_size", "sequence_length"), ()),
    Unit.EPOCH: (("global_batch_size",), ("dataset_size",)),
    Unit.TRAINING_STEP: ((), ("updates_per_training_step",)),
    Unit.RUN: ((), ("total_updates",)),
    Unit.WARMUP: ((), ("warmup_updates",)),
}
"""Unit -> the facts that are multiplied to its number in an update, and its divisors."""

# A tokens_per_update of packed sequences is not batch times length.
_GIVEN_FACTORS: Mapping[Unit, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Unit.TOKEN: (("tokens_per_update",), ()),
    Unit.EPOCH: ((), ("updates_per_epoch",)),
}
"""Facts that replace the entries of ``_FACTORS`` where they are known."""


def _factors(unit: Unit, facts: Facts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    factors = _GIVEN_FACTORS.get(unit)
    # sum(factors, ()) joins multipliers and divisors.
    if factors is not None and all(getattr(facts, name) is not None for name in sum(factors, ())):
        return factors
    return _FACTORS[unit]


@dataclass(frozen=True, slots=True)
class Clock:
    """The unit that a schedule counts, and the count that update t uses.

    Update t, counted from 0, uses the value of the schedule at ``position(facts)``:
    ``(t + offset)`` updates in the unit of the clock.

    Attributes:
        unit: The unit. ``PROCESS_STEP`` is the clock of accelerate, which steps its scheduler once
            for each process.
        offset: 0 if the value is taken before the update is counted, 1 if after it, -1 if it is one
            update late.
        is_stepped: Whether all updates of a unit share one value: the schedules are functions of
            the whole units that are done. A training step of reinforcement learning and an epoch
            are such units.

    Example:
        >>> Clock(Unit.SAMPLE, offset=1).position(Facts(global_batch_size=8))
        8*t + 8
    """

    unit: Unit = Unit.UPDATE
    offset: int = 0
    is_stepped: bool = False

    def updates_per_value(self, facts: Facts) -> int:
        """Returns the number of updates that share a value: 1 unless the clock is stepped.

        The units of a stepped clock count as one update each where no fact says otherwise.

        Raises:
            DefinitionError: A unit is not a whole number of updates.

        Example:
            >>> clock = Clock(Unit.TRAINING_STEP, is_stepped=True)
            >>> (
            ...     clock.updates_per_value(Facts()),
            ...     clock.updates_per_value(Facts(updates_per_training_step=4)),
            ... )
            (1, 4)
        """
        if not self.is_stepped or any(
            getattr(facts, name) is None for name in sum(_factors(self.unit, facts), ())
        ):
            return 1
        # The units of one update, exactly: 1 / (batch / dataset) updates in an epoch.
        updates = 1 / self.per_update(facts)
        if not updates.is_integer:
            raise DefinitionError(
                f"the updates of a {self.unit.replace('_', ' ')} must be a whole number, "
                f"got {updates}"
            )
        return int(updates)

    def per_update(self, facts: Facts) -> sp.Expr:
        """Returns by how much the clock advances in one update, exactly.

        Raises:
            ArgumentError: A fact is missing.
        """
        over, under = _factors(self.unit, facts)
        values = facts.require(*over, *under)
        return sp.Mul(*values[: len(over)]) / sp.Mul(*values[len(over) :])

    def position(self, facts: Facts) -> sp.Expr:
        """Returns the count that update ``t`` uses, as an expression in ``t``.

        Raises:
            ArgumentError: A fact is missing.
        """
        # expand() turns (t + 1)·B into B·t + B, which the compiler reads as a line.
        return sp.expand((t + self.offset) * self.per_update(facts))

    def updates(self, amount: Number, facts: Facts) -> sp.Expr:
        """Returns an amount of the unit in optimizer updates, exactly; it may be a fraction.

        Raises:
            ArgumentError: A fact is missing.

        Example:
            >>> Clock(Unit.TOKEN).updates(300e9, Facts(tokens_per_update=4_000_000))
            75000
        """
        return exact_number(amount, f"a number of {self.unit}s") / self.per_update(facts)


# Marks in the conditions are translated, not wrapped into a floor: the step then changes at the
# update itself, and the compiler needs no floor for it.
def hold(schedule: Schedule, updates: int) -> Schedule:
    """Returns a schedule whose every value serves a number of updates: s(floor(t / updates)).

    Example:
        >>> from closedform.schedules import linear
        >>> slow = hold(linear(0, 8, steps=8), 4)
        >>> slow.exact(3), slow.exact(4)
        (0, 1)
    """
    if updates == 1:
        return schedule
    last = schedule.last_step
    expr = schedule.bound.replace(_is_mark, lambda test: _in_updates(test, updates))
    # Two symbols: t within the values becomes floor(t / n), t within the tests stays the update.
    return Schedule.of(
        expr.xreplace({t: floor_div(t, updates), _UPDATE: t}),
        {},
        name=schedule.name,
        # The last unit ends with its last update.
        domain=() if last is None else (t <= (last + 1) * updates - 1,),
        ending=schedule.ending,
    )


_UPDATE = sp.Dummy("t", integer=True, nonnegative=True)
"""The update in the tests of a schedule whose values count other units."""


def _is_mark(expr: sp.Basic) -> bool:
    """Whether an expression compares the clock with a number."""
    kinds = (sp.StrictLessThan, sp.LessThan, sp.StrictGreaterThan, sp.GreaterThan)
    return isinstance(expr, kinds) and expr.lhs == t and bool(expr.rhs.is_Rational)


def _in_updates(test: sp.Rel, updates: int) -> sp.Rel:
    """The test of update t for one of floor(t / updates)."""
    # floor(t / n) > r where t >= (floor(r) + 1) n, and floor(t / n) >= r where t >= ceil(r) n.
    is_after = isinstance(test, sp.LessThan | sp.StrictGreaterThan)
    first = (sp.floor(test.rhs) + 1 if is_after else sp.ceiling(test.rhs)) * updates
    is_below = isinstance(test, sp.StrictLessThan | sp.LessThan)
    return sp.Lt(_UPDATE, first) if is_below else sp.Ge(_UPDATE, first)


class Rounding(StrEnum):
    """The rounding of a length that is not a whole number of updates."""

    EXACT = "exact"
    FLOOR = "floor"
    CEIL = "ceil"
    NEAREST = "nearest"


_ROUNDED: Mapping[Rounding, Callable[[sp.Expr], sp.Expr]] = {
    Rounding.EXACT: lambda updates: updates,
    Rounding.FLOOR: sp.floor,
    Rounding.CEIL: sp.ceiling,
    # Halves are rounded up: Python's round would take 2.5 to 2.
    Rounding.NEAREST: lambda updates: sp.floor(updates + sp.S.Half),
}

_FUNCTIONS: Mapping[Unit, str] = {
    Unit.MICRO_BATCH: "micro_batches",
    Unit.SAMPLE: "samples",
    Unit.TOKEN: "tokens",
    Unit.EPOCH: "epochs",
    Unit.RUN: "fraction",
}


_UNITS = {name: unit for unit, name in _FUNCTIONS.items()}


@dataclass(frozen=True, slots=True)
class Amount(Length):
    """A length of a schedule in a unit, which facts convert to updates.

    Attributes:
        value: The number of units, exact.
        unit: The unit.
        rounding: The rounding of a length that is not a whole number of updates; ``exact`` leaves
            it a fraction, which a schedule takes or refuses. ``nearest`` rounds halves up.

    Raises:
        DefinitionError: The number is not finite.
    """

    value: Number
    unit: Unit = field(default=Unit.UPDATE)
    rounding: Rounding = field(default=Rounding.EXACT)

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", exact_number(self.value, f"a number of {self.unit}s"))

    def __repr__(self) -> str:
        name = _FUNCTIONS.get(self.unit, self.unit)
        kind = "" if self.rounding == Rounding.EXACT else f', rounding="{self.rounding}"'
        return f"{name}({self.value}{kind})"

    def updates(self, facts: object) -> sp.Expr:
        """Returns the number of updates, exactly; it may be a fraction where it is not rounded.

        Args:
            facts: Facts of the run, or a mapping of them by name.

        Raises:
            ArgumentError: A fact is missing, or these are not facts.

        Example:
            >>> tokens(300e9).updates(Facts(global_batch_size=1000, sequence_length=4000))
            75000
            >>> tokens(1e6, rounding="floor").updates({"tokens_per_update": 30_000})
            33
        """
        exact = Clock(self.unit).updates(self.value, _facts(facts))
        return _ROUNDED[self.rounding](exact)

    def missing(self, facts: object = None) -> tuple[str, ...]:
        """Returns the names of the facts that the conversion needs and that are not given."""
        run_facts = _facts({} if facts is None else facts)
        return tuple(
            name
            for name in sum(_factors(self.unit, run_facts), ())
            if getattr(run_facts, name) is None
        )

    def defer(
        self, function: Callable[..., Schedule], arguments: Mapping[str, Any]
    ) -> ScheduleInUnits:
        """Returns the schedule of a call with such lengths, to be built once facts are known."""
        return ScheduleInUnits(function, arguments)


# A length as an argument of a command line: digits, unit, and after a colon the rounding.
_LENGTH = re.compile(r"\s*([\d.]+(?:[eE][-+]?\d+)?)\s*([A-Za-z_-]+)(?::(\w+))?\s*")


def parse_length(text: str) -> Amount | None:
    """Returns the length that a text denotes: a number, a unit, and perhaps a rounding.

    The units are ``tokens``, ``samples``, ``micro_batches``, ``epochs`` and ``fraction``. A text
    of another form is None.

    Raises:
        DefinitionError: The number is not one, or the rounding is unknown.

    Example:
        >>> parse_length("2e9tokens"), parse_length("0.03 fraction:floor"), parse_length("cosine")
        (tokens(2000000000), fraction(3/100, rounding="floor"), None)
    """
    match = _LENGTH.fullmatch(text)
    unit = match and _UNITS.get(match[2].replace("-", "_"))
    if not match or not unit:
        return None
    try:
        value = float(match[1])
    except ValueError:
        raise DefinitionError(f"a length begins with a number, got {text!r}") from None
    return Amount(value, unit, _rounding(match[3] or Rounding.EXACT))


def _rounding(name: str) -> Rounding:
    if name not in tuple(Rounding):
        raise DefinitionError(
            f"rounding must be one of {', '.join(Rounding)}, got {name!r}",
            hint=nearest(str(name), Rounding),
        )
    return Rounding(name)


def _facts(facts: object) -> Facts:
    if isinstance(facts, Mapping):
        return Facts.of(facts)
    if not isinstance(facts, Facts):
        raise ArgumentError(
            f"facts must be a mapping of names to numbers, got {type(facts).__name__} {facts!r}",
            hint="give them by name: resolve(global_batch_size=…)",
        )
    return facts


def micro_batches(value: Number, *, rounding: str = "exact") -> Amount:
    """Returns a length in micro-batches of one process.

    Args:
        value: Their number.
        rounding: ``exact``, or ``floor``, ``ceil``, ``nearest`` to whole updates.

    Raises:
        DefinitionError: The number is not finite, or the rounding is unknown.

    Example:
        >>> micro_batches(800).updates({"gradient_accumulation": 8})
        100
    """
    return Amount(value, Unit.MICRO_BATCH, _rounding(rounding))


def samples(value: Number, *, rounding: str = "exact") -> Amount:
    """Returns a length in samples.

    Args:
        value: Their number.
        rounding: ``exact``, or ``floor``, ``ceil``, ``nearest`` to whole updates.

    Raises:
        DefinitionError: The number is not finite, or the rounding is unknown.

    Example:
        >>> samples(1000).updates({"global_batch_size": 16})
        125/2
        >>> samples(1000, rounding="ceil").updates({"global_batch_size": 16})
        63
    """
    return Amount(value, Unit.SAMPLE, _rounding(rounding))


def tokens(value: Number, *, rounding: str = "exact") -> Amount:
    """Returns a length in tokens, as an argument of schedules such as ``cosine``.

    Args:
        value: Their number.
        rounding: ``exact``, or ``floor``, ``ceil``, ``nearest`` to whole updates.

    Raises:
        DefinitionError: The number is not finite, or the rounding is unknown.

    Example:
        >>> tokens(300e9)
        tokens(300000000000)
        >>> tokens(300e9).updates({"tokens_per_update": 4_000_000})
        75000
    """
    return Amount(value, Unit.TOKEN, _rounding(rounding))


def epochs(value: Number, *, rounding: str = "exact") -> Amount:
    """Returns a length in epochs.

    Args:
        value: Their number.
        rounding: ``exact``, or ``floor``, ``ceil``, ``nearest`` to whole updates.

    Raises:
        DefinitionError: The number is not finite, or the rounding is unknown.

    Example:
        >>> epochs(3).updates({"updates_per_epoch": 500})
        1500
    """
    return Amount(value, Unit.EPOCH, _rounding(rounding))


def fraction(value: Number, *, rounding: str = "exact") -> Amount:
    """Returns a length as a fraction of the run.

    Args:
        value: The fraction.
        rounding: ``exact``, or ``floor``, ``ceil``, ``nearest`` to whole updates.

    Raises:
        DefinitionError: The number is not finite, or the rounding is unknown.

    Example:
        >>> fraction(0.03).updates({"total_updates": 10_000})
        300
    """
    return Amount(value, Unit.RUN, _rounding(rounding))

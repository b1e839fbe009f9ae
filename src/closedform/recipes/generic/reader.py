"""The reader of configs of no known framework, which notes everything that it assumes.

One key states the rate, without further factors. The warmup is a line from its first rate, or 0, to
the rate; the decay takes the rest of the run. A schedule whose lengths are epochs changes once per
epoch. Each of these assumptions is a note of the recipe; ``paths`` corrects a key.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp

from closedform.errors import ConfigError, MissingFactsError, UnknownNameError, nearest
from closedform.language import Schedule, UpdateRule, exact_number
from closedform.language.config_names import (
    FAMILIES,
    OF_SCHEDULE,
    UNITS,
    KeyUnit,
    family,
    fits,
    plain,
)
from closedform.recipes.build import class_schedule
from closedform.recipes.clock import Clock, Unit, hold
from closedform.recipes.document import interpolate
from closedform.recipes.documents.values import ConfigCall
from closedform.recipes.entries import Required
from closedform.recipes.framework import Framework
from closedform.recipes.generic import classes
from closedform.recipes.generic.keys_by_name import Book, Entry
from closedform.recipes.generic.python_names import ARGPARSE, stated_elsewhere
from closedform.recipes.reader import Reader, Reading
from closedform.recipes.recipe import OptimizerPlan, ParamGroup, Recipe, Role
from closedform.recipes.rules import plan_optimizer
from closedform.schedules import (
    constant,
    cosine,
    exponential,
    inverse_square_root,
    linear,
    multi_step,
    multiplicative,
    piecewise_constant,
    polynomial,
    step_decay,
)

NAME = "generic"
_COUNTED = {KeyUnit.UPDATES, KeyUnit.EPOCHS}
_EPOCHS = "updates_per_epoch"
# torch's CosineAnnealingLR(T_max) after a warmup in SequentialLR counts from its milestone.
_FROM_THE_WARMUP = frozenset(
    {"t_max", "cosine_steps", "lr_decay_length", "num_decay_steps", "n_decay_steps"}
)
"""Names of a length that is counted from the end of the warmup; others are from the start."""
_FACTOR = re.compile(r"decay_(factor|ratio)$")
"""Names of a factor that may be that of the lowest rate."""
_SHOWN_DEFAULTS = frozenset(
    {"anneal_strategy", "div_factor", "end_factor", "eta_min", "factor", "final_div_factor"}
    | {"gamma", "pct_start", "power", "start_factor", "step_size_up", "T_mult", "total_iters"}
)
"""Arguments whose absence is a note where a text names the class: the program may have its own."""
_ONE_CYCLE = frozenset(
    {"pct_start", "div_factor", "final_div_factor", "num_cycles", "t_0", "t_mult"}
)
"""Names of the arguments of schedules that are read by their class only."""


def read(reading: Reading, paths: Mapping[str, str] | None = None) -> Recipe:
    """Returns the recipe that the names of a config's keys propose.

    Args:
        reading: The config and the facts.
        paths: The path, or the value itself, of each concept that the user chose.

    Raises:
        ConfigError: A key is missing, or several can be it; the message lists them.
        MissingFactsError: The updates of an epoch are needed.
        UnknownNameError: A concept or a path of ``paths`` does not exist.
    """
    document = interpolate(reading.document)
    # Values that a program states elsewhere (argparse defaults, a YAML file next to the code) count
    # where the config is silent.
    elsewhere = stated_elsewhere(document)
    document = replace(document, content={**elsewhere, **document.content})
    book = Book(document, paths or {})
    if ARGPARSE in elsewhere:
        book.notes["command-line"] = "the defaults of the options are assumed"
    if isinstance(document.content.get("defaults"), list):
        book.notes["composed"] = "defaults names other files, which were not read"
    return _Proposal(replace(reading, document=document), book).recipe()


@dataclass
class _Proposal:
    """The reading of one config."""

    reading: Reading
    book: Book

    def recipe(self) -> Recipe:
        """Returns the recipe."""
        book = self.book
        block = self._block()
        if block is not None:
            book.blocks = {block[0]}
        total = book.choose("total") if self._has_length() else None
        if block is not None:
            schedule, clock = self._by_class(*block, total)
        else:
            schedule, clock = self._by_names(total)
        decay = book.choose("weight_decay")
        schedules = {"lr": schedule}
        if decay is not None:
            schedules["weight_decay"] = constant(book.number(decay))
        group = ParamGroup(schedules, self._plan(), Role.DEFAULT)
        book.check_unread()
        unread = book.unread()
        if unread:
            more = f" and {len(unread) - 12} more" if len(unread) > 12 else ""
            book.notes["not-read"] = f"these keys were not used: {', '.join(unread[:12])}{more}"
        recipe = self.reading.recipe(
            [group],
            clock=clock,
            horizon=self._horizon(total),
            clipping=None,
            accumulation=None,
            values=(),
        )
        return replace(recipe, notes=dict(book.notes))

    def _has_length(self) -> bool:
        """Whether the length is to be looked for: a fact of the user wins over several keys."""
        updates = self.reading.facts.total_updates
        return (
            updates is None
            or len(self.book.candidates("total")) <= 1
            or ("total" in self.book.paths)
        )

    def _block(self) -> tuple[str, Any] | None:
        """The block of a scheduler's class, and its path."""
        document, choice = self.book.document, self.book.paths.get("decay")
        if choice is not None:
            value = self.book.values.get(choice)
            return (choice, value) if classes.is_scheduler(classes.class_of(value)) else None
        blocks = list(classes.blocks(document.content))
        if not blocks and document.python is not None:
            blocks = list(classes.blocks(document.python.expressions))
        if len(blocks) > 1:
            raise self.book.ambiguous(
                "decay", [Entry(path, classes.class_of(value)) for path, value in blocks]
            )
        if not blocks:
            self._refuse_unknown_class()
            return self._block_of_text()
        return blocks[0]

    def _block_of_text(self) -> tuple[str, Any] | None:
        """The class that a text names, with the arguments that keys of their names have."""
        book = self.book
        # A text is a class only if torch has it by this name; "cosine" is a family.
        texts = [
            entry for entry in book.candidates("decay") if entry.value in classes.torch_schedules()
        ]
        if len(texts) != 1:
            return None
        arguments: dict[str, Any] = {}
        name = str(texts[0].value)
        parameters = classes.torch_schedules()[name].parameters
        names = {
            path.rpartition(".")[2] for path, value in book.values.items() if value is not None
        }
        required_names = {entry.name for entry in parameters if isinstance(entry.default, Required)}
        # The keys of such a file have the names of its program: a family of schedules reads those.
        if required_names - names - set(book.paths) and family(name) is not None:
            return None  # its keys have other names
        for parameter in parameters:
            choice = book.paths.get(parameter.name)
            paths = [
                path
                for path, value in book.values.items()
                if path.rpartition(".")[2] == parameter.name and value is not None
            ]
            if choice in book.values:
                paths = [str(choice)]
            if len(paths) > 1:
                candidates = ", ".join(f"{path} = {book.values[path]!r:.40}" for path in paths[:6])
                raise ConfigError(
                    f"{len(paths)} keys can be {parameter.name} of {name}: {candidates}",
                    where=book.document.source,
                    hint="name the family and its keys: paths={'decay': 'cosine'}",
                )
            if paths:
                arguments[parameter.name] = book.values[paths[0]]
                book.paths_read.add(paths[0])
                book.notes[parameter.name] = (
                    f"{paths[0]} = {arguments[parameter.name]!r:.60} was read as {parameter.name}"
                )
            elif parameter.name in _SHOWN_DEFAULTS:
                is_concept = parameter.name in ("gamma", "power")
                spare = book.choose(parameter.name) if is_concept else None
                if spare is not None:
                    arguments[parameter.name] = book.number(spare)
                else:
                    book.notes[parameter.name] = (
                        f"no key names {parameter.name}: torch's default of {parameter.default} "
                        "is assumed"
                    )
        book.paths_read.add(texts[0].path)
        return texts[0].path, {"name": name, **arguments}

    def _refuse_unknown_class(self) -> None:
        """Refuses a block in the place of a scheduler whose class is not torch's."""
        for entry in self.book.candidates("decay"):
            name = str(entry.value).rpartition(".")[2]
            if "." in str(entry.value) and family(str(entry.value)) is None:
                raise ConfigError(
                    f"there is no scheduler class {entry.value!r}",
                    where=self.book.document.place(entry.path),
                    hint=f"{nearest(name, classes.torch_schedules())} or name a family: "
                    "paths={'decay': 'cosine'}",
                )

    # --- by class ------------------------------------------------------------------------------

    def _by_class(self, path: str, block: Any, total: Entry | None) -> tuple[Schedule, Clock]:
        book = self.book
        name = str(classes.class_of(block))
        arguments = classes.arguments(book.document, block, path)
        book.notes["decay"] = f"{path or 'the file'} is a block of {name}, read by its class"
        rate = None
        # These two state their rates as arguments and ignore the optimizer's.
        if name not in ("OneCycleLR", "CyclicLR"):
            rate = self._rate()
        if name == "ReduceLROnPlateau":
            raise ConfigError(
                f"{name} is driven by a metric: its value is not a function of the update",
                where=book.document.place(path),
                hint="closedform.frameworks.metric_rule('torch', 'ReduceLROnPlateau', …) has it",
            )
        is_function = name in classes.FUNCTIONS
        by_epoch = self._is_by_epoch(total, default="update" if is_function else None)
        if is_function and "num_training_steps" not in arguments:
            # The functions of transformers take the length of the run as an argument, torch's
            # classes do not.
            names = [entry.name for entry in classes.entry_of(name).parameters]
            if "num_training_steps" in names:
                if total is None and self.reading.facts.total_updates is None:
                    raise book.missing("total", f"{name} needs it", "1000")
                length = (
                    self._horizon(total) if not by_epoch or total is None else (book.number(total))
                )
                arguments["num_training_steps"] = int(length or 0)
                book.notes["num_training_steps"] = f"num_training_steps is the run's {length}"
        framework = "huggingface" if is_function else "torch"
        entry = classes.entry_of(name)
        with locate_block_errors(book, path):
            # The rate is the base of torch's class, which scales it.
            schedule = class_schedule(
                framework,
                {**classes.torch_schedules(), entry.name: entry},
                entry.name,
                arguments,
                base=rate,
            )
        return self._in_updates(schedule, by_epoch)

    # --- by names ------------------------------------------------------------------------------

    def _by_names(self, total: Entry | None) -> tuple[Schedule, Clock]:
        book = self.book
        table = book.choose("table")
        if table is not None:
            return self._by_table(table, total)
        rate = self._rate()
        name = self._family()
        warmup = book.choose("warmup")
        # warmup: true is a switch without a length.
        if warmup is None and any(
            value is True and book.is_named("warmup", path) for path, value in book.values.items()
        ):
            raise book.missing("warmup", "there is one, of no stated length", "100")
        decay = book.choose("decay")
        if warmup is None and decay is not None and "warm" in str(decay.value).lower():
            raise book.missing("warmup", f"{decay} has one, of no stated length", "100")
        start = self._start(rate, warmup)
        needs_total = name in ("cosine", "linear", "polynomial")
        length = book.choose("decay_length") if needs_total else None
        hold = book.choose("hold") if needs_total else None
        milestones = book.choose("milestones") if name == "multistep" else None
        size = self._step_size(name) if name in ("step",) else None
        parts = [
            entry
            for entry in (
                total if needs_total and length is None else None,
                warmup,
                hold,
                length,
                milestones,
                size,
            )
            if entry is not None
        ]
        by_epoch = (
            self._is_by_epoch(total, parts) if name != "constant" or _is_set(warmup) else False
        )
        if (
            needs_total
            and total is None
            and length is None
            and (self.reading.facts.total_updates is None)
        ):
            raise book.missing("total", f"a {name} decay needs it", "1000")
        if warmup is not None and warmup.value is not False and book.number(warmup) < 0:
            book.notes["warmup"] += ": below 0, there is none"
            warmup = None
        count = self._counter(by_epoch)
        rise = count(warmup) if warmup is not None else sp.S.Zero
        # A length below 1 update is a part of the run, whatever its key is called.
        if warmup is not None and warmup.kind is KeyUnit.EPOCHS and rise != int(rise):
            rise = sp.floor(rise)
            book.notes["warmup"] += f": {rise} updates, rounded down"
        if warmup is not None and (warmup.kind is KeyUnit.RUN or 0 < rise < 1):
            whole = self._whole(total, count)
            # int(ratio * total) is the most common rounding; transformers takes the ceiling.
            rise = sp.floor(book.number(warmup) * whole)
            book.notes["warmup"] += f": {rise} of {whole}, rounded down"
        low = self._low(rate) if needs_total else sp.S.Zero
        flat = count(hold) if hold is not None else sp.S.Zero
        span = (
            self._span(name, rate, low, rise, flat, length, total, by_epoch) if needs_total else low
        )
        distance = count(size) if size is not None else sp.S.Zero
        later = self._later(name, rate, low, span, rise, milestones, distance, count)
        if flat > 0:
            later = constant(rate, steps=flat).then(later)
        schedule = later
        if rise > 0:
            if rise != int(rise):
                raise ConfigError(
                    f"the warmup must be a whole number, got {rise}", where=book.document.source
                )
            book.notes["warmup-place"] = (
                f"the warmup is assumed to be a line from {start} to {rate}, which the rate has "
                f"from {'epoch' if by_epoch else 'update'} {rise} on"
            )
            # Steps of a run are counted from its beginning, and so is an inverse square root.
            # A cosine counts from the warmup's end: its span is the rest already.
            is_absolute = name in ("multistep", "step", "exponential", "inverse_sqrt")
            rest = later.shift(int(rise)) if is_absolute else later
            schedule = linear(start, rate, int(rise)).then(rest)
        return self._in_updates(schedule, by_epoch)

    def _rate(self) -> sp.Expr:
        entry = self.book.choose("lr")
        if entry is None:
            if self.reading.facts.lr is not None:
                return exact_number(self.reading.facts.lr)
            raise self.book.missing("lr", "no key names a rate", "0.001")
        self.book.notes["lr"] += ", as it is written: no factor of a batch size or of processes"
        return self.book.number(entry)

    def _family(self) -> str:
        book = self.book
        entry = book.choose("decay")
        if entry is not None:
            name = family(str(entry.value))
            if name is None:
                raise ConfigError(
                    f"there is no family of schedules {entry.value!r} by name",
                    where=book.document.place(entry.path),
                    hint=f"{nearest(str(entry.value), set(FAMILIES.values()))}; name what comes "
                    "near: paths={'decay': 'cosine'}",
                )
            # "step" with milestones is MultiStepLR, "multistep" without them StepLR.
            if name == "step" and book.candidates("milestones"):
                name = "multistep"
            if name == "multistep" and not book.candidates("milestones"):
                name = "step" if book.candidates("step_size") else name
            return name
        # Keys that only a schedule has, although none names it; a step_size without a gamma may be
        # the size of a stride.
        speaking = [
            candidate
            for concept in OF_SCHEDULE
            for candidate in book.candidates(concept)
            if concept not in ("step_size", "milestones") or book.candidates("gamma")
        ]
        cycles = [path for path in book.values if plain(path) in _ONE_CYCLE]
        if not speaking and not cycles:
            # Programs with a decay that no key names are as common as constant rates.
            has_length = any("epoch" in plain(path) for path in book.values)
            if has_length or book.candidates("total") or book.candidates("warmup"):
                raise book.missing(
                    "decay", "the run has a length, but no key names its decay", "constant"
                )
            book.notes["decay"] = (
                "no key names a decay or a length: the rate is assumed to be constant"
            )
            return "constant"
        concepts = {concept for concept in OF_SCHEDULE if book.candidates(concept)} - {
            "decay_length"
        }
        for concept, name in (("milestones", "multistep"), ("step_size", "step")):
            further = concepts - {concept, "gamma"}
            if {concept, "gamma"} <= concepts and not further and not cycles:
                book.notes["decay"] = (
                    f"no key names the decay: {concept} and gamma are assumed to be arguments of "
                    f"{'MultiStepLR' if name == 'multistep' else 'StepLR'}"
                )
                return name
        keys = ", ".join([*(entry.path for entry in speaking), *cycles][:8])
        raise book.missing("decay", f"no key names it, but {keys} speak of one", "cosine")

    def _by_table(self, table: Entry, total: Entry | None) -> tuple[Schedule, Clock]:
        """The schedule of a list of steps and rates."""
        book = self.book
        between = book.choose("between")
        if between is None:
            raise book.missing("between", f"{table.path} has steps and rates", "linear")
        by_epoch = self._is_by_epoch(total, [])
        rows = [[book.number(replace(table, value=part)) for part in row] for row in table.value]
        steps, rates = ([row[side] for row in rows] for side in (0, 1))
        lengths = [after - before for before, after in itertools.pairwise(steps)]
        is_whole = all(step == int(step) for step in steps)
        if steps[0] != 0 or not is_whole or any(length <= 0 for length in lengths):
            raise ConfigError(
                f"the steps of a table must be 0 and rising whole numbers, got {steps}",
                where=book.document.place(table.path),
            )
        if between.value == "step":
            return self._in_updates(piecewise_constant(rates, steps[1:]), by_epoch)
        schedule = linear(rates[0], rates[1], lengths[0])
        for before, after, length in zip(rates[1:], rates[2:], lengths[1:], strict=False):
            schedule = schedule.then(linear(before, after, length))
        return self._in_updates(schedule, by_epoch)

    def _step_size(self, name: str) -> Entry:
        book = self.book
        entry = book.choose("step_size")
        # Without a key for it, a length such as decay_steps is the distance between the steps.
        entry = book.choose("decay_length") if entry is None else entry
        if entry is None:
            raise book.missing("step_size", f"a {name} decay needs it", "30")
        return entry

    def _whole(self, total: Entry | None, count: Callable[[Entry], sp.Expr]) -> sp.Expr:
        """The length of the run, in the unit of the clock."""
        if total is not None:
            return count(total)
        return sp.Integer(self.reading.value_or_fact(None, "total_updates"))

    def _span(
        self,
        name: str,
        rate: sp.Expr,
        low: sp.Expr,
        rise: sp.Expr,
        flat: sp.Expr,
        length: Entry | None,
        total: Entry | None,
        by_epoch: bool,
    ) -> sp.Expr:
        """The length of the decay: the rest of the run, or that of its key."""
        book, count = self.book, self._counter(by_epoch)
        whole = self._whole(total, count) if length is None else count(length)
        is_own = length is not None and plain(length.path) in _FROM_THE_WARMUP
        span = whole if is_own else whole - rise - flat
        end = "of the run" if length is None else f"of {length.path}"
        place = f"that begin after the warmup, {end}" if is_own else f"up to the end {end}"
        place += f", after a flat stretch of {flat}" if flat > 0 else ""
        # The place of a decay is the least certain assumption: some programs count it from update
        # 0.
        book.notes["decay-place"] = (
            f"the {name} decay from {rate} to {low} is assumed to take {span} "
            f"{'epochs' if by_epoch else 'updates'} {place}"
        )
        if span <= 0:
            raise ConfigError(
                f"the warmup of {rise} must be shorter than the {whole} {end}",
                where=book.document.source,
            )
        return span

    def _start(self, rate: sp.Expr, warmup: Entry | None) -> sp.Expr:
        book = self.book
        if warmup is None:
            return sp.S.Zero
        entry = book.choose("warmup_start")
        if entry is None:
            return sp.S.Zero
        number = book.number(entry)
        return number * rate if entry.kind is KeyUnit.RATIO else number

    def _low(self, rate: sp.Expr) -> sp.Expr:
        book = self.book
        entry = book.choose("min_lr")
        # A factor beside a smooth decay, without steps that it could be of, is that of the end.
        has_steps = book.candidates("step_size") or book.candidates("milestones")
        factors = [part for part in book.candidates("gamma") if _FACTOR.search(plain(part.path))]
        if entry is None and len(factors) == 1 and not has_steps:
            entry = replace(factors[0], kind=KeyUnit.RATIO)
            book.paths_read.add(entry.path)
            book.notes["min_lr"] = (
                f"{entry.path} = {entry.value} is assumed to be the lowest rate, as a {entry.kind}"
            )
        if entry is None:
            self.book.notes["min_lr"] = "no key names the lowest rate: it is assumed to be 0"
            return sp.S.Zero
        number = self.book.number(entry)
        return number * rate if entry.kind is KeyUnit.RATIO else number

    def _later(
        self,
        name: str,
        rate: sp.Expr,
        low: sp.Expr,
        span: sp.Expr,
        rise: sp.Expr,
        milestones: Entry | None,
        size: sp.Expr,
        count: Callable[[Entry], sp.Expr],
    ) -> Schedule:
        """The decay; that of steps and of an inverse square root counts from the run's start."""
        book = self.book
        if name == "constant":
            return constant(rate)
        if name == "cosine":
            return cosine(rate, low, span)
        if name == "linear":
            return linear(rate, low, span)
        if name == "polynomial":
            power = book.choose("power")
            if power is None:
                raise book.missing("power", "a polynomial decay needs it", "1")
            return polynomial(rate, low, span, book.number(power))
        if name == "inverse_sqrt":
            if rise <= 0:
                raise book.missing("warmup", "an inverse square root needs it", "1000")
            book.notes["decay-place"] = (
                f"the rate is assumed to be {rate} * sqrt({rise} / t) from the warmup on"
            )
            return inverse_square_root(rate, sp.sqrt(rise), rise)
        gamma = book.choose("gamma")
        if gamma is None:
            raise book.missing("gamma", f"a decay by {name} needs it", "0.1")
        factor = book.number(gamma)
        book.notes["decay-place"] = "steps are assumed to be counted from the start of the run"
        if name == "exponential":
            over = book.choose("decay_length") or book.choose("step_size")
            if over is not None:
                book.notes["decay-place"] = (
                    f"gamma is assumed to be the factor over {over.path}, smooth in between"
                )
                return exponential(rate, factor, count(over))
            book.notes["decay-place"] = "gamma is assumed to be the factor of every unit"
            return multiplicative(rate, factor)
        if name == "step":
            return step_decay(rate, factor, size)
        if milestones is None:
            raise book.missing("milestones", "a decay at milestones needs them", "30,60")
        items = milestones.value
        if isinstance(items, str):
            items = [item for item in items.strip("[]() ").split(",") if item.strip()]
        marks = [count(replace(milestones, value=item)) for item in items]
        return multi_step(rate, factor, marks)

    # --- clock ---------------------------------------------------------------------------------

    def _is_by_epoch(
        self, total: Entry | None, parts: list[Entry] | None = None, default: str | None = None
    ) -> bool:
        """Whether the scheduler steps once in an epoch; a note says why."""
        book = self.book
        unit = book.choose("unit")
        if unit is not None:
            return unit.value is True or UNITS.get(str(unit.value).lower(), False)
        # warmup_ratio counts as updates, since a part of the run has no unit.
        # A part of the run is a number of updates.
        kinds: set[KeyUnit] = {part.kind for part in parts or ()}
        kinds = (kinds | ({KeyUnit.UPDATES} if KeyUnit.RUN in kinds else set())) & _COUNTED
        if not kinds and total is not None:
            kinds = {total.kind} & _COUNTED
        if default is None and not kinds and parts is not None:
            kinds = {KeyUnit.UPDATES} if self.reading.facts.total_updates is not None else set()
        if default is not None:
            kinds = {KeyUnit.UPDATES}
        if len(kinds) == 2:
            book.notes["unit"] = (
                "lengths in updates and in epochs: the rate is assumed to change at every update"
            )
            return False
        if not kinds:
            raise book.missing(
                "unit", "no key says whether the schedule counts updates or epochs", "update"
            )
        is_epoch = kinds == {KeyUnit.EPOCHS}
        lengths = [part for part in parts or () if part.kind is KeyUnit.EPOCHS]
        numbers = [book.number(part) for part in lengths if fits("lr", part.value)]
        if any(number != int(number) for number in numbers):
            book.notes["unit"] = (
                "a length is a part of an epoch: the rate is assumed to change at every update"
            )
            return False
        book.notes["unit"] = (
            "lengths are in epochs: the rate is assumed to change once in an epoch"
            if is_epoch
            else "the schedule is assumed to change at every update"
        )
        return is_epoch

    def _counter(self, by_epoch: bool) -> Callable[[Entry], sp.Expr]:
        """The length of an entry in the unit of the clock."""

        def count(entry: Entry) -> sp.Expr:
            value = sp.S.Zero if entry.value is False else self.book.number(entry)
            if entry.kind is KeyUnit.EPOCHS and not by_epoch:
                return value * self._epoch()
            if entry.kind is KeyUnit.UPDATES and by_epoch:
                return value / self._epoch()
            return value

        return count

    def _epoch(self) -> int:
        facts = self.reading.facts
        if facts.updates_per_epoch is not None:
            return int(facts.updates_per_epoch)
        # ceil: torch's DataLoader keeps the last batch unless drop_last is set.
        if facts.dataset_size is not None and facts.global_batch_size is not None:
            self.book.notes[_EPOCHS] = "an epoch is assumed to end with its last, smaller batch"
            return math.ceil(facts.dataset_size / facts.global_batch_size)
        raise MissingFactsError(
            f"missing facts: {_EPOCHS}",
            where=self.book.document.source,
            hint="the config has lengths in epochs; or give dataset_size and global_batch_size",
        )

    def _in_updates(self, schedule: Schedule, by_epoch: bool) -> tuple[Schedule, Clock]:
        if not by_epoch:
            return schedule, Clock(Unit.UPDATE)
        # A constant needs no clock, so that no epoch length is asked for.
        if not schedule.expr.free_symbols:
            return schedule, Clock(Unit.UPDATE)
        return hold(schedule, self._epoch()), Clock(Unit.EPOCH)

    def _horizon(self, total: Entry | None) -> int | None:
        facts = self.reading.facts
        if total is None:
            return facts.total_updates
        number = self.book.number(total)
        if total.kind is KeyUnit.EPOCHS:
            if facts.total_updates is not None:
                return facts.total_updates
            try:
                # Without the length of an epoch the recipe has no horizon, and its schedule in
                # epochs is complete all the same.
                return int(sp.ceiling(number * self._epoch()))
            except MissingFactsError:
                return None
        if number != int(number):
            raise ConfigError(
                f"the updates of the run must be a whole number, got {total.value!r:.40}",
                where=self.book.document.place(total.path),
            )
        return int(number)

    # --- optimizer -----------------------------------------------------------------------------

    def _plan(self) -> OptimizerPlan:
        book = self.book
        arguments: dict[str, Any] = {}
        betas = book.choose("betas")
        if betas is not None:
            items = betas.value if not isinstance(betas.value, str) else betas.value.split(",")
            arguments["betas"] = tuple(book.number(replace(betas, value=item)) for item in items)
        else:
            pair = [book.choose(name) for name in ("beta1", "beta2")]
            if all(entry is not None for entry in pair):
                arguments["betas"] = tuple(book.number(entry) for entry in pair if entry)
        for key in ("eps", "momentum"):
            entry = book.choose(key)
            if entry is not None:
                arguments[key] = book.number(entry)
        for path, value in book.values.items():
            if plain(path) == "nesterov" and value is True and "momentum" in arguments:
                arguments["nesterov"] = True
        optimizer = book.choose("optimizer")
        where = book.document.source
        calls = [
            value.name.rpartition(".")[2]
            for path, value in book.values.items()
            if isinstance(value, ConfigCall) and book.is_named("optimizer", path)
        ]
        if optimizer is None and len(calls) == 1:
            optimizer = Entry("", calls[0])
        if optimizer is None:
            return OptimizerPlan("not named", arguments, _refuse_optimizer(where))
        name = str(optimizer.value).rpartition(".")[2]
        rule_arguments = {k: v for k, v in arguments.items() if k != "momentum" or v}
        # Configs list the options of several optimizers: SGD has no betas, the others no momentum.
        if name.lower() != "sgd":
            for key in ("momentum", "nesterov"):
                rule_arguments.pop(key, None)
        else:
            rule_arguments.pop("betas", None)
            rule_arguments.pop("eps", None)
        return plan_optimizer(name, rule_arguments, where=where)


def _refuse_optimizer(where: str) -> Callable[[Mapping[str, Schedule]], UpdateRule]:
    def build(schedules: Mapping[str, Schedule]) -> UpdateRule:
        del schedules
        raise UnknownNameError(
            "no key of the config names the optimizer",
            where=where,
            hint="name it: paths={'optimizer': 'adamw'}",
        )

    return build


def _is_set(entry: Entry | None) -> bool:
    return entry is not None and entry.value not in (False, 0, "0", 0.0)


def locate_block_errors(book: Book, path: str) -> Any:
    """Returns the context that gives the errors of a builder the place of a block."""
    from closedform.recipes.raw_section import RawSection

    return RawSection(book.document, {}, path).locate_errors()


def framework_of(paths: Mapping[str, str] | None) -> tuple[Framework, Reader]:
    """Returns the framework of a reading with the paths that the user chose, and its reader."""
    reader = Reader(lambda reading: read(reading, paths), lambda document: False)
    framework = Framework(
        NAME, {}, upstream="none: the names of the keys", clock=Clock(), defects={}, reader=reader
    )
    return framework, reader

"""The schedule of one param group of a scheduler."""

from __future__ import annotations

import contextlib
import inspect
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy as sp
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, ReduceLROnPlateau, SequentialLR

from closedform.errors import TraceError
from closedform.importers.python.join import ValueRange, join_cells
from closedform.importers.python.place import UserValue
from closedform.importers.python.prover import Prover
from closedform.importers.python.trace import Traced
from closedform.importers.recurrence import closed_form
from closedform.importers.torch_scheduler.groups import (
    BY_A_FUNCTION,
    COMPOSITES,
    METHODS,
    field_of,
    last_epoch_of,
    method_of,
)
from closedform.importers.torch_scheduler.methods import PREVIOUS, depends_on_previous, run_method
from closedform.importers.torch_scheduler.present import Present, from_position, scale_to
from closedform.language import Schedule, exact_number, sequential, t
from closedform.language.printing import text

_CLOSED = "_get_closed_form_lr"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the schedule of one param group.

    Attributes:
        prover: What decides comparisons.
        index: The index of the group.
        is_present: Whether the rate of the group is the last one that the scheduler has set. It is
            not for members of a composite that are not active.
    """

    prover: Prover
    index: int
    is_present: bool = True

    def schedule(self, scheduler: UserValue) -> Schedule:
        """Returns the schedule of a scheduler, in its own steps."""
        name = type(scheduler).__name__
        method = method_of(scheduler)
        if method is not None:
            return self._by_rate(scheduler, method)
        # Before LRScheduler, of which it is a subclass in torch 2.13.
        if isinstance(scheduler, ReduceLROnPlateau):
            raise TraceError(
                "the value depends on a metric, which is not known before the run",
                where=name,
                hint="closedform.schedules.reduce_on_plateau is a rule with a state",
            )
        own_schedules = getattr(scheduler, "schedules", None)
        # A scheduler of closedform.torch: its schedules are exact.
        if isinstance(own_schedules, list) and all(
            isinstance(member, Schedule) for member in own_schedules
        ):
            return self._from_present(scheduler, own_schedules[self.index])
        _check_methods(scheduler)
        if isinstance(scheduler, SequentialLR):
            return self._sequence(scheduler)
        if isinstance(scheduler, ChainedScheduler):
            return self._chain(scheduler)
        if type(scheduler).step is not LRScheduler.step:
            return self._by_step(scheduler)
        return self._by_rate(scheduler)

    def _sequence(self, scheduler: SequentialLR) -> Schedule:
        """The members in a row."""
        name = type(scheduler).__name__
        first, *rest = scheduler._schedulers
        active = bisect_right(scheduler._milestones, scheduler.last_epoch)
        readers = [
            replace(self, is_present=self.is_present and place == active)
            for place in range(len(scheduler._schedulers))
        ]
        for member in rest:
            if isinstance(member, COMPOSITES):
                raise TraceError(
                    f"a {type(member).__name__} follows another scheduler, where torch raises "
                    "NotImplementedError",
                    where=name,
                    hint="put its members into the outer SequentialLR",
                )
        marks = list(scheduler._milestones)
        starts: list[Schedule]
        if isinstance(first, SequentialLR):
            # torch sets the first value by a step, which is the second one of the inner clock.
            inner_active = bisect_right(first._milestones, last_epoch_of(first))
            starts = [
                replace(
                    readers[0], is_present=readers[0].is_present and place == inner_active
                ).schedule(member)
                for place, member in enumerate(first._schedulers)
            ]
            # The inner clock is one step ahead.
            marks = [mark - 1 for mark in first._milestones] + marks
        elif isinstance(first, ChainedScheduler):
            idle = replace(self, is_present=False)
            starts = [self._product(first, [idle._late(part) for part in first._schedulers])]
        else:
            starts = [readers[0].schedule(first)]
        following = [
            reader.schedule(member) for reader, member in zip(readers[1:], rest, strict=True)
        ]
        return _in_sequence([*starts, *following], marks, name)

    def _chain(self, scheduler: ChainedScheduler) -> Schedule:
        """The product of the members, from the present rate on."""
        idle = replace(self, is_present=False)
        product = self._product(scheduler, [idle.schedule(m) for m in scheduler._schedulers])
        step, rate = last_epoch_of(scheduler), self._present.rate(scheduler)
        if not self.is_present or self._present.agrees(product, step, rate):
            return product
        # A constant factor of the rate stays one where each member multiplies the rate.
        if all(map(self._is_factor, scheduler._schedulers)):
            exact = self._present.exact_rate(product, step, rate)
            multiple = scale_to(product, step, exact, sp.Integer(0))
            if multiple is not None:
                return multiple
        raise self._present.no_continuation(scheduler, product, step, rate)

    def _is_factor(self, member: Any) -> bool:
        """Whether each step of a member multiplies the rate by a number."""
        if isinstance(member, COMPOSITES) or type(member).step is not LRScheduler.step:
            return False
        cells = self._run(member, "get_lr", first=1).cells
        return all(
            cell.value is not None
            and PREVIOUS not in sp.simplify(cell.value / PREVIOUS).free_symbols
            for cell in cells
        )

    def _product(self, scheduler: ChainedScheduler, members: Sequence[Schedule]) -> Schedule:
        """The product of what the members make of the initial value."""
        base = self._base(scheduler)
        # Each member multiplies the value that it finds by its ratio to the base.
        expr = base * sp.Mul(*(member.expr / base for member in members))
        return Schedule(expr, name=type(scheduler).__name__)

    def _late(self, scheduler: UserValue) -> Schedule:
        """A member whose first value is set by a step, and not by its constructor."""
        schedule = self.schedule(scheduler)
        if isinstance(scheduler, COMPOSITES):
            return schedule
        # get_lr of torch returns the initial value while _initial_step is set, else one step of the
        # recurrence.
        is_ahead = self._first(scheduler, is_initial=False) != self._first(scheduler)
        return schedule.shift(1) if is_ahead else schedule

    def _base(self, scheduler: UserValue) -> sp.Expr:
        name = f"initial_{field_of(scheduler)}"
        # initial_lr may be a tensor.
        return exact_number(float(self._present.group(scheduler)[name]), name)

    # --- one scheduler -----------------------------------------------------------------------

    def _by_rate(self, scheduler: UserValue, method: str = "get_lr") -> Schedule:
        """The schedule that a method computes, or the closed form of its recurrence."""
        name = type(scheduler).__name__
        # A get_lr that is a function of last_epoch needs no induction.
        whole = self._run(scheduler, method, first=0, is_initial=False)
        if not depends_on_previous(whole) and whole.cells[0].value is not None:
            return self._from_present(scheduler, whole.schedule(name, {}))
        # From step 1 on, with a symbol for the value before.
        later = self._run(scheduler, method, first=1)
        first = self._first(scheduler, method)
        if not depends_on_previous(later):
            expr = join_cells([ValueRange(0, 1, first), *later.cells])
            return self._from_present(scheduler, Schedule(expr, name=name))
        following = join_cells(later.cells)
        candidates = list(self._candidates(scheduler, later, first))
        if self.is_present and method not in METHODS:
            step, rate = scheduler.last_epoch, self._present.rate(scheduler)
            ideals = [Schedule(first)] if step == 0 else candidates
            if not any(self._present.agrees(schedule, step, rate) for schedule in ideals):
                return self._present.continuation(scheduler, candidates, later.cells)
        for candidate in candidates:
            # Induction: the first value, and each value from the one before.
            if self.prover.follows(candidate.expr, first, PREVIOUS, following):
                return candidate
        raise TraceError(
            f"the value follows from the value before, with no known closed form: it is {first} at "
            f"t = 0 and {text(following)} at t >= 1",
            where=name,
            hint=BY_A_FUNCTION,
        )

    def _candidates(
        self, scheduler: UserValue, later: Traced, first: sp.Expr
    ) -> Iterator[Schedule]:
        name = type(scheduler).__name__
        if hasattr(scheduler, _CLOSED):
            # torch's own closed form first; it is proved, not trusted. No step of torch takes it,
            # and it may raise where get_lr does not.
            with contextlib.suppress(TraceError):
                yield self._run(scheduler, _CLOSED, first=0).schedule(name, {})
        formula = closed_form(later.cells, first, PREVIOUS)
        if formula is not None:
            yield Schedule(formula, name=name)

    def _first(
        self, scheduler: UserValue, method: str = "get_lr", *, is_initial: bool = True
    ) -> sp.Expr:
        """The value at step 0, from the initial value of the group."""
        cells = self._run(scheduler, method, first=0, is_initial=is_initial).cells
        value = cells[0].value
        if value is None:
            raise TraceError("there is no value at step 0", where=type(scheduler).__name__)
        first = {PREVIOUS: self._base(scheduler), t: sp.Integer(0)}
        result: sp.Expr = value.xreplace(first)
        return result

    def _by_step(self, scheduler: UserValue) -> Schedule:
        """The schedule of a class whose ``step`` takes the number of the step."""
        name = type(scheduler).__name__
        parameters = list(inspect.signature(type(scheduler).step).parameters)
        # self and the step.
        if len(parameters) < 2:
            raise TraceError(
                "the class overrides step() with a method that does not take the number of it",
                where=name,
                hint=BY_A_FUNCTION,
            )
        trace = self._run(scheduler, "step", first=0)
        if depends_on_previous(trace):
            raise TraceError("step() computes the value from the value before", where=name)
        schedule: Schedule = trace.schedule(name, {})
        if hasattr(scheduler, "T_cur"):
            schedule = from_position(scheduler, schedule)
        return self._from_present(scheduler, schedule)

    def _run(
        self, scheduler: UserValue, method: str, *, first: int, is_initial: bool | None = None
    ) -> Traced:
        return run_method(
            scheduler, method, self.prover, self.index, first=first, is_initial=is_initial
        )

    @property
    def _present(self) -> Present:
        return Present(self.prover, self.index)

    def _from_present(self, scheduler: UserValue, schedule: Schedule) -> Schedule:
        """A schedule of the step, from the present rate on where the scheduler is active."""
        return self._present.from_present(scheduler, schedule) if self.is_present else schedule


def _check_methods(scheduler: UserValue) -> None:
    """Refuses methods in the places of those by which torch takes a step.

    Raises:
        TraceError: The scheduler has one.
    """
    own_update = getattr(type(scheduler), "_update_lr", None)
    names = [name for name in ("step", "_update_lr") if name in vars(scheduler)]
    if own_update is not getattr(LRScheduler, "_update_lr", None):
        names.append("_update_lr")
    if names:
        raise TraceError(
            f"the scheduler has a method {names[0]} instead of torch's, which may set other rates "
            "than get_lr()",
            where=type(scheduler).__name__,
            hint=BY_A_FUNCTION,
        )


def _in_sequence(members: Sequence[Schedule], milestones: Sequence[int], name: str) -> Schedule:
    """Members in their own local time; one whose milestones are equal is never active."""
    parts: list[Schedule] = []
    marks: list[int] = []
    starts = [0, *milestones]
    for index, member in enumerate(members):
        end = milestones[index] if index < len(milestones) else None
        if end is not None and end <= starts[index]:
            continue
        if parts:
            marks.append(starts[index])
        parts.append(member)
    return sequential(parts, marks, name=name)

"""Copies of a scheduler, taken step by step, and compared with its schedules."""

from __future__ import annotations

import functools
import math
import types
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from closedform.code_files import files_of
from closedform.errors import TraceError
from closedform.importers.python.compare import compare_graph
from closedform.importers.python.place import UserValue, origin
from closedform.importers.python.prover import Prover
from closedform.importers.torch_scheduler.groups import (
    BY_A_FUNCTION,
    COMPOSITES,
    TOLERANCE,
    entries_of,
    field_of,
    last_epoch_of,
    method_of,
    of_group,
)
from closedform.language import Schedule

# Beyond the usual warmups and milestones of an example; each step of torch takes microseconds.
_COMPARED_STEPS = 160
_MOST_COMPARED = 20_000
NEXT_STEPS = 240


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of all groups at some steps.

    Attributes:
        values: The rates, step by step.
        error: The exception that ends them, as that of OneCycleLR; None where all were taken.
    """

    values: Sequence[Sequence[float]]
    error: Exception | None = None

    def of_group(self, index: int) -> list[float]:
        """Returns the rates of one group."""
        return [float(values[index]) for values in self.values]


def _take_steps(take_step: Callable[[int], Sequence[float]], steps: int) -> Rates:
    """The rates that each of some steps returns."""
    values: list[Sequence[float]] = []
    for step in range(steps):
        try:
            values.append(take_step(step))
        except Exception as error:
            return Rates(values, error)
    return Rates(values)


def is_as_from_the_first(scheduler: UserValue) -> bool:
    """Whether steps from the first state on have come to the rates that the groups have.

    They have not where a rate or an argument was edited, or the scheduler was built again for an
    optimizer with another rate.
    """
    if method_of(scheduler) is not None:
        return True
    steps = last_epoch_of(scheduler)
    if steps > _MOST_COMPARED:
        return False
    rates = [float(group["lr"]) for group in entries_of(scheduler)]
    states = _first_rates(scheduler, steps + 1)
    return states.error is None and all(
        abs(rate - present) <= TOLERANCE * max(abs(rate), abs(present))
        for rate, present in zip(states.values[-1], rates, strict=True)
    )


def compare_next(scheduler: UserValue, schedules: Sequence[Schedule], prover: Prover) -> None:
    """Compares what a copy of the scheduler does next, in its present state, with the schedules."""
    if method_of(scheduler) is not None:
        return
    rates = next_rates(scheduler, NEXT_STEPS)
    present = last_epoch_of(scheduler)
    for index, schedule in enumerate(schedules):
        where = f"{type(scheduler).__name__}, param group {index}"
        rates_of_group = rates.of_group(index)
        difference = first_difference(schedule, dict(enumerate(rates_of_group, present)), prover)
        if difference is not None:
            raise TraceError(
                f"the schedule differs from the scheduler in its present state: at step {present} "
                f"the rate is {rates_of_group[0]!r}, and at step {difference} the schedule is "
                f"{prover.value(schedule.bound, difference)!r} and the scheduler sets "
                f"{rates_of_group[difference - present]!r}",
                where=where,
                hint="import the scheduler before its first step, or set the rate of the group to "
                "the value of the schedule",
            )
        steps = range(present, present + len(rates_of_group))
        compare_graph(schedule, steps, functools.partial(prover.value, schedule.bound), where)


def first_difference(schedule: Schedule, rates: Mapping[int, float], prover: Prover) -> int | None:
    """The first of some steps at which a schedule differs from the rate there."""
    scale = max(map(abs, rates.values()), default=0.0)
    for step, rate in rates.items():
        value = prover.value(schedule.bound, step)
        if value is None or not abs(value - rate) <= TOLERANCE * scale:
            return step
    return None


def next_rates(scheduler: UserValue, steps: int) -> Rates:
    """Returns the rates of all groups from the present step on."""
    return _rates_of_copy(scheduler, "lr", lambda _: None, steps + 1)


def _rates_of_copy(
    scheduler: UserValue, rate: str, begin: Callable[[Any], None], steps: int
) -> Rates:
    """The rates of all groups in steps of a copy, whose groups begin with one of their entries."""
    groups = [
        {**entries, "params": [torch.nn.Parameter(torch.zeros(1))], "lr": float(entries[rate])}
        for entries in entries_of(scheduler)
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler_copy = _copy_value(scheduler, optimizer)
        begin(scheduler_copy)

        def take_step(step: int) -> Sequence[float]:
            if step:  # the first one is that of the constructor
                scheduler_copy.step()
            return [float(group["lr"]) for group in optimizer.param_groups]

        return _take_steps(take_step, steps)


def _copy_value(value: Any, optimizer: torch.optim.Optimizer) -> Any:
    """A copy of a scheduler in its present state, or of a value in it.

    Objects of the user, such as a trainer whose method is the function of a LambdaLR, stay.
    """
    if isinstance(value, LRScheduler):
        scheduler_copy: Any = object.__new__(type(value))
        attributes = {
            name: _copy_value(entry, optimizer)
            for name, entry in vars(value).items()
            if name != "optimizer"
        }
        scheduler_copy.__dict__.update({**attributes, "optimizer": optimizer})
        return scheduler_copy
    if type(value) is dict:
        return {key: _copy_value(entry, optimizer) for key, entry in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_copy_value(entry, optimizer) for entry in value)
    return value.clone() if isinstance(value, torch.Tensor) else value


def compare(scheduler: UserValue, schedules: Sequence[Schedule], prover: Prover) -> None:
    """Compares a copy of the scheduler, on a new optimizer, with the schedules."""
    lengths = [int(schedule.length) for schedule in schedules if schedule.length is not None]
    marks = list(_milestones(scheduler))
    ends = [step + 2 for step in (*lengths, *marks)]
    count = min(max([_COMPARED_STEPS, *ends]), _MOST_COMPARED)
    rates = _first_rates(scheduler, count)
    for index, schedule in enumerate(schedules):
        where = f"{type(scheduler).__name__}, param group {index}"
        rates_of_group = rates.of_group(index)
        steps = _sample(len(rates_of_group), marks)
        error = rates.error
        if error is not None and schedule.last_step != len(rates_of_group) - 1:
            raise TraceError(
                f"the scheduler raises {type(error).__name__} at step {len(rates_of_group)}, where "
                f"the schedule has a value: {error}",
                where=_place_of(error, where),
                hint=BY_A_FUNCTION,
            ) from error
        step = first_difference(schedule, {k: rates_of_group[k] for k in steps}, prover)
        if step is not None:
            value = prover.value(schedule.bound, step)
            raise TraceError(
                f"the schedule differs from the scheduler: at step {step} it is "
                f"{math.nan if value is None else value!r}, and the scheduler sets "
                f"{rates_of_group[step]!r}",
                where=where,
                hint="members of a composite change each other's values"
                if isinstance(scheduler, COMPOSITES)
                else "a value that the scheduler keeps from update to update is a state: "
                f"{BY_A_FUNCTION}",
            )
        compare_graph(schedule, steps, functools.partial(prover.value, schedule.bound), where)


def _place_of(error: Exception, where: str) -> str:
    """The line of the user, or else of a scheduler of torch, that an exception came from."""
    tracer_and_torch, schedulers = files_of("closedform", "torch"), files_of("torch.optim")
    return origin(
        error, where, lambda file: file not in tracer_and_torch, lambda file: file in schedulers
    )


def _sample(count: int, marks: Sequence[int]) -> list[int]:
    """All of the first steps, those around milestones, and later ones at equal distances."""
    around = {mark + offset for mark in marks for offset in (-1, 0, 1)}
    regular = range(0, count, max(1, count // 50))
    steps = {*range(min(count, _COMPARED_STEPS)), *regular, *around, count - 1}
    return sorted(step for step in steps if 0 <= step < count)


def _milestones(scheduler: UserValue) -> Iterator[int]:
    """The milestones of a composite and of its members, in their own steps."""
    yield from getattr(scheduler, "_milestones", ())
    for member in getattr(scheduler, "_schedulers", ()):
        yield from _milestones(member)


def _first_rates(scheduler: UserValue, steps: int) -> Rates:
    """The rates of all groups at the first steps."""
    method = method_of(scheduler)
    if method is not None:
        return _rates_of_method(scheduler, method, steps)

    def begin(scheduler_copy: UserValue) -> None:
        _rewind(scheduler_copy)
        _begin(scheduler_copy)

    return _rates_of_copy(scheduler, "initial_lr", begin, steps)


def _rates_of_method(scheduler: UserValue, method: str, steps: int) -> Rates:
    """The rates of a class with a method of the number of updates."""
    field, groups = field_of(scheduler), entries_of(scheduler)
    for group in groups:
        group[field] = float(group[f"initial_{field}"])
    copy: Any = object.__new__(type(scheduler))
    optimizer = types.SimpleNamespace(param_groups=groups)
    copy.__dict__.update({**vars(scheduler), "optimizer": optimizer})

    def take_step(step: int) -> Sequence[float]:
        values = getattr(copy, method)(step)
        for index, group in enumerate(groups):
            group[field] = group[field] if values is None else float(of_group(values, index))
        return [group[field] for group in groups]

    return _take_steps(take_step, steps)


def _rewind(scheduler: UserValue) -> None:
    """Gives a copy of a scheduler the state before its first step."""
    scheduler.last_epoch, scheduler._step_count = -1, 0
    members: list[LRScheduler] | None = getattr(scheduler, "_schedulers", None)
    if members is not None:
        scheduler.last_epoch = 0
        for member in members:
            _rewind(member)
    if hasattr(scheduler, "T_0"):
        scheduler.T_i, scheduler.T_cur = scheduler.T_0, 0


def _begin(scheduler: UserValue) -> None:
    """Sets the first value, as the constructors do."""
    match scheduler:
        case SequentialLR():
            scheduler._schedulers[bisect_right(scheduler._milestones, 0)]._initial_step()
        case ChainedScheduler():
            for member in scheduler._schedulers:
                _begin(member)
        case _:
            scheduler._initial_step()

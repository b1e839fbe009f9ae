"""ParamScheduler: a schedule as a torch LRScheduler, for any key of an optimizer's param groups."""

from __future__ import annotations

import functools
import hashlib
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from closedform.errors import ArgumentError, DefinitionError, StateError, UnknownNameError, nearest
from closedform.language import Schedule
from closedform.language.printing import text
from closedform.recipes.tags import matching_groups, read_tags
from closedform.torch.param_groups import assign, copy_value, like
from closedform.torch.schedule_values import (
    EntryValues,
    FunctionValues,
    ScheduleSpec,
    TupleValues,
    check_fits,
    read_values,
)

Tags = str | Sequence[str | None] | None
"""Selects param groups by their tags."""

_STATE_KEYS = ("last_epoch", "_step_count", "key", "digest", "expression")
_LONGEST_TEXT = 200
_ORDER = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
_MARKED = "_wrapped_by_lr_sched"
"""The attribute by which torch recognizes a step that records its calls."""
_CALLS = "_calls"


_MOST_RATES = 4
"""Values of param groups in a repr."""


@dataclass(frozen=True, slots=True)
class ScheduledEntry:
    """An entry of a param group, and its values.

    Attributes:
        index: The index of the group.
        key: The entry.
        values: Its value at each step.
    """

    index: int
    key: str
    values: EntryValues


class ParamScheduler(LRScheduler):
    """Drives an entry of an optimizer's param groups along a schedule.

    The value depends only on ``last_epoch``, the number of ``step()`` calls after construction:
    after any load, copy or jump it is exactly ``schedule(last_epoch)`` in float64. A tensor is
    filled in place, so that a compiled step reads the new value without recompilation. Each group
    saves its original value as ``initial_<key>``.

    Args:
        optimizer: Any torch optimizer.
        schedule: A Schedule for all groups, or a list with one for each group (None for a group
            that is not scheduled). For an entry that is a tuple, such as betas, give a tuple of a
            Schedule, a number, or None (not scheduled) for each element.
        key: The entry of the param groups.
        tags: A tag or a list of tags: groups are selected if their ``tags`` contain one of them.
            None in the list selects groups without tags; None itself selects all groups.
        last_epoch: The step before the first one: the first value is for ``last_epoch + 1``.

    Raises:
        ArgumentError: ``optimizer`` is not a torch optimizer.
        DefinitionError: ``schedule`` has none of these forms or cannot drive the value of a group,
            or no group has one of the tags.
        UnknownNameError: A group does not have the entry.

    Example:
        >>> import torch
        >>> from closedform.schedules import linear
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = torch.optim.SGD([weight], lr=0.1)
        >>> scheduler = ParamScheduler(optimizer, linear(0.1, 0, 10))
        >>> optimizer.step()
        >>> scheduler.step()
        >>> optimizer.param_groups[0]["lr"], scheduler.get_last_lr()
        (0.09, [0.09])
    """

    __slots__ = ("_versions",)  # not among the attributes, which torch's users compare

    optimizer: Optimizer
    base_lrs: list[Any]
    last_epoch: int
    _step_count: int
    _entries: tuple[ScheduledEntry, ...]
    _versions: dict[int, Any]

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: ScheduleSpec | list[ScheduleSpec | None],
        key: str = "lr",
        tags: Tags = None,
        last_epoch: int = -1,
    ) -> None:
        # torch's constructor is not called: it always schedules "lr".
        check_optimizer(optimizer, f"{type(self).__name__} of {key!r}")
        entries = scheduled_entries(optimizer, schedule, key, tags, type(self).__name__)
        self._start(optimizer, entries, key, last_epoch)

    def _start(
        self, optimizer: Optimizer, entries: Iterable[ScheduledEntry], key: str, last_epoch: int
    ) -> None:
        """Starts the schedule; everything is checked before the first group is written."""
        self._entries = tuple(entries)
        _check_last_epoch(last_epoch, f"{type(self).__name__} of {key!r}")
        for entry in self._entries:
            check_entry(optimizer, entry, type(self).__name__)
        self.optimizer = optimizer
        self.key = key
        self.last_epoch = last_epoch
        for entry in self._entries:
            group = optimizer.param_groups[entry.index]
            # A resumed run has initial_<key> in its groups already, as torch's schedulers expect
            # for last_epoch >= 0.
            group.setdefault(f"initial_{entry.key}", copy_value(group[entry.key]))
        self.base_lrs = [
            copy_value(group.get(f"initial_{key}", group.get(key)))
            for group in optimizer.param_groups
        ]
        self._group_count = len(optimizer.param_groups)
        self._last: dict[tuple[int, str], Any] = {}
        self._versions = {}
        self._watch_steps()
        self._initial_step()

    def __repr__(self) -> str:
        rates = ", ".join(str(value) for value in self.get_last_lr()[:_MOST_RATES])
        return f"{type(self).__name__}({self.key} = {rates} at step {self.last_epoch})"

    def _initial_step(self) -> None:
        """Writes the first value; torch's SequentialLR calls this again for its first scheduler."""
        # step() makes it 1, as the constructor of torch does.
        self._step_count = 0
        self.step()

    def _watch_steps(self) -> None:
        """Wraps the optimizer's step so that it records its call, for the check of the order.

        A hook is not sufficient, since a step under torch.compile runs none; neither is an
        attribute of the optimizer, which is lost after a trace. A list survives.
        """
        step = self.optimizer.step
        method = getattr(step, "__func__", None)
        # Already wrapped by another scheduler, here or in torch: both look for the same mark.
        if method is None or hasattr(step, _MARKED):
            return
        # A strong reference would be a cycle with the optimizer; torch's wrapper has a weak one.
        owner = weakref.ref(self.optimizer)
        calls = [False]

        @functools.wraps(method)
        def step_and_mark(*args: Any, **kwargs: Any) -> Any:
            optimizer = owner()
            optimizer._opt_called = True  # type: ignore[union-attr]
            calls[0] = True
            return method(optimizer, *args, **kwargs)

        setattr(step_and_mark, _MARKED, True)
        setattr(step_and_mark, _CALLS, calls)
        self.optimizer.step = step_and_mark  # type: ignore[method-assign]

    def step(self, epoch: int | None = None) -> None:
        """Moves to the next step, or to step ``epoch``, and writes its values."""
        # At the second call only, as torch: the first one is that of the constructor.
        if self._step_count == 1 and epoch is None:
            self._warn_of_order()
        self._step_count += 1
        self._update_lr(epoch)

    def _warn_of_order(self) -> None:
        if not hasattr(self.optimizer.step, _MARKED):
            warnings.warn(
                "`optimizer.step()` has been overridden after the scheduler was made, so that the "
                f"order of the two steps is not checked. See {_ORDER}",
                UserWarning,
                stacklevel=3,
            )
        elif _was_skipped(self.optimizer):
            warnings.warn(
                "scheduler.step() was called before the first optimizer.step(): the first value of "
                f"the schedule is skipped. Call optimizer.step() first. See {_ORDER}",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        """Moves the clock and writes values; torch's SequentialLR calls this at a milestone."""
        if epoch is not None:
            _check_last_epoch(epoch, f"{type(self).__name__} of {self.key!r}")
        step = self.last_epoch + 1 if epoch is None else epoch
        self._write(step, is_next=epoch is None)
        self.last_epoch = step

    def _write(self, step: int, *, is_next: bool = False) -> None:
        """Writes the values of a step.

        Args:
            step: The step.
            is_next: Whether it follows the last one that was written.
        """
        del is_next
        self._check_group_count()
        for entry in self._entries:
            value = entry.values.at(step)
            assign(self.optimizer.param_groups[entry.index], entry.key, value)
            self._last[entry.index, entry.key] = value

    def _check_group_count(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != self._group_count:
            raise DefinitionError(
                f"the optimizer has {len(groups)} param groups, but had {self._group_count} when "
                "the scheduler was made",
                where=f"{type(self).__name__} of {self.key!r}",
                hint="make a new scheduler with last_epoch after add_param_group",
            )

    def get_last_value(self, key: str | None = None) -> list[Any]:
        """Returns the last value written to each group, None for a group that is not scheduled.

        Args:
            key: The entry; by default, that of the scheduler.

        Raises:
            UnknownNameError: The scheduler does not drive the entry.
        """
        driven_key = self.key if key is None else key
        last_values = {
            index: value for (index, key), value in self._last.items() if key == driven_key
        }
        if not last_values:
            raise UnknownNameError(
                f"{type(self).__name__} does not drive {driven_key!r}",
                hint=nearest(driven_key, {entry.key for entry in self._entries}),
            )
        return [
            like(group[driven_key], last_values[index]) if index in last_values else None
            for index, group in enumerate(self.optimizer.param_groups)
        ]

    def get_last_lr(self) -> list[Any]:
        """Returns the last value of each group; for one that is not scheduled, its own value."""
        return [
            copy_value(group.get(self.key)) if value is None else value
            for value, group in zip(self.get_last_value(), self.optimizer.param_groups, strict=True)
        ]

    def get_lr(self) -> list[Any]:
        """Returns the value of each group at ``last_epoch``."""
        return self.get_last_lr()

    def _get_closed_form_lr(self) -> Any:
        return self.get_last_lr()

    @property
    def _last_lr(self) -> list[Any]:  # type: ignore[override]
        """The attribute that users of torch's schedulers read directly."""
        return self.get_last_lr()

    @property
    def schedules(self) -> list[Any]:
        """The schedule of each group, None if it is not scheduled; a tuple for a tuple."""
        schedules: list[Any] = [None] * self._group_count
        for entry in self._entries:
            if entry.key == self.key:
                schedules[entry.index] = _schedules_of(entry.values)
        return schedules

    def state_dict(self) -> dict[str, Any]:
        """Returns the clock and an identification of the schedule, as numbers and strings.

        "digest" is a digest of the exact expressions; "expression" is their text, truncated.
        """
        return {
            "last_epoch": self.last_epoch,
            "_step_count": self._step_count,
            "key": self.key,
            "digest": self._digest(),
            "expression": [_describe_entry(entry) for entry in self._entries],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], on_mismatch: str = "error") -> None:
        """Loads the clock from a state, and writes the values of its step.

        Args:
            state_dict: The result of ``state_dict``; with ``"continue"``, also that of torch.
            on_mismatch: ``"error"``, or ``"continue"`` to continue from that step with this
                schedule even if the state belongs to another one.

        Raises:
            StateError: It is not such a state, or that of another schedule; nothing is changed.
            ArgumentError: ``on_mismatch`` has another value.
        """
        where = f"{type(self).__name__} of {self.key!r}"
        if on_mismatch not in ("error", "continue"):
            raise ArgumentError(
                f"on_mismatch must be 'error' or 'continue', got {on_mismatch!r}", where=where
            )
        step = _clock_of(state_dict, where)
        if on_mismatch == "error":
            self._check_same(state_dict, where)
        # -1 is the state before the first step, with the values of step 0.
        self._write(max(step, 0))
        self.last_epoch = step
        self._step_count = int(state_dict.get("_step_count", step + 1))

    def _check_same(self, state_dict: Mapping[str, Any], where: str) -> None:
        missing = [key for key in _STATE_KEYS if key not in state_dict]
        if missing:
            raise StateError(
                f"the state has no {missing[0]!r}, so its schedule is not known",
                where=where,
                hint='pass on_mismatch="continue" to continue from its step regardless',
            )
        if state_dict["digest"] == self._digest():
            return
        mine = [_describe_entry(entry) for entry in self._entries]
        saved_expressions = list(state_dict["expression"])
        pairs = zip(mine, saved_expressions, strict=False)
        difference = next(
            (pair for pair in pairs if pair[0] != pair[1]), (mine[:1], saved_expressions[:1])
        )
        raise StateError(
            f"the state belongs to another schedule: expected {difference[0]}, got {difference[1]}",
            where=where,
            hint='pass on_mismatch="continue" to continue from its step regardless',
        )

    def _digest(self) -> str:
        """The digest of the exact expressions of all entries."""
        # srepr of the exact expressions: two schedules with equal values at all steps may differ in
        # it, which is an error to be overridden, not a silent change.
        content = [(entry.index, entry.key, _codes(entry.values)) for entry in self._entries]
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._versions = {}  # tensors are compared by value after a copy
        self._watch_steps()


def check_optimizer(optimizer: object, where: str) -> None:
    """Raises ArgumentError if the argument is not a torch optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"a scheduler needs a torch optimizer, got {type(optimizer).__name__}", where=where
        )


def scheduled_entries(
    optimizer: Optimizer,
    schedule: ScheduleSpec | list[ScheduleSpec | None],
    key: str,
    tags: Tags,
    owner: str,
) -> list[ScheduledEntry]:
    """Returns the entries that one schedule, or one for each group, entries in selected groups.

    Raises:
        DefinitionError: The schedules have another form or number, or no group has the tags.
    """
    where = f"{owner} of {key!r}"
    groups = optimizer.param_groups
    matches = matching_groups(read_tags(tags, "tags", where), groups, where)
    if not isinstance(schedule, list):
        values = read_values(schedule, where)
        return [
            ScheduledEntry(index, key, values) for index, is_met in enumerate(matches) if is_met
        ]
    if len(schedule) != len(groups):
        raise DefinitionError(
            f"expected a list of {len(groups)} schedules, one for each param group, "
            f"got {len(schedule)}",
            where=where,
        )
    return [
        ScheduledEntry(index, key, read_values(spec, f"{where}, param group {index}"))
        for index, (spec, is_met) in enumerate(zip(schedule, matches, strict=True))
        if is_met and spec is not None
    ]


def check_entry(optimizer: Optimizer, entry: ScheduledEntry, owner: str) -> None:
    """Raises an error if a group does not have the entry, or its value cannot be scheduled."""
    group = optimizer.param_groups[entry.index]
    where = f"{owner}, param group {entry.index}"
    if entry.key not in group:
        names = [name for name in group if name != "params"]
        hint = nearest(entry.key, names) if names else "it has no entries"
        raise UnknownNameError(f"the group has no entry {entry.key!r}", where=where, hint=hint)
    check_fits(group[entry.key], entry.values, f"{where}, {entry.key!r}")


def _was_skipped(optimizer: Optimizer) -> bool:
    step = optimizer.step
    is_called = getattr(optimizer, "_opt_called", False) or True in getattr(step, _CALLS, ())
    return hasattr(step, _MARKED) and not is_called


def _check_last_epoch(value: Any, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise DefinitionError(f"last_epoch must be an integer >= -1, got {value!r}", where=where)


def _clock_of(state_dict: Any, where: str) -> int:
    step = state_dict.get("last_epoch") if isinstance(state_dict, Mapping) else None
    if isinstance(step, bool) or not isinstance(step, int) or step < -1:
        raise StateError(
            f"the state of a scheduler has an integer 'last_epoch' >= -1, got {step!r}",
            where=where,
            hint="load a result of state_dict()",
        )
    return step


def _parts(values: EntryValues) -> Sequence[Schedule | None]:
    if isinstance(values, TupleValues):
        return [None if element is None else element.schedule for element in values.elements]
    return [values.schedule]


def _schedules_of(values: EntryValues) -> Any:
    return tuple(_parts(values)) if isinstance(values, TupleValues) else values.schedule


def _codes(values: EntryValues) -> list[str]:
    if isinstance(values, FunctionValues):
        return [values.text]
    return [_code(part) for part in _parts(values)]


def _code(schedule: Schedule | None) -> str:
    return "" if schedule is None else str(sp.srepr(schedule.bound))


def _describe_entry(entry: ScheduledEntry) -> str:
    values = entry.values
    if isinstance(values, FunctionValues):
        formulas = [values.text]
    else:
        formulas = [
            "not scheduled" if part is None else text(part.bound) for part in _parts(values)
        ]
    line = f"param group {entry.index}, {entry.key}: {', '.join(formulas)}"
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}…"

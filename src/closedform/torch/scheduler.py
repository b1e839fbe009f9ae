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
from closedform.torch.schedule_values import (
    Course,
    Tuple,
    Values,
    assign,
    check_fits,
    copied,
    like,
    read_values,
)

_STATE_KEYS = ("last_epoch", "_step_count", "key", "digest", "expression")
_LONGEST_TEXT = 200
_MARKED = "_wrapped_by_lr_sched"
"""The attribute by which torch knows a step that marks itself as called."""
_CALLS = "_calls"


@dataclass(frozen=True, slots=True)
class Drive:
    """What is written to one entry of one param group.

    Attributes:
        index: The group's place among the groups.
        key: The entry.
        values: Its value at each step.
    """

    index: int
    key: str
    values: Values


class ParamScheduler(LRScheduler):
    """Drives an entry of an optimizer's param groups along a schedule.

    The value is a function of ``last_epoch`` alone, the number of ``step()`` calls after
    construction: after any load, copy or jump it is exactly ``schedule(last_epoch)`` in float64. A
    value that is a tensor is filled where it lies, so that a compiled step sees it change without
    being compiled again. Each group keeps the value from before in ``initial_<key>``.

    Args:
        optimizer: Any torch optimizer.
        schedule: A Schedule for all groups, or a list with one for each group (None leaves a group
            as it is). For an entry that is a tuple, such as betas, a tuple takes the place of a
            Schedule: with a Schedule, a number, or None to keep it, for each entry.
        key: The entry of the param groups.
        tags: A tag, or a list of them: the groups whose ``tags`` hold one of them. None in the list
            stands for groups without tags; None itself for all groups.
        last_epoch: The step before the first one: the first value is that of ``last_epoch + 1``.

    Raises:
        ArgumentError: ``optimizer`` is no torch optimizer.
        DefinitionError: ``schedule`` has none of these forms, or cannot drive the value of a group,
            or the tags match no group.
        UnknownNameError: A group has no such entry.

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

    optimizer: Optimizer
    base_lrs: list[Any]
    last_epoch: int
    _step_count: int
    _drives: tuple[Drive, ...]

    def __init__(
        self,
        optimizer: Optimizer,
        schedule: object,
        key: str = "lr",
        tags: object = None,
        last_epoch: int = -1,
    ) -> None:
        # torch's constructor is not called: it schedules "lr", whatever the key.
        check_optimizer(optimizer, f"{type(self).__name__} of {key!r}")
        drives = read_drives(optimizer, schedule, key, tags, type(self).__name__)
        self._start(optimizer, drives, key, last_epoch)

    def _start(
        self, optimizer: Optimizer, drives: Iterable[Drive], key: str, last_epoch: int
    ) -> None:
        """Begins: all is checked before the first group is written."""
        self._drives = tuple(drives)
        _check_last_epoch(last_epoch, f"{type(self).__name__} of {key!r}")
        for drive in self._drives:
            check_drive(optimizer, drive, type(self).__name__)
        self.optimizer = optimizer
        self.key = key
        self.last_epoch = last_epoch
        for drive in self._drives:
            group = optimizer.param_groups[drive.index]
            group.setdefault(f"initial_{drive.key}", copied(group[drive.key]))
        self.base_lrs = [
            copied(group.get(f"initial_{key}", group.get(key))) for group in optimizer.param_groups
        ]
        self._group_count = len(optimizer.param_groups)
        self._watch_steps()
        self._initial_step()

    def _initial_step(self) -> None:
        """Sets the first value; torch's SequentialLR calls this again for its first member."""
        self._step_count = 0
        self.step()

    def _watch_steps(self) -> None:
        """Makes the optimizer's step leave the mark by which torch's schedulers see the order.

        A hook would not do: a step under torch.compile runs none. Nor does an attribute of the
        optimizer, which a trace sets and loses: what a trace keeps is a list.
        """
        step = self.optimizer.step
        method = getattr(step, "__func__", None)
        if method is None or hasattr(step, _MARKED):
            return
        owner = weakref.ref(self.optimizer)
        calls = [False]

        @functools.wraps(method)
        def marked(*args: Any, **kwargs: Any) -> Any:
            optimizer = owner()
            optimizer._opt_called = True  # type: ignore[union-attr]
            calls[0] = True
            return method(optimizer, *args, **kwargs)

        setattr(marked, _MARKED, True)
        setattr(marked, _CALLS, calls)
        self.optimizer.step = marked  # type: ignore[method-assign]

    def step(self, epoch: int | None = None) -> None:
        """Goes to the next step, or to step ``epoch``, and writes the values of it."""
        if self._step_count == 1 and epoch is None and _was_skipped(self.optimizer):
            warnings.warn(
                "scheduler.step() was called before the first optimizer.step(): the first value of "
                "the schedule is skipped. Call optimizer.step() first.",
                UserWarning,
                stacklevel=2,
            )
        self._step_count += 1
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        """Moves the clock and writes; torch's SequentialLR calls this at a milestone."""
        if epoch is not None:
            _check_last_epoch(epoch, f"{type(self).__name__} of {self.key!r}")
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._write(self.last_epoch)

    def _write(self, step: int) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != self._group_count:
            raise DefinitionError(
                f"the optimizer has {len(groups)} param groups, the scheduler was made for "
                f"{self._group_count}",
                where=f"{type(self).__name__} of {self.key!r}",
                hint="make a new scheduler with last_epoch after add_param_group",
            )
        for drive in self._drives:
            assign(groups[drive.index], drive.key, drive.values.at(step))

    def get_last_value(self, key: str | None = None) -> list[Any]:
        """Returns the last value written to each group, None for a group that is left as it is.

        Args:
            key: The entry; that of the scheduler if not given.

        Raises:
            UnknownNameError: The scheduler does not drive that entry.
        """
        wanted = self.key if key is None else key
        driven = {drive.index: drive.values for drive in self._drives if drive.key == wanted}
        if not driven:
            raise UnknownNameError(
                f"{type(self).__name__} does not drive {wanted!r}",
                hint=nearest(wanted, {drive.key for drive in self._drives}),
            )
        step = max(self.last_epoch, 0)
        return [
            like(group[wanted], driven[index].at(step)) if index in driven else None
            for index, group in enumerate(self.optimizer.param_groups)
        ]

    def get_last_lr(self) -> list[Any]:
        """Returns the last value of each group; for one that is left as it is, its own value."""
        return [
            copied(group.get(self.key)) if value is None else value
            for value, group in zip(self.get_last_value(), self.optimizer.param_groups, strict=True)
        ]

    def get_lr(self) -> list[Any]:
        """Returns the value of each group at ``last_epoch``."""
        return self.get_last_lr()

    def _get_closed_form_lr(self) -> Any:
        return self.get_last_lr()

    @property
    def _last_lr(self) -> list[Any]:  # type: ignore[override]
        """What clients of torch's schedulers read without asking."""
        return self.get_last_lr()

    @property
    def schedules(self) -> list[Any]:
        """The schedule of each group, None where it is left as it is; a tuple for a tuple."""
        found: list[Any] = [None] * self._group_count
        for drive in self._drives:
            if drive.key == self.key:
                found[drive.index] = _schedules_of(drive.values)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Returns the clock and what the schedule is: plain numbers and strings.

        "digest" is that of the exact expressions; "expression" shows them, cut where they are long.
        """
        return {
            "last_epoch": self.last_epoch,
            "_step_count": self._step_count,
            "key": self.key,
            "digest": self._digest(),
            "expression": [_shown(drive) for drive in self._drives],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], on_mismatch: str = "error") -> None:
        """Takes over the clock of a state, and writes the values of that step.

        Args:
            state_dict: What ``state_dict`` returned; also torch's own, with ``"continue"``.
            on_mismatch: ``"error"``, or ``"continue"`` to go on from that step with this schedule
                although the state is of another one.

        Raises:
            StateError: It is no such state, or of another schedule; nothing is changed.
            ArgumentError: ``on_mismatch`` is neither.
        """
        where = f"{type(self).__name__} of {self.key!r}"
        if on_mismatch not in ("error", "continue"):
            raise ArgumentError(
                f"on_mismatch must be 'error' or 'continue', got {on_mismatch!r}", where=where
            )
        step = _clock_of(state_dict, where)
        if on_mismatch == "error":
            self._check_same(state_dict, where)
        self._write(max(step, 0))
        self.last_epoch = step
        self._step_count = int(state_dict.get("_step_count", step + 1))

    def _check_same(self, state_dict: Mapping[str, Any], where: str) -> None:
        missing = [key for key in _STATE_KEYS if key not in state_dict]
        if missing:
            raise StateError(
                f"the state has no {missing[0]!r}, so it is not known of which schedule it is",
                where=where,
                hint='to go on from its step all the same, pass on_mismatch="continue"',
            )
        if state_dict["digest"] == self._digest():
            return
        mine = [_shown(drive) for drive in self._drives]
        theirs = list(state_dict["expression"])
        pairs = zip(mine, theirs, strict=False)
        found = next((pair for pair in pairs if pair[0] != pair[1]), (mine[:1], theirs[:1]))
        raise StateError(
            f"the state is of another schedule: {found[1]}, here it is {found[0]}",
            where=where,
            hint='to go on from its step all the same, pass on_mismatch="continue"',
        )

    def _digest(self) -> str:
        """The digest of the exact expressions of all that is driven."""
        content = [
            (drive.index, drive.key, [_code(part) for part in _parts(drive.values)])
            for drive in self._drives
        ]
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._watch_steps()


def check_optimizer(optimizer: object, where: str) -> None:
    """Raises ArgumentError where something is no torch optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"a scheduler needs a torch optimizer, got {type(optimizer).__name__}", where=where
        )


def read_drives(
    optimizer: Optimizer, schedule: object, key: str, tags: object, owner: str
) -> list[Drive]:
    """Returns what one schedule, or one for each group, writes to the groups with these tags.

    Raises:
        DefinitionError: The schedules have another form or number, or the tags match no group.
    """
    where = f"{owner} of {key!r}"
    groups = optimizer.param_groups
    matches = matching_groups(read_tags(tags, "tags", where), groups, where)
    if not isinstance(schedule, list):
        shared = read_values(schedule, where)
        return [Drive(index, key, shared) for index, is_met in enumerate(matches) if is_met]
    if len(schedule) != len(groups):
        raise DefinitionError(
            f"a list must have a schedule for each param group: expected {len(groups)}, "
            f"got {len(schedule)}",
            where=where,
        )
    return [
        Drive(index, key, read_values(spec, f"{where}, param group {index}"))
        for index, (spec, is_met) in enumerate(zip(schedule, matches, strict=True))
        if is_met and spec is not None
    ]


def check_drive(optimizer: Optimizer, drive: Drive, owner: str) -> None:
    """Raises an error where a group has not the entry, or one that no schedule can write."""
    group = optimizer.param_groups[drive.index]
    where = f"{owner}, param group {drive.index}"
    if drive.key not in group:
        known = [name for name in group if name != "params"]
        hint = nearest(drive.key, known) if known else "it has no entries"
        raise UnknownNameError(f"the group has no entry {drive.key!r}", where=where, hint=hint)
    check_fits(group[drive.key], drive.values, f"{where}, {drive.key!r}")


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
            f"the state of a scheduler holds an integer 'last_epoch' >= -1, got {step!r}",
            where=where,
            hint="load what state_dict() returned",
        )
    return step


def _parts(values: Values) -> Sequence[Schedule | None]:
    if isinstance(values, Tuple):
        return [None if course is None else course.schedule for course in values.courses]
    return [values.schedule]


def _schedules_of(values: Values) -> Any:
    return values.schedule if isinstance(values, Course) else tuple(_parts(values))


def _code(schedule: Schedule | None) -> str:
    return "" if schedule is None else str(sp.srepr(schedule.bound))


def _shown(drive: Drive) -> str:
    formulas = ["kept" if part is None else text(part.bound) for part in _parts(drive.values)]
    line = f"param group {drive.index}, {drive.key}: {', '.join(formulas)}"
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}…"

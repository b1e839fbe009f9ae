"""Behaviour of torch's schedulers in addition to their schedules.

A class of torch that is defined by a recursion acts on the value that it finds in a group, which
another scheduler or the user may have changed. Here, an unchanged value follows the closed form,
and a changed one the recursion.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim.lr_scheduler import EPOCH_DEPRECATION_WARNING

from closedform.errors import DefinitionError
from closedform.torch.compat.schedulers import NamedScheduler
from closedform.torch.param_groups import assign, plain
from closedform.torch.schedule_values import EntryValues, TupleValues
from closedform.torch.scheduler import ParamScheduler, ScheduledEntry


class SavedArguments(NamedScheduler):
    """A scheduler class of torch, whose state has its arguments if they are numbers and strings.

    Loading the state of a scheduler of the same class with other arguments takes these over, as in
    torch, and warns.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the clock, the arguments, and an identification of the schedule."""
        state, arguments = super().state_dict(), _numbers_and_strings(self.kwargs)
        if arguments is not None:
            state["arguments"] = {"class": self.entry.name, **arguments}
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], on_mismatch: str = "error") -> None:
        """Loads the clock, and the arguments of another scheduler of the class.

        Raises:
            StateError: It is not such a state, or that of another class or of other groups;
                nothing is changed.
            ArgumentError: ``on_mismatch`` has another value.
        """
        arguments = dict(state_dict.get("arguments", {})) if isinstance(state_dict, Mapping) else {}
        is_taken = arguments.pop("class", None) == self.entry.name and on_mismatch == "error"
        if not is_taken or arguments == _numbers_and_strings(self.kwargs):
            super().load_state_dict(state_dict, on_mismatch)
            return
        before = self.kwargs, self._entries
        try:
            self._take(arguments, None)
            super().load_state_dict(state_dict, on_mismatch)
        except Exception:
            self._take(*before)
            raise
        warnings.warn(
            f"the state of {self.entry.name} has other arguments, which replace those given here: "
            f"{arguments}, not {before[0]}",
            UserWarning,
            stacklevel=2,
        )

    def _take(self, arguments: dict[str, Any], entries: tuple[ScheduledEntry, ...] | None) -> None:
        self.kwargs = arguments
        self._keep_arguments()
        self._entries = entries or tuple(self._build_entries(self.optimizer, self.key, -1))


def _numbers_and_strings(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments for a state; None if one is neither a number nor a string, nor a list of them."""
    arguments_in_json = {}
    for name, value in arguments.items():
        number = plain(value)
        members = number if isinstance(number, list | tuple) else [number]
        if not all(isinstance(member, int | float | str) or member is None for member in members):
            return None
        arguments_in_json[name] = list(number) if isinstance(number, list | tuple) else number
    return arguments_in_json


class TorchScheduler(SavedArguments):
    """A scheduler class of torch; ``step(epoch)`` is deprecated, as in torch."""

    def step(self, epoch: int | None = None) -> None:
        """Moves to the next step, or to step ``epoch``, and writes its values."""
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        super().step(epoch)


class RecursiveScheduler(TorchScheduler):
    """A class that torch defines by a recursion: it acts on the value that a group has."""

    def _write(self, step: int, *, is_next: bool = False) -> None:
        groups = self.optimizer.param_groups
        # The first write of a resumed scheduler: CosineAnnealingLR.get_lr has this condition, too.
        is_resumed = self._step_count == 1 and step > 0
        if not is_next or is_resumed:
            super()._write(step)
            return
        self._check_groups_left()
        for entry in self._entries:
            self._advance(groups[entry.index], entry, entry.index, step)
        if self._entries:
            for index in range(self._group_count, len(groups)):
                self._advance(groups[index], self._entries[0], index, step)

    def _check_groups_left(self) -> None:
        """Groups may be added: they are moved by the factor of the first one."""
        if len(self.optimizer.param_groups) < self._group_count:
            self._check_group_count()

    def _advance(self, group: dict[str, Any], entry: ScheduledEntry, index: int, step: int) -> None:
        """Writes the next value of a group: the schedule's, or the recursion from another one."""
        after, current = entry.values.at(step), group[entry.key]
        before = entry.values.at(step - 1) if step else plain(self.base_lrs[entry.index])
        value: Any = after
        if index != entry.index or not self._is_own(current, before, index):
            # Groups that were added have no closed form: they move by the factor of the first
            # entry.
            value = self._move_value(current, _number(before), _number(after), step)
        assign(group, entry.key, value)
        is_own = value is after
        if isinstance(current, Tensor):
            # A tensor is written in place: its version counter says so without a copy from the
            # device.
            self._versions[index] = (current, _version(current)) if is_own else None
        self._last[index, entry.key] = value if is_own else _copy_of(group[entry.key])

    def _is_own(self, current: Any, before: Any, index: int) -> bool:
        """Whether nobody has changed the value since the last step; reads no tensor if so."""
        if not isinstance(current, Tensor):
            return bool(current == before)
        version = self._versions.get(index)
        if version is not None and version[0] is current and version[1] == _version(current):
            return True
        # In the dtype of the tensor: a float32 rate is not equal to the float64 value of the
        # schedule.
        return bool(current.item() == current.new_tensor(before).item())

    def _move_value(self, current: Any, before: float, after: float, step: int) -> Any:
        """The next value by the recursion, from a value that the schedule did not write."""
        del step
        if before == after:
            return current
        # From 0 there is no factor: the value of the schedule is taken.
        return current * (after / before) if before else after


class CosineAnnealing(RecursiveScheduler):
    """``CosineAnnealingLR``: the distance to ``eta_min`` is multiplied."""

    def _move_value(self, current: Any, before: float, after: float, step: int) -> Any:
        low, period = float(plain(self.eta_min)), float(plain(self.T_max))  # type: ignore[attr-defined]
        # As in CosineAnnealingLR.get_lr of torch/optim/lr_scheduler.py: at the minimum the distance
        # is 0, which no factor changes.
        if (step - 1 - period) % (2 * period) == 0 or before == low:
            return current + (after - before)
        return (after - low) / (before - low) * (current - low) + low


class OneCycle(TorchScheduler):
    """``OneCycleLR``, which ends: a step after the last one is an error."""

    def _write(self, step: int, *, is_next: bool = False) -> None:
        total = self._length()
        # torch raises ValueError for the same step; step 0 is written by the constructor.
        if step > total:
            raise DefinitionError(
                f"the schedule has {total} steps, got step {step}",
                where=f"{type(self).__name__} of {self.key!r}",
                hint="give a larger total_steps, or stop stepping the scheduler",
            )
        super()._write(step, is_next=is_next)

    def _length(self) -> int:
        total = self.kwargs.get("total_steps")
        if total is None:
            total = self.kwargs["epochs"] * self.kwargs["steps_per_epoch"]
        return int(plain(total))


class WarmRestarts(SavedArguments):
    """``CosineAnnealingWarmRestarts``: the clock of ``step(epoch)`` may be a fraction.

    ``T_cur`` is the time since the last restart, and ``T_i`` the period.
    """

    _fraction: float = 0.0

    def _update_lr(self, epoch: float | None = None) -> None:
        if epoch is not None and not epoch >= 0:
            raise DefinitionError(f"epoch must be >= 0, got {epoch!r}", where=type(self).__name__)
        if epoch is not None:
            self._fraction = epoch - math.floor(epoch)
        super()._update_lr(None if epoch is None else math.floor(epoch))

    @property
    def T_cur(self) -> float:  # noqa: N802 - torch's name
        """The time since the last restart."""
        return self._phase(self.last_epoch + self._fraction)[0]

    @property
    def T_i(self) -> float:  # noqa: N802 - torch's name
        """The period of the last restart."""
        return self._phase(self.last_epoch + self._fraction)[1]

    def _phase(self, time: float) -> tuple[float, float]:
        first, factor = (
            float(plain(self.kwargs.get(*key_and_default)))
            for key_and_default in (("T_0", 1), ("T_mult", 1))
        )
        if factor == 1:
            return time % first, first
        # A loop and not a logarithm, as in torch's step(epoch): math.log(243, 3) is 4.999….
        start, period = 0.0, first
        while time >= start + period:
            start, period = start + period, period * factor
        return time - start, period

    def _write(self, step: int, *, is_next: bool = False) -> None:
        super()._write(step, is_next=is_next)
        if not self._fraction:
            return
        since, period = self._phase(step + self._fraction)
        low, share = float(plain(self.kwargs.get("eta_min", 0))), math.cos(math.pi * since / period)
        for entry in self._entries:
            high = float(plain(self.base_lrs[entry.index]))
            value = low + (high - low) * (1 + share) / 2
            assign(self.optimizer.param_groups[entry.index], entry.key, value)
            self._last[entry.index, entry.key] = value

    def state_dict(self) -> dict[str, Any]:
        """Returns the clock with its fraction, and an identification of the schedule."""
        return {**super().state_dict(), "fraction": self._fraction}

    def load_state_dict(self, state_dict: Mapping[str, Any], on_mismatch: str = "error") -> None:
        """Loads the clock with its fraction; see ``ParamScheduler.load_state_dict``."""
        before = self._fraction
        self._fraction = float(state_dict.get("fraction", 0))
        try:
            super().load_state_dict(state_dict, on_mismatch)
        except Exception:
            self._fraction = before
            raise


class Composite(TorchScheduler):
    """A scheduler of schedulers, whose members show the step and the value that they have in it."""

    @property
    def members(self) -> list[Any]:
        """The schedulers, or their classes and arguments."""
        return list(self.kwargs["schedulers"])

    def _write(self, step: int, *, is_next: bool = False) -> None:
        super()._write(step, is_next=is_next)
        self._follow(step)

    def _follow(self, step: int) -> None:
        raise NotImplementedError


class Chained(Composite):
    """``ChainedScheduler``: its members act one after the other.

    A member therefore shows the factors of this step up to its own, and of the step before of the
    members after it.
    """

    def _follow(self, step: int) -> None:
        # A member multiplies the factors of the members before it in this step, and after it in the
        # step before: torch calls them in their order.
        members = [member for member in self.members if isinstance(member, ParamScheduler)]
        values_of_members = [dict(_values_of(member, self.key)) for member in members]
        for number, member in enumerate(members):
            member.last_epoch = step
            for index in values_of_members[number]:
                base = float(plain(self.base_lrs[index]))
                value = base
                for number_of_member, values in enumerate(values_of_members):
                    if index in values and base:
                        time = step if number_of_member <= number else max(step - 1, 0)
                        is_applied = number_of_member <= number or step > 0
                        value *= _number(values[index].at(time)) / base if is_applied else 1
                member._last[index, self.key] = value


class Sequential(Composite):
    """``SequentialLR``: one member is active, in its own time."""

    def _follow(self, step: int) -> None:
        marks = [int(plain(mark)) for mark in self.kwargs["milestones"]]
        active = bisect_right(marks, step)
        for number, (start, member) in enumerate(zip((0, *marks), self.members, strict=True)):
            if not isinstance(member, ParamScheduler):
                continue
            # Finished members stand at their last step, later ones at -1, where a clock begins.
            end = marks[number] - 1 if number < active else step if number == active else start - 1
            member.last_epoch = end - start
            if number == active:
                for index, _ in _values_of(member, self.key):
                    if (index, self.key) in self._last:
                        member._last[index, self.key] = self._last[index, self.key]


def _values_of(member: ParamScheduler, key: str) -> Iterator[tuple[int, EntryValues]]:
    for entry in member._entries:
        if entry.key == key and not isinstance(entry.values, TupleValues):
            yield entry.index, entry.values


def _number(value: Any) -> float:
    """The value of an entry that is one number: recursions move no tuples."""
    return float(value)


def _copy_of(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _version(value: Tensor) -> int | None:
    """How often a tensor was written in place; unknown for one made in inference mode."""
    return None if value.is_inference() else value._version


_RECURSIVE = (
    "ConstantLR",
    "ExponentialLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "StepLR",
)
_BASES: Mapping[str, type[NamedScheduler]] = {
    **dict.fromkeys(_RECURSIVE, RecursiveScheduler),
    "ChainedScheduler": Chained,
    "CosineAnnealingLR": CosineAnnealing,
    "CosineAnnealingWarmRestarts": WarmRestarts,
    "OneCycleLR": OneCycle,
    "SequentialLR": Sequential,
}


def base_of(name: str) -> type[NamedScheduler]:
    """Returns the base of a scheduler class of torch."""
    return _BASES.get(name, TorchScheduler)

"""A step kept for the next one: the same parameters, states and rules, with new gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_, itemgetter
from typing import Any

import torch
from torch import Tensor

from closedform.torch.engine.bound_program import Prepared
from closedform.torch.engine.plans import Plan

Group = Mapping[str, Any]
States = Mapping[Tensor, dict[str, Tensor]]
"""The states of each parameter."""

_PARAMS = itemgetter("params")
_NOTHING = torch.empty(0)

Slot = tuple[list[Tensor], int]
"""A list of tensors, and a place there."""


@dataclass(slots=True)
class KeptGroup:
    """A param group of a kept step.

    Attributes:
        plan: What it runs with.
        entries: The entries that its hyperparameters were last read from.
        scheduled: The hyperparameters that are no entries.
        is_constant: Whether nobody can change these entries in place.
        slots: Where the gradient of each parameter is; None if it had none.
    """

    plan: Plan
    entries: dict[str, Any]
    scheduled: Group
    is_constant: bool
    slots: list[Slot | None]

    def is_renewed(self, group: Group) -> bool:
        """Takes over gradients and numbers; returns whether they are of the kinds that they were.

        The parameters are those that they were, if they are as many.
        """
        if len(group["params"]) != len(self.slots):
            return False
        for param, slot in zip(group["params"], self.slots, strict=True):
            grad = param.grad
            if grad is None or slot is None:
                if grad is slot:
                    continue
                return False
            if type(grad) is not Tensor or grad.requires_grad or grad.layout is not torch.strided:
                return False
            tensors, place = slot
            tensors[place] = grad
        return self._is_read(group)

    def _is_read(self, group: Group) -> bool:
        """Reads the numbers again where one may be another; returns whether the rule has stayed."""
        entries = self.entries
        if self.is_constant and all(map(is_, map(group.get, entries), entries.values())):
            return True
        if not all(key in group for key in entries):
            return False
        self.entries = {key: group[key] for key in entries}
        self.is_constant = _is_constant(tuple(self.entries.values()))
        values = {**self.entries, **self.scheduled}
        is_served = self.plan.variant.serves(values)
        if is_served:
            self.plan.read(values)
        return is_served


def _is_constant(value: Any) -> bool:
    """Whether nobody can change a value in place."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, int | float | str)


class KeptStep:
    """The steps of all parameters that had a gradient, and the tensors that they were done on.

    Args:
        kept: The groups, as they were.
        groups: The groups.
        states: The states of all parameters.
        prepared: The steps.
    """

    def __init__(
        self,
        kept: Sequence[KeptGroup],
        groups: Sequence[Group],
        states: States,
        prepared: Sequence[Prepared],
    ) -> None:
        self._groups = kept
        self._prepared = prepared
        self._alive = list(_objects(groups, states))
        self._ids = list(map(id, self._alive))
        self._slots = [slot for group in kept for slot in group.slots if slot is not None]
        self.forget()

    def is_renewed(self, groups: Sequence[Group], states: States) -> bool:
        """Takes over gradients and numbers; returns whether all else is as it was."""
        if list(map(id, _objects(groups, states))) != self._ids:
            return False
        return all(kept.is_renewed(group) for kept, group in zip(self._groups, groups, strict=True))

    def run(self) -> None:
        """Does the steps."""
        for one in self._prepared:
            one.run()
        self.forget()

    def forget(self) -> None:
        """Lets the gradients go, which the model may want to."""
        for tensors, place in self._slots:
            tensors[place] = _NOTHING


def _objects(groups: Sequence[Group], states: States) -> Iterator[Any]:
    """All groups, parameters and states, in order: a step is on these objects."""
    return chain(groups, *map(_PARAMS, groups), states, *map(dict.values, states.values()))


def kept_step(
    sources: Iterable[tuple[Plan, Group]],
    keys: Sequence[str],
    groups: Sequence[Group],
    states: States,
    prepared: Sequence[Prepared],
) -> KeptStep | None:
    """Returns the step that was done with these gradients; None where it cannot be done again.

    That is so where not each gradient has one place of its own among the tensors of prepared
    steps: some parameters were stepped in other ways, or two have one tensor as their gradient.

    Args:
        sources: What each group runs with, and the hyperparameters that are no entries of it.
        keys: The entries that hyperparameters may be.
        groups: The groups.
        states: The states of all parameters.
        prepared: The steps.
    """
    params = [param for group in groups for param in group["params"] if param.grad is not None]
    slots: dict[int, list[Slot]] = {id(param.grad): [] for param in params}
    for one in prepared:
        for place, tensor in enumerate(one.tensors):
            if id(tensor) in slots:
                slots[id(tensor)].append((one.tensors, place))
    if any(len(found) != 1 for found in slots.values()):
        return None
    kept = []
    for (plan, scheduled), group in zip(sources, groups, strict=True):
        entries = {key: group[key] for key in keys if key in group}
        is_constant = _is_constant(tuple(entries.values()))
        grads = [param.grad for param in group["params"]]
        own = [None if grad is None else slots[id(grad)][0] for grad in grads]
        kept.append(KeptGroup(plan, entries, scheduled, is_constant, own))
    return KeptStep(kept, groups, states, prepared)

"""A step kept for the next one: the same parameters, states and rules, with new gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch
from torch import Tensor

from closedform.torch.calls import Prepared
from closedform.torch.plans import Plan

Group = Mapping[str, Any]
States = Mapping[Tensor, Mapping[str, Tensor]]
"""The states of each parameter."""

Slot = tuple[list[Tensor], int]
"""A list of tensors, and a place there."""


@dataclass(slots=True)
class KeptGroup:
    """A param group of a kept step.

    Attributes:
        plan: What it runs with.
        entries: The entries that its hyperparameters were last read from.
        scheduled: The hyperparameters that are no entries.
        params: Its parameters.
        states: The states of each parameter.
        slots: Where the gradient of each parameter is; None if it had none.
    """

    plan: Plan
    entries: dict[str, Any]
    scheduled: Mapping[str, Any]
    params: list[Tensor]
    states: list[tuple[Tensor, ...]] = field(default_factory=list)
    slots: list[Slot | None] = field(default_factory=list)

    @staticmethod
    def of(plan: Plan, group: Group, keys: Iterable[str], scheduled: Group) -> KeptGroup:
        """Returns a group whose rule reads these entries; its states and slots are not known."""
        entries = {key: group[key] for key in keys if key in group}
        return KeptGroup(plan, entries, scheduled, list(group["params"]))

    def is_renewed(self, group: Group, states: States) -> bool:
        """Takes over gradients and numbers; returns whether all else is as it was."""
        params = group["params"]
        if len(params) != len(self.params) or not all(map(is_, params, self.params)):
            return False
        for param, known, slot in zip(params, self.states, self.slots, strict=True):
            grad = param.grad
            if grad is None or slot is None:
                if grad is slot:
                    continue
                return False
            if type(grad) is not Tensor or grad.requires_grad or grad.layout is not torch.strided:
                return False
            found = states[param]
            if len(found) != len(known) or not all(map(is_, found.values(), known)):
                return False
            tensors, place = slot
            tensors[place] = grad
        return self._is_read(group)

    def _is_read(self, group: Group) -> bool:
        """Reads the numbers again where one may be another; returns whether the rule has stayed."""
        found = {key: group[key] for key in self.entries if key in group}
        if len(found) != len(self.entries):
            return False
        is_same = all(map(is_, found.values(), self.entries.values()))
        if is_same and all(map(_is_constant, found.values())):
            return True
        self.entries = found
        values = {**found, **self.scheduled}
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
        groups: The groups.
        prepared: The steps.
    """

    def __init__(self, groups: Sequence[KeptGroup], prepared: Sequence[Prepared]) -> None:
        self._groups = groups
        self._prepared = prepared

    def is_renewed(self, groups: Sequence[Group], states: States) -> bool:
        """Takes over gradients and numbers; returns whether all else is as it was."""
        return len(groups) == len(self._groups) and all(
            kept.is_renewed(group, states) for kept, group in zip(self._groups, groups, strict=True)
        )

    def run(self) -> None:
        """Does the steps."""
        for one in self._prepared:
            one.run()


def kept_step(
    groups: Sequence[KeptGroup], states: States, prepared: Sequence[Prepared]
) -> KeptStep | None:
    """Returns the step that was done with these gradients; None where it cannot be done again.

    That is so where not each gradient has one place of its own among the tensors of prepared
    steps: some parameters were stepped in other ways, or two have one tensor as their gradient.

    Args:
        groups: The groups; their states and slots are filled in.
        states: The states of all parameters.
        prepared: The steps.
    """
    params = [param for group in groups for param in group.params if param.grad is not None]
    slots: dict[int, list[Slot]] = {id(param.grad): [] for param in params}
    for one in prepared:
        for place, tensor in enumerate(one.tensors):
            if id(tensor) in slots:
                slots[id(tensor)].append((one.tensors, place))
    if any(len(found) != 1 for found in slots.values()):
        return None
    for group in groups:
        group.states = [tuple(states[param].values()) for param in group.params]
        group.slots = [
            None if param.grad is None else slots[id(param.grad)][0] for param in group.params
        ]
    return KeptStep(groups, prepared)

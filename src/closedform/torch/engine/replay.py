"""Replay of a captured step: the same parameters, states and rules, with new gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from closedform.torch.engine.flat import FlatStep
from closedform.torch.engine.programs import BatchedStep
from closedform.torch.engine.specialize import CompiledGroup
from closedform.torch.shards import local_gradient

ParamGroup = Mapping[str, Any]

StatesByParam = Mapping[Tensor, dict[str, Tensor]]
"""The states of each parameter."""

_PARAMS = itemgetter("params")
# A batched step has no None among its tensors.
_RELEASED = torch.empty(0)
# ``map`` stops at the shorter of two iterators: an end that is compared makes lengths count.
_END = object()
_STRIDED = torch.strided


class GradientPlace(NamedTuple):
    """Where a step reads a gradient.

    Attributes:
        tensors: The tensors of a batched step, or the gradients of a flat one.
        row: The index of the gradient among them.
        is_optional: Whether the step runs without it.
        part: The local part of the parameter, if it is a DTensor.
    """

    tensors: list[Any]
    row: int
    is_optional: bool
    part: Tensor | None = None


@dataclass(slots=True)
class CapturedGroup:
    """A param group of a captured step.

    Attributes:
        compiled_group: The kernels that it runs.
        entries: The entries from which its hyperparameters were last read.
        scheduled_values: The hyperparameters that are not entries of the group.
        is_constant: Whether none of these entries can be changed in place.
        size: The number of all entries.
        places: The place of each parameter's gradient; None if it had none.
    """

    compiled_group: CompiledGroup
    entries: dict[str, Any]
    scheduled_values: ParamGroup
    is_constant: bool
    size: int
    places: list[GradientPlace | None]

    def update(self, group: ParamGroup) -> bool:
        """Takes over gradients and hyperparameters; returns whether the step can be replayed.

        The parameters are assumed to be the captured ones if their number is the same.
        """
        if len(group["params"]) != len(self.places) or len(group) != self.size:
            return False
        # Written out, without calls: this runs for each parameter at each step.
        for param, place in zip(group["params"], self.places, strict=True):
            grad = param.grad
            if grad is None and place is not None and place.is_optional:
                place.tensors[place.row] = None
                continue
            if grad is None or place is None:
                if grad is place:
                    continue
                return False
            # Other subclasses, gradients with a graph and sparse ones are checked anew.
            if place.part is not None:
                grad = local_gradient(param, grad, place.part)
                if grad is None:
                    return False
            elif type(grad) is not Tensor or grad.requires_grad or grad.layout is not _STRIDED:
                return False
            place.tensors[place.row] = grad
        return self._update_hypers(group)

    def _update_hypers(self, group: ParamGroup) -> bool:
        """Reads hyperparameters that may have changed; returns whether the rule still matches."""
        entries = self.entries
        if self.is_constant and all(map(is_, map(group.get, entries), entries.values())):
            return True
        if not all(key in group for key in entries):
            return False
        self.entries = {key: group[key] for key in entries}
        self.is_constant = _is_constant(tuple(self.entries.values()))
        values = {**self.entries, **self.scheduled_values}
        is_match = self.compiled_group.specialization.matches(values)
        if is_match:
            self.compiled_group.write_inputs(values)
        return is_match


def _is_constant(value: Any) -> bool:
    """Whether a value cannot be changed in place."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return value is None or isinstance(value, int | float | str)


class CapturedStep:
    """The step of all parameters that had a gradient, with the tensors that it used.

    Args:
        captured_groups: The groups as they were captured.
        groups: The groups.
        states: The states of all parameters.
        steps: What is run.
    """

    def __init__(
        self,
        captured_groups: Sequence[CapturedGroup],
        groups: Sequence[ParamGroup],
        states: StatesByParam,
        steps: Sequence[BatchedStep | FlatStep],
    ) -> None:
        self._groups = captured_groups
        self._steps = steps
        self._alive = list(_objects(groups, states))
        self._places = [
            place for group in captured_groups for place in group.places if place is not None
        ]
        self.release()

    def update(self, groups: Sequence[ParamGroup], states: StatesByParam) -> bool:
        """Takes over gradients and hyperparameters; returns whether the rest is unchanged."""
        if not all(map(is_, _objects(groups, states), self._alive)):
            return False
        return all(
            captured_group.update(group)
            for captured_group, group in zip(self._groups, groups, strict=True)
        )

    def replay(self) -> None:
        """Performs the step."""
        for step in self._steps:
            step.run()
        self.release()

    def release(self) -> None:
        """Drops the references to gradients, so that the model can free them."""
        for tensors, index, is_optional, _ in self._places:
            tensors[index] = None if is_optional else _RELEASED


def _objects(groups: Sequence[ParamGroup], states: StatesByParam) -> Iterator[Any]:
    """All groups, parameters and states, in order: a step is valid for these objects only."""
    values = map(dict.values, states.values())
    return chain(groups, *map(_PARAMS, groups), states, *values, (_END,))


def capture(
    sources: Iterable[tuple[CompiledGroup, ParamGroup, Sequence[str]]],
    groups: Sequence[ParamGroup],
    states: StatesByParam,
    batched_steps: Sequence[BatchedStep],
    flat: Mapping[int, Sequence[FlatStep]],
) -> CapturedStep | None:
    """Returns a step that was just performed, for replay; None if it cannot be replayed.

    A replay needs each gradient at exactly one place among the tensors of the batched steps. This
    is not so if some parameters were stepped in another way, or if two share their gradient.

    Args:
        sources: What each group runs, its hyperparameters that are not entries, and the entries
            that determine its rule.
        groups: The groups.
        states: The states of all parameters.
        batched_steps: The steps that read gradients at their places among the tensors.
        flat: The steps of parameters as vectors, by group.
    """
    optional = {
        param: GradientPlace(step.grads, row, is_optional=True, part=step.parts.get(param))
        for steps in flat.values()
        for step in steps
        for row, param in enumerate(step.params)
    }
    params = [param for group in groups for param in group["params"] if param.grad is not None]
    places: dict[int, list[GradientPlace]] = {
        id(param.grad): [] for param in params if param not in optional
    }
    if not places and not optional:
        return None
    for batched_step in batched_steps:
        for index, tensor in enumerate(batched_step.tensors):
            if id(tensor) in places:
                place = GradientPlace(batched_step.tensors, index, is_optional=False)
                places[id(tensor)].append(place)
    if any(len(gradient_places) != 1 for gradient_places in places.values()):
        return None
    captured_groups: list[CapturedGroup] = []
    for (compiled_group, scheduled_values, keys), group in zip(sources, groups, strict=True):
        entries = {key: group[key] for key in keys if key in group}
        is_constant = _is_constant(tuple(entries.values()))
        gradient_places = [
            optional[param]
            if param in optional
            else None
            if param.grad is None
            else places[id(param.grad)][0]
            for param in group["params"]
        ]
        captured_groups.append(
            CapturedGroup(
                compiled_group, entries, scheduled_values, is_constant, len(group), gradient_places
            )
        )
    vectors = chain.from_iterable(flat.values())
    return CapturedStep(captured_groups, groups, states, [*batched_steps, *vectors])

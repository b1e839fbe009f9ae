"""Sessions that step a model part by part, each result copied into the place of what it replaces.

Parts step in lanes, one for each thread (``lanes``). Where rules take sums over all parameters,
each part first gives its own, stage by stage; all then know the totals. The results of a part go to
memory of its lane first, which the parts of the lane share. So a session holds parameters and
states once.

Invariant: between steps all arrays belong to the same step. What can fail does so in the first
parts of all lanes, before anything is copied; after a later failure (memory, an interrupt) the
session refuses to step until a state dict is loaded.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.lib.array_utils import byte_bounds

from closedform.errors import SessionError
from closedform.language import UpdateRule
from closedform.runtime.buffers import Array, read_only
from closedform.runtime.lanes import ALL, Lane, Part, Result, Sessions, Tensors, Threads, divided
from closedform.runtime.layout import INPUT, SHARED, STATE, STEP, TOTAL, Layout
from closedform.runtime.onnx_session import Port


@dataclass(frozen=True, slots=True)
class Member:
    """The parameters of one rule, by name."""

    rule: UpdateRule
    params: Mapping[str, Array]


class InPlace:
    """The arrays and the step of a model in parts.

    Args:
        name: The name of the rule.
        members: The rules and their parameters.
        order: The names of the parameters in the order of the model.
        arrays: The arrays of parameters and states by input name, which the parts share.
        crews: The parts, at least one: what can step at the same time together, and in how many
            lanes. One crew steps after the other.
    """

    alias_hint = "the parameters and states change where they lie; copy what a step reads"

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        order: Sequence[str],
        arrays: Mapping[str, Array],
        crews: Sequence[tuple[Sequence[Part], int]],
    ) -> None:
        self._where = f"rule {name!r}"
        self._is_broken = False
        kinds = list({part.sessions: None for parts, _ in crews for part in parts})
        self._scalars = {STEP: np.zeros((), np.int64)}
        for member in members:
            for label, spec in member.rule.shared.items():
                port = kinds[0].step.inputs[f"{SHARED}{label}"]
                self._scalars[port.name] = np.array(float(spec.initial), port.dtype)
        self._stages = range(len(kinds[0].stages))
        self._crews = [
            [Lane(group, self._scalars) for group in divided(parts, count)]
            for parts, count in crews
        ]
        self._threads = Threads(max(len(crew) for crew in self._crews))
        self.arrays = {**self._scalars, **arrays}
        bounds = sorted(byte_bounds(array) for array in arrays.values() if array.size)
        self._starts, self._ends = [start for start, _ in bounds], [end for _, end in bounds]
        self.layout = self._layout(name, members, order, kinds)
        views = {port.name: read_only(self.arrays[port.name]) for port in self.layout.carried}
        self.params = _named(self.layout.params, views)
        self.states = MappingProxyType(
            {state: _named(ports, views) for state, ports in self.layout.states.items()}
        )
        self.shared = _named(self.layout.shared, views)

    def holds(self, array: Array) -> bool:
        """Returns whether a step may write to this array's memory."""
        if array.size == 0:
            return False
        start, end = byte_bounds(array)
        place = bisect.bisect_left(self._ends, start + 1)
        return place < len(self._starts) and self._starts[place] < end

    def write(self, values: Mapping[str, Array]) -> None:
        """Takes over arrays by input name."""
        for name, value in values.items():
            np.copyto(self.arrays[name], value)
        self._is_broken = False

    def step(self, tensors: Tensors, hypers: Mapping[str, Array]) -> None:
        """Does one step.

        Args:
            tensors: Gradients and other inputs; a parameter whose gradient is None stays as it is,
                and so do its states.
            hypers: Hyperparameter inputs by name.

        Raises:
            SessionError: onnxruntime fails, or it failed in the middle of a step before.
        """
        if self._is_broken:
            raise SessionError(
                "the last step failed halfway",
                where=self._where,
                hint="load a state dict, such as that of the last checkpoint",
            )
        known = dict(hypers)
        with self._named_errors("the parameters and states are those before the step"):
            for stage in self._stages:
                known |= self._totals(stage, tensors, known)
            self._together(lambda lane: lane.begin(tensors, known))
        self._is_broken = True
        with self._named_errors("the step is half done: load a state dict"):
            self._together(lambda lane: lane.finish(tensors, known))
        for name, value in self._crews[0][0].following.items():
            np.copyto(self._scalars[name], value)
        self._is_broken = False

    def _totals(self, stage: int, tensors: Tensors, known: Mapping[str, Array]) -> dict[str, Array]:
        """The sums of a stage over all parts."""
        totals: dict[str, Array] = {}
        for found in self._together(lambda lane: lane.sums(stage, tensors, known)):
            by_place = {place: own for lane in found for place, own in lane.items()}
            for place in sorted(by_place):
                for name, own in by_place[place].items():
                    totals[name] = np.asarray(totals.get(name, 0) + own)
        return totals

    def _together(self, task: Callable[[Lane], Result]) -> list[list[Result]]:
        """What the task gives for each lane of each crew."""
        return [self._threads.map(task, crew) for crew in self._crews]

    @contextmanager
    def _named_errors(self, hint: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                where=self._where,
                hint=hint,
            ) from error

    def _layout(
        self,
        rule: str,
        members: Sequence[Member],
        order: Sequence[str],
        kinds: Sequence[Sessions],
    ) -> Layout:
        def port(name: str) -> Port:
            array = self.arrays[name]
            return Port(name, array.dtype, array.shape)

        params = {name: port(f"param.{name}") for name in order}
        states: dict[str, dict[str, Port]] = {}
        inputs: dict[str, dict[str, Port]] = {}
        for member in members:
            for label in member.rule.states:
                names = [n for n in member.params if f"{STATE}{n}.{label}" in self.arrays]
                if names:
                    own = {name: port(f"{STATE}{name}.{label}") for name in names}
                    states.setdefault(label, {}).update(own)
            for label in member.rule.inputs:
                inputs.setdefault(label, {}).update(
                    {
                        name: Port(f"{INPUT}{name}.{label}", params[name].dtype, array.shape)
                        for name, array in member.params.items()
                    }
                )
        hypers: dict[str, Port] = {}
        optional: dict[str, Port] = {}
        opened = [one for kind in kinds for one in (*kind.stages, kind.step) if one is not None]
        for session in opened:
            taken = [f"grad.{ALL}", f"param.{ALL}", *self._scalars]
            hypers |= {
                name: found
                for name, found in session.inputs.items()
                if name not in taken and not name.startswith((STATE, INPUT, TOTAL))
            }
            optional |= session.optional
        shared = {name.removeprefix(SHARED): port(name) for name in self._scalars if name != STEP}
        return Layout(rule, port(STEP), params, states, hypers, optional, shared, inputs)


def _named(ports: Mapping[str, Port], views: Mapping[str, Array]) -> Mapping[str, Array]:
    return MappingProxyType({name: views[port.name] for name, port in ports.items()})

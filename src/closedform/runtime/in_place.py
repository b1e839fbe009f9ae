"""Sessions that step a model part by part, each result copied into the place of what it replaces.

A part is a piece of a flat bucket (``buckets``) or one tensor (``tensors``). Where rules take sums
over all parameters, each part first gives its own, stage by stage; all then know the totals. The
results of a part go to memory of their own first, which parts of a kind share. So a session holds
parameters and states once.

Invariant: between steps all arrays belong to the same step. What can fail does so in the first
part, before anything is copied; after a later failure (memory) the session refuses to step until a
state dict is loaded.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.lib.array_utils import byte_bounds

from closedform.errors import SessionError
from closedform.language import UpdateRule
from closedform.runtime.buffers import Array, bind_array, read_only
from closedform.runtime.layout import INPUT, NEXT, SHARED, STATE, STEP, TOTAL, Layout
from closedform.runtime.onnx_session import OnnxSession, Port

ALL = "all"
"""The parameter that the graph of a kind of part is compiled for."""

Tensors = Mapping[str, Array | None]
"""Gradients and other inputs of a step by input name; None where there is no gradient."""


Sessions = tuple[OnnxSession | None, ...]
"""The part in each stage, None where there is none, and the step, which is always there."""


class Part(Protocol):
    """What one run of onnxruntime steps.

    Attributes:
        sessions: For a parameter ``all``: its part in each stage of sums, then its step.
        params: The parameters that it belongs to.
    """

    sessions: Sessions
    params: tuple[str, ...]

    def current(self) -> Mapping[str, Array]:
        """Returns what the run reads of parameters and states, by input name."""

    def scratch(self) -> Mapping[str, Array]:
        """Returns the memory of what replaces them."""

    def taken(self, port: str, tensors: Tensors) -> Array:
        """Returns the gradient or other tensor that an input takes."""

    def commit(self, tensors: Tensors) -> None:
        """Copies the results into place, but those of parameters without a gradient."""


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
        parts: The parts, at least one.
    """

    alias_hint = "the parameters and states change where they lie; copy what a step reads"

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        order: Sequence[str],
        arrays: Mapping[str, Array],
        parts: Sequence[Part],
    ) -> None:
        self._where = f"rule {name!r}"
        self._is_broken = False
        self._parts = tuple(parts)
        self._scalars = {STEP: np.zeros((), np.int64)}
        for member in members:
            for label, spec in member.rule.shared.items():
                port = step_of(parts[0]).inputs[f"{SHARED}{label}"]
                self._scalars[port.name] = np.array(float(spec.initial), port.dtype)
        self.arrays = {**self._scalars, **arrays}
        bounds = sorted(byte_bounds(array) for array in arrays.values() if array.size)
        self._starts, self._ends = [start for start, _ in bounds], [end for _, end in bounds]
        self.layout = self._layout(name, members, order)
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
        known = {**self._scalars, **hypers}
        for stage in range(len(self._parts[0].sessions) - 1):
            known |= self._totals(stage, tensors, known)
        following = {name: array.copy() for name, array in self._scalars.items()}
        for place, part in enumerate(self._parts):
            results = {**following, **part.scratch()}
            self._run(part, step_of(part), tensors, known, results, is_begun=place > 0)
            part.commit(tensors)
        for name, value in following.items():
            np.copyto(self._scalars[name], value)

    def _totals(self, stage: int, tensors: Tensors, known: Mapping[str, Array]) -> dict[str, Array]:
        """The sums of a stage over all parts."""
        totals: dict[str, Array] = {}
        for part in self._parts:
            session = part.sessions[stage]
            if session is not None:
                own = {name: np.zeros((), port.dtype) for name, port in session.outputs.items()}
                self._run(part, session, tensors, known, own)
                totals |= {name: np.asarray(totals.get(name, 0) + v) for name, v in own.items()}
        return totals

    def _run(
        self,
        part: Part,
        session: OnnxSession,
        tensors: Tensors,
        known: Mapping[str, Array],
        results: Mapping[str, Array],
        *,
        is_begun: bool = False,
    ) -> None:
        try:
            run_part(part, session, tensors, known, results)
        except Exception as error:  # onnxruntime's errors share no other base
            self._is_broken = is_begun
            whole = "the parameters and states are those before the step"
            half = "the step is half done: load a state dict"
            raise SessionError(
                f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                where=self._where,
                hint=half if is_begun else whole,
            ) from error

    def _layout(self, rule: str, members: Sequence[Member], order: Sequence[str]) -> Layout:
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
        opened = [one for part in self._parts for one in part.sessions if one is not None]
        for session in {id(one): one for one in opened}.values():
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


def step_of(part: Part) -> OnnxSession:
    """Returns the session of the step of a part."""
    step = part.sessions[-1]
    if step is None:
        raise SessionError("a part has no step", hint="this is our defect: report it")
    return step


def run_part(
    part: Part,
    session: OnnxSession,
    tensors: Tensors,
    known: Mapping[str, Array],
    results: Mapping[str, Array],
) -> None:
    """Runs a session on a part; outputs go to ``results``, by input name where they replace one."""
    binding = session.raw.io_binding()
    current = part.current()
    alive = []  # a binding holds addresses, not arrays
    for name in (*session.inputs, *session.optional):
        if name in current:
            array = current[name]
        elif name in known:
            array = known[name]
        elif name in session.optional:
            continue
        else:
            array = part.taken(name, tensors)
        alive.append(array)
        bind_array(binding.bind_input, name, array)
    for name in session.outputs:
        bind_array(binding.bind_output, name, results[name.removeprefix(NEXT)])
    session.raw.run_with_iobinding(binding)

"""Sessions that step a model part by part, each result copied into the place of what it replaces.

A part is a piece of a flat bucket (``buckets``) or one tensor (``tensors``). Its results go to
memory of their own first, which parts of a kind share. So a session holds parameters and states
once.

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
from closedform.runtime.layout import INPUT, NEXT, SHARED, STATE, STEP, Layout
from closedform.runtime.onnx_session import OnnxSession, Port

ALL = "all"
"""The parameter that the graph of a kind of part is compiled for."""

Tensors = Mapping[str, Array | None]
"""Gradients and other inputs of a step by input name; None where there is no gradient."""


class Part(Protocol):
    """What one run of onnxruntime steps.

    Attributes:
        session: The step of a parameter ``all``.
        params: The parameters that it belongs to.
    """

    session: OnnxSession
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
                port = parts[0].session.inputs[f"{SHARED}{label}"]
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
        following = {name: array.copy() for name, array in self._scalars.items()}
        for place, part in enumerate(self._parts):
            try:
                _run(part, tensors, {**self._scalars, **hypers}, following)
            except Exception as error:  # onnxruntime's errors share no other base
                self._is_broken = place > 0
                whole = "the parameters and states are those before the step"
                half = "the step is half done: load a state dict"
                raise SessionError(
                    f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                    where=self._where,
                    hint=half if self._is_broken else whole,
                ) from error
            part.commit(tensors)
        for name, value in following.items():
            np.copyto(self._scalars[name], value)

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
        for session in {id(part.session): part.session for part in self._parts}.values():
            taken = [f"grad.{ALL}", f"param.{ALL}", *self._scalars]
            hypers |= {
                name: found
                for name, found in session.inputs.items()
                if name not in taken and not name.startswith((STATE, INPUT))
            }
            optional |= session.optional
        shared = {name.removeprefix(SHARED): port(name) for name in self._scalars if name != STEP}
        return Layout(rule, port(STEP), params, states, hypers, optional, shared, inputs)


def _named(ports: Mapping[str, Port], views: Mapping[str, Array]) -> Mapping[str, Array]:
    return MappingProxyType({name: views[port.name] for name, port in ports.items()})


def _run(
    part: Part,
    tensors: Tensors,
    scalars: Mapping[str, Array],
    following: Mapping[str, Array],
) -> None:
    """Runs one part into its scratch memory; the clock and shared states into ``following``."""
    binding = part.session.raw.io_binding()
    current, results = part.current(), part.scratch()
    alive = []  # a binding holds addresses, not arrays
    for name in (*part.session.inputs, *part.session.optional):
        if name in current:
            array = current[name]
        elif name in scalars:
            array = scalars[name]
        elif name in part.session.optional:
            continue
        else:
            array = part.taken(name, tensors)
        alive.append(array)
        bind_array(binding.bind_input, name, array)
    for name in part.session.outputs:
        own = name.removeprefix(NEXT)
        bind_array(binding.bind_output, name, results[own] if own in results else following[own])
    part.session.raw.run_with_iobinding(binding)

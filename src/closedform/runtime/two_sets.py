"""A step model on two sets of buffers.

Invariant: a step reads the clock, parameters and states from the current set and writes all of them
to the other one, which then is the current one. Both ways are bound once, so no parameter or state
is copied by a step, and a step that fails has written only to the set that nobody looks at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closedform.errors import SessionError
from closedform.runtime.buffers import (
    Array,
    Buffers,
    allocate,
    bind_array,
    check_array,
    check_names,
    fixed_shape,
)
from closedform.runtime.layout import NEXT, STEP, read_layout
from closedform.runtime.onnx_session import ModelSource, open_session
from closedform.runtime.start import fill_states

# From this many parameters on onnxruntime's own optimisation takes longer than it gains: its cost
# grows with the square of the nodes, and the graph has nothing left to fold.
_LARGE = 64


@dataclass(slots=True)
class _Way:
    """A prepared run from one set of buffers to the other.

    Attributes:
        binding: What onnxruntime reads and writes.
        addresses: Where each gradient lay when it was bound; the same address need not be bound
            again, since a gradient's dtype and shape never change.
        hypers: The hyperparameters that are bound.
    """

    binding: Any
    addresses: dict[str, int] = field(default_factory=dict)
    hypers: set[str] = field(default_factory=set)


class TwoSets:
    """The arrays and the step of any model.

    Args:
        init: The model of the start.
        step: The model of the step.
        params: The parameters by name. They are copied.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads within an op; onnxruntime's own choice if None.
    """

    alias_hint = "a view of the parameters before the last step is stale; copy it"

    def __init__(
        self,
        init: ModelSource,
        step: ModelSource,
        params: Mapping[str, Array],
        providers: Sequence[str] | None,
        threads: int | None,
    ) -> None:
        is_small = len(params) <= _LARGE
        session = open_session(step, providers=providers, threads=threads, is_optimized=is_small)
        self.layout = read_layout(session)
        self._where = f"rule {self.layout.rule!r}"
        self._raw = session.raw
        check_names(params, self.layout.params, "parameter", self._where)
        for name, port in self.layout.params.items():
            check_array(params[name], port, f"parameter {name!r}", self._where)
        self._sets = allocate(self.layout), allocate(self.layout)
        self._current = 0
        for name, port in self.layout.params.items():
            np.copyto(self.arrays[port.name], params[name])
        start = open_session(init, threads=threads, is_optimized=is_small)
        fill_states(start, self.layout, self.arrays, self._where)
        ports = {**self.layout.hypers, **self.layout.optional}
        self._hypers = {name: np.zeros((), port.dtype) for name, port in ports.items()}
        self._zeros: dict[str, Array] = {}
        self._ways = [self._bind(0), self._bind(1)]

    @property
    def arrays(self) -> dict[str, Array]:
        """The writable arrays of the current set by input name."""
        return self._sets[self._current].arrays

    @property
    def params(self) -> Mapping[str, Array]:
        """Read-only views of the parameters by name, which hold until the next step."""
        return self._sets[self._current].params

    @property
    def states(self) -> Mapping[str, Mapping[str, Array]]:
        """Read-only views of the states by state name, then by parameter name."""
        return self._sets[self._current].states

    @property
    def shared(self) -> Mapping[str, Array]:
        """Read-only views of the states of the whole model by name."""
        return self._sets[self._current].shared

    def holds(self, array: Array) -> bool:
        """Returns whether a step writes to this array's memory."""
        return np.may_share_memory(array, self._spare.block)

    def write(self, values: Mapping[str, Array]) -> None:
        """Takes over arrays by input name."""
        for name, value in values.items():
            np.copyto(self.arrays[name], value)

    def step(self, tensors: Mapping[str, Array | None], hypers: Mapping[str, Array]) -> None:
        """Does one step.

        Args:
            tensors: Gradients and other inputs by input name; a parameter whose gradient is None
                stays as it is, and so do its states.
            hypers: Hyperparameter inputs by name.

        Raises:
            SessionError: onnxruntime fails.
        """
        way = self._prepared(hypers)
        for name, tensor in tensors.items():
            array = self._zero(name) if tensor is None else tensor
            if way.addresses.get(name) != array.ctypes.data:
                bind_array(way.binding.bind_input, name, array)
                way.addresses[name] = array.ctypes.data
        try:
            self._raw.run_with_iobinding(way.binding)
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                where=self._where,
                hint="the parameters and states are those before the step",
            ) from error
        for name in self.layout.params:
            if tensors[f"grad.{name}"] is None:
                self._keep(name)
        self._current = 1 - self._current

    @property
    def _spare(self) -> Buffers:
        return self._sets[1 - self._current]

    def _zero(self, name: str) -> Array:
        """Zeros in the place of a tensor that is not given."""
        if name not in self._zeros:
            label = name.split(".", 1)[0]
            by_param = {f"grad.{param}": port for param, port in self.layout.params.items()}
            ports = {port.name: port for by in self.layout.inputs.values() for port in by.values()}
            port = by_param[name] if label == "grad" else ports[name]
            self._zeros[name] = np.zeros(fixed_shape(port), port.dtype)
        return self._zeros[name]

    def _keep(self, param: str) -> None:
        """Gives a parameter and its states in the other set the values of this one."""
        kept = [self.layout.params[param]]
        kept += [ports[param] for ports in self.layout.states.values() if param in ports]
        for port in kept:
            np.copyto(self._spare.arrays[port.name], self.arrays[port.name])

    def _bind(self, current: int) -> _Way:
        """Binds what a step carries: inputs to one set of buffers, outputs to the other."""
        binding = self._raw.io_binding()
        read, write = self._sets[current].arrays, self._sets[1 - current].arrays
        for port in self.layout.carried:
            bind_array(binding.bind_input, port.name, read[port.name])
            bind_array(binding.bind_output, f"{NEXT}{port.name}", write[port.name])
        return _Way(binding)

    def _prepared(self, hyper: Mapping[str, Array]) -> _Way:
        """The way out of the current set with just these hyperparameters bound."""
        if not self._ways[self._current].hypers <= hyper.keys():
            self._ways[self._current] = self._bind(self._current)
        way = self._ways[self._current]
        for name, value in hyper.items():
            np.copyto(self._hypers[name], value)
            if name not in way.hypers:
                bind_array(way.binding.bind_input, name, self._hypers[name])
                way.hypers.add(name)
        return way

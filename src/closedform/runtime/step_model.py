"""A step model of a rule on two sets of arrays: parameters, states, gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from closedform.runtime.buffers import Array, check_array, check_names, fixed_shape
from closedform.runtime.layout import Layout, read_layout
from closedform.runtime.onnx_session import ModelSource, Port, open_session
from closedform.runtime.start import fill_states
from closedform.runtime.two_sets import TwoSets

# From this many parameters on onnxruntime's own optimisation takes longer than it gains: its cost
# grows with the square of the nodes, and the graph has nothing left to fold.
_LARGE = 64


class StepModel:
    """The arrays and the step of any step model.

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
        where = f"rule {self.layout.rule!r}"
        check_names(params, self.layout.params, "parameter", where)
        for name, port in self.layout.params.items():
            check_array(params[name], port, f"parameter {name!r}", where)
        self._sets = TwoSets(session, self.layout.carried, where)
        self.write({port.name: params[name] for name, port in self.layout.params.items()})
        start = open_session(init, threads=threads, is_optimized=is_small)
        fill_states(start, self.layout, self.arrays, where)
        ports = {**self.layout.hypers, **self.layout.optional}
        self._hypers = {name: np.zeros((), port.dtype) for name, port in ports.items()}
        self._zeros: dict[str, Array] = {}
        self._params = [_named(self.layout.params, of) for of in self._sets.views]
        self._states = [_by_state(self.layout, of) for of in self._sets.views]
        self._shared = [_named(self.layout.shared, of) for of in self._sets.views]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The writable arrays of the current set by input name."""
        return self._sets.arrays

    @property
    def params(self) -> Mapping[str, Array]:
        """Read-only views of the parameters by name, which hold until the next step."""
        return self._params[self._sets.current]

    @property
    def states(self) -> Mapping[str, Mapping[str, Array]]:
        """Read-only views of the states by state name, then by parameter name."""
        return self._states[self._sets.current]

    @property
    def shared(self) -> Mapping[str, Array]:
        """Read-only views of the states of the whole model by name."""
        return self._shared[self._sets.current]

    def holds(self, array: Array) -> bool:
        """Returns whether a step writes to this array's memory."""
        return self._sets.holds(array)

    def write(self, values: Mapping[str, Array]) -> None:
        """Takes over arrays by input name."""
        self._sets.write(values)

    def step(self, tensors: Mapping[str, Array | None], hypers: Mapping[str, Array]) -> None:
        """Does one step.

        Args:
            tensors: Gradients and other inputs by input name; a parameter whose gradient is None
                stays as it is, and so do its states.
            hypers: Hyperparameter inputs by name.

        Raises:
            SessionError: onnxruntime fails.
        """
        given = {name: self._zero(name) if t is None else t for name, t in tensors.items()}
        for name, value in hypers.items():
            np.copyto(self._hypers[name], value)
            given[name] = self._hypers[name]
        without = [name for name in self.layout.params if tensors[f"grad.{name}"] is None]
        self._sets.run(given, kept=[name for param in without for name in self._of(param)])

    def _of(self, param: str) -> list[str]:
        """A parameter and its states by input name."""
        states = self.layout.states.values()
        return [
            self.layout.params[param].name,
            *(ports[param].name for ports in states if param in ports),
        ]

    def _zero(self, name: str) -> Array:
        """Zeros in the place of a tensor that is not given."""
        if name not in self._zeros:
            label = name.split(".", 1)[0]
            by_param = {f"grad.{param}": port for param, port in self.layout.params.items()}
            ports = {port.name: port for by in self.layout.inputs.values() for port in by.values()}
            port = by_param[name] if label == "grad" else ports[name]
            self._zeros[name] = np.zeros(fixed_shape(port), port.dtype)
        return self._zeros[name]


def _named(ports: Mapping[str, Port], views: Mapping[str, Array]) -> Mapping[str, Array]:
    return MappingProxyType({name: views[port.name] for name, port in ports.items()})


def _by_state(layout: Layout, views: Mapping[str, Array]) -> Mapping[str, Mapping[str, Array]]:
    return MappingProxyType({state: _named(ports, views) for state, ports in layout.states.items()})

"""The engine of a pair of models, ``init`` and ``step``, on double-buffered arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from closedform.errors import SessionError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import PARAM
from closedform.runtime.checks import check_array, check_names
from closedform.runtime.double_buffer import DoubleBuffer, static_shape
from closedform.runtime.onnx_session import (
    ModelSource,
    OnnxSession,
    open_session,
    run_into,
)
from closedform.runtime.step_ports import StepPorts, StepViews, read_step_ports

_MANY_PARAMETERS = 64
"""Above this number of parameters, optimization by onnxruntime takes longer than it saves: its cost
grows with the square of the number of nodes, and the graph has nothing left to fold."""


class StepModel:
    """The arrays and the step of any step model.

    Args:
        init: The model of the initial states.
        step: The model of the step.
        params: The parameters by name. They are copied.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads within one operator; chosen by onnxruntime if None.

    Attributes:
        ports: The inputs of the step by role.
    """

    alias_hint = "a view of the parameters from before the last step is stale; copy it"

    def __init__(
        self,
        init: ModelSource,
        step: ModelSource,
        params: Mapping[str, Array],
        providers: Sequence[str] | None,
        threads: int | None,
    ) -> None:
        is_small = len(params) <= _MANY_PARAMETERS
        session = open_session(step, providers=providers, threads=threads, is_optimized=is_small)
        self.ports = read_step_ports(session)
        where = f"rule {self.ports.rule!r}"
        check_names(params, self.ports.params, "parameter", where)
        for name, port in self.ports.params.items():
            check_array(params[name], port, f"parameter {name!r}", where)
        self._buffer = DoubleBuffer(session, self.ports.carried_ports, where)
        self.write({port.name: params[name] for name, port in self.ports.params.items()})
        initial = open_session(init, threads=threads, is_optimized=is_small)
        _fill_states(initial, self.ports, self.arrays, where)
        hypers = {**self.ports.hypers, **self.ports.optional}
        self._hypers = {name: np.zeros((), port.dtype) for name, port in hypers.items()}
        self._zeros: dict[str, Array] = {}
        self._views = [self.ports.views(arrays) for arrays in self._buffer.views]

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The writable arrays of the current buffer by input name."""
        return self._buffer.arrays

    @property
    def views(self) -> StepViews:
        """Read-only views of parameters and states, valid until the next step."""
        return self._views[self._buffer.current]

    def overlaps(self, array: Array) -> bool:
        """Returns whether the next step writes to the memory of this array."""
        return self._buffer.overlaps(array)

    def write(self, values: Mapping[str, Array]) -> None:
        """Copies values into the arrays, by input name."""
        self._buffer.write(values)

    def step(self, tensors: Mapping[str, Array | None], hypers: Mapping[str, Array]) -> None:
        """Performs one step.

        Args:
            tensors: Gradients and other inputs by input name; a parameter whose gradient is None
                does not change, nor do its states.
            hypers: Hyperparameter inputs by name.

        Raises:
            SessionError: onnxruntime fails.
        """
        feeds = {name: self._zero(name) if t is None else t for name, t in tensors.items()}
        for name, value in hypers.items():
            np.copyto(self._hypers[name], value)
            feeds[name] = self._hypers[name]
        without = [name for name in self.ports.params if tensors[naming.grad(name)] is None]
        self._buffer.run(
            feeds, constant_names=[name for param in without for name in self._of(param)]
        )

    def _of(self, param: str) -> list[str]:
        """The input names of a parameter and its states."""
        states = self.ports.states.values()
        return [
            self.ports.params[param].name,
            *(ports[param].name for ports in states if param in ports),
        ]

    def _zero(self, name: str) -> Array:
        """Zeros for a tensor that is not given."""
        if name not in self._zeros:
            ports = {naming.grad(param): port for param, port in self.ports.params.items()}
            ports |= {
                p.name: p for by_param in self.ports.inputs.values() for p in by_param.values()
            }
            self._zeros[name] = np.zeros(static_shape(ports[name]), ports[name].dtype)
        return self._zeros[name]


def _fill_states(
    init: OnnxSession, ports: StepPorts, arrays: Mapping[str, Array], where: str
) -> None:
    """Runs the init model on the parameters and writes the clock and the states."""
    hint = "export both models of the rule again, together"
    for name in init.inputs:
        if name not in arrays or not name.startswith(PARAM):
            raise SessionError(
                f"input {name!r} of the init model is not a parameter of the step model",
                where=where,
                hint=hint,
            )
    state_ports = [port for port in ports.carried_ports if not port.name.startswith(PARAM)]
    for port in state_ports:
        initial = init.outputs.get(port.name)
        if initial is None or initial.shape != port.shape or initial.dtype.kind != port.dtype.kind:
            got = "none" if initial is None else str(initial)
            raise SessionError(
                f"output {port.name!r} of the init model must be {port}, got {got}",
                where=where,
                hint=hint,
            )
    values = {
        port.name: np.empty(static_shape(port), init.outputs[port.name].dtype)
        for port in state_ports
    }
    run_into(init, {name: arrays[name] for name in init.inputs}, values)
    for name, value in values.items():
        np.copyto(arrays[name], value, casting="same_kind")

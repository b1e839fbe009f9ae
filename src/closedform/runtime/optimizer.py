"""An update rule in onnxruntime, on the session's own buffers.

Invariant: two sets of buffers, A and B. A step reads the clock, parameters and states from the
current set and writes all of them to the other one, which then is the current one. Both ways are
bound once, so no parameter or state is copied by a step, and a step that fails has written only
to the set that nobody looks at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import SessionError, StateError
from closedform.language import UpdateRule
from closedform.lowering.domain import MAX_STEP
from closedform.runtime.buffers import (
    Array,
    Buffers,
    allocate,
    check_array,
    check_names,
)
from closedform.runtime.layout import NEXT, STEP, Layout, read_layout
from closedform.runtime.onnx_session import ModelSource, OnnxSession, Port, open_session
from closedform.runtime.start import common_dtype, fill_states

INIT_FILE = "init.onnx"
STEP_FILE = "step.onnx"
EVALUATION_FILE = "evaluation.onnx"

_STATE_KEYS = ("rule", "step", "params", "states")


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


class OptimizerSession:
    """Holds parameters and optimizer states, and steps them in onnxruntime.

    Args:
        rule: The rule; it is compiled here for the shapes and the dtype of ``params``.
        params: The parameters by name, all float32 or all float64. They are copied.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads within an op; onnxruntime's own choice if None.

    Raises:
        SessionError: The parameters are none, no arrays, or of mixed dtypes.
    """

    _layout: Layout
    _where: str
    _raw: Any
    _sets: tuple[Buffers, Buffers]
    _ways: list[_Way]
    _hypers: dict[str, Array]
    _current: int
    _point: OnnxSession | None

    def __init__(
        self,
        rule: UpdateRule,
        params: Mapping[str, Array],
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        from closedform.compiler import compile_evaluation, compile_init, compile_step

        if not isinstance(rule, UpdateRule):
            raise SessionError(
                f"an optimizer session runs an UpdateRule, got {type(rule).__name__}",
                hint="make one with closedform.optimizers, or use ScheduleSession for a schedule",
            )
        dtype = common_dtype(params, f"rule {rule.name!r}")
        shapes = {name: array.shape for name, array in params.items()}
        init = compile_init(rule, shapes, dtype=dtype)
        step = compile_step(rule, shapes, dtype=dtype)
        self._start(init, step, params, providers, threads)
        if rule.evaluation is not None:
            point = compile_evaluation(rule, shapes, dtype=dtype)
            self._point = open_session(point, providers=providers, threads=threads)

    @classmethod
    def from_files(
        cls,
        folder: str | os.PathLike[str],
        params: Mapping[str, Array],
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> OptimizerSession:
        """Returns a session for ``init.onnx`` and ``step.onnx`` in a folder.

        Raises:
            SessionError: A file is missing or not such a model, or the parameters do not fit it.
        """
        path = Path(folder)
        models = path / INIT_FILE, path / STEP_FILE
        session = cls.from_models(*models, params, providers=providers, threads=threads)
        if (path / EVALUATION_FILE).exists():
            session._point = open_session(path / EVALUATION_FILE, threads=threads)
        return session

    @classmethod
    def from_models(
        cls,
        init: ModelSource,
        step: ModelSource,
        params: Mapping[str, Array],
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> OptimizerSession:
        """Returns a session for two models or graphs: that of the start and that of the step."""
        session = object.__new__(cls)
        session._start(init, step, params, providers, threads)
        return session

    def _start(
        self,
        init: ModelSource,
        step: ModelSource,
        params: Mapping[str, Array],
        providers: Sequence[str] | None,
        threads: int | None,
    ) -> None:
        session = open_session(step, providers=providers, threads=threads)
        self._point = None
        self._layout = read_layout(session)
        self._where = f"rule {self._layout.rule!r}"
        self._raw = session.raw
        check_names(params, self._layout.params, "parameter", self._where)
        for name, port in self._layout.params.items():
            check_array(params[name], port, f"parameter {name!r}", self._where)
        self._sets = allocate(self._layout), allocate(self._layout)
        self._current = 0
        arrays = self._sets[0].arrays
        for name, port in self._layout.params.items():
            np.copyto(arrays[port.name], params[name])
        fill_states(open_session(init, threads=threads), self._layout, arrays, self._where)
        ports = {**self._layout.hypers, **self._layout.optional}
        self._hypers = {name: np.zeros((), port.dtype) for name, port in ports.items()}
        self._ways = [self._bind(0), self._bind(1)]

    def _bind(self, current: int) -> _Way:
        """Binds what a step carries: inputs to one set of buffers, outputs to the other."""
        binding = self._raw.io_binding()
        read, write = self._sets[current].arrays, self._sets[1 - current].arrays
        for port in self._layout.carried:
            _bind_array(binding.bind_input, port.name, read[port.name])
            _bind_array(binding.bind_output, f"{NEXT}{port.name}", write[port.name])
        return _Way(binding)

    @property
    def rule_name(self) -> str:
        """The name of the rule."""
        return self._layout.rule

    @property
    def t(self) -> int:
        """The number of steps done."""
        return int(self._sets[self._current].arrays[STEP])

    @property
    def params(self) -> Mapping[str, Array]:
        """The parameters by name: read-only views, which hold these values until the next step.

        After it they show old values, and later ones overwrite them: copy what must last.
        """
        return self._sets[self._current].params

    @property
    def states(self) -> Mapping[str, Mapping[str, Array]]:
        """The states by state name, then parameter name: views that last as ``params`` do."""
        return self._sets[self._current].states

    @property
    def shared(self) -> Mapping[str, Array]:
        """The states of the whole model by name: views of numbers that last as ``params`` do."""
        return self._sets[self._current].shared

    def evaluated(self) -> dict[str, Array]:
        """Returns copies of the parameters at which the model is to be evaluated.

        These are the parameters themselves, unless the rule has a point of evaluation of its own,
        such as an average of the weights.
        """
        if self._point is None:
            return {name: array.copy() for name, array in self.params.items()}
        arrays = self._sets[self._current].arrays
        names = [f"evaluation.{name}" for name in self.params]
        values = self._point.raw.run(names, {name: arrays[name] for name in self._point.inputs})
        return dict(zip(self.params, values, strict=True))

    def step(
        self,
        grads: Mapping[str, Array],
        inputs: Mapping[str, Mapping[str, Array]] | None = None,
        **hyper: float,
    ) -> None:
        """Does one step. The gradients are read where they lie; after a failure nothing changed.

        Args:
            grads: The gradient of each parameter: a C-contiguous array of its dtype and shape.
            inputs: Other tensors that the rule takes, by their name, then by parameter name.
            **hyper: Values of the hyperparameters that are inputs of the model; those with a
                default may be left out.

        Raises:
            SessionError: A gradient, input or hyperparameter is missing, unknown or does not fit,
                or onnxruntime fails.
        """
        tensors = self._checked_tensors(grads, {} if inputs is None else inputs)
        values = _hyper_values(hyper, self._layout, self._where)
        way = self._prepared(values)
        for name, array in tensors.items():
            address = array.ctypes.data
            if way.addresses.get(name) != address:
                _bind_array(way.binding.bind_input, name, array)
                way.addresses[name] = address
        try:
            self._raw.run_with_iobinding(way.binding)
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in step {self.t}: {error}",
                where=self._where,
                hint="the parameters and states are those before the step",
            ) from error
        self._current = 1 - self._current

    def _checked_tensors(
        self, grads: Mapping[str, Array], inputs: Mapping[str, Mapping[str, Array]]
    ) -> dict[str, Array]:
        """The gradients and other tensors of a step by input name, if each fits."""
        spare = self._sets[1 - self._current]
        params, where = self._layout.params, self._where
        check_names(grads, params, "gradient", where)
        checked = {}
        for name, port in params.items():
            what = f"the gradient of {name!r}"
            checked[f"grad.{name}"] = _check_tensor(grads[name], port, what, spare, where)
        check_names(inputs, self._layout.inputs, "input", where)
        for label, ports in self._layout.inputs.items():
            check_names(inputs[label], ports, f"parameter of input {label!r}", where)
            for name, port in ports.items():
                what = f"the {label} of {name!r}"
                checked[port.name] = _check_tensor(inputs[label][name], port, what, spare, where)
        return checked

    def _prepared(self, hyper: Mapping[str, Array]) -> _Way:
        """The way out of the current set with just these hyperparameters bound."""
        if not self._ways[self._current].hypers <= hyper.keys():
            self._ways[self._current] = self._bind(self._current)
        way = self._ways[self._current]
        for name, value in hyper.items():
            np.copyto(self._hypers[name], value)
            if name not in way.hypers:
                _bind_array(way.binding.bind_input, name, self._hypers[name])
                way.hypers.add(name)
        return way

    def state_dict(self) -> dict[str, Any]:
        """Returns the name of the rule, the step, and copies of all parameters and states.

        The keys are "rule", "step", "params" (by name) and "states" (by state, then by name); and
        "shared" (by name), where the rule has states of the whole model.
        """
        shared = {name: array.copy() for name, array in self.shared.items()}
        return {
            "rule": self._layout.rule,
            "step": self.t,
            "params": {name: array.copy() for name, array in self.params.items()},
            "states": {
                state: {name: array.copy() for name, array in by_name.items()}
                for state, by_name in self.states.items()
            },
            **({"shared": shared} if shared else {}),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over a state dict; all of it is checked before anything is written.

        Hyperparameters are part of the rule and not of its state: a state dict of the same rule
        with another learning rate is accepted.

        Raises:
            StateError: It belongs to another rule or other parameters; the first misfit is named.
        """
        found = _checked_state(state_dict, self._layout, self._where)
        arrays = self._sets[self._current].arrays
        for name, value in found.items():
            np.copyto(arrays[name], value)


def _bind_array(bind: Any, name: str, array: Array) -> None:
    bind(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)


def _check_tensor(given: object, port: Port, what: str, spare: Buffers, where: str) -> Array:
    array = check_array(given, port, what, where)
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise SessionError(
            f"{what} must be C-contiguous, got strides {list(array.strides)}",
            where=where,
            hint="pass numpy.ascontiguousarray(…)",
        )
    if np.may_share_memory(array, spare.block):
        raise SessionError(
            f"{what} lies in memory that this step writes",
            where=where,
            hint="a view of the parameters before the last step is stale; copy it",
        )
    return array


def _hyper_values(hyper: Mapping[str, float], layout: Layout, where: str) -> dict[str, Array]:
    """The hyperparameters as arrays of their dtypes, all checked."""
    known = {**layout.hypers, **layout.optional}
    expected = {**layout.hypers, **{name: known[name] for name in hyper if name in known}}
    check_names(hyper, expected, "hyperparameter", where)
    values = {}
    for name, value in hyper.items():
        array = np.asarray(value)
        dtype = known[name].dtype
        kinds = "iuf" if dtype.kind == "f" else "iu"
        if array.ndim or array.dtype.kind not in kinds:
            raise SessionError(
                f"hyperparameter {name!r} must be a number ({known[name]}), got {value!r}",
                where=where,
            )
        values[name] = array.astype(dtype)
    return values


def _checked_state(state_dict: Mapping[str, Any], layout: Layout, where: str) -> dict[str, Array]:
    """The arrays of a state dict by input name, if each fits.

    The step is at most ``MAX_STEP``: no graph is made for a later one.
    """
    keys = dict.fromkeys((*_STATE_KEYS, *(("shared",) if layout.shared else ())))
    check_names(state_dict, keys, "key", f"state dict for {where}", StateError)
    if state_dict["rule"] != layout.rule:
        raise StateError(
            f"the state dict belongs to rule {state_dict['rule']!r}",
            where=where,
            hint="load it into a session of that rule",
        )
    step = state_dict["step"]
    top = min(int(np.iinfo(layout.step.dtype).max), MAX_STEP)
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step <= top:
        raise StateError(f"'step' must be an integer in 0..{top}, got {step!r}", where=where)
    params = _checked_mapping(state_dict["params"], "'params'", where)
    states = _checked_mapping(state_dict["states"], "'states'", where)
    found = {STEP: np.asarray(step, layout.step.dtype)}
    check_names(params, layout.params, "parameter", where, StateError)
    for name, port in layout.params.items():
        found[port.name] = check_array(params[name], port, f"parameter {name!r}", where, StateError)
    check_names(states, layout.states, "state", where, StateError)
    for state, ports in layout.states.items():
        by_name = _checked_mapping(states[state], f"state {state!r}", where)
        check_names(by_name, ports, f"parameter of state {state!r}", where, StateError)
        for name, port in ports.items():
            what = f"state {state!r} of {name!r}"
            found[port.name] = check_array(by_name[name], port, what, where, StateError)
    shared = _checked_mapping(state_dict.get("shared", {}), "'shared'", where)
    check_names(shared, layout.shared, "state of the model", where, StateError)
    for name, port in layout.shared.items():
        what = f"state {name!r} of the model"
        found[port.name] = check_array(shared[name], port, what, where, StateError)
    return found


def _checked_mapping(value: object, what: str, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise StateError(f"{what} must be a mapping, got {type(value).__name__}", where=where)
    return value

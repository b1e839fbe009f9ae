"""An update rule in onnxruntime or compiled C, on memory owned by the session.

Elementwise rules run over tiles of flat buckets, other rules tensor by tensor (``tiles``), both in
place. Models from files, and rules that store their parameters in 16 bits, run on double-buffered
arrays (``step_model``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform.compiler import (
    compile_evaluation,
    compile_init,
    compile_parts,
    compile_step,
    has_evaluation,
)
from closedform.errors import SessionError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import STEP
from closedform.ir.steps import check_next
from closedform.ir.types import Shape
from closedform.language import Group, UpdateRule
from closedform.options import GraphOptions, ModelSpec
from closedform.runtime.c_engine import CompiledModel
from closedform.runtime.checks import checked_state, checked_tensors, common_dtype, hyper_values
from closedform.runtime.in_place import InPlace
from closedform.runtime.onnx_session import (
    CPU,
    ModelSource,
    OnnxSession,
    checked_threads,
    open_session,
    run_into,
)
from closedform.runtime.scaling import NOT_SCALED, StateScaling, scaled_rules
from closedform.runtime.serialized import Serialized, serialize_calls
from closedform.runtime.step_model import StepModel
from closedform.runtime.tiles import ParamGroup, bucket_tiles, tile_size, whole_tensors
from closedform.runtime.workers import ItemSessions, WorkItem, cores

INIT_FILE = "init.onnx"
STEP_FILE = "step.onnx"
EVALUATION_FILE = "evaluation.onnx"
BACKENDS = ("onnxruntime", "c")


class OptimizerSession(Serialized):
    """Holds parameters and optimizer states, and steps them in onnxruntime or compiled C.

    Threads that share a session take turns: each step, and each state dict, is done whole.

    Args:
        rule: The rule; it is compiled here for the shapes and the dtype of ``params``.
        params: The parameters by name, all float32 or all float64; or all of the 16-bit dtype that
            a rule with master weights stores. They are copied.
        groups: Param groups with their own rule or hyperparameters.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: The number of threads of a step; one per core if None.
        backend: "onnxruntime", or "c" for elementwise rules: their C header
            (:func:`closedform.to_c`) is compiled by the system's C compiler and loaded.
        equivalent_states: Whether the session may store multiples of the states, which takes fewer
            operators where ``closedform.verify.equivalent_states`` finds and proves a scaling: 12
            in place of 15 for AdamW. ``states`` and state dicts still hold the states of the rule;
            each conversion rounds once. A run that goes on after ``state_dict()`` and one that
            resumes from it are the same bit for bit. The largest state that is finite is smaller by
            the factor, which is 1 - β₂ for a mean of squares.

    Raises:
        SessionError: ``params`` is empty, or its values are not arrays of one supported dtype; the
            backend is unknown, or C without a compiler or for a rule that is not elementwise; or
            ``equivalent_states`` with C or for a rule that stores tensors in 16 bits.
        VerificationError: A scaling of the states is found, and is not proved.
    """

    _engine: InPlace | StepModel | CompiledModel
    _scaling: StateScaling
    _point: OnnxSession | None

    def __init__(
        self,
        rule: UpdateRule,
        params: Mapping[str, Array],
        *,
        groups: Sequence[Group] = (),
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        backend: str = "onnxruntime",
        equivalent_states: bool = False,
    ) -> None:
        if not isinstance(rule, UpdateRule):
            raise SessionError(
                f"an optimizer session runs an UpdateRule, got {type(rule).__name__}",
                hint="make one with closedform.optimizers, or use ScheduleSession for a schedule",
            )
        dtype = common_dtype(params, f"rule {rule.name!r}", rule.stored)
        spec = ModelSpec(rule, {name: array.shape for name, array in params.items()}, groups)
        options = GraphOptions(dtype=dtype)
        _check_backend(backend, providers, f"rule {rule.name!r}")
        # Rules that store tensors in 16 bits need a copy in the dtype of the computation.
        is_in_place = backend != "c" and all(
            assignment.rule.is_in_one_dtype for assignment in spec.assignments
        )
        if equivalent_states and not is_in_place:
            raise SessionError(
                "equivalent_states is for onnxruntime and rules without tensors of 16 bits",
                where=f"rule {rule.name!r}",
                hint="leave it out",
            )
        self._scaling = NOT_SCALED
        if backend == "c":
            self._engine = CompiledModel(spec, options, params, threads)
        elif is_in_place:
            # With equivalent_states the rules compute multiples of the states.
            rules = [assignment.rule for assignment in spec.assignments]
            if equivalent_states:
                rules, self._scaling = scaled_rules(spec.assignments)
            self._engine = _in_place(spec, rules, options, params, providers, threads)
        else:
            init, step = compile_init(spec, options), compile_step(spec, options)
            self._engine = StepModel(init, step, params, providers, threads)
        self._point = None
        if has_evaluation(spec):
            point = compile_evaluation(spec, options)
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
        """Returns a session for the files ``init.onnx`` and ``step.onnx`` of a folder.

        Raises:
            SessionError: A file is missing or is not a model of that kind, or the parameters do not
                fit it.
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
        """Returns a session for two models or graphs: initial states and step."""
        session = cls.__new__(cls)
        session._engine = StepModel(init, step, params, providers, threads)
        session._scaling = NOT_SCALED
        session._point = None
        return session

    @property
    def rule_name(self) -> str:
        """The name of the rule."""
        return self._engine.ports.rule

    @property
    def t(self) -> int:
        """The number of steps performed so far."""
        return int(self._engine.arrays[STEP])

    @property
    def params(self) -> Mapping[str, Array]:
        """The parameters by name: read-only views with these values until the next step.

        After the next step their contents are unspecified: copy arrays that must persist, and read
        this property again for the new values.
        """
        return self._engine.views.params

    @property
    def states(self) -> Mapping[str, Mapping[str, Array]]:
        """The states by state name, then by parameter name: views as for ``params``."""
        return self._scaling.rule_states(self._engine.views.states)

    @property
    def shared(self) -> Mapping[str, Array]:
        """The states of the whole model by name: views of rank 0 as for ``params``."""
        return self._engine.views.shared

    @serialize_calls
    def evaluated(self) -> dict[str, Array]:
        """Returns copies of the parameters to evaluate the model with.

        These are the parameters themselves unless the rule defines a separate evaluation point,
        such as an average of the weights.
        """
        if self._point is None:
            return {name: array.copy() for name, array in self.params.items()}
        arrays = self._engine.arrays
        copies = {name: np.empty_like(array) for name, array in self.params.items()}
        results = {naming.evaluation(name): array for name, array in copies.items()}
        run_into(self._point, {name: arrays[name] for name in self._point.inputs}, results)
        return copies

    def step(
        self,
        grads: Mapping[str, Array | None],
        inputs: Mapping[str, Mapping[str, Array | None]] | None = None,
        /,
        **hyper: float,
    ) -> None:
        """Performs one step. The gradients are read in place.

        If the arguments do not fit or the first operators fail, nothing has changed.

        Args:
            grads: The gradient of each parameter: a C-contiguous array of its dtype and shape, or
                None, in which case the parameter and its states do not change. The clock advances
                in both cases.
            inputs: Other tensors that the rule takes, by input name, then by parameter name; None
                where the gradient is None.
            **hyper: Values of the hyperparameters that are inputs of the model; those with a
                default may be omitted.

        Raises:
            SessionError: The clock is at its last step, a gradient, input or hyperparameter is
                missing, unknown or does not fit, or onnxruntime fails.
        """
        self._lock.acquire()  # 0.1 µs; with, and the decorator, take 0.4 µs, 2 % of a small step
        try:
            engine, where = self._engine, f"rule {self.rule_name!r}"
            check_next(int(engine.arrays[STEP]), engine.ports.step.dtype, where)
            step_inputs = {} if inputs is None else inputs
            tensors = checked_tensors(grads, step_inputs, engine.ports, where)
            for name, array in tensors.items():
                if array is not None and engine.overlaps(array):
                    label, _, param = name.partition(".")
                    description = (
                        f"the gradient of {param!r}" if label == "grad" else f"the input {name!r}"
                    )
                    raise SessionError(
                        f"{description} overlaps memory that this step writes",
                        where=where,
                        hint=engine.alias_hint,
                    )
            ports = engine.ports
            engine.step(tensors, hyper_values(hyper, ports.hypers, ports.optional, where))
        finally:
            self._lock.release()

    @serialize_calls
    def state_dict(self) -> dict[str, Any]:
        """Returns the name of the rule, the step, and copies of all parameters and states.

        The keys are "rule", "step", "params" (by name), "states" (by state, then by name) and, if
        the rule has states of the whole model, "shared" (by name).
        """
        model_states = {name: array.copy() for name, array in self.shared.items()}
        states = {
            state: {name: array.copy() for name, array in by_name.items()}
            for state, by_name in self.states.items()
        }
        if self._scaling.factors:
            # The run goes on from the states that are saved, as one that resumes does.
            self._write_states(states)
        return {
            "rule": self._engine.ports.rule,
            "step": self.t,
            "params": {name: array.copy() for name, array in self.params.items()},
            "states": states,
            **({"shared": model_states} if model_states else {}),
        }

    @serialize_calls
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Loads a state dict; it is validated completely before anything is written.

        Hyperparameters are part of the rule, not of its state: a state dict of the same rule with
        a different learning rate is accepted.

        Raises:
            StateError: It belongs to another rule or to other parameters.
        """
        where = f"rule {self.rule_name!r}"
        values = checked_state(state_dict, self._engine.ports, where)
        self._engine.write(self._scaling.scale_states(values, where))

    def _write_states(self, states: Mapping[str, Mapping[str, Array]]) -> None:
        values = {
            naming.state(name, label): array
            for label, by_name in states.items()
            for name, array in by_name.items()
        }
        self._engine.write(self._scaling.scale_states(values, f"rule {self.rule_name!r}"))


def _check_backend(backend: str, providers: Sequence[str] | None, where: str) -> None:
    if backend not in BACKENDS:
        raise SessionError(
            f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}", where=where
        )
    if backend == "c" and providers is not None:
        raise SessionError(
            f"providers are those of onnxruntime, got {list(providers)} with the backend 'c'",
            where=where,
            hint="leave them out",
        )


def _in_place(
    spec: ModelSpec,
    rules: Sequence[UpdateRule],
    options: GraphOptions,
    params: Mapping[str, Array],
    providers: Sequence[str] | None,
    threads: int | None,
) -> InPlace:
    """The engine of a model that is updated item by item, by these rules of its assignments."""
    name = spec.rule.name
    members = [
        ParamGroup(rule, {param: params[param] for param in assignment.params})
        for rule, assignment in zip(rules, spec.assignments, strict=True)
    ]
    kinds = [_graph_shapes(member) for member in members]
    compiled_parts = compile_parts(name, list(zip(rules, kinds, strict=True)), options)
    workers = _worker_count(providers, threads)
    own_threads = threads if workers == 1 else 1  # either tiles run in parallel, or operators do
    flat = [array for m in members if m.rule.is_elementwise for array in m.params.values()]
    itemsize = next(iter(params.values())).itemsize
    size = tile_size(sum(array.size for array in flat), workers, itemsize)
    arrays: dict[str, Array] = {}
    tiles: list[WorkItem] = []
    tensors: list[WorkItem] = []
    for member, own_shapes, graphs in zip(members, kinds, compiled_parts, strict=True):
        if member.rule.is_elementwise:
            sessions = ItemSessions.of(graphs[0], providers, own_threads)
            state_arrays, items = bucket_tiles(member, sessions, size)
            tiles += items
        else:
            sessions_by_shape = {
                shape: ItemSessions.of(models, providers, threads)
                for shape, models in zip(own_shapes, graphs, strict=True)
            }
            state_arrays, items = whole_tensors(member, sessions_by_shape)
            tensors += items
        arrays |= state_arrays
    # Tiles run in parallel, then whole tensors one by one, each with all threads of onnxruntime.
    phases = [(tiles, workers), (tensors, 1)]
    return InPlace(name, members, tuple(params), arrays, [p for p in phases if p[0]])


def _worker_count(providers: Sequence[str] | None, threads: int | None) -> int:
    """The number of tiles that are updated concurrently: one per core on the CPU, else one."""
    if tuple(CPU if providers is None else providers) != CPU:
        return 1
    return cores() if threads is None else checked_threads(threads)


def _graph_shapes(group: ParamGroup) -> Sequence[Shape]:
    """The shapes that graphs are compiled for: a vector of any size, or each shape in the group."""
    if group.rule.is_elementwise:
        return [("n",)]
    return list(dict.fromkeys(array.shape for array in group.params.values()))

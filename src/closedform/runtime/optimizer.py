"""An update rule in onnxruntime, on the session's own buffers.

A rule on elements runs over flat buckets, one on whole tensors tensor by tensor, and a model from
files, or with parameters in a dtype of their own, on two sets of buffers: see ``buckets``,
``tensors`` and ``step_model``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform.errors import SessionError
from closedform.language import Group, UpdateRule
from closedform.language.groups import assigned
from closedform.runtime.binding import run_into
from closedform.runtime.buckets import bucket_parts, piece_size
from closedform.runtime.buffers import Array
from closedform.runtime.checks import checked_state, checked_tensors, hyper_values
from closedform.runtime.in_place import InPlace, Member
from closedform.runtime.lanes import Part, Sessions, cores
from closedform.runtime.layout import STEP
from closedform.runtime.onnx_session import (
    CPU,
    ModelSource,
    OnnxSession,
    checked_threads,
    open_session,
)
from closedform.runtime.start import common_dtype
from closedform.runtime.step_model import StepModel
from closedform.runtime.tensors import tensor_parts

INIT_FILE = "init.onnx"
STEP_FILE = "step.onnx"
EVALUATION_FILE = "evaluation.onnx"


class OptimizerSession:
    """Holds parameters and optimizer states, and steps them in onnxruntime.

    Args:
        rule: The rule; it is compiled here for the shapes and the dtype of ``params``.
        params: The parameters by name, all float32 or all float64, or all of the 16 bits that a
            rule with masters is for. They are copied.
        groups: Parameters with a rule of their own.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads of a step; one for each core if None.

    Raises:
        SessionError: The parameters are none, no arrays, or of mixed dtypes.
    """

    _engine: InPlace | StepModel
    _point: OnnxSession | None

    def __init__(
        self,
        rule: UpdateRule,
        params: Mapping[str, Array],
        *,
        groups: Sequence[Group] = (),
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        from closedform.model_files import model_evaluation, model_init, model_step

        if not isinstance(rule, UpdateRule):
            raise SessionError(
                f"an optimizer session runs an UpdateRule, got {type(rule).__name__}",
                hint="make one with closedform.optimizers, or use ScheduleSession for a schedule",
            )
        dtype = common_dtype(params, f"rule {rule.name!r}", rule.stored)
        shapes = {name: array.shape for name, array in params.items()}
        if all(own.stored is None for own, _ in assigned(rule, shapes, groups)):
            self._engine = _in_place(rule, params, groups, dtype, providers, threads)
        else:
            init = model_init(rule, shapes, groups, dtype=dtype)
            step = model_step(rule, shapes, groups, dtype=dtype)
            self._engine = StepModel(init, step, params, providers, threads)
        point = model_evaluation(rule, shapes, groups, dtype=dtype)
        self._point = None
        if point is not None:
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
        session._engine = StepModel(init, step, params, providers, threads)
        session._point = None
        return session

    @property
    def rule_name(self) -> str:
        """The name of the rule."""
        return self._engine.layout.rule

    @property
    def t(self) -> int:
        """The number of steps done."""
        return int(self._engine.arrays[STEP])

    @property
    def params(self) -> Mapping[str, Array]:
        """The parameters by name: read-only views, which hold these values until the next step.

        After it they show these or later values: copy what must last, and ask again for the new.
        """
        return self._engine.params

    @property
    def states(self) -> Mapping[str, Mapping[str, Array]]:
        """The states by state name, then parameter name: views that last as ``params`` do."""
        return self._engine.states

    @property
    def shared(self) -> Mapping[str, Array]:
        """The states of the whole model by name: views of numbers that last as ``params`` do."""
        return self._engine.shared

    def evaluated(self) -> dict[str, Array]:
        """Returns copies of the parameters at which the model is to be evaluated.

        These are the parameters themselves, unless the rule has a point of evaluation of its own,
        such as an average of the weights.
        """
        if self._point is None:
            return {name: array.copy() for name, array in self.params.items()}
        arrays = self._engine.arrays
        found = {name: np.empty_like(array) for name, array in self.params.items()}
        results = {f"evaluation.{name}": array for name, array in found.items()}
        run_into(self._point, {name: arrays[name] for name in self._point.inputs}, results)
        return found

    def step(
        self,
        grads: Mapping[str, Array | None],
        inputs: Mapping[str, Mapping[str, Array | None]] | None = None,
        /,
        **hyper: float,
    ) -> None:
        """Does one step. The gradients are read where they lie; after a failure nothing changed.

        Args:
            grads: The gradient of each parameter: a C-contiguous array of its dtype and shape, or
                None, and then the parameter and its states stay as they are. The clock goes on.
            inputs: Other tensors that the rule takes, by their name, then by parameter name; None
                where the gradient is None.
            **hyper: Values of the hyperparameters that are inputs of the model; those with a
                default may be left out.

        Raises:
            SessionError: A gradient, input or hyperparameter is missing, unknown or does not fit,
                or onnxruntime fails.
        """
        engine, where = self._engine, f"rule {self.rule_name!r}"
        given = {} if inputs is None else inputs
        tensors = checked_tensors(grads, given, engine.layout, where)
        for name, array in tensors.items():
            if array is not None and engine.holds(array):
                label, _, param = name.partition(".")
                what = f"the gradient of {param!r}" if label == "grad" else f"the input {name!r}"
                raise SessionError(
                    f"{what} lies in memory that this step writes",
                    where=where,
                    hint=engine.alias_hint,
                )
        layout = engine.layout
        engine.step(tensors, hyper_values(hyper, layout.hypers, layout.optional, where))

    def state_dict(self) -> dict[str, Any]:
        """Returns the name of the rule, the step, and copies of all parameters and states.

        The keys are "rule", "step", "params" (by name) and "states" (by state, then by name); and
        "shared" (by name), where the rule has states of the whole model.
        """
        shared = {name: array.copy() for name, array in self.shared.items()}
        return {
            "rule": self._engine.layout.rule,
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
        self._engine.write(
            checked_state(state_dict, self._engine.layout, f"rule {self.rule_name!r}")
        )


def _in_place(
    rule: UpdateRule,
    params: Mapping[str, Array],
    groups: Sequence[Group],
    dtype: str,
    providers: Sequence[str] | None,
    threads: int | None,
) -> InPlace:
    """The engine of a model that is stepped part by part."""
    from closedform.model_files import part_graphs

    shapes = {name: array.shape for name, array in params.items()}
    members = [
        Member(own, {name: params[name] for name in names})
        for own, names in assigned(rule, shapes, groups)
    ]
    kinds = [_kinds(member) for member in members]
    rules = [member.rule for member in members]
    made = part_graphs(rule.name, list(zip(rules, kinds, strict=True)), dtype=dtype)
    lanes = _lanes(providers, threads)
    alone = threads if lanes == 1 else 1  # a lane is a thread; without lanes ops have threads
    flat = [array for m in members if m.rule.is_elementwise for array in m.params.values()]
    itemsize = next(iter(params.values())).itemsize
    size = piece_size(sum(array.size for array in flat), lanes, itemsize)
    arrays: dict[str, Array] = {}
    pieces: list[Part] = []
    tensors: list[Part] = []
    for member, own_kinds, graphs in zip(members, kinds, made, strict=True):
        if member.rule.is_elementwise:
            sessions = Sessions.of(graphs[0], providers, alone)
            own, steps = bucket_parts(member, sessions, size)
            pieces += steps
        else:
            opened = [Sessions.of(of_kind, providers, threads) for of_kind in graphs]
            own, steps = tensor_parts(member, dict(zip(own_kinds, opened, strict=True)))
            tensors += steps
        arrays |= own
    crews = [(pieces, lanes), (tensors, 1)]
    return InPlace(rule.name, members, tuple(params), arrays, [crew for crew in crews if crew[0]])


def _lanes(providers: Sequence[str] | None, threads: int | None) -> int:
    """How many pieces step at the same time: on the CPU one for each core, elsewhere one."""
    if tuple(CPU if providers is None else providers) != CPU:
        return 1
    return cores() if threads is None else checked_threads(threads)


def _kinds(member: Member) -> list[Any]:
    """The shapes that graphs are made for: any vector, or each shape that there is."""
    if member.rule.is_elementwise:
        return [("n",)]
    return list(dict.fromkeys(array.shape for array in member.params.values()))

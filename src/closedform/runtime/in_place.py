"""The in-place engine: a model is updated item by item, each result copied over its input.

Work items are distributed over workers, one per thread (``workers``). For rules with sums over all
parameters, the items first compute partial sums, stage by stage, and the totals are then inputs of
all items. The results of an item are written to the scratch memory of its worker before they are
copied, so that parameters and states are stored only once.

Invariant: between steps all arrays belong to the same step. Failures that depend on the inputs
occur in the first item of a worker, before anything is copied; after a later failure (out of
memory, an interrupt) the engine refuses to step until a state dict is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from closedform.errors import SessionError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.ir.naming import INPUT, STATE, STEP, TOTAL
from closedform.runtime.double_buffer import read_only
from closedform.runtime.model_ports import Memory, model_ports
from closedform.runtime.onnx_session import Port
from closedform.runtime.step_ports import StepPorts
from closedform.runtime.tiles import ParamGroup
from closedform.runtime.workers import (
    ANY_PARAM,
    ItemSessions,
    Result,
    Tensors,
    Worker,
    WorkerPool,
    WorkItem,
    balance_items,
)


class InPlace:
    """The arrays and the step of a model that is updated item by item.

    Args:
        name: The name of the rule.
        groups: The rules and their parameters.
        order: The names of the parameters in the order of the model.
        arrays: The arrays of parameters and states by input name; the items hold views of them.
        phases: Work items that may run concurrently, at least one, with the number of workers. One
            phase runs after the other.

    Attributes:
        arrays: The writable arrays by input name.
        ports: The inputs of the step by role.
        views: Read-only views of parameters and states.
    """

    alias_hint = "parameters and states are updated in place; copy the array"

    def __init__(
        self,
        name: str,
        groups: Sequence[ParamGroup],
        order: Sequence[str],
        arrays: Mapping[str, Array],
        phases: Sequence[tuple[Sequence[WorkItem], int]],
    ) -> None:
        self._where = f"rule {name!r}"
        self._is_broken = False
        kinds = list({item.sessions: None for items, _ in phases for item in items})
        self._scalars = {STEP: np.zeros((), np.int64)}
        for group in groups:
            for label, spec in group.rule.shared.items():
                port = kinds[0].step.inputs[naming.shared(label)]
                self._scalars[port.name] = np.array(float(spec.initial), port.dtype)
        self._stages = range(len(kinds[0].stages))
        self._phases = [
            [Worker(share, self._scalars) for share in balance_items(items, count)]
            for items, count in phases
        ]
        self._pool = WorkerPool(max(len(workers) for workers in self._phases))
        self.arrays = {**self._scalars, **arrays}
        self._memory = Memory(arrays.values())
        self.ports = self._ports(name, groups, order, kinds)
        self.views = self.ports.views(
            {port.name: read_only(self.arrays[port.name]) for port in self.ports.carried_ports}
        )

    def overlaps(self, array: Array) -> bool:
        """Returns whether a step may write to the memory of this array."""
        return self._memory.overlaps(array)

    def write(self, values: Mapping[str, Array]) -> None:
        """Copies values into the arrays, by input name."""
        for name, value in values.items():
            np.copyto(self.arrays[name], value)
        self._is_broken = False

    def step(self, tensors: Tensors, hypers: Mapping[str, Array]) -> None:
        """Performs one step.

        Args:
            tensors: Gradients and other inputs; a parameter whose gradient is None does not change,
                nor do its states.
            hypers: Hyperparameter inputs by name.

        Raises:
            SessionError: onnxruntime fails, or an earlier step failed after it had begun to write.
        """
        if self._is_broken:
            raise SessionError(
                "the last step failed halfway",
                where=self._where,
                hint="load a state dict, such as that of the last checkpoint",
            )
        scalars = dict(hypers)
        with self._session_errors("the parameters and states are unchanged"):
            for stage in self._stages:
                scalars |= self._totals(stage, tensors, scalars)
            # Errors of shapes and providers show in the first item, before anything is written.
            self._run(lambda worker: worker.begin(tensors, scalars))
        # From here on some items are of the next step and some of this one.
        self._is_broken = True
        with self._session_errors("the step is incomplete: load a state dict"):
            self._run(lambda worker: worker.finish(tensors, scalars))
        # All workers compute the same next clock: one of them is enough.
        for name, value in self._phases[0][0].next_scalars.items():
            np.copyto(self._scalars[name], value)
        self._is_broken = False

    def _totals(
        self, stage: int, tensors: Tensors, scalars: Mapping[str, Array]
    ) -> dict[str, Array]:
        """The sums of a stage over all items, added in the order of the items."""
        totals: dict[str, Array] = {}
        for share_of_sums in self._run(lambda worker: worker.partial_sums(stage, tensors, scalars)):
            by_index = {index: sums for share in share_of_sums for index, sums in share.items()}
            # By item and not by worker: the number of threads does not change the bits of a sum.
            for index in sorted(by_index):
                for name, partial in by_index[index].items():
                    totals[name] = np.asarray(totals.get(name, 0) + partial)
        return totals

    def _run(self, task: Callable[[Worker], Result]) -> list[list[Result]]:
        """The result of the task for each worker of each phase."""
        return [self._pool.map(task, workers) for workers in self._phases]

    @contextmanager
    def _session_errors(self, hint: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in step {int(self.arrays[STEP])}: {error}",
                where=self._where,
                hint=hint,
            ) from error

    def _ports(
        self,
        rule: str,
        groups: Sequence[ParamGroup],
        order: Sequence[str],
        kinds: Sequence[ItemSessions],
    ) -> StepPorts:
        hypers: dict[str, Port] = {}
        optional: dict[str, Port] = {}
        scalar_names = {naming.grad(ANY_PARAM), naming.param(ANY_PARAM), *self._scalars}
        for session in (
            sessions
            for kind in kinds
            for sessions in (*kind.stages, kind.step)
            if sessions is not None
        ):
            hypers |= {
                name: port
                for name, port in session.inputs.items()
                if name not in scalar_names and not name.startswith((STATE, INPUT, TOTAL))
            }
            optional |= session.optional
        return model_ports(rule, groups, order, self.arrays, hypers, optional)

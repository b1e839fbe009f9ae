"""A training step that updates large parameters in place, tile by tile, after their gradients.

The first part of a step, forward and backward, writes gradients and the next values of all that is
small to new memory: up to its end, a step that fails leaves everything as it was. Then the
tiles of each large parameter and of its states are read, updated into a scratch, and copied over,
by one thread for each core. So parameters and states are stored once. So are gradients; if
their factors are smaller, they are computed in the second part, all into the same array.

Invariant: between steps all arrays belong to one step. A step that is interrupted in its second
part (which only runs out of memory, or is asked to end) leaves arrays of two steps; the session
refuses to go on with them until a state is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import STEP
from closedform.runtime.double_buffer import DoubleBuffer, allocate, read_only, static_shape
from closedform.runtime.onnx_session import (
    OnnxSession,
    Port,
    SessionBinding,
    open_session,
    run_into,
)
from closedform.runtime.workers import WorkerPool, cores
from closedform.training.late_gradients import BEFORE, GRADIENT, LateGradient
from closedform.training.update_tails import Split, Tail

T = TypeVar("T")

TILE = 2**16
"""Elements of a tile: an operator's operands and its result fit into the L2 cache."""


class InPlaceStep:
    """The arrays and the step of a training run: see the module.

    Args:
        split: The step in two.
        session: The first part.
        state_ports: All inputs that one step hands to the next.
        where: The model, named in errors.
        reports: Arrays for the other outputs of the step, by output name.
        threads: The number of threads; one for each core if None.
        open_gradients: Opens a first part: which gradients are late depends on the first batch.
    """

    def __init__(
        self,
        split: Split,
        session: OnnxSession,
        state_ports: Mapping[str, Port],
        where: str,
        reports: Mapping[str, Array],
        threads: int | None,
        open_gradients: Callable[[ModelProto], OnnxSession],
    ) -> None:
        self._where = where
        self._is_broken = False
        self._inputs = session.inputs.keys() | session.optional.keys()
        self._open_gradients = open_gradients
        self._threads = threads
        self._reported = reports
        inner = [port for name, port in state_ports.items() if name in session.inputs]
        self._buffer = DoubleBuffer(session, inner, where, reports)
        self._split, self._session = split, session
        # The sizes of the first batch decide which gradients are late.
        self._is_split_for_sizes = False
        outer = [port for name, port in state_ports.items() if name not in session.inputs]
        self._apart = allocate(outer).arrays
        self._order = list(state_ports)
        self._views = {name: read_only(array) for name, array in self._apart.items()}
        sessions: dict[bytes, OnnxSession] = {}
        for tail in split.tails.values():
            # Parameters with equal updates share a session; its bytes are the key.
            if tail.model not in sessions:
                model = ModelProto.FromString(tail.model)
                # One thread each: the tiles are what runs in parallel.
                sessions[tail.model] = open_session(model, threads=1)
        self._pool = WorkerPool(threads or cores())
        self._workers = [_Worker(sessions) for _ in range(threads or cores())]

    def _split_for(self, feeds: Mapping[str, Array]) -> None:
        """Decides which gradients are late, by the sizes of the first batch."""
        split = self._split.for_sizes({name: array.shape for name, array in feeds.items()})
        if split is not self._split:
            self._split, self._session = split, self._open_gradients(split.gradients)
        declared = {name: self._session.outputs[name] for name in split.further}
        arrays = {**self._reported, **self._buffer.following}
        # Factors of gradients may have the rows of the batch: onnxruntime allocates those.
        free = [name for name, port in declared.items() if None in port.shape]
        self._further = {
            name: np.zeros(static_shape(port), port.dtype)
            for name, port in declared.items()
            if name not in arrays and name not in free
        }
        self._buffer.bind(self._session, {**self._reported, **self._further}, free)
        self._late = _LateRuns(split.late, self._threads)
        self._is_split_for_sizes = True

    def _now(self, name: str) -> Array:
        array = self._apart.get(name)
        return self._buffer.arrays[name] if array is None else array

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The writable arrays by input name.

        Raises:
            SessionError: They belong to two steps.
        """
        if self._is_broken:
            raise SessionError(
                "an update or a load was interrupted: some arrays belong to another step",
                where=self._where,
                hint="load a state, such as that of the last checkpoint",
            )
        return {name: self._now(name) for name in self._order}

    @property
    def current_views(self) -> Mapping[str, Array]:
        """Read-only views of the arrays."""
        views = {**self._buffer.current_views, **self._views}
        return {name: views[name] for name in self.arrays}

    def write(self, values: Mapping[str, Array]) -> None:
        """Copies values into the arrays, by input name; all of them end an interrupted step."""
        self.fill(values, np.copyto)

    def fill(self, values: Mapping[str, T], put: Callable[[Array, T], None]) -> None:
        """Puts each value into its array, by input name; after an error, a step is interrupted."""
        was_broken, self._is_broken = self._is_broken, True
        for name, value in values.items():
            put(self._now(name), value)
        # Only a whole state mends an interrupted one.
        self._is_broken = was_broken and not values.keys() >= set(self._order)

    def run(self, feeds: Mapping[str, Array]) -> None:
        """Performs one step.

        Raises:
            SessionError: onnxruntime fails.
        """
        arrays = self.arrays
        step = int(arrays[STEP])
        if not self._is_split_for_sizes:
            self._split_for(feeds)
        self._buffer.compute({n: v for n, v in feeds.items() if n in self._inputs})
        tensors = {**feeds, **arrays, **self._reported, **self._further, **self._buffer.following}
        factors = self._buffer.take_allocated()
        self._is_broken = True
        try:
            for tail in self._split.tails.values():
                late = self._late.run(tail.tensors.values(), tensors, factors)
                self._update(tail, {**tensors, **late})
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in the update of step {step}: {error}",
                where=self._where,
                hint="some parameters are of the next step: load a state",
            ) from error
        self._buffer.turn()
        self._is_broken = False

    def _update(self, tail: Tail, sources: Mapping[str, Array]) -> None:
        """Updates the tiles of a parameter and of its states."""
        starts = range(0, self._now(next(iter(tail.results.values()))).size, TILE)
        count = min(len(self._workers), len(starts))
        shares = [(worker, starts[i::count]) for i, worker in enumerate(self._workers[:count])]
        self._pool.map(lambda share: share[0].run(tail, share[1], sources), shares)


class _LateRuns:
    """The ends of gradients, which are run one after the other.

    Args:
        late: The ends by the gradient.
        threads: The number of threads; chosen by onnxruntime if None.
    """

    def __init__(self, late: Mapping[str, LateGradient], threads: int | None) -> None:
        self._late = late
        self._sessions: dict[bytes, OnnxSession] = {}
        for serialized in {model for end in late.values() for model in end.models}:
            self._sessions[serialized] = open_session(
                serialized, threads=threads, has_memory_pattern=False, is_resident=False
            )
        largest = max((end.size for end in late.values()), default=0)
        self._memory: npt.NDArray[np.uint8] = np.empty(largest, np.uint8)

    def run(
        self, names: Collection[str], tensors: Mapping[str, Array], factors: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Returns the late gradients among the names, valid until the next call.

        Args:
            names: Names of values, at most one late gradient among them.
            tensors: Values of the step.
            factors: Values of the step that onnxruntime allocated.
        """
        results = {}
        for name in self._late.keys() & names:
            end = self._late[name]
            port = self._sessions[end.models[0]].outputs[GRADIENT]
            gradient = self._memory[: end.size].view(port.dtype).reshape(static_shape(port))
            arrays = {label: tensors[n] for label, n in end.factors.items() if n not in factors}
            values = {label: factors[n] for label, n in end.factors.items() if n in factors}
            arrays[BEFORE] = gradient
            for model in end.models:
                session = self._sessions[model]
                SessionBinding(
                    session,
                    {label: array for label, array in arrays.items() if label in session.inputs},
                    {GRADIENT: gradient},
                    values={n: value for n, value in values.items() if n in session.inputs},
                ).run({})
            results[name] = gradient
        return results


class _Worker:
    """The tiles that one thread updates.

    Args:
        sessions: The models of the updates.
    """

    def __init__(self, sessions: Mapping[bytes, OnnxSession]) -> None:
        self._sessions = sessions
        self._scratch: dict[tuple[bytes, str, int], Array] = {}

    def run(self, tail: Tail, starts: Sequence[int], sources: Mapping[str, Array]) -> None:
        """Updates the tiles of a parameter that begin at these elements."""
        session = self._sessions[tail.model]
        tensors = {label: sources[name].reshape(-1) for label, name in tail.tensors.items()}
        numbers = {label: sources[name] for label, name in tail.numbers.items()}
        current = {label: sources[name].reshape(-1) for label, name in tail.results.items()}
        for start in starts:
            feeds = {label: vector[start : start + TILE] for label, vector in tensors.items()}
            targets = {label: vector[start : start + TILE] for label, vector in current.items()}
            results = {label: self._result(tail, label, array) for label, array in targets.items()}
            run_into(session, {**feeds, **numbers}, results)
            # After the run, which reads the old values until it ends.
            for label, array in targets.items():
                np.copyto(array, results[label])

    def _result(self, tail: Tail, label: str, like: Array) -> Array:
        key = tail.model, label, like.size
        if key not in self._scratch:
            self._scratch[key] = np.empty_like(like)
        return self._scratch[key]

"""A training step that updates large parameters in place, tile by tile, after their gradients.

The first part of a step, forward and backward, writes gradients and the next values of all that is
small to new memory: up to its end, a step that fails leaves everything as it was. Then the
tiles of each large parameter and of its states are read, updated into a scratch, and copied over,
by one thread for each core. So parameters and states are stored once, and gradients once.

Invariant: between steps all arrays belong to one step. A step that is interrupted in its second
part (which only runs out of memory, or is asked to end) leaves arrays of two steps; the session
refuses to go on with them until a state is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from onnx import ModelProto

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import STEP
from closedform.runtime.double_buffer import DoubleBuffer, allocate, read_only, static_shape
from closedform.runtime.onnx_session import OnnxSession, Port, open_session, run_into
from closedform.runtime.workers import WorkerPool, cores
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
    """

    def __init__(
        self,
        split: Split,
        session: OnnxSession,
        state_ports: Mapping[str, Port],
        where: str,
        reports: Mapping[str, Array],
        threads: int | None,
    ) -> None:
        self._where = where
        self._is_broken = False
        self._inputs = session.inputs.keys() | session.optional.keys()
        self._further = {
            name: np.zeros(static_shape(session.outputs[name]), session.outputs[name].dtype)
            for name in split.shapes
            if name not in reports
        }
        self._reported = reports
        inner = [port for name, port in state_ports.items() if name in session.inputs]
        self._buffer = DoubleBuffer(session, inner, where, {**reports, **self._further})
        outer = [port for name, port in state_ports.items() if name not in session.inputs]
        self._apart = allocate(outer).arrays
        self._order = list(state_ports)
        self._views = {name: read_only(array) for name, array in self._apart.items()}
        sessions: dict[bytes, OnnxSession] = {}
        for tail in split.tails.values():
            if tail.model not in sessions:
                model = ModelProto.FromString(tail.model)
                sessions[tail.model] = open_session(model, threads=1)
        count = threads or cores()
        items = [
            (tail, start)
            for tail in split.tails.values()
            for start in range(0, self._now(next(iter(tail.results.values()))).size, TILE)
        ]
        self._pool = WorkerPool(count)
        self._workers = [
            _Worker(sessions, items[index::count]) for index in range(min(count, len(items)))
        ]

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
        self._is_broken = was_broken and not values.keys() >= set(self._order)

    def run(self, feeds: Mapping[str, Array]) -> None:
        """Performs one step.

        Raises:
            SessionError: onnxruntime fails.
        """
        arrays = self.arrays
        step = int(arrays[STEP])
        self._buffer.compute({n: v for n, v in feeds.items() if n in self._inputs})
        sources = {**feeds, **arrays, **self._reported, **self._further}
        self._is_broken = True
        try:
            self._pool.map(lambda worker: worker.run(sources), self._workers)
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in the update of step {step}: {error}",
                where=self._where,
                hint="some parameters are of the next step: load a state",
            ) from error
        self._buffer.turn()
        self._is_broken = False


class _Worker:
    """The tiles that one thread updates.

    Args:
        sessions: The models of the updates.
        items: The tiles: an update and the first element.
    """

    def __init__(
        self, sessions: Mapping[bytes, OnnxSession], items: Sequence[tuple[Tail, int]]
    ) -> None:
        self._items = items
        self._sessions = sessions
        self._scratch: dict[tuple[bytes, str, int], Array] = {}

    def run(self, sources: Mapping[str, Array]) -> None:
        """Updates the tiles."""
        flat: dict[str, Array] = {}

        def elements(name: str, start: int) -> Array:
            if name not in flat:
                flat[name] = sources[name].reshape(-1)
            return flat[name][start : start + TILE]

        for tail, start in self._items:
            session = self._sessions[tail.model]
            feeds = {label: elements(name, start) for label, name in tail.tensors.items()}
            feeds |= {label: sources[name] for label, name in tail.numbers.items()}
            targets = {label: elements(name, start) for label, name in tail.results.items()}
            results = {label: self._result(tail, label, array) for label, array in targets.items()}
            run_into(session, feeds, results)
            # After the run, which reads the old values until it ends.
            for label, array in targets.items():
                np.copyto(array, results[label])

    def _result(self, tail: Tail, label: str, like: Any) -> Array:
        key = tail.model, label, like.size
        if key not in self._scratch:
            self._scratch[key] = np.empty_like(like)
        return self._scratch[key]

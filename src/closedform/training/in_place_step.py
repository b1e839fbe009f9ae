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
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from onnx import ModelProto

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import STEP
from closedform.runtime.double_buffer import DoubleBuffer, allocate, read_only, static_shape
from closedform.runtime.onnx_session import OnnxSession, Port, SessionBinding, open_session
from closedform.runtime.tuned_session import open_tuned
from closedform.runtime.workers import Scratch, WorkerPool, cores
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
                # One thread each: the tiles are what runs in parallel. As the nodes are: the
                # optimizer of onnxruntime could let a node read a tensor that is overwritten.
                sessions[tail.model] = open_session(model, threads=1, is_optimized=False)
        self._pool = WorkerPool(threads or cores())
        current = {n: self._now(n) for tail in split.tails.values() for n in tail.results.values()}
        self._workers = [_Worker(sessions, current) for _ in range(threads or cores())]

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
            for name, tail in self._split.tails.items():
                late = self._late.run(tail.tensors.values(), tensors, factors)
                self._update(name, tail, {**tensors, **late})
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime failed in the update of step {step}: {error}",
                where=self._where,
                hint="some parameters are of the next step: load a state",
            ) from error
        self._buffer.turn()
        self._is_broken = False

    def _update(self, param: str, tail: Tail, sources: Mapping[str, Array]) -> None:
        """Updates the tiles of a parameter and of its states."""
        starts = range(0, self._now(next(iter(tail.results.values()))).size, TILE)
        count = min(len(self._workers), len(starts))
        shares = [(worker, starts[i::count]) for i, worker in enumerate(self._workers[:count])]
        self._pool.map(lambda share: share[0].run(param, tail, share[1], sources), shares)


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
            self._sessions[serialized] = open_tuned(
                ModelProto.FromString(serialized),
                threads=threads,
                has_memory_pattern=False,
                is_resident=False,
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


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile that is bound to the arrays of the run.

    Attributes:
        binding: The update; gradients and numbers are bound when they are at other addresses.
        copies: Elements of the parameter or of its states, and the results to copy there.
    """

    binding: SessionBinding
    copies: Sequence[tuple[Array, Array]]


class _Worker:
    """The tiles that one thread updates.

    Args:
        sessions: The models of the updates.
        current: The parameters and states that are updated in place, by input name.
    """

    def __init__(self, sessions: Mapping[bytes, OnnxSession], current: Mapping[str, Array]) -> None:
        self._sessions = sessions
        self._current = {name: array.reshape(-1) for name, array in current.items()}
        self._scratch = Scratch()
        self._tiles: dict[tuple[str, int], _Tile] = {}
        # By parameter, where the gradient and the numbers of the last step were.
        self._places: dict[str, list[tuple[int, tuple[int, ...]]]] = {}

    def run(
        self, param: str, tail: Tail, starts: Sequence[int], sources: Mapping[str, Array]
    ) -> None:
        """Updates the tiles of a parameter that begin at these elements."""
        vectors = {
            label: sources[name].reshape(-1)
            for label, name in tail.tensors.items()
            if name not in self._current
        }
        numbers = {label: sources[name] for label, name in tail.numbers.items()}
        places = [
            (array.ctypes.data, array.shape) for array in (*vectors.values(), *numbers.values())
        ]
        has_moved = self._places.pop(param, None) != places
        for start in starts:
            if (param, start) not in self._tiles:
                self._tiles[param, start] = self._bind(tail, start)
            tile = self._tiles[param, start]
            if has_moved:
                feeds = {label: vector[start : start + TILE] for label, vector in vectors.items()}
                tile.binding.run({**feeds, **numbers})
            else:
                tile.binding.repeat()
            # After the run, which reads the old values until it ends.
            for target, result in tile.copies:
                np.copyto(target, result)
        # All tiles are bound to them, unless a run has failed.
        self._places[param] = places

    def _bind(self, tail: Tail, start: int) -> _Tile:
        def elements(names: Mapping[str, str]) -> dict[str, Array]:
            return {
                label: self._current[name][start : start + TILE]
                for label, name in names.items()
                if name in self._current
            }

        targets = elements(tail.results)
        # One thread runs its tiles one after the other: they share the scratch.
        scratch = {
            label: self._scratch.array(label, array)
            for label, array in targets.items()
            if label not in tail.overwriting
        }
        return _Tile(
            SessionBinding(
                self._sessions[tail.model], elements(tail.tensors), {**targets, **scratch}
            ),
            [(targets[label], result) for label, result in scratch.items()],
        )

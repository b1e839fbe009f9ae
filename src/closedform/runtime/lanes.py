"""Parts of a model, and the lanes in which threads step them.

A part is a piece of a flat bucket (``buckets``) or one tensor (``tensors``). A lane is what one
thread steps, one part after the other, with memory of its own for the results of one part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from closedform.errors import SessionError
from closedform.runtime.binding import Binding
from closedform.runtime.buffers import Array
from closedform.runtime.layout import NEXT
from closedform.runtime.onnx_session import ModelSource, OnnxSession, open_session

ALL = "all"
"""The parameter that the graph of a kind of part is compiled for."""

Tensors = Mapping[str, Array | None]
"""Gradients and other inputs of a step by input name; None where there is no gradient."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """The models of a kind of part, for a parameter ``all``.

    Attributes:
        stages: Its part in each stage of sums; None where it has none.
        step: Its step.
    """

    stages: tuple[OnnxSession | None, ...]
    step: OnnxSession

    @classmethod
    def of(
        cls,
        models: Sequence[ModelSource | None],
        providers: Sequence[str] | None,
        threads: int | None,
    ) -> Sessions:
        """Returns the sessions of models: its part in each stage, then its step."""
        *stages, step = (
            None if model is None else open_session(model, providers=providers, threads=threads)
            for model in models
        )
        if step is None:
            raise SessionError("a part has no step", hint="this is our defect: report it")
        return cls(tuple(stages), step)


class Memory:
    """Arrays by name that lie in blocks which grow to the largest one asked for."""

    def __init__(self) -> None:
        self._blocks: dict[str, Array] = {}

    def reserve(self, name: str, like: Array) -> None:
        """Makes a block large enough; arrays taken from it before are no longer of it."""
        if name not in self._blocks or self._blocks[name].nbytes < like.nbytes:
            self._blocks[name] = np.empty(like.nbytes, np.uint8)

    def array(self, name: str, like: Array) -> Array:
        """Returns an array of the dtype and shape of another in the block of this name."""
        self.reserve(name, like)
        found: Array = self._blocks[name][: like.nbytes].view(like.dtype).reshape(like.shape)
        return found


class Part(Protocol):
    """What one run of onnxruntime steps.

    Attributes:
        sessions: Its models.
        current: What the run reads of parameters and states, by input name.
    """

    sessions: Sessions
    current: Mapping[str, Array]

    def taken(self, port: str, tensors: Tensors, memory: Memory) -> Array:
        """Returns the gradient or other tensor that an input takes; a copy lies in ``memory``."""

    def commit(self, results: Mapping[str, Array], tensors: Tensors) -> None:
        """Copies results into place, but those of parameters without a gradient."""


class _Run:
    """A part in one of its sessions; all memory is bound but that of what it takes.

    Args:
        part: The part.
        session: That of a stage of sums, or of the step.
        scalars: What all parts read, by input name.
        results: What the run writes, by the name of the output or of the input that it replaces.

    Attributes:
        results: As given.
    """

    def __init__(
        self,
        part: Part,
        session: OnnxSession,
        scalars: Mapping[str, Array],
        results: Mapping[str, Array],
    ) -> None:
        self.results = results
        self._part = part
        read = {**scalars, **part.current}
        names = (*session.inputs, *session.optional)
        fixed = {name: read[name] for name in names if name in read}
        written = {name: results[name.removeprefix(NEXT)] for name in session.outputs}
        self._binding = Binding(session, fixed, written)
        self._required = tuple(name for name in session.inputs if name not in fixed)
        self._optional = tuple(name for name in session.optional if name not in fixed)

    def __call__(self, tensors: Tensors, known: Mapping[str, Array], memory: Memory) -> None:
        given = {name: known[name] for name in self._optional if name in known}
        for name in self._required:
            is_known = name in known
            given[name] = known[name] if is_known else self._part.taken(name, tensors, memory)
        self._binding.run(given)


class Lane:
    """Parts that one thread steps, one after the other.

    Args:
        parts: The parts, at least one, by their place in the model.
        scalars: What all parts read, by input name: the clock and states of the whole model.

    Attributes:
        parts: The parts.
        following: What the scalars become; every run writes it.
    """

    def __init__(self, parts: Mapping[int, Part], scalars: Mapping[str, Array]) -> None:
        self.parts = parts
        self.following = {name: np.empty_like(array) for name, array in scalars.items()}
        self._scalars = scalars
        self._memory = Memory()
        for part in parts.values():
            for name, array in part.current.items():
                self._memory.reserve(name, array)
        self._sums: dict[tuple[int, int], _Run] = {}
        self._steps: dict[int, _Run] = {}

    def sums(
        self, stage: int, tensors: Tensors, known: Mapping[str, Array]
    ) -> dict[int, Mapping[str, Array]]:
        """Returns what each part adds to the sums of a stage; good until the next call.

        By the place of the part, then by the name of the sum.
        """
        found = {}
        for place, part in self.parts.items():
            session = part.sessions.stages[stage]
            if session is None:
                continue
            if (place, stage) not in self._sums:
                outputs = session.outputs.items()
                own = {name: np.empty((), port.dtype) for name, port in outputs}
                self._sums[place, stage] = _Run(part, session, self._scalars, own)
            run = self._sums[place, stage]
            run(tensors, known, self._memory)
            found[place] = run.results
        return found

    def begin(self, tensors: Tensors, known: Mapping[str, Array]) -> None:
        """Runs the first part and copies nothing into place."""
        self._step(min(self.parts), tensors, known)

    def finish(self, tensors: Tensors, known: Mapping[str, Array]) -> None:
        """Copies the results of the first part into place, and steps the others."""
        first = min(self.parts)
        self.parts[first].commit(self._steps[first].results, tensors)
        for place, part in self.parts.items():
            if place != first:
                part.commit(self._step(place, tensors, known), tensors)

    def _step(
        self, place: int, tensors: Tensors, known: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        if place not in self._steps:
            part = self.parts[place]
            arrays = part.current.items()
            results = {name: self._memory.array(name, array) for name, array in arrays}
            self._steps[place] = _Run(
                part, part.sessions.step, self._scalars, {**self.following, **results}
            )
        run = self._steps[place]
        run(tensors, known, self._memory)
        return run.results


def divided(parts: Sequence[Part], count: int) -> list[dict[int, Part]]:
    """Returns parts by place in at most ``count`` groups, with elements as even as can be."""
    groups: list[dict[int, Part]] = [{} for _ in range(count)]
    loads = [0] * count
    for place, part in enumerate(parts):
        least = loads.index(min(loads))
        groups[least][place] = part
        loads[least] += max(array.size for array in part.current.values())
    return [group for group in groups if group]


def cores() -> int:
    """Returns the number of cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class Threads:
    """Threads that run lanes at the same time.

    Args:
        count: How many, with that of the caller.
    """

    def __init__(self, count: int) -> None:
        self._others = ThreadPoolExecutor(max(count - 1, 1), "closedform")

    def map(self, task: Callable[[Lane], Result], lanes: Sequence[Lane]) -> list[Result]:
        """Returns what the task gives for each lane; all have ended when it returns or raises."""
        first, *others = lanes
        futures = [self._others.submit(task, lane) for lane in others]
        try:
            own = task(first)
        finally:
            wait(futures)
        return [own, *(future.result() for future in futures)]

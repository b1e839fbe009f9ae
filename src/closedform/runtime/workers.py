"""Work items of an optimizer step, and the workers that run them on separate threads.

A work item is a tile of a flat bucket or a whole tensor (``tiles``). A worker runs its items one
after the other on one thread; its scratch memory holds the results of one item at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from closedform.errors import SessionError
from closedform.ir.graph import Array
from closedform.ir.naming import NEXT
from closedform.runtime.onnx_session import (
    ModelSource,
    OnnxSession,
    SessionBinding,
    open_session,
)

ANY_PARAM = "all"
"""The parameter name that the graphs of work items are compiled with."""

Tensors = Mapping[str, Array | None]
"""Gradients and other inputs of a step by input name; None where a parameter has no gradient."""

Result = TypeVar("Result")
Share = TypeVar("Share")


@dataclass(frozen=True, slots=True, eq=False)
class ItemSessions:
    """The models of one kind of work item, for a parameter named ``ANY_PARAM``.

    Attributes:
        stages: For each stage of global sums, the model of the item's partial sums; None where the
            item contributes nothing.
        step: The model of its step.
    """

    stages: tuple[OnnxSession | None, ...]
    step: OnnxSession

    @classmethod
    def of(
        cls,
        models: Sequence[ModelSource | None],
        providers: Sequence[str] | None,
        threads: int | None,
    ) -> ItemSessions:
        """Returns the sessions of models: one for each stage, then the step."""
        *stages, step = (
            None if model is None else open_session(model, providers=providers, threads=threads)
            for model in models
        )
        if step is None:
            raise SessionError(
                "a work item has no step model", hint="this is a bug in closedform: report it"
            )
        return cls(tuple(stages), step)


class Scratch:
    """Reusable arrays by name, each in a block that grows to the largest array requested."""

    def __init__(self) -> None:
        self._blocks: dict[str, Array] = {}

    def reserve(self, name: str, like: Array) -> None:
        """Makes a block large enough; arrays taken from a smaller one no longer alias it."""
        if name not in self._blocks or self._blocks[name].nbytes < like.nbytes:
            self._blocks[name] = np.empty(like.nbytes, np.uint8)

    def array(self, name: str, like: Array) -> Array:
        """Returns an array with the dtype and shape of ``like`` in the block of this name."""
        self.reserve(name, like)
        view: Array = self._blocks[name][: like.nbytes].view(like.dtype).reshape(like.shape)
        return view


class WorkItem(Protocol):
    """The elements that one run of onnxruntime updates.

    Attributes:
        sessions: The models of the item.
        current: The arrays of parameters and states that the run reads, by input name.
    """

    sessions: ItemSessions
    current: Mapping[str, Array]

    def gather(self, port: str, tensors: Tensors, scratch: Scratch) -> Array:
        """Returns the elements of a gradient or other input; a copy is made in ``scratch``."""

    def commit(self, results: Mapping[str, Array], tensors: Tensors) -> None:
        """Copies results into place, except for parameters without a gradient."""


class _BoundItem:
    """A work item bound to one of its sessions; only its gathered inputs are bound at each run.

    Args:
        item: The item.
        session: The model of one stage of sums, or of the step.
        scalars: The inputs that all items share, by input name.
        results: The arrays that the run writes, by the name of the output or of the input that it
            replaces.

    Attributes:
        results: As given.
    """

    def __init__(
        self,
        item: WorkItem,
        session: OnnxSession,
        scalars: Mapping[str, Array],
        results: Mapping[str, Array],
    ) -> None:
        self.results = results
        self._item = item
        available = {**scalars, **item.current}
        names = (*session.inputs, *session.optional)
        inputs = {name: available[name] for name in names if name in available}
        outputs = {name: results[name.removeprefix(NEXT)] for name in session.outputs}
        self._binding = SessionBinding(session, inputs, outputs)
        self._required = tuple(name for name in session.inputs if name not in inputs)
        self._optional = tuple(name for name in session.optional if name not in inputs)

    def run(self, tensors: Tensors, scalars: Mapping[str, Array], scratch: Scratch) -> None:
        feeds = {name: scalars[name] for name in self._optional if name in scalars}
        for name in self._required:
            is_known = name in scalars
            feeds[name] = scalars[name] if is_known else self._item.gather(name, tensors, scratch)
        self._binding.run(feeds)


class Worker:
    """Work items that one thread runs in order.

    Args:
        items: The items, at least one, by their index in the model.
        scalars: The inputs that all items share, by input name: the clock and the states of the
            whole model.

    Attributes:
        next_scalars: The values of the scalars after the step; every run writes them.
    """

    def __init__(self, items: Mapping[int, WorkItem], scalars: Mapping[str, Array]) -> None:
        self.next_scalars = {name: np.empty_like(array) for name, array in scalars.items()}
        self._items = items
        self._scalars = scalars
        self._scratch = Scratch()
        for item in items.values():
            for name, array in item.current.items():
                self._scratch.reserve(name, array)
        self._partial_sums: dict[tuple[int, int], _BoundItem] = {}
        self._steps: dict[int, _BoundItem] = {}

    def partial_sums(
        self, stage: int, tensors: Tensors, scalars: Mapping[str, Array]
    ) -> dict[int, Mapping[str, Array]]:
        """Returns the partial sums of each item in a stage, valid until the next call.

        They are keyed by the index of the item, then by the name of the sum.
        """
        port_sums = {}
        for index, item in self._items.items():
            session = item.sessions.stages[stage]
            if session is None:
                continue
            if (index, stage) not in self._partial_sums:
                outputs = session.outputs.items()
                sums = {name: np.empty((), port.dtype) for name, port in outputs}
                self._partial_sums[index, stage] = _BoundItem(item, session, self._scalars, sums)
            bound = self._partial_sums[index, stage]
            bound.run(tensors, scalars, self._scratch)
            port_sums[index] = bound.results
        return port_sums

    def begin(self, tensors: Tensors, scalars: Mapping[str, Array]) -> None:
        """Runs the first item without copying its results into place."""
        self._step(min(self._items), tensors, scalars)

    def finish(self, tensors: Tensors, scalars: Mapping[str, Array]) -> None:
        """Commits the results of the first item, then runs and commits the others."""
        first = min(self._items)
        # begin() has computed them before any worker wrote: until then a step may fail without a
        # change.
        self._items[first].commit(self._steps[first].results, tensors)
        for index, item in self._items.items():
            if index != first:
                item.commit(self._step(index, tensors, scalars), tensors)

    def _step(
        self, index: int, tensors: Tensors, scalars: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        if index not in self._steps:
            item = self._items[index]
            arrays = item.current.items()
            # All items of a worker write to the same scratch memory, one after the other.
            results = {name: self._scratch.array(name, array) for name, array in arrays}
            self._steps[index] = _BoundItem(
                item, item.sessions.step, self._scalars, {**self.next_scalars, **results}
            )
        bound = self._steps[index]
        bound.run(tensors, scalars, self._scratch)
        return bound.results


def balance_items(items: Sequence[WorkItem], count: int) -> list[dict[int, WorkItem]]:
    """Returns items by index in at most ``count`` groups with similar numbers of elements."""
    groups: list[dict[int, WorkItem]] = [{} for _ in range(count)]
    loads = [0] * count
    for index, item in enumerate(items):
        least = loads.index(min(loads))
        groups[least][index] = item
        loads[least] += max(array.size for array in item.current.values())
    return [group for group in groups if group]


def cores() -> int:
    """Returns the number of cores that this process may run on."""
    try:
        # In a container or under taskset, cpu_count() has the cores of the whole machine.
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


class WorkerPool:
    """Threads that run workers, or other shares of the work, concurrently.

    Args:
        count: The number of threads, including the calling one.
    """

    def __init__(self, count: int) -> None:
        self._others = ThreadPoolExecutor(max(count - 1, 1), "closedform")

    def map(self, task: Callable[[Share], Result], workers: Sequence[Share]) -> list[Result]:
        """Returns the result of each worker; all tasks have ended when it returns or raises."""
        first, *following_shares = workers
        # The calling thread takes the first share instead of waiting.
        futures = [self._others.submit(task, worker) for worker in following_shares]
        try:
            first_result = task(first)
        finally:
            wait(futures)
        return [first_result, *(future.result() for future in futures)]

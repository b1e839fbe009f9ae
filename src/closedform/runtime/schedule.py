"""A schedule in onnxruntime: from an integer step to its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from closedform.compiler import compile_schedule
from closedform.errors import SessionError
from closedform.ir.naming import STEP
from closedform.ir.steps import checked_steps, last_step
from closedform.language import Schedule
from closedform.options import ANY_STEPS
from closedform.runtime.checks import hyper_values
from closedform.runtime.onnx_session import ModelSource, OnnxSession, open_session

BLOCK = 256
"""The number of steps that a vector model computes when one step is requested: the cost is about
that of one step, and a training loop requests the following ones next."""

TILE = 2**16
"""Steps of a run of a vector model: the values of its operators stay in the cache."""


class ScheduleSession:
    """Runs a schedule in onnxruntime.

    Args:
        source: A Schedule (compiled here for vectors of steps), a Graph, a ModelProto, a serialized
            model, or the path of a model.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads within one operator; chosen by onnxruntime if None.
        is_optimized: Whether onnxruntime may fold and fuse nodes.

    Raises:
        SessionError: The model cannot be loaded or is not a schedule, which has an integer input
            ``step`` of rank 0 or 1, other inputs of rank 0, and one output.
    """

    def __init__(
        self,
        source: Schedule | ModelSource,
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        is_optimized: bool = True,
    ) -> None:
        model: ModelSource = (
            compile_schedule(source, ANY_STEPS) if isinstance(source, Schedule) else source
        )
        session = open_session(
            model, providers=providers, threads=threads, is_optimized=is_optimized
        )
        _check_schedule(session)
        self._session = session
        self._step = session.inputs[STEP]
        self._required = {name: port for name, port in session.inputs.items() if name != STEP}
        (self._output,) = session.outputs.values()
        self._top = last_step(self._step.dtype)
        # Most files take one step and nothing else: such calls skip the general checks.
        self._takes_one = not self._step.shape and not self._required
        # The first step and its values and those after it: replaced whole, since threads share it.
        self._ahead: tuple[int, list[float]] = (0, [])

    @property
    def name(self) -> str:
        """The name of the schedule's graph."""
        return self._session.name

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """The names of the hyperparameter inputs; those without a default are required."""
        return (*self._required, *self._session.optional)

    def __call__(self, step: int | ArrayLike, **hyper: float) -> float | NDArray[Any]:
        """Returns the value at a step, or an array of values for an array of steps.

        Args:
            step: The number of optimizer steps performed so far: an integer >= 0, or an array of
                integers.
            **hyper: Values of hyperparameter inputs; those with a default may be omitted.

        Raises:
            SessionError: A step is not an integer or is out of range, or a hyperparameter is
                missing, unknown or not a number.
        """
        if type(step) is int and not hyper:
            first, values = self._ahead
            place = step - first
            if 0 <= place < len(values):
                return values[place]
            if self._takes_one and 0 <= step <= self._top:
                return float(self._run_one(np.array(step, self._step.dtype), {}))
        where = f"schedule {self.name!r}"
        steps = checked_steps(step, self._top, where).astype(self._step.dtype)
        feeds = hyper_values(hyper, self._required, self._session.optional, where)
        if steps.ndim:
            return self._run(steps, feeds)
        if hyper or not self._step.shape:
            return float(self._run(steps, feeds))
        return self._look_ahead(int(steps))

    def _look_ahead(self, step: int) -> float:
        """The value at a step; the values of the following steps are cached for the next calls."""
        last = min(step + BLOCK - 1, self._top)
        block = np.arange(step, last + 1, dtype=self._step.dtype)
        # In float64, which holds a float32 exactly: one kind of Python float.
        values: list[float] = self._run(block, {}).astype(np.float64).tolist()
        self._ahead = (step, values)
        return values[0]

    def _run(self, steps: NDArray[Any], feeds: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """One run per tile for a vector model, one run per step for a scalar model."""
        flat_steps = steps.reshape(-1)
        flat = np.empty(steps.size, self._output.dtype)
        if self._step.shape:
            for first in range(0, steps.size, TILE):
                tile = slice(first, first + TILE)
                flat[tile] = self._run_one(flat_steps[tile], feeds)  # a constant has one value
        else:
            flat[:] = [self._run_one(np.asarray(step), feeds) for step in flat_steps]
        return flat.reshape(steps.shape)

    def _run_one(self, steps: NDArray[Any], feeds: Mapping[str, NDArray[Any]]) -> Any:
        try:
            (values,) = self._session.raw.run([self._output.name], {**feeds, STEP: steps})
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(
                f"onnxruntime cannot run the model: {error}", where=f"model {self._session.name!r}"
            ) from error
        return values


def _check_schedule(session: OnnxSession) -> None:
    where = f"model {session.name!r}"
    if STEP not in session.inputs:
        names = ", ".join(session.inputs) or "none"
        raise SessionError(f"a schedule model needs an input {STEP!r}, got {names}", where=where)
    step = session.inputs[STEP]
    if step.dtype.kind != "i" or step.shape not in ((), (None,)):
        raise SessionError(
            f"input {STEP!r} must be an integer of rank 0 or a vector of dynamic size, got {step}",
            where=where,
        )
    for port in (*session.inputs.values(), *session.optional.values()):
        if port is not step and port.shape:
            raise SessionError(
                f"input {port.name!r} must have rank 0, got {port}",
                where=where,
                hint="run an optimizer step with OptimizerSession",
            )
    if len(session.outputs) != 1:
        names = ", ".join(session.outputs)
        raise SessionError(f"a schedule model needs one output, got {names}", where=where)

"""A schedule in onnxruntime: an integer step in, its value out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from closedform.errors import SessionError, nearest
from closedform.language import Schedule
from closedform.lowering.domain import MAX_STEP
from closedform.runtime.onnx_session import ModelSource, OnnxSession, Port, open_session

STEP = "step"

BLOCK = 256
"""Steps that a model of vectors computes at once when it is asked for one: about the price of one,
and a training loop asks for the following ones next."""


class ScheduleSession:
    """Runs a schedule in onnxruntime.

    Args:
        source: A Schedule (compiled here for vectors of steps), a Graph, a ModelProto, the bytes
            of a model, or the path of one.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads within an op; onnxruntime's own choice if None.
        is_optimized: Whether onnxruntime may fold and fuse.

    Raises:
        SessionError: The model cannot be loaded, or is not that of a schedule: one integer input
            ``step`` of rank 0 or 1, else only inputs of rank 0, and one output.
    """

    def __init__(
        self,
        source: Schedule | ModelSource,
        *,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        is_optimized: bool = True,
    ) -> None:
        model = _compiled(source) if isinstance(source, Schedule) else source
        session = open_session(
            model, providers=providers, threads=threads, is_optimized=is_optimized
        )
        _check_schedule(session)
        self._session = session
        self._step = session.inputs[STEP]
        (self._output,) = session.outputs.values()
        self._top = min(int(np.iinfo(self._step.dtype).max), MAX_STEP)
        # A single step alone, as most files take it: such a call is not checked any further.
        self._takes_one = not self._step.shape and list(session.inputs) == [STEP]
        self._ahead: list[float] = []
        self._ahead_from = 0

    @property
    def name(self) -> str:
        """The name of the schedule's graph."""
        return self._session.name

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """The names of the hyperparameter inputs; a call must give those without a default."""
        required = [name for name in self._session.inputs if name != STEP]
        return (*required, *self._session.optional)

    def __call__(self, step: int | ArrayLike, **hyper: float) -> float | NDArray[Any]:
        """Returns the value at a step; for an array of steps an array of the same shape.

        Args:
            step: Steps done so far: an integer >= 0, or an array of such.
            **hyper: Values of hyperparameter inputs; those with a default may be left out.

        Raises:
            SessionError: A step is no integer or out of range, or a hyperparameter is missing,
                unknown or no number.
        """
        if type(step) is int and not hyper:
            place = step - self._ahead_from
            if 0 <= place < len(self._ahead):
                return self._ahead[place]
            if self._takes_one and 0 <= step <= self._top:
                return float(self._run_one(np.array(step, self._step.dtype), {}))
        where = f"schedule {self.name!r}"
        steps = _checked_steps(step, self._step.dtype, self._top, where)
        feeds = self._hyper_feeds(hyper, where)
        if steps.ndim:
            return self._run(steps, feeds)
        if hyper or not self._step.shape:
            return float(self._run(steps, feeds))
        return self._look_ahead(int(steps))

    def _look_ahead(self, step: int) -> float:
        """The value at a step; those of the steps after it are kept for the next calls."""
        last = min(step + BLOCK - 1, self._top)
        block = np.arange(step, last + 1, dtype=self._step.dtype)
        # In float64, which holds a float32 exactly: one kind of Python float.
        self._ahead = self._run(block, {}).astype(np.float64).tolist()
        self._ahead_from = step
        return self._ahead[0]

    def _run(self, steps: NDArray[Any], feeds: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """One run for a model of vectors, a run for each step for a model of single steps."""
        if steps.size == 0:
            return np.empty(steps.shape, self._output.dtype)
        flat_steps = steps.reshape(-1)
        if self._step.shape:
            values = self._run_one(flat_steps, feeds)
        else:
            values = [self._run_one(np.asarray(one), feeds) for one in flat_steps]
        flat = np.asarray(values, self._output.dtype)
        return np.broadcast_to(flat, (steps.size,)).reshape(steps.shape).copy()

    def _run_one(self, steps: NDArray[Any], feeds: Mapping[str, NDArray[Any]]) -> Any:
        (values,) = self._session.raw.run([self._output.name], {**feeds, STEP: steps})
        return values

    def _hyper_feeds(self, hyper: Mapping[str, float], where: str) -> dict[str, NDArray[Any]]:
        known = {**self._session.inputs, **self._session.optional}
        for name in hyper:
            if name not in self.hyper_names:
                hint = nearest(name, self.hyper_names) if self.hyper_names else "it has none"
                raise SessionError(f"unknown hyperparameter {name!r}", where=where, hint=hint)
        for name in self._session.inputs:
            if name != STEP and name not in hyper:
                raise SessionError(
                    f"hyperparameter {name!r} is missing",
                    where=where,
                    hint=f"pass {name}=… with the step",
                )
        return {name: _number(value, known[name], where) for name, value in hyper.items()}


def _compiled(schedule: Schedule) -> ModelSource:
    from closedform.compiler import compile_schedule

    return compile_schedule(schedule, step_shape=("n",))


def _check_schedule(session: OnnxSession) -> None:
    where = f"model {session.name!r}"
    if STEP not in session.inputs:
        listed = ", ".join(session.inputs) or "none"
        raise SessionError(
            f"a schedule has an input {STEP!r}, this model has {listed}", where=where
        )
    step = session.inputs[STEP]
    if step.dtype.kind != "i" or step.shape not in ((), (None,)):
        raise SessionError(
            f"input {STEP!r} must be an integer, or a vector of a free size, got {step}",
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
        listed = ", ".join(session.outputs)
        raise SessionError(f"a schedule has one output, this model has {listed}", where=where)


def _checked_steps(
    step: int | ArrayLike, dtype: np.dtype[Any], top: int, where: str
) -> NDArray[Any]:
    """The steps in the dtype of the model, after a check that each fits."""
    steps = np.asarray(step)
    if steps.size == 0:
        return steps.astype(dtype)
    if steps.dtype.kind not in "iu":
        got = steps.dtype if steps.dtype.kind != "O" else repr(step)
        raise SessionError(
            f"the step must be an integer, got {got}",
            where=where,
            hint="count the optimizer steps done so far, from 0",
        )
    low, high = int(steps.min()), int(steps.max())
    if low < 0 or high > top:
        wrong = low if low < 0 else high
        raise SessionError(
            f"the step must be in 0..{top}, got {wrong}",
            where=where,
            hint="count the optimizer steps done so far, from 0",
        )
    return steps.astype(dtype)


def _number(value: float, port: Port, where: str) -> NDArray[Any]:
    """A hyperparameter in the dtype of its input; an integer input takes only integers."""
    array = np.asarray(value)
    fits = array.ndim == 0 and array.dtype.kind in "iuf"
    if fits and port.dtype.kind in "iu":
        fits = array.dtype.kind in "iu"
    if not fits:
        raise SessionError(
            f"hyperparameter {port.name!r} must be a number ({port}), got {value!r}", where=where
        )
    return array.astype(port.dtype)

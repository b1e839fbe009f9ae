"""Training in onnxruntime: parameters, states and buffers in two alternating sets of arrays."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from closedform.errors import SessionError, StateError
from closedform.exporters.onnx_metadata import check_schema
from closedform.ir.graph import Array
from closedform.ir.naming import BATCH, BUFFER, METRIC, PARAM, RANDOM, SHARED, STATE, STEP
from closedform.ir.steps import check_next
from closedform.runtime.checks import (
    check_array,
    check_names,
    check_stored,
    checked_step,
    hyper_values,
)
from closedform.runtime.double_buffer import DoubleBuffer
from closedform.runtime.onnx_session import OnnxSession, Port, open_session, run_on
from closedform.runtime.serialized import Serialized, serialize_calls
from closedform.runtime.tuned_session import open_tuned
from closedform.training import index_ranges, size_conditions
from closedform.training.feeds import BatchLike, contiguous, draw, read_batch, read_sizes
from closedform.training.in_place_step import InPlaceStep
from closedform.training.index_ranges import IndexRange
from closedform.training.initial_values import InitialValues
from closedform.training.state_file import read_state, write_state
from closedform.training.update_tails import split_file

TRAIN_FILE, INIT_FILE, EVAL_FILE = "train.onnx", "init.onnx", "eval.onnx"
EVAL_LOSS_FILE = "eval_loss.onnx"
STEPS = "closedform.steps"
"""The key of the metadata with the number of steps after which the schedules of a rule end."""
TRAINING_INFO_FILE = "training.onnx"
LOSS, LEARNING_RATE = "loss", "learning_rate"
if TYPE_CHECKING:
    import torch
    from onnx import ModelProto

CARRIED = (STEP, PARAM, STATE, SHARED, BUFFER)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of a training step.

    Attributes:
        step: The number of steps done, this one included.
        loss: The loss of the batch, before the update.
        learning_rate: The learning rate of this step; None if it is an input of the graph.
        metrics: The further results of the loss by name.
    """

    step: int
    loss: float
    learning_rate: float | None
    metrics: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The names in which a file of ``save`` and a step differ.

    Attributes:
        missing: The arrays of the step that the file lacks, such as ``state.0.weight.exp_avg``.
        unexpected: The arrays that only the file has.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


class TrainSession(Serialized):
    """Trains with the files of ``closedform.training.export``, without torch.

    Threads that share a session take turns: each step, save or read of all arrays is done whole.

    Args:
        path: The folder of ``train.onnx``, ``init.onnx`` and ``eval.onnx``, or the path of
            ``train.onnx``.
        seed: The seed of the random inputs (dropout). Each step has its own stream, so a resumed
            run draws the same numbers as an uninterrupted one.
        providers: Execution providers of onnxruntime; the CPU if None.
        threads: Threads within an op; onnxruntime's default if None.
        check: Whether labels, tokens and other indices of a batch are compared with the sizes
            that they index, which is in the file; ONNX counts negative ones from the end.

    Raises:
        SessionError: A file is missing or is not such a model, or the seed is not an integer >= 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        seed: int = 0,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        check: bool = True,
    ) -> None:
        location = Path(path)
        self._folder = location.parent if location.suffix == ".onnx" else location
        train = location if location.suffix == ".onnx" else location / TRAIN_FILE
        self._where = f"file {str(train)!r}"
        # A second block for the activations would double the memory.
        self._options: dict[str, Any] = {
            "providers": providers,
            "threads": threads,
            "has_memory_pattern": False,
        }
        # Other providers have their own memory: updates in place are for arrays of the CPU.
        split = None if providers else split_file(train)
        # Graphs are tuned for the kernels of the CPU provider.
        open_step = open_session if providers else open_tuned
        self._session = open_step(train if split is None else split.gradients, **self._options)
        check_schema(self._session.metadata, self._where)
        # eval.onnx is opened when it is first asked for: many runs only train.
        self._forward: OnnxSession | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._evaluation: OnnxSession | None = None
        # NumPy's SeedSequence takes integers from 0 on; a bool is not a seed.
        if type(seed) is not int or seed < 0:
            raise SessionError(f"seed must be an integer >= 0, got {seed!r}", where=self._where)
        self._seed = seed
        self._check, self._ranges = check, index_ranges.read(self._session.metadata)
        outputs = self._session.outputs
        inputs = self._session.inputs if split is None else split.ports(self._session)
        self._carried = {n: p for n, p in inputs.items() if n.startswith(CARRIED)}
        self._batch = {n: p for n, p in inputs.items() if n.startswith(BATCH)}
        self._random = {n: p for n, p in inputs.items() if n.startswith(RANDOM)}
        # Inputs without a prefix are hyperparameters of the rule.
        rest = inputs.keys() - self._carried.keys() - self._batch.keys() - self._random.keys()
        self._hypers = {name: inputs[name] for name in inputs if name in rest}
        if STEP not in inputs or LOSS not in outputs:
            raise SessionError(
                "a training step must have an input 'step' and an output 'loss'",
                where=self._where,
                hint="export it with closedform.training.export",
            )
        self._reported = {
            # Arrays that onnxruntime writes into at each step, so that a step allocates nothing.
            name: np.zeros([size or 0 for size in port.shape], port.dtype)
            for name, port in outputs.items()
            if name in (LOSS, LEARNING_RATE) or (name.startswith(METRIC) and None not in port.shape)
        }
        self._buffer: DoubleBuffer | InPlaceStep
        if split is None:
            state_ports = tuple(self._carried.values())
            self._buffer = DoubleBuffer(self._session, state_ports, self._where, self._reported)
        else:
            self._buffer = InPlaceStep(
                split,
                self._session,
                self._carried,
                self._where,
                self._reported,
                threads,
                lambda model: open_tuned(model, **self._options),
            )
        self._begin()

    def _begin(self) -> None:
        """Fills the arrays with their values before the first step."""
        initial = InitialValues(self._folder / INIT_FILE)
        for name, port in self._carried.items():
            start = initial.ports.get(name)
            if start is None or (start.dtype, start.shape) != (port.dtype, port.shape):
                raise SessionError(
                    f"{INIT_FILE} must have an output {name!r} of {port}, got {start or 'none'}",
                    where=self._where,
                    hint="export both files together",
                )
        initial.write_into(self._buffer.arrays)

    @property
    def t(self) -> int:
        """The number of steps done."""
        return int(self._buffer.arrays[STEP])

    @property
    def params(self) -> Mapping[str, Array]:
        """The parameters by name: read-only views, valid until the next step."""
        return self._views_of(PARAM)

    @property
    def states(self) -> Mapping[str, Array]:
        """The states of the rule by ``<parameter>.<state>``: views like ``params``."""
        return self._views_of(STATE)

    @property
    def shared(self) -> Mapping[str, Array]:
        """The states of the model, such as a count of skipped steps: views like ``params``."""
        return self._views_of(SHARED)

    @property
    def buffers(self) -> Mapping[str, Array]:
        """The model's buffers by name: views like ``params``."""
        return self._views_of(BUFFER)

    def _views_of(self, prefix: str) -> Mapping[str, Array]:
        views = self._buffer.current_views
        arrays = {n.removeprefix(prefix): v for n, v in views.items() if n.startswith(prefix)}
        return MappingProxyType(arrays)

    @serialize_calls
    def step(self, /, batch: BatchLike, **hyper: float) -> StepResult:
        """Performs one training step. After a failure, nothing has changed.

        Args:
            batch: The tensors of the batch, in the order of the export or by name.
            **hyper: Hyperparameters that are inputs of the graph.

        Raises:
            SessionError: The clock is at its last step, a tensor or hyperparameter is missing,
                unknown or does not fit, or onnxruntime fails.
        """
        check_next(self.t, self._carried[STEP].dtype, self._where)
        batch_arrays = read_batch(batch, self._batch, self._where)
        feeds = self._check_indices(
            self._session, batch_arrays, self._batch, self._ranges, (self._seed, self.t)
        )
        hyper_arrays = hyper_values(hyper, self._hypers, self._session.optional, self._where)
        self._buffer.run({**feeds, **hyper_arrays})
        rate = self._reported.get(LEARNING_RATE)
        return StepResult(
            self.t,
            float(self._reported[LOSS]),
            None if rate is None else float(rate),
            {
                name.removeprefix(METRIC): value.copy()
                for name, value in self._reported.items()
                if name.startswith(METRIC)
            },
        )

    def fit(
        self,
        batches: Iterable[BatchLike],
        *,
        progress: bool = True,
        total: int | None = None,
        **hyper: float,
    ) -> list[StepResult]:
        """Performs a step for each batch and returns the results.

        Args:
            batches: The batches.
            progress: Whether to show a progress bar with the loss and the learning rate.
            total: The number of batches, for the bar; ``len(batches)`` if it is defined.
            **hyper: As in ``step``.
        """
        if not progress:
            return [self.step(batch, **hyper) for batch in batches]
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        if total is None and isinstance(batches, Sized):
            total = len(batches)
        results = []
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        with Progress(*columns) as bar:
            task = bar.add_task("", total=total)
            for batch in batches:
                result = self.step(batch, **hyper)
                results.append(result)
                rate = "" if result.learning_rate is None else f"  lr {result.learning_rate:.3g}"
                bar.update(task, advance=1, description=f"loss {result.loss:.4f}{rate}")
        return results

    @serialize_calls
    def predict(self, *inputs: Array, sample: int = 0) -> Any:
        """Returns the model's output in evaluation mode, an array or a tuple of arrays.

        Args:
            *inputs: The inputs of the model.
            sample: Which random numbers a model gets that draws in evaluation mode, too (a
                variational autoencoder): they depend on the seed, the step and this integer >= 0.

        Raises:
            SessionError: ``eval.onnx`` is missing, an input does not fit, or onnxruntime fails.
        """
        if self._forward is None:
            self._forward = open_session(self._folder / EVAL_FILE, **self._options)
        ports = {n: p for n, p in self._forward.inputs.items() if n.startswith(BATCH)}
        if len(inputs) != len(ports):
            raise SessionError(
                f"the model takes {len(ports)} inputs, got {len(inputs)}", where=self._where
            )
        pairs = zip(ports.items(), inputs, strict=True)
        feeds = {name: contiguous(array, port, self._where) for (name, port), array in pairs}
        outputs = self._ran(self._forward, feeds, sample)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @serialize_calls
    def evaluate(self, batch: BatchLike, *, sample: int = 0) -> StepResult:
        """Returns loss and metrics of a batch in evaluation mode; nothing changes.

        Args:
            batch: As in ``step``.
            sample: As in ``predict``.

        Raises:
            SessionError: ``eval_loss.onnx`` is missing (export with ``evaluation_loss=True``), a
                tensor does not fit, or onnxruntime fails.
        """
        if self._evaluation is None:
            self._evaluation = open_session(self._folder / EVAL_LOSS_FILE, **self._options)
        ports = {n: p for n, p in self._evaluation.inputs.items() if n.startswith(BATCH)}
        outputs = self._ran(self._evaluation, read_batch(batch, ports, self._where), sample)
        # Nothing is written over the reported arrays of a training step.
        outputs_by_name = dict(zip(self._evaluation.outputs, outputs, strict=True))
        metrics = {
            n.removeprefix(METRIC): v for n, v in outputs_by_name.items() if n.startswith(METRIC)
        }
        return StepResult(self.t, float(outputs_by_name[LOSS]), None, metrics)

    def _check_indices(
        self,
        session: OnnxSession,
        batch: dict[str, Array],
        ports: Mapping[str, Port],
        ranges: Sequence[IndexRange],
        seed: tuple[int, ...],
    ) -> dict[str, Array]:
        """A batch whose indices are in their ranges, and the random numbers of a run on it.

        A tensor that nothing depends on has a port in the file, and perhaps none in the session.
        """
        sizes = read_sizes(batch, ports, self._where)
        size_conditions.check(size_conditions.read(session.metadata), sizes, self._where)
        if self._check:
            index_ranges.check(ranges, batch, sizes, self._where)
        random = {n: p for n, p in session.inputs.items() if n.startswith(RANDOM)}
        feeds = {name: array for name, array in batch.items() if name in session.inputs}
        return {**feeds, **draw(random, sizes, seed, self._where)} if random else feeds

    def _ran(self, session: OnnxSession, batch: dict[str, Array], sample: int) -> list[Array]:
        """The outputs of a model in evaluation mode that reads the current arrays."""
        if type(sample) is not int or sample < 0:
            raise SessionError(f"sample must be an integer >= 0, got {sample!r}", where=self._where)
        # NumPy pads a seed with zeros: a third number of 0 would repeat the numbers of a step.
        seed = self._seed, self.t, 1 + sample
        ranges = index_ranges.read(session.metadata)
        ports = {name: session.inputs[name] for name in batch}
        feeds = self._check_indices(session, batch, ports, ranges, seed)
        # The session's arrays are inputs by name; no weight is copied.
        now = self._buffer.arrays
        feeds |= {name: now[name] for name in session.inputs if name in now}
        try:
            return run_on(session, feeds)
        except Exception as error:  # onnxruntime's errors share no other base
            raise SessionError(f"onnxruntime failed: {error}", where=self._where) from error

    @serialize_calls
    def flat_params(self) -> Array:
        """Returns all parameters as one vector, in the order of ``params``.

        Federated averaging exchanges such vectors.
        """
        return np.concatenate([array.reshape(-1) for array in self.params.values()])

    @serialize_calls
    def set_flat_params(self, vector: Array) -> None:
        """Sets all parameters from a vector as ``flat_params`` returns it.

        Raises:
            SessionError: It is not a vector of that size and dtype.
        """
        sizes = {f"{PARAM}{name}": array.size for name, array in self.params.items()}
        ports = [self._carried[name] for name in sizes]
        # All parameters of a model have one dtype.
        whole = Port("the vector", ports[0].dtype, (sum(sizes.values()),))
        flat = check_array(vector, whole, "the vector", self._where)
        # The places of the cuts: all ends except the last.
        parts = np.split(flat, np.cumsum(list(sizes.values()))[:-1])
        self._buffer.write(
            {
                name: part.reshape(self._buffer.arrays[name].shape)
                for name, part in zip(sizes, parts, strict=True)
            }
        )

    @serialize_calls
    def set_params(self, values: Mapping[str, Array]) -> None:
        """Sets parameters by name; the others stay as they are.

        Raises:
            SessionError: A name is unknown, or an array is not of that shape and dtype; nothing has
                changed then.
        """
        self._set(PARAM, "parameter", values)

    @serialize_calls
    def set_states(self, values: Mapping[str, Array]) -> None:
        """Sets states of the rule by ``<parameter>.<state>``, as ``set_params``."""
        self._set(STATE, "state", values)

    @serialize_calls
    def set_buffers(self, values: Mapping[str, Array]) -> None:
        """Sets buffers by name, as ``set_params``; frozen parameters are buffers.

        Two models that train in turn pass their weights on:
        ``generator.set_buffers(discriminator.params)``.
        """
        self._set(BUFFER, "buffer", values)

    def _set(self, prefix: str, kind: str, values: Mapping[str, Array]) -> None:
        ports = {
            n.removeprefix(prefix): p for n, p in self._carried.items() if n.startswith(prefix)
        }
        check_names(values, ports, kind, self._where, is_complete=False)
        self._buffer.write(
            {
                ports[name].name: check_array(array, ports[name], repr(name), self._where)
                for name, array in values.items()
            }
        )

    @serialize_calls
    def to_onnx(self, path: str | os.PathLike[str]) -> ModelProto:
        """Writes the model with its current weights as one ONNX file for inference.

        It is in evaluation mode, at the rule's point of evaluation if it has one (averages), and
        its inputs have the names of the model's arguments. A model that draws random numbers in
        evaluation mode, too, draws them with operators of ONNX: other ones in each run.

        Raises:
            SessionError: ``eval.onnx`` is missing, or the file cannot be written.
        """
        from closedform.training.inference import with_weights

        source = self._folder / EVAL_FILE
        return with_weights(source, self._buffer.arrays, Path(path), self._where)

    @serialize_calls
    def to_torch(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Copies parameters and buffers into a torch model, and the states into its optimizer.

        Raises:
            StateError: The model does not have these tensors; nothing has changed then.
        """
        from closedform.training import torch_exchange

        torch_exchange.to_model(self._buffer.arrays, model, self._where)
        if optimizer is not None:
            torch_exchange.to_optimizer(self._buffer.arrays, optimizer, model)

    @serialize_calls
    def from_torch(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        step: int | None = None,
    ) -> None:
        """Takes parameters and buffers from a torch model, and the states from its optimizer.

        Args:
            model: The model.
            optimizer: Its optimizer.
            step: The number of steps done, for an optimizer that does not count them (torch's SGD
                and Muon); None for the optimizer's, or that of the session.

        Raises:
            StateError: A tensor or state is missing or does not fit; nothing has changed then.
        """
        from closedform.training import torch_exchange

        now = self._buffer.arrays
        arrays = torch_exchange.from_torch(now, model, optimizer, step, self._where)
        if STEP in arrays:
            checked_step(arrays[STEP][()], self._carried[STEP], self._where)
        self._buffer.write(arrays)

    @serialize_calls
    def save(self, path: str | os.PathLike[str], *, background: bool = False) -> Future[None]:
        """Writes step, parameters, states and buffers as a safetensors file.

        An interrupted save leaves the previous file.

        Args:
            path: The file.
            background: Whether to return before the file is written, by a thread, from a copy of
                all arrays: training goes on, with twice the memory of the session meanwhile. Such
                saves are written one after the other.

        Returns:
            What ends with the save: ``result()`` waits for it, and raises its error.

        Raises:
            SessionError: The file cannot be written.
        """
        arrays = self._buffer.arrays
        if not background:
            write_state(path, arrays)
            future: Future[None] = Future()
            future.set_result(None)
            return future
        if self._writer is None:
            # One thread, so that saves are written in the order of their calls.
            self._writer = ThreadPoolExecutor(1, "closedform-save")
        # Copied before the next step may write; the thread only reads the copies.
        copies = {name: array.copy() for name, array in arrays.items()}
        return self._writer.submit(write_state, path, copies)

    @serialize_calls
    def load(self, path: str | os.PathLike[str], *, strict: bool = True) -> Mismatch:
        """Loads a file that ``save`` wrote; nothing changes unless all of it matches.

        The arrays are read straight into the memory of the session.

        Args:
            path: The file.
            strict: Whether the file must have the arrays of this step, and no others. With False
                the arrays that both have are loaded, and the others stay as they are: the state of
                a step in which more, or fewer, parameters are frozen. A frozen parameter is a
                buffer.

        Returns:
            The names of the arrays that the file lacks, and of those that only the file has.

        Raises:
            StateError: The file is not a state of this model, or cannot be read.
        """
        where = f"file {os.fspath(path)!r}"
        places = read_state(path)
        sources = {name: _place_of(name, places) for name in self._carried}
        mismatch = Mismatch(
            tuple(name for name, source in sources.items() if source is None),
            tuple(name for name in places if name not in sources.values()),
        )
        if strict:
            _check_kinds(sources, where)
            check_names(places, self._carried, "array", where, StateError)
        places = {name: places[source] for name, source in sources.items() if source is not None}
        for name, place in places.items():
            check_stored(place, self._carried[name], repr(name), where, StateError)
        # The step is read and checked first: a file of another clock changes nothing.
        step = np.zeros((), self._carried[STEP].dtype)
        try:
            if STEP in places:
                places[STEP].read_into(step)
                checked_step(step[()], self._carried[STEP], where)
            self._buffer.fill(places, lambda array, place: place.read_into(array))
        except OSError as error:
            raise StateError(
                f"cannot read the state: {error}",
                where=where,
                hint="some arrays may come from the file: load another state",
            ) from error
        fresh = [name for name in mismatch.missing if name.startswith(STATE)]
        if fresh and self.t:
            more = f" and {len(fresh) - 1} more" if len(fresh) > 1 else ""
            warnings.warn(
                f"{where} has no {fresh[0]!r}{more}: at step {self.t} a rule with a bias "
                "correction takes larger steps until these states have settled; a schedule may "
                "warm up again",
                stacklevel=3,
            )
        return mismatch


def _place_of(name: str, places: Collection[str]) -> str | None:
    """The name in a file of an array of the step: a frozen parameter is a buffer."""
    for prefix, other in ((PARAM, BUFFER), (BUFFER, PARAM)):
        twin = f"{other}{name.removeprefix(prefix)}"
        if name.startswith(prefix) and name not in places and twin in places:
            return twin
    return name if name in places else None


def _check_kinds(sources: Mapping[str, str | None], where: str) -> None:
    """Raises StateError if a parameter of the step is frozen in the file, or the reverse."""
    for name, source in sources.items():
        if source not in (None, name):
            raise StateError(
                f"the file has {source!r} for {name!r}: other parameters were trained",
                where=where,
                hint="load(path, strict=False) loads the arrays that both have",
            )

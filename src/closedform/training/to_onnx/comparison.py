"""A traced step compared with torch: equal for the example, and for other sizes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import torch

from closedform.errors import TrainingExportError
from closedform.exporters.onnx_scopes import part_of
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.runtime.onnx_session import OnnxSession, open_session, run_on
from closedform.training import size_conditions
from closedform.training.feeds import read_sizes, shape_of
from closedform.training.size_conditions import SizeCondition
from closedform.training.to_onnx.arrays import array_of, view_of
from closedform.training.to_onnx.forward import Forward
from closedform.training.to_onnx.onnx_program import Tensors, without_kernel
from closedform.training.to_onnx.probe import EagerRun, run_eagerly
from closedform.training.to_onnx.rounding import (
    LARGEST,
    TOLERANCE,
    Rounding,
    distance,
    in_float64,
    measure,
    perturb,
)

_LOG = logging.getLogger("closedform.training")


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The tensors that a step is given, apart from its random numbers.

    Attributes:
        params: The parameters to train.
        buffers: Buffers and frozen parameters.
        tensors: The batch.
        shared_inputs: States of the model.
    """

    params: Tensors
    buffers: Tensors
    tensors: Tensors
    shared_inputs: Tensors

    def with_batch(self, tensors: Tensors) -> _Inputs:
        """Returns the inputs with another batch."""
        return replace(self, tensors=tensors)

    def wide(self) -> _Inputs:
        """Returns the inputs in float64."""

        def of(values: Tensors) -> Tensors:
            return {n: v.double() if v.is_floating_point() else v for n, v in values.items()}

        # Shared inputs are scales of the loss and stay as they are.
        return _Inputs(of(self.params), of(self.buffers), of(self.tensors), self.shared_inputs)

    def with_roundings(self, seed: int) -> _Inputs:
        """Returns the inputs with their floats a rounding away."""
        generator = torch.Generator().manual_seed(seed)
        params, buffers, tensors = (
            perturb(values, generator) for values in (self.params, self.buffers, self.tensors)
        )
        return _Inputs(params, buffers, tensors, self.shared_inputs)

    def is_small(self) -> bool:
        """Whether there is memory for a second step in float64."""
        values = (*self.params.values(), *self.buffers.values(), *self.tensors.values())
        return sum(value.nbytes for value in values) <= LARGEST

    def by_name(self) -> Tensors:
        """Returns the tensors by the names of the inputs of a graph."""
        return {
            **{naming.param(name): value for name, value in self.params.items()},
            **{naming.buffer(name): value for name, value in self.buffers.items()},
            **{f"{naming.BATCH}{name}": value for name, value in self.tensors.items()},
            **{naming.shared(name): value for name, value in self.shared_inputs.items()},
        }


def check_step(
    model: onnx.ModelProto, of: Forward, params: Tensors, buffers: Tensors, shared_inputs: Tensors
) -> None:
    """Raises ExportError if a traced step is not the step of torch, for the example or other sizes.

    torch runs in the dtype of the export, with the same random numbers. Sizes that the model itself
    cannot run are left out. Where the two differ, the errors of both are measured, and the graph is
    accepted if its error is torch's own; or if the example has equal numbers whose order no engine
    defines (as in a maximum over zeros), and the two agree on numbers that differ.

    The second comparison has other weights than the trace, in the memory of the model, as in a
    loop of torch: a constant that was computed from weights in the trace is wrong then.
    """
    step = _Step(model, params)
    conditions = size_conditions.read({e.key: e.value for e in model.metadata_props})
    first, *other_examples = _examples(of, conditions)
    for (sizes, tensors), weights in ((first, {}), ((other_examples or [first])[0], params)):
        example = _Inputs(params, buffers, tensors, shared_inputs)
        excesses = []
        with _move(weights):
            for inputs in (example, example.with_batch(_spread(tensors))):
                try:
                    excesses.append(_excess(step, of, inputs))
                except _NoStepError:
                    continue
                if excesses[-1] is None:
                    break
        if excesses and excesses[-1] is not None:
            after_update = " after an update of the weights" if weights else ""
            raise TrainingExportError(
                f"the traced step {excesses[0]} at sizes {sizes}{after_update}",
                where=of.where,
                hint="this is a defect of closedform, or a size, a value of the example or a "
                "weight in NumPy that the model computes with; please report it",
            )


@contextmanager
def _move(params: Tensors) -> Iterator[None]:
    """Changes parameters in their memory by up to an eighth, each in one bit, which is set back.

    Signs, magnitudes and zeros stay, so that a model computes as with its own weights.
    """

    def flip() -> None:
        for value in params.values():
            bits = torch.atleast_1d(value.view(_BITS[value.element_size()]))
            one, next_eighth, infinite = torch.tensor(
                [1.0, 1.125, math.inf], dtype=value.dtype
            ).view(bits.dtype)
            for part in bits.split(_PART_ROWS):
                exponent = part & infinite
                is_normal = (exponent != 0) & (exponent != infinite)
                part ^= (one ^ next_eighth) * is_normal

    flip()
    try:
        yield
    finally:
        flip()


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_PART_ROWS = 1024
"""Rows of a parameter that are changed at once: temporary arrays are of its size."""


class _NoStepError(Exception):
    """torch cannot do the step, or a result of it is not finite."""


# Larger groups need fewer runs of the forward, smaller ones less memory at once.
_GROUP = 2**27
"""Bytes of gradients that are compared at once, at least; or a quarter of all of them."""


class _Step:
    """A traced step in onnxruntime.

    The gradients of a large model are computed in groups, each by a part of the graph in a
    separate session, which has freed its memory when torch computes the same.

    Args:
        model: The traced step.
        params: The parameters.

    Attributes:
        groups: The names of the parameters of each group.
    """

    def __init__(self, model: onnx.ModelProto, params: Tensors) -> None:
        self._model = model
        self.groups = groups_of(params)
        self._whole: OnnxSession | None = None

    def results(
        self, run: EagerRun, inputs: _Inputs, group: Sequence[str] | None
    ) -> dict[str, Array]:
        """Returns all outputs of the graph, or the gradients of a group.

        The first group includes all outputs that are not gradients.
        """
        session = self._session(group)
        tensors_by_name = inputs.by_name()
        feeds = {
            name: view_of(tensors_by_name[name])
            for name in session.inputs
            if name in tensors_by_name
        }
        batch = {n: port for n, port in session.inputs.items() if n.startswith(naming.BATCH)}
        sizes = read_sizes(feeds, batch, "the example")
        for name, port in session.inputs.items():
            if name.startswith(naming.RANDOM):
                # random.<distribution>.<index>: the number is the place among the draws of the
                # eager run.
                draw = array_of(run.draws[int(name.rsplit(".", 1)[-1])])
                shape = shape_of(port, sizes, "the example")
                feeds[name] = draw.astype(port.dtype).reshape(shape)
        # ascontiguousarray makes a 0-dimensional array one of one axis, hence the reshape.
        feeds = {
            name: np.ascontiguousarray(array).reshape(array.shape) for name, array in feeds.items()
        }
        return dict(zip(session.outputs, run_on(session, feeds), strict=True))

    def _session(self, group: Sequence[str] | None) -> OnnxSession:
        if group is None or len(self.groups) == 1:
            if self._whole is None:
                # The memory of an arena would come on top of that of torch in float64.
                self._whole = open_session(self._model, has_memory_pattern=False, is_resident=False)
            return self._whole
        gradients = {naming.grad(name) for name in group}
        is_first = group is self.groups[0]
        outputs = [
            value.name
            for value in self._model.graph.output
            if value.name in gradients or (is_first and not value.name.startswith(naming.GRAD))
        ]
        return open_session(part_of(self._model, outputs), has_memory_pattern=False)


def groups_of(params: Tensors) -> list[list[str]]:
    """Returns the names of parameters in groups whose gradients are compared at once."""
    limit = max(_GROUP, sum(value.nbytes for value in params.values()) // 4)
    groups: list[list[str]] = [[]]
    size = 0
    for name, value in params.items():
        size += value.nbytes
        if size > limit and groups[-1]:
            groups.append([])
            size = value.nbytes
        groups[-1].append(name)
    return groups


def _examples(
    of: Forward, conditions: Sequence[SizeCondition]
) -> Iterator[tuple[dict[str, int], Tensors]]:
    """The example, and the first of some other sizes of the step that the model can run."""
    tensors, symbols = of.batch.tensors, of.batch.symbols
    yield symbols, tensors
    # Odd and even neighbours: a model may need a size that is a multiple of 2 or 3.
    for factor, increment in ((1, 1), (2, 0), (1, -1), (1, 2), (1, -2), (3, 0)):
        # n + 1 first: with the same rows and one more. Sizes below 1 have no step.
        sizes = {name: max(factor * size + increment, 1) for name, size in symbols.items()}
        if not size_conditions.hold(conditions, sizes):
            continue
        resized_tensors = _resize(tensors, of.batch.sizes, sizes)
        if symbols and _run(of, _Inputs(*of.tensors(), resized_tensors, {})) is not None:
            yield sizes, resized_tensors
            return


def _resize(tensors: Tensors, axes: Mapping[str, Mapping[int, str]], sizes: Any) -> Tensors:
    """Tensors with other sizes, their rows repeated."""
    result = {}
    for name, tensor in tensors.items():
        for axis, symbol in axes.get(name, {}).items():
            # Rows are repeated, so that tokens and labels stay in their ranges.
            places = torch.arange(sizes[symbol]) % tensor.shape[axis]
            tensor = tensor.index_select(axis, places)
        result[name] = tensor
    return result


def _spread(tensors: Tensors) -> Tensors:
    """Tensors whose floats are spread over their range, or over [0, 1) if they are all the same."""
    generator = torch.Generator().manual_seed(0)

    # A fixed seed: the check of an export has one result.
    def of(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        low, high = tensor.min(), tensor.max()
        width = high - low if high > low else torch.ones_like(low)
        numbers = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        return (numbers * width + low).to(tensor.dtype)

    return {name: of(tensor) for name, tensor in tensors.items()}


def _run(of: Forward, inputs: _Inputs) -> EagerRun | None:
    """A forward in torch; None if it cannot do it, or its loss is not finite."""
    try:
        run = run_eagerly(of, inputs.params, inputs.buffers, inputs.tensors).run
    except Exception:  # of any kind: the code of the model is not ours
        return None
    return run if bool(run.loss.isfinite().all()) else None


def _excess(step: _Step, of: Forward, inputs: _Inputs) -> str | None:
    """Returns how the graph is wrong: an error of onnxruntime, or results that err more than torch.

    Only where results differ by more than the tolerance, the errors are measured.

    Raises:
        _NoStepError: torch has nothing to compare with.
    """
    run = _run(of, inputs)
    if run is None:
        raise _NoStepError
    differences: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for group in step.groups:
        try:
            results = step.results(run, inputs, group)
        except Exception as error:  # the errors of onnxruntime have no common base
            missing = without_kernel(str(error), of.where)
            if missing is not None:
                raise missing from error
            return f"fails in onnxruntime ({str(error).splitlines()[0]})"

        def compare(name: str, value: torch.Tensor, results: dict[str, Array] = results) -> None:
            sizes[name] = _size(value)
            if name in results:
                differences[name] = distance(results.pop(name), view_of(value))

        _compute(of, inputs, run.draws, group, compare)
    if not all(map(math.isfinite, sizes.values())):
        raise _NoStepError
    # NaN and infinities in results of torch: there is nothing to compare with.
    largest = max((n for name, n in sizes.items() if name.startswith(naming.GRAD)), default=0.0)
    # A gradient that is zero but for roundings is compared with the largest one.
    scales = {name: max(size, 1e-3 * largest, 1e-30) for name, size in sizes.items()}
    tolerance = max(TOLERANCE[value.dtype] for value in (*inputs.params.values(), run.loss))
    # not (… <= …) is also true for NaN.
    suspects = [name for name, n in differences.items() if not n / scales[name] <= tolerance]
    if not suspects:
        return None
    rounding = _rounding(of, inputs, run, suspects)
    results = step.results(run, inputs, None)
    for name in suspects:
        difference = differences[name] / scales[name]
        text = f"differs from torch in {name!r} by {difference:.2g} of its largest value"
        wrong = rounding.excess(name, results[name], tolerance, scales[name])
        if wrong is not None:
            return f"{text} ({wrong})"
        _LOG.info("%s: the step %s, as torch does from float64 or itself", of.where, text)
    return None


def _size(value: torch.Tensor) -> float:
    """The largest absolute value."""
    return max(abs(float(bound)) for bound in value.aminmax())


def _rounding(of: Forward, inputs: _Inputs, run: EagerRun, names: Sequence[str]) -> Rounding:
    """The errors of torch in the dtype of the export."""
    reference = _arrays(of, inputs, run.draws, names)
    draws = [draw.double() for draw in run.draws]
    exact = None
    if inputs.is_small():
        # Of the same graph in float64, as the exact result.
        with in_float64():
            exact = _arrays(of, inputs.wide(), draws, names)
    # Two neighbours of the inputs: results that jump between them have no defined value here.
    nearby = (_arrays(of, inputs.with_roundings(seed), run.draws, names) for seed in range(2))
    return measure(reference or {}, exact, [arrays for arrays in nearby if arrays is not None])


def _arrays(
    of: Forward, inputs: _Inputs, draws: list[torch.Tensor], names: Sequence[str]
) -> dict[str, Array] | None:
    """Results of torch in float64; None if it cannot compute them, or one is not finite."""
    params = [name for name in inputs.params if naming.grad(name) in names]
    arrays: dict[str, Array] = {}

    def take(name: str, value: torch.Tensor) -> None:
        if name in names:
            arrays[name] = value.double().numpy()

    try:
        _compute(of, inputs, draws, params, take)
    except _NoStepError:
        return None
    return arrays if all(np.isfinite(array).all() for array in arrays.values()) else None


def _compute(
    of: Forward,
    inputs: _Inputs,
    draws: list[torch.Tensor],
    group: Sequence[str],
    take: Callable[[str, torch.Tensor], None],
) -> None:
    """Hands over the results of torch that are floats, gradients one by one as they are computed.

    Args:
        of: The model and its loss.
        inputs: The tensors of the step.
        draws: Its random numbers.
        group: The parameters whose gradients are computed.
        take: Called with the name of an output of the graph, and its value.

    Raises:
        _NoStepError: torch cannot do the step.
    """
    failures: list[Exception] = []

    # An error of the comparison must not pass for one of the model: it is noted and raised at the
    # end.
    def hand_over(name: str, value: torch.Tensor) -> None:
        if value.is_floating_point() and value.numel():
            try:
                take(name, value.detach())
            except Exception as error:
                failures.append(error)
                raise

    try:
        pending = run_eagerly(of, inputs.params, inputs.buffers, inputs.tensors, draws=draws)
        run = pending.run
        hand_over("loss", run.loss)
        for name, value in run.metrics.items():
            hand_over(f"{naming.METRIC}{name}", value)
        for name, value in run.buffers.items():
            hand_over(naming.following(naming.buffer(name)), value.to(inputs.buffers[name].dtype))
        for name, value in run.params.items():
            hand_over(f"{naming.WRITTEN}{name}", value.to(inputs.params[name].dtype))
        pending.gradients(lambda name, value: hand_over(naming.grad(name), value), group)
    except Exception as error:  # of any kind: the code of the model is not ours
        if failures:
            raise failures[0] from error
        raise _NoStepError from error

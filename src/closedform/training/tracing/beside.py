"""A traced step beside torch: the same numbers for the example, and for other sizes of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import torch

from closedform.errors import ExportError
from closedform.ir import naming
from closedform.ir.graph import Array
from closedform.runtime.onnx_session import OnnxSession, open_session, run_on
from closedform.training.feeds import read_sizes, shape_of
from closedform.training.tracing.arrays import array_of
from closedform.training.tracing.forward import Forward
from closedform.training.tracing.onnx_program import Tensors
from closedform.training.tracing.probe import Run, run_eagerly
from closedform.training.tracing.rounding import (
    LARGEST,
    TOLERANCE,
    Rounding,
    distance,
    measured,
    perturbed,
)

_LOG = logging.getLogger("closedform.training")


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The tensors that a step is given, apart from its random numbers.

    Attributes:
        params: The parameters to train.
        fixed: Buffers and frozen parameters.
        tensors: The batch.
        shared: States of the model.
    """

    params: Tensors
    fixed: Tensors
    tensors: Tensors
    shared: Tensors

    def with_batch(self, tensors: Tensors) -> _Inputs:
        """Returns the inputs with another batch."""
        return replace(self, tensors=tensors)

    def wide(self) -> _Inputs:
        """Returns the inputs in float64."""

        def of(values: Tensors) -> Tensors:
            return {n: v.double() if v.is_floating_point() else v for n, v in values.items()}

        return _Inputs(of(self.params), of(self.fixed), of(self.tensors), self.shared)

    def perturbed(self, seed: int) -> _Inputs:
        """Returns the inputs with their floats a rounding away."""
        generator = torch.Generator().manual_seed(seed)
        params, fixed, tensors = (
            perturbed(values, generator) for values in (self.params, self.fixed, self.tensors)
        )
        return _Inputs(params, fixed, tensors, self.shared)

    def is_small(self) -> bool:
        """Whether there is memory for a second step in float64."""
        values = (*self.params.values(), *self.fixed.values(), *self.tensors.values())
        return sum(value.nbytes for value in values) <= LARGEST

    def named(self) -> Tensors:
        """Returns the tensors by the names of the inputs of a graph."""
        return {
            **{naming.param(name): value for name, value in self.params.items()},
            **{naming.buffer(name): value for name, value in self.fixed.items()},
            **{f"{naming.BATCH}{name}": value for name, value in self.tensors.items()},
            **{naming.shared(name): value for name, value in self.shared.items()},
        }


def check_step(
    model: onnx.ModelProto, of: Forward, params: Tensors, fixed: Tensors, shared: Tensors
) -> None:
    """Raises ExportError if a traced step is not the step of torch, for the example or other sizes.

    torch runs in the dtype of the export, with the same random numbers. Sizes that the model itself
    cannot run are left out. Where the two differ, the errors of both are measured, and the graph is
    accepted if its error is torch's own; or if the example has equal numbers whose order no engine
    defines (as in a maximum over zeros), and the two agree on numbers that differ.
    """
    session = open_session(model)
    for sizes, tensors in _examples(of):
        given = _Inputs(params, fixed, tensors, shared)
        spread = given.with_batch(_spread(tensors))
        run = _run(of, given)
        if run is None:
            given, run = spread, _run(of, spread)
        if run is None:
            continue
        excess = _excess(session, of, given, run)
        if excess is None:
            continue
        again = None if given is spread else _run(of, spread)
        if again is not None and _excess(session, of, spread, again) is None:
            continue
        raise ExportError(
            f"the traced step {excess} at sizes {sizes}",
            where=of.where,
            hint="this is a defect of closedform, or a size or value of the example that the model "
            "computes with; please report it",
        )


def _examples(of: Forward) -> Iterator[tuple[dict[str, int], Tensors]]:
    """The example, and the first of some other sizes that the model can run."""
    tensors, symbols = of.batch.tensors, of.batch.symbols
    yield symbols, tensors
    for factor, added in ((1, 1), (2, 0), (1, -1)):
        sizes = {name: max(factor * size + added, 1) for name, size in symbols.items()}
        resized = _resized(tensors, of.batch.sizes, sizes)
        if symbols and _run(of, _Inputs(*of.tensors(), resized, {})) is not None:
            yield sizes, resized
            return


def _resized(tensors: Tensors, axes: Mapping[str, Mapping[int, str]], sizes: Any) -> Tensors:
    """Tensors with other sizes, their rows repeated."""
    result = {}
    for name, tensor in tensors.items():
        for axis, symbol in axes.get(name, {}).items():
            places = torch.arange(sizes[symbol]) % tensor.shape[axis]
            tensor = tensor.index_select(axis, places)
        result[name] = tensor
    return result


def _spread(tensors: Tensors) -> Tensors:
    """Tensors whose floats are spread over their range, or over [0, 1) if they are all the same."""
    generator = torch.Generator().manual_seed(0)

    def of(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        low, high = tensor.min(), tensor.max()
        width = high - low if high > low else torch.ones_like(low)
        numbers = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
        return (numbers * width + low).to(tensor.dtype)

    return {name: of(tensor) for name, tensor in tensors.items()}


def _run(of: Forward, given: _Inputs, draws: Any = None) -> Run | None:
    """A step in torch; None if it cannot do it, or its loss is not finite."""
    try:
        run = run_eagerly(of, given.params, given.fixed, given.tensors, draws=draws)
    except Exception:  # of any kind: the code of the model is not ours
        return None
    finite = (run.loss, *run.grads.values())
    return run if all(bool(value.isfinite().all()) for value in finite) else None


def _results(session: OnnxSession, run: Run, inputs: _Inputs) -> dict[str, Array]:
    given = inputs.named()
    feeds = {name: array_of(given[name]) for name in session.inputs if name in given}
    batch = {n: port for n, port in session.inputs.items() if n.startswith(naming.BATCH)}
    sizes = read_sizes(feeds, batch, "the example")
    for name, port in session.inputs.items():
        if name.startswith(naming.RANDOM):
            drawn = array_of(run.draws[int(name.rsplit(".", 1)[-1])])
            shape = shape_of(port, sizes, "the example")
            feeds[name] = drawn.astype(port.dtype).reshape(shape)
    feeds = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in feeds.items()
    }
    return dict(zip(session.outputs, run_on(session, feeds), strict=True))


def _excess(session: OnnxSession, of: Forward, given: _Inputs, run: Run) -> str | None:
    """Returns how the graph is wrong: an error of onnxruntime, or results that err more than torch.

    Only where results differ by more than the tolerance, the errors are measured.
    """
    try:
        results = _results(session, run, given)
    except Exception as error:  # the errors of onnxruntime have no base of their own
        return f"fails in onnxruntime ({str(error).splitlines()[0]})"
    wanted = _arrays(run, given.fixed)
    tolerance = max(TOLERANCE[value.dtype] for value in (*given.params.values(), run.loss))
    largest = max(
        (float(grad.abs().max()) for grad in run.grads.values() if grad.numel()), default=0
    )
    # A gradient that is zero but for roundings is compared with the largest one.
    scales = {
        name: max(float(np.abs(value).max(initial=0)), 1e-3 * largest, 1e-30)
        for name, value in wanted.items()
    }
    differences = {
        name: distance(results[name], value) / scales[name]
        for name, value in wanted.items()
        if name in results
    }
    suspects = [name for name, value in differences.items() if not value <= tolerance]
    if not suspects:
        return None
    rounding = _rounding(of, given, run)
    for name in suspects:
        text = f"differs from torch in {name!r} by {differences[name]:.2g} of its largest value"
        wrong = rounding.excess(name, results[name], tolerance, scales[name])
        if wrong is not None:
            return f"{text} ({wrong})"
        _LOG.info("%s: the step %s, as torch does from float64 or itself", of.where, text)
    return None


def _rounding(of: Forward, given: _Inputs, run: Run) -> Rounding:
    """The errors of torch in the dtype of the export."""
    draws = [draw.double() for draw in run.draws]
    exact = _run(of, given.wide(), draws) if given.is_small() else None
    nearby = (_run(of, given.perturbed(seed), run.draws) for seed in range(2))
    return measured(
        _arrays(run, given.fixed),
        None if exact is None else _arrays(exact, given.wide().fixed),
        [_arrays(one, given.fixed) for one in nearby if one is not None],
    )


def _arrays(run: Run, fixed: Tensors) -> dict[str, Array]:
    """The results of torch that are floats, in float64, by the names of outputs of a graph."""
    named = {
        "loss": run.loss,
        **{f"metric.{name}": value for name, value in run.metrics.items()},
        **{naming.grad(name): value for name, value in run.grads.items()},
        **{
            naming.following(naming.buffer(name)): value.to(fixed[name].dtype)
            for name, value in run.buffers.items()
        },
    }
    return {
        name: value.detach().double().numpy()
        for name, value in named.items()
        if value.is_floating_point() and value.numel()
    }

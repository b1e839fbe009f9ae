"""A traced step beside torch: the same numbers for the example, and for other sizes of it."""

from __future__ import annotations

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
from closedform.training.tracing.arrays import NARROW, array_of
from closedform.training.tracing.forward import Forward
from closedform.training.tracing.onnx_program import Tensors
from closedform.training.tracing.probe import Run, run_eagerly

TOLERANCE: Mapping[torch.dtype, float] = {torch.float64: 1e-8, torch.float32: 1e-3}
"""The largest difference of a gradient, relative to its largest value. Sums in another order differ
by some hundred roundings; another formula, or a size of the example, by a part of the value."""


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

    Sizes that the model itself cannot run are left out. Where float32 in torch is as far from
    float64 as the graph is, or the example has equal numbers whose order no engine defines (as in
    a maximum over zeros), the graph is accepted.
    """
    if any(value.dtype in NARROW for value in params.values()):
        return  # the export runs a step of these; their roundings leave nothing to compare
    session = open_session(model)
    for sizes, tensors in _examples(of):
        given = _Inputs(params, fixed, tensors, shared)
        run = _run(of, given)
        if run is None:
            continue
        found = _differences(session, run, given)
        if not found:
            continue
        other = given.with_batch(_spread(tensors))
        again = _run(of, other)
        if again is not None and not _differences(session, again, other):
            continue
        if _is_ill_conditioned(session, of, given, run):
            continue
        raise ExportError(
            f"the traced step {found[0]} at sizes {sizes}",
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


def _differences(session: OnnxSession, run: Run, given: _Inputs) -> list[str]:
    """Returns what is wrong: an error of onnxruntime, or results beyond the tolerance."""
    try:
        results = _results(session, run, given)
    except Exception as error:  # the errors of onnxruntime have no base of their own
        return [f"fails in onnxruntime ({str(error).splitlines()[0]})"]
    largest = max(
        (float(grad.abs().max()) for grad in run.grads.values() if grad.numel()), default=0
    )
    found = []
    for name, wanted in _wanted(run, given.fixed).items():
        if name not in results or not wanted.is_floating_point() or not wanted.numel():
            continue
        own = results[name].astype(np.float64)
        exact = wanted.detach().double().numpy()
        # A gradient that is zero but for roundings is compared with the largest one.
        scale = max(float(np.abs(exact).max()), 1e-3 * largest, 1e-30)
        distance = float(np.abs(own - exact).max()) / scale if own.shape == exact.shape else 1.0
        tolerance = max(TOLERANCE.get(dtype, 0.1) for dtype in (wanted.dtype, run.loss.dtype))
        if not distance <= tolerance:
            found.append(f"differs from torch in {name!r} by {distance:.2g} of its largest value")
    return found


def _wanted(run: Run, fixed: Tensors) -> Tensors:
    return {
        "loss": run.loss,
        **{f"metric.{name}": value for name, value in run.metrics.items()},
        **{naming.grad(name): value for name, value in run.grads.items()},
        **{
            naming.following(naming.buffer(name)): value.to(fixed[name].dtype)
            for name, value in run.buffers.items()
        },
    }


def _is_ill_conditioned(session: OnnxSession, of: Forward, given: _Inputs, run: Run) -> bool:
    """Whether torch in float32 is as far from float64 as the graph is, up to a factor of 16."""
    exact = _run(of, given.wide(), [draw.double() for draw in run.draws])
    if exact is None:
        return False
    try:
        results = _results(session, run, given)
    except Exception:  # the errors of onnxruntime have no base of their own
        return False
    for name, grad in run.grads.items():
        reference = exact.grads[name].numpy()
        own = np.abs(results[naming.grad(name)] - reference).max(initial=0)
        in_torch = np.abs(grad.double().numpy() - reference).max(initial=0)
        if not own <= 16 * in_torch + TOLERANCE[torch.float32] * np.abs(reference).max(initial=0):
            return False
    return True

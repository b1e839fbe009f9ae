"""ONNX files of published packages: a step of training, next to differences of onnxruntime.

A file is exact if its loss is that of stock onnxruntime on the file, and the gradients that the
trained step applies are the differences of that loss in random directions. The packages are
downloaded to build/packages, and results stored in build/results.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import ModelProto, helper, numpy_helper

import closedform as cf
from closedform import training
from closedform.errors import ClosedFormError
from tests.support.stored_results import StoredResults
from tests.training.onnx_files import (
    FILES,
    PackagedFile,
    draw_batch,
    trainable_names,
    weights_as_initializers,
)

RESULTS = StoredResults(
    "onnx_files",
    [
        "src/closedform/training",
        *(f"tests/training/{name}.py" for name in ("onnx_files", "compare_onnx_files")),
    ],
    ["torch", "onnxruntime"],
)

SLOPE_TOLERANCE = 2e-2
"""Of the change of the loss in the direction of a gradient, which kinks and curvature change."""

CHANGES = (0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)
"""Of the loss; the best counts, between curvature and roundings."""

RATE = 2.0**20
"""A rate at which an update is its gradient, whose digits a weight does not take."""

DIRECTIONS = 6
"""The weights of which the slope is compared: the first, the last, and some between."""


def weighted_square(outputs: Any) -> torch.Tensor:
    """A loss that tells the columns of the first float output apart."""
    tensors = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    y = next(tensor for tensor in tensors if tensor.is_floating_point())
    return ((1.5 + 0.5 * torch.cos(torch.arange(y.shape[-1]))) * y**2).mean()


def _rounding(loss: float) -> float:
    """The tolerance of a loss: sums in another order, and outputs that are off by 1e-7.

    A sigmoid or a softmax of onnxruntime has errors of 1e-7, however small its value is.
    """
    return 1e-6 * loss + 2e-7 * float(np.sqrt(loss))


class Reference:
    """The loss of stock onnxruntime on a file, with some weights as inputs."""

    def __init__(self, model: ModelProto, names: list[str], batch: dict[str, Any]) -> None:
        copy = weights_as_initializers(model)
        inputs = {value.name for value in copy.graph.input}
        self.weights = {}
        for tensor in copy.graph.initializer:
            if tensor.name in names:
                self.weights[tensor.name] = numpy_helper.to_array(tensor)
                if tensor.name not in inputs:
                    copy.graph.input.append(
                        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
                    )
        self._model, self._batch = copy, batch
        self._session = self._open(onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
        kinds = [output.type for output in self._session.get_outputs()]
        self._place = next(
            place for place, kind in enumerate(kinds) if "float" in kind or "double" in kind
        )

    def _open(self, level: Any) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = level
        return onnxruntime.InferenceSession(self._model.SerializeToString(), options)

    def loss(self, weights: dict[str, Any]) -> float:
        return self._loss(self._session, weights)

    def change_by_roundings(self) -> float:
        """How far the loss is from that of the graph without optimizations, and of rounded inputs.

        3e-4 of the loss for basic-pitch and 2e-5 for swift-f0, which take logarithms of spectra.
        """
        plain = self._open(onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        losses = [self._loss(plain, {})]
        numbers = np.random.default_rng(0)
        for _ in range(4):
            factors = {
                name: 1 + 2.0**-23 * numbers.choice([-1, 1], array.shape)
                for name, array in self._batch.items()
                # Tokens are floats in nakdimon: a rounding makes another token of one.
                if array.dtype == np.float32 and np.any(array % 1)
            }
            rounded = {
                name: np.asarray(self._batch[name] * factor, np.float32)
                for name, factor in factors.items()
            }
            losses.append(self.loss(rounded))
        return max(abs(loss - self.loss({})) for loss in losses)

    def _loss(self, session: onnxruntime.InferenceSession, weights: dict[str, Any]) -> float:
        y = session.run(None, self._batch | weights)[self._place].astype(np.float64)
        return float(((1.5 + 0.5 * np.cos(np.arange(y.shape[-1]))) * y**2).mean())


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def _export(model: ModelProto, path: Path, example: Any, folder: Path, axes: Any) -> None:
    training.export(
        path,
        weighted_square,
        example,
        cf.optimizers.sgd(lr=None),
        folder,
        dynamic_axes=axes,
        trainable=trainable_names(model),
    )


def compare(file: PackagedFile, folder: Path) -> str:
    """Returns how a file is trained: "exact …" or "refused: …".

    Raises:
        AssertionError: Loss or gradients differ.
    """
    model = file.read()
    batch = draw_batch(file, model)
    example = {_identifier(name): torch.from_numpy(array) for name, array in batch.items()}
    path = folder / "given.onnx"
    path.write_bytes(model.SerializeToString())
    sizes = "free sizes"
    try:
        try:
            _export(model, path, example, folder / "run", None)
        except ClosedFormError:
            sizes = "the sizes of the batch"
            _export(model, path, example, folder / "run", {})
    except ClosedFormError as error:
        return f"refused: {error}"
    session = training.TrainSession(folder / "run", seed=0)
    before = {name: np.array(value, np.float64) for name, value in session.params.items()}
    result = session.step(dict(zip(example, batch.values(), strict=True)), lr=RATE)
    gradients = {name: (before[name] - value) / RATE for name, value in session.params.items()}
    names = [name for name in gradients if gradients[name].any()]
    chosen = [
        names[place] for place in np.unique(np.linspace(0, len(names) - 1, DIRECTIONS).astype(int))
    ]
    reference = Reference(model, chosen, batch)
    loss = reference.loss({})
    # A graph rounds its values as often as it has layers, inputs are rounded once.
    change = reference.change_by_roundings()
    tolerance = 10 * _rounding(loss) + 4 * change
    assert abs(result.loss - loss) <= tolerance, (result.loss, loss, tolerance)
    errors = [
        _error_of_slope(reference, name, gradients[name], max(change, _rounding(loss)))
        for name in chosen
    ]
    measured = [error for error in errors if error is not None]
    assert measured, "no weight changes the loss by more than its roundings"
    assert max(measured) <= SLOPE_TOLERANCE, dict(zip(chosen, errors, strict=True))
    return f"exact: {sizes}, {len(names)} weights, {len(measured)} slopes, {max(measured):.1e}"


def _error_of_slope(
    reference: Reference, name: str, gradient: Any, rounding: float
) -> float | None:
    """The relative error of a slope; None if all changes of the loss drown in its roundings."""
    weight = reference.weights[name]
    length = np.linalg.norm(weight) or 1.0  # a bias may begin at 0
    direction = gradient / np.linalg.norm(gradient) * length
    slope, loss = float((gradient * direction).sum()), reference.loss({})
    errors = []
    for change in CHANGES:
        step = min(change * loss / slope, 0.1)
        expected = 2 * step * slope
        if rounding > expected / 20:
            break
        ends = [
            reference.loss({name: (weight + sign * step * direction).astype(weight.dtype)})
            for sign in (1, -1)
        ]
        errors.append(abs((ends[0] - ends[1]) / expected - 1))
    return min(errors, default=None)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_exact_or_refused_by_name(name: str, tmp_path: Path) -> None:
    file = FILES[name]
    result = RESULTS.result(name, lambda: compare(file, tmp_path))
    print(f"\n{name}: {result}")
    if file.refusal is None:
        assert result.startswith("exact"), result
    else:
        assert file.refusal in result


def test_the_results_are_counted() -> None:
    counts = RESULTS.counts(lambda _, result: result.split(":")[0])
    print("", *(f"{kind} {count}" for kind, count in sorted(counts.items())), sep="\n")

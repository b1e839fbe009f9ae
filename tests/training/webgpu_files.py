"""Training with the files of the target "webgpu" in onnxruntime on a CPU; batches of the zoo."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from torch import nn

from closedform import UpdateRule
from closedform.runtime.onnx_session import open_session
from closedform.training import export
from closedform.training.feeds import draw
from closedform.training.to_onnx.batch import read_batch
from closedform.training.webgpu.step import SCALARS_FILE, WEBGPU_FILE
from tests.training.zoo import Entry

Arrays = dict[str, NDArray[Any]]

KINDS: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def export_entry(entry: Entry, rule: UpdateRule, folder: Path) -> nn.Module:
    """Exports an entry of the zoo for WebGPU; returns its model."""
    torch.manual_seed(0)
    model, example = entry.model(), entry.batch(4)
    if any(isinstance(part, nn.modules.lazy.LazyModuleMixin) for part in model.modules()):
        with torch.no_grad():
            model(example[0])
    entry.prepare(model)
    # The ordinary step is compared with torch by the tests of the zoo.
    export(
        model,
        entry.loss,
        example,
        rule,
        folder,
        target="webgpu",
        validate=False,
        **entry.options,
    )
    return model


def zoo_batches(
    entry: Entry, model: nn.Module, folder: Path, steps: int, sizes: Sequence[int] = (3, 4, 6)
) -> Iterator[Arrays]:
    """Batches of an entry with their random numbers, of different numbers of rows."""
    ports = open_session(folder / "train.onnx").inputs
    random = {name: port for name, port in ports.items() if name.startswith("random.")}
    axes = {key: entry.options[key] for key in ("dynamic_axes",) if key in entry.options}
    torch.manual_seed(1)
    for step, rows in zip(range(steps), itertools.cycle(sizes), strict=False):
        read = read_batch(model, entry.loss, entry.batch(rows), "", **axes)
        arrays = {f"batch.{name}": tensor.numpy() for name, tensor in read.tensors.items()}
        free = {
            symbol: array.shape[axis]
            for name, array in arrays.items()
            for axis, symbol in enumerate(ports[name].symbols)
            if symbol is not None
        }
        yield arrays | draw(random, free, (0, step), "the zoo")


def losses_of(
    folder: Path, batches: Sequence[Arrays], *, is_webgpu: bool
) -> tuple[list[float], Arrays]:
    """Losses and the last state of the ordinary step, or of the two files for WebGPU."""
    names = (SCALARS_FILE, WEBGPU_FILE) if is_webgpu else ("train.onnx",)
    runs: list[Callable[[Arrays], Arrays]] = [_runner(folder / name) for name in names]
    carried = _runner(folder / "init.onnx")({})
    losses = []
    for batch in batches:
        values, results = carried | batch, dict[str, Any]()
        for run in runs:
            results |= run(values | results)
        carried |= {
            name.removeprefix("next."): value
            for name, value in results.items()
            if name.startswith("next.")
        }
        losses.append(float(results["loss"]))
    return losses, carried


def _runner(path: Path) -> Callable[[Arrays], Arrays]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]

    def run(values: Arrays) -> Arrays:
        feeds = {
            port.name: np.asarray(values[port.name]).astype(KINDS[port.type])
            for port in session.get_inputs()
        }
        return dict(zip(outputs, session.run(None, feeds), strict=True))

    return run
